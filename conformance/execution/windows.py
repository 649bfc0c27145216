"""Steps of memory windows: allocation, binds by the verb and by posted requests, and invalidation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

from conformance.bench.calls import (
    Return,
    Sge,
    Window,
    errno_name,
)
from conformance.bench.interface import NotifyingQueue, Queue
from conformance.bench.work_requests import (
    NO_BYTES,
    SIGNALED,
    BindInfo,
    Completion,
    SendRequest,
    key32,
    next_rkey,
)
from conformance.execution import (
    notified,
)
from conformance.execution.connection import ERROR_STATE, SILENCE_S, post_receives, state_of
from conformance.execution.context import CaseContext, null_result, result_of, told
from conformance.execution.operation import named
from conformance.model.case import Step
from conformance.model.expected_errors import RELIABLE
from conformance.model.observation import NOT_AWAITED, Observation
from conformance.model.operations import STANDING
from conformance.model.vocabulary import BINDS

_UNRELIABLE_S = 0.1  # in which a message over UC arrives, if it is not refused or lost


def alloc_window(context: CaseContext, name: str, pd: str, kind: int) -> Observation:
    window, returned = context.bench.alloc_mw(context.pds[pd], kind)
    if window is None:
        return null_result(returned)
    context.windows[name] = window
    context.cleanup.callback(_release_window, context, name, window)
    return {**told("MW", "kernel", None), "mw": {"rkey": window.rkey}}


def _release_window(context: CaseContext, name: str, window: Window) -> None:
    if context.windows.get(name) is window:
        returned = window.dealloc()
        if returned.value:
            context.left_behind.append(
                f"window {name}: deallocating it returned {errno_name(returned.value)}",
            )


def ibv_alloc_mw(context: CaseContext, step: Step) -> Observation:
    return alloc_window(
        context,
        step.name,
        str(step.arguments["pd"]),
        context.number(step.arguments["type"]),
    )


def ibv_dealloc_mw(context: CaseContext, step: Step) -> Observation:
    name = str(step.arguments["mw"])
    window = context.windows[name]
    context.fields[name] = {"rkey": window.rkey, "old_rkey": window.old_rkey}
    returned = window.dealloc()
    if returned.value == 0:
        context.forget("windows", name)
    return result_of(returned)


def _posted_bind(context: CaseContext, step: Step, wr_id: int) -> Return:
    """Posts a bind with one of BINDS, and sets the key of the window. If ibv_bind_mw fails and has changed the key in the
    window's structure, the window has this key."""
    queue, window = context.pair_of(step).responder, context.window_of(step)
    flags, info = context.number(step.arguments["send_flags"]), context.bind_info(step.arguments)
    window.old_rkey = window.rkey
    is_changed = False
    with _other_keys(context, step, info, window):
        if step.call == "ibv_bind_mw":
            before = window.rkey
            returned = queue.bind_mw(window, info, flags, wr_id)
            key = window.rkey
            is_changed = key != before
        else:
            rkey = step.arguments["rkey"]
            if rkey:
                key = key32(context.number(rkey))
            else:
                key = next_rkey(window.old_rkey)
            returned = queue.post_send(
                SendRequest("BIND_MW", wr_id, flags=flags, rkey=key, window=window, bind=info),
            )
    if returned.value == 0 or is_changed:
        window.rkey = key  # ibv_bind_mw sets the rkey of the window; ibv_post_send does not
    return returned


def begin_bind(context: CaseContext, step: Step) -> Observation:
    returned = _posted_bind(context, _as_bind(context, step), context.next_wr_id())
    return {**result_of(returned), "layer": _layer_of_bind(returned)}


def _layer_of_bind(returned: Return) -> str:
    """Returns the layer that answered a bind: the device a posted one, else the header's inline function or the
    provider."""
    if not returned.value:
        return "device"
    if returned.layer == "header":
        return returned.layer
    return "provider"


def _as_bind(context: CaseContext, step: Step) -> Step:
    """Returns a call with the arguments of a bind as the bind that the type of its window wants."""
    type_2 = context.case.given.windows[str(step.arguments["mw"])].type == 2
    return replace(step, call=BINDS[type_2], arguments={"rkey": "", **step.arguments})


