"""Executes requests that are in flight at the same time: during a call, or in bursts that test the order in which the
requests take effect.

After the call has returned, the memory is filled with a byte that no request transferred, which shows later accesses.
All requests of a burst are posted before any completion is awaited, so that a device can reorder the requests.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from conformance.bench.calls import Return, Sge, errno_name
from conformance.bench.interface import Bench, Memory, ModifiableQueue, Queue
from conformance.bench.memory_areas import CANARY, EMPTY, Part, numbered, pattern, repeated
from conformance.bench.work_requests import SIGNALED, Completion, SendRequest
from conformance.errors import SetupRefused
from conformance.execution.connection import SILENCE_S, LoopbackConnection, post_receives
from conformance.execution.context import CaseContext, compared, result_of, told
from conformance.kernel import paging
from conformance.model.case import Step
from conformance.model.expected_errors import REFUSALS
from conformance.model.observation import Observation
from conformance.older_python import zip
from conformance.verbs import ENUMS
from conformance.wire.statuses import FLUSHED

# The number of requests in flight; a queue has room for sixteen requests.
REQUESTS = 12
ROUNDS = 8  # rounds of REQUESTS requests each, while a second thread discards pages
NOT_COMPLETED, NOT_POSTED = "no completion", "not posted"
# lengths; 0: the range's length
_OPCODES = {"RDMA_WRITE": 0, "RDMA_READ": 0, "ATOMIC_FETCH_AND_ADD": 8}
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
        element = Sge(addr, length, key % (1 << 32))
    else:
        element = scratch
    rkey, at = (scratch.rkey, scratch.addr) if owned else (key % (1 << 32), addr)
    request = SendRequest(operation, 0, (element,), rkey=rkey, remote_addr=at, compare_add=1)
    return queue, Part(scratch.addr, length), request


def _refused(context: CaseContext, queue: Queue, request: SendRequest) -> int:
    """Posts the requests. Returns the errno of the first refused request (some devices refuse in the error state), or
    0."""
    posted = (
        queue.post_send(request._replace(wr_id=context.next_wr_id())).value for _ in range(REQUESTS)
    )
    return next(filter(None, posted), 0)


def _post(context: CaseContext, queue: Queue, request: SendRequest) -> None:
    if refused := _refused(context, queue, request):
        raise SetupRefused("posting a request", errno_name(refused))


def post_traffic(context: CaseContext, step: Step) -> Observation:
    """Posts REQUESTS requests on a range over a pair of the case, and does not wait for completions. With `lkey`, the
    owner of the range posts the requests, with the range as local memory. Without `lkey`, the peer posts the requests,
    with the range as remote memory."""
    queue, other, request = _prepared(context, step)
    context.in_flight[str(step.arguments["qp"])] = (queue, other)
    _post(context, queue, request)
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
    if ctypes.string_at(memory.addr, memory.size) != repeated(CANARY, memory.size):
        return "changed"
    if CANARY in ctypes.string_at(other.addr, other.size):
        return "leaked"
    return ""


class _Flow:
    """Keeps REQUESTS requests in flight. `unfinished` has one byte, which another process can read: whether a request
    was not complete when this process last looked, and none has failed."""

    def __init__(
        self,
        context: CaseContext,
        queue: Queue,
        request: SendRequest,
        unfinished: mmap.mmap,
    ) -> None:
        self._context, self._queue, self._request = context, queue, request
        self._unfinished, self._outstanding, self._has_failed = unfinished, 0, False

    def go_on(self) -> None:
        complete = self._queue.completions(self._outstanding, 0)
        self._outstanding -= len(complete)
        self._has_failed |= any(completion.status != "SUCCESS" for completion in complete)
        self._unfinished[0] = self._outstanding > 0 and not self._has_failed
        while self._outstanding < REQUESTS and not self._has_failed:
            request = self._request._replace(wr_id=self._context.next_wr_id())
            self._has_failed = self._queue.post_send(request).value != 0
            self._outstanding += not self._has_failed


def killed_in_flight(context: CaseContext, step: Step) -> Observation:
    """Kills another process that has set up this case and posts requests until its end. Adds to `left_behind` the
    objects that the kernel has not released for the killed process. `overlapped` is whether a request was not complete
    when the process last looked."""
    # Imported late, because procedure.py imports this module.
    from conformance.execution.procedure import set_up

    with mmap.mmap(-1, 1) as unfinished:  # shared with the other process

        def prepare(bench: Bench) -> Callable[[], object]:
            there = CaseContext(context.case, bench)
            set_up(there)
            queue, _, request = _prepared(there, step)
            flow = _Flow(there, queue, request, unfinished)
            flow.go_on()
            return flow.go_on

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


_BURST = 8  # the number of requests of a burst: half of the queues' depth
_WORD = 8


def receives_in_order(context: CaseContext, step: Step) -> Observation:
    """Posts receives into the region and the same number of SENDs. When receive i completes, all of message i must be
    in memory. `returned` is 0, or describes the first error."""
    return _bursts(context, step, "SEND")


def immediates_in_order(context: CaseContext, step: Step) -> Observation:
    """Posts RDMA WRITEs with immediate data. When the receiver has the completion of a WRITE, all bytes of this WRITE
    must be in memory. Nothing is posted after the last WRITE of a burst, because a later request could hide that bytes
    of the WRITE were late."""
    return _bursts(context, step, "RDMA_WRITE_WITH_IMM")


def _bursts(context: CaseContext, step: Step, opcode: str) -> Observation:
    sends = opcode == "SEND"
    key, addr, length, rounds = context.numbers(
        step.arguments,
        "lkey" if sends else "rkey",
        "addr",
        "length",
        "rounds",
    )
    connection = context.harness.connection("RC", str(step.arguments["pd"]))
    connection.renew_if_stale()
    sender, receiver = connection.pair.requester, connection.pair.responder
    source = context.harness.scratch(sender.pd, length * _BURST, "burst")
    for number in range(rounds):
        ctypes.memset(addr, EMPTY, length * _BURST)
        # The messages differ from each other and from those of the previous burst.
        messages = [numbered(number * _BURST + index, length) for index in range(_BURST)]
        ctypes.memmove(source.addr, b"".join(messages), length * _BURST)
        ranges = [addr + index * length for index in range(_BURST)]
        wr_ids = [context.next_wr_id() for _ in ranges]
        if not sends:
            post_receives(receiver, wr_ids)
        for at, wr_id in zip(ranges, wr_ids, strict=True) if sends else ():
            returned = receiver.post_receive((Sge(at, length, key % (1 << 32)),), wr_id)
            if returned.value:
                connection.stale = True
                return result_of(returned)
        for item, at in enumerate(ranges):
            part = Sge(source.addr + item * length, length, source.lkey)
            request = SendRequest(opcode, context.next_wr_id(), (part,))
            if not sends:
                request = request._replace(rkey=key % (1 << 32), remote_addr=at, imm=item)
            returned = sender.post_send(request)
            if returned.value:
                return result_of(returned)
        field, expected = ("wr_id", wr_ids) if sends else ("imm", range(_BURST))
        if wrong := _first_wrong(connection, opcode, addr, messages, field, expected):
            what, how = ("receive", "completed") if sends else ("message", "was reported")
            return told(f"{what} {wrong[0]} of round {number} {how} {wrong[1]}", "device")
        sender.completions(_BURST)
    return told("0", "device")


def _first_wrong(
    connection: LoopbackConnection,
    opcode: str,
    addr: int,
    messages: Sequence[bytes],
    field: str,
    expected: Sequence[int],
) -> tuple[int, str] | None:
    """Polls the completions of a burst from the receiver's queue. Each completion must succeed, contain its number from
    `expected` in `field`, and be reported after its whole message is in memory. Returns the number of the first wrong
    completion and a description of the error, or None."""
    sender, receiver = connection.pair.requester, connection.pair.responder
    for position, (message, value) in enumerate(zip(messages, expected, strict=True)):
        received = receiver.completions(1)
        content = ctypes.string_at(addr + position * len(message), len(message))
        completed = [(message.status, getattr(message, field)) for message in received]
        is_own = completed == [("SUCCESS", value)]
        if not is_own or content != message:
            connection.stale = True
            connection.check_response(sender.completions(1), received, opcode)
            return (
                position,
                "before its data had arrived" if is_own else f"as {completed}, not as successful",
            )
    return None


def atomics_in_order(context: CaseContext, step: Step) -> Observation:
    """Posts an RDMA WRITE of a word, and then atomics on the same word: FETCH-AND-ADDs or COMPARE-AND-SWAPs. Each
    atomic must return the value that the earlier requests produced. Every second COMPARE-AND-SWAP compares with a wrong
    value, and swaps nothing. The WRITE is signaled only in every second round."""
    operation = str(step.arguments["op"])
    rkey, addr, rounds = context.numbers(step.arguments, "rkey", "addr", "rounds")
    connection = context.harness.connection("RC", str(step.arguments["pd"]))
    connection.renew_if_stale()
    queue = connection.pair.requester
    local = context.harness.scratch(queue.pd, _WORD * _BURST, "burst")
    for number in range(rounds):
        values = _values(operation, number << 16)
        ctypes.memset(local.addr, EMPTY, _WORD * _BURST)
        ctypes.memmove(local.addr, values[0].to_bytes(_WORD, sys.byteorder), _WORD)
        silent = number % 2 == 1 and not queue.sq_sig_all
        for index in range(_BURST):
            part = Sge(local.addr + _WORD * index, _WORD, local.lkey)
            request = SendRequest(
                "RDMA_WRITE",
                context.next_wr_id(),
                (part,),
                rkey=rkey % (1 << 32),
                remote_addr=addr,
            )
            if index:
                request = _atomic(
                    request._replace(opcode=operation),
                    values[index - 1],
                    values[index],
                )
            returned = queue.post_send(
                request._replace(flags=0 if silent and not index else SIGNALED),
            )
            if returned.value:
                return result_of(returned)
        expected = _BURST - silent
        completions = queue.completions(expected)
        if [completion.status for completion in completions] != ["SUCCESS"] * expected:
            connection.stale = True
            connection.check_response(
                [completion for completion in completions if completion.status != "SUCCESS"],
                (),
                operation,
            )
            return told(
                f"round {number} completed with {' '.join(completion.status for completion in completions)}",
                "device",
            )
        for index in range(1, _BURST):
            seen = int.from_bytes(
                ctypes.string_at(local.addr + _WORD * index, _WORD), sys.byteorder
            )
            if seen != values[index - 1]:
                return told(
                    f"atomic {index} of round {number} found {seen:#x} instead of {values[index - 1]:#x}",
                    "device",
                )
    return told("0", "device")


def _values(operation: str, begin: int) -> list[int]:
    """Returns the word's value after each request of a burst. A COMPARE-AND-SWAP with an even number swaps nothing."""
    values = [begin]
    for index in range(1, _BURST):
        swaps = operation == "ATOMIC_FETCH_AND_ADD" or index % 2
        values.append(values[-1] + index if swaps else values[-1])
    return values


def _atomic(request: SendRequest, before: int, after: int) -> SendRequest:
    """Returns the atomic that replaces the value `before` with the value `after`. The values may be equal."""
    if request.opcode == "ATOMIC_FETCH_AND_ADD":
        return request._replace(compare_add=after - before)
    if after == before:
        return request._replace(compare_add=before + 1)
    return request._replace(compare_add=before, swap=after)
