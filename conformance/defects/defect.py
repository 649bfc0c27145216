"""Groups the symptoms of a run into defects, the most severe first, and determines the layer that caused a symptom.

One errno can have many reasons. Refused registrations are therefore first separated into one cause for each rule.
Several causes are then merged into one defect if a condition, such as a flag, is true for all their calls and for no
successful call of the run.

A violation counts as the device's, unless the result shows that a different layer returned it. A result that only the
kernel's core or libibverbs can return counts as the stack's, because it is the same on every device.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from conformance.defects.severity import Severity, severity_of
from conformance.defects.symptom import (
    ACCESS,
    REGISTRATION,
    Cause,
    Symptom,
    cause_of,
    from_core,
    group_of,
    site_of,
    symptoms_of,
)
from conformance.defects.words import Condition, Granted, Shorts, conditions, granted, title_of
from conformance.model.fault import Effect, Fault, FaultKind
from conformance.model.record import ResultRecord
from conformance.model.verdict import VERDICTS, Verdict

DEVICE, PROVIDER, LIBIBVERBS, CORE, PROGRAM = (
    "device",
    "provider",
    "libibverbs",
    "kernel core",
    "program",
)
UNKNOWN = "not known"
_CORE_MODULES = ("ib_core", "ib_uverbs", "ib_umad", "rdma_cm", "iw_cm", "ib_cm", "rdma_ucm")
# A line of a driver in the kernel's log, such as `rxe0: pd#1 rxe_reg_user_mr: …`; it begins with the device's name.
_OWN_LINE = re.compile(r"^(?:\[[^\]]*\] )?(?P<device>[a-z]\w*\d): (?:\S+ )?(?P<function>\w+): \S")
_LAYERS = {
    "libibverbs": (LIBIBVERBS, "it checks this itself, before a system call"),
    "library": (LIBIBVERBS, "it checks this itself, before a system call"),
    "header": (LIBIBVERBS, "it depends on the installed header"),
    "provider": (PROVIDER, "it returned this without calling the kernel"),
}
# Lines about a process that died: the frames that faulthandler prints, and the kernel's line about the instruction.
_FRAME = re.compile(r'^\s*Binary file "(?P<file>[^"]+)"')
_SEGFAULT = re.compile(r"\bsegfault at \S+ ip .* in (?P<file>[^\s\[]+)\[")
_LIBC = re.compile(r"\blib(?:c|pthread)[.-]")
_PROVIDERS = re.compile(r"-rdmav\d+\.so|\blib(?:mlx4|mlx5|efa|hns|mana)\.so")
# The effects of faults in a returned result. A death, a hang, a kernel warning or a leak is not a returned result.
_ANSWERS = (Effect.ACCEPTED, Effect.REFUSED, Effect.CODE, Effect.REMARK)


@dataclass(frozen=True)
class Answering:
    layer: str
    because: str = ""

    def __str__(self) -> str:
        return f"{self.layer} ({self.because})" if self.because else self.layer


def answering_of(symptom: Symptom) -> Answering:
    """Returns the layer that returned the result of the failed step, and the reason for this conclusion."""
    fault = symptom.fault
    log = symptom.record["kernel"].get("log", ())
    if fault.effect in (Effect.KERNEL_DIED, Effect.KERNEL_ALARM):
        return _of_kernel(fault)
    if fault.effect is Effect.PROCESS_DIED:
        return _of_process(log)
    if fault.effect is Effect.HUNG:
        return Answering(UNKNOWN, "nothing was returned")
    if from_core(fault):
        return Answering(CORE, "it refuses the call before it calls a driver")
    if fault.kind is FaultKind.CARRIED_OUT:
        return Answering(PROVIDER, "it left the request in the queue although the posting failed")
    layer = fault.layer
    if layer in _LAYERS:
        return Answering(*_LAYERS[layer])
    if group_of(fault.verb) == ACCESS or layer == "device" or fault.statuses:
        return Answering(DEVICE, "it or its driver executed or completed the posted request")
    own = next(filter(None, map(_OWN_LINE.match, log)), None)
    if own and not fault.later and fault.effect in (Effect.REFUSED, Effect.CODE):
        return Answering(DEVICE, f"{own['function']} of its driver reports it in the kernel's log")
    if layer == "kernel" or symptom.record["entry"] == "uverbs":
        return Answering(UNKNOWN, "the system call returned this: the kernel's core or the driver")
    return Answering(UNKNOWN)


def is_of_stack(record: ResultRecord) -> bool:
    """Whether all symptoms of a result are results that the kernel's core or libibverbs returns on every device."""
    symptoms = list(symptoms_of(record))
    return bool(symptoms) and all(
        symptom.fault.effect in _ANSWERS and answering_of(symptom).layer in (CORE, LIBIBVERBS)
        for symptom in symptoms
    )


def _of_kernel(fault: Fault) -> Answering:
    site = site_of(fault)
    if site is None or not site.module:
        return Answering(
            UNKNOWN, str(site) if site else "the kernel's log does not show the location"
        )
    return Answering(CORE if site.module in _CORE_MODULES else DEVICE, f"the kernel was in {site}")


def _of_process(log: Sequence[str]) -> Answering:
    """Returns the layer of the file in the first frame after the frames of the signal handler. The last frame of the
    handler is in the C library."""
    frames = [match["file"] for line in log if (match := _FRAME.match(line))]
    signal = next((number for number, file in enumerate(frames) if _LIBC.search(file)), len(frames))
    file = next((file for file in frames[signal:] if not _LIBC.search(file)), "")
    file = file or next((match["file"] for line in log if (match := _SEGFAULT.search(line))), "")
    if not file or _LIBC.search(file):
        return Answering(UNKNOWN, "the log does not show the location in the process")
    because = f"the process was in {file.rpartition('/')[2]}"
    if "libibverbs.so" in file:
        return Answering(LIBIBVERBS, because)
    return Answering(PROVIDER if _PROVIDERS.search(file) else PROGRAM, because)


