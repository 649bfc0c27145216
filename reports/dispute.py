"""Writes the text with which a user disputes a FAIL: everything that somebody else needs to decide whether the rule, the
row or the observation is wrong, or whether the violation is known. docs/dispute.md says what happens with the text."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.defects import Defect, Severity, Symptom
from conformance.defects.severity import IN_PRIVATE
from conformance.errors import UserError, command, format_count
from conformance.model.verdict import VIOLATIONS
from conformance.results.conclusions import verdict_on
from reports.digest import Digest
from reports.evidence import expected, location
from reports.explanations import ENTRIES, FINGERPRINT, defect_of
from reports.terminal import device_line
from reports.text import kinds_of, without_packets
from reports.upstream import upstream

_REMOTE = (Severity.REMOTE_CRASH, Severity.REMOTE_MEMORY)
_CLAIMS = """
Keep the paragraph that is true, complete it, and delete the others.

[ ] THE RULE IS WRONG. This sentence of a document permits the observation:
    "…" (document, section)

[ ] THE ROW IS WRONG. The rule is right, but this call does not test it, because:
    …

[ ] THE OBSERVATION IS WRONG. The stack did something else, as this trace, log or source line shows:
    …

[ ] IT IS KNOWN. The stack is wrong, and an issue exists. Nothing needs to be sent; a waiver declares it:
    {waiver}
"""


def violation_about(word: str, run: Digest | None) -> tuple[Defect, Symptom, Digest]:
    """Returns the recorded violation of a defect, a case or a rule, with its defect and the run. Raises UserError if the
    run has none."""
    if run is None:
        raise UserError(f"no run has a violation of {word}", hint="give the run with --run RUN")
    if FINGERPRINT.fullmatch(word):
        defect, run = defect_of(word, run, "--run")
        text_of = run.violations.repetitions.text_of
        repeated = [symptom for symptom in defect.symptoms if text_of(symptom.case)]
        weight = ("must", "should", "may").index
        shown = min(repeated, key=lambda of: weight(of.record["level"]), default=defect.first)
        return defect, shown, run
    for defect in run.violations.defects:
        for symptom in defect.symptoms:
            if word in (symptom.name, symptom.case) or word.upper() in map(
                str.upper, symptom.rules
            ):
                return defect, symptom, run
    raise UserError(
        f"{run.path} has no violation of {word}", hint="only a violation can be disputed"
    )


def dispute(defect: Defect, symptom: Symptom, run: Digest) -> Iterator[str]:
    """Yields the lines of the text."""
    rules = ", ".join(symptom.rules)
    if defect.severity in _REMOTE:
        yield "A remote peer can trigger this. Do not send this text, the run or a program to a public place:"
        yield f"report it {IN_PRIVATE}."
        yield ""
    yield "To: the maintainers of the suite (an issue in the repository from which you have it)"
    yield f"Subject: rdma-cts: {symptom.verdict} of {rules} is disputed: {defect.title}"
    yield ""
    yield f"verdict:   {symptom.verdict}, {defect.severity.label}, defect {defect.fingerprint}"
    if alike := _alike(defect, symptom, run):
        yield f"alike:     {alike}"
    yield f"case:      {symptom.name}"
    yield f"row:       {location(symptom.record)}"
    yield f"entry:     {ENTRIES.get(symptom.record['entry'], symptom.record['entry'])}"
    yield f"stack:     {device_line(run.header)}"
    if run.environment.changed_stack:
        yield f"own build: {run.environment.changed_stack}"
    suite = run.header["suite"]
    yield f"suite:     {suite.get('version', '?')}, tables {run.environment.tables_sha256[:12] or '?'}"
    yield f"answered:  {defect.answering}"
    if state := upstream(defect):
        yield f"upstream:  {state}"
    yield ""
    yield from _steps(symptom)
    yield f"observed:  {without_packets(symptom.line)[0]}"
    yield f"repeated:  {_repeated(symptom, run) or _others(defect, run)}"
    yield ""
    yield from _rules(symptom, run)
    where = run.path
    waiver = command(
        "waivers",
        "--run",
        where,
        *("--defect", defect.fingerprint),
        *("--owner", "NAME", "--issue", "ADDRESS", "--expires", "DATE"),
    )
    yield from _CLAIMS.format(waiver=waiver).splitlines()
    yield ""
    if where.is_dir():
        judged, beside = "", f"    {command('bundle', where)}"
    else:
        judged, beside = f"{where} and ", ""
    yield f"Attach {judged}what is written by:"
    yield from filter(None, (beside,))
    yield f"    {command('reproducer', defect.fingerprint, '--run', where, '--mail')}"
    yield f"Repeated by: {symptom.repro}"


def _alike(defect: Defect, symptom: Symptom, run: Digest) -> str:
    """Returns the other defects that violate a rule of this violation, by rule; this text is about none of them."""
    remaining = [other for other in run.violations.defects if other is not defect]
    clauses = []
    for rule in symptom.rules:
        names = [other.fingerprint for other in remaining if rule in other.rules]
        if names:
            clauses.append(f"{rule} is also violated by {', '.join(names)}")
    return "; ".join(clauses)


def _repeated(symptom: Symptom, run: Digest) -> str:
    """Returns whether this violation was confirmed; for a point, that of the point and not of its sweep."""
    repetitions = run.violations.repetitions
    if symptom.point:
        return repetitions.text_at(symptom.case, symptom.point)
    return repetitions.text_of(symptom.case)


def _others(defect: Defect, run: Digest) -> str:
    """Returns that the violation was not repeated, and how many other cases of its defect were."""
    others = sum(bool(run.violations.repetitions.text_of(case)) for case in defect.cases)
    if others:
        return f"no, but {format_count(others, 'other case')} of this defect"
    return "no"


def _steps(symptom: Symptom) -> Iterator[str]:
    set_up = (symptom.deviation or symptom.record)["set_up"]
    for line in set_up["given"]:
        yield f"given:     {line}"
    for line in set_up["before"]:
        yield f"before:    {line}"
    if symptom.call != symptom.record["call"] and not symptom.deviation:
        yield f"before:    {symptom.record['call']}"
    call, packets = without_packets(symptom.call)
    yield f"call:      {call}"
    for number, event in enumerate(packets, 1):
        yield f"{number:>9}. {event}"
    for kind, meaning in kinds_of(packets):
        yield f"           {kind}: {meaning}"
    if required := expected(symptom):
        yield f"expected:  {required}"


def _rules(symptom: Symptom, run: Digest) -> Iterator[str]:
    for rule in symptom.rules:
        facts = run.verdicts.rules.get(rule)
        if facts is None or verdict_on(rule, symptom.record) not in VIOLATIONS:
            continue
        yield f"{rule} ({facts.level}): {facts.statement}"
        yield f"    document: {facts.documented}"
        if facts.argument_against:
            yield f"    argument against: {facts.argument_against}"
