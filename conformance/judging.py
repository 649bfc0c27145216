"""Judges what was observed by what the document says. Pure: the same data give the same verdict.

A verdict is about the device and its stack; what the harness could not do is BROKEN and never a
FAIL. `undeclared` are the capabilities that the case needs and the device does not declare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.model.case import Case, Step
from conformance.model.expected_errors import RELIABLE, refusal
from conformance.model.verdict import Verdict
from conformance.verbs import ENUMS, VERBS

# How a kernel says that something went wrong in it, whatever the call returned.
_KERNEL_ALARMS = ("WARNING:", "BUG:", "Oops", "general protection", "UBSAN:", "KASAN:", "refcount_t:")


@dataclass(frozen=True)
class Judgement:
    """A verdict with one line for people; `notes` are remarks that change no verdict."""

    verdict: str
    reason: str
    notes: tuple[str, ...] = ()


def judge(
    case: Case, undeclared: Sequence[str], observed: dict[str, Any], kernel: dict[str, Any] | None = None
) -> Judgement:
    """The verdict on `case` given what execution.execute observed and the kernel's evidence."""
    alarm = kernel_alarm(kernel or {})
    if alarm:
        return Judgement(Verdict.FAIL, f"{case.when}: {alarm}")
    if "unreachable" in observed:
        return Judgement(Verdict.UNREACHABLE, observed["unreachable"])
    if "setup_failed" in observed:
        judgement = _judge_setup(undeclared, observed)
    elif case.when.then.outcome == "open":
        judgement = _judge_open(case, observed)
    elif undeclared:
        judgement = _judge_undeclared(case, undeclared, observed)
    else:
        judgement = _judge_steps(case, observed)
    if judgement.verdict != Verdict.FAIL and observed.get("left_behind"):
        return Judgement(Verdict.FAIL, f"could not be given back: {'; '.join(observed['left_behind'])}")
    return judgement


def verdict_key(observed: Mapping[str, Any]) -> dict[str, Any]:
    """An observation without what differs each time and changes no verdict: addresses, keys, handles.

    Two observations with the same essence are judged alike where the same is expected.
    """
    kept = {key: value for key, value in observed.items() if key not in ("mr", "asked", "keys", "rkey", "mw")}
    if "mr" in observed:
        kept["wrong"] = [field.partition(" ")[0] for field in _wrong_fields(observed)]
    for key in ("rkey", "keys"):
        if key in observed:
            kept[f"{key}_changed"] = observed[key]["before"] != observed[key]["after"]
    if "afterwards" in observed:
        kept["afterwards"] = [verdict_key(each) for each in observed["afterwards"]]
    return kept


def apply_profile(judgement: Judgement, undeclared: Sequence[str], present: Mapping[str, str]) -> Judgement:
    """The judgement where a profile says what must be there (capability to reason): then absence is a failure."""
    pinned = [name for name in undeclared if name in present]
    if judgement.verdict != Verdict.UNSUPPORTED or not pinned:
        return judgement
    reasons = "; ".join(f"{name} must be present: {present[name]}" for name in pinned)
    return Judgement(Verdict.FAIL, f"{judgement.reason}, yet by the profile {reasons}", judgement.notes)


def _judge_setup(undeclared: Sequence[str], observed: dict[str, Any]) -> Judgement:
    if undeclared:
        return Judgement(
            Verdict.UNSUPPORTED, f"{observed['setup_failed']}; the device does not declare {', '.join(undeclared)}"
        )
    return Judgement(Verdict.BROKEN, f"the setup failed: {observed['setup_failed']}")


def _judge_open(case: Case, observed: dict[str, Any]) -> Judgement:
    """The call itself cannot be wrong; the steps after it can."""
    judgement = _judge_steps(case, observed)
    if judgement.verdict == Verdict.FAIL:
        return judgement
    note = "the documents leave this open"
    return Judgement(Verdict.PASS, f"{judgement.reason}; {note}", (note, *judgement.notes))


def _judge_undeclared(case: Case, undeclared: Sequence[str], observed: dict[str, Any]) -> Judgement:
    """Absence is verified: what is not declared has to be refused, or has to work."""
    names = ", ".join(undeclared)
    if _outcome(case.when, observed) == "refused":
        if observed.get("changed") or observed.get("moved", "nothing") != "nothing":
            return Judgement(Verdict.FAIL, f"{case.when} {_came(observed)}, and moved bytes that it should not")
        because = f" with {observed['errno']}" if observed.get("errno") else ""
        return Judgement(Verdict.UNSUPPORTED, f"{case.when} was refused{because}; the device does not declare {names}")
    note = f"accepted although the device does not declare {names}"
    judgement = _judge_steps(case, observed)
    inert = _first_refused(case, observed)
    if inert:
        return Judgement(Verdict.UNSUPPORTED, f"{judgement.reason} ({note})", (*judgement.notes, note))
    return Judgement(judgement.verdict, f"{judgement.reason} ({note})", (*judgement.notes, note))


