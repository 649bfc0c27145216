"""ibv_reg_mr(3): the verbs that register a memory region, and the verb that deregisters it."""

from functools import partial

from conformance.verbs.structs import SIZE_T_AS_INT
from conformance.verbs.types import ArgumentSpec, Convention, Linkage, Parameter, Verb

DOCUMENT = "ibv_reg_mr(3)"
INVENTED = "invented"  # in place of a dma handle, a pointer to memory that holds zeros

_PD = Parameter("pd", "struct ibv_pd *", "The protection domain that the region joins.")
_ADDR = Parameter(
    "addr", "void *", "The first byte of the region; 0 asks for an implicit ODP region.", default="buf.addr"
)
_LENGTH = Parameter(
    "length",
    "size_t",
    "The size of the region; SIZE_MAX asks for an implicit ODP region.",
    unit="bytes",
    discrepancy=SIZE_T_AS_INT,
    default="buf.size",
)
_ACCESS = Parameter("access", "int", "The rights of the region: 0 or an OR of access flags.", enum="ibv_access_flags")

_SUCCESS = "A pointer to the new region, whose lkey is for local SGEs and whose rkey is for peers."
_FAILURE = "NULL; by the page of recent releases, errno is the reason."
_RIGHTS = "REMOTE_WRITE and REMOTE_ATOMIC each require LOCAL_WRITE; local reading is always allowed."
_REASONS = "The page of older releases does not say that errno is set; that of rdma-core 65 does, and names EINVAL."

_registration = partial(
    Verb, returns="struct ibv_mr *", convention=Convention.POINTER_OR_NULL, success=_SUCCESS, document=DOCUMENT
)

REG_MR = _registration(
    name="ibv_reg_mr",
    summary="Register memory of the process as a region.",
    parameters=(_PD, _ADDR, _LENGTH, _ACCESS),
    failure=_FAILURE,
    linkage=Linkage.MACRO,
    command="REG_MR",
    notes=(
        _RIGHTS,
        "HUGETLB has an effect only together with ON_DEMAND in explicit mode; the caller must keep the pages huge.",
        "An implicit ODP region covers the address space: ON_DEMAND, addr 0 and length SIZE_MAX.",
        "RELAXED_ORDERING relaxes the order of writes, but a completion still means that all data is visible, "
        "receives match in order, and nothing overtakes an atomic.",
        "If the compiler cannot determine that access has no optional flag, the macro calls ibv_reg_mr_iova2.",
    ),
    discrepancies=(_REASONS,),
)

REG_MR_IOVA = _registration(
    name="ibv_reg_mr_iova",
    summary="Register memory of the process with an IOVA that the caller chooses.",
    parameters=(
        _PD,
        _ADDR,
        _LENGTH,
        Parameter(
            "hca_va",
            "uint64_t",
            "The address that lkey and rkey use for the region's first byte.",
            unit="address",
            discrepancy="the page calls it hca_va, the header iova",
            default="buf.addr",
        ),
        _ACCESS,
    ),
    failure=_FAILURE,
    linkage=Linkage.MACRO,
    command="REG_MR",
    notes=("An access at iova reaches addr + (iova - hca_va).", "hca_va 0 has the effect of ZERO_BASED.", _RIGHTS),
    discrepancies=(_REASONS,),
    since="25",
)

REG_DMABUF_MR = _registration(
    name="ibv_reg_dmabuf_mr",
    summary="Register part of a dma-buf as a region.",
    parameters=(
        _PD,
        Parameter("offset", "uint64_t", "Where in the dma-buf the region starts.", unit="bytes", default="0"),
        Parameter("length", "size_t", "The size of the region.", unit="bytes", default="dmabuf.size"),
        Parameter(
            "iova",
            "uint64_t",
            "The address that lkey and rkey use for the region's first byte; "
            "its offset within its page must be that of `offset`.",
            unit="address",
            default="0",
        ),
        Parameter("fd", "int", "The file descriptor of the dma-buf.", table=ArgumentSpec("object", "dmabuf", "dmabuf")),
        Parameter(
            "access",
            "int",
            "The rights of the region: 0 or an OR of the flags allowed.",
            enum="ibv_access_flags",
            allowed=("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "RELAXED_ORDERING"),
        ),
    ),
    failure=_FAILURE,
    linkage=Linkage.EXPORTED,
    command="REG_DMABUF_MR",
    notes=(_RIGHTS,),
    discrepancies=(_REASONS,),
    since="34",
)

REG_MR_EX = _registration(
    name="ibv_reg_mr_ex",
    summary="Register memory, or a part of a dma-buf or of a buffer, given by the fields that the mask selects.",
    parameters=(
        _PD,
        Parameter(
            "mr_init_attr",
            "struct ibv_mr_init_attr *",
            "What to register.",
            written_as=(
                Parameter("length", "size_t", "The size of the region.", default="buf.size"),
                Parameter("access", "int", "The rights of the region.", enum="ibv_access_flags"),
                Parameter("comp_mask", "uint64_t", "Which fields apply.", enum="ibv_mr_init_attr_mask"),
                Parameter("iova", "uint64_t", "Like hca_va of ibv_reg_mr_iova.", default="0"),
                Parameter("addr", "void *", "The first byte.", default="0"),
                Parameter("fd", "int", "A dma-buf.", table=ArgumentSpec("object", "dmabuf", "minus_one")),
                Parameter("fd_offset", "uint64_t", "Where in the dma-buf the region starts.", default="0"),
                Parameter("dmah", "struct ibv_dmah *", "A dma handle.", default="NULL", nullable=True),
                Parameter("buf", "struct ibv_buf *", "A buffer.", default="NULL", nullable=True),
            ),
        ),
    ),
    failure="NULL, and errno is the reason.",
    linkage=Linkage.EXPORTED,
    command="REG_MR",
    notes=("Exactly one of fd and addr is required.", _RIGHTS),
    since="59",
)

DEREG_MR = Verb(
    name="ibv_dereg_mr",
    summary="Deregister a region; its keys become invalid.",
    returns="int",
    parameters=(Parameter("mr", "struct ibv_mr *", "The region to deregister."),),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the region is gone.",
    failure="The value of errno, which is the reason.",
    document=DOCUMENT,
    linkage=Linkage.EXPORTED,
    command="DEREG_MR",
    notes=("Fails while a memory window is bound to the region.",),
    only_in_tables=(
        Parameter(
            "handle",
            "uint32_t",
            "The handle in the structure at the time of the call. own: the handle of the region; invented: a handle "
            "that the kernel has never assigned; stale: the handle of a deregistered region. imported, "
            "imported_elsewhere: the structure is that of an imported region, in this or in another process.",
            table=ArgumentSpec(
                "word", "handle", "own", words=("own", "invented", "stale", "imported", "imported_elsewhere")
            ),
        ),
    ),
)

ALL = (REG_MR, REG_MR_IOVA, REG_DMABUF_MR, REG_MR_EX, DEREG_MR)
