"""ibv_alloc_dm(3): memory of the device, copies to and from this memory, and its registration."""

from dataclasses import replace
from functools import partial

from conformance.verbs.made_otherwise import HANDLE
from conformance.verbs.types import ArgumentSpec, Convention, Linkage, Parameter, Verb

_verb = partial(Verb, document="ibv_alloc_dm(3)", linkage=Linkage.INLINE, since="18")
_DM = Parameter("dm", "struct ibv_dm *", "The device memory.")
_OFFSET = Parameter("dm_offset", "uint64_t", "The first byte in the device memory.", default="0")
_LENGTH = Parameter("length", "size_t", "The number of bytes.", unit="bytes", default="1 page")
_HOST = Parameter("host_addr", "void *", "The first byte in memory of the process.", default="buf.addr")
_NULL = "NULL; errno is the reason."
_REASON = "The reason."

ALLOC_DM = _verb(
    name="ibv_alloc_dm",
    summary="Allocate memory of the device.",
    returns="struct ibv_dm *",
    parameters=(
        Parameter("context", "struct ibv_context *", "The open device.", implied=True),
        Parameter(
            "attr",
            "struct ibv_alloc_dm_attr *",
            "The properties of the memory to allocate.",
            written_as=(
                _LENGTH,
                Parameter("log_align_req", "uint32_t", "Log base 2 of the alignment of its address.", default="0"),
            ),
        ),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="A pointer to the device memory.",
    failure=_NULL,
    notes=("May fail if the device has no more memory; max_dm_size is the maximum.",),
    only_in_tables=(
        Parameter(
            "more_than",
            "int",
            "A base to which the length is added: 0, or max_dm_size of the device.",
            table=ArgumentSpec("word", "bytes", "none", words=("none", "max_dm_size")),
        ),
    ),
)

FREE_DM = _verb(
    name="ibv_free_dm",
    summary="Free memory of the device.",
    returns="int",
    parameters=(_DM,),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the device memory is gone.",
    failure="The value of errno, which is the reason.",
    destroys=True,
    notes=("May fail if a region is still associated with it.",),
)

MEMCPY_TO_DM = _verb(
    name="ibv_memcpy_to_dm",
    summary="Copy from memory of the process to memory of the device.",
    returns="int",
    parameters=(_DM, _OFFSET, replace(_HOST, ctype="const void *"), _LENGTH),  # const in the header, not on the page
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the bytes are there.",
    failure=_REASON,
)

MEMCPY_FROM_DM = _verb(
    name="ibv_memcpy_from_dm",
    summary="Copy from memory of the device to memory of the process.",
    returns="int",
    parameters=(_HOST, _DM, _OFFSET, _LENGTH),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the bytes are there.",
    failure=_REASON,
    only_in_tables=(
        Parameter(
            "holds",
            "int",
            "The expected contents of the copied bytes: any, those of `fill`, those of a transfer, or zeros.",
            table=ArgumentSpec("word", "bytes", "any", words=("any", "filled", "pattern", "zeros")),
        ),
    ),
)

REG_DM_MR = _verb(
    name="ibv_reg_dm_mr",
    summary="Register a range of device memory as a region.",
    returns="struct ibv_mr *",
    parameters=(
        Parameter("pd", "struct ibv_pd *", "The protection domain of the region."),
        _DM,
        _OFFSET,
        _LENGTH,
        Parameter("access", "uint32_t", "The rights of the region; ZERO_BASED is required.", enum="ibv_access_flags"),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="A pointer to the region, whose keys take offsets from its first byte.",
    failure=_NULL,
)

IMPORT_DM = Verb(
    name="ibv_import_dm",
    summary="Get a second structure for device memory with a given handle.",
    returns="struct ibv_dm *",
    parameters=(
        Parameter("context", "struct ibv_context *", "The open device.", implied=True),
        Parameter(
            "dm_handle", "uint32_t", "The handle of device memory.", table=ArgumentSpec("object", "dm", "new_dm")
        ),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="A pointer to the device memory.",
    failure=_NULL,
    document="ibv_import_dm(3)",
    linkage=Linkage.EXPORTED,
    since="34",
    only_in_tables=(HANDLE,),
)

ALL = (ALLOC_DM, FREE_DM, MEMCPY_TO_DM, MEMCPY_FROM_DM, REG_DM_MR, IMPORT_DM)
