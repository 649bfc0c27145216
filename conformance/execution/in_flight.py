"""Executes requests that are in flight during a call. After the call has returned, the memory is filled with a byte that no
request transferred, which shows later accesses."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from conformance.bench.calls import Return, Sge, errno_name
from conformance.bench.interface import Bench, Memory, ModifiableQueue, Queue, WirePair
from conformance.bench.memory_areas import CANARY, Part, has_byte, is_filled, pattern
from conformance.bench.work_requests import Completion, SendRequest, key32
from conformance.errors import HostLacks, SetupRefused
from conformance.execution.connection import SILENCE_S
from conformance.execution.context import CaseContext, compared, result_of, told
from conformance.kernel import paging
from conformance.model.case import Step
from conformance.model.expected_errors import REFUSALS
from conformance.model.observation import Observation
from conformance.verbs import ENUMS
from conformance.wire.statuses import FLUSHED

# The number of requests in flight; a queue has room for sixteen requests.
REQUESTS = 12
ROUNDS = 2  # rounds of REQUESTS requests each, while a second thread discards pages
NOT_COMPLETED, NOT_POSTED = "no completion", "not posted"
# lengths; 0: the range's length
_OPCODES = {"RDMA_WRITE": 0, "RDMA_READ": 0, "ATOMIC_FETCH_AND_ADD": 8}
_ATOMICS = [operation for operation, length in _OPCODES.items() if length]
_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE", "REMOTE_READ")


def _prepared(context: CaseContext, step: Step) -> tuple[Queue, Part, SendRequest]:
    """Returns the queue for requests on a range, the memory of the other end, and one such request."""
    name, operation = str(step.arguments["qp"]), str(step.arguments["op"])
    pair, owned = context.pairs[name], bool(step.arguments["lkey"])
    key, addr, length = context.numbers(
        step.arguments,
        "lkey" if owned else "rkey",
        "addr",
        "length",
    )
    length = _OPCODES[operation] or length
    queue, other = (pair.responder, pair.requester) if owned else (pair.requester, pair.responder)
    scratch = context.harness.scratch((other if owned else queue).pd, length, "in flight", _RIGHTS)
    ctypes.memmove(scratch.addr, pattern(length), length)
    if owned:
        element = Sge(addr, length, key32(key))
    else:
        element = scratch
    rkey, at = (scratch.rkey, scratch.addr) if owned else (key32(key), addr)
    request = SendRequest(operation, 0, (element,), rkey=rkey, remote_addr=at, compare_add=1)
    return queue, Part(scratch.addr, length), request


def _in_front(context: CaseContext, step: Step) -> SendRequest:
    """Returns an RDMA WRITE of `length` bytes to other memory. Atomics behind it are in flight until it is complete."""
    pair, (length,) = context.pair_of(step), context.numbers(step.arguments, "length")
    near = context.harness.scratch(pair.requester.pd, length, "in front")
    far = context.harness.scratch(pair.responder.pd, length, "far in front", _RIGHTS)
    return SendRequest("RDMA_WRITE", 0, (near,), rkey=far.rkey, remote_addr=far.addr)


def _refused(
    context: CaseContext,
    queue: Queue,
    request: SendRequest,
    first: SendRequest | None = None,
) -> int:
    """Posts REQUESTS requests; the first of them is `first`, if given. Returns the errno of the first refused request
    (some devices refuse in the error state), or 0."""
    requests = [first or request, *[request] * (REQUESTS - 1)]
    posted = (
        queue.post_send(request._replace(wr_id=context.next_wr_id())).value for request in requests
    )
    return next(filter(None, posted), 0)


def _post(
    context: CaseContext,
    queue: Queue,
    request: SendRequest,
    first: SendRequest | None = None,
) -> None:
    if refused := _refused(context, queue, request, first):
        raise SetupRefused("posting a request", errno_name(refused))


def post_traffic(context: CaseContext, step: Step) -> Observation:
    """Posts REQUESTS requests on a range over a pair of the case, and does not wait for completions. With `lkey`, the
    owner of the range posts the requests, with the range as local memory. Without `lkey`, the peer posts the requests,
    with the range as remote memory. The first of the peer's atomics is an RDMA WRITE instead."""
    queue, other, request = _prepared(context, step)
    context.in_flight[str(step.arguments["qp"])] = (queue, other)
    first = _in_front(context, step) if request.opcode in _ATOMICS else None
    _post(context, queue, request, first)
    return told("0")


