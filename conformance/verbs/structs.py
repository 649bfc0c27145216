"""The structs in the arguments and results of the memory-region verbs, with fields in the order of their offsets.

The types come from the manual pages and verbs.h. Printed listings of the API have the same fields, but `int length`
instead of size_t; these fields have a `discrepancy`.
"""

from conformance.verbs.types import EXPERIMENTAL, Field, Struct

F = Field

SIZE_T_AS_INT = "a printed listing of the API has int; the manual page and the header say size_t"

# verbs.h keeps these slots for old binaries; libibverbs does not use them.
_OLD = "slot kept for old binaries, never called"

DEVICE_OPS = Struct(
    "_ibv_device_ops",
    "Two obsolete slots of a device.",
    (
        F("_dummy1", "struct ibv_context *(*)(struct ibv_device *, int)", _OLD),
        F("_dummy2", "void (*)(struct ibv_context *)", _OLD),
    ),
)

DEVICE = Struct(
    "ibv_device",
    "An RDMA device of the host, as ibv_get_device_list lists it.",
    (
        F("_ops", "struct _ibv_device_ops", "obsolete slots"),
        F("node_type", "enum ibv_node_type", "kind of node", enum="ibv_node_type"),
        F("transport_type", "enum ibv_transport_type", "transport of the device", enum="ibv_transport_type"),
        F("name", "char[64]", "kernel name of the device, as in rxe0"),
        F("dev_name", "char[64]", "name of its uverbs device, as in uverbs0"),
        F("dev_path", "char[256]", "sysfs path of the uverbs device"),
        F("ibdev_path", "char[256]", "sysfs path of the RDMA device"),
    ),
)


def _old(*names: str) -> tuple[Field, ...]:
    return tuple(F(f"_compat_{name}", "void *(*)(void)", _OLD) for name in names)


CONTEXT_OPS = Struct(
    "ibv_context_ops",
    "The provider's functions, which the inline verbs call.",
    (
        F("_compat_query_device", "int (*)(struct ibv_context *, struct ibv_device_attr *)", _OLD),
        F("_compat_query_port", "int (*)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *)", _OLD),
        *_old("alloc_pd", "dealloc_pd", "reg_mr", "rereg_mr", "dereg_mr"),
        F("alloc_mw", "struct ibv_mw *(*)(struct ibv_pd *, enum ibv_mw_type)", "serves ibv_alloc_mw"),
        F("bind_mw", "int (*)(struct ibv_qp *, struct ibv_mw *, struct ibv_mw_bind *)", "serves ibv_bind_mw"),
        F("dealloc_mw", "int (*)(struct ibv_mw *)", "serves ibv_dealloc_mw"),
        *_old("create_cq"),
        F("poll_cq", "int (*)(struct ibv_cq *, int, struct ibv_wc *)", "serves ibv_poll_cq"),
        F("req_notify_cq", "int (*)(struct ibv_cq *, int)", "serves ibv_req_notify_cq"),
        *_old("cq_event", "resize_cq", "destroy_cq", "create_srq", "modify_srq", "query_srq", "destroy_srq"),
        F(
            "post_srq_recv",
            "int (*)(struct ibv_srq *, struct ibv_recv_wr *, struct ibv_recv_wr **)",
            "serves ibv_post_srq_recv",
        ),
        *_old("create_qp", "query_qp", "modify_qp", "destroy_qp"),
        F("post_send", "int (*)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **)", "serves ibv_post_send"),
        F("post_recv", "int (*)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **)", "serves ibv_post_recv"),
        *_old("create_ah", "destroy_ah", "attach_mcast", "detach_mcast", "async_event"),
    ),
)

CONTEXT = Struct(
    "ibv_context",
    "One opened device.",
    (
        F("device", "struct ibv_device *", "the device that was opened"),
        F("ops", "struct ibv_context_ops", "the provider's functions"),
        F("cmd_fd", "int", "file descriptor of the uverbs device, for commands"),
        F("async_fd", "int", "file descriptor that delivers asynchronous events"),
        F("num_comp_vectors", "int", "number of completion vectors"),
        F("mutex", "pthread_mutex_t", "the library's lock"),
        F("abi_compat", "void *", "marks a context that has extended functions"),
    ),
)

PD = Struct(
    "ibv_pd",
    "A protection domain: regions, windows and QPs work together only within one domain.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("handle", "uint32_t", "the kernel's handle of the object"),
    ),
)

MR = Struct(
    "ibv_mr",
    "A registered memory region.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("pd", "struct ibv_pd *", "its protection domain"),
        F("addr", "void *", "first byte, as the process sees it"),
        F("length", "size_t", "size in bytes", discrepancy=SIZE_T_AS_INT),
        F("handle", "uint32_t", "the kernel's handle of the object"),
        F("lkey", "uint32_t", "key for the SGEs of local work requests"),
        F("rkey", "uint32_t", "key for a peer's RDMA and atomic operations"),
    ),
)

