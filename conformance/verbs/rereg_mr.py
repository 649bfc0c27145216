"""ibv_rereg_mr in both dialects: the verb of the manual page, and a vendor's experimental verb."""

from conformance.verbs.enums import REREG_CODES
from conformance.verbs.structs import SIZE_T_AS_INT
from conformance.verbs.types import EXPERIMENTAL, Convention, Linkage, Parameter, ReturnCode, Verb

OLD_VALID = "old MR valid"
NEW_VALID = "new MR valid"
UNUSABLE = "MR unusable"

_CHANGES = ("CHANGE_TRANSLATION", "CHANGE_PD", "CHANGE_ACCESS")
_MR = Parameter("mr", "struct ibv_mr *", "The region to change.")
_FLAGS = Parameter(
    "flags",
    "int",
    "Which properties to change: an OR of the flags allowed.",
    enum="ibv_rereg_mr_flags",
    allowed=_CHANGES,
)


def _code(short: str, cause: str, leaves: str) -> ReturnCode:
    name = REREG_CODES.prefix + short
    return ReturnCode(name, REREG_CODES.value_of(name), (cause,), leaves)


REREG_MR = Verb(
    name="ibv_rereg_mr",
    summary="Change the range, protection domain or rights of a region in one call.",
    returns="int",
    parameters=(
        _MR,
        _FLAGS,
        Parameter(
            "pd", "struct ibv_pd *", "With CHANGE_PD, the protection domain to move to.", default="NULL", nullable=True
        ),
        Parameter("addr", "void *", "With CHANGE_TRANSLATION, the new first byte in the process.", default="0"),
        Parameter(
            "length",
            "size_t",
            "With CHANGE_TRANSLATION, the new size.",
            unit="bytes",
            discrepancy=SIZE_T_AS_INT,
            default="0",
        ),
        Parameter("access", "int", "The new rights: 0 or an OR of access flags.", enum="ibv_access_flags", default=""),
    ),
    convention=Convention.ZERO_OR_CODE,
    success="0; the region has its new properties.",
    failure="A negative code, which says whether the region is still usable.",
    document="ibv_rereg_mr(3)",
    linkage=Linkage.EXPORTED,
    command="REREG_MR",
    code_enum="ibv_rereg_mr_err_code",
    return_codes=(
        _code("ERR_INPUT", "the library refused the arguments", OLD_VALID),
        _code("ERR_DONT_FORK_NEW", "the new range could not be marked as not copied on fork", OLD_VALID),
        _code("ERR_DO_FORK_OLD", "the old range could not again be marked as copied on fork", NEW_VALID),
        _code("ERR_CMD", "the command failed", UNUSABLE),
        _code(
            "ERR_CMD_AND_DO_FORK_NEW", "the command failed, and the new range is left in a wrong fork state", UNUSABLE
        ),
    ),
    notes=(
        "Works as a deregistration followed by a registration, reusing resources where possible.",
        "After any failure the region must still be deregistered with ibv_dereg_mr.",
    ),
    discrepancies=(
        "The vendor's dialect ignores an argument whose flag is not set; without CHANGE_ACCESS, the mainline library "
        "refuses an `access` other than 0, which its manual page does not mention.",
        "The vendor's dialect returns the value of errno; this manual page has five codes instead.",
    ),
)

EXPERIMENTAL_REREG_MR = Verb(
    name="ibv_rereg_mr",
    summary="Change the range, protection domain or rights of a region (a vendor's experimental verb).",
    returns="int",
    parameters=(
        _MR,
        _FLAGS,
        Parameter(
            "pd",
            "struct ibv_pd *",
            "With CHANGE_PD, the new protection domain; else ignored.",
            default="NULL",
            nullable=True,
        ),
        Parameter("addr", "void *", "With CHANGE_TRANSLATION, the new first byte; else ignored.", default="0"),
        Parameter(
            "length", "size_t", "With CHANGE_TRANSLATION, the new size; else ignored.", unit="bytes", default="0"
        ),
        Parameter(
            "access",
            "uint64_t",
            "With CHANGE_ACCESS, the new rights out of those allowed; else ignored.",
            enum="ibv_access_flags",
            allowed=("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "ALLOCATE_MR"),
            discrepancy="the page says 'one of' the flags, but several flags may be needed at once, as an OR",
            default="",
        ),
        Parameter("attr", "struct ibv_rereg_mr_attr *", "Reserved for extensions.", implied=True),
    ),
    convention=Convention.ZERO_OR_ERRNO,
    success="0; the region has its new properties.",
    failure="The value of errno; the region is undefined and ibv_dereg_mr releases it.",
    document="the vendor's page on memory region re-registration (2026-01-06)",
    linkage=Linkage.EXPORTED,
    notes=(
        "With ALLOCATE_MR, the library allocates the memory, contiguously if possible. No document gives the value of "
        "ALLOCATE_MR.",
        "A shared region that is given a new translation is no longer shared.",
        "A region on peer memory (PeerDirect) cannot be re-registered.",
    ),
    discrepancies=("In the mainline verb of this name, `access` is an int, and there is no `attr`.",),
    dialect=EXPERIMENTAL,
)
