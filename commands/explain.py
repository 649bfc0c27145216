"""`rdma-cts explain`: a rule, a case, a point or a defect in full: what is promised, what proves it, what came last."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from commands import case_options
from commands.explanations import of_case, of_defect, of_rule
from commands.output import show
from conformance.defects import Defect
from conformance.errors import PROGRAM, UserError
from conformance.model.case import Case
from conformance.results.records import FILE_NAME
from conformance.run_options import given_path
from conformance.tables.suite import Suite
from conformance.yamldoc.reader import suggestion
from reports.digest import Digest, read

NAME = "explain"
HELP = "Explain a rule, a case, a point of a sweep or a defect: source, set-up, last verdict, what a failure means."

OUT = Path("out")  # where runs write their results by default
FINGERPRINT = re.compile(r"[0-9a-f]{4,}")  # its beginning suffices if no other defect's begins like that


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument(
        "id",
        metavar="ID",
        help="a rule such as REG-15, a case such as reg_mr/registration/last-byte, CASE#axis=value,... for a point of "
        "a sweep, or the fingerprint of a defect",
    )
    parser.add_argument(
        "--results", type=given_path, metavar="DIR", help=f"the run to look at (default: the latest in {OUT}/)"
    )
    case_options.add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the explanation; exit status 0. Raises UserError for an unknown id."""
    suite = case_options.suite_from(arguments)
    wanted = arguments.id
    path = arguments.results or latest(OUT)
    run = read(path) if path else None
    if FINGERPRINT.fullmatch(wanted):
        show(of_defect(*defect_of(wanted, run, "--results")))
        return 0
    rule = next((id_ for id_ in suite.registry if id_.upper() == wanted.upper()), None)
    lines = of_rule(suite, suite.registry[rule], run) if rule else of_case(suite, _case(suite, wanted), run)
    show(lines)
    return 0


def latest(folder: Path) -> Path | None:
    """The run in `folder` whose results were written last; None if there is none."""
    files = sorted(folder.glob(f"*/{FILE_NAME}"), key=lambda file: file.stat().st_mtime)
    return files[-1].parent if files else None


def _case(suite: Suite, wanted: str) -> Case:
    found = suite.find(wanted)
    if found is None:
        ids = [case.id for case in suite.cases]
        raise UserError(
            f"there is no rule or case {wanted!r}{suggestion(wanted, [*suite.registry, *ids])}",
            hint=f"{PROGRAM} list shows all cases, {PROGRAM} list --rules all rules",
        )
    return found


def defect_of(wanted: str, run: Digest | None, option: str) -> tuple[Defect, Digest]:
    """The defect of a run with a fingerprint that begins so. Raises UserError; `option` names another run."""
    if run is None:
        raise UserError(f"there is no run to look for the defect {wanted} in", hint=f"{option} DIR names one")
    found = [defect for defect in run.defects if any(each.startswith(wanted) for each in defect.fingerprints)]
    if len(found) != 1:
        many = ", ".join(defect.fingerprint for defect in found)
        what = f"the fingerprints {many} begin with {wanted}" if many else f"{run.directory} has no defect {wanted}"
        raise UserError(what, hint=f"{PROGRAM} report {run.directory} shows all defects")
    return found[0], run
