"""Records the results that pytest reports, in a results file or in a stream to a supervisor. The stream also has a
`start` record before each case. If the kernel under test dies, this record shows which case was in flight. With xdist,
only the controller records results."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import pytest

from conformance.device.device import environment
from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.kernel.build_ids import under_test
from conformance.model.declared import Capabilities
from conformance.model.fault import FaultKind
from conformance.model.record import (
    SCHEMA,
    DeviceFacts,
    HeaderRecord,
    ObservedRecord,
    ProgressRecord,
    Record,
    ResultRecord,
)
from conformance.older_python import UTC
from conformance.pytest_plugin.older_pytest import StashKey, stash_of
from conformance.pytest_plugin.options import (
    case_of,
    cases_of,
    has_several,
    named_devices,
    options_of,
    suite_of,
    text_of,
)
from conformance.results.combined import with_command
from conformance.results.files import write_all
from conformance.results.new_records import footer_record, plan_facts, result_record
from conformance.results.records import FILE_NAME, decode, encode
from conformance.results.writer import ResultsFile
from conformance.run_options import RunOptions
from conformance.supervision.examiner import loss_of
from conformance.supervision.worker import WorkerEnd
from conformance.tables.profile import named_profile
from conformance.tables.suite import VERSION, Suite

# The name of the recorder among the plugins of pytest.
NAME = "rdma-cts-recorder"
_STREAM = StashKey["Stream"]()
# The name of the property of pytest's report that has the record. Reports of xdist workers also have the property.
PROPERTY = "rdma-cts"


class Stream:
    """Writes records to a named pipe or a virtio port, which the supervisor reads. The path is open only while a record
    is written, because a library under test could write to open descriptors. Each line begins with the mark of this
    session, which distinguishes records from other output."""

    def __init__(self, path: str, mark: str) -> None:
        """Raises OSError if nothing can be written to the path."""
        self._path = path
        self._mark = f"{mark} ".encode("ascii") if mark else b""
        self._held = b""
        self._write(b"")

    def append(self, record: Record) -> None:
        data, self._held = self._held + self._mark + encode(record), b""
        self._write(data)

    def hold(self, record: Record) -> None:
        """Keeps a record until the next is written: in an emulated guest, opening the path takes as long as a call."""
        self._held += self._mark + encode(record)

    def _write(self, data: bytes) -> None:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            write_all(descriptor, data)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Writes a record that `hold` has kept."""
        if self._held:
            self._write(self._held)


def _stream(config: pytest.Config) -> Stream:
    """Returns the stream of --rdma-stream. The first call reads and removes the file with the mark. Raises OSError."""
    if _STREAM not in stash_of(config):
        path = config.getoption("--rdma-mark")
        if path:
            mark = text_of(config, path, remove=True).strip()
        else:
            mark = ""
        stash_of(config)[_STREAM] = Stream(config.getoption("--rdma-stream"), mark)
    return stash_of(config)[_STREAM]


def tell_supervisor(config: pytest.Config, error: UserError) -> None:
    """Reports to the supervisor, if there is one, the reason why the session ends before its first case."""
    if config.getoption("--rdma-stream"):
        _stream(config).append({"type": "guest", "event": "broken", "reason": str(error)})


