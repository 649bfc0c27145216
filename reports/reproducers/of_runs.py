"""Makes the programs of a run, one for each symptom of a violation: a row or the smallest point of a deviation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.defects import Symptom, severity_of, symptoms_of
from conformance.errors import UserError
from conformance.judging import Basis
from conformance.judging.faults import fault_of
from conformance.model.case import Case
from conformance.model.declared import Capabilities
from conformance.model.fault import Effect, FaultKind
from conformance.model.operations import PROBES
from conformance.model.record import ResultRecord
from conformance.model.rules import Rule
from conformance.model.vocabulary import NULL
from conformance.older_python import zip
from conformance.results.records import read_results
from conformance.results.rejudge import known_capabilities
from conformance.tables.carried import SUFFIX
from conformance.tables.suite import Suite
from reports.preceding import needs_others
from reports.reproducers.layout import WIDTH
from reports.reproducers.program import Program, TooLong, needed_release, program_of
from reports.reproducers.writer import Inexpressible


def cut(case: Case, observed: Mapping[str, Any]) -> Case:
    """Returns the case without the steps after the first wrong step of the observation, and without the earlier
    operations that have no effect on this step. Returns the whole case if no step is wrong."""
    if "returned" not in observed:
        return case
    if fault_of(case.when, observed):  # type: ignore[arg-type]
        return replace(case, afterwards=())
    for number, (step, seen) in enumerate(
        zip(case.afterwards, observed.get("afterwards", ()), strict=False),
    ):
        if fault_of(step, seen, later=True):
            earlier = case.afterwards[:number]
            steps = [
                step
                for step in earlier
                if step.call not in PROBES or step.arguments.get("via", NULL) != NULL
            ]
            return replace(case, afterwards=(*steps, step))
    return case


_ALARM = "The violation is a warning in the kernel's log (dmesg), whatever the exit status of this program is."
_CARRIED = (
    "In the case, a peer without an RDMA device sends the requests; this program posts them to a "
    "second queue pair of the device."
)
_DIED = (FaultKind.KERNEL_DIED, FaultKind.PROCESS_DIED, FaultKind.HUNG)


@dataclass(frozen=True)
class Made:
    """The program of a symptom, or the reason why there is none."""

    symptom: Symptom
    program: Program | None
    why_not: str = ""


def programs_of(results: Iterable[ResultRecord], suite: Suite, basis: Basis) -> Iterator[Made]:
    """Yields the program, or the reason why there is none, of each symptom in `results`. Each result must have all keys
    of record_shape.RESULT."""
    for record in results:
        for symptom in symptoms_of(record):
            yield first_program([symptom], suite, basis)


def first_program(
    symptoms: Sequence[Symptom],
    suite: Suite,
    basis: Basis,
    width: int = WIDTH,
) -> Made:
    """Returns the program of the plainest symptom that has one; else the first symptom, and why it has none."""
    reasons = []
    for symptom in _plainest_first(symptoms):
        if needs_others(symptom.repro):
            reasons.append("the violation occurs only after other cases of its process")
            continue
        try:
            return Made(symptom, reproducer(symptom.name, suite, basis, symptom, width))
        except Inexpressible as reason:
            reasons.append(str(reason))
    return Made(symptoms[0], None, reasons[0])


def _plainest_first(symptoms: Sequence[Symptom]) -> Sequence[Symptom]:
    """Returns the symptoms of a defect, of which the first remains: it is known best. The others of one severity begin
    with those whose calls need no newer headers, and of these with those of the rule that most symptoms break."""
    counts = Counter(rule for symptom in symptoms for rule in symptom.rules)

    def rank(symptom: Symptom) -> tuple[int, int, int]:
        calls = f"{symptom.record['set_up']} {symptom.record['call']} {symptom.call}"
        most = max((counts[rule] for rule in symptom.rules), default=0)
        return severity_of(symptom).rank, needed_release(calls), -most

    return [*symptoms[:1], *sorted(symptoms[1:], key=rank)]


def without_peer(
    symptoms: Sequence[Symptom], suite: Suite, basis: Basis, width: int = WIDTH
) -> Made:
    """Returns the first program that needs no script, of a symptom that no peer causes; else a symptom without one."""
    for symptom in symptoms:
        if not severity_of(symptom).advice:
            attempt = first_program([symptom], suite, basis, width)
            if attempt.program and not attempt.program.script:
                return attempt
    return Made(symptoms[0], None)


def basis_of(path: Path) -> Basis:
    """Returns the known facts about the device of a recorded run."""
    return Basis(known_capabilities(read_results(path)))


def unknown_device() -> Basis:
    """Returns the facts if there is no run: every capability counts as present."""
    return Basis(Capabilities({}, {}, {}))


def reproducer(
    id_: str,
    suite: Suite,
    basis: Basis,
    symptom: Symptom | None = None,
    width: int = WIDTH,
) -> Program:
    """Returns the program of a row or point. If a symptom is given, the program has only the steps that show the
    symptom. Raises Inexpressible."""
    try:
        case = suite.find(id_)
    except UserError as error:
        raise Inexpressible("its point is of other tables than the present ones") from error
    if case is None:
        raise Inexpressible(f"there is no case {id_}")
    case = basis.resolved(case)
    died = symptom is not None and symptom.fault.kind in _DIED
    if symptom is not None and not died:
        case = _cut(symptom, case)
    remarks = [
        _ALARM * (symptom is not None and symptom.fault.effect is Effect.KERNEL_ALARM),
        _CARRIED * id_.endswith(SUFFIX),
    ]
    remark = " ".join(filter(None, remarks))
    return _shortest(case, suite.registry, width, died, remark)


def _cut(symptom: Symptom, case: Case) -> Case:
    if symptom.deviation is None:
        return cut(case, symptom.record["observed"])
    if symptom.fault.later:
        return case
    return replace(case, afterwards=())


def _shortest(
    case: Case,
    rules: Mapping[str, Rule],
    width: int,
    died: bool,
    remark: str,
) -> Program:
    """Returns the program. If the program is too long and `died` is true, the last steps are left out."""
    while True:
        try:
            return program_of(case, rules, width, remark)
        except TooLong:
            if not died or not case.afterwards:
                raise
            case = replace(case, afterwards=case.afterwards[:-1])
