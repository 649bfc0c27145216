"""ibv_advise_mr(3): advice to the kernel about the use of on-demand regions."""

import errno

from conformance.verbs.types import ArgumentSpec, Convention, Linkage, Parameter, ReturnCode, Verb


def _code(name: str, *causes: str) -> ReturnCode:
    return ReturnCode(name, getattr(errno, name), causes)


ADVISE_MR = Verb(
    name="ibv_advise_mr",
    summary="Advise the kernel about address ranges of on-demand regions.",
    returns="int",
    parameters=(
        Parameter("pd", "struct ibv_pd *", "The protection domain of the regions."),
        Parameter(
            "advice",
            "enum ibv_advise_mr_advice",
            "The advice for the ranges.",
            enum="ibv_advise_mr_advice",
            discrepancy="a printed listing has enum ib_uverbs_advise_mr_advice; the IBV name is a macro for this name",
        ),
        Parameter("flags", "uint32_t", "Flags: 0 or FLUSH.", enum="ibv_advise_mr_flag", allowed=("FLUSH",), default=""),
        Parameter("sg_list", "struct ibv_sge *", "The ranges; each lkey must be the lkey of an ON_DEMAND region."),
        Parameter("num_sge", "uint32_t", "The number of ranges in sg_list.", unit="elements", implied=True),
    ),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; with FLUSH the device has the pages, without FLUSH it may get them later.",
    failure="The value of errno, which is the reason.",
    document="ibv_advise_mr(3)",
    linkage=Linkage.INLINE,
    command="ADVISE_MR",
    return_codes=(
        _code("EOPNOTSUPP", "the library or the provider does not have the verb"),
        _code("ENOSYS", "the library or the provider does not have the verb; old libraries return this code"),
        _code("ENOTSUP", "this advice is not supported"),
        _code(
            "EFAULT",
            "a range exceeds the bounds of its region, or part of the range is not mapped in the process",
            "an lkey is invalid, or its region lacks the necessary write access",
        ),
        _code(
            "EINVAL",
            "the protection domain is invalid",
            "a flag is invalid",
            "the address belongs to a window or another object that is not a region",
        ),
        _code(
            "EPERM",
            "a valid lkey is outside the caller's scope",
            "PREFETCH_WRITE names a region that was registered without write access",
        ),
        _code("ENOENT", "the lkeys are not those of the regions"),
        _code("ENOMEM", "memory ran out"),
    ),
    notes=(
        "Any range within an on-demand region may be prefetched, with PREFETCH and with PREFETCH_WRITE.",
        "Best effort: contents never change, and pages may be gone again before they are used.",
        "PREFETCH_NO_FAULT gives the device only pages that are present, and causes no page faults.",
    ),
    discrepancies=(
        "The page distinguishes ENOTSUP from EOPNOTSUPP; on Linux they are the same number.",
        "In one place, the page has IBV_ADVISE_OP_PREFETCH, which no header defines, for the PREFETCH advice.",
        "Missing write access causes EFAULT in one sentence of the page and EPERM in another.",
    ),
    since="22",
    only_in_tables=(
        Parameter(
            "pd_handle",
            "uint32_t",
            "The handle in the PD's structure at the time of the call.",
            table=ArgumentSpec("word", "handle", "own", words=("own", "invented")),
        ),
    ),
)
