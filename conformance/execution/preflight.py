"""What has to work before any case: SEND, RDMA WRITE and RDMA READ between two queue pairs of the device itself.

The positive control of all refusals. Where nothing arrives anyway, as on a device without loopback, every operation
that must not be done would seem to be refused. Not for judging the device: what fails here ends the run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from conformance.bench.calls import Sge, errno_name
from conformance.bench.interface import Bench
from conformance.bench.memory_areas import BEFORE, EMPTY, Area, Part, pattern, repeated
from conformance.bench.work_requests import Completion, SendRequest
from conformance.errors import SetupRefused, UserError
from conformance.execution.connection import ExchangeSpec, LoopbackConnection
from conformance.execution.harness_resources import HarnessResources
from conformance.verbs import ENUMS

_BYTES = 64
_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE", "REMOTE_READ")
_NOT_OFFERED = ("EOPNOTSUPP", "ENOSYS", "EPROTONOSUPPORT")
_HINT = "connect the port to itself or to a switch that returns its packets, or name another GID with --gid-index"


def check_loopback(bench: Bench) -> None:
    """Raises UserError (status 3) if what has to work does not. A device without reliable connections is let pass."""
    pd = bench.alloc_pd()
    try:
        with ExitStack() as cleanup:
            resources = HarnessResources(bench, {"pd": pd}, cleanup, [])
            try:
                connection = resources.connection("RC", "pd")
            except SetupRefused as refused:
                if refused.code in _NOT_OFFERED:
                    return
                message = f"two queue pairs of the device cannot be connected to each other: {refused.code}"
                raise UserError(message, hint=_HINT, status=3) from refused
            own, other = (resources.scratch(pd, _BYTES, use, _RIGHTS) for use in ("own", "other"))
            failed = (
                _one_sided(connection, "RDMA_WRITE", own, other)
                or _one_sided(connection, "RDMA_READ", own, other)
                or _sent(connection, own, other)
            )
            if failed:
                raise UserError(f"loopback does not work on this device: {failed}", hint=_HINT, status=3)
    finally:
        with suppress(Exception):  # the cases report what a device does not release
            pd.close()


def _one_sided(connection: LoopbackConnection, opcode: str, own: Sge, other: Sge) -> str:
    """Why an operation of the requester on the responder's memory did not do all it should; empty if it did."""
    content, reads = pattern(_BYTES), opcode == "RDMA_READ"
    before = (content, repeated(EMPTY, _BYTES)) if reads else (repeated(BEFORE, _BYTES), content)
    target, local = (
        Area(Part(sge.addr, _BYTES), sge.addr, _BYTES, EMPTY, contents, content)
        for sge, contents in zip((other, own), before, strict=True)
    )
    request = SendRequest(opcode, 1, (own,), rkey=other.rkey, remote_addr=other.addr)
    exchange = connection.execute(ExchangeSpec(connection, request, (target, local)))
    if exchange.returned.value:
        return f"an {opcode} could not be posted: {errno_name(abs(exchange.returned.value))}"
    arrived = (local.content() if reads else target.content()) == content
    return "" if exchange.succeeded and arrived else _described(opcode, exchange.completions)


def _sent(connection: LoopbackConnection, own: Sge, other: Sge) -> str:
    """Why a SEND to the responder did not arrive; empty if it did."""
    requester, responder = connection.pair.requester, connection.pair.responder
    content = pattern(_BYTES)
    ctypes.memmove(own.addr, content, _BYTES)
    ctypes.memset(other.addr, BEFORE, _BYTES)
    for returned in (responder.post_receive((other,), 1), requester.post_send(SendRequest("SEND", 2, (own,)))):
        if returned.value:
            return f"a SEND or its receive could not be posted: {errno_name(abs(returned.value))}"
    found, received = requester.completions(1), responder.completions(1)
    arrived = ctypes.string_at(other.addr, _BYTES) == content
    succeeded = [each.status for each in (*found, *received)] == ["SUCCESS", "SUCCESS"]
    return "" if succeeded and arrived else _described("SEND", [*found, *received])


def _described(opcode: str, found: Sequence[Completion]) -> str:
    statuses = " and ".join(each.status for each in found)
    return f"{opcode} {f'completed with {statuses}' if found else 'gave no completion'}, and its data did not arrive"