def bind_window(context: CaseContext, step: Step, unpolled: int = 0) -> Observation:
    """Executes a bind, behind `unpolled` completions of earlier requests."""
    pair = context.pair_of(step)
    queue, window = pair.responder, context.window_of(step)
    flags, wr_id = context.number(step.arguments["send_flags"]), context.next_wr_id()
    failed = queue.state == "RTS" and state_of(pair, queue) == ERROR_STATE
    returned = _posted_bind(context, step, wr_id)
    observation = result_of(returned)
    observation["layer"] = _layer_of_bind(returned)
    if failed:
        observation["state_before"] = ERROR_STATE
    observation |= _completions(
        context,
        queue,
        returned,
        bool(flags & SIGNALED),
        SendRequest("BIND_MW", wr_id),
        unpolled,
    )
    if observation["wc"] == ["SUCCESS"] and state_of(pair, queue) == ERROR_STATE:
        observation["state"] = ERROR_STATE
    return {**observation, "rkey": {"before": window.old_rkey, "after": window.rkey}}


@contextmanager
def _other_keys(context: CaseContext, step: Step, info: BindInfo, window: Window) -> Iterator[None]:
    """Replaces the lkey in the region's struct ibv_mr and the rkey in the window's struct ibv_mw for one bind. A program
    can write any key to these structures."""
    mr, mr_lkey, mw_rkey = info.mr, step.arguments["mr_lkey"], step.arguments["mw_rkey"]
    own_rkey, own_lkey = window.rkey, mr.struct.lkey if mr else 0
    if mr and mr_lkey:
        mr.struct.lkey = key32(context.number(mr_lkey))
    if mw_rkey:
        window.rkey = key32(context.number(mw_rkey))
    try:
        yield
    finally:
        if mr:
            mr.struct.lkey = own_lkey
        window.rkey = own_rkey


def bind_notified(context: CaseContext, step: Step) -> Observation:
    pair = context.pair_of(step)
    queue = cast(NotifyingQueue, pair.responder)
    solicited_only = context.number(step.arguments["solicited_only"])
    of, before, since = STANDING[str(step.arguments["standing"])]
    notified.leave_unpolled(context, pair, of, before)
    queue.request_event(solicited_only)
    notified.leave_unpolled(context, pair, of, since)
    observation = bind_window(context, _as_bind(context, step), before + since)
    if observation["returned"] != "0" and step.then.outcome == "refused":
        return {
            **observation,
            "unreachable": "the bind was refused when it was posted, so no event is expected",
        }
    is_due = not solicited_only or observation["wc"] != ["SUCCESS"]
    if not observation["wc"]:
        return observation
    if notified.had_event(context, queue, is_due) != is_due:
        observation["differences"] = [f"{'no' if is_due else 'a'} completion event"]
    elif is_due and notified.had_event(context, queue, expected=False):
        observation["differences"] = [notified.SECOND_EVENT]
    return observation


def _completions(
    context: CaseContext,
    queue: Queue,
    returned: Return,
    expected: bool,
    posted: SendRequest,
    unpolled: int = 0,
) -> Observation:
    """Returns the observation of the completion of a posted request. An unsignaled request must have no completion."""
    if returned.value:
        return {"wc": [], "wr_id_matches": None}
    if queue.state not in ("RTS", ERROR_STATE):  # requests complete only in these states
        return {"wc": [NOT_AWAITED], "wr_id_matches": None}
    if expected or queue.sq_sig_all:
        completions = queue.completions(1 + unpolled)[unpolled:]
        return _completed(posted.opcode, completions) | {
            "wr_id_matches": [completion.wr_id for completion in completions] == [posted.wr_id],
        }
    # Requests of one queue complete in order: a completion of this request would precede the marker's completion.
    marker = context.next_wr_id()
    # a request of zero bytes needs no key and writes nothing
    queue.post_send(SendRequest("RDMA_WRITE", marker))
    completions = queue.completions(1)
    completions_here = [completion for completion in completions if completion.wr_id != marker]
    return _completed(posted.opcode, completions_here) | {
        "wr_id_matches": None,
        "marker": [completion.status for completion in completions],
    }


