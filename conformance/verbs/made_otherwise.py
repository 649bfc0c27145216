"""Null regions, imports, parent and thread domains, and the deallocation of a domain."""

from functools import partial

from conformance.verbs.types import ArgumentSpec, Convention, Linkage, Parameter, Verb

_CONTEXT = Parameter("context", "struct ibv_context *", "The open device.", implied=True)
_made = partial(Verb, convention=Convention.POINTER_OR_NULL, failure="NULL; errno is the reason.")
HANDLE = Parameter(
    "handle",
    "uint32_t",
    "The object's own handle, or one that the kernel has never assigned.",
    table=ArgumentSpec("word", "handle", "own", words=("own", "invented")),
)

ALLOC_NULL_MR = _made(
    name="ibv_alloc_null_mr",
    summary="Allocate a region that discards written data and reads as zeros.",
    returns="struct ibv_mr *",
    parameters=(Parameter("pd", "struct ibv_pd *", "The protection domain of the region."),),
    success="A pointer to the region, of which only the lkey is valid.",
    document="ibv_alloc_null_mr(3)",
    linkage=Linkage.INLINE,
    notes=("The region has the maximum length.", "ibv_rereg_mr and ibv_bind_mw may not be called with the region."),
)

IMPORT_MR = _made(
    name="ibv_import_mr",
    summary="Get a second structure for the region with a given handle.",
    returns="struct ibv_mr *",
    parameters=(
        Parameter("pd", "struct ibv_pd *", "A protection domain of the context that the region is in."),
        Parameter("mr_handle", "uint32_t", "The handle of a region.", table=ArgumentSpec("object", "mr", "mr")),
    ),
    success="A pointer to a region whose addr is NULL.",
    document="ibv_import_mr(3)",
    linkage=Linkage.EXPORTED,
    since="30",
    only_in_tables=(HANDLE,),
)

IMPORT_PD = _made(
    name="ibv_import_pd",
    summary="Get a second structure for the protection domain with a given handle.",
    returns="struct ibv_pd *",
    parameters=(
        _CONTEXT,
        Parameter("pd_handle", "uint32_t", "The handle of a domain.", table=ArgumentSpec("object", "pd", "pd")),
    ),
    success="A pointer to the domain.",
    document="ibv_import_pd(3)",
    linkage=Linkage.EXPORTED,
    since="30",
)

ALLOC_PARENT_DOMAIN = _made(
    name="ibv_alloc_parent_domain",
    summary="Allocate a parent domain, which stands for a protection domain.",
    returns="struct ibv_pd *",
    parameters=(
        _CONTEXT,
        Parameter(
            "attr",
            "struct ibv_parent_domain_init_attr *",
            "The protection domain, and the thread domain to be added; tables cannot give allocators.",
            written_as=(
                Parameter("pd", "struct ibv_pd *", "The domain; it cannot be NULL.", nullable=True),
                Parameter("td", "struct ibv_td *", "A thread domain.", default="NULL", nullable=True),
                Parameter(
                    "comp_mask", "uint32_t", "Optional fields.", enum="ibv_parent_domain_init_attr_mask", default=""
                ),
            ),
        ),
    ),
    success="A pointer to the parent domain.",
    document="ibv_alloc_parent_domain(3)",
    linkage=Linkage.INLINE,
)

ALLOC_TD = _made(
    name="ibv_alloc_td",
    summary="Allocate a thread domain, for use in a parent domain.",
    returns="struct ibv_td *",
    parameters=(
        _CONTEXT,
        Parameter("init_attr", "struct ibv_td_init_attr *", "Only a mask of optional fields.", implied=True),
    ),
    success="A pointer to the thread domain.",
    document="ibv_alloc_td(3)",
    linkage=Linkage.INLINE,
)

DEALLOC_TD = _made(
    name="ibv_dealloc_td",
    summary="Deallocate a thread domain.",
    returns="int",
    parameters=(Parameter("td", "struct ibv_td *", "The thread domain."),),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the thread domain is gone.",
    failure="The value of errno, which is the reason.",
    document="ibv_alloc_td(3)",
    linkage=Linkage.INLINE,
    destroys=True,
)

DEALLOC_PD = Verb(
    name="ibv_dealloc_pd",
    summary="Deallocate a protection domain.",
    returns="int",
    parameters=(Parameter("pd", "struct ibv_pd *", "The domain.", default="other"),),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the domain is gone.",
    failure="The value of errno, which is the reason.",
    document="ibv_alloc_pd(3)",
    linkage=Linkage.EXPORTED,
    destroys=True,
    notes=("May fail if any other resource is still associated with the domain.",),
)

# Verbs that make or destroy regions and domains, and that a stack may lack.
ALL = (ALLOC_NULL_MR, IMPORT_MR, IMPORT_PD, ALLOC_PARENT_DOMAIN, ALLOC_TD, DEALLOC_TD)
