"""The positive control of all refusals: what has to work before any case, on references that lack it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.bench.work_requests import SendRequest
from conformance.errors import UserError
from conformance.execution.preflight import check_loopback
from conformance.pytest_plugin.recorder import tell_supervisor
from conformance.results.records import decode, encode
from reference.bench import ReferenceBench
from reference.device import Device
from reference.objects import Refused
from reference.queues import Queue
from reference.stack import without


class Lost(Device):
    """Requests of one kind are not carried out."""

    def __init__(self, opcode: str, status: str) -> None:
        super().__init__()
        self._lost = opcode, status

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        opcode, status = self._lost
        return status if request.opcode == opcode else super().carry_out(queue, request)


class NotPosted(Device):
    """No request can be posted."""

    def post_send(self, queue: Queue, request: SendRequest) -> int:
        return 22


class Unconnected(Device):
    """No queue pair can be made, with some errno."""

    def __init__(self, errno: int) -> None:
        super().__init__()
        self._errno = errno

    def create_qp(self, queue: Queue) -> Queue:
        raise Refused(self._errno)


@pytest.mark.parametrize("made", [Device, lambda: Device(without("iba_statuses", "immediate_data"))])
def test_a_device_that_moves_bytes_is_let_pass_and_nothing_is_left(made: Callable[[], Device]) -> None:
    with closing(ReferenceBench(made())) as bench:
        before = bench.resources()
        check_loopback(bench)
        assert bench.resources() == before


@pytest.mark.parametrize(
    ("device", "message"),
    [
        (Lost("RDMA_WRITE", "RETRY_EXC_ERR"), "RDMA_WRITE completed with RETRY_EXC_ERR, and its data did not arrive"),
        (Lost("RDMA_WRITE", "SUCCESS"), "RDMA_WRITE completed with SUCCESS, and its data did not arrive"),
        (Lost("RDMA_READ", "SUCCESS"), "RDMA_READ completed with SUCCESS, and its data did not arrive"),
        (Lost("RDMA_READ", "REM_ACCESS_ERR"), "RDMA_READ completed with REM_ACCESS_ERR, and its data did not arrive"),
        (NotPosted(), "an RDMA_WRITE could not be posted: EINVAL"),
    ],
)
def test_a_device_that_moves_none_ends_the_run(device: Device, message: str) -> None:
    with closing(ReferenceBench(device)) as bench, pytest.raises(UserError, match=message) as caught:
        check_loopback(bench)
    assert caught.value.status == 3
    assert "--gid-index" in caught.value.hint


def test_a_message_that_does_not_arrive_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def shortened(self: Device, queue: Queue, content: bytes | None, imm: int | None, length: int) -> str:
        return Device.deliver(self, queue, b"\0" * len(content or b""), imm, length)

    class Zeroing(Device):
        deliver = shortened

    with closing(ReferenceBench(Zeroing())) as bench, pytest.raises(UserError, match="SEND completed with SUCCESS"):
        check_loopback(bench)


def test_a_device_without_reliable_connections_is_let_pass() -> None:
    with closing(ReferenceBench(Unconnected(95))) as bench:
        check_loopback(bench)


def test_queue_pairs_that_cannot_be_connected_end_the_run() -> None:
    with (
        closing(ReferenceBench(Unconnected(101))) as bench,
        pytest.raises(UserError, match="cannot be connected to each other: ENETUNREACH"),
    ):
        check_loopback(bench)


def config(stream: str, mark: str = "") -> Any:
    """The configuration of a session with this --rdma-stream and --rdma-mark."""
    return SimpleNamespace(getoption={"--rdma-stream": stream, "--rdma-mark": mark}.get, stash=pytest.Stash())


TOLD = {"type": "guest", "event": "broken", "reason": "no loopback; mend it"}
ERROR = UserError("no loopback", hint="mend it")


def test_a_supervisor_is_told_before_there_is_a_header(tmp_path: Path) -> None:
    port = tmp_path / "port"
    port.touch()
    tell_supervisor(config(str(port)), ERROR)
    assert [decode(line) for line in port.read_bytes().splitlines()] == [TOLD]


def test_each_line_to_a_supervisor_has_the_mark_whose_file_is_gone(tmp_path: Path) -> None:
    port, mark = tmp_path / "port", tmp_path / "mark"
    port.touch()
    mark.write_text("abc")
    session = config(str(port), str(mark))
    for _ in range(2):
        tell_supervisor(session, ERROR)
        assert not mark.exists()
    assert port.read_bytes() == 2 * (b"abc " + encode(TOLD))


def test_without_a_supervisor_nobody_is_told() -> None:
    tell_supervisor(config(""), ERROR)