class Recorder:
    """The pytest plugin that records results; it is registered only if an option names a place for records."""

    def __init__(self, config: pytest.Config, device: DeviceFacts) -> None:
        self.config = config
        self.device = device
        self.started = time.monotonic()
        self.planned: list[str] = []
        self.results: list[ResultRecord] = []
        self.live = bool(config.getoption("--rdma-stream"))
        self.options = RunOptions()
        self.sink: Stream | ResultsFile | None = None  # opened with the header
        self._begun = ""  # the case whose start was sent to the supervisor
        self._offered = False
        self.header: HeaderRecord | None = None

    def prepare(self) -> None:
        """Prepares the parts of the header that are known before the cases."""
        self.header = header_record(
            suite_of(self.config),
            self.device,
            list(self.config.invocation_params.args),
        )

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.begin([case.id for case in cases_of(session)])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        if not self.planned:
            self.begin([case_id(nodeid) for nodeid in ids])

    def begin(self, cases: Sequence[str]) -> None:
        """Opens the sink and writes the header, if there are cases."""
        suite = suite_of(self.config)
        self.planned = [case for case in cases if suite.find(case)]
        if not self.planned or self.config.option.collectonly:
            return
        try:
            self.sink = self._open_sink()
        except UserError as error:
            raise pytest.UsageError(str(error)) from error
        if self.header is None:
            self.prepare()
        assert self.header is not None
        header = self.header.copy()
        # a supervisor has its own time, plan and options; in an emulated guest, computing them takes long
        if not self.live:
            header["started"] = datetime.now(UTC).isoformat(timespec="seconds")
            self.options = options_of(
                self.config,
                None if has_several(self.config) else self.device["name"],
            )
            header |= cast(HeaderRecord, plan_facts(suite, self.planned))
        header["profile"] = named_profile(self.config.getoption("--rdma-profile"))
        header |= {
            "seed": self.config.getoption("--rdma-seed"),
            "tier": self.config.getoption("--rdma-tier"),
        }
        if has_several(self.config):
            header["devices"] = named_devices(self.config)
        self.sink.append(header)

    def _open_sink(self) -> Stream | ResultsFile:
        if not self.live:
            return ResultsFile(Path(self.config.getoption("--rdma-out")) / FILE_NAME)
        try:
            return _stream(self.config)
        except OSError as error:
            raise UserError(f"--rdma-stream: {error.filename}: {error.strerror}") from error

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> None:
        """Begins the case. A crash before this hook, in the set-up of the session, is not the result of a case."""
        if case := case_of(item):
            self.start(case.id)

    def start(self, case: str) -> None:
        if self.sink and self.live and case != self._begun:
            self._begun = case
            self.sink.append({"type": "start", "case": case})

    def offered(self, capabilities: Capabilities) -> None:
        """Reports to the supervisor once which capabilities worked when they were tried."""
        if self.sink and self.live and not self._offered:
            self._offered = True
            offered = {entry: dict(names) for entry, names in capabilities.offered.items()}
            self.sink.append(
                {"type": "offered", "offered": offered, "absent": dict(capabilities.absent)}
            )

    def progress(self, case: str, point: str, done: int) -> None:
        """Records the progress of a case, from which the supervisor derives where the kernel died. `point` is the next
        point of a sweep."""
        if self.sink and self.live:
            record: ProgressRecord = {
                "type": "progress",
                "case": case,
                "point": point,
                "done": done,
            }
            self.sink.append(record)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, value in report.user_properties:
            if name == PROPERTY and report.when != "teardown":
                self.record_result(decode(value) if isinstance(value, str) else cast(Record, value))
        if report.when not in ("setup", "call", "teardown"):  # xdist's report about a dead worker
            self._record_crash(report.nodeid)

    def record_result(self, record: Record) -> None:
        assert record["type"] == "result"
        if self.sink and not any(last["case"] == record["case"] for last in self.results[-1:]):
            case = suite_of(self.config).find(record["case"])
            if case is not None and not self.live:  # in a stream, the supervisor adds the command
                record = with_command(record, self.options.reproduction(case))
            if isinstance(self.sink, ResultsFile):
                record = self.sink.prepared(record, case)
            self.results.append(record)
            self.start(record["case"])  # if a fixture failed, no start was recorded
            self.sink.append(record)

    def tell(self, record: ResultRecord | ObservedRecord, goes_on: bool) -> None:
        """Records a case that was run without pytest's protocol. `goes_on` is whether a further case follows; the
        record is then sent to the supervisor together with the start of this case."""
        if not isinstance(self.sink, Stream):
            self.record_result(record)
        elif goes_on:
            self.sink.hold(record)
        else:
            self.sink.append(record)

    def _record_crash(self, nodeid: str) -> None:
        suite = suite_of(self.config)
        case = suite.find(case_id(nodeid))
        if case:
            end = WorkerEnd("the process that ran the case died", kind=FaultKind.PROCESS_DIED)
            judgement = Judgement.of_fault(loss_of(case, end, []))
            self.record_result(result_record(case, suite.registry, judgement, {}))

    def pytest_sessionfinish(self) -> None:
        if self.sink is None:
            return
        if not self.live:
            registry = suite_of(self.config).registry
            duration = time.monotonic() - self.started
            self.sink.append(
                footer_record(self.planned, self.results, registry, duration_s=duration),
            )
        self.sink.close()


def case_id(nodeid: str) -> str:
    """Returns the case id in a node id such as `cases/reg_mr/test_reg_mr.py::test_reg_mr[reg_mr/…]`; else empty."""
    start = nodeid.find("[")
    if start >= 0 and nodeid.startswith("cases/"):
        return nodeid[start + 1 : -1]
    return ""


def header_record(suite: Suite, device: DeviceFacts, argv: Sequence[Any]) -> HeaderRecord:
    """Returns the header without the plan. A supervisor adds the plan and the values that only the supervisor has."""
    return {
        "type": "header",
        "schema": SCHEMA,
        "suite": {"version": VERSION, "tables_sha256": suite.tables_sha256},
        "stack": "host",
        "env": environment(),
        "device": device,
        "under_test": under_test(device["driver"]),
        "seed": None,
        "planned": [],
        "argv": [str(argument) for argument in argv],
        "started": "",
    }