def traffic_beside(context: CaseContext, step: Step) -> Observation:
    """Posts the requests of post_traffic in rounds, while a second thread discards pages or deregisters the region.

    While pages are discarded, each request of ROUNDS rounds must succeed; `wc` has the statuses. The pages are
    discarded only once for each request, because no document promises that a page fault succeeds if pages are discarded
    without a pause. A deregistration must succeed. The second thread then fills the memory. Later requests, such as
    those of the last round, must not change the memory (see await_traffic); they may be posted in the error state, in
    which a request may stay without a completion. `overlapped` is whether a request that was
    posted before an action of the second thread was refused, or was not complete after this action.
    """
    queue, other, request = _prepared(context, step)
    memory, name = context.memory_of(step), str(step.arguments["mr"])
    ends, last = step.arguments["does"] == "deregister", False
    actions, overlapped, statuses = 0, False, set[str]()

    def discard() -> Return:
        nonlocal actions
        paging.advise(memory.addr, memory.size, "DONTNEED")
        actions += 1
        return Return(0, 0)

    def deregister() -> Return:
        nonlocal actions
        returned = context.owners[name].dereg_mr(context.mrs[name])
        actions += 1
        ctypes.memset(memory.addr, CANARY, memory.size)
        return returned

    with ThreadPoolExecutor(1) as second:
        _post(context, queue, request)
        beside = second.submit(deregister if ends else discard)
        for number in itertools.count(1):
            before = 0 if number == 1 else actions
            for _ in range(REQUESTS):
                if not ends:
                    beside.result()
                has_acted = actions > before
                completions = queue.completions(1, 0)
                overlapped |= has_acted and not completions
                if not completions and ends and before:
                    completions = queue.completions(1, SILENCE_S)
                elif not completions:
                    completions = queue.completions(1)
                statuses_here = {completion.status for completion in completions}
                overlapped |= ends and not before and _is_refused(statuses_here)
                statuses |= statuses_here or {NOT_COMPLETED}
                if NOT_COMPLETED in statuses:
                    break
                if not ends:
                    beside = second.submit(discard)
            if statuses != {"SUCCESS"} or last:
                break
            if ends:
                last = beside.done()
            else:
                last = number + 1 == ROUNDS
            if _refused(context, queue, request):
                statuses.add(NOT_POSTED)
                break
    seen = result_of(beside.result())
    if not ends:
        return {**seen, "wc": sorted(statuses), "overlapped": overlapped}
    if seen["returned"] == "0":
        context.forget("mrs", name)
        seen["returned"] = _accessed(memory, other) or "0"
    return {**seen, "marker": sorted(statuses), "overlapped": overlapped}


def _is_refused(statuses: Iterable[str]) -> bool:
    """Whether a request was executed and refused. A request that was only flushed may never have been in flight."""
    return not {"SUCCESS", FLUSHED}.issuperset(statuses)


def _accessed(memory: Memory, other: Part) -> str:
    """Returns how requests have accessed memory that was filled with CANARY: `changed`, `leaked` or "" (no access)."""
    if not is_filled(memory, CANARY):
        return "changed"
    if has_byte(other, CANARY):
        return "leaked"
    return ""


class _Flow:
    """Keeps REQUESTS requests in flight. `unfinished` has one byte, which another process can read: whether a request
    was not complete when this process last looked, and none had failed."""

    def __init__(
        self,
        context: CaseContext,
        queue: Queue,
        request: SendRequest,
        unfinished: mmap.mmap,
    ) -> None:
        self._context, self._queue, self._request = context, queue, request
        self._unfinished, self._outstanding, self._has_failed = unfinished, 0, False

    def go_on(self) -> bool:
        """Looks, and then posts requests in place of those that are complete. Returns the new value of `unfinished`."""
        complete = self._queue.completions(self._outstanding, 0)
        self._outstanding -= len(complete)
        self._has_failed |= any(completion.status != "SUCCESS" for completion in complete)
        is_unfinished = self._outstanding > 0 and not self._has_failed
        self._unfinished[0] = is_unfinished
        while self._outstanding < REQUESTS and not self._has_failed:
            request = self._request._replace(wr_id=self._context.next_wr_id())
            self._has_failed = self._queue.post_send(request).value != 0
            self._outstanding += not self._has_failed
        return is_unfinished


