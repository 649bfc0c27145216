"""Judges what was observed by what the document says. Pure: the same data give the same verdict.

A verdict is about the device and its stack; what the harness could not do is BROKEN and never a
FAIL. `lacking` are the capabilities that the case needs and the device does not declare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.case import Case, Expectation, Step
from conformance.verbs import VERBS

PASS, FAIL, UNSUPPORTED, UNREACHABLE = "PASS", "FAIL", "UNSUPPORTED", "UNREACHABLE"
BROKEN, CRASH, HANG, MISSED = "BROKEN", "CRASH", "HANG", "MISSED"
# From the worst to the best: a rule's verdict is the worst of its cases'.
VERDICTS = (CRASH, HANG, FAIL, BROKEN, MISSED, UNREACHABLE, UNSUPPORTED, PASS)
VIOLATIONS = (CRASH, HANG, FAIL)
INCOMPLETE = (BROKEN, MISSED)

# How a kernel says that something went wrong in it, whatever the call returned.
_KERNEL_ALARMS = ("WARNING:", "BUG:", "Oops", "general protection", "UBSAN:", "KASAN:", "refcount_t:")


@dataclass(frozen=True)
class Judgement:
    """A verdict with one line for people; `notes` are remarks that change no verdict."""

    verdict: str
    reason: str
    notes: tuple[str, ...] = ()


def judge(
    case: Case, lacking: Sequence[str], observed: dict[str, Any], kernel: dict[str, Any] | None = None
) -> Judgement:
    """The verdict on `case` given what execution.execute observed and the kernel's evidence."""
    alarm = _kernel_alarm(kernel or {})
    if alarm:
        return Judgement(FAIL, f"{_brief(case.when)}: {alarm}")
    if "setup_failed" in observed:
        return _judge_setup(lacking, observed)
    if case.when.then.outcome == "open":
        judgement = Judgement(PASS, f"{_brief(case.when)} {_came(observed)}; the documents leave this open",
                              ("the documents leave this open",))
    elif lacking:
        judgement = _judge_undeclared(case, lacking, observed)
    else:
        judgement = _judge_steps(case, observed)
    if judgement.verdict != FAIL and observed.get("left_behind"):
        return Judgement(FAIL, f"could not be given back: {'; '.join(observed['left_behind'])}")
    return judgement


def _judge_setup(lacking: Sequence[str], observed: dict[str, Any]) -> Judgement:
    if lacking:
        return Judgement(UNSUPPORTED, f"{observed['setup_failed']}; the device does not declare {', '.join(lacking)}")
    return Judgement(BROKEN, f"the setup failed: {observed['setup_failed']}")


def _judge_undeclared(case: Case, lacking: Sequence[str], observed: dict[str, Any]) -> Judgement:
    """Absence is verified: what is not declared has to be refused, or has to work."""
    names = ", ".join(lacking)
    if _outcome(observed) == "refused":
        because = f" with {observed['errno']}" if observed.get("errno") else ""
        return Judgement(UNSUPPORTED, f"{_brief(case.when)} was refused{because}; the device does not declare {names}")
    note = f"accepted although the device does not declare {names}"
    judgement = _judge_steps(case, observed)
    return Judgement(judgement.verdict, f"{judgement.reason} ({note})", (*judgement.notes, note))


def _judge_steps(case: Case, observed: dict[str, Any]) -> Judgement:
    fault = _fault(case.when, observed)
    for step, seen in zip(case.afterwards, observed.get("afterwards", ()), strict=False):
        fault = fault or _fault(step, seen, "afterwards ")
    if fault:
        return Judgement(FAIL, fault)
    return Judgement(PASS, f"{_brief(case.when)} {_came(observed)}")


def _fault(step: Step, seen: dict[str, Any], when: str = "") -> str:
    """What is wrong with one step, as a line for people; empty if nothing is."""
    then = step.then
    if then.outcome == "open":
        return ""
    outcome = _outcome(seen)
    if outcome != then.outcome:
        should = "succeed" if then.outcome == "success" else "fail"
        return f"{when}{_brief(step)} should {should}, {_came(seen)}"
    if outcome == "refused":
        return _errno_fault(step, then, seen, when)
    if then.mr == "as_asked":
        wrong = _wrong_fields(seen)
        if wrong:
            return f"{when}{_brief(step)} returned an MR that differs from what was asked: {', '.join(wrong)}"
    return ""


def _errno_fault(step: Step, then: Expectation, seen: dict[str, Any], when: str) -> str:
    reason = _refusal_code(seen)
    allowed: Sequence[str] = then.errno
    if not allowed and step.call in VERBS and VERBS[step.call].codes:
        allowed = tuple(VERBS[step.call].codes)
    if reason.startswith("-"):
        return f"{when}{_brief(step)} returned {reason}, which is no value of errno"
    if not allowed:
        return ""
    if not reason:
        return f"{when}{_brief(step)} failed as it should but gave no errno"
    if "any" in allowed or reason in allowed:
        return ""
    return f"{when}{_brief(step)} should fail with {' or '.join(allowed)}, failed with {reason}"


def _refusal_code(seen: dict[str, Any]) -> str:
    """The errno's name: of a NULL it stands in errno, of an int it is the value returned."""
    code = seen["errno"] if seen["returned"] == "NULL" else seen["returned"]
    return str(code)


def _outcome(seen: dict[str, Any]) -> str:
    return "success" if seen["returned"] in ("MR", "0") else "refused"


def _wrong_fields(seen: dict[str, Any]) -> list[str]:
    mr, asked = seen["mr"], seen["asked"]
    wrong = [f"{key} {mr[key]:#x} instead of {asked[key]:#x}" for key in ("addr", "length") if mr[key] != asked[key]]
    if not mr["pd_is_the_asked"]:
        wrong.append("pd is another one")
    if not mr["context_is_the_pds"]:
        wrong.append("context is not the PD's")
    return wrong


def _came(seen: dict[str, Any]) -> str:
    if seen["returned"] == "MR":
        return "returned an MR"
    because = f" with errno {seen['errno']}" if seen["returned"] == "NULL" and seen["errno"] else ""
    return f"returned {seen['returned']}{because}"


def _brief(step: Step) -> str:
    return str(step)


def _kernel_alarm(kernel: dict[str, Any]) -> str:
    if kernel.get("taint", 0) != kernel.get("taint_before", kernel.get("taint", 0)):
        return f"the kernel became tainted ({kernel['taint_before']} to {kernel['taint']})"
    for line in kernel.get("log", ()):
        if any(alarm in line for alarm in _KERNEL_ALARMS):
            return f"the kernel complained: {line}"
    return ""
