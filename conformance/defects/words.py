"""A defect told in words, in one line. Not for its condition (condition.py)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from conformance.defects.cause import ACCESS, BIND, INVALIDATION, REGISTRATION, group_of
from conformance.defects.condition import Granted, absent_flags, common_flags, row_in_words
from conformance.defects.kernel_site import site_of
from conformance.defects.symptom import Symptom
from conformance.model.fault import WINDOW, Effect

Symptoms = Sequence[Symptom]

_KEY = re.compile(r"0x[0-9a-f]+")
_NULL = re.compile(r"\b(\w+)=NULL")
_MOST_NAMES = 3
# Every group of several verbs.
_GROUPS = {REGISTRATION: "a registration", BIND: "a bind", INVALIDATION: "an invalidation", ACCESS: "an access"}


def title_of(symptoms: Symptoms, succeeded: Granted) -> str:
    """What is wrong, in one line. `symptoms` have one cause, the most severe first; `succeeded`: see `granted`."""
    effect = symptoms[0].fault.effect
    if effect is Effect.REFUSED:
        return _refused(symptoms, succeeded)
    return _TITLES[effect](symptoms)


def _refused(symptoms: Symptoms, succeeded: Granted) -> str:
    answer = f" with {symptoms[0].fault.answer}" if symptoms[0].fault.answer else ""
    with_, without = common_flags(symptoms, succeeded), absent_flags(symptoms)
    if with_:
        return f"{_what(symptoms)} with {_names(with_)} is refused{answer}"
    if without:
        return f"{_what(symptoms)} is refused{answer} on regions without {_names(without)}"
    return f"{_what(symptoms)} is refused{answer}: {row_in_words(symptoms[0])}"


def _kernel_died(symptoms: Symptoms) -> str:
    first = symptoms[0]
    site, kind = site_of(first.fault), ", ".join(first.fault.region)
    by = f"a region {_with(kind)}" if kind else first.verb
    return f"{by} kills the kernel" + (f" in {site}" if site else "")


def _kernel_alarm(symptoms: Symptoms) -> str:
    site = site_of(symptoms[0].fault)
    return f"the kernel complains during {symptoms[0].verb}" + (f", in {site}" if site else "")


def _hung(symptoms: Symptoms) -> str:
    return f"{symptoms[0].verb} does not come back: {row_in_words(symptoms[0])}"


def _process_died(symptoms: Symptoms) -> str:
    first = symptoms[0]
    by, null = first.fault.ended_by, _NULL.findall(first.call)
    end = f" {'by' if by.startswith('SIG') else 'with'} {by}" if by else ""
    return f"{first.verb}{f' with {_names(null)} NULL' if null else ''} ends the process{end}"


def _moved(symptoms: Symptoms) -> str:
    outside = any(each.fault.outside for each in symptoms)
    if symptoms[0].fault.key != WINDOW:
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
    return f"{_what(symptoms)} gives {symptoms[0].fault.answer}{_instead(symptoms)}"


def _status(symptoms: Symptoms) -> str:
    return f"refused requests complete with {symptoms[0].fault.answer}{_instead(symptoms)}"


def _kept(symptoms: Symptoms) -> str:
    return f"something is still held after {symptoms[0].verb}: {row_in_words(symptoms[0])}"


def _remark(symptoms: Symptoms) -> str:
    first = symptoms[0]
    told = first.line.removeprefix("afterwards ").replace(first.call, "", 1).lstrip(": ")
    return f"{first.verb}: {_KEY.sub('the key', told.partition(', not ')[0])}"


_TITLES: Mapping[Effect, Callable[[Symptoms], str]] = {
    Effect.KERNEL_DIED: _kernel_died,
    Effect.KERNEL_ALARM: _kernel_alarm,
    Effect.HUNG: _hung,
    Effect.PROCESS_DIED: _process_died,
    Effect.MOVED: _moved,
    Effect.MISPLACED: _misplaced,
    Effect.ACCEPTED: _accepted,
    Effect.CODE: _code,
    Effect.STATUS: _status,
    Effect.KEPT: _kept,
    Effect.REMARK: _remark,
}


def _instead(symptoms: Symptoms) -> str:
    wanted = Counter(name for each in symptoms for name in each.fault.expected)
    return f" instead of {_names([name for name, _ in wanted.most_common()], 'or')}" if wanted else ""


def _operations(symptoms: Symptoms) -> str:
    found = {each.fault.operation for each in symptoms} - {""}
    return _names(sorted(found)) or "traffic"


def _region(symptoms: Symptoms) -> str:
    kind = ", ".join(symptoms[0].fault.region)
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
