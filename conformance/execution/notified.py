"""Observes the events of a completion channel after ibv_req_notify_cq(3)."""

from collections.abc import Sequence
from typing import cast

from conformance.bench.calls import Return, Sge
from conformance.bench.interface import NotifyingQueue, Pair
from conformance.bench.work_requests import SIGNALED, Completion, SendRequest, key32
from conformance.execution.connection import post_receives
from conformance.execution.context import CaseContext, compared, result_of
from conformance.execution.in_flight import NOT_COMPLETED
from conformance.model.case import Step
from conformance.model.expected_errors import RELIABLE
from conformance.model.fault import NO_EVENT_OF_FAILURE
from conformance.model.observation import Observation
from conformance.model.operations import EVENTS_ASKED, STANDING
from conformance.verbs import ENUMS

SECOND_EVENT = "a second completion event"
_SOON_S = 0.1  # the time in which an event usually comes
_AT_ONCE_S = 0.01  # after this time, another request shows whether an event is late or missing
# The time in which the event of a completion that was polled must come: a device that raises none would otherwise take
# the deadline of a completion at each of eight points.
_LATEST_S = 2.0
_WORD = 8
_SOLICITED = ENUMS["ibv_send_flags"].value_of("SOLICITED")


def message_notified(context: CaseContext, step: Step) -> Observation:
    """Asks for events of the receiver's completions, sends a message, and compares whether the completion of its receive
    raises an event. A second such message raises none, because a request is for one event. A message may be longer than
    its receive, and a WRITE that is refused flushes it: a completion that is not successful is solicited."""
    pair = context.pair_of(step)
    receiver = cast(NotifyingQueue, pair.responder)
    length, rkey, addr, flags = context.numbers(
        step.arguments, "length", "rkey", "addr", "with_flags"
    )
    kind = str(step.arguments["receive"])
    is_flushed = kind == "flushed"
    source = context.harness.scratch(pair.requester.pd, length, "a message")
    room = max(1, length // 2) if kind == "too_short" else length
    place = context.harness.scratch(receiver.pd, room, "a received message")
    arming = EVENTS_ASKED[str(step.arguments["asked"])]
    standing = _armed(context, step, pair, arming)
    request = SendRequest(
        "RDMA_WRITE" if is_flushed else str(step.arguments["op"]),
        context.next_wr_id(),
        (source,),
        SIGNALED | flags,
        rkey=key32(rkey),
        remote_addr=addr,
    )

    def sent(unpolled: int) -> tuple[Return, list[Completion]]:
        post_receives(receiver, [context.next_wr_id()], (place,))
        returned = pair.requester.post_send(request)
        if returned.value:
            return returned, []
        received = receiver.completions(1 + unpolled)[unpolled:]
        pair.requester.completions(1)
        return returned, received

    returned, received = sent(standing)
    if returned.value:
        return result_of(returned)
    if not received:
        return {**result_of(returned), "returned": NOT_COMPLETED}
    observation: Observation = {**result_of(returned), "layer": "device"}
    observation["wc"] = [completion.status for completion in received]
    is_successful = observation["wc"] == ["SUCCESS"]
    is_due = not all(arming) or bool(flags & _SOLICITED) or not is_successful
    differences: list[str] = []
    if had_event(context, receiver, is_due) != is_due:
        differences = [_wrong(is_due, is_successful)]
    elif is_due and len(arming) == 1 and receiver.kind in RELIABLE and is_successful:
        sent(0)
        differences = [SECOND_EVENT] * receiver.took_event(0)
    return compared(observation, differences)


def request_notified(context: CaseContext, step: Step) -> Observation:
    """Does the same for the completion of a request: an RDMA WRITE of no bytes, or one of a word by the key `rkey`, which
    the peer refuses."""
    pair = context.pair_of(step)
    queue = cast(NotifyingQueue, pair.responder)
    arming = EVENTS_ASKED[str(step.arguments["asked"])]
    standing = _armed(context, step, pair, arming)
    addr, rkey = context.numbers(step.arguments, "addr", "rkey")
    if rkey:
        sges: tuple[Sge, ...] = (context.harness.scratch(queue.pd, _WORD, "a refused write"),)
    else:
        sges = ()
    request = SendRequest(
        "RDMA_WRITE",
        context.next_wr_id(),
        sges,
        rkey=key32(rkey),
        remote_addr=addr,
    )
    returned = queue.post_send(request)
    if returned.value:
        return result_of(returned)
    completions = queue.completions(1 + standing)[standing:]
    if not completions:
        return {**result_of(returned), "returned": NOT_COMPLETED}
    is_successful = completions[0].status == "SUCCESS"
    observation: Observation = {**result_of(returned), "layer": "device"}
    observation["wc"] = [completions[0].status]
    is_due = not all(arming) or not is_successful
    differences: list[str] = []
    if had_event(context, queue, is_due) != is_due:
        differences = [_wrong(is_due, is_successful)]
    return compared(observation, differences)


def _wrong(is_due: bool, is_successful: bool) -> str:
    if not is_due:
        return "a completion event"
    if is_successful:
        return "no completion event"
    return NO_EVENT_OF_FAILURE


def _armed(context: CaseContext, step: Step, pair: Pair, arming: Sequence[int]) -> int:
    """Leaves completions unpolled, requests the events, and leaves more. Returns how many completions stand in the
    queue."""
    queue = cast(NotifyingQueue, pair.responder)
    of, before, since = STANDING[str(step.arguments["standing"])]
    leave_unpolled(context, pair, of, before)
    for solicited_only in arming:
        queue.request_event(solicited_only)
    leave_unpolled(context, pair, of, since)
    return before + since


def leave_unpolled(context: CaseContext, pair: Pair, of: str, count: int) -> None:
    """Makes completions of the responder, of receives or of requests. The requester's completion tells that a receive is
    complete; of the responder's own requests, only an event can tell it without a poll. A completion that comes later than
    the next request for an event raises this event itself, so no right device fails."""
    queue = cast(NotifyingQueue, pair.responder)
    if of == "request" and count:
        queue.request_event(solicited_only=0)
    for _ in range(count):
        if of == "request":
            queue.post_send(SendRequest("RDMA_WRITE", context.next_wr_id()))
        else:
            post_receives(queue, [context.next_wr_id()])
            pair.requester.post_send(SendRequest("SEND", context.next_wr_id()))
            pair.requester.completions(1)
    if of == "request" and count:
        queue.took_event(_LATEST_S)


def had_event(context: CaseContext, queue: NotifyingQueue, expected: bool) -> bool:
    """Whether the last completion of a queue raised an event. If a wanted event is late, another request raises a
    second event. Events are delivered in order, so the first of two events is the late event, and the second comes
    soon after it. If none is wanted, another request shows that none is late."""
    if expected:
        if queue.took_event(_AT_ONCE_S):
            return True
        queue.request_event(solicited_only=0)
    returned = queue.post_send(SendRequest("RDMA_WRITE", context.next_wr_id()))
    if returned.value:  # a provider may refuse requests in the error state
        return queue.took_event(_LATEST_S if expected else 0)
    queue.completions(1)
    if not expected:
        return queue.took_event(0)
    return queue.took_event(_LATEST_S) and queue.took_event(_SOON_S)
