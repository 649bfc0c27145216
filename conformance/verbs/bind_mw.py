"""ibv_bind_mw(3) and ibv_alloc_mw(3): allocating, binding and deallocating memory windows."""

from conformance.verbs.types import Convention, Linkage, Parameter, Verb

ALLOC_DOCUMENT = "ibv_alloc_mw(3)"

BIND_MW = Verb(
    name="ibv_bind_mw",
    summary="Post a request that binds a type 1 window to part of a region.",
    returns="int",
    parameters=(
        Parameter(
            "qp",
            "struct ibv_qp *",
            "The queue pair to post to, of type UC, RC or XRC_SEND.",
            enum="ibv_qp_type",
            allowed=("UC", "RC", "XRC_SEND"),
        ),
        Parameter("mw", "struct ibv_mw *", "The window, of type 1.", enum="ibv_mw_type", allowed=("1",)),
        Parameter(
            "mw_bind",
            "struct ibv_mw_bind *",
            "The request: region, range, rights and wr_id.",
            written_as=(
                Parameter("mr", "struct ibv_mr *", "The region.", nullable=True),
                Parameter("addr", "uint64_t", "The first byte of the window.", default="buf.addr"),
                Parameter("length", "uint64_t", "The size of the window.", default="buf.size"),
                Parameter("access", "unsigned int", "The rights of the window.", enum="ibv_access_flags"),
                Parameter("send_flags", "unsigned int", "The flags.", enum="ibv_send_flags", default="SIGNALED"),
            ),
        ),
    ),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the request is posted, and mw->rkey is the key that is valid once the bind completes.",
    failure="The value of errno, which is the reason; nothing was posted.",
    document="ibv_bind_mw(3)",
    linkage=Linkage.INLINE,
    notes=(
        "The completion has the outcome; after a failed completion the caller puts the old rkey back.",
        "A later send on the same queue pair is ordered after the bind and may carry the new rkey at once; "
        "before it sends the rkey in any other way, the caller waits for the completion.",
        "REMOTE_WRITE and REMOTE_ATOMIC on the window each require LOCAL_WRITE on the region.",
        "With ZERO_BASED, remote_addr counts bytes from the window's start.",
        "A window of type 2 is bound by a request posted with ibv_post_send, not by this verb.",
    ),
    discrepancies=(
        "By the page, the new key is in mw_bind->mw->rkey, but struct ibv_mw_bind has no mw; the key is in mw->rkey.",
    ),
)

ALLOC_MW = Verb(
    name="ibv_alloc_mw",
    summary="Allocate a memory window, not bound to anything yet.",
    returns="struct ibv_mw *",
    parameters=(
        Parameter("pd", "struct ibv_pd *", "The protection domain that the window joins."),
        Parameter("type", "enum ibv_mw_type", "The type of the window, 1 or 2.", enum="ibv_mw_type"),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="A pointer to the new window, whose rkey grants nothing until it is bound.",
    failure="NULL.",
    document=ALLOC_DOCUMENT,
    linkage=Linkage.INLINE,
    notes=(
        "Type 1 is bound by ibv_bind_mw, and unbound by binding length 0.",
        "Type 2 is bound by a posted request, and unbound by local or remote invalidation.",
        "Every bind changes the rkey.",
    ),
    discrepancies=(
        "The page does not say that errno is set; the header sets EOPNOTSUPP if the provider lacks the verb.",
    ),
)

DEALLOC_MW = Verb(
    name="ibv_dealloc_mw",
    summary="Deallocate a window, unbinding it first if it is bound.",
    returns="int",
    parameters=(Parameter("mw", "struct ibv_mw *", "The window to deallocate."),),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the window is gone.",
    failure="The value of errno, which is the reason.",
    document=ALLOC_DOCUMENT,
    linkage=Linkage.INLINE,
)

ALL = (BIND_MW, ALLOC_MW, DEALLOC_MW)
