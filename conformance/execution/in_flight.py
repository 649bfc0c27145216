"""Requests that are in flight while a call is made: they are posted before it and awaited after it.

When the call has returned, the memory is filled again, which shows what the requests still do. Not for operations that
are awaited at once (traffic.py).
"""

import ctypes
import itertools
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

from conformance.bench.calls import Return, Sge, errno_name
from conformance.bench.interface import Bench, Queue
from conformance.bench.memory_areas import CANARY, Part, pattern, repeated
from conformance.bench.work_requests import Completion, SendRequest
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext, result_of
from conformance.kernel import paging
from conformance.model.case import Step
from conformance.model.observation import Observation
from conformance.verbs import ENUMS

# A queue has room for sixteen requests.
REQUESTS = 12
ROUNDS = 8  # of REQUESTS requests, while a second thread discards pages
NOT_COMPLETED, NOT_POSTED = "no completion", "not posted"
_OPCODES = {"RDMA_WRITE": 0, "RDMA_READ": 0, "ATOMIC_FETCH_AND_ADD": 8}  # with the length of each, 0: that of the range
_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE", "REMOTE_READ")


def _answer(returned: str) -> Observation:
    return {"rc": 0, "returned": returned, "errno": "", "layer": "none"}


def _prepared(context: CaseContext, step: Step) -> tuple[Queue, Part, SendRequest]:
    """The queue that posts requests on a range, the memory of the other end, and one of the requests."""
    name, operation = str(step.arguments["qp"]), str(step.arguments["op"])
    pair, owned = context.pairs[name], bool(step.arguments["lkey"])
    key, addr, length = context.numbers(step.arguments, "lkey" if owned else "rkey", "addr", "length")
    length = _OPCODES[operation] or length
    queue, other = (pair.responder, pair.requester) if owned else (pair.requester, pair.responder)
    scratch = context.harness.scratch((other if owned else queue).pd, length, "in flight", _RIGHTS)
    ctypes.memmove(scratch.addr, pattern(length), length)
    own = Sge(addr, length, key % (1 << 32)) if owned else scratch
    rkey, at = (scratch.rkey, scratch.addr) if owned else (key % (1 << 32), addr)
    request = SendRequest(operation, 0, (own,), rkey=rkey, remote_addr=at, compare_add=1)
    return queue, Part(scratch.addr, length), request


def _post(context: CaseContext, queue: Queue, request: SendRequest) -> None:
    for _ in range(REQUESTS):
        returned = queue.post_send(request._replace(wr_id=context.next_wr_id()))
        if returned.value:
            raise SetupRefused("posting a request", errno_name(returned.value))


def _posted(context: CaseContext, queue: Queue, request: SendRequest) -> bool:
    """Whether requests can be posted: some devices refuse them on a queue pair in the error state."""
    try:
        _post(context, queue, request)
    except SetupRefused:
        return False
    return True


def post_traffic(context: CaseContext, step: Step) -> Observation:
    """Posts REQUESTS requests on a range, over a pair of the case, and does not wait for them.

    With `lkey` its owner posts them, as operations on memory of the peer; else the peer does.
    """
    queue, other, request = _prepared(context, step)
    context.in_flight[str(step.arguments["qp"])] = (queue, other)
    _post(context, queue, request)
    return _answer("0")