_NONE: Shorts = {}
_ByCause = Mapping[Cause, Sequence[Symptom]]


@dataclass(frozen=True)
class Defect:
    """The symptoms of one or several causes. The most severe symptom is the first; equally severe symptoms are in the
    order of the run.

    `title` says what is wrong, in one line. `unconfirmed` is whether no repetition of a case showed a violation.
    `known` is the worst severity that was observed in a repetition or in a different run.
    """

    causes: tuple[Cause, ...]
    symptoms: tuple[Symptom, ...]
    title: str
    unconfirmed: bool = False
    known: Severity | None = None

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the first cause, which identifies the defect in all runs."""
        return self.causes[0].fingerprint

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """The fingerprints of all causes of the defect. A run of fewer cases may show only some of these causes."""
        return tuple(cause.fingerprint for cause in self.causes)

    @cached_property
    def severity(self) -> Severity:
        """The worst severity of the symptoms and of `known`."""
        shown = severity_of(self.symptoms[0])
        return shown if self.known is None or shown.rank < self.known.rank else self.known

    def at_least(self, severity: Severity) -> "Defect":
        """Returns the same defect with `severity` as `known`, if `severity` is worse than the severity in this run."""
        return self if severity.rank >= self.severity.rank else replace(self, known=severity)

    @property
    def first(self) -> Symptom:
        """The best example of the defect: a symptom of the worst severity and, if possible, of a row."""
        return self.symptoms[0]

    @cached_property
    def rules(self) -> tuple[str, ...]:
        return tuple(sorted({rule for symptom in self.symptoms for rule in symptom.rules}))

    @cached_property
    def cases(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(symptom.case for symptom in self.symptoms))

    @property
    def points(self) -> int:
        """The number of calls that show the defect: points of sweeps, and one call for each other case."""
        return sum(symptom.points for symptom in self.symptoms)

    @cached_property
    def answering(self) -> Answering:
        found = map(answering_of, self.symptoms)
        return next((each for each in found if each.layer != UNKNOWN), answering_of(self.first))

    @cached_property
    def waived(self) -> bool:
        return all(symptom.record["effective"] == Verdict.WAIVED for symptom in self.symptoms)

    @cached_property
    def of_stack(self) -> bool:
        """Whether the run is about a device, and every result that shows the defect is attributed to the stack."""
        return all(symptom.record["effective"] == Verdict.STACK for symptom in self.symptoms)


def defects_of(results: Iterable[ResultRecord], shorts: Shorts = _NONE) -> list[Defect]:
    """Returns the defects in results that have every key of record_shape.RESULT, the most severe first. `shorts` are
    the short names of the rules, for titles."""
    records = list(results)
    by_cause: dict[Cause, list[Symptom]] = {}
    for record in records:
        for symptom in symptoms_of(record):
            by_cause.setdefault(cause_of(symptom), []).append(symptom)
    succeeded = granted(records)
    place = {id(record): number for number, record in enumerate(records)}
    found = []
    for causes in _merged(by_cause, succeeded):
        symptoms = [symptom for cause in causes for symptom in by_cause[cause]]
        symptoms.sort(
            key=lambda each: (severity_of(each).rank, bool(each.smallest), place[id(each.record)])
        )
        found.append(
            Defect(tuple(causes), tuple(symptoms), title_of(causes, symptoms, succeeded, shorts))
        )
    return sorted(found, key=_order)


def _merged(by_cause: _ByCause, succeeded: Granted) -> list[list[Cause]]:
    """Returns a list of causes for each defect, in the order of the causes' keys."""
    groups: dict[tuple[str, ...], list[Cause]] = {}
    for cause in sorted(by_cause, key=lambda cause: cause.key):
        mergeable = cause.key[:2] == (Effect.REFUSED, REGISTRATION)
        groups.setdefault(cause.key[:3] if mergeable else cause.key, []).append(cause)
    return [
        found for causes in groups.values() for found in _by_condition(causes, by_cause, succeeded)
    ]


def _by_condition(
    causes: Sequence[Cause], by_cause: _ByCause, succeeded: Granted
) -> list[list[Cause]]:
    """Groups causes that share a condition. The condition that most causes share is used first."""
    rest = {cause: set(conditions(by_cause[cause], succeeded)) for cause in causes}
    found = []
    while rest:
        best = min(
            (each for shared in rest.values() for each in shared),
            key=lambda each: _shared_by(each, rest),
            default=None,
        )
        together = (
            [cause for cause, shared in rest.items() if best in shared]
            if best is not None
            else list(rest)[:1]
        )
        found.append(together)
        for cause in together:
            del rest[cause]
    return found


def _shared_by(
    condition: Condition, causes: Mapping[Cause, set[Condition]]
) -> tuple[int, int, Condition]:
    return -sum(condition in shared for shared in causes.values()), len(condition), condition


def _order(defect: Defect) -> tuple[bool, bool, int, int, int, tuple[str, ...]]:
    verdict = VERDICTS.index(Verdict(defect.first.verdict))
    return (
        defect.of_stack,
        defect.waived,
        defect.severity.rank,
        verdict,
        -len(defect.cases),
        defect.rules,
    )
