"""Postings by the builders of ibv_wr_post(3): what is carried out, when, and by which key."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from conformance.bench.work_requests import SIGNALED, SendRequest
from reference.device import Device
from reference.queues import Queue
from trial.violation import plain, violates

Copied = Sequence[tuple[SendRequest, bytes | None]]


@violates("WRX-01", Device.create_qp_ex_fault)
def every_operation_for_every_type(self: Device, kind: str, operations: int) -> int:
    """Queue pairs can be asked for any operation, whatever their type."""
    return 0


@violates("WRX-01", Device.create_qp_ex_fault)
def no_builder_at_all(self: Device, kind: str, operations: int) -> int:
    """Queue pairs of type UC have no builders."""
    return errno.EOPNOTSUPP if kind == "UC" else plain(self).create_qp_ex_fault(kind, operations)


@violates("WRX-02", Device.complete_batch)
def immediate_becomes_a_write(self: Device, queue: Queue, requests: Copied) -> int:
    """The builder of RDMA WRITE with immediate data makes a plain RDMA WRITE."""
    made = [(_plain_write(each), data) for each, data in requests]
    return plain(self).complete_batch(queue, made)


def _plain_write(request: SendRequest) -> SendRequest:
    return request._replace(opcode="RDMA_WRITE") if request.opcode == "RDMA_WRITE_WITH_IMM" else request


@violates("WRX-02", Device.complete_batch)
def added_twice(self: Device, queue: Queue, requests: Copied) -> int:
    """The builder of FETCH AND ADD adds one too many."""
    return plain(self).complete_batch(
        queue, [(each._replace(compare_add=each.compare_add + 1), data) for each, data in requests]
    )


@violates("WRX-03", Device.post_batch)
def carried_out_while_built(
    self: Device, queue: Queue, requests: Sequence[SendRequest], built: Callable[[], bool]
) -> int:
    """Requests are carried out as soon as they are built."""
    fault = plain(self).post_batch(queue, requests, lambda: True)
    built()
    return fault


@violates("WRX-03", Device.abort)
def abort_carries_out(self: Device, queue: Queue, requests: Sequence[SendRequest]) -> int:
    """ibv_wr_abort posts what was built."""
    return plain(self).complete_batch(queue, [(each, None) for each in requests])


@violates("WRX-03", Device.abort)
def abort_posts_the_first(self: Device, queue: Queue, requests: Sequence[SendRequest]) -> int:
    """ibv_wr_abort leaves the first request on the queue, silently."""
    return plain(self).complete_batch(queue, [(requests[0]._replace(flags=0), None)])


@violates("WRX-04", Device.post_batch)
def failed_in_the_middle(self: Device, queue: Queue, requests: Sequence[SendRequest], built: Callable[[], bool]) -> int:
    """A posting that fails has carried out its first request."""
    if self.batch_fault(queue, requests):
        plain(self).complete_batch(queue, [(requests[0]._replace(flags=requests[0].flags & ~SIGNALED), None)])
    return plain(self).post_batch(queue, requests, built)


@violates("WRX-04", Device.post_batch)
def dropped_with_success(self: Device, queue: Queue, requests: Sequence[SendRequest], built: Callable[[], bool]) -> int:
    """A posting that cannot be carried out is dropped, and ibv_wr_complete returns 0."""
    return 0 if self.batch_fault(queue, requests) else plain(self).post_batch(queue, requests, built)


@violates("WRX-05", Device.set_inline)
def inline_data_by_reference(self: Device, queue: Queue, request: SendRequest) -> bytes | None:
    """Inline setters keep the address of the data, which are read when the request is carried out."""
    return None


@violates("WRX-06", Device.complete_batch)
def bound_to_the_next_key(self: Device, queue: Queue, requests: Copied) -> int:
    """ibv_wr_bind_mw gives the window the key after the one that was asked for."""
    return plain(self).complete_batch(
        queue, [(each._replace(rkey=each.rkey + 1) if each.bind else each, data) for each, data in requests]
    )


@violates("WRX-06", Device.complete_batch)
def local_invalidation_dropped(self: Device, queue: Queue, requests: Copied) -> int:
    """ibv_wr_local_inv is dropped with success."""
    return plain(self).complete_batch(
        queue, [(_nothing(each) if each.opcode == "LOCAL_INV" else each, data) for each, data in requests]
    )


def _nothing(request: SendRequest) -> SendRequest:
    return request._replace(opcode="RDMA_WRITE")


@violates("WRX-07", Device.complete_batch)
def sent_without_invalidation(self: Device, queue: Queue, requests: Copied) -> int:
    """ibv_wr_send_inv sends, and invalidates nothing."""
    return plain(self).complete_batch(
        queue,
        [(each._replace(opcode="SEND") if each.opcode == "SEND_WITH_INV" else each, data) for each, data in requests],
    )


@violates("WRX-08", Device.complete_batch)
def lost_behind_another_kind(self: Device, queue: Queue, requests: Copied) -> int:
    """A posting by builders on a queue that ibv_post_send has used is lost."""
    return 0 if queue.polled else plain(self).complete_batch(queue, requests)


@violates("REG-30", Device.set_inline)
def plain_inline_needs_a_key(self: Device, queue: Queue, request: SendRequest) -> bytes | None:
    """What ibv_post_send sends inline is read by its lkey."""
    return plain(self).set_inline(queue, request) if queue.extended else None
