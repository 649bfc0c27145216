"""ibv_alloc_dmah(3): dma handles, which are arguments of ibv_reg_mr_ex."""

from conformance.verbs.types import Convention, Linkage, Parameter, Verb

DOCUMENT = "ibv_alloc_dmah(3)"

ALLOC_DMAH = Verb(
    name="ibv_alloc_dmah",
    summary="Allocate a dma handle.",
    returns="struct ibv_dmah *",
    parameters=(
        Parameter("context", "struct ibv_context *", "The open device.", implied=True),
        Parameter(
            "attr",
            "struct ibv_dmah_init_attr *",
            "What the handle refers to.",
            written_as=(
                Parameter("comp_mask", "uint32_t", "Which fields apply.", enum="ibv_dmah_init_attr_mask"),
                Parameter("cpu_id", "uint32_t", "The CPU.", default="0"),
                Parameter("ph", "uint8_t", "Processing hints of PCIe.", default="0"),
                Parameter("tph_mem_type", "uint8_t", "One of enum ibv_tph_mem_type.", default="0"),
            ),
        ),
    ),
    convention=Convention.POINTER_OR_NULL,
    success="A pointer to the handle.",
    failure="NULL.",
    document=DOCUMENT,
    linkage=Linkage.EXPORTED,
    since="59",
)

DEALLOC_DMAH = Verb(
    name="ibv_dealloc_dmah",
    summary="Deallocate a dma handle.",
    returns="int",
    parameters=(Parameter("dmah", "struct ibv_dmah *", "The handle."),),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the handle is gone.",
    failure="The value of errno, which is the reason.",
    document=DOCUMENT,
    linkage=Linkage.EXPORTED,
    since="59",
    destroys=True,
)

ALL = (ALLOC_DMAH, DEALLOC_DMAH)
