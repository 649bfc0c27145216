"""Refused requests that never complete: a program that waits for their completion waits for ever."""

from __future__ import annotations

from collections.abc import Callable

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue
from trial.violation import plain, violates

_RELIABLE = ("RC", "XRC", "XRC_SEND")


def _silent(self: Device, queue: Queue, request: SendRequest, status: str, of: Callable[[str, str], bool]) -> None:
    """Completes a request unless it was refused on a reliable queue pair, and is of those that never complete."""
    if queue.kind in _RELIABLE and status != "SUCCESS" and of(request.opcode, status):
        self.fail(queue)
    else:
        plain(self).complete(queue, request, status)


@violates("REG-05", Device.complete)
def refused_write_hangs(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An RDMA WRITE that the peer refuses moves nothing and never completes."""
    _silent(self, queue, request, status, lambda opcode, text: "RDMA_WRITE" in opcode and text.startswith("REM_"))


@violates("REG-06", Device.complete)
def refused_read_hangs(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An RDMA READ that the peer refuses moves nothing and never completes."""
    _silent(self, queue, request, status, lambda opcode, text: opcode == "RDMA_READ" and text.startswith("REM_"))


@violates("REG-07", Device.complete)
def refused_atomic_hangs(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An atomic that the peer refuses changes nothing and never completes."""
    _silent(self, queue, request, status, lambda opcode, text: "ATOMIC" in opcode and text.startswith("REM_"))


@violates("REG-04", Device.complete)
def refused_gather_hangs(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A request whose own buffer is refused never completes."""
    _silent(self, queue, request, status, lambda opcode, text: text == "LOC_PROT_ERR")


@violates("REG-20", name="requests-beyond-a-region-hang")
@violates("REG-21", name="requests-with-a-stale-key-hang")
@violates("REG-22", name="requests-from-another-domain-hang")
@violates("BIND-10", name="requests-beyond-a-window-hang")
@violates("BIND-12", Device.complete)
def every_refused_request_hangs(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """Whatever is refused on a reliable queue pair never completes."""
    _silent(self, queue, request, status, lambda opcode, text: True)
