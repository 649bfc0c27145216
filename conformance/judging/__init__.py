"""Judges observations by the documents. The same data always give the same verdict.

`conclude` judges every observation: of a case that has just run, of a point of a sweep, and of a recorded result. A
verdict is about the device and its stack; a failure of the harness is BROKEN, never FAIL. execution/ observes the
device, and results/waivers.py applies waivers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.errors import HarnessFailure, UserError
from conformance.judging.circumstances import located
from conformance.judging.faults import (
    answer_of,
    outcome_of,
    wrong_fields,
)
from conformance.judging.judgement import (
    Basis,
    Judgement,
    is_about_declarations,
    is_only_of_declared,
)
from conformance.judging.kernel_alarms import kernel_alarm, kernel_remark
from conformance.judging.sentences import sentence
from conformance.judging.steps import (
    first_fault,
    first_refused,
    judge_steps,
)
from conformance.model.capability import BY_SYMBOL, JUDGED_BY, UNDECLARABLE, name_with_release
from conformance.model.case import Case, mask_of
from conformance.model.fault import Fault, FaultKind
from conformance.model.observation import (
    KernelEvidence,
    Observation,
    UnfreedMemory,
    with_undeclared,
)
from conformance.model.profile import Profile
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import DEFINED_WITH, EITHER, ELSEWHERE, REGISTRATIONS, WIRE
from conformance.verbs import ENUMS

__all__ = [
    "Basis",
    "Judgement",
    "apply_profile",
    "broken",
    "conclude",
    "judge",
    "memory_leak",
    "refused_region",
    "verdict_key",
]

_NONE: Mapping[str, str] = {}
# The remarks about a judged call whose outcome its row does not judge.
LEFT_OPEN = "the documents leave this open"
LEFT_EITHER = "the documents permit both outcomes"
LEFT_ELSEWHERE = "other rows judge this outcome"
_LEFT = {"": LEFT_OPEN, EITHER: LEFT_EITHER, ELSEWHERE: LEFT_ELSEWHERE}
# The remark about a call that works although the device does not declare or offer a capability that it needs.
UNDECLARED = "accepted although the device"
_FLUSH_PERSISTENT = ENUMS["ibv_access_flags"].value_of("FLUSH_PERSISTENT")
# The errnos of what no attribute of a device declares, such as a verb, if the stack does not offer it.
_NOT_OFFERED = ("EOPNOTSUPP", "ENOTSUP", "ENOSYS", "EPROTONOSUPPORT")
_NO_OFFER = "this stack does not offer it"
# A kernel may warn only once for each place, so that a warning depends on the cases before. A fault of the calls is at
# least as severe.
_WARNINGS = (FaultKind.KERNEL_WARNED, FaultKind.KERNEL_TAINTED)
# The fields of an observation that `verdict_key` leaves out or reduces, because their values, such as addresses,
# handles and numbers of tries, differ in each run.
_VARYING = ("mr", "asked", "keys", "rkey", "mw", "remarks", "in_flight", "afterwards")


def conclude(
    case: Case,
    basis: Basis,
    observed: Observation,
    kernel: KernelEvidence | None = None,
) -> tuple[Judgement, Observation]:
    """Judges a case that `Basis.resolved` has returned. Returns the judgement, and the observation to be recorded."""
    undeclared = basis.lacking(case, case.needs)
    if _no_pair(basis, case, [observed]):
        undeclared = list(dict.fromkeys([*undeclared, observed["no_pair"]]))
    absent = basis.capabilities.absent
    judgement = judge(case, undeclared, observed, kernel, absent)
    unmade = _no_pair(basis, case, observed.get("afterwards", ()))
    # If the case needs the missing type of queue pair, its requests were not posted: their effects cannot be examined.
    later = (
        judgement.verdict == Verdict.FAIL and judgement.fault is not None and judgement.fault.later
    )
    depends = later and not {*unmade}.isdisjoint(case.needs)
    if unmade and (judgement.verdict == Verdict.PASS or depends):
        undeclared = list(dict.fromkeys([*undeclared, *unmade]))
        if depends:
            shown = ""
        else:
            shown = f"{judgement.reason}; "
        shown += f"the effect was not tested: the device does not offer {', '.join(unmade)}"
        judgement = Judgement(Verdict.UNSUPPORTED, shown, judgement.notes)
    judgement = apply_profile(judgement, case.needs, undeclared, basis.profile)
    return judgement, with_undeclared(observed, undeclared)


def _no_pair(basis: Basis, case: Case, seen: Sequence[Observation]) -> list[str]:
    """Returns the types of queue pairs that these steps needed and that the device does not offer."""
    names = dict.fromkeys(step["no_pair"] for step in seen if "no_pair" in step)
    return basis.lacking(case, [*names])


def broken(error: BaseException | None) -> Judgement:
    """Returns the judgement on a case that the harness could not run because of `error`."""
    reported = isinstance(error, (UserError, HarnessFailure))
    if reported:
        text = str(error)
    else:
        text = f"{type(error).__name__}: {error}"
    return Judgement(Verdict.BROKEN, f"the harness could not run the case: {text.splitlines()[0]}")


def judge(
    case: Case,
    undeclared: Sequence[str],
    observed: Observation,
    kernel: KernelEvidence | None = None,
    absent: Mapping[str, str] = _NONE,
) -> Judgement:
    """Judges a case by the documents, without the profile. `undeclared` are the capabilities that the case needs and
    that the device does not have. `absent` are the capabilities that the device declares but does not have."""
    lack = _lack(undeclared, absent)
    alarm = kernel_alarm(kernel or {})
    if alarm and alarm.kind not in _WARNINGS:
        return Judgement.of_fault(located(alarm, case))
    judgement = _judge_calls(case, undeclared, lack, observed)
    if alarm and judgement.verdict not in VIOLATIONS:
        return Judgement.of_fault(located(alarm, case))
    if judgement.verdict not in VIOLATIONS and observed.get("left_behind"):
        leak = located(Fault(FaultKind.LEAKED, seen=tuple(observed["left_behind"])), case)
        judgement = Judgement.of_fault(replace(leak, call=""))
    if judgement.verdict not in VIOLATIONS and (unfreed := (kernel or {}).get("unfreed")):
        judgement = Judgement.of_fault(located(memory_leak(unfreed), case))
    remarks = [*observed.get("remarks", ())]
    if alarm:
        remarks.append(f"beside this, {sentence(alarm)}")
    if of_others := kernel_remark(kernel or {}):
        remarks.append(
            f"{sentence(of_others)}; no line names the device, its driver or the RDMA core",
        )
    if remarks:
        return replace(judgement, notes=(*judgement.notes, *remarks))
    return judgement


def _judge_calls(
    case: Case, undeclared: Sequence[str], lack: str, observed: Observation
) -> Judgement:
    """Judges what the calls of a case returned and did, without the kernel's log."""
    if "unreachable" in observed:
        return Judgement(Verdict.UNREACHABLE, observed["unreachable"])
    if "no_binding" in observed:
        return Judgement(Verdict.UNSUPPORTED, observed["no_binding"])
    if "setup_failed" in observed:
        return _judge_setup(case, undeclared, lack, observed)
    if case.when.then.outcome == "open" and not BY_SYMBOL.keys() & set(undeclared):
        return _judge_open(case, undeclared, lack, observed)
    if undeclared:
        return _judge_undeclared(case, undeclared, lack, observed)
    if "combinations" in observed and not observed["combinations"]["classes"]:
        lacking = ", ".join(observed["combinations"]["lacking"])
        return Judgement(Verdict.UNSUPPORTED, f"each point needs what the device lacks: {lacking}")
    return judge_steps(case, observed)


