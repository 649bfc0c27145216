"""Bursts of operations, whose results show the order in which they take effect. Not for single operations (traffic.py).

All operations of a burst are posted before any completion is awaited, so that a device that reorders them has the
opportunity to do so.
"""

import ctypes
import sys

from conformance.bench.calls import Sge
from conformance.bench.memory_areas import EMPTY
from conformance.bench.work_requests import SIGNALED, SendRequest
from conformance.execution.connection import post_receives
from conformance.execution.context import CaseContext, result_of
from conformance.model.case import Step
from conformance.model.observation import Observation

_BURST = 8  # requests posted at once; half of the queues' depth
_WORD = 8


def receives_in_order(context: CaseContext, step: Step) -> Observation:
    """Posts receives into the region and as many SENDs: message i must be complete in receive i when that completes.

    `returned` is 0, or describes the first error.
    """
    lkey, addr, length, rounds = context.numbers(step.arguments, "lkey", "addr", "length", "rounds")
    connection = context.harness.connection("RC", str(step.arguments["pd"]))
    connection.renew_if_stale()
    sender, receiver = connection.pair.requester, connection.pair.responder
    source = context.harness.scratch(sender.pd, length * _BURST, "burst")
    for number in range(rounds):
        ctypes.memset(addr, EMPTY, length * _BURST)
        wr_ids = [context.next_wr_id() for _ in range(_BURST)]
        messages = [bytes([(number * _BURST + each) % 0x50 + 0x80]) * length for each in range(_BURST)]
        for each, wr_id in enumerate(wr_ids):
            returned = receiver.post_receive((Sge(addr + each * length, length, lkey % (1 << 32)),), wr_id)
            if returned.value:
                connection.stale = True
                return result_of(returned)
            ctypes.memmove(source.addr + each * length, messages[each], length)
        for each in range(_BURST):
            part = Sge(source.addr + each * length, length, source.lkey)
            returned = sender.post_send(SendRequest("SEND", context.next_wr_id(), (part,)))
            if returned.value:
                return result_of(returned)
        for each, wr_id in enumerate(wr_ids):
            found = receiver.completions(1)
            content = ctypes.string_at(addr + each * length, length)
            completed = [(one.status, one.wr_id) for one in found]
            if completed != [("SUCCESS", wr_id)] or content != messages[each]:
                connection.stale = True
                connection.check_answered(sender.completions(1), found, "SEND")
                own = completed == [("SUCCESS", wr_id)]
                what = "before its data was there" if own else f"with {completed}, not with its own success"
                return _wrong(f"receive {each} of round {number} completed {what}")
        sender.completions(_BURST)
    return _wrong("0")


def immediates_in_order(context: CaseContext, step: Step) -> Observation:
    """Posts RDMA WRITEs with immediate data: when the receiver learns of one, all bytes of it must be in memory.

    Nothing is posted after the last of a burst, because a later request could make its bytes arrive.
    """
    rkey, addr, length, rounds = context.numbers(step.arguments, "rkey", "addr", "length", "rounds")
    connection = context.harness.connection("RC", str(step.arguments["pd"]))
    connection.renew_if_stale()
    sender, receiver = connection.pair.requester, connection.pair.responder
    source = context.harness.scratch(sender.pd, length * _BURST, "burst")
    for number in range(rounds):
        ctypes.memset(addr, EMPTY, length * _BURST)
        messages = [bytes([(number * _BURST + each) % 0x50 + 0x80]) * length for each in range(_BURST)]
        ctypes.memmove(source.addr, b"".join(messages), length * _BURST)
        post_receives(receiver, [context.next_wr_id() for _ in range(_BURST)])
        for each in range(_BURST):
            part = Sge(source.addr + each * length, length, source.lkey)
            request = SendRequest("RDMA_WRITE_WITH_IMM", context.next_wr_id(), (part,), rkey=rkey % (1 << 32), imm=each)
            returned = sender.post_send(request._replace(remote_addr=addr + each * length))
            if returned.value:
                return result_of(returned)
        for each in range(_BURST):
            received = receiver.completions(1)
            found = [(one.status, one.imm) for one in received]
            content = ctypes.string_at(addr + each * length, length)
            if found != [("SUCCESS", each)] or content != messages[each]:
                connection.stale = True
                connection.check_answered(sender.completions(1), received, "RDMA_WRITE_WITH_IMM")
                own = found == [("SUCCESS", each)]
                what = "before its data was there" if own else f"with {found}, not with its own success"
                return _wrong(f"message {each} of round {number} was reported {what}")
        sender.completions(_BURST)
    return _wrong("0")


def atomics_in_order(context: CaseContext, step: Step) -> Observation:
    """Posts an RDMA WRITE of a word and atomics after it: each must return what those before it have left.

    FETCH-AND-ADDs, or COMPARE-AND-SWAPs of which every other one compares with another value and so swaps nothing. The
    WRITE asks for a completion in every other round only.
    """
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
        for each in range(_BURST):
            part = Sge(local.addr + _WORD * each, _WORD, local.lkey)
            request = SendRequest("RDMA_WRITE", context.next_wr_id(), (part,), rkey=rkey % (1 << 32), remote_addr=addr)
            if each:
                request = _atomic(request._replace(opcode=operation), values[each - 1], values[each])
            returned = queue.post_send(request._replace(flags=0 if silent and not each else SIGNALED))
            if returned.value:
                return result_of(returned)
        expected = _BURST - silent
        found = queue.completions(expected)
        if [each.status for each in found] != ["SUCCESS"] * expected:
            connection.stale = True
            connection.check_answered([each for each in found if each.status != "SUCCESS"], (), operation)
            return _wrong(f"round {number} completed with {' '.join(each.status for each in found)}")
        for each in range(1, _BURST):
            seen = int.from_bytes(ctypes.string_at(local.addr + _WORD * each, _WORD), sys.byteorder)
            if seen != values[each - 1]:
                return _wrong(f"atomic {each} of round {number} found {seen:#x} instead of {values[each - 1]:#x}")
    return _wrong("0")


def _values(operation: str, begin: int) -> list[int]:
    """The value of the word after each request of a burst. A COMPARE-AND-SWAP at an even place swaps nothing."""
    values = [begin]
    for each in range(1, _BURST):
        swaps = operation == "ATOMIC_FETCH_AND_ADD" or each % 2
        values.append(values[-1] + each if swaps else values[-1])
    return values


def _atomic(request: SendRequest, before: int, after: int) -> SendRequest:
    """The atomic that finds one value and leaves another or the same one."""
    if request.opcode == "ATOMIC_FETCH_AND_ADD":
        return request._replace(compare_add=after - before)
    if after == before:
        return request._replace(compare_add=before + 1)
    return request._replace(compare_add=before, swap=after)


def _wrong(what: str) -> Observation:
    return {"rc": 0, "returned": what, "errno": "", "layer": "device"}
