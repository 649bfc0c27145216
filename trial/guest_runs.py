"""`rdma-cts trial guest`: real calls on Soft-RoCE, altered; or unaltered, in shuffled orders."""

import argparse
import collections
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

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
    """Alters real calls; exit status 0 if nothing survives and few are misattributed, or no permitted one is failed."""
    if arguments.shuffled is not None:
        return _shuffled(arguments, say)
    known = DATA_PATH_PERMITTED if arguments.permitted else (*ALTERATIONS, *DATA_PATH_ALTERATIONS)
    chosen = chosen_of(known, suite, arguments.rule, arguments.violation, arguments.shard)
    if arguments.list:
        return listed(chosen)
    started, findings = time.monotonic(), list[Finding]()
    names = [each.name for each in chosen] + [OWN] * arguments.own
    for message in _messages(arguments, ["alterations", *names], say):
        if message.pop("type", "") == "finding":
            findings.append(Finding(**{**message, "by": tuple(message["by"]), "broken": tuple(message["broken"])}))
            show(arguments, findings[-1], len(findings), len(chosen))
    if len(findings) != len(chosen):
        raise UserError(f"only {len(findings)} of {len(chosen)} violations were tried", status=3)
    took, where = time.monotonic() - started, "Soft-RoCE in the guest"
    if arguments.permitted:
        return concluded(arguments, report.Trial([], {}, took, where, findings))
    return concluded(arguments, report.Trial(findings, {}, took, where))


def _messages(arguments: argparse.Namespace, inside: Sequence[str], say: Say) -> Iterator[dict[str, Any]]:
    """The messages of trial/inside.py, started in the guest with the arguments `inside`; keeps the guest's console."""
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-trial"
    return messages_from_guest("trial.inside", inside, arguments.stack, out / "console.log", say, arguments.yes)


def _shuffled(arguments: argparse.Namespace, say: Say) -> int:
    """Runs every row several times in one guest, in shuffled orders; exit status 1 if a case's verdict differs."""
    if arguments.shuffled < 2:
        raise UserError(f"--shuffled {arguments.shuffled}: give at least 2 rounds")
    rounds: list[dict[str, Any]] = []
    for message in _messages(arguments, ["shuffled", str(arguments.shuffled), str(arguments.seed)], say):
        if message.get("type") == "round":
            rounds.append(message)
            verdicts = collections.Counter(verdict for verdict, _ in message["verdicts"].values())
            counted = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
            differing = report.differing([each["verdicts"] for each in rounds])
            print(
                f"seed {message['seed']}: {counted} in {message['seconds']:.0f} s, "
                f"{len(differing)} cases differ so far",
                flush=True,
            )
    if len(rounds) != arguments.shuffled:
        raise UserError(f"only {len(rounds)} of {arguments.shuffled} rounds were completed", status=3)
    differing = report.differing([each["verdicts"] for each in rounds])
    print("\n".join(f"{case}: {' / '.join(answers)}" for case, answers in differing.items()))
    print(f"{len(rounds[0]['verdicts'])} cases in {len(rounds)} shuffled rounds: {len(differing)} of them differ")
    return 1 if differing else 0