def memory_leak(unfreed: Sequence[UnfreedMemory]) -> Fault:
    """Returns the fault of a case after which kernel modules have not freed memory."""
    seen = [
        f"{place['size']:,} bytes ({place['objects'][-1]} x) allocated by {place['function']} [{place['module']}] "
        f"in {place['line']}"
        for place in unfreed
    ]
    return Fault(
        FaultKind.MEMORY_LEAKED,
        seen=tuple(seen),
        site=(unfreed[0]["function"], "", unfreed[0]["module"], ""),
    )


def verdict_key(observed: Observation) -> dict[str, object]:
    """Returns the part of an observation that decides the verdict. For the same expectation, two observations with
    equal keys have the same verdict."""
    fields: dict[str, object] = {
        key: value for key, value in observed.items() if key not in _VARYING
    }
    if "mr" in observed:
        fields["wrong"] = [field.partition(" ")[0] for field in wrong_fields(observed)]
    if "rkey" in observed:
        fields["rkey_changed"] = observed["rkey"]["before"] != observed["rkey"]["after"]
    if "keys" in observed:
        fields["keys_changed"] = observed["keys"]["before"] != observed["keys"]["after"]
    if "afterwards" in observed:
        fields["afterwards"] = [verdict_key(step) for step in observed["afterwards"]]
    return fields


