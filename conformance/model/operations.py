"""The operations that requests of a table carry out, the types of queue pair that carry them, and the ways to post them."""

from __future__ import annotations

from collections.abc import Mapping

# Calls that execute a single RDMA operation.
PROBES = ("traffic", "local_traffic")
# FLUSH_BOTH requests both placement types at once. The last two operations flush a whole region, not only the range.
SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
WRITES = ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
FLUSHES = (
    "FLUSH_GLOBAL",
    "FLUSH_PERSISTENT",
    "FLUSH_BOTH",
    "FLUSH_GLOBAL_MR",
    "FLUSH_PERSISTENT_MR",
)
REMOTE_OPERATIONS = (
    "RDMA_WRITE",
    "RDMA_WRITE_WITH_IMM",
    "RDMA_READ",
    "ATOMIC_CMP_AND_SWP",
    "ATOMIC_FETCH_AND_ADD",
    "ATOMIC_WRITE",
    # Atomics that return the value in memory and do not change it. The first two compare this value with a value that
    # differs in the lowest or in the highest bit; the last adds zero.
    "UNEQUAL_CMP_AND_SWP",
    "UPPER_UNEQUAL_CMP_AND_SWP",
    "ZERO_FETCH_AND_ADD",
    *FLUSHES,
)
_CARRIED: Mapping[str, tuple[str, ...]] = {
    "RC": REMOTE_OPERATIONS,
    "UC": ("RDMA_WRITE", "RDMA_WRITE_WITH_IMM"),
}


def carries(qp_type: str, operation: str) -> bool:
    """Whether a wire peer can send the packets of an operation to a queue pair of this type."""
    return operation in _CARRIED.get(qp_type, ())


# Accesses to a region by its lkey. SEND and WRITE read the region. RECV and the responses of READ and FETCH_AND_ADD
# write to the region.
LOCAL_OPERATIONS = ("SEND", "WRITE", "RECV", "RECV_WITH_IMM", "READ", "FETCH_AND_ADD")
LIST_OPERATIONS = ("SEND", "WRITE", "RECV", "READ")
COMPLETED_OPERATIONS = (
    *("SEND", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP"),
    *("ATOMIC_FETCH_AND_ADD", "BIND_MW", "LOCAL_INV", "RECV", "RECV_RDMA_WITH_IMM"),
)
# The messages whose receive raises an event, and the values of solicited_only of the requests for an event, in order.
MESSAGES = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE_WITH_IMM")
EVENTS_ASKED: Mapping[str, tuple[int, ...]] = {
    "any": (0,),
    "solicited": (1,),
    "any_then_solicited": (0, 1),
    "solicited_then_any": (1, 0),
}
# The completions that nobody has polled when an event is requested, and those that come after it and before the judged one.
STANDING: Mapping[str, tuple[str, int, int]] = {
    "nothing": ("receive", 0, 0),
    "a_receive": ("receive", 1, 0),
    "three_receives": ("receive", 3, 0),
    "a_receive_since": ("receive", 0, 1),
    "a_request": ("request", 1, 0),
    "three_requests": ("request", 3, 0),
}
# What becomes of the receive of a message: a WRITE of the peer with a key that has ended flushes it.
RECEIVES_NOTIFIED = ("filled", "too_short", "flushed")
# The requests that fail, of the peer or of the owner of the regions.
FAILING = ("WRITE_BY_ENDED_KEY", "LONG_SEND", "WRITE_FROM_ENDED_KEY", "BIND_MW", "LOCAL_INV")
# What is too much of a list: requests for the queue, elements of a request, or its bytes of inline data.
FULL, ELEMENTS, TOO_LONG_INLINE = "full", "elements", "inline"
ATOMICS_IN_ORDER = ("ATOMIC_FETCH_AND_ADD", "ATOMIC_CMP_AND_SWP")
IN_FLIGHT_OPERATIONS = ("RDMA_WRITE", "RDMA_READ", "ATOMIC_FETCH_AND_ADD")
# The types of queue pair that traffic can use. RC_SRQ is type RC with a shared receive queue.
TRAFFIC_TYPES = ("RC", "UC", "UD", "XRC", "RC_SRQ")
LIST_TYPES = ("RC", "RC_SRQ")
# The ways to post requests. On a queue pair for BATCHES, ibv_post_send and the builders can be used in turn.
WR_POST, WINDOWS_POSTER, BOTH_POSTERS = "wr_post", "wr_post_windows", "both"
BUILDERS = (WR_POST, WINDOWS_POSTER)
# The operation of a fault whose requests a builder of ibv_wr_post(3) posts, without and with inline data. Fingerprints
# contain these words; therefore they are permanent.
BUILT, BUILT_INLINE = "requests of ibv_wr_post", "requests of ibv_wr_post with inline data"
BUILT_LIST = "requests of ibv_wr_post with several elements"
POSTERS = {
    "post_send": "ibv_post_send",
    WR_POST: "ibv_wr_start, a builder with its setters, and ibv_wr_complete",
    WINDOWS_POSTER: "like wr_post, on a queue pair that is also created for binds and invalidations",
}
# Postings of several requests in one critical region of ibv_wr_start.
BATCHES = {
    "completed": "RDMA WRITEs, which must have no effect before ibv_wr_complete",
    "aborted": "RDMA WRITEs that ibv_wr_abort discards",
    "alternating": "requests that the builders and ibv_post_send post in turn",
    "reused": "one RDMA WRITE with inline data; its buffer is overwritten before ibv_wr_complete",
    "reused_list": "the same, with inline data of two buffers (ibv_wr_set_inline_data_list)",
    "reused_parts": "the same, with inline data of three buffers of different lengths",
    "too_many": "more requests than max_send_wr of the queue pair",
    "too_many_elements": "an RDMA WRITE, and another with more elements than max_send_sge of the queue pair",
    "after_failures": "two RDMA WRITEs, after a posting that was refused and one that was aborted",
    "empty_element": "two RDMA WRITEs of three elements each; the second element has length 0",
    "too_long_inline": "an RDMA WRITE, and another with more inline data than max_inline_data of the queue pair",
    "too_long_inline_list": "the same, with inline data of two buffers, of which each is shorter",
}
