"""Polls an extended completion queue (ibv_create_cq_ex(3)): ibv_start_poll takes the first completion of a round,
ibv_next_poll each further one that is there, and ibv_end_poll ends the round. Each field is read with its reader.
posting.py polls ordinary completion queues with ibv_poll_cq."""

import errno
import socket
from typing import Any

from conformance.bench.work_requests import Completion, wc_opcode, wc_status
from conformance.model.deadline import Wait

# enum ibv_create_cq_wc_flags: byte_len, immediate data, qp_num and src_qp, which every provider has.
_FIELDS = (1 << 0) | (1 << 1) | (1 << 2) | (1 << 3)
_WITH_IMM, _WITH_INV = 1 << 1, 1 << 3  # enum ibv_wc_flags


def readable_queue(context: Any, depth: int) -> Any:
    """Returns an extended completion queue, as an object of pyverbs. Raises PyverbsRDMAError."""
    from pyverbs.cq import CQEX, CqInitAttrEx

    return CQEX(context, CqInitAttrEx(cqe=depth, wc_flags=_FIELDS))


def read_completions(queue: Any, count: int, deadline_s: float) -> list[Completion]:
    """Returns the next `count` completions, or fewer at the deadline. Raises OSError if polling fails."""
    from pyverbs.cq import PollCqAttr

    wait: Wait | None = None
    completions: list[Completion] = []
    while len(completions) < count:
        returned = queue.start_poll(PollCqAttr())
        if returned == errno.ENOENT:
            wait = wait or Wait(deadline_s)
            if wait.over():
                break
            continue
        if returned:
            raise OSError(returned, "ibv_start_poll")
        completions.append(_current(queue))
        while len(completions) < count and not returned:
            returned = queue.poll_next()
            if not returned:
                completions.append(_current(queue))
        queue.end_poll()
        if returned not in (0, errno.ENOENT):
            raise OSError(returned, "ibv_next_poll")
    return completions


def _current(queue: Any) -> Completion:
    number = int(queue.read_qp_num())
    if queue.status:
        error = int(queue.read_vendor_err())
        return Completion(queue.wr_id, wc_status(queue.status), vendor_err=error, qp_num=number)
    flags, imm, invalidated = int(queue.read_wc_flags()), None, None
    if flags & _WITH_IMM:
        imm = socket.ntohl(int(queue.read_imm_data()))
    if flags & _WITH_INV:
        invalidated = int(queue.read_invalidated_rkey())
    opcode, length = wc_opcode(queue.read_opcode()), int(queue.read_byte_len())
    return Completion(queue.wr_id, "SUCCESS", opcode, length, imm, 0, invalidated, flags, number)