MW = Struct(
    "ibv_mw",
    "A memory window: revocable remote access to part of a region.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("pd", "struct ibv_pd *", "its protection domain"),
        F("rkey", "uint32_t", "key for a peer's operations; each bind changes it"),
        F("handle", "uint32_t", "the kernel's handle of the object"),
        F("type", "enum ibv_mw_type", "type 1 or type 2", enum="ibv_mw_type"),
    ),
)

MW_BIND_INFO = Struct(
    "ibv_mw_bind_info",
    "The region, range and rights of a bind.",
    (
        F("mr", "struct ibv_mr *", "the region to which the window is bound"),
        F("addr", "uint64_t", "address at which the window starts"),
        F("length", "uint64_t", "size of the window in bytes"),
        F(
            "mw_access_flags",
            "unsigned int",
            "rights of the window, 0 or an OR of the flags allowed",
            enum="ibv_access_flags",
            allowed=("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "ZERO_BASED"),
        ),
    ),
)

MW_BIND = Struct(
    "ibv_mw_bind",
    "A request to bind a type 1 window.",
    (
        F("wr_id", "uint64_t", "the caller's number, returned in the completion"),
        F(
            "send_flags",
            "unsigned int",
            "properties of the request, 0 or an OR of the flags allowed",
            enum="ibv_send_flags",
            allowed=("FENCE", "SIGNALED"),
        ),
        F("bind_info", "struct ibv_mw_bind_info", "region, range and rights"),
    ),
)

SGE = Struct(
    "ibv_sge",
    "One element of a scatter/gather list.",
    (
        F("addr", "uint64_t", "start of the element: an address or, in a zero-based region, an offset"),
        F("length", "uint32_t", "size in bytes"),
        F("lkey", "uint32_t", "key of the region that contains the element"),
    ),
)

COMP_CHANNEL = Struct(
    "ibv_comp_channel",
    "A channel that delivers completion events.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("fd", "int", "file descriptor to wait on"),
        F("refcnt", "int", "number of CQs that use the channel"),
    ),
)

CQ = Struct(
    "ibv_cq",
    "A completion queue.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("channel", "struct ibv_comp_channel *", "the channel for the completion events, or NULL"),
        F("cq_context", "void *", "the caller's pointer"),
        F("handle", "uint32_t", "the kernel's handle of the object"),
        F("cqe", "int", "the number of completions that the CQ can hold"),
        F("mutex", "pthread_mutex_t", "the library's lock"),
        F("cond", "pthread_cond_t", "signalled when an event is acknowledged"),
        F("comp_events_completed", "uint32_t", "completion events acknowledged"),
        F("async_events_completed", "uint32_t", "asynchronous events acknowledged"),
    ),
)

SRQ = Struct(
    "ibv_srq",
    "A shared receive queue.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("srq_context", "void *", "the caller's pointer"),
        F("pd", "struct ibv_pd *", "its protection domain"),
        F("handle", "uint32_t", "the kernel's handle of the object"),
        F("mutex", "pthread_mutex_t", "the library's lock"),
        F("cond", "pthread_cond_t", "signalled when an event is acknowledged"),
        F("events_completed", "uint32_t", "asynchronous events acknowledged"),
    ),
)

QP = Struct(
    "ibv_qp",
    "A queue pair.",
    (
        F("context", "struct ibv_context *", "the opened device of the object"),
        F("qp_context", "void *", "the caller's pointer"),
        F("pd", "struct ibv_pd *", "its protection domain"),
        F("send_cq", "struct ibv_cq *", "the CQ for completions of sends and binds"),
        F("recv_cq", "struct ibv_cq *", "the CQ for completions of receives"),
        F("srq", "struct ibv_srq *", "the shared receive queue, or NULL"),
        F("handle", "uint32_t", "the kernel's handle of the object"),
        F("qp_num", "uint32_t", "the QP number on the wire"),
        F("state", "enum ibv_qp_state", "the state that the library last set", enum="ibv_qp_state"),
        F("qp_type", "enum ibv_qp_type", "its transport service", enum="ibv_qp_type"),
        F("mutex", "pthread_mutex_t", "the library's lock"),
        F("cond", "pthread_cond_t", "signalled when an event is acknowledged"),
        F("events_completed", "uint32_t", "asynchronous events acknowledged"),
    ),
)

# The vendor's page reserves the struct for the future and does not document its fields.
REREG_ATTR = Struct(
    "ibv_rereg_mr_attr",
    "Reserved for extensions of the vendor's ibv_rereg_mr; no field is documented.",
    (),
    dialect=EXPERIMENTAL,
)

ALL = (DEVICE_OPS, DEVICE, CONTEXT_OPS, CONTEXT, PD, MR, MW, MW_BIND_INFO, MW_BIND, SGE, COMP_CHANNEL, CQ, SRQ, QP)
