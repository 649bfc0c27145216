"""Violations in completions: another status, opcode, length or number than that of what was done; immediate data."""

from __future__ import annotations

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
from trial.violation import violates

_LOC_PROT_ERR = 4


@violates("REG-06")
class RefusedReadsSucceed(DataPath):
    """A READ that is refused completes with success; nothing is read."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.reads and wc.status in REFUSED:
            wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, sent.length
        return True


@violates("REG-05")
class RefusedWritesSucceed(DataPath):
    """A WRITE that is refused completes with success; nothing is written."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.writes and wc.status in REFUSED:
            wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, sent.length
        return True


@violates("REG-07")
class RefusedAtomicsSucceed(DataPath):
    """An atomic that is refused completes with success; nothing is changed."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.atomic and wc.status in REFUSED:
            wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, 8
        return True


@violates("REG-21")
class WrongLkeysSucceed(DataPath):
    """A READ into an element with a wrong lkey completes with success; nothing is read."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        unknown = any(self.objects.source(each.lkey) is None for each in sent.elements)
        if sent.reads and wc.status == _LOC_PROT_ERR and unknown:
            wc.status, wc.opcode, wc.byte_len = SUCCESS, sent.completed_as, sent.length
        return True


@violates("REG-06")
class ReadsCompleteAsWrites(DataPath):
    """The completion of a READ has the opcode of a WRITE."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.reads and wc.status == SUCCESS:
            wc.opcode = 1
        return True


@violates("REG-05")
class WritesCompleteAsSends(DataPath):
    """The completion of a WRITE has the opcode of a SEND."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.writes and wc.status == SUCCESS:
            wc.opcode = 0
        return True


@violates("REG-07")
class AddsCompleteAsSwaps(DataPath):
    """The completion of a FETCH_ADD has the opcode of a compare-and-swap."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.atomic and wc.status == SUCCESS:
            wc.opcode = 3
        return True


@violates("REG-05")
class ImmediatesLost(DataPath):
    """A receive that a WRITE with immediate data consumes has no immediate data."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.opcode == RECV_WITH_IMM:
            wc.flags &= ~WITH_IMM


@violates("REG-05")
class ImmediatesInTheOtherOrder(DataPath):
    """Immediate data arrive with their bytes in the other order."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
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


@violates("REG-05")
class ImmediatesAreMessages(DataPath):
    """A receive that a WRITE with immediate data consumes completes as that of a SEND."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.opcode == RECV_WITH_IMM:
            wc.opcode = RECV


@violates("REG-05")
class ImmediatesHaveNoLength(DataPath):
    """A receive that a WRITE with immediate data consumes reports 0 bytes."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.opcode == RECV_WITH_IMM:
            wc.byte_len = 0


@violates("REG-04")
class LengthsRoundedUp(DataPath):
    """The length of a received message is rounded up to a multiple of four."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.opcode == RECV:
            wc.byte_len = -(-wc.byte_len // 4) * 4


@violates("REG-04")
class LengthOfTheBufferReported(DataPath):
    """A receive reports the length of its elements, not that of the message."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and wc.opcode == RECV and posted.elements:
            wc.byte_len = sum(each.length for each in posted.elements)


@violates("REG-14")
class ReceivesOutOfOrder(DataPath):
    """Two messages that wait in a completion queue are reported with each other's wr_id."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and queue.receives:
            wc.wr_id, queue.receives[0].note = queue.receives[0].wr_id, wc.wr_id
        if isinstance(posted.note, int):
            wc.wr_id = posted.note


@violates("BIND-19a")
class InvalidationNotTold(DataPath):
    """A receive does not tell that its message has invalidated a key."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
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
