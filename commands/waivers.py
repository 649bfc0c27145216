"""`rdma-cts waivers`: writes waivers of the defects in recorded runs, so that later runs fail only for new defects."""

import argparse
import re
from datetime import date, datetime
from pathlib import Path

from commands.cli.output import STANDARD_OUTPUT, check_out, write_out
from commands.cli.run_arguments import add
from conformance.errors import UserError
from conformance.model.address import is_address
from conformance.results.waiver_file import (
    ANY,
    FINGERPRINT,
    LONGEST,
    KernelRange,
    Run,
    waivers_text,
)
from reports.digest import Digest, read

_OWN = re.compile(rb"# Known defects, by their fingerprints|waivers:")
_PLACEHOLDER = re.compile(r"\{[^}]*\}?|\}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "--run RUN...",
        "runs with defects: several runs of a stack show which defects are intermittent, and runs of several stacks "
        "show on which stacks each defect occurs",
        dest="runs",
        required=True,
    )
    add(
        parser,
        "--defect FINGERPRINT",
        "only this defect (default: every defect)",
        action="append",
        default=[],
    )
    add(
        parser,
        "--from KERNEL",
        f"the first kernel, such as 6.12, or {ANY}, of waivers of defects that the oldest kernel of the runs shows",
        dest="first",
        default="",
    )
    add(
        parser,
        "--to KERNEL",
        f"the last kernel, or {ANY}, of waivers of defects that the newest kernel of the runs shows",
        dest="last",
        default="",
    )
    add(parser, "--owner NAME", "who is responsible for the waivers", required=True)
    add(
        parser,
        "--issue ADDRESS",
        f"the issue's address; {FINGERPRINT} in it stands for the defect's fingerprint",
        required=True,
    )
    add(
        parser,
        "--expires DATE",
        f"the last valid day, at most {LONGEST.days} days ahead",
        required=True,
    )
    add(parser, "--out FILE", "where to write (default: standard output)", default=STANDARD_OUTPUT)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the file and returns exit status 0. Raises UserError for a value that a file of waivers must not have."""
    expires = _expires(arguments.expires, datetime.now().date())
    if not is_address(arguments.issue):
        raise UserError(f"--issue {arguments.issue!r} is not an address; it begins with https://")
    if wrong := _PLACEHOLDER.search(arguments.issue.replace(FINGERPRINT, "")):
        raise UserError(
            f"--issue has {wrong[0]!r}, which stands for nothing",
            hint=f"{FINGERPRINT} stands for the defect's fingerprint",
        )
    if not arguments.owner.strip():
        raise UserError("--owner is empty")
    for name in ("owner", "issue"):
        if not getattr(arguments, name).isprintable():
            raise UserError(f"--{name} has a character that cannot be printed")
    check_out(arguments.out, _OWN)
    text = waivers_text(
        [_run(path, read(path)) for path in arguments.runs],
        arguments.owner,
        arguments.issue,
        expires,
        arguments.defect,
        KernelRange(arguments.first, arguments.last),
    )
    write_out(arguments.out, text.encode(), f"waivers: {arguments.out}", _OWN)
    return 0


def _run(path: Path, digest: Digest) -> Run:
    run = Run(str(path), digest.header, digest.results)
    if not run.driver:
        raise UserError(
            f"{digest.path} does not name the tested driver, and a waiver applies to one driver",
        )
    return run


def _expires(text: str, today: date) -> date:
    try:
        expires = date.fromisoformat(text)
    except ValueError as error:
        raise UserError(f"--expires {text!r} is not a date such as {today + LONGEST}") from error
    if not today <= expires <= today + LONGEST:
        raise UserError(
            f"--expires {text} is not between today and {today + LONGEST}, {LONGEST.days} days ahead",
        )
    return expires
