"""Helpers of tests: scripted workers, and a stage that runs a supervisor with them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from conformance.model.case import Case
from conformance.model.record import HeaderRecord, ResultRecord, SupervisorFacts
from conformance.results.records import Recorded, encode, read_written
from conformance.results.writer import ResultsFile
from conformance.run_options import RunOptions
from conformance.supervision.calls import Call
from conformance.supervision.recording import Recording
from conformance.supervision.run import Run, Target
from conformance.supervision.supervisor import Supervisor
from conformance.supervision.worker import Worker, WorkerEnd
from conformance.tables.suite import Suite
from samples import footer_of, header, numbered, observed_result

SUITE = numbered(4)
IDS = [case.id for case in SUITE.cases]
HEADER = encode(header())
SILENCE = None

Script = Iterator[Optional[bytes]]


def start(number: int) -> bytes:
    return encode({"type": "start", "case": IDS[number]})


def passed(number: int, **more: Any) -> bytes:
    return encode(observed_result(SUITE.cases[number], **more))


def failed(number: int) -> bytes:
    return encode(observed_result(SUITE.cases[number], "FAIL"))


def ran(*numbers: int) -> list[bytes]:
    """Returns the lines of a good worker for these cases."""
    return [
        HEADER,
        *itertools.chain.from_iterable((start(number), passed(number)) for number in numbers),
    ]


@dataclass(eq=False)
class Actor:
    """A worker that sends the lines of its script and then exits."""

    script: Script
    ending: WorkerEnd = WorkerEnd()  # noqa: RUF009
    left: str = ""
    held: str = ""
    works: bool = False
    killed: bool = False
    closed: bool = False
    derived = None
    shown: list[str] = field(default_factory=list)  # errors of the kernel on the console

    def alarms(self) -> list[str]:
        shown, self.shown = self.shown, []
        return shown

    on_this_machine: bool = False
    is_traced: bool = False
    traced: dict[int, list[Call] | None] = field(default_factory=dict)

    def calls(self, result: int) -> list[Call] | None:
        return self.traced.get(result)

    def next_line(self, timeout: float) -> bytes | None:
        if timeout > 0:
            return next(self.script, b"")
        return None

    def held_up(self) -> str:
        return self.held

    def busy(self) -> bool:
        return self.works

    def kill(self) -> None:
        self.killed = True

    def console_tail(self, lines: int = 30) -> list[str]:
        return [
            "[ 1.0] all is well",
            "[ 2.0] BUG: kernel NULL pointer dereference",
            "[ 2.1] Oops: 0002",
        ]

    def end(self) -> WorkerEnd:
        return self.ending

    def close(self) -> None:
        self.closed = True

    def stuck_reason(self) -> str:
        return self.left


def killed(*lines: bytes | None) -> Actor:
    """Returns a worker that sends these lines and is then killed externally."""
    return Actor(iter(lines), WorkerEnd("pytest was ended externally", external=True))


@dataclass
class Audience:
    """Observes the progress of a run, and records what the supervisor reports."""

    total: int = 0
    taken: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def expect(self, seconds: Mapping[str, float]) -> None: ...

    def run_started(self, header: HeaderRecord, total: int) -> None:
        self.total = total

    def result_recorded(self, record: ResultRecord, done: int, total: int) -> None:
        self.taken.append(record["case"])

    def worker_restarted(self, reason: str) -> None:
        self.reasons.append(reason)

    def say(self, text: str) -> None:
        self.said.append(text)


@dataclass(frozen=True)
class StagedRun(Run):
    """A run without a command. Its header has only these facts."""

    facts: SupervisorFacts = field(default_factory=lambda: SupervisorFacts(stack="test"))
    durations: Mapping[str, float] = field(default_factory=dict)


class Stage:
    """Runs the suite with one actor for each script, and reads the recorded results."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "results.jsonl"
        self.console = folder / "console.log"
        self.audience = Audience()
        self.actors: list[Actor] = []
        self.asked: list[list[str]] = []
        self.took: dict[str, float] = {}

    def play(
        self,
        *scripts: Sequence[bytes | None] | Script | Actor,
        suite: Suite = SUITE,
        carry_on: bool = False,
        boot_id: str = "",
    ) -> Recorded:
        """Runs one worker for each script, one at a time; with `carry_on`, continues the recorded run. Fails if a
        script was not used."""
        waiting = list(scripts)

        def next_actor(cases: Sequence[str]) -> Worker:
            assert waiting, "more workers than scripts"
            self.asked.append(list(cases))
            script = waiting.pop(0)
            self.actors.append(script if isinstance(script, Actor) else Actor(iter(script)))
            return self.actors[-1]

        recorded = self.supervise(
            next_actor,
            suite=suite,
            carry_on=carry_on,
            boot_id=lambda: boot_id,
        )
        assert not waiting, "a worker was not needed"
        assert all(actor.closed for actor in self.actors)
        return recorded

    def supervise(
        self,
        *workers: Callable[[Sequence[str]], Worker],
        suite: Suite = SUITE,
        cases: Sequence[Case] | None = None,
        facts: SupervisorFacts | None = None,
        carry_on: bool = False,
        again: Sequence[Callable[[Sequence[str]], Worker]] = (),
        boot_id: Callable[[], str] = str,
        options: RunOptions = RunOptions(),  # noqa: B008
        **more: Any,
    ) -> Recorded:
        """Runs the cases with all these workers in parallel; `more` has further fields of the StagedRun."""
        with closing(ResultsFile(self.path, carry_on=carry_on)) as results:
            if carry_on:
                earlier = results.cut_back(results.recorded())
            else:
                earlier = None
            if facts:
                more["facts"] = facts
            target = Target(boot_id=boot_id)
            if cases is None:
                cases = suite.cases
            run = StagedRun(options, suite, cases, target=target, **more)
            recording = Recording(run, results, self.audience, earlier)
            self.took = recording.took
            Supervisor(recording, self.console).run(*workers, again=again)
        return read_written(self.path)


def verdicts(recorded: Recorded) -> list[str]:
    """Returns the verdict of each case in the order of the suite; fails if a case has two results."""
    verdicts_by_case = {line["case"]: line["verdict"] for line in recorded.results}
    assert len(verdicts_by_case) == len(recorded.results)
    assert sum(footer_of(recorded)["verdicts"].values()) == len(recorded.results)
    return [verdicts_by_case[case] for case in IDS]


SAME = ("complete", "verdicts", "rules", "rule_totals", "points")


def figures(recorded: Recorded) -> dict[str, object]:
    """Returns the fields of the footer that depend neither on interruptions nor on the number of workers."""
    return {key: value for key, value in footer_of(recorded).items() if key in SAME}