def _first_refused(case: Case, observed: dict[str, Any]) -> bool:
    """Whether all that is wrong is that a later step was refused, which left everything as it was."""
    if _fault(case.when, observed):
        return False
    for step, seen in zip(case.afterwards, observed.get("afterwards", ()), strict=False):
        if _fault(step, seen):
            wanted = step.then.outcome == "success" and _outcome(step, seen) == "refused"
            return wanted and not _data_fault(step, seen)
    return False


def _judge_steps(case: Case, observed: dict[str, Any]) -> Judgement:
    fault = _fault(case.when, observed)
    for step, seen in zip(case.afterwards, observed.get("afterwards", ()), strict=False):
        fault = fault or _fault(step, seen, "afterwards ")
    notes = [*observed.get("not_covered", ()), *([case.note] if case.note else [])]
    if fault:
        return Judgement(Verdict.FAIL, fault, tuple(notes))
    return Judgement(Verdict.PASS, f"{case.when} {_came(observed)}", tuple(notes))


def _fault(step: Step, seen: dict[str, Any], when: str = "") -> str:
    """What is wrong with one step, as a line for people; empty if nothing is."""
    then = step.then
    outcome = _outcome(step, seen)
    moved = _data_fault(step, seen)
    if moved:
        return f"{when}{step} {_came(seen)}, {moved}"
    if then.outcome == "open":
        return ""
    if "differences" in seen:
        return f"{step}: {'; '.join(seen['differences'])}"
    if outcome != then.outcome:
        should = "succeed" if then.outcome == "success" else "fail"
        return f"{when}{step} should {should}, {_came(seen)}"
    if then.rkey and (seen["rkey"]["before"] != seen["rkey"]["after"]) != (then.rkey == "changed"):
        return f"{when}{step}: the window's rkey should be {then.rkey}"
    if outcome == "refused":
        return _refusal_fault(step, seen, when) or _code_fault(step, seen, when)
    wrong = _wrong_fields(seen) if then.mr == "as_asked" else []
    if wrong:
        return f"{when}{step} gave an MR that differs from what was asked: {', '.join(wrong)}"
    return _completion_fault(step, seen, when)


# Operations that leave the range as it is.
_READERS = ("RDMA_READ", "UNEQUAL_CMP_AND_SWP", "SEND", "WRITE", "FLUSH_GLOBAL", "FLUSH_PERSISTENT")


def _data_fault(step: Step, seen: dict[str, Any]) -> str:
    """Bytes that are where they should not be, whatever the completion says."""
    if "moved" not in seen:
        return ""
    if step.then.outcome == "refused" and (seen["moved"] != "nothing" or seen["changed"]):
        return "and moved bytes that it should not" if seen["moved"] != "nothing" else _where(seen)
    if step.then.outcome == "refused" and seen.get("imm", (None,))[0] is not None and seen["side"] == "remote":
        return "and told the receiver that it had come"
    done = seen["wc"] == ["SUCCESS"]
    if done and set(seen.get("peer_wc", ())) - {"SUCCESS"}:
        return f"and at the other side with {' '.join(seen['peer_wc'])}"
    if done and seen["moved"] != "all" and not _may_be_lost(seen):
        return f"but {'nothing' if seen['moved'] == 'nothing' else 'something else'} has arrived; {_where(seen)}"
    if seen.get("late"):
        return "before its data was there"
    if seen.get("guards"):
        return "and changed bytes beside the buffer of the other side"
    expected = 1 if done and step.arguments.get("op") not in _READERS else 0
    if len(seen["changed"]) > expected or any(start < 0 for start, _ in seen["changed"]):
        return _where(seen)
    return _reception_fault(seen) if done and seen["moved"] == "all" else ""


def _may_be_lost(seen: dict[str, Any]) -> bool:
    """Whether nobody tells the sender that a message was dropped."""
    return seen["moved"] == "nothing" and seen.get("qp_type", "RC") not in RELIABLE


def _reception_fault(seen: dict[str, Any]) -> str:
    """A receiver that was told another length or immediate datum than was sent."""
    for key, words in (("byte_len", "bytes"), ("imm", "as immediate data")):
        came, sent = seen.get(key, (None, None))
        if came != sent:
            return f"but the receiver was told {came} {words}, not {sent}"
    return ""


