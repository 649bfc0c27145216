"""Writes the text with which a user disputes a FAIL: everything that somebody else needs to decide whether the rule, the
row or the observation is wrong, or whether the violation is known. docs/dispute.md says what happens with the text."""

from __future__ import annotations

from collections.abc import Iterator

from conformance.defects import Defect, Symptom
from conformance.errors import UserError, command, format_count
from conformance.model.verdict import VIOLATIONS
from conformance.results.conclusions import verdict_on
from reports.causes import causes
from reports.digest import Digest
from reports.evidence import calls, expected, location, preconditions
from reports.explanations import ENTRIES, FINGERPRINT, defect_of
from reports.races import remarks_on
from reports.terminal import device_line
from reports.text import kinds_of, without_packets
from reports.upstream import upstream

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
        return defect, defect.first, run
    for defect in run.violations.defects:
        about = [
            symptom
            for symptom in defect.symptoms
            if word in (symptom.name, symptom.case) or word.upper() in map(str.upper, symptom.rules)
        ]
        if about:
            return defect, about[0], run
    raise UserError(
        f"{run.path} has no violation of {word}", hint="only a violation can be disputed"
    )


def dispute(defect: Defect, symptom: Symptom, run: Digest) -> Iterator[str]:
    """Yields the lines of the text."""
    rules = ", ".join(symptom.rules)
    if advice := defect.severity.advice:
        yield "A remote peer can trigger this. Do not send this text, the run or a program to a public place."
        yield advice
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
    if needed := preconditions(defect, symptom):
        yield f"needed:    {needed}"
    for kind, text in causes(defect, run, symptom):
        yield f"{kind}: {text}"
    yield ""
    yield from _steps(symptom)
    yield f"observed:  {without_packets(symptom.line)[0]}"
    yield f"repeated:  {run.violations.repetitions.text_about(symptom) or _others(defect, run)}"
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
    yield from remarks_on(symptom.record)


def _alike(defect: Defect, symptom: Symptom, run: Digest) -> str:
    """Returns the other defects that violate a rule of this violation, by rule; this text is about none of them."""
    remaining = [other for other in run.violations.defects if other is not defect]
    clauses = []
    for rule in symptom.rules:
        names = [other.fingerprint for other in remaining if rule in other.rules]
        if names:
            clauses.append(f"{rule} is also violated by {', '.join(names)}")
    return "; ".join(clauses)


def _others(defect: Defect, run: Digest) -> str:
    """Returns that the violation was not repeated, and how many others of its defect were."""
    others = sum(map(run.violations.repetitions.is_confirmed, defect.symptoms))
    if others:
        again = f"{format_count(others, 'other violation')} of this defect occurred again"
        return f"this violation was not repeated, but {again} when repeated"
    return "this violation was not repeated"


def _steps(symptom: Symptom) -> Iterator[str]:
    set_up = (symptom.deviation or symptom.record)["set_up"]
    for line in set_up["given"]:
        yield f"given:     {line}"
    for line in set_up["before"]:
        yield f"before:    {line}"
    judged, *later = calls(symptom)
    call, packets = without_packets(judged)
    yield f"call:      {call}"
    for number, event in enumerate(packets, 1):
        yield f"{number:>9}. {event}"
    for kind, meaning in kinds_of(packets):
        yield f"           {kind}: {meaning}"
    for line in later:
        yield f"then:      {line}"
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
