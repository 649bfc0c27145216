"""Defines a fault as data. A fault belongs to one call, one case, or one point of a sweep. judging/ creates a fault
from a case and its observation, results/ records it, and defects/ reads its fields. Only judging/sentences.py writes a
fault as a sentence, and no code parses that sentence."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Optional

from conformance.model.verdict import Verdict
from conformance.older_python import StrEnum, TypeAlias

# Pointers, and the values that a successful call returns.
_NO_CODES = ("", "0", "NULL", "MR", "MW")

# What a call that compares events reports of a failure that raises none.
NO_EVENT_OF_FAILURE = "no completion event of a failure"


class Effect(StrEnum):
    """The effect of a fault on the caller; the most severe first."""

    KERNEL_DIED = "kernel died"
    HUNG = "hung"
    MOVED = "moved"  # the request accessed bytes without the right to do so
    # a request transferred wrong bytes, or to a wrong place, or lost its bytes
    MISPLACED = "misplaced"
    PROCESS_DIED = "process died"
    ACCEPTED = "accepted"  # a call or request that must be refused succeeded
    REFUSED = "refused"  # a call or request that must succeed was refused
    KEPT = "kept"  # a resource that should have been released was not released
    # the kernel warned or became tainted, or AddressSanitizer reported a library, and both continued
    KERNEL_ALARM = "kernel complained"
    CODE = "code"  # a correct refusal with a wrong code
    STATUS = "status"  # a correct refusal with a wrong completion status
    REMARK = "remark"  # any other wrong report


class FaultKind(StrEnum):
    """The kinds of fault. Results files have the value of the member."""

    effect: Effect

    KERNEL_DIED = "kernel-died", Effect.KERNEL_DIED
    HUNG = "hung", Effect.HUNG
    NO_COMPLETION = "no-completion", Effect.HUNG  # a request had no completion by the deadline
    MOVED = "moved", Effect.MOVED  # a request that must be refused transferred bytes
    # bytes changed, but the request's bytes did not arrive
    CHANGED = ("changed-though-refused", Effect.MISPLACED)
    NOT_ARRIVED = "not-arrived", Effect.MISPLACED
    OTHER_ARRIVED = "other-arrived", Effect.MISPLACED
    ELSEWHERE = "elsewhere", Effect.MISPLACED  # bytes changed outside of the range
    # bytes changed outside of the requester's buffer
    BESIDE_BUFFER = ("beside-buffer", Effect.MISPLACED)
    LATE = "late", Effect.MISPLACED  # the completion was reported before the data
    # a report about kernel memory: KASAN, reference counts
    KERNEL_MEMORY = ("kernel-memory", Effect.KERNEL_ALARM)
    # a report of AddressSanitizer about libibverbs or its provider
    LIBRARY_MEMORY = ("library-memory", Effect.KERNEL_ALARM)
    PROCESS_DIED = "process-died", Effect.PROCESS_DIED
    ACCEPTED = "accepted", Effect.ACCEPTED
    FLUSHED = "flushed", Effect.ACCEPTED
    # the receiver has a completion of a message that must be refused
    ANNOUNCED = ("announced", Effect.ACCEPTED)
    # a request was executed although its posting had failed
    CARRIED_OUT = ("carried-out", Effect.ACCEPTED)
    REFUSED = "refused", Effect.REFUSED
    # a set-up was refused, and succeeded when repeated
    REFUSED_ONCE = ("refused-once", Effect.REFUSED)
    SET_UP_REFUSED = "set-up-refused", Effect.REFUSED  # a valid region of the set-up was refused
    # a capability that is declared or in the profile is missing
    NOT_PROVIDED = ("not-provided", Effect.REFUSED)
    LEAKED = "leaked", Effect.KEPT
    # memory of the kernel that belongs to no counted object
    MEMORY_LEAKED = ("memory-leaked", Effect.KEPT)
    WRONG_CODE = "wrong-code", Effect.CODE
    NO_CODE = "no-code", Effect.CODE
    NO_ERRNO = "no-errno", Effect.CODE  # the code is a number that is not a value of errno
    OTHER_ERRNO = "other-errno", Effect.CODE  # the returned value and errno differ
    VARYING_CODE = "varying-code", Effect.CODE
    WRONG_STATUS = "wrong-status", Effect.STATUS
    WRONG_PEER_STATUS = "wrong-peer-status", Effect.STATUS  # the peer's status for a refusal
    PEER_STATUS = "peer-status", Effect.STATUS  # the peer's status for a request that succeeded
    WRONG_ANSWER = "wrong-answer", Effect.STATUS  # to a packet: another NAK, or none
    WRONG_PACKET = "wrong-packet", Effect.REMARK  # a packet of the device has a wrong form
    NO_PACKET = "no-packet", Effect.REFUSED  # the device did not send a packet that it must send
    WRONG_STATE = "wrong-state", Effect.REMARK
    NO_EVENT = "no-event", Effect.REMARK  # a required asynchronous event was not reported
    SEVERAL_COMPLETIONS = "several-completions", Effect.REMARK
    UNASKED_COMPLETION = "unasked-completion", Effect.REMARK
    WRONG_OPCODE = "wrong-opcode", Effect.REMARK
    WRONG_WR_ID = "wrong-wr-id", Effect.REMARK
    WRONG_RKEY = "wrong-rkey", Effect.REMARK
    WRONG_LENGTH = "wrong-length", Effect.REMARK
    WRONG_IMMEDIATE = "wrong-immediate", Effect.REMARK
    WRONG_INVALIDATED_KEY = "wrong-invalidated-key", Effect.REMARK
    # the struct ibv_mr differs from the registration's arguments
    WRONG_STRUCTURE = ("wrong-structure", Effect.REMARK)
    # the header differs from the document, or the device from the reference
    DIFFERENT = ("different", Effect.REMARK)
    KERNEL_OOPSED = "kernel-oopsed", Effect.KERNEL_ALARM  # the kernel killed a task and continued
    KERNEL_WARNED = "kernel-warned", Effect.KERNEL_ALARM
    KERNEL_TAINTED = "kernel-tainted", Effect.KERNEL_ALARM
    OTHER = "other", Effect.REMARK  # a fault in an older results file, without a kind

    def __new__(cls, value: str, effect: Effect = Effect.REMARK) -> "FaultKind":
        member = str.__new__(cls, value)
        member._value_ = value
        member.effect = effect
        return member


# The kinds that a packet which a network has lost can cause alone: what must arrive does not.
OF_A_LOSS = frozenset(
    {
        FaultKind.NO_COMPLETION,
        FaultKind.NO_PACKET,
        FaultKind.NOT_ARRIVED,
        FaultKind.REFUSED,
        FaultKind.WRONG_ANSWER,
        FaultKind.WRONG_STATE,
        FaultKind.WRONG_STATUS,
    }
)


def verdict_of(kind: FaultKind) -> Verdict:
    if kind.effect is Effect.HUNG:
        return Verdict.HANG
    if kind.effect in (Effect.KERNEL_DIED, Effect.PROCESS_DIED):
        return Verdict.CRASH
    return Verdict.FAIL


@dataclass(frozen=True)
class Fault:
    """An error in one call or case, and its location. docs/results.md describes `seen`, whose form depends on the kind.
    WHAT has the names of the fields that describe the error."""

    kind: FaultKind
    call: str = ""  # the call that failed, with its arguments if they are known
    verb: str = ""  # the name of the call, which is the same at all entries
    entry: str = ""
    step: int = 0  # 0 for the judged call, or the number of the later step
    operation: str = ""  # the operation of traffic
    key: str = ""  # the kind of object whose key the operation used: "region" or "window"
    outside: bool = False  # the operation addressed bytes outside of the range of this object
    dead: bool = False  # this key was no longer valid
    ended: str = ""  # the call that had ended this key
    qp_type: str = ""  # the type of the queue pair to which the request was posted; empty for RC
    region: tuple[str, ...] = ()  # the special properties of the region (see REGIONS)
    access: tuple[str, ...] = ()  # the access flags of the call
    allowed_by: str = ""  # the call before this step whose refusal other rows judge
    check: str = (
        ""  # what a device must check here, if a rule's text demands several checks (see CHECKS)
    )
    changed: tuple[str, ...] = ()  # the flags of the last re-registration of the region
    decides: str = ""  # what this re-registration has changed for the request (see DECISIONS)
    used: bool = False  # the case uses the region after its registration
    layer: str = ""  # the layer that returned the result
    returned: str = ""
    errno: str = ""
    statuses: Optional[tuple[str, ...]] = None  # None without a request
    tries: int = 1
    nothing_arrived: bool = False
    expected: tuple[str, ...] = ()  # what the document permits
    seen: tuple[str, ...] = ()  # what was observed: names, numbers or kernel lines
    # the kernel's location: the function, its caller, and the module of each
    site: tuple[str, ...] = ()

    @property
    def later(self) -> bool:
        """Whether the call is a step after the judged call."""
        return self.step > 0

    @property
    def ended_by(self) -> str:
        """The signal or the exit status with which a process exited; empty if unknown."""
        if self.effect is Effect.PROCESS_DIED and len(self.seen) > 1:
            return self.seen[1]
        return ""

    @property
    def effect(self) -> Effect:
        return self.kind.effect

    @property
    def answer(self) -> str:
        """The errno, code or status that was returned; empty if only a pointer, 0 or nothing was returned."""
        if self.effect is Effect.STATUS:
            if self.seen:
                return self.seen[0]
            return ""
        statuses = self.statuses or ()
        statuses_here = (*statuses[:1], self.errno, self.returned)
        return next(
            (
                status
                for status in statuses_here
                if status not in _NO_CODES and status[:1].isalpha()
            ),
            "",
        )

    def as_data(self) -> "FaultData":
        data: FaultData = {"kind": self.kind.value}
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value != field.default:
                data[field.name] = list(value) if isinstance(value, tuple) else value
        return data

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "Fault":
        """Returns the fault that `data` describe (see FaultData). Raises ValueError for an unknown kind."""
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in data.items()
            if name in names and value is not None
        }
        return cls(**{**values, "kind": FaultKind(data["kind"])})


# A fault in a results file: the fields of Fault whose values are not the defaults.
FaultData: TypeAlias = Annotated[dict[str, Any], Fault]
# The fields of a fault that describe the error; the other fields describe its location.
WHAT = (
    "kind verb step layer returned errno statuses tries nothing_arrived expected seen site".split()
)
# The special properties of a region, in the order in which they are named.
ON_DEMAND, OWN_ADDRESSES, PERSISTENT, HUGE, NEWER_COMMAND = (
    "on demand",
    "addresses of its own",
    "persistent memory",
    "huge pages",
    "newer command REG_MR",  # the kernel's UVERBS_METHOD_REG_MR has registered the region
)
REGIONS = (ON_DEMAND, OWN_ADDRESSES, PERSISTENT, HUGE, NEWER_COMMAND)
# What a re-registration decides about a request: whether it is permitted before, and not afterwards, or the reverse.
OF_DOMAIN, OF_RANGE, OF_RIGHTS = DECISIONS = ("domain", "range", "rights")
REGION, WINDOW = "region", "window"
# Checks of one rule that a device makes apart.
QUEUE_DOMAIN, UNSENT, ANSWER_FORM, PACKET_LENGTHS, REPEATED, PSN_ALONE, ICRC = CHECKS = (
    "queue pair of another PD than the window",  # of a bind; without this word, the domain of the region
    "an answer to a request that was not sent",
    "an answer that is reserved or out of order",
    "a response whose packets do not fill the path MTU",
    "a repeated request",
    "a request that repeats only a PSN",
    "the ICRC of the specification",
)
