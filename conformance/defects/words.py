"""A defect told in words, in one line. Not for its condition (condition.py)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from conformance.defects.cause import (
    ACCESS,
    BIND,
    INVALIDATION,
    REGISTRATION,
    group_of,
    is_outside,
    is_window,
    kind_of_region,
)
from conformance.defects.condition import Granted, absent_flags, common_flags, row_in_words
from conformance.defects.fault import Fault
from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom

Symptoms = Sequence[Symptom]

_WANTED = re.compile(r"should be refused with ([A-Z_ or]+?),|should fail with ([A-Z_ or]+?),")
_KEY = re.compile(r"0x[0-9a-f]+")
_SIGNAL = re.compile(r"died of (SIG[A-Z]+)")
_STATUS = re.compile(r"\bstatus \d+")
_NULL = re.compile(r"\b(\w+)=NULL")
_MOST_NAMES = 3
# Every group of several verbs.
_GROUPS = {REGISTRATION: "a registration", BIND: "a bind", INVALIDATION: "an invalidation", ACCESS: "an access"}


def title_of(symptoms: Symptoms, succeeded: Granted) -> str:
    """What is wrong, in one line. `symptoms` have one cause, the most severe first; `succeeded`: see `granted`."""
    fault = symptoms[0].fault
    if fault is Fault.REFUSED:
        return _refused(symptoms, succeeded)
    return _TITLES[fault](symptoms)


def _refused(symptoms: Symptoms, succeeded: Granted) -> str:
    answer = f" with {symptoms[0].answer}" if symptoms[0].answer else ""
    with_, without = common_flags(symptoms, succeeded), absent_flags(symptoms)
    if with_:
        return f"{_what(symptoms)} with {_names(with_)} is refused{answer}"
    if without:
        return f"{_what(symptoms)} is refused{answer} on regions without {_names(without)}"
    return f"{_what(symptoms)} is refused{answer}: {row_in_words(symptoms[0])}"


def _kernel_died(symptoms: Symptoms) -> str:
    first = symptoms[0]
    site, kind = site_of(first.record), kind_of_region(first)
    by = f"a region {_with(kind)}" if kind else first.verb
    return f"{by} kills the kernel" + (f" in {site}" if site else "")


def _kernel_alarm(symptoms: Symptoms) -> str:
    site = site_of(symptoms[0].record)
    return f"the kernel complains during {symptoms[0].verb}" + (f", in {site}" if site else "")


def _hung(symptoms: Symptoms) -> str:
    return f"{symptoms[0].verb} does not come back: {row_in_words(symptoms[0])}"


def _process_died(symptoms: Symptoms) -> str:
    first = symptoms[0]
    signal, status, null = _SIGNAL.search(first.line), _STATUS.search(first.line), _NULL.findall(first.call)
    end = f" by {signal[1]}" if signal else f" with {status[0]}" if status else ""
    return f"{first.verb}{f' with {_names(null)} NULL' if null else ''} ends the process{end}"


def _moved(symptoms: Symptoms) -> str:
    outside = any(map(is_outside, symptoms))
    if not is_window(symptoms[0]):
        where = "outside of it" if outside else "that it must not"
        return f"{_operations(symptoms)} through a key of {_region(symptoms)} moves bytes {where}"
    if outside:
        return "whatever a window's rights allow also reaches outside of it"
    return f"{_operations(symptoms)} through a window's key moves bytes that it must not"


def _misplaced(symptoms: Symptoms) -> str:
    return f"data through {_region(symptoms)} go elsewhere or are lost under SUCCESS"


def _accepted(symptoms: Symptoms) -> str:
    first = symptoms[0]
    if first.verb == "connect_qp":
        return f"{first.judged.partition('(')[0]} that was refused is carried out later: {row_in_words(first)}"
    what = _operations(symptoms) if group_of(first.verb) == ACCESS else _what(symptoms)
    return f"{what} succeeds: {row_in_words(first)}"


def _code(symptoms: Symptoms) -> str:
    return f"{_what(symptoms)} gives {symptoms[0].answer}{_instead(symptoms)}"


def _status(symptoms: Symptoms) -> str:
    return f"refused requests complete with {symptoms[0].answer}{_instead(symptoms)}"


def _kept(symptoms: Symptoms) -> str:
    return f"something is still held after {symptoms[0].verb}: {row_in_words(symptoms[0])}"


def _remark(symptoms: Symptoms) -> str:
    first = symptoms[0]
    told = first.line.removeprefix("afterwards ").replace(first.call, "", 1).lstrip(": ")
    return f"{first.verb}: {_KEY.sub('the key', told.partition(', not ')[0])}"


_TITLES: Mapping[Fault, Callable[[Symptoms], str]] = {
    Fault.KERNEL_DIED: _kernel_died,
    Fault.KERNEL_ALARM: _kernel_alarm,
    Fault.HUNG: _hung,
    Fault.PROCESS_DIED: _process_died,
    Fault.MOVED: _moved,
    Fault.MISPLACED: _misplaced,
    Fault.ACCEPTED: _accepted,
    Fault.CODE: _code,
    Fault.STATUS: _status,
    Fault.KEPT: _kept,
    Fault.REMARK: _remark,
}


def _instead(symptoms: Symptoms) -> str:
    wanted = Counter(
        name
        for each in symptoms
        for found in _WANTED.finditer(each.line)
        for name in (found[1] or found[2]).split(" or ")
    )
    return f" instead of {_names([name for name, _ in wanted.most_common()], 'or')}" if wanted else ""


def _operations(symptoms: Symptoms) -> str:
    found = [match[1] for each in symptoms if (match := re.search(r"\bop=(\w+)", each.call))]
    found += [each.smallest["op"] for each in symptoms if each.smallest.get("op")]
    return _names(sorted(set(found))) or "traffic"


def _region(symptoms: Symptoms) -> str:
    kind = kind_of_region(symptoms[0])
    return f"a region {_with(kind)}" if kind else "a region"


def _with(kind: str) -> str:
    """`a region …`: on demand, with addresses of its own."""
    return " ".join(part if part == "on demand" else f"with {part}" for part in kind.split(", "))


def _what(symptoms: Symptoms) -> str:
    """The verb that failed; if there are several, what they do."""
    verbs = {each.verb for each in symptoms}
    return _GROUPS.get(group_of(symptoms[0].verb), "") if len(verbs) > 1 else symptoms[0].verb


def _names(names: Sequence[str], word: str = "and") -> str:
    shown = list(names[:_MOST_NAMES])
    if len(names) > len(shown):
        return f"{', '.join(shown)} {word} {len(names) - len(shown)} more"
    return f" {word} ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
