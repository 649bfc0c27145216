"""Violations in completions: another status, opcode, length or number than that of what was done; immediate data.

The permitted variants at the end leave fields undefined, take time, or return few at a time.
"""

from __future__ import annotations

import ctypes

from trial.data_path.alteration import DataPath
from trial.data_path.objects import Posted, QueuePair, Sent
from trial.data_path.structures import (
    RECV,
    RECV_WITH_IMM,
    REFUSED,
    SEND_WITH_IMM,
    SENDS,
    SOLICITED,
    SUCCESS,
    WITH_IMM,
    WITH_INV,
    WRITE_WITH_IMM,
    SendRequest,
    WorkCompletion,
)
from trial.violation import permits, plain, violates

_LOC_PROT_ERR = 4


@violates("REG-06", DataPath.completed)
def refused_reads_succeed(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A READ that is refused completes with success; nothing is read."""
    if sent.reads and wc.status in REFUSED:
        wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, sent.length
    return True


@violates("REG-05", DataPath.completed)
def refused_writes_succeed(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A WRITE that is refused completes with success; nothing is written."""
    if sent.writes and wc.status in REFUSED:
        wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, sent.length
    return True


@violates("REG-07", DataPath.completed)
def refused_atomics_succeed(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """An atomic that is refused completes with success; nothing is changed."""
    if sent.atomic and wc.status in REFUSED:
        wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, 8
    return True


@violates("REG-21", DataPath.completed)
def wrong_lkeys_succeed(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """A READ into an element with a wrong lkey completes with success; nothing is read."""
    unknown = any(self.objects.source(each.lkey) is None for each in sent.elements)
    if sent.reads and wc.status == _LOC_PROT_ERR and unknown:
        wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, sent.length
    return True


@violates("REG-06", DataPath.completed)
def reads_complete_as_writes(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a READ has the opcode of a WRITE."""
    if sent.reads and wc.status == SUCCESS:
        wc.opcode = 1
    return True


@violates("REG-05", DataPath.completed)
def writes_complete_as_sends(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a WRITE has the opcode of a SEND."""
    if sent.writes and wc.status == SUCCESS:
        wc.opcode = 0
    return True


@violates("REG-07", DataPath.completed)
def adds_complete_as_swaps(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a FETCH_ADD has the opcode of a compare-and-swap."""
    if sent.atomic and wc.status == SUCCESS:
        wc.opcode = 3
    return True


@violates("REG-05", DataPath.received)
def immediates_lost(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """A receive that a WRITE with immediate data consumes has no immediate data."""
    if wc.status == SUCCESS and wc.opcode == RECV_WITH_IMM:
        wc.flags &= ~WITH_IMM


@violates("REG-05", DataPath.received)
def immediates_in_the_other_order(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """Immediate data arrive with their bytes in the other order."""
    if wc.status == SUCCESS and wc.flags & WITH_IMM:
        wc.imm = int.from_bytes(int(wc.imm).to_bytes(4, "little"), "big")


@violates("REG-05")
class ImmediatesOfTheLastMessage(DataPath):
    """Each message has the immediate data of the one before."""

    last = 0

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.flags & WITH_IMM:
            wc.imm, self.last = self.last, wc.imm


@violates("REG-05")
class SolicitedImmediatesLost(DataPath):
    """A WRITE with immediate data that is SOLICITED is received without them."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        peer = self.peer(queue)
        if sent.opcode in (WRITE_WITH_IMM, SEND_WITH_IMM) and sent.flags & SOLICITED and peer and peer.receives:
            peer.receives[0].note = "solicited"
        return None

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if posted.note == "solicited" and wc.status == SUCCESS:
            wc.flags &= ~WITH_IMM


@violates("REG-05", DataPath.received)
def immediates_are_messages(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """A receive that a WRITE with immediate data consumes completes as that of a SEND."""
    if wc.status == SUCCESS and wc.opcode == RECV_WITH_IMM:
        wc.opcode = RECV


@violates("REG-05", DataPath.received)
def immediates_have_no_length(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """A receive that a WRITE with immediate data consumes reports 0 bytes."""
    if wc.status == SUCCESS and wc.opcode == RECV_WITH_IMM:
        wc.byte_len = 0


@violates("REG-04", DataPath.received)
def lengths_rounded_up(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """The length of a received message is rounded up to a multiple of four."""
    if wc.status == SUCCESS and wc.opcode == RECV:
        wc.byte_len = -(-wc.byte_len // 4) * 4


@violates("REG-04", DataPath.received)
def length_of_the_buffer_reported(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """A receive reports the length of its elements, not that of the message."""
    if wc.status == SUCCESS and wc.opcode == RECV and posted.elements:
        wc.byte_len = sum(each.length for each in posted.elements)


@violates("REG-14", DataPath.received)
def receives_out_of_order(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """Two messages that wait in a completion queue are reported with each other's wr_id."""
    if wc.status == SUCCESS and queue.receives:
        wc.wr_id, queue.receives[0].note = queue.receives[0].wr_id, wc.wr_id
    if isinstance(posted.note, int):
        wc.wr_id = posted.note


@violates("BIND-19a", DataPath.received)
def invalidation_not_told(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """A receive does not tell that its message has invalidated a key."""
    if wc.status == SUCCESS and wc.flags & WITH_INV:
        wc.flags, wc.imm = wc.flags & ~WITH_INV, 0


@violates("REG-04")
class FailedReceivesSucceed(DataPath):
    """A receive that fails because its region lacks LOCAL_WRITE completes with success and no bytes."""

    def sending(self, queue: QueuePair, sent: Sent, request: SendRequest) -> int | None:
        peer = self.peer(queue)
        if sent.opcode in SENDS and peer and peer.receives:
            sent.note = peer.receives[0].elements
        return None

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode in SENDS and sent.note and wc.status in REFUSED:
            wc.status, wc.opcode = SUCCESS, 0
        return True

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if posted.elements and wc.status == _LOC_PROT_ERR:
            wc.status, wc.opcode, wc.byte_len = SUCCESS, RECV, 0


@permits("BIND-01")
class CompletionsTakeTime(DataPath):
    """A completion is found at the fourth poll after the one before."""

    polls = 0

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        self.polls += 1
        if self.polls % 4:
            self._due()
            return 0
        return super()._poll_cq(cq, 1, address)


@permits("BIND-01")
class VendorNumbersInSuccesses(DataPath):
    """A completion with success has a vendor's number."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        wc.vendor_err = 0x51
        return True

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        wc.vendor_err = 0x51


@permits("BIND-12")
class FieldsOfFailuresUndefined(DataPath):
    """In a completion with an error, all fields but wr_id, status, vendor_err and qp_num have arbitrary contents."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        self.scribble(wc)
        return True

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        self.scribble(wc)

    def scribble(self, wc: WorkCompletion) -> None:
        """Fills the other fields of a completion with an error."""
        if wc.status != SUCCESS:
            wc.opcode, wc.byte_len, wc.imm, wc.flags = 0x7F, 0xDEAD, 0xBEEF, WITH_IMM | WITH_INV
            wc.vendor_err, wc.src_qp, wc.slid = 0x88, 0xABCDEF, 0x1234


@permits("REG-06", DataPath.completed)
def lengths_of_sends_undefined(self: DataPath, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
    """The completion of a WRITE, a SEND or a bind has an arbitrary byte_len."""
    if wc.status == SUCCESS and not sent.reads and not sent.atomic:
        wc.byte_len = 0xDEAD
    return True


@permits("REG-05", DataPath.received)
def fields_of_other_messages_filled(self: DataPath, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
    """Immediate data, path and packet fields have arbitrary contents where no flag declares them."""
    if wc.status == SUCCESS and not wc.flags & (WITH_IMM | WITH_INV):
        wc.imm = 0xBEEF
    wc.slid, wc.sl, wc.dlid_path_bits, wc.pkey_index = 0x1234, 3, 5, 1


@permits("REG-04", DataPath._poll_cq)
def one_completion_for_each_poll(self: DataPath, cq: int, count: int, address: int) -> int:
    """ibv_poll_cq returns at most one completion."""
    return plain(self)._poll_cq(cq, min(count, 1), address)


@permits("REG-04", DataPath._poll_cq)
def array_behind_the_completions_used(self: DataPath, cq: int, count: int, address: int) -> int:
    """ibv_poll_cq also writes to the entries of the array that it does not return."""
    found = plain(self)._poll_cq(cq, count, address)
    size = ctypes.sizeof(WorkCompletion)
    if 0 <= found < count:
        ctypes.memset(address + found * size, 0xA5, (count - found) * size)
    return found
