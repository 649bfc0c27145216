"""The pytest plugin, which only connects pytest with the engine: it creates a test item for each case, runs the items,
and passes their records to the recorder. With pytest-xdist, workers run the cases, and only the controller writes
records; a record is transferred as a property of pytest's report."""

from __future__ import annotations

import functools
import json
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Optional, Union

import pytest

from conformance.bench.interface import Bench
from conformance.combinations.runners import RUNNERS
from conformance.errors import LoopbackLost, UserError
from conformance.execution.runner import (
    NOT_JUDGED,
    CaseRun,
    RunContext,
    Watch,
    no_progress,
    run_case,
)
from conformance.judging import Basis, broken
from conformance.kernel.module_memory import ModuleMemory
from conformance.model.case import Case, RunCase
from conformance.model.declared import Capabilities
from conformance.model.preflight import Findings
from conformance.model.record import DeviceFacts, ObservedRecord, ResultRecord
from conformance.model.verdict import NOT_TESTABLE, Verdict
from conformance.pytest_plugin.older_pytest import StashKey, stash_of
from conformance.pytest_plugin.options import (
    add_options,
    case_of,
    check,
    profile_of,
    selected_cases,
    suite_of,
)
from conformance.pytest_plugin.recorder import NAME, PROPERTY, Recorder, tell_supervisor
from conformance.results.case_record import case_record, observed_record
from conformance.results.new_records import result_record
from conformance.tables.suite import POINT
from conformance.tables.tiers import of_tier, ordered

FACTS = StashKey[Optional[DeviceFacts]]()
RECORDER = StashKey[Recorder]()
# the record of the case that has just run
RECORD = StashKey[Union[ResultRecord, ObservedRecord, None]]()
ONLY_OBSERVES = StashKey[bool]()  # whether the supervisor judges rows in place of this session


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Checks the requirements of the session. This hook runs last, because hooks of other plugins may set options."""
    if hasattr(session.config, "workerinput"):
        return
    try:
        stash_of(session.config)[FACTS] = check(session.config)
    except UserError as error:
        tell_supervisor(session.config, error)
        raise pytest.UsageError(str(error)) from error
    start_recording(session.config)


def add_findings(config: pytest.Config, findings: Findings) -> None:
    """Adds the findings of preflight to the facts of the device, before these are recorded in the header."""
    facts = stash_of(config)[FACTS]
    if facts is not None:
        facts["preflight"] = findings.as_data()


def start_recording(config: pytest.Config) -> None:
    """Sets up the recorder of the session, if there is a device and the options name a place for records."""
    facts = stash_of(config)[FACTS]
    if facts and (config.getoption("--rdma-out") or config.getoption("--rdma-stream")):
        recorder = Recorder(config, facts)
        stash_of(config)[RECORDER] = recorder
        config.pluginmanager.register(recorder, NAME)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrizes a folder's test function with the cases of that folder's verb."""
    if "case" not in metafunc.fixturenames:
        return
    folder = Path(str(metafunc.module.__file__)).parent.name
    cases: Sequence[Case] = suite_of(metafunc.config).cases
    # pytest also takes time for deselected items
    if (only := selected_cases(metafunc.config)) is not None:
        chosen = {case.id for case in only}
        points = [case for case in only if POINT in case.id]
        cases = [*(case for case in cases if case.id in chosen), *points]
    cases = [case for case in cases if case.verb.removeprefix("ibv_") == folder]
    metafunc.parametrize("case", cases, ids=[case.id for case in cases])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Removes cases that are not selected, shuffles the other cases, and sorts them by their place in a worker."""
    cases = {case.id: case for item in items if (case := case_of(item)) is not None}
    only = selected_cases(config)
    if not cases and only is None:
        return
    if only is None:
        chosen = of_tier(list(cases.values()), config.getoption("--rdma-tier"))
    else:
        chosen = only
    seed = config.getoption("--rdma-seed")
    order = {case.id: number for number, case in enumerate(ordered(chosen, seed))}
    numbers: dict[pytest.Item, int] = {}
    for item in items:
        case = case_of(item)
        if case is not None and case.id in order:
            numbers[item] = order[case.id]
        elif case is None and only is None:
            numbers[item] = 0
    selected = list(numbers)
    if seed is not None:
        selected.sort(key=numbers.__getitem__)
    selected.sort(key=_place)
    if left_out := set(items).difference(selected):
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = selected


def _place(item: pytest.Item) -> tuple[bool, int]:
    case = case_of(item)
    if case is not None:
        return case.place
    return False, 0


@pytest.fixture(scope="session")
def module_memory(
    request: pytest.FixtureRequest,
    capabilities: Capabilities,
) -> ModuleMemory | None:
    """Returns the counter of the modules' memory, if the kernel has one and no other process uses the modules."""
    if request.config.getoption("--rdma-alone"):
        return ModuleMemory.of_kernel()
    return None


