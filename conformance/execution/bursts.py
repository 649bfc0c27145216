"""Executes bursts of requests, to test the order in which the requests take effect. All requests of a burst are posted before any
completion is awaited, so that a device can reorder the requests."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

from conformance.bench.calls import Sge
from conformance.bench.memory_areas import EMPTY, numbered
from conformance.bench.work_requests import SIGNALED, SendRequest, key32
from conformance.execution.connection import LoopbackConnection, post_receives
from conformance.execution.context import CaseContext, result_of, told
from conformance.model.case import Step
from conformance.model.observation import Observation
from conformance.older_python import zip

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
    connection.stale = True  # until each request of all bursts has completed
    for round_number in range(rounds):
        ctypes.memset(addr, EMPTY, length * _BURST)
        # The messages differ from each other and from those of the previous burst.
        messages = [numbered(round_number * _BURST + index, length) for index in range(_BURST)]
        ctypes.memmove(source.addr, b"".join(messages), length * _BURST)
        ranges = [addr + index * length for index in range(_BURST)]
        wr_ids = [context.next_wr_id() for _ in ranges]
        if not sends:
            post_receives(receiver, wr_ids)
        for at, wr_id in zip(ranges, wr_ids, strict=True) if sends else ():
            returned = receiver.post_receive((Sge(at, length, key32(key)),), wr_id)
            if returned.value:
                return result_of(returned)
        for item, at in enumerate(ranges):
            sge = Sge(source.addr + item * length, length, source.lkey)
            request = SendRequest(opcode, context.next_wr_id(), (sge,))
            if not sends:
                request = request._replace(rkey=key32(key), remote_addr=at, imm=item)
            returned = sender.post_send(request)
            if returned.value:
                return result_of(returned)
        field, expected = ("wr_id", wr_ids) if sends else ("imm", range(_BURST))
        if wrong := _first_wrong(connection, opcode, addr, messages, field, expected):
            what, how = ("receive", "completed") if sends else ("message", "was reported")
            return told(f"{what} {wrong[0]} of round {round_number} {how} {wrong[1]}", "device")
        sender.completions(_BURST)
    connection.stale = False
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
        completed = [(completion.status, getattr(completion, field)) for completion in received]
        is_own = completed == [("SUCCESS", value)]
        if not is_own or content != message:
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
    connection.stale = True
    for round_number in range(rounds):
        values = _values(operation, round_number << 16)
        ctypes.memset(local.addr, EMPTY, _WORD * _BURST)
        ctypes.memmove(local.addr, values[0].to_bytes(_WORD, sys.byteorder), _WORD)
        silent = round_number % 2 == 1 and not queue.sq_sig_all
        for index in range(_BURST):
            sge = Sge(local.addr + _WORD * index, _WORD, local.lkey)
            request = SendRequest(
                "RDMA_WRITE",
                context.next_wr_id(),
                (sge,),
                rkey=key32(rkey),
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
            connection.check_response(
                [completion for completion in completions if completion.status != "SUCCESS"],
                (),
                operation,
            )
            return told(
                f"round {round_number} completed with {' '.join(completion.status for completion in completions)}",
                "device",
            )
        for index in range(1, _BURST):
            seen = int.from_bytes(
                ctypes.string_at(local.addr + _WORD * index, _WORD), sys.byteorder
            )
            if seen != values[index - 1]:
                return told(
                    f"atomic {index} of round {round_number} found {seen:#x} instead of {values[index - 1]:#x}",
                    "device",
                )
    connection.stale = False
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
