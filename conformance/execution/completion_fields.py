"""Compares the fields of completions with ibv_poll_cq(3), of one or of several that are polled together. Other calls judge
the status and, in some rows, the opcode; here every field that the manual page defines for the status is compared."""

from __future__ import annotations

import collections

from conformance.bench.interface import Queue
from conformance.bench.work_requests import (
    COMPLETED_AS,
    SIGNALED,
    BindInfo,
    Completion,
    SendRequest,
    next_rkey,
)
from conformance.execution.connection import ERROR_STATE, SILENCE_S, post_receives, state_of
from conformance.execution.context import CaseContext, compared, result_of, told
from conformance.execution.in_flight import NOT_COMPLETED
from conformance.model.case import Step
from conformance.model.deadline import COMPLETION_DEADLINE_S, Wait
from conformance.model.observation import Observation
from conformance.model.operations import ATOMICS
from conformance.verbs import ENUMS

_RIGHTS = ENUMS["ibv_access_flags"].mask_of("REMOTE_WRITE")
_OF_OWNERS = ("BIND_MW", "LOCAL_INV")  # requests of the region's owner, not of its peer
_GRH = 1 << 0  # enum ibv_wc_flags
_WORD = 8
_KEYS = 1 << 32
_OF_PEER = ("WRITE_BY_ENDED_KEY", "LONG_SEND")  # requests of failures_in_turn that the peer posts
_BEHIND = 3  # receives of each end, and requests behind the one that fails
_AWAITED = 3  # READs of completions_in_turn, the last of which is refused
_RECEIVED = {
    "RECV": "SEND",
    "RECV_RDMA_WITH_IMM": "RDMA_WRITE_WITH_IMM",
}  # the request of a receive
# Messages: their operation, the opcode of the receive's completion, and length and immediate data that it reports.
_MESSAGES = (
    ("SEND", "RECV", 8, None),
    ("SEND_WITH_IMM", "RECV", 4, 0xC0FFEE02),
    ("RDMA_WRITE_WITH_IMM", "RECV_RDMA_WITH_IMM", 2, 0xC0FFEE03),
    ("SEND", "RECV", 1, None),
)


def completion_fields(context: CaseContext, step: Step) -> Observation:
    """Posts one request, and compares the fields of its completion, or the flags of that of its receive. `differences`
    names each wrong field."""
    pair, wanted = context.pair_of(step), str(step.arguments["op"])
    operation = _RECEIVED.get(wanted, wanted)
    if operation in _OF_OWNERS:
        queue = pair.responder
    else:
        queue = pair.requester
    if operation in ATOMICS:
        length = _WORD
    else:
        length = context.number(step.arguments["length"])
    request = _request(context, step, queue, operation, length)
    if operation == "SEND":
        place = context.harness.scratch(pair.responder.pd, length, "fields of a message")
        post_receives(pair.responder, [context.next_wr_id()], (place,))
    if operation == "RDMA_WRITE_WITH_IMM":
        post_receives(pair.responder, [context.next_wr_id()])
    returned = queue.post_send(request)
    if returned.value:
        return result_of(returned)
    if wanted in _RECEIVED:
        queue = pair.responder
    completions = queue.completions(1)
    if not completions:
        extra = queue.completions(1, SILENCE_S)
    else:
        extra = []
    if not completions + extra:
        return {**result_of(returned), "returned": NOT_COMPLETED}
    (completion,) = completions or extra
    observation: Observation = {**result_of(returned), "layer": "device"}
    observation["wc"] = [completion.status]
    differences = _of_header(completion)
    if wanted not in _RECEIVED:
        differences = [*_differences(completion, request, queue, length), *differences]
    return compared(observation, differences)


