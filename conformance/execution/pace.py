"""Measures how large a request must be so that requests are still in flight when a call returns. A NIC of 200 Gb/s
transfers the 768 KiB that suffice on Soft-RoCE in 31 microseconds, before a call of the kernel has begun."""

import time
from collections.abc import Callable
from contextlib import ExitStack

from conformance.bench.interface import Bench
from conformance.bench.work_requests import SendRequest
from conformance.errors import SetupRefused
from conformance.execution.context import HarnessResources
from conformance.execution.in_flight import REQUESTS
from conformance.execution.offered import domain
from conformance.verbs import ENUMS

# The requests of a burst last at least this many times as long as the call with which they race.
RATIO = 20
# Larger requests would need too much pinned memory: both ends have this many bytes.
MOST_BYTES = 64 << 20
_TRANSFERRED = 1 << 20
_PAGES = 16  # the size of most regions that are deregistered with requests in flight
_TRIES = 3
_ACCESS = ENUMS["ibv_access_flags"]


def bytes_in_flight(bench: Bench) -> int:
    """Returns the size of each request of a burst in bytes; 0 if the device cannot transfer over RC."""
    try:
        with domain(bench) as pd, ExitStack() as cleanup:
            resources = HarnessResources(bench, {"pd": pd}, cleanup, [])
            transfer_s = _shortest(_transfer(resources))
            call_s = _shortest(_deregistration(bench, pd))
    except SetupRefused:
        return 0
    return size_for(call_s, transfer_s / _TRANSFERRED, bench.page)


def size_for(call_s: float, byte_s: float, page: int) -> int:
    """Returns the size for a call that lasts `call_s`, on a device that needs `byte_s` for each byte; a whole number
    of pages."""
    size = RATIO * call_s / byte_s / REQUESTS
    pages = int(min(size, MOST_BYTES)) // page + 1
    return min(pages * page, MOST_BYTES)


def _shortest(timed: Callable[[], float]) -> float:
    return min(timed() for _ in range(_TRIES))


def _transfer(resources: HarnessResources) -> Callable[[], float]:
    """Returns a function that returns the duration of an RDMA WRITE of _TRANSFERRED bytes in seconds."""
    connection = resources.connection("RC", "pd")
    pd, queue = resources.pds["pd"], connection.pair.requester
    remote = resources.scratch(pd, _TRANSFERRED, "pace", _ACCESS.value_of("REMOTE_WRITE"))
    local = resources.scratch(queue.pd, _TRANSFERRED, "pace of the requester")
    request = SendRequest("RDMA_WRITE", 1, (local,), rkey=remote.rkey, remote_addr=remote.addr)

    def transfer() -> float:
        began = time.perf_counter()
        returned = queue.post_send(request)
        statuses = [completion.status for completion in queue.completions(1)]
        if returned.value or statuses != ["SUCCESS"]:
            raise SetupRefused("a timed RDMA WRITE", " ".join(statuses))
        return time.perf_counter() - began

    return transfer


def _deregistration(bench: Bench, pd: object) -> Callable[[], float]:
    """Returns a function that returns the duration of ibv_dereg_mr in seconds."""
    size, entry = _PAGES * bench.page, bench.entry("libibverbs")

    def deregister() -> float:
        memory = bench.allocate("anonymous", size)
        registered = entry.reg_mr(pd, memory.addr, size, _ACCESS.value_of("LOCAL_WRITE"))
        if registered.mr is None:
            raise SetupRefused("a timed registration", "")
        began = time.perf_counter()
        entry.dereg_mr(registered.mr)
        took = time.perf_counter() - began
        memory.close()
        return took

    return deregister
