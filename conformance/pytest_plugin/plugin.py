"""The pytest plugin: tables become items, items run cases, verdicts become results.

Wiring between pytest and the engine. With pytest-xdist the workers run the cases and the controller
alone writes; a result travels on pytest's own report. Not for deciding a verdict (judging.py).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import judging
from conformance.bench.interface import Bench
from conformance.errors import UserError
from conformance.execution.context import Observation
from conformance.execution.procedure import accounted, execute
from conformance.judging import Judgement
from conformance.kernel.log import KernelWatch
from conformance.kernel.resources import evidence
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.record import ResultRecord
from conformance.model.verdict import Verdict
from conformance.pytest_plugin.options import add_options, case_of, check, profile_of, selected_cases, suite_of
from conformance.pytest_plugin.recorder import PROPERTY, Recorder
from conformance.results.records import result_record
from conformance.results.sweep_record import sweep_record
from conformance.sweeps.run import sweep
from conformance.tables.tiers import of_tier, ordered

_LATE = ("api", "sequences")
RECORDER = pytest.StashKey[Recorder]()
LINE = pytest.StashKey[ResultRecord]()

# The fixture `random_sequences`: for a case, with somebody to tell before each step, what was observed.
Search = Callable[[Case, Callable[[str, int, str, str], None]], Observation]


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    if config.getoption("--rdma-out") or config.getoption("--rdma-stream"):
        recorder = Recorder(config)
        config.stash[RECORDER] = recorder
        config.pluginmanager.register(recorder, "rdma-cts-recorder")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        check(session.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrizes a folder's test function with the cases of that folder's verb."""
    if "case" not in metafunc.fixturenames:
        return
    folder = Path(str(metafunc.module.__file__)).parent.name
    points = [case for case in selected_cases(metafunc.config) or () if case.point is not None]
    cases = [case for case in (*suite_of(metafunc.config).cases, *points) if case.verb.removeprefix("ibv_") == folder]
    metafunc.parametrize("case", cases, ids=[case.id for case in cases])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is not asked for and shuffles the rest.

    The API's cases wait for a compiler and come late; last come random sequences, after which a device may not be
    what it was.
    """
    cases = {case.id: case for item in items if (case := case_of(item)) is not None}
    if not cases:
        return
    only = selected_cases(config)
    chosen = of_tier(list(cases.values()), config.getoption("--rdma-tier")) if only is None else only
    order = {case.id: place for place, case in enumerate(ordered(chosen, config.getoption("--rdma-seed")))}
    places = {item: order.get(case.id) for item in items if (case := case_of(item)) is not None}
    kept = [item for item in items if places.get(item, 0 if only is None else None) is not None]
    if config.getoption("--rdma-seed") is not None:
        kept.sort(key=lambda item: places.get(item) or 0)
    if not config.getoption("--rdma-sequences"):
        kept = [item for item in kept if (case := case_of(item)) is None or not case.searches]
    kept.sort(key=_lateness)
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _lateness(item: pytest.Item) -> int:
    case = case_of(item)
    return _LATE.index(case.verb) + 1 if case is not None and case.verb in _LATE else 0


@pytest.fixture
def run(
    request: pytest.FixtureRequest, bench: Bench, capabilities: Capabilities, kernel_watch: KernelWatch
) -> Callable[[Case], None]:
    """Runs a case on the bench, judges it, and ends the test as its verdict says."""

    registry = suite_of(request.config).registry
    present = profile_of(request.config).present

    def run_sweep(case: Case) -> None:
        started = time.perf_counter_ns()
        unreachable = capabilities.unreachable(case.needs, case.entry)
        if unreachable:
            judgement = Judgement(Verdict.UNREACHABLE, unreachable)
            request.node.stash[LINE] = result_record(case, registry, judgement, {})
            _end(case, judgement)
            return

        def tell(point: str, done: int) -> None:
            recorder = request.config.stash.get(RECORDER, None)
            if recorder:
                recorder.progress(case.id, point, done)

        swept = sweep(
            case, bench, capabilities, present=present, watch=kernel_watch.since_last, tell=tell,
            seed=request.config.getoption("--rdma-seed"),
        )  # fmt: skip
        line = sweep_record(case, registry, swept, (time.perf_counter_ns() - started) // 1000)
        request.node.stash[LINE] = line
        _end(case, Judgement(swept.verdict, swept.reason))

    def search(case: Case) -> Observation:
        """What random sequences give; the oracle stands outside of the engine, and offers itself as a fixture."""
        sequences: Search = request.getfixturevalue("random_sequences")

        def tell(point: str, done: int, row: str, rule: str) -> None:
            recorder = request.config.stash.get(RECORDER, None)
            if recorder:
                recorder.progress(case.id, point, done, row=row, rule=rule)

        return accounted(bench, lambda: sequences(case, tell))

    def run_case(case: Case) -> None:
        if case.sweep and case.point is None:
            run_sweep(case)
            return
        if case.sweep:
            case = case.sweep.judged(case, lambda name: not capabilities.undeclared([name], case.entry))
        kernel_watch.since_last()  # what came between the cases is not this case's
        started = time.perf_counter_ns()
        unreachable = capabilities.unreachable(case.needs, case.entry)
        observed = {} if unreachable else search(case) if case.searches else execute(case, bench)
        duration_us = (time.perf_counter_ns() - started) // 1000
        kernel = kernel_watch.since_last()
        if held := observed.pop("held", None):
            kernel |= evidence(**held)
        if unreachable:
            judgement = Judgement(Verdict.UNREACHABLE, unreachable)
        else:
            undeclared = capabilities.undeclared(case.needs, case.entry)
            judgement = judging.judge(case, undeclared, observed, kernel)
            judgement = judging.apply_profile(judgement, undeclared, present)
            if undeclared:
                observed["lacking"] = undeclared  # so that the observation can be judged again
        request.node.stash[LINE] = result_record(
            case, registry, judgement, observed, kernel=kernel, duration_us=duration_us
        )
        _end(case, judgement)

    return run_case


def _end(case: Case, judgement: Judgement) -> None:
    text = f"{judgement.verdict} {' '.join(case.rules)} {judgement.reason} · {case.location.file}:{case.location.line}"
    if judgement.verdict in (Verdict.UNSUPPORTED, Verdict.UNREACHABLE):
        pytest.skip(text)
    if judgement.verdict != Verdict.PASS:
        pytest.fail(text, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Puts the result on pytest's report; a harness exception becomes BROKEN, never FAIL."""
    case = case_of(item)
    if case is not None and (call.when == "call" or (call.when == "setup" and call.excinfo)):
        line = item.stash.get(LINE, None) or _broken(item, case, call)
        item.user_properties.append((PROPERTY, json.dumps(line)))


def _broken(item: pytest.Item, case: Case, call: pytest.CallInfo[None]) -> ResultRecord:
    error = call.excinfo.value if call.excinfo else None
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    judgement = Judgement(Verdict.BROKEN, f"the harness could not run the case: {text.splitlines()[0]}")
    return result_record(case, suite_of(item.config).registry, judgement, {})
