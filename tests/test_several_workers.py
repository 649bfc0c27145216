"""Tests that several workers at the same time have the same results as one worker, even if workers die."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from math import inf
from pathlib import Path

import pytest

from actors import HEADER, Actor, Stage, figures, ran, start
from conformance.errors import UserError
from conformance.model.record import SupervisorFacts
from conformance.results.records import Recorded, encode
from conformance.supervision import schedule
from conformance.supervision.worker import Worker
from patience import PATIENCE_S
from reports.digest import read
from samples import footer_of, header, laid, numbered, observed_result

COUNT = 40
SUITE = numbered(COUNT)
IDS = [case.id for case in SUITE.cases]
LONG = dict.fromkeys(IDS, 10.0)  # seconds: long enough that each worker gets a share


def lines(cases: Sequence[str], dies_in: str = "") -> Iterator[bytes | None]:
    """Yields the lines of a worker for these cases, a third of which fail; the worker dies in the case `dies_in`."""
    yield HEADER
    for id_ in cases:
        number = IDS.index(id_)
        yield encode({"type": "start", "case": id_})
        if id_ == dies_in:
            return
        yield encode(
            observed_result(
                SUITE.cases[number],
                "FAIL" if number % 3 == 0 else "PASS",
                duration_us=number,
            ),
        )


class Together:
    """Starts actors. The first actors send nothing before all of them are started."""

    def __init__(
        self,
        at_once: int,
        script: Callable[[Sequence[str]], Iterator[bytes | None]] = lines,
    ) -> None:
        self.barrier = threading.Barrier(at_once)
        self.first = at_once
        self.script = script
        self.lock = threading.Lock()
        self.batches: list[list[str]] = []
        self.actors: list[Actor] = []

    def __call__(self, cases: Sequence[str]) -> Worker:
        with self.lock:
            number = len(self.batches)
            self.batches.append(list(cases))
            script = self.script(cases)
            actor = Actor(self.after_all(script) if number < self.first else script)
            self.actors.append(actor)
        return actor

    def after_all(self, script: Iterator[bytes | None]) -> Iterator[bytes | None]:
        self.barrier.wait(PATIENCE_S)
        yield from script


def supervised(folder: Path, starter: Callable[[Sequence[str]], Worker], at_once: int) -> Recorded:
    return Stage(laid(folder, {})).supervise(*[starter] * at_once, suite=SUITE, durations=LONG)


@pytest.mark.parametrize("at_once", [2, 3, 8])
def test_the_results_are_those_of_one_worker(tmp_path, at_once):
    alone, several = Together(1), Together(at_once)
    one_worker = supervised(tmp_path / "one", alone, 1)
    several_workers = supervised(tmp_path / "many", several, at_once)
    assert len(several.batches) == at_once
    assert all(several.batches)
    assert alone.batches == [IDS]
    assert figures(several_workers) == figures(one_worker)
    assert list(footer_of(several_workers)["verdicts"]) == list(footer_of(one_worker)["verdicts"])
    assert footer_of(several_workers)["boots"] == at_once
    alike = []
    for name in ("one", "many"):
        alike.append([{**record, "worker": 0} for record in read(tmp_path / name).results])
    assert alike[0] == alike[1]
    assert all(actor.closed for actor in several.actors)


@pytest.mark.parametrize("logged", [False, True])
def test_a_free_worker_takes_over_what_a_slow_one_would_run_last(tmp_path, monkeypatch, logged):
    """The slow worker runs all of its cases, but its later results do not count, and a crash in them is none. An error on
    the console when its last case ends may be one of the next case: this last case runs again."""
    monkeypatch.setattr(schedule, "START_S", 0.0)
    taken_over = threading.Event()

    def slow(cases: Sequence[str]) -> Iterator[bytes | None]:
        first = several.batches[0] == list(cases)
        if len(several.batches) == 3:
            monkeypatch.setattr(schedule, "START_S", inf)  # nothing else is taken over
            taken_over.set()
        for number, line in enumerate(lines(cases, dies_in=cases[-1] if first else "")):
            yield line
            if first and number == 2:
                assert taken_over.wait(PATIENCE_S)
            own = len(cases) - len(several.batches[2]) if taken_over.is_set() else 0
            if first and logged and number == 2 * own - 1:
                several.actors[0].shown = ["BUG: of a case"]

    several = Together(2, slow)
    recorded = supervised(tmp_path, several, 2)
    begun, _, taken, *again = several.batches
    assert again == ([[begun[-len(taken) - 1]]] if logged else [])
    assert begun[-len(taken) :] == taken
    assert len(taken) > 1
    workers = {line["case"]: line["worker"] for line in recorded.results}
    assert len(workers) == len(recorded.results) == COUNT
    assert {workers[case] for case in taken}.isdisjoint({workers[begun[0]]})
    assert {line["verdict"] for line in recorded.results} == {"PASS", "FAIL"}


def test_the_process_of_a_host_gives_no_case_to_another(tmp_path, monkeypatch):
    monkeypatch.setattr(schedule, "START_S", 0.0)
    several = Together(2)
    stage = Stage(laid(tmp_path, {}))
    stage.supervise(several, several, suite=SUITE, durations=LONG, boot_id=lambda: "boot")
    assert len(several.batches) == 2


def on_devices(folder: Path, devices_found: dict[str, str], **differing: object) -> Recorded:
    """Makes a run whose cases several devices share. `devices_found` maps the name of each device to the name in the header of
    its worker."""
    barrier = threading.Barrier(len(devices_found))
    started: set[str] = set()

    def starter(device: str) -> Callable[[Sequence[str]], Worker]:
        def script(cases: Sequence[str]) -> Iterator[bytes | None]:
            if device not in started:
                started.add(device)
                barrier.wait(PATIENCE_S)
            facts = {
                **header()["device"],
                "name": devices_found[device],
                **(differing if device == "fake1" else {}),
            }
            yield encode(header(device=facts))
            yield from itertools.islice(lines(cases), 1, None)

        return lambda cases: Actor(script(cases))

    facts: SupervisorFacts = {"stack": "test", "devices": list(devices_found)}
    starts = map(starter, devices_found)
    return Stage(folder).supervise(*starts, suite=SUITE, facts=facts, durations=LONG)


def test_equal_devices_share_the_cases_and_each_result_names_its_device(tmp_path):
    recorded = on_devices(tmp_path, {"fake0": "fake0", "fake1": "fake1"})
    assert footer_of(recorded)["complete"]
    assert recorded.header["devices"] == ["fake0", "fake1"]
    assert {line["device"] for line in recorded.results} == {"fake0", "fake1"}
    for line in recorded.results:
        assert line["repro"] == f"./rdma-cts run --device {line['device']} --only {line['case']}"
    assert len({(line["worker"], line["device"]) for line in recorded.results}) == 2


@pytest.mark.parametrize("found, differing", [("fake1", {"fw": "2"}), ("other0", {})])
def test_a_device_of_another_kind_or_another_name_runs_no_case(tmp_path, found, differing):
    recorded = on_devices(tmp_path, {"fake0": "fake0", "fake1": found}, **differing)
    assert len({line["device"] for line in recorded.results}) == 1
    # The device whose worker sent its header first runs all cases.
    assert footer_of(recorded)["complete"]


def test_a_dying_worker_affects_only_its_case(tmp_path):
    dead: list[str] = []

    def dying(cases: Sequence[str]) -> Iterator[bytes | None]:
        if dead:
            dies_in = ""
        else:
            dies_in = cases[1]
        dead.append(dies_in)
        return lines(cases, dies_in)

    several = Together(2, dying)
    recorded = supervised(tmp_path, several, 2)
    verdicts = {line["case"]: line["verdict"] for line in recorded.results}
    assert len(verdicts) == len(recorded.results) == COUNT
    assert (
        [case for case in IDS if verdicts[case] == "CRASH"] == dead[:1] == [several.batches[0][1]]
    )
    assert footer_of(recorded)["complete"] is True


def test_a_worker_that_cannot_be_started_leaves_its_cases_to_the_others(tmp_path):
    several = Together(2)
    several.first = 1  # one actor waits at the barrier; the refused start is the other party
    refused = threading.Lock()

    def starter(cases: Sequence[str]) -> Worker:
        if refused.acquire(blocking=False):
            several.barrier.wait(PATIENCE_S)  # the other worker has its cases
            raise UserError("no memory for a guest", status=3)
        return several(cases)

    recorded = supervised(tmp_path, starter, 2)
    assert {line["verdict"] for line in recorded.results} == {"PASS", "FAIL"}
    assert len(recorded.results) == COUNT


def test_if_no_worker_can_be_started_the_error_is_raised(tmp_path):
    def starter(cases: Sequence[str]) -> Worker:
        raise UserError("no qemu", status=3)

    with pytest.raises(UserError, match="no qemu"):
        supervised(tmp_path, starter, 3)


class Endless(Actor):
    """A worker that, after its lines, sends nothing until it is killed."""

    def __init__(self, *lines: bytes) -> None:
        super().__init__(iter(()))
        self.lines: queue.Queue[bytes] = queue.Queue()
        for line in lines:
            self.lines.put(line)

    def next_line(self, timeout: float) -> bytes | None:
        return self.lines.get(timeout=PATIENCE_S)

    def kill(self) -> None:
        super().kill()
        self.lines.put(b"")


def test_an_error_in_one_thread_ends_the_run_and_kills_the_other_worker(tmp_path):
    """The case in flight of the other worker is not recorded as CRASH."""
    endless = Endless(HEADER, start(0))
    in_flight = threading.Event()
    waiting = [endless]
    lock = threading.Lock()

    def failing() -> Iterator[bytes]:
        in_flight.wait(PATIENCE_S)
        yield encode(header())
        raise UserError("the disk is full", status=3)

    def starter(cases: Sequence[str]) -> Worker:
        with lock:
            if waiting:
                return waiting.pop()
        in_flight.set()
        return Actor(failing())

    with pytest.raises(UserError, match="the disk is full"):
        supervised(tmp_path, starter, 2)
    assert endless.killed
    assert endless.closed
    assert b"CRASH" not in (tmp_path / "results.jsonl").read_bytes()


def test_a_run_that_was_cut_short_is_continued_by_several_workers(tmp_path):
    unbroken = supervised(tmp_path / "whole", Together(1), 1)
    supervised(tmp_path / "two", Together(2), 2)
    data = (tmp_path / "two" / "results.jsonl").read_bytes()
    header = data.index(b"\n")
    cut = laid(tmp_path / "cut", {"results.jsonl": data[: header + (len(data) - header) // 2]})
    recorded = Stage(cut).supervise(*[Together(2)] * 2, suite=SUITE, carry_on=True, durations=LONG)
    assert figures(recorded) == figures(unbroken)
    assert len({line["case"] for line in recorded.results}) == len(recorded.results) == COUNT
    numbers = [line["worker"] for line in recorded.results]
    assert max(numbers) == footer_of(recorded)["boots"] == 4


def test_an_idle_worker_runs_the_cases_that_a_dying_worker_leaves(stage):
    """Four short cases are one batch, so that a second worker is needed only if the first worker dies."""
    scripts = iter([[HEADER, start(0)], ran(1, 2, 3)])

    def starter(cases: Sequence[str]) -> Worker:
        stage.asked.append(list(cases))
        return Actor(iter(next(scripts)))

    recorded = stage.supervise(starter, starter)
    assert stage.asked == [IDS[:4], IDS[1:4]]
    assert {line["verdict"] for line in recorded.results} == {"CRASH", "PASS"}
