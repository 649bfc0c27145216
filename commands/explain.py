"""`rdma-cts explain`: explains a rule, a case, a point of a sweep, a defect, or a verb. For a rule, it prints the
statement, the quotation that proves the statement, and the latest verdict; for a verb, what the documents promise."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from commands import verbs
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show
from conformance.errors import PROGRAM, UserError, command
from conformance.model.case import Case
from conformance.results.folder import OUT
from conformance.tables.loader import Retired, retired_case
from conformance.tables.suite import CASES, POINT, ROOT, Suite
from conformance.verbs import MAINLINE, VERBS
from conformance.yamldoc.reader import suggestion
from reports.digest import Digest, read
from reports.earlier import run_about
from reports.explanations import (
    FINGERPRINT,
    MOST_CASES,
    defect_of,
    of_case,
    of_defect,
    of_retired,
    of_rule,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "id ID",
        "a rule such as REG-15, a case such as reg_mr/registration/last-byte, CASE#axis=value,... for a point of "
        "a sweep, the fingerprint of a defect, a verb such as reg_mr, or `model`",
    )
    add(
        parser,
        "--run RUN",
        f"the run (default: the latest in {OUT}/ that has the rule, case or defect)",
    )
    add(
        parser, "--dispute", "write the text with which you dispute the violation (docs/dispute.md)"
    )
    add(
        parser,
        "--against RUN",
        "of a defect: also what is new about it against this earlier run (of all defects: compare)",
    )
    add(parser, "--all", "leave out no line of the kernel's log and no case of a defect")
    verbs.add_dialect(parser)
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the explanation and returns exit status 0. Raises UserError for an unknown id."""
    word = arguments.id
    if arguments.against and arguments.dispute:
        raise UserError("--dispute and --against exclude each other")
    if arguments.against and not FINGERPRINT.fullmatch(word):
        raise UserError(
            f"--against is for the fingerprint of a defect, and {word} is none",
            hint=_instead(word, arguments.run, arguments.against),
        )
    if verbs.is_verb(word) or word == verbs.MODEL:
        for name in ("dispute", "run", "all"):
            if getattr(arguments, name):
                raise UserError(
                    f"--{name} is for a rule, a case or a defect, and {word} is none",
                    hint=f"leave out --{name}",
                )
    elif arguments.dialect != MAINLINE:
        raise UserError(f"--dialect is for a verb, and {word} is none", hint="leave out --dialect")
    if verbs.is_verb(word):
        show(verbs.render(verbs.find(word, arguments.dialect)))
        return 0
    suite = suite_from(arguments)
    if word == verbs.MODEL:
        show(verbs.render_models(suite.cases))
        return 0
    path = arguments.run or run_about(word)
    if path:
        run = read(path)
    else:
        run = None
    if arguments.dispute:
        from reports.dispute import dispute, violation_about  # imported late: few ask for it

        show(dispute(*violation_about(word, run)))
        return 0
    if FINGERPRINT.fullmatch(word):
        defect, run = defect_of(word, run, "--run")
        shown = [*of_defect(defect, run, arguments.all)]
        if arguments.against:
            # Imported late: few ask for it.
            from reports.compared.comparison import compare
            from reports.novelty import Novelty

            news = Novelty(compare(read(arguments.against), run))
            shown += ["", *news.about(defect, None if arguments.all else MOST_CASES)]
        show(shown)
        return 0
    rule = next((id_ for id_ in suite.registry if id_.upper() == word.upper()), None)
    name = word.partition(POINT)[0]
    if rule:
        lines = of_rule(suite, suite.registry[rule], run)
    elif retired := _retired(suite, name, arguments.cases):
        lines = of_retired(name, retired, run, arguments.all)
    else:
        lines = of_case(suite, _case(suite, word, run), run, arguments.all)
    show([*lines])
    return 0


def _instead(word: str, path: Path | None, against: Path) -> str:
    """Returns the commands about the defects that a case shows in a run; the comparison of the runs if it shows none."""
    defects = read(path).violations.defects_in(word.partition(POINT)[0]) if path else ()
    if not defects:
        return f"{command('compare', against, 'RUN')} compares two runs"
    first, *others = (defect.fingerprint for defect in defects)
    more = f"; its other defects are {', '.join(others)}" if others else ""
    explain = command("explain", first, "--run", path, "--against", against)
    return f"{explain} is about the first defect of this case{more}"


def _retired(suite: Suite, name: str, cases: Sequence[Path]) -> Retired | None:
    if "/" not in name or suite.find(name):
        return None
    return retired_case(name, [CASES, *cases], ROOT)


def _case(suite: Suite, word: str, run: Digest | None) -> Case:
    try:
        case_here = suite.find(word)
    except UserError:
        if run and any(
            word == symptom.name for of in run.violations.symptoms.values() for symptom in of
        ):
            raise UserError(
                f"{run.path} was made with other tables; the present tables do not have the point {word}",
                hint="explain FINGERPRINT shows the violation of a defect as it was recorded",
            ) from None
        raise
    if case_here is None:
        if run and any(record["case"] == word.partition(POINT)[0] for record in run.results):
            raise UserError(
                f"the run has the case {word!r}, but the suite's tables do not",
                hint="--cases DIR names the folder of its table",
            )
        if re.fullmatch("[0-9a-fA-F]{1,3}", word):
            raise UserError(
                f"{word} is too short for the fingerprint of a defect",
                hint="give at least 4 digits",
            )
        ids = [case.id for case in suite.cases]
        meant = suggestion(word, [*suite.registry, *ids, *VERBS, verbs.MODEL])
        shown = f"`{PROGRAM} list` shows all cases, and `{PROGRAM} list --rules` shows all rules"
        if word.count("/") == 2 and word.rpartition("/")[0] not in {
            table.name for table in suite.tables
        }:
            shown = "--cases DIR names the folder of a table of your own"
        raise UserError(f"there is no rule or case {word!r}{meant}", hint=shown)
    return case_here
