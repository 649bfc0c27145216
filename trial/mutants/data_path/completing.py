"""Violations in completions: another status, opcode, length or number than that of what was done; immediate data.

The permitted variants at the end leave fields undefined, take time, or return few at a time.
"""

from __future__ import annotations

from trial.data_path.alteration import DataPath
from trial.data_path.objects import Posted, QueuePair, Sent
from trial.data_path.structures import (
    RECV,
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
from trial.violation import permits, violates

_LOC_PROT_ERR = 4


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
