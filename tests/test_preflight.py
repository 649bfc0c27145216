"""Tests of preflight, the control of all refusals: without it, a device that transfers nothing would seem to refuse
every operation. In most tests, an operation of preflight fails on the reference."""

import errno
from collections.abc import Callable
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

import fixtures.bench
from conformance.bench.work_requests import SendRequest
from conformance.device.libibverbs import Libibverbs
from conformance.errors import NotConnected, PeerLost, UserError
from conformance.execution.offered import offered_by, reachable_on
from conformance.execution.preflight import preflight
from conformance.model.preflight import Findings, format_findings
from conformance.pytest_plugin.recorder import tell_supervisor
from conformance.results.records import encode
from devices import device, refusing
from samples import user_error
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.queues import Queue
from trial.reference.stack import without

RELIABLE = ("RC", "RC_SRQ")


def lost(opcode: str, status: str) -> Device:
    """Returns a reference on which requests with this opcode have no effect and complete with this status."""
    return device(
        carry_out=lambda was, queue, request: (
            status if request.opcode == opcode else was(queue, request)
        ),
    )


def unmade(errno: int, *kinds: str, **methods: Callable[..., Any]) -> Device:
    """Returns a reference that refuses to create queue pairs of these types."""
    refuse = refusing(errno)
    return device(
        create_qp=lambda was, queue: refuse() if queue.kind in kinds else was(queue),
        **methods,
    )


def unconnected(kind: str) -> Device:
    """Returns a reference on which queue pairs of one type can be created, but not moved to RTS."""

    def move_qp(was: Callable[..., None], queue: Queue, state: str) -> None:
        if queue.kind == kind and state == "RTS":
            raise NotConnected(101, "moving to RTS")
        was(queue, state)

    return device(move_qp=move_qp)


def registering(refused: Callable[[int], int]) -> Device:
    """Returns a reference that refuses registrations with the errno that `refused` returns for their access."""
    return device(access_fault=lambda was, access: was(access) or refused(access))


def silent(was: Callable[..., None], queue: Queue, request: SendRequest, status: str) -> None:
    """Never completes an RDMA READ."""
    if request.opcode != "RDMA_READ":
        was(queue, request, status)


def found_on(device: Device) -> Findings:
    with closing(ReferenceBench(device)) as bench:
        return preflight(bench)


@pytest.mark.parametrize("lacks", [(), ("iba_statuses", "immediate_data")])
def test_a_device_that_moves_bytes_is_accepted_and_nothing_is_left(lacks):
    with closing(ReferenceBench(Device(without(*lacks)))) as bench:
        before = bench.resources()
        preflight(bench)
        assert bench.resources() == before


@pytest.mark.parametrize(
    "made, message",
    [
        (
            lost("SEND", "RETRY_EXC_ERR"),
            "SEND completed with RETRY_EXC_ERR, and its data did not arrive",
        ),
        (lost("SEND", "SUCCESS"), "SEND completed with SUCCESS, and its data did not arrive"),
        (
            lost("RDMA_WRITE", "RETRY_EXC_ERR"),
            "RDMA_WRITE completed with RETRY_EXC_ERR, and its data did not arrive",
        ),
        (
            lost("RDMA_READ", "RNR_RETRY_EXC_ERR"),
            "RDMA_READ completed with RNR_RETRY_EXC_ERR, and its data",
        ),
        (device(post_send=lambda *_: 22), "a SEND or its receive could not be posted: EINVAL"),
        (device(complete=silent), "RDMA_READ produced no completion"),
        (
            unmade(95, *RELIABLE, carry_out=lambda *_: "SUCCESS"),
            "loopback does not work on this device: SEND completed with SUCCESS",
        ),
    ],
)
def test_lost_requests_of_preflight_end_the_run(made, message):
    with user_error(message, status=3) as caught:
        found_on(made)
    assert "--gid-index" in caught.value.hint


@pytest.mark.parametrize(
    "made, operation, reason",
    [
        (
            lost("RDMA_WRITE", "SUCCESS"),
            "RDMA_WRITE",
            "completed with SUCCESS, and its data did not arrive",
        ),
        (
            lost("RDMA_READ", "REM_ACCESS_ERR"),
            "RDMA_READ",
            "completed with REM_ACCESS_ERR, and its data did not",
        ),
        (
            lost("RDMA_WRITE", "LOC_PROT_ERR"),
            "RDMA_WRITE",
            "completed with LOC_PROT_ERR, and its data did not",
        ),
        (
            device(
                deliver=lambda was, queue, content, *more: was(
                    queue,
                    b"\0" * len(content or b""),
                    *more,
                ),
            ),
            "SEND",
            "completed with SUCCESS and SUCCESS, and its data did not arrive",
        ),
    ],
)
def test_refusals_in_preflight_are_left_to_the_cases(made, operation, reason):
    findings = found_on(made)
    assert [name for name, what in findings.operations.items() if what != "works"] == [operation]
    assert reason in findings.operations[operation]
    assert findings.pairs["RC"] == "works"
    assert findings.renews_by_reset is True
    (line,) = [
        finding for finding in format_findings(findings.as_data()) if finding.startswith(operation)
    ]
    assert line.endswith("; the cases judge this")


def test_a_device_that_registers_nothing_is_accepted():
    findings = found_on(registering(lambda access: 14))
    refused = "registering the local side's memory was refused with EFAULT"
    assert set(findings.operations.values()) == {refused}
    assert findings.refused_write == refused
    assert findings.pairs == {"RC": "works", "UC": refused, "UD": refused, "RC_SRQ": refused}


