"""Observes the events of a completion channel after ibv_req_notify_cq(3)."""

from typing import cast

from conformance.bench.calls import Return
from conformance.bench.interface import NotifyingQueue
from conformance.bench.work_requests import SIGNALED, Completion, SendRequest
from conformance.execution.connection import post_receives
from conformance.execution.context import CaseContext, compared, result_of
from conformance.execution.in_flight import NOT_COMPLETED
from conformance.model.case import Step
from conformance.model.expected_errors import RELIABLE
from conformance.model.observation import Observation
from conformance.model.vocabulary import EVENTS_ASKED
from conformance.verbs import ENUMS

SECOND_EVENT = "a second completion event"
_SOON_S = 0.1  # the time in which an event usually comes
_AT_ONCE_S = 0.01  # after this time, another request shows whether an event is late or missing
# The time in which the event of a completion that was polled must come: a device that raises none would otherwise take
# the deadline of a completion at each of eight points.
_LATEST_S = 2.0
_SOLICITED = ENUMS["ibv_send_flags"].value_of("SOLICITED")


def message_notified(context: CaseContext, step: Step) -> Observation:
    """Asks for events of the receiver's completions, sends a message, and compares whether the completion of its receive
    raises an event. A second such message raises none, because a request is for one event."""
    pair = context.pair_of(step)
    receiver = cast(NotifyingQueue, pair.responder)
    length, rkey, addr, flags = context.numbers(
        step.arguments, "length", "rkey", "addr", "with_flags"
    )
    source = context.harness.scratch(pair.requester.pd, length, "a message")
    place = context.harness.scratch(receiver.pd, length, "a received message")
    arming = EVENTS_ASKED[str(step.arguments["asked"])]
    for solicited_only in arming:
        receiver.request_event(solicited_only)
    request = SendRequest(
        str(step.arguments["op"]),
        context.next_wr_id(),
        (source,),
        SIGNALED | flags,
        rkey=rkey % (1 << 32),
        remote_addr=addr,
    )

    def sent() -> tuple[Return, list[Completion]]:
        post_receives(receiver, [context.next_wr_id()], (place,))
        returned = pair.requester.post_send(request)
        if returned.value:
            return returned, []
        received = receiver.completions(1)
        pair.requester.completions(1)
        return returned, received

    returned, received = sent()
    if returned.value:
        return result_of(returned)
    if not received:
        return {**result_of(returned), "returned": NOT_COMPLETED}
    observation: Observation = {**result_of(returned), "layer": "device"}
    observation["wc"] = [completion.status for completion in received]
    is_due = not all(arming) or bool(flags & _SOLICITED)
    differences: list[str] = []
    if had_event(context, receiver, is_due) != is_due:
        differences = [f"{'no' if is_due else 'a'} completion event"]
    elif is_due and len(arming) == 1 and receiver.kind in RELIABLE:
        sent()
        differences = [SECOND_EVENT] * receiver.took_event(0)
    return compared(observation, differences)


def had_event(context: CaseContext, queue: NotifyingQueue, expected: bool) -> bool:
    """Whether the last completion of a queue raised an event. If a wanted event is late, another request raises a
    second event. Events are delivered in order, so the first of two events is the late event, and the second comes
    soon after it. If none is wanted, another request shows that none is late."""
    if expected:
        if queue.took_event(_AT_ONCE_S):
            return True
        queue.request_event(solicited_only=0)
    queue.post_send(SendRequest("RDMA_WRITE", context.next_wr_id()))
    queue.completions(1)
    if not expected:
        return queue.took_event(0)
    return queue.took_event(_LATEST_S) and queue.took_event(_SOON_S)
