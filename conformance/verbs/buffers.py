"""ibv_alloc_buf(3): buffers that a provider allocates, and their registration."""

from conformance.verbs.types import Convention, Linkage, Parameter, Verb

DOCUMENT = "ibv_alloc_buf(3)"
_BUF = Parameter("buf", "struct ibv_buf *", "The handle that ibv_alloc_buf returned.")

ALLOC_BUF = Verb(
    name="ibv_alloc_buf",
    summary="Allocate a buffer by the provider's method.",
    returns="void *",
    parameters=(
        Parameter("pd", "struct ibv_pd *", "The protection domain that the buffer belongs to."),
        Parameter("size", "size_t", "The size of the buffer.", unit="bytes", default="1 page"),
        Parameter("buf", "struct ibv_buf **", "Receives the handle.", implied=True),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="The mapped address of the buffer, and its handle.",
    failure="NULL.",
    document=DOCUMENT,
    linkage=Linkage.EXPORTED,
    since="64",
)

REG_BUF_MR = Verb(
    name="ibv_reg_buf_mr",
    summary="Register a range of a buffer that ibv_alloc_buf allocated as a region.",
    returns="struct ibv_mr *",
    parameters=(
        Parameter("pd", "struct ibv_pd *", "The protection domain that allocated the buffer."),
        _BUF,
        Parameter("addr", "void *", "The first byte of the region.", default="new_buffer.addr"),
        Parameter("length", "size_t", "The size of the region.", unit="bytes", default="new_buffer.size"),
        Parameter("access", "int", "The rights of the region, as for ibv_reg_mr.", enum="ibv_access_flags"),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="A pointer to the new region.",
    failure="NULL; errno is EINVAL if pd is another protection domain.",
    document=DOCUMENT,
    linkage=Linkage.EXPORTED,
    since="64",
    notes=("addr + length must stay within the buffer.", "For ordinary memory it behaves like ibv_reg_mr."),
)

EXPORT_BUF_DMABUF_FD = Verb(
    name="ibv_export_buf_dmabuf_fd",
    summary="Export a new descriptor of the dma-buf behind a buffer.",
    returns="int",
    parameters=(_BUF,),
    convention=Convention.FD_OR_MINUS_ONE,
    success="A descriptor, which the caller closes.",
    failure="-1; errno is ENODATA for a buffer that is not a dma-buf.",
    document=DOCUMENT,
    linkage=Linkage.EXPORTED,
    since="65",
)

ALL = (ALLOC_BUF, REG_BUF_MR, EXPORT_BUF_DMABUF_FD)