def apply_profile(
    judgement: Judgement,
    needs: Sequence[str],
    undeclared: Sequence[str],
    profile: Profile,
) -> Judgement:
    """Applies the profile of the device to a judgement. `needs` are the capabilities that the case needs, and
    `undeclared` are the needed capabilities that the device lacks.

    If the device lacks only capabilities that the profile demands, UNSUPPORTED becomes FAIL. If the device lacks a
    capability that is absent according to the profile, the reason in the profile is added. If the device has such a
    capability, a remark is added; the verdict stays the same, because no document forbids a capability.
    """
    if not profile.present and not profile.absent:
        return judgement
    missing = profile.required_but_absent(undeclared)
    if judgement.verdict == Verdict.UNSUPPORTED and missing:
        reasons = "; ".join(f"{name} must be present: {profile.present[name]}" for name in missing)
        reason = f"{judgement.reason}, but according to the profile {reasons}"
        fault = Fault(FaultKind.NOT_PROVIDED, expected=tuple(missing), seen=(reason,))
        return Judgement(Verdict.FAIL, reason, judgement.notes, fault)
    if judgement.verdict in (Verdict.UNREACHABLE, Verdict.BROKEN):
        return judgement  # these verdicts are not about the device
    explained = [profile.absent[name] for name in undeclared if name in profile.absent]
    reason = judgement.reason
    if judgement.verdict == Verdict.UNSUPPORTED and explained:
        reason = f"{reason} (by the profile: {'; '.join(explained)})"
    works = judgement.verdict == Verdict.PASS
    unexpected = [
        name for name in needs if name in profile.absent and (works or name not in undeclared)
    ]
    notes = tuple(
        f"the profile says that {name} is absent ({profile.absent[name]}), but the device has it: update the profile"
        for name in unexpected
    )
    return replace(judgement, reason=reason, notes=(*judgement.notes, *notes))


def _lack(undeclared: Sequence[str], absent: Mapping[str, str]) -> str:
    """Returns a clause that says what the device lacks; empty if the device lacks nothing."""
    clauses = []
    missing = [name for name in undeclared if name not in absent]
    if names := [name for name in missing if name not in UNDECLARABLE]:
        clauses.append(f"does not declare {', '.join(names)}")
    if names := [name for name in missing if name in UNDECLARABLE]:
        clauses.append(f"does not offer {', '.join(map(name_with_release, names))}")
    if names := [name for name in undeclared if name in absent]:
        clauses.append(f"declares {', '.join(names)} but does not have it")
    return " and ".join(clauses)


def _judge_setup(
    case: Case,
    undeclared: Sequence[str],
    lack: str,
    observed: Observation,
) -> Judgement:
    if lack and "setup_refused_once" not in observed:
        if judges := [JUDGED_BY[name] for name in undeclared if name in JUDGED_BY]:
            return Judgement(
                Verdict.UNREACHABLE,
                f"{observed['setup_failed']}, a violation of {judges[0]} that its rows judge",
            )
        return Judgement(Verdict.UNSUPPORTED, f"{observed['setup_failed']}; the device {lack}")
    if is_about_declarations(case) and "no_pair" in observed:
        return Judgement.of_fault(_of_set_up(FaultKind.NOT_PROVIDED, case, observed))
    if "setup_refused_once" in observed:
        return Judgement.of_fault(_of_set_up(FaultKind.REFUSED_ONCE, case, observed))
    # A queue pair of a declared type may need what no attribute declares, such as an extended completion queue.
    if "no_pair" in observed and observed.get("errno") in _NOT_OFFERED:
        return Judgement(Verdict.UNSUPPORTED, f"{observed['setup_failed']}: {_NO_OFFER}")
    return Judgement(Verdict.BROKEN, f"the setup failed: {observed['setup_failed']}")