@pytest.fixture
def run(
    request: pytest.FixtureRequest,
    bench: Bench,
    capabilities: Capabilities,
    kernel_watch: Watch,
    module_memory: ModuleMemory | None,
) -> RunCase:
    """Returns a function that runs a case on the bench, stores the record, and ends the test with the verdict."""
    config = request.config
    if recorder := stash_of(config).get(RECORDER, None):
        recorder.offered(capabilities)

    context = RunContext(
        bench=bench,
        basis=Basis(capabilities, profile_of(config)),
        watch=kernel_watch,
        runners=RUNNERS,
        seed=config.getoption("--rdma-seed"),
        memory=module_memory,
        only_observes=stash_of(config).get(ONLY_OBSERVES, False),
    )

    return recording(request.session, context)


def recording(session: pytest.Session, context: RunContext) -> RunCase:
    """Returns a function that runs a case, stores the record, and ends the test with the verdict."""
    config = session.config

    def run_and_record(case: Case) -> None:
        # the recorder may have been set up after this function
        recorder = stash_of(config).get(RECORDER, None)
        progress = functools.partial(recorder.progress, case.id) if recorder else no_progress
        try:
            case_run = run_case(case, context, progress)
        except LoopbackLost as lost:  # further refusals would show nothing about the device
            session.shouldstop = str(lost)
            raise
        if case_run.judgement is NOT_JUDGED:
            stash_of(session)[RECORD] = observed_record(case_run)
            return
        stash_of(session)[RECORD] = case_record(case_run, suite_of(config).registry)
        _end(case_run)

    return run_and_record


def _end(run: CaseRun) -> None:
    """Ends the test. For pytest, UNSUPPORTED and UNREACHABLE are skips; other verdicts except PASS are failures."""
    case, judgement = run.case, run.judgement
    text = f"{judgement.verdict} {' '.join(case.rules)} {judgement.reason} · {case.location.file}:{case.location.line}"
    if judgement.verdict in NOT_TESTABLE:
        pytest.skip(text)
    if judgement.verdict != Verdict.PASS:
        pytest.fail(text, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    case = case_of(item)
    if case is not None and (call.when == "call" or (call.when == "setup" and call.excinfo)):
        record = _record_of(item.session, case, call.excinfo.value if call.excinfo else None)
        # xdist transfers only values of simple types
        is_xdist = hasattr(item.config, "workerinput")
        item.user_properties.append((PROPERTY, json.dumps(record) if is_xdist else record))


def _record_of(
    session: pytest.Session,
    case: Case,
    error: BaseException | None,
) -> ResultRecord | ObservedRecord:
    """Returns the record of a case that has just run. An exception of the harness becomes BROKEN, never FAIL."""
    record = stash_of(session).get(RECORD, None)
    stash_of(session)[RECORD] = None
    if record is None:
        record = result_record(case, suite_of(session.config).registry, broken(error), {})
    return record


def run_directly(session: pytest.Session, cases: Sequence[Case], run: RunCase) -> None:
    """Runs cases by the fixture `run` of an earlier item, and reports them to the supervisor. In an emulated guest,
    pytest's own protocol for an item takes as long as a short case."""
    recorder = stash_of(session.config)[RECORDER]
    for case in cases:
        recorder.start(case.id)
        error = None
        try:
            run(case)
        except (KeyboardInterrupt, pytest.exit.Exception):
            raise
        except BaseException as raised:  # pytest.fail and pytest.skip also raise exceptions
            error = raised
        record = _record_of(session, case, error)
        if record["type"] == "result" and record["verdict"] == Verdict.BROKEN and error:
            traceback.print_exception(error)
        recorder.tell(record, goes_on=case is not cases[-1] and not session.shouldstop)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