def traffic_beside(context: CaseContext, step: Step) -> Observation:
    """Requests as of post_traffic, round by round, while a second thread discards pages or deregisters the region.

    While pages are discarded, ROUNDS times, each request must succeed; `wc` has the statuses. No document promises that
    a page fault outlasts discards without a pause, so there is one for each request. A deregistration must succeed, and
    the second thread fills the memory after it: requests posted later, as those of the last round are, must change
    nothing (see await_traffic).
    """
    queue, other, request = _prepared(context, step)
    memory, name = context.memory[str(step.arguments["memory"])], str(step.arguments["mr"])
    discards, statuses = SimpleQueue[bool](), set[str]()  # False ends the discards

    def discard() -> Return:
        while discards.get():
            paging.let_go(memory.addr, memory.size, "DONTNEED")
        return Return(0, 0)

    def deregister() -> Return:
        returned = context.owners[name].dereg_mr(context.mrs[name])
        ctypes.memset(memory.addr, CANARY, memory.size)
        return returned

    ends, last = step.arguments["does"] == "deregister", False
    with ThreadPoolExecutor(1) as second:
        try:
            _post(context, queue, request)
            beside = second.submit(deregister if ends else discard)
            for number in itertools.count(1):
                for _ in range(REQUESTS):
                    discards.put(True)
                    statuses |= {each.status for each in queue.completions(1)} or {NOT_COMPLETED}
                    if NOT_COMPLETED in statuses:
                        break
                if statuses != {"SUCCESS"} or last:
                    break
                last = beside.done() if ends else number + 1 == ROUNDS
                if not _posted(context, queue, request):
                    statuses.add(NOT_POSTED)
                    break
        finally:
            discards.put(False)
    seen = result_of(beside.result())
    if not ends:
        return {**seen, "wc": sorted(statuses)}
    if seen["returned"] == "0":
        context.forget("mrs", name)
        same = ctypes.string_at(memory.addr, memory.size) == repeated(CANARY, memory.size)
        leaked = CANARY in ctypes.string_at(other.addr, other.size)
        seen["returned"] = "changed" if not same else "leaked" if leaked else "0"
    return {**seen, "marker": sorted(statuses)}


def killed_in_flight(context: CaseContext, step: Step) -> Observation:
    """Another process sets up this case, posts, and is killed; `left_behind` gets what the kernel still has of it."""
    from conformance.execution.procedure import set_up  # imported late: it makes these calls itself

    def prepare(bench: Bench) -> CaseContext:
        there = CaseContext(context.case, bench)
        set_up(there)
        post_traffic(there, step)
        return there

    left = context.bench.killed(prepare)
    context.left_behind += [f"{kind} of the killed process: {count}" for kind, count in left.items() if count]
    return _answer("0")


def await_traffic(context: CaseContext, step: Step) -> Observation:
    """Fills the memory, and awaits the completions of all requests.

    0, `changed` if a byte has changed meanwhile, or `leaked` if one of the new bytes is at the other end. The requests
    may have been carried out before the call, or fail: both are recorded.
    """
    (queue, other), memory = context.in_flight[str(step.arguments["qp"])], context.memory[str(step.arguments["memory"])]
    ctypes.memset(memory.addr, CANARY, memory.size)
    found = queue.completions(REQUESTS)
    same = ctypes.string_at(memory.addr, memory.size) == repeated(CANARY, memory.size)
    leaked = CANARY in ctypes.string_at(other.addr, other.size)
    returned = "changed" if not same else "leaked" if leaked else "0" if len(found) == REQUESTS else "no completion"
    return {**_answer(returned), "marker": [each.status for each in found]}


def connect_qp(context: CaseContext, step: Step) -> Observation:
    """Moves a pair on to RTS; `wc` are the statuses of the requests that were posted to the responder before."""
    pair = context.pairs[str(step.arguments["qp"])]
    pair.connect()
    # Requests of one queue complete in order; this one moves no bytes, and needs no key.
    marker = context.next_wr_id()
    pair.responder.post_send(SendRequest("RDMA_WRITE", marker))
    found: list[Completion] = []
    while not any(each.wr_id == marker for each in found) and (more := pair.responder.completions(1)):
        found += more
    own = [each for each in found if each.wr_id != marker]
    return {**_answer("0"), "wc": [each.status for each in own], "marker": [each.status for each in found]}


def destroy_qp(context: CaseContext, step: Step) -> Observation:
    context.destroy_pair(str(step.arguments["qp"]))
    return _answer("0")