def refused_region(case: Case, observed: Observation) -> Judgement | None:
    """Returns the judgement on a point of a sweep whose set-up failed because a valid registration was refused, which
    violates the rule of the point; None if the set-up failed for another reason. An errno such as EOPNOTSUPP says that
    the device does not offer the region. A device may refuse persistence of memory that is not persistent."""
    not_offered = observed.get("errno") in _NOT_OFFERED
    if not_offered or observed.get("setup_call") not in REGISTRATIONS:
        return None
    kinds = {memory.kind for memory in case.given.memory.values()}
    accesses = [mask_of(region.arguments, "access") for region in case.given.mrs.values()]
    if kinds != {"persistent"} and any(access & _FLUSH_PERSISTENT for access in accesses):
        return None
    return Judgement.of_fault(_of_set_up(FaultKind.SET_UP_REFUSED, case, observed))


def _of_set_up(kind: FaultKind, case: Case, observed: Observation) -> Fault:
    call = observed.get("setup_refused_once") or observed.get("setup_call", "")
    fault = located(
        Fault(kind, errno=observed.get("errno", ""), seen=(observed["setup_failed"],)),
        case,
    )
    return replace(fault, call="", verb=call or fault.verb, expected=case.needs if not call else ())


def _judge_open(
    case: Case,
    undeclared: Sequence[str],
    lack: str,
    observed: Observation,
) -> Judgement:
    """Judges a case whose judged call has an open outcome: only the later steps can have a fault."""
    judgement = judge_steps(case, observed)
    # A refusal of what the device lacks shows nothing about the device, and neither do later steps without the object.
    if lack and outcome_of(case.when, observed) == "refused":
        return _judge_undeclared(case, undeclared, lack, observed)
    if lack and judgement.verdict == Verdict.FAIL and first_refused(case, observed):
        return _judge_undeclared(case, undeclared, lack, observed)
    if judgement.verdict != Verdict.PASS:
        return judgement
    refused = outcome_of(case.when, observed) == "refused"
    if refused and not case.when.then.judged and observed.get("errno") in _NOT_OFFERED:
        reason = f"{case.when} was refused with {observed['errno']}: {_NO_OFFER}"
        return Judgement(Verdict.UNSUPPORTED, reason, judgement.notes)
    note = _LEFT[case.when.then.judged]
    return Judgement(Verdict.PASS, f"{judgement.reason}; {note}", (note, *judgement.notes))


def _judge_undeclared(
    case: Case,
    undeclared: Sequence[str],
    lack: str,
    observed: Observation,
) -> Judgement:
    """Judges a case that needs a capability which the device lacks: the call must be refused, or work as documented."""
    silent = first_fault(case, observed)
    if silent and silent.kind is FaultKind.NO_COMPLETION:
        return Judgement.of_fault(silent)
    if silent and silent.kind is FaultKind.REFUSED and case.when.call == WIRE:
        return Judgement(Verdict.UNSUPPORTED, f"{sentence(silent)}; the device {lack}")
    if outcome_of(case.when, observed) == "refused":
        if judges := [JUDGED_BY[name] for name in undeclared if name in JUDGED_BY]:
            refused = f"{case.when} was refused with {observed['errno'] or observed['returned']}"
            return Judgement(
                Verdict.UNREACHABLE,
                f"{refused}, a violation of {judges[0]} that its rows judge",
            )
        if observed.get("changed") or observed.get("moved", "nothing") not in ("nothing", "other"):
            return Judgement.of_fault(located(answer_of(FaultKind.MOVED, observed), case))
        if observed.get("errno"):
            because = f" with {observed['errno']}"
        else:
            because = ""
        return Judgement(
            Verdict.UNSUPPORTED,
            f"{case.when} was refused{because}; the device {lack}",
        )
    note = f"{UNDECLARED} {lack}"
    judgement = judge_steps(case, observed)
    inert = first_refused(case, observed)
    of_declared = judgement.verdict == Verdict.PASS and is_only_of_declared(case)
    undefined = [step.call for step in case.afterwards if DEFINED_WITH.get(step.call) in undeclared]
    is_undefined = undefined and (judgement.fault is None or judgement.fault.verb in undefined)
    if inert or of_declared or is_undefined:
        return Judgement(
            Verdict.UNSUPPORTED,
            f"{judgement.reason} ({note})",
            (*judgement.notes, note),
        )
    return replace(judgement, reason=f"{judgement.reason} ({note})", notes=(*judgement.notes, note))
