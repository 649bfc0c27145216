"""ibv_alloc_pd(3): deallocating a protection domain. Data only."""

from conformance.verbs.types import Convention, Linkage, Parameter, Verb

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

ALL = (DEALLOC_PD,)
