"""Violations in completions: a status, opcode, length or number that does not belong to the request; immediate data.

The permitted variants at the end leave fields undefined, take time, or return few completions at a time.
"""

from trial.data_path.alteration import DataPath
from trial.data_path.objects import Posted, QueuePair, Sent
from trial.data_path.structures import SUCCESS, WITH_IMM, WITH_INV, WorkCompletion
from trial.violation import permits

_LOC_PROT_ERR = 4


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
