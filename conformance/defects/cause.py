"""The cause of a symptom as far as it shows from outside, and the fingerprint by which a defect is known again.

A cause is derived from one result alone, never from the others of a run: so it does not depend on which cases ran, in
which order, and how often a defect showed itself. Two symptoms with equal causes are of one defect:

- A kernel that dies in a request does so in one function, whichever rule the request was to prove.
- Whatever reaches outside of a region passes one check of its bounds.
- Otherwise, beyond a registration, a region fails by what kind of region it is: on demand, or with addresses of its
  own. Whether its data come too late, elsewhere, not at all, or take the kernel down depends on what lies in memory.
- The kernel's core answers every driver's callers in the same way, and a wrong code or status is one line of code
  wherever it shows.
- A check that is missing is one for each rule, and so is a registration that is refused, because it has many parts that
  can be refused with the same errno.
- What is not supported is a feature, and each rule is about one.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from conformance.defects.fault import Fault
from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom, later_steps, verb_of
from conformance.model.vocabulary import BINDS, PROBES, REGISTRATIONS

REGISTRATION, BIND, INVALIDATION, ACCESS = "registration", "bind", "invalidation", "access"
_GROUPS: Mapping[str, str] = {
    **dict.fromkeys(REGISTRATIONS, REGISTRATION),
    **dict.fromkeys(BINDS, BIND),
    "bind_and_send": BIND,
    **dict.fromkeys(("post_local_inv", "post_send_with_inv"), INVALIDATION),
    **dict.fromkeys(
        (
            *PROBES,
            "list_traffic",
            "send_to_receive",
            "await_traffic",
            "receives_in_order",
            "immediates_in_order",
            "atomics_in_order",
            "regions_side_by_side",
        ),
        ACCESS,
    ),
}
_NOT_SUPPORTED = ("EOPNOTSUPP", "ENOTSUP", "ENOSYS")
_CORE = "kernel core"
_CORE_SAID = "the kernel's RDMA core answered"
_SIGNAL = re.compile(r"died of (SIG[A-Z]+)")
_VARYING = re.compile(r"0x[0-9a-f]+|\d+")
_OPERATION = re.compile(r"\bop=(\w+)")
# The kinds of region beyond a plain one, by what tables call them.
ON_DEMAND, OWN_ADDRESSES, HUGE, PERSISTENT = "on demand", "addresses of its own", "huge pages", "persistent memory"
_KINDS = (
    (ON_DEMAND, re.compile(r"on[-_ ]demand", re.IGNORECASE)),
    (OWN_ADDRESSES, re.compile(r"zero[-_ ]based|\bhca_va=|^reg_mr_iova/", re.IGNORECASE)),
    (PERSISTENT, re.compile(r"^reg_mr/persistent_memory/")),
    (HUGE, re.compile(r"\bHUGETLB\b")),
)
_WINDOW_FOLDERS = ("bind_mw", "alloc_mw", "dealloc_mw")
_OUTSIDE = re.compile(
    r"outside|beyond|position=(before|after|across)|place=(before|after|across)|too[-_]long|byte[-_]before"
)
_DEAD_KEYS = re.compile(r"^dereg_mr/|\bdead|\bstale")


@dataclass(frozen=True)
class Cause:
    """What one change of the stack would mend, in words that stay the same from run to run."""

    key: tuple[str, ...]

    @cached_property
    def fingerprint(self) -> str:
        """12 hexadecimal digits."""
        return hashlib.sha256("\0".join(self.key).encode()).hexdigest()[:12]


def cause_of(symptom: Symptom) -> Cause:
    """The cause of a symptom."""
    return Cause(tuple(map(str, _key(symptom))))


def _key(symptom: Symptom) -> tuple[str, ...]:
    group, rule, fault = group_of(symptom.verb), sorted(symptom.rules or ("",))[0], symptom.fault
    if fault in (Fault.KERNEL_DIED, Fault.KERNEL_ALARM):
        return _of_kernel(symptom, group, rule)
    if fault is Fault.PROCESS_DIED:
        signal = _SIGNAL.search(symptom.line)
        return (fault, group, signal[1] if signal else rule)
    if from_core(symptom):
        return ("core", group, symptom.answer)
    if group == ACCESS and fault in (Fault.MOVED, Fault.ACCEPTED) and not is_window(symptom) and is_outside(symptom):
        return ("use", "outside of a region")
    if group == ACCESS and fault in (Fault.MOVED, Fault.MISPLACED, Fault.REFUSED):
        return _of_use(symptom, rule)
    if fault is Fault.STATUS:
        return (fault, symptom.answer)
    if fault is Fault.REMARK:
        return (fault, group, _VARYING.sub("#", symptom.line.replace(symptom.call, "", 1)))
    errno = symptom.answer if symptom.answer.startswith("E") else ""
    if errno and (fault is Fault.CODE or (fault is Fault.REFUSED and _is_one_line(group, errno))):
        return ("answered", group, errno)
    return (fault, group, errno, rule)


def group_of(verb: str) -> str:
    """What a verb does, for verbs that differ only in their interface; else the verb."""
    return _GROUPS.get(verb, verb)


def from_core(symptom: Symptom) -> bool:
    """Whether the kernel's RDMA core gave the answer, which every driver's callers get."""
    judged = symptom.call == symptom.judged and symptom.record["layer"] == _CORE
    return _CORE_SAID in symptom.line or (judged and symptom.fault in (Fault.REFUSED, Fault.CODE))


def kind_of_region(symptom: Symptom) -> str:
    """What kind of region a symptom is about, as its case and point say; empty for a plain one."""
    words = (symptom.case, symptom.judged, symptom.call, symptom.clause, symptom.when, *symptom.smallest.values())
    return ", ".join(kind for kind, pattern in _KINDS if any(map(pattern.search, words)))


def is_window(symptom: Symptom) -> bool:
    """Whether the memory is reached through a window."""
    return symptom.case.partition("/")[0] in _WINDOW_FOLDERS or "window" in symptom.case


def is_outside(symptom: Symptom) -> bool:
    """Whether the memory that was reached lies outside of a region or window."""
    place = symptom.smallest.get("place") or symptom.smallest.get("position") or ""
    words = (symptom.case, symptom.call, symptom.clause, f"place={place}")
    return any(map(_OUTSIDE.search, words))


def _is_one_line(group: str, errno: str) -> bool:
    return group != REGISTRATION and errno not in _NOT_SUPPORTED


def _of_kernel(symptom: Symptom, group: str, rule: str) -> tuple[str, ...]:
    """A registration itself seldom kills a kernel: the use of the region does, if the case goes on to use it."""
    later = later_steps(symptom.record["expected"])
    used = any(group_of(verb_of(str(each.get("call", "")))) == ACCESS for each in later)
    if symptom.fault is Fault.KERNEL_DIED and group == REGISTRATION and used:
        return _of_use(symptom, rule)
    site = site_of(symptom.record)
    return ("kernel", *site.lasting) if site else ("kernel", group, rule)


def _of_use(symptom: Symptom, rule: str) -> tuple[str, ...]:
    if is_window(symptom):
        return ("use", "window", rule)
    kind = kind_of_region(symptom)
    if kind:
        return ("use", "region", kind)
    if any(map(_DEAD_KEYS.search, (symptom.case, symptom.call))):
        return ("use", "dead key")
    operation = _OPERATION.search(symptom.call)
    return ("use", "region", symptom.fault, operation[1] if operation else symptom.smallest.get("op", ""))