def _refusal_fault(step: Step, seen: dict[str, Any], when: str) -> str:
    """A refusal by the wrong status, or one after which the queue pair goes on."""
    wanted = refusal(seen.get("side", ""), step.then.because, seen.get("qp_type", ""))
    if wanted is None or seen["returned"] != "0":  # or refused already when it was posted
        return ""
    for key, allowed, who in (("wc", wanted.wc, ""), ("peer_wc", wanted.peer, " at the sender")):
        if allowed and (len(seen[key]) != 1 or seen[key][0] not in allowed):
            came = " ".join(seen[key]) or "nothing"
            return f"{when}{step} should be refused with {' or '.join(allowed)}{who}, completed with {came}"
    if seen.get("state", wanted.state) != wanted.state:
        return f"{when}{step} was refused, and the queue pair is in state {seen['state']} instead of {wanted.state}"
    return ""


def _where(seen: dict[str, Any]) -> str:
    """Which remote bytes changed, relative to where they should have."""
    places = [f"{size} at {start:+d}" for start, size in seen["changed"][:4]]
    return f"remote bytes changed: {', '.join(places)}" if places else "no remote byte changed"


def _code_fault(step: Step, seen: dict[str, Any], when: str) -> str:
    """A refusal with another code than the page has for it."""
    then = step.then
    code = str(seen["errno"] if seen["returned"] == "NULL" else seen["returned"])
    if code == "0":  # posted, and refused by its completion
        return ""
    allowed: Sequence[str]
    if seen.get("enumerated"):
        allowed = then.code or ENUMS["ibv_rereg_mr_err_code"].short_names
    elif code.startswith("-"):
        return f"{when}{step} returned {code}, which is no value of errno"
    else:
        allowed = then.errno or _documented(step)
    if not allowed:
        return ""
    if not code:
        return f"{when}{step} failed as it should but gave no errno"
    if "any" in allowed or code in _spellings(allowed):
        return ""
    return f"{when}{step} should fail with {' or '.join(allowed)}, failed with {code}"


def _documented(step: Step) -> tuple[str, ...]:
    verb = VERBS.get(step.call)
    return tuple(verb.codes) if verb and verb.codes and step.call != "ibv_rereg_mr" else ()


def _spellings(names: Sequence[str]) -> set[str]:
    """The names with both of the two that Linux gives to one number."""
    return {*names, *(("EOPNOTSUPP",) if "ENOTSUP" in names else ())}


def _completion_fault(step: Step, seen: dict[str, Any], when: str) -> str:
    if step.then.completion == "none" and seen["wc"]:
        return f"{when}{step} asked for no completion and got {' '.join(seen['wc'])}"
    if seen.get("wr_id_matches") is False:
        return f"{when}{step} completed with another wr_id than was posted"
    return ""


def _outcome(step: Step, seen: dict[str, Any]) -> str:
    """Whether the call did what it is for, by the page's own convention."""
    if seen["returned"] not in ("MR", "MW", "0"):
        return "refused"
    if "wc" not in seen or (step.then.completion == "none" and not seen["wc"]):
        return "success"
    done = seen["wc"] == ["SUCCESS"] and seen.get("moved", "all") == "all"
    return "success" if done else "refused"


def _wrong_fields(seen: Mapping[str, Any]) -> list[str]:
    mr, asked = seen["mr"], seen["asked"]
    wrong = [f"{key} {mr[key]:#x} instead of {asked[key]:#x}" for key in ("addr", "length") if mr[key] != asked[key]]
    if not mr["pd_is_the_asked"]:
        wrong.append("pd is another one")
    if not mr["context_is_the_pds"]:
        wrong.append("context is not the PD's")
    if mr["lkey"] == mr["rkey"] == mr["handle"] == 0:
        wrong.append("lkey, rkey and handle are all 0")
    return wrong


def _came(seen: dict[str, Any]) -> str:
    """What a step gave, in words."""
    if seen["returned"] in ("MR", "MW"):
        return f"returned an {seen['returned']}"
    words = f"returned {seen['returned']}"
    if seen["errno"] and seen["errno"] != seen["returned"]:
        words += f" with errno {seen['errno']}"
    if "wc" in seen and seen["returned"] == "0":
        words += f", completed with {' '.join(seen['wc'])}" if seen["wc"] else ", gave no completion"
    return words


def kernel_alarm(kernel: Mapping[str, Any]) -> str:
    """How the kernel's evidence tells of trouble in it; empty if it does not."""
    if kernel.get("taint", 0) != kernel.get("taint_before", kernel.get("taint", 0)):
        return f"the kernel became tainted ({kernel['taint_before']} to {kernel['taint']})"
    line = first_alarm(kernel.get("log", ()))
    return f"the kernel complained: {line}" if line else ""


def first_alarm(log: Sequence[str]) -> str:
    """The first line in which a kernel says that something went wrong in it; empty if there is none.

    On a console it can stand behind what a program was writing; the kernel's part begins at its time stamp.
    """
    line = next((line for line in log if any(alarm in line for alarm in _KERNEL_ALARMS)), "")
    return line[max(0, line.rfind("[ ")) :]
