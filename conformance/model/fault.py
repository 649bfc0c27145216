"""A fault as data: of one call, of one case, or of one point of a sweep.

Judging makes it from case and observation, results record it, defects read its fields; judging/sentences.py is the one
place that makes a sentence of it; no code parses that sentence. Not for verdicts, nor for severity
(defects/severity.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, TypedDict

from conformance.model.verdict import Verdict

# Pointers, and the values that a successful call returns.
_NO_ANSWERS = ("", "0", "NULL", "MR", "MW")


class Effect(StrEnum):
    """The effect of a fault on the caller; the most severe first."""

    KERNEL_DIED = "kernel died"
    HUNG = "hung"
    MOVED = "moved"  # bytes that the request had no right to
    MISPLACED = "misplaced"  # a request that succeeded brought other bytes, or brought them elsewhere
    PROCESS_DIED = "process died"
    ACCEPTED = "accepted"  # what must be refused
    REFUSED = "refused"  # what must be done
    KEPT = "kept"  # what should be released is still held
    KERNEL_ALARM = "kernel complained"  # it warned or became tainted, and went on
    CODE = "code"  # refused as it should be, with another code
    STATUS = "status"  # refused as it should be, with another status of its completion
    REMARK = "remark"  # anything else that is reported wrongly


class FaultKind(StrEnum):
    """The kinds of fault. The value stands in results files."""

    effect: Effect

    KERNEL_DIED = "kernel-died", Effect.KERNEL_DIED
    HUNG = "hung", Effect.HUNG
    NO_COMPLETION = "no-completion", Effect.HUNG  # of a request, by the deadline
    MOVED = "moved", Effect.MOVED  # bytes of a request that must be refused
    CHANGED = "changed-though-refused", Effect.MISPLACED  # bytes changed that the refused request did not carry
    NOT_ARRIVED = "not-arrived", Effect.MISPLACED
    OTHER_ARRIVED = "other-arrived", Effect.MISPLACED
    ELSEWHERE = "elsewhere", Effect.MISPLACED  # bytes changed outside of the range
    BESIDE_BUFFER = "beside-buffer", Effect.MISPLACED  # bytes changed outside of the buffer of the other side
    LATE = "late", Effect.MISPLACED  # the completion came before the data
    KERNEL_MEMORY = "kernel-memory", Effect.KERNEL_ALARM  # its memory is in doubt: KASAN, reference counts
    PROCESS_DIED = "process-died", Effect.PROCESS_DIED
    ACCEPTED = "accepted", Effect.ACCEPTED
    FLUSHED = "flushed", Effect.ACCEPTED
    ANNOUNCED = "announced", Effect.ACCEPTED  # the receiver got a completion of a message that must be refused
    CARRIED_OUT = "carried-out", Effect.ACCEPTED  # a request whose posting had failed
    REFUSED = "refused", Effect.REFUSED
    REFUSED_ONCE = "refused-once", Effect.REFUSED  # a set-up, which was done when it was made again
    NOT_PROVIDED = "not-provided", Effect.REFUSED  # declared, or in the profile, and not there
    LEAKED = "leaked", Effect.KEPT
    WRONG_CODE = "wrong-code", Effect.CODE
    NO_CODE = "no-code", Effect.CODE
    NO_ERRNO = "no-errno", Effect.CODE  # the code is a number that is not a value of errno
    OTHER_ERRNO = "other-errno", Effect.CODE  # the value returned, and errno differ
    VARYING_CODE = "varying-code", Effect.CODE
    WRONG_STATUS = "wrong-status", Effect.STATUS
    WRONG_PEER_STATUS = "wrong-peer-status", Effect.STATUS  # a refusal, at the side that did not post the request
    PEER_STATUS = "peer-status", Effect.STATUS  # reported by the other side for a request that succeeded
    WRONG_STATE = "wrong-state", Effect.REMARK
    NO_EVENT = "no-event", Effect.REMARK  # an asynchronous event that should have come
    SEVERAL_COMPLETIONS = "several-completions", Effect.REMARK
    UNASKED_COMPLETION = "unasked-completion", Effect.REMARK
    WRONG_OPCODE = "wrong-opcode", Effect.REMARK
    WRONG_WR_ID = "wrong-wr-id", Effect.REMARK
    WRONG_RKEY = "wrong-rkey", Effect.REMARK
    WRONG_LENGTH = "wrong-length", Effect.REMARK
    WRONG_IMMEDIATE = "wrong-immediate", Effect.REMARK
    WRONG_INVALIDATED_KEY = "wrong-invalidated-key", Effect.REMARK
    WRONG_STRUCTURE = "wrong-structure", Effect.REMARK  # the struct of a region differs from what was asked
    DIFFERENT = "different", Effect.REMARK  # the installed header from the document, or a device from the reference
    KERNEL_OOPSED = "kernel-oopsed", Effect.KERNEL_ALARM  # it killed a task and went on
    KERNEL_WARNED = "kernel-warned", Effect.KERNEL_ALARM
    KERNEL_TAINTED = "kernel-tainted", Effect.KERNEL_ALARM
    OTHER = "other", Effect.REMARK  # of an older results file without the kind

    def __new__(cls, value: str, effect: Effect = Effect.REMARK) -> "FaultKind":
        member = str.__new__(cls, value)
        member._value_ = value
        member.effect = effect
        return member


# The verdict that a fault gives, where it is not FAIL.
_VERDICTS: Mapping[FaultKind, Verdict] = {
    FaultKind.KERNEL_DIED: Verdict.CRASH,
    FaultKind.PROCESS_DIED: Verdict.CRASH,
    FaultKind.HUNG: Verdict.HANG,
    FaultKind.NO_COMPLETION: Verdict.HANG,
}


def verdict_of(kind: FaultKind) -> Verdict:
    return _VERDICTS.get(kind, Verdict.FAIL)


class FaultData(TypedDict, total=False):
    """A fault as it stands in results files: the fields of Fault that are not empty."""

    kind: FaultKind
    call: str
    verb: str
    entry: str
    step: int
    operation: str
    key: str
    outside: bool
    dead: bool
    region: list[str]
    access: list[str]
    used: bool
    layer: str
    returned: str
    errno: str
    statuses: list[str] | None
    tries: int
    nothing_arrived: bool
    expected: list[str]
    seen: list[str]
    site: list[str]


@dataclass(frozen=True)
class Fault:
    """One thing that went wrong, and where.

    Where: `call` is the call that failed, with its arguments if they are known, `verb` its name, which is the same at
    both entries, `step` 0 for the judged call, and else the number of the step after it. `operation` is that of
    traffic; `key` whose key it used, "region" or "window"; `outside` whether it aimed outside of the key's range,
    `dead` whether the key's object was gone by then. `region` has what is special about the region (see REGIONS),
    `access` the access flags of the call, `used` says of a registration whether the case continues to use the region.
    `layer` answered.

    What: `returned`, `errno`, `statuses` (None without a request), `tries` and `nothing_arrived` are the answer;
    `expected` what the document allows of it, `seen` what came: names, numbers, and lines of the kernel, by the kind.
    For a report of the kernel's tools, such as KASAN, `seen` has its lines and frames. For a death or a hang, `seen`
    has the process or kernel that ended, the signal or status, the point or sequence reached, the kernel's first line
    about it, and the kernel's location; unknown values are empty. `site` is where the kernel was: the function, its
    caller, and the module of each.
    """

    kind: FaultKind
    call: str = ""
    verb: str = ""
    entry: str = ""
    step: int = 0
    operation: str = ""
    key: str = ""
    outside: bool = False
    dead: bool = False
    region: tuple[str, ...] = ()
    access: tuple[str, ...] = ()
    used: bool = False
    layer: str = ""
    returned: str = ""
    errno: str = ""
    statuses: tuple[str, ...] | None = None
    tries: int = 1
    nothing_arrived: bool = False
    expected: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    site: tuple[str, ...] = ()

    @property
    def later(self) -> bool:
        """Whether the call was made after the judged one."""
        return self.step > 0

    @property
    def ended_by(self) -> str:
        """The signal or the status with which a process ended; empty if it is not known."""
        return self.seen[1] if self.effect is Effect.PROCESS_DIED and len(self.seen) > 1 else ""

    @property
    def effect(self) -> Effect:
        return self.kind.effect

    @property
    def answer(self) -> str:
        """The errno, code or status that was the answer; empty if there was none, or only a pointer or 0."""
        if self.effect is Effect.STATUS:
            return self.seen[0] if self.seen else ""
        statuses = self.statuses or ()
        found = (*statuses[:1], self.errno, self.returned)
        return next((each for each in found if each not in _NO_ANSWERS and each[:1].isalpha()), "")

    def as_data(self) -> FaultData:
        data: dict[str, Any] = {"kind": self.kind.value}
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value != field.default:
                data[field.name] = list(value) if isinstance(value, tuple) else value
        return data  # type: ignore[return-value]

    @classmethod
    def of_data(cls, data: Mapping[str, Any]) -> "Fault":
        """The fault in a record of the right shape. Raises ValueError for an unknown kind."""
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in data.items()
            if name in known and value is not None
        }
        return cls(**{**values, "kind": FaultKind(data["kind"])})


# The fields that say what went wrong; the others say where.
WHAT = (
    "kind",
    "verb",
    "step",
    "layer",
    "returned",
    "errno",
    "statuses",
    "tries",
    "nothing_arrived",
    "expected",
    "seen",
    "site",
)
# The special properties of a region, in the order in which they are named.
ON_DEMAND, OWN_ADDRESSES, PERSISTENT, HUGE = "on demand", "addresses of its own", "persistent memory", "huge pages"
REGIONS = (ON_DEMAND, OWN_ADDRESSES, PERSISTENT, HUGE)
REGION, WINDOW = "region", "window"