def test_preflight_registers_memory_only_with_local_write():
    with closing(ReferenceBench(registering(lambda access: 0 if access & 1 else 22))) as bench:
        assert set(preflight(bench).operations.values()) == {"works"}
        assert bench.capabilities() == ReferenceBench().capabilities()


def test_the_findings_of_preflight_are_reported():
    findings = found_on(Device())
    assert findings.as_data() == {
        "pairs": {"RC": "works", "UC": "works", "UD": "works", "RC_SRQ": "works"},
        "operations": {"RDMA_WRITE": "works", "RDMA_READ": "works", "SEND": "works"},
        "refused_write": "REM_ACCESS_ERR",
        "renews_by_reset": True,
        "tells_state": True,
        "in_flight_bytes": 0,
        "uncounted": (),
        "wire_peer": "",
    }
    assert format_findings(findings.as_data()) == []


@pytest.mark.parametrize("errno", [95, 38, 93, 22])
def test_a_device_without_reliable_connections_is_accepted(errno):
    findings = found_on(unmade(errno, *RELIABLE))
    assert findings.pairs == {
        "RC": "not offered",
        "UC": "works",
        "UD": "works",
        "RC_SRQ": "not offered",
    }
    assert findings.refused_write == ""
    assert format_findings(findings.as_data()) == []


def test_a_device_without_any_queue_pair_is_accepted():
    findings = found_on(Device(without("rc", "uc", "ud", "rc_srq")))
    assert set(findings.pairs.values()) == {"not offered"}


def test_queue_pairs_that_cannot_be_made_or_connected_end_the_run():
    with user_error("making a queue pair of type RC was refused with ENOMEM", status=3) as caught:
        found_on(unmade(12, *RELIABLE))
    assert "--gid-index" not in caught.value.hint
    with user_error(
        "connecting two queue pairs of type RC was refused with ENETUNREACH",
        status=3,
    ) as caught:
        found_on(unconnected("RC"))
    assert "--gid-index" in caught.value.hint


@pytest.mark.parametrize("kind", ["RC", "UD", "RC_SRQ"])
def test_a_limit_of_locked_memory_is_reported_with_its_value(kind, monkeypatch):
    monkeypatch.setattr("conformance.execution.preflight.lockable", lambda: 64 << 10)
    said = f"making a queue pair of type {kind} was refused with ENOMEM; this process may lock 64 KiB of memory"
    with user_error(said, status=3) as caught:
        found_on(unmade(12, kind))
    assert "ulimit -l unlimited" in caught.value.hint


@pytest.mark.parametrize(
    "error",
    [
        OSError(5, "ibv_alloc_pd"),
        UserError("the device cannot be tested: …"),
        PeerLost("gone, too"),
    ],
)
def test_a_device_that_vanishes_during_preflight_is_reported(monkeypatch, error):
    bench: Any = SimpleNamespace(device=SimpleNamespace(name="mlx5_0"))
    monkeypatch.setattr(fixtures.bench, "preflight", Mock(side_effect=error))
    monkeypatch.setattr(fixtures.bench, "device_names", list)
    with pytest.raises(
        UserError,
        match="mlx5_0 is gone: it was removed, or its driver was unloaded",
    ) as caught:
        fixtures.bench.look_at(bench)
    assert (caught.value.status, caught.value.hint) == (3, "see the kernel's log")
    monkeypatch.setattr(fixtures.bench, "device_names", lambda: ["mlx5_0"])
    with pytest.raises(UserError if isinstance(error, PeerLost) else type(error)):
        fixtures.bench.look_at(bench)


def test_further_types_that_cannot_be_connected_are_reported_and_count_as_offered():
    with closing(ReferenceBench(unconnected("UC"))) as bench:
        findings = preflight(bench)
        assert (
            findings.pairs["UC"]
            == "connecting two queue pairs of type UC was refused with ENETUNREACH"
        )
        assert offered_by(bench, "libibverbs")["uc"] is True
    (line,) = format_findings(findings.as_data())
    assert line.startswith("two queue pairs of type UC were created, but ")


def test_verbs_that_need_a_region_do_not_count_as_absent_without_one():
    with closing(ReferenceBench(device(reg_mr=refusing(errno.EBUSY)))) as bench:
        preflight(bench)
        offered = offered_by(bench, "libibverbs")
        assert "rereg_mr" not in offered
        library = cast(Libibverbs, SimpleNamespace(has_experimental_rereg=False))
        assert reachable_on(library, offered)["rereg_absent"] is False


def test_the_status_of_a_refused_write_is_reported():
    everything = device(target=lambda was, queue, request, length: request.remote_addr)
    assert found_on(everything).refused_write == "SUCCESS, and its data arrived"
    assert found_on(Device(without("iba_statuses", "immediate_data"))).refused_write == "SUCCESS"


def config(stream: str, mark: str = "") -> Any:
    return SimpleNamespace(
        getoption={"--rdma-stream": stream, "--rdma-mark": mark}.get,
        stash=pytest.Stash(),
    )


ERROR = UserError("no loopback", hint="mend it")


@pytest.mark.parametrize("mark", ["", "abc"])
def test_a_supervisor_gets_marked_lines_before_the_header_and_the_file_of_the_mark_is_removed(
    tmp_path, mark
):
    port, file = tmp_path / "port", tmp_path / "mark"
    port.touch()
    if mark:
        file.write_text(mark)
    session = config(str(port), str(file) if mark else "")
    for _ in range(2):
        tell_supervisor(session, ERROR)
        assert not file.exists()
    line = encode({"type": "guest", "event": "broken", "reason": "no loopback; mend it"})
    assert port.read_bytes() == 2 * (b"abc " * bool(mark) + line)


def test_without_a_supervisor_nothing_is_sent():
    tell_supervisor(config(""), ERROR)