def completions_in_turn(context: CaseContext, step: Step) -> Observation:
    """Posts RDMA READs of different lengths, of which the key of one has ended, and awaits that the requester's queue
    pair is in the error state. Then the completion queue has several completions at once. Compared are their requests and
    whether each succeeded, in any order, since no manual page promises one, and then their fields; which status tells that
    a READ failed depends on the transport. The READ behind the refused one may stay without a completion: it may have been
    posted when the queue pair was in the error state, and no manual page tells what becomes of such a request."""
    pair = context.pair_of(step)
    queue = pair.requester
    good, ended, addr = context.numbers(step.arguments, "rkey", "ended", "addr")
    wanted: dict[int, tuple[SendRequest, bool]] = {}
    has_failed = False
    for rkey, length, succeeds in (
        (good, _WORD, True),
        (good, _WORD // 2, True),
        (ended, _WORD, False),
        (good, _WORD, False),
    ):
        local = context.harness.scratch(queue.pd, length, "completions in turn", _RIGHTS)
        request = SendRequest(
            "RDMA_READ",
            context.next_wr_id(),
            (local,),
            rkey=rkey % _KEYS,
            remote_addr=addr,
        )
        returned = queue.post_send(request)
        if returned.value and has_failed:
            break  # the queue pair may be in the error state, in which a provider may refuse requests
        if returned.value:
            return result_of(returned)
        wanted[request.wr_id] = request, succeeds
        has_failed = not succeeds
    wait = Wait(COMPLETION_DEADLINE_S)
    while state_of(pair, queue) not in (ERROR_STATE, "") and not wait.over():
        pass
    awaited = queue.completions(_AWAITED)
    observation: Observation = {**told(), "layer": "device"}
    if len(awaited) < _AWAITED:
        return {**observation, "returned": NOT_COMPLETED}
    later = queue.completions(len(wanted) - _AWAITED, SILENCE_S)
    differences: list[str] = []
    for number, completion in enumerate([*awaited, *later], 1):
        if completion.wr_id not in wanted:
            differences.append(f"another wr_id in completion {number}")
            continue
        request, succeeds = wanted.pop(completion.wr_id)
        if succeeds != (completion.status == "SUCCESS"):
            differences.append(f"another status in completion {number}")
            continue
        for difference in _differences(completion, request, queue, request.sges[0].length):
            differences.append(f"{difference} in completion {number}")
    return compared(observation, differences)


def receives_in_turn(context: CaseContext, step: Step) -> Observation:
    """Sends messages of different operations and lengths, and awaits that all are complete at the requester. Then the
    fields of the completions of their receives are compared."""
    pair = context.pair_of(step)
    queue = pair.responder
    rkey, addr = context.numbers(step.arguments, "rkey", "addr")
    wanted: dict[int, Completion] = {}
    for _, received_as, length, imm in _MESSAGES:
        place = context.harness.scratch(queue.pd, _WORD, "received in turn")
        wr_id = context.next_wr_id()
        post_receives(queue, [wr_id], (place,))
        wanted[wr_id] = Completion(wr_id, "SUCCESS", received_as, length, imm, qp_num=queue.number)
    for operation, _, length, imm in _MESSAGES:
        source = context.harness.scratch(pair.requester.pd, length, "sent in turn")
        request = SendRequest(
            operation,
            context.next_wr_id(),
            (source,),
            rkey=rkey % _KEYS,
            remote_addr=addr,
            imm=imm or 0,
        )
        returned = pair.requester.post_send(request)
        if returned.value:
            return result_of(returned)
    sent = pair.requester.completions(len(_MESSAGES))
    differences: list[str] = []
    if [completion.status for completion in sent] != ["SUCCESS"] * len(_MESSAGES):
        differences.append("a message without success")
    for number, completion in enumerate(queue.completions(len(wanted)), 1):
        due = wanted.pop(completion.wr_id, None)
        if due is None:
            differences.append(f"another wr_id in completion {number}")
            continue
        for name in ("status", "opcode", "byte_len", "imm", "qp_num"):
            value, actual = getattr(due, name), getattr(completion, name)
            if value != actual:
                text = f"{name} {actual} instead of {value} in completion {number}"
                differences.append(text)
    if wanted:
        differences.append(f"{len(wanted)} completions of receives fewer")
    return compared({**told(), "layer": "device"}, differences)


def failures_in_turn(context: CaseContext, step: Step) -> Observation:
    """Posts receives at both ends, and requests of which the first fails. Then the fields that are defined for failures
    are compared in all completions of both ends: wr_id and qp_num. The request that fails, or the receive that is too short,
    must have a completion. The others are flushed; other rows judge whether they are."""
    fails, kind = str(step.arguments["fails"]), str(step.arguments["qp_type"])
    if kind == "RC_SRQ":
        connection = context.harness.connection(kind, "pd")
        connection.renew_if_stale()
        connection.stale = True
        # an error does not flush shared receives
        pair, is_shared, receives = connection.pair, False, 1
    else:
        pair, receives = context.pair_of(step), _BEHIND
        is_shared = context.case.given.qps[str(step.arguments["qp"])].one_queue
    owner, peer = pair.responder, pair.requester
    initiator, ends = peer, [owner, peer]
    if fails not in _OF_PEER:
        initiator, ends = owner, [owner]  # the peer need not learn of the failure
    due: dict[int, int] = {}
    for end in ends[:1] if kind == "RC_SRQ" else ends:
        place = context.harness.scratch(end.pd, _WORD // 2, "a receive that fails")
        wr_ids = [context.next_wr_id() for _ in range(receives)]
        post_receives(end, wr_ids, (place,))
        due |= dict.fromkeys(wr_ids, end.number)
    failing = _failing(context, step, initiator)
    if fails == "LONG_SEND":
        detecting, failed = owner, next(iter(due))
    else:
        detecting, failed = initiator, failing.wr_id
    behind = [SendRequest("RDMA_WRITE", context.next_wr_id()) for _ in range(_BEHIND)]
    for request in (failing, *behind):
        returned = initiator.post_send(request)
        if not returned.value:
            due[request.wr_id] = initiator.number
        elif request is failing:
            return result_of(returned)
    completions = detecting.completions(1)
    awaited = collections.Counter(due.values())
    awaited[detecting.number] -= len(completions)
    if is_shared:
        awaited = collections.Counter({owner.number: sum(awaited.values())})
    for end in ends:
        completions += end.completions(awaited[end.number], SILENCE_S)
    statuses = {completion.wr_id: completion.status for completion in completions}
    observation: Observation = {**told(), "layer": "device"}
    if failed not in statuses:
        return {**observation, "returned": NOT_COMPLETED}
    observation["wc"] = [statuses[failed]]
    differences: set[str] = set()
    for completion in completions:
        status, number = completion.status, due.pop(completion.wr_id, None)
        if number is None:
            differences.add(f"another wr_id in a completion with {status}")
        elif completion.qp_num != number:
            differences.add(f"qp_num {completion.qp_num} instead of {number} after {status}")
    return compared(observation, sorted(differences))


def _failing(context: CaseContext, step: Step, queue: Queue) -> SendRequest:
    fails, wr_id = str(step.arguments["fails"]), context.next_wr_id()
    ended, addr = (context.number(step.arguments[name]) for name in ("ended", "addr"))
    if fails == "LOCAL_INV":
        return SendRequest(fails, wr_id, invalidate_rkey=ended % _KEYS)
    if fails == "BIND_MW":
        window, region = context.window_of(step), context.mrs[str(step.arguments["mr"])]
        info = BindInfo(region, addr, region.struct.length + 1, _RIGHTS)
        return SendRequest(fails, wr_id, rkey=next_rkey(window.rkey), window=window, bind=info)
    local = context.harness.scratch(queue.pd, _WORD, "a request that fails", _RIGHTS)
    if fails == "LONG_SEND":
        return SendRequest("SEND", wr_id, (local,))
    if fails == "WRITE_FROM_ENDED_KEY":
        local = local._replace(lkey=ended % _KEYS)
    return SendRequest("RDMA_WRITE", wr_id, (local,), rkey=ended % _KEYS, remote_addr=addr)


def _request(
    context: CaseContext,
    step: Step,
    queue: Queue,
    operation: str,
    length: int,
) -> SendRequest:
    wr_id, rkey = context.next_wr_id(), context.number(step.arguments["rkey"]) % _KEYS
    if operation == "LOCAL_INV":
        return SendRequest(operation, wr_id, invalidate_rkey=rkey)
    addr = context.number(step.arguments["addr"])
    if operation == "BIND_MW":
        window = context.window_of(step)
        window.old_rkey, key = window.rkey, next_rkey(window.rkey)
        info = BindInfo(context.mrs[str(step.arguments["mr"])], addr, length, _RIGHTS)
        return SendRequest(operation, wr_id, rkey=key, window=window, bind=info)
    local = context.harness.scratch(queue.pd, length, "fields of a completion", _RIGHTS)
    return SendRequest(
        operation,
        wr_id,
        (local,),
        SIGNALED,
        rkey=rkey,
        remote_addr=addr,
        compare_add=1,
    )


def _differences(
    completion: Completion,
    request: SendRequest,
    queue: Queue,
    length: int,
) -> list[str]:
    """Returns a text for each wrong field. After a failure only wr_id, status, qp_num and vendor_err are defined."""
    wanted: dict[str, object] = {"wr_id": request.wr_id, "qp_num": queue.number}
    if completion.status == "SUCCESS":
        wanted["opcode"] = COMPLETED_AS.get(request.opcode, request.opcode)
        if request.opcode == "RDMA_READ" or request.opcode in ATOMICS:
            wanted["byte_len"] = length
    different = []
    for name, value in wanted.items():
        actual = getattr(completion, name)
        if actual != value:
            different.append(f"{name} {actual} instead of {value}")
    return different


def _of_header(completion: Completion) -> list[str]:
    if completion.status == "SUCCESS" and completion.wc_flags & _GRH:
        return ["the flag GRH, which is valid only for datagrams"]
    return []
