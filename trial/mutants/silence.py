"""Refused requests that never complete, so that a program waits for their completion forever."""

from collections.abc import Callable

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue
from trial.violation import plain

_RELIABLE = ("RC", "XRC", "XRC_SEND")


def _silent(self: Device, queue: Queue, request: SendRequest, status: str, of: Callable[[str, str], bool]) -> None:
    """Completes a request, unless a reliable queue pair has refused it and `of` says that it never completes."""
    if queue.kind in _RELIABLE and status != "SUCCESS" and of(request.opcode, status):
        self.fail(queue)
    else:
        plain(self).complete(queue, request, status)
