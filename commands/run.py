"""`rdma-cts run`: the cases on a device of this host, or in the Soft-RoCE guest.

Wires engine, place and reports together; each of them does its part. Not for where cases run (place.py).
"""

from __future__ import annotations

import argparse
import sys
from datetime import datetime
from pathlib import Path

from commands import choosing, place
from conformance.case import Case
from conformance.errors import UserError
from conformance.libibverbs import DIALECTS
from conformance.profile import read_profile
from conformance.results import FILE_NAME, exit_status, read_results
from conformance.results_file import ResultsFile
from conformance.supervision import Supervisor
from reports import junit
from reports.terminal import Progress, summary

NAME = "run"
HELP = "Run the cases on a device of this host or, without one, in the Soft-RoCE guest."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    place.add_arguments(parser)
    choosing.add_arguments(parser)
    parser.add_argument("--profile", type=Path, metavar="FILE", help="what the device must have (see profiles)")
    parser.add_argument("--dialect", choices=DIALECTS, help="call the library's ibv_rereg_mr as this page has it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default out/<time>-<device>)")
    parser.add_argument("--yes", action="store_true", help="install what is needed without asking")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the summary")


def execute(arguments: argparse.Namespace) -> int:
    """Runs, writes results.jsonl and junit.xml, prints the summary; gives the contract's exit status."""
    suite = choosing.suite_from(arguments)
    cases = choosing.selection_from(arguments).apply(suite)
    if arguments.profile:
        read_profile(arguments.profile)
    progress = Progress(quiet=arguments.quiet)
    device = place.host_device(arguments)
    if device and not arguments.hazardous:
        cases = _harmless(cases, progress)
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-{device or place.GUEST_DEVICE}"
    if (out / FILE_NAME).exists():
        raise UserError(f"{out / FILE_NAME} exists: a run is recorded there", hint="choose another --out")
    console = out / "console.log"
    if device:
        where = place.on_host(arguments, device, console, progress.say)
    else:
        where = place.in_guest(arguments, console, progress.say)
    header = {"stack": where.stack, "argv": sys.argv[1:]}
    results = ResultsFile(out / FILE_NAME)
    try:
        footer = Supervisor(suite, cases, results, progress, header, console, where.repro).run(where.start)
    finally:
        results.close()
    recorded = read_results(out)
    (out / junit.FILE_NAME).write_bytes(junit.render(recorded))
    print(summary(recorded, out))
    return exit_status(footer)


def _harmless(cases: list[Case], progress: Progress) -> list[Case]:
    """The cases without those that can take this host's kernel with them."""
    chosen = [case for case in cases if not case.hazardous]
    if not chosen:
        raise UserError("every selected case can take the kernel down", hint="--hazardous runs them all the same")
    if len(chosen) < len(cases):
        progress.say(f"left out {len(cases) - len(chosen)} cases that can take the kernel down (see --hazardous)")
    return chosen
