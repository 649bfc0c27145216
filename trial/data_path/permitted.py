"""Permitted variants of the data path on the real stack: no case may fail any of these."""

from __future__ import annotations

import ctypes

from trial.data_path.alteration import DataPath
from trial.data_path.objects import Posted, QueuePair, Sent
from trial.data_path.structures import SUCCESS, WITH_IMM, WITH_INV, WorkCompletion
from trial.violation import violates

permits = violates


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


@permits("REG-06")
class LengthsOfSendsUndefined(DataPath):
    """The completion of a WRITE, a SEND or a bind has an arbitrary byte_len."""

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if wc.status == SUCCESS and not sent.reads and not sent.atomic:
            wc.byte_len = 0xDEAD
        return True


@permits("REG-05")
class FieldsOfOtherMessagesFilled(DataPath):
    """Immediate data, path and packet fields have arbitrary contents where no flag declares them."""

    def received(self, queue: QueuePair, posted: Posted, wc: WorkCompletion) -> None:
        if wc.status == SUCCESS and not wc.flags & (WITH_IMM | WITH_INV):
            wc.imm = 0xBEEF
        wc.slid, wc.sl, wc.dlid_path_bits, wc.pkey_index = 0x1234, 3, 5, 1


@permits("REG-04")
class OneCompletionForEachPoll(DataPath):
    """ibv_poll_cq returns at most one completion."""

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        return super()._poll_cq(cq, min(count, 1), address)


@permits("REG-04")
class ArrayBehindTheCompletionsUsed(DataPath):
    """ibv_poll_cq also writes to the entries of the array that it does not return."""

    def _poll_cq(self, cq: int, count: int, address: int) -> int:
        found = super()._poll_cq(cq, count, address)
        size = ctypes.sizeof(WorkCompletion)
        if 0 <= found < count:
            ctypes.memset(address + found * size, 0xA5, (count - found) * size)
        return found
