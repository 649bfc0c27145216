"""What several of the violations rest on: a device that knows what it is doing, and forced writes."""

from __future__ import annotations

import os

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.queues import Queue

SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
FENCE = 1
GIB = 1 << 30


class Watching(Device):
    """A device that knows which request it carries out."""

    opcode = ""
    transport = ""

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        """Does what a request asks for; its status."""
        self.opcode, self.transport = request.opcode, queue.kind
        try:
            return super().carry_out(queue, request)
        finally:
            self.opcode = self.transport = ""


def forced(addr: int, content: bytes) -> bool:
    """Writes this process's memory past its protection; False where that cannot be."""
    try:
        memory = os.open("/proc/self/mem", os.O_RDWR)
        try:
            return os.pwrite(memory, content, addr) == len(content)
        finally:
            os.close(memory)
    except (OSError, OverflowError):
        return False