def _completed(opcode: str, completions: Sequence[Completion]) -> Observation:
    """Returns the statuses of a request's completions, and the opcode of a completion if the opcode is wrong."""
    statuses: Observation = {"wc": [completion.status for completion in completions]}
    return statuses | named(opcode, completions)


def post_local_inv(context: CaseContext, step: Step) -> Observation:
    queue, rkey = (
        context.pair_of(step).responder,
        context.number(step.arguments["rkey"]),
    )
    flags, wr_id = context.number(step.arguments["send_flags"]), context.next_wr_id()
    request = SendRequest("LOCAL_INV", wr_id, flags=flags, invalidate_rkey=rkey)
    returned = queue.post_send(request)
    signaled = bool(flags & SIGNALED)
    return result_of(returned) | _completions(context, queue, returned, signaled, request)


def binds_in_turn(context: CaseContext, step: Step) -> Observation:
    """Binds a window `rounds` times; a window of type 2 is invalidated before each further bind. Each new key must
    differ from the key before, and the last key of every round must be the only key that works. `returned` is 0, or
    describes the first error."""
    name = str(step.arguments["mw"])
    window, pair = context.windows[name], context.pair_of(step)
    type_2 = context.case.given.windows[name].type == 2
    bind = _as_bind(context, step)
    for number in range(context.number(step.arguments["rounds"])):
        if number and type_2:
            request = SendRequest("LOCAL_INV", context.next_wr_id(), invalidate_rkey=window.rkey)
            pair.responder.post_send(request)
            pair.responder.completions(1)
        seen = bind_window(context, bind)
        if seen["returned"] != "0" or seen["wc"] != ["SUCCESS"]:
            return {**seen, "returned": f"bind {number + 1}: {seen['returned']}, {seen['wc']}"}
        if seen["rkey"]["before"] == seen["rkey"]["after"]:
            return told(f"bind {number + 1} returned the key before", "provider")
        scratch = context.harness.scratch(pair.requester.pd, 1, "binds in turn")
        addr = context.number(step.arguments["addr"])
        write = SendRequest(
            "RDMA_WRITE",
            context.next_wr_id(),
            (scratch,),
            rkey=window.rkey,
            remote_addr=addr,
        )
        pair.requester.post_send(write)
        statuses = [completion.status for completion in pair.requester.completions(1)]
        if statuses != ["SUCCESS"]:
            return told(f"RDMA_WRITE by the key of bind {number + 1}: {statuses}", "device")
    return told("0", "device")


def post_send_with_inv(context: CaseContext, step: Step) -> Observation:
    pair = context.pair_of(step)
    rkey, length = context.numbers(step.arguments, "rkey", "length")
    message: tuple[Sge, ...] = ()
    place = NO_BYTES
    if length:
        message = (context.harness.scratch(pair.requester.pd, length, "a message"),)
        place = (context.harness.scratch(pair.responder.pd, length, "a message's place"),)
    post_receives(pair.responder, [context.next_wr_id()], place)
    wr_id = context.next_wr_id()
    request = SendRequest("SEND_WITH_INV", wr_id, message, invalidate_rkey=rkey)
    returned = pair.requester.post_send(request)
    observation = result_of(returned) | _completions(
        context,
        pair.requester,
        returned,
        True,
        request,
    )
    if pair.responder.kind not in RELIABLE:
        received = pair.responder.completions(1, _UNRELIABLE_S)
    elif observation["wc"] == ["SUCCESS"]:
        received = pair.responder.completions(1)
    else:
        received = pair.responder.completions(1, SILENCE_S)
    observation["responder_wc"] = [completion.status for completion in received]
    if not returned.value:
        sent = [Completion(wr_id, status) for status in observation["wc"]]
        context.connection(str(step.arguments["qp"])).check_response(
            sent,
            received,
            "SEND_WITH_INV",
        )
    if observation["responder_wc"] == ["SUCCESS"]:
        observation["invalidated"] = [received[0].invalidated_rkey, key32(rkey)]
        observation["wc_flags"] = received[0].wc_flags
    return observation


def restore_rkey(context: CaseContext, step: Step) -> Observation:
    window = context.window_of(step)
    window.rkey = window.old_rkey
    return told()
