"""`rdma-cts trial guest`: alters real calls on Soft-RoCE."""

import argparse
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from conformance.errors import UserError
from conformance.tables.suite import Suite
from targets.programs import messages_from_guest
from trial import report
from trial.catalogue import chosen_of
from trial.mutants.calls import ALTERATIONS
from trial.mutants.data_path import DATA_PATH_ALTERATIONS, DATA_PATH_PERMITTED
from trial.reference_runs import concluded, listed, show
from trial.trying import OWN, Finding

Say = Callable[[str], None]


def guest(arguments: argparse.Namespace, suite: Suite, say: Say) -> int:
    """Alters real calls; exit status 0 if no violation survives and few are misattributed, or, with `--permitted`, if
    no case fails."""
    known = DATA_PATH_PERMITTED if arguments.permitted else (*ALTERATIONS, *DATA_PATH_ALTERATIONS)
    chosen = chosen_of(known, suite, arguments.rule, arguments.violation, arguments.shard)
    if arguments.list:
        return listed(chosen)
    started, findings = time.monotonic(), list[Finding]()
    names = [each.name for each in chosen] + [OWN] * arguments.own
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-trial"
    console = out / "console.log"
    for message in messages_from_guest("trial.inside", names, arguments.stack, console, say, arguments.yes):
        if message.pop("type", "") == "finding":
            findings.append(Finding(**{**message, "by": tuple(message["by"]), "broken": tuple(message["broken"])}))
            show(arguments, findings[-1], len(findings), len(chosen))
    if len(findings) != len(chosen):
        raise UserError(f"only {len(findings)} of {len(chosen)} violations were tried", status=3)
    took, where = time.monotonic() - started, "Soft-RoCE in the guest"
    if arguments.permitted:
        return concluded(arguments, report.Trial([], {}, took, where, findings))
    return concluded(arguments, report.Trial(findings, {}, took, where))