def killed_in_flight(context: CaseContext, step: Step) -> Observation:
    """Kills another process that has set up this case, as soon as it sees a request of its own that is not complete. Adds
    to `left_behind` the objects that the kernel has not released for the killed process. `overlapped` is whether it saw
    such a request."""
    # Imported late, because procedure.py imports this module.
    from conformance.execution.procedure import set_up

    with mmap.mmap(-1, 1) as unfinished:  # shared with the other process

        def prepare(bench: Bench) -> Callable[[], bool]:
            there = CaseContext(context.case, bench)
            set_up(there)
            queue, _, request = _prepared(there, step)
            return _Flow(there, queue, request, unfinished).go_on

        remaining = context.bench.killed(prepare)
        overlapped = unfinished[0] > 0
    context.left_behind += [
        f"{kind} of the killed process: {count}" for kind, count in remaining.items() if count
    ]
    return {**told("0"), "overlapped": overlapped}


def await_traffic(context: CaseContext, step: Step) -> Observation:
    """Fills the memory, and then waits for the completions of all requests. `returned` is `changed` if a byte of the
    memory has changed after the filling, else `leaked` if a new byte has reached the other end, else NOT_COMPLETED if a
    completion is missing, else 0. The requests may fail: `marker` has their statuses. `overlapped` is whether a request
    was refused, or was not complete when the judged call had returned."""
    (queue, other), memory = (
        context.in_flight[str(step.arguments["qp"])],
        context.memory_of(step),
    )
    complete = queue.completions(REQUESTS, 0)
    ctypes.memset(memory.addr, CANARY, memory.size)
    unfinished = len(complete) < REQUESTS
    if unfinished:
        complete += queue.completions(REQUESTS - len(complete))
    returned = _accessed(memory, other) or ("0" if len(complete) == REQUESTS else NOT_COMPLETED)
    statuses = [completion.status for completion in complete]
    overlapped = unfinished or _is_refused(statuses)
    return {**told(returned), "marker": statuses, "overlapped": overlapped}


def await_statuses(context: CaseContext, step: Step) -> Observation:
    """As await_traffic, for requests of a peer over RC. The first that fails was refused because its key had ended:
    another status is a difference."""
    seen = await_traffic(context, step)
    failed = [status for status in seen["marker"] if status != "SUCCESS"]
    (permitted,) = REFUSALS["remote", "memory"].wc
    wrong = [status for status in failed[:1] if status != permitted]
    differences = [f"{status} instead of {permitted}" for status in wrong]
    return compared({**seen, "layer": "device"}, differences)


def connect_qp(context: CaseContext, step: Step) -> Observation:
    """Moves a pair from INIT to RTS. `wc` has the statuses of requests that were posted earlier at the responder."""
    pair = context.pair_of(step)
    pair.connect()
    # Requests of one queue complete in order. The marker transfers no bytes, so it needs no key.
    marker = context.next_wr_id()
    pair.responder.post_send(SendRequest("RDMA_WRITE", marker))
    completions: list[Completion] = []
    while not any(completion.wr_id == marker for completion in completions) and (
        more := pair.responder.completions(1)
    ):
        completions += more
    completions_here = [completion for completion in completions if completion.wr_id != marker]
    return {
        **told("0"),
        "wc": [completion.status for completion in completions_here],
        "marker": [completion.status for completion in completions],
    }


def modify_access(context: CaseContext, step: Step) -> Observation:
    pair = context.pair_of(step)
    queue = cast(ModifiableQueue, pair.responder)
    return result_of(queue.set_access(context.number(step.arguments["access"])))


def destroy_qp(context: CaseContext, step: Step) -> Observation:
    context.destroy_pair(str(step.arguments["qp"]))
    return told("0")


def reset_qp(context: CaseContext, step: Step) -> Observation:
    """Moves a queue pair through RESET to RTS. Raises HostLacks if it cannot leave RESET, as with irdma."""
    try:
        cast(WirePair, context.pair_of(step)).reset()
    except Exception as error:
        code = getattr(error, "error_code", None)
        if code is None:
            raise
        refused = f"the device refuses it with {errno_name(code)}"
        raise HostLacks("a queue pair that leaves the state RESET", hint=refused) from error
    return told("0")
