"""Writes the texts of `rdma-cts explain` about a rule, a case, a point of a sweep or a defect. commands/explain.py
finds the rule, case, point or defect."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from conformance.defects import Defect
from conformance.errors import PROGRAM, UserError, command, format_count
from conformance.judging.combinations import Judged
from conformance.model.case import Case
from conformance.model.combinations import Conditions, CoveringArray
from conformance.model.kind import Kind
from conformance.model.record import Deviation, ResultRecord
from conformance.model.rules import Rule
from conformance.model.set_up import set_up_of
from conformance.model.verdict import VERDICTS, VIOLATIONS, Verdict
from conformance.older_python import zip
from conformance.results.combined import deviation_at, is_of_model
from conformance.results.conclusions import headline, verdict_on
from conformance.sweeps.judging import clauses
from conformance.sweeps.outcome import OUTSIDE
from conformance.tables.loader import Retired
from conformance.tables.suite import POINT, Suite
from reports import evidence
from reports.contradictions import candidates
from reports.digest import Digest
from reports.evidence import read_points
from reports.races import is_race, remarks_on
from reports.text import flat, wrapped
from reports.upstream import upstream

_WIDTH = 100
MOST_CASES = 12
ENTRIES = {"libibverbs": "libibverbs, the library", "uverbs": "uverbs, the commands of the kernel"}
# the first digits of a fingerprint suffice
FINGERPRINT = re.compile(r"[0-9a-f]{4,}", re.IGNORECASE)


def of_rule(suite: Suite, rule: Rule, run: Digest | None) -> Iterator[str]:
    """Yields lines about a rule: its statement, its document, the latest verdict, and its cases."""
    yield f"{rule.id}  {rule.document}, {rule.section}"
    yield ""
    yield from _wrapped(rule.statement)
    yield ""
    yield from _documented(rule)
    yield ""
    yield f"level {rule.level}, since rdma-core {rule.since}, enforced by: {rule.layer}"
    yield f"defined in {rule.location.file}:{rule.location.line}"
    if rule.needs:
        yield f"needs: {', '.join(rule.needs)}"
    yield ""
    yield "If it fails:"
    yield from _wrapped(rule.failure_means)
    yield ""
    cases = suite.of_rule(rule.id)
    if run:
        results = run.by_case
    else:
        results = {}
    if run:
        yield f"Last verdict: {run.verdicts.labels.get(rule.id, 'not run')}  {_stack(run)}"
        if rule.id in run.verdicts.restrictions:
            yield from _wrapped(run.verdicts.restrictions[rule.id])
        if rule.id in run.verdicts.refutations:
            yield from _wrapped(run.verdicts.refutations[rule.id])
        for candidate in candidates(run, suite, rule.id):
            yield from _wrapped(f"perhaps contradicted by the violation in {candidate.case}")
        yield ""
    yield f"{format_count(len(cases), 'case')} {'tests' if len(cases) == 1 else 'test'} this rule:"
    by_rank = sorted(cases, key=lambda case: _rank(rule, results.get(case.id)))
    for case in by_rank[:MOST_CASES]:
        record = results.get(case.id)
        verdict = verdict_on(rule.id, record) if record else "-"
        yield f"  {verdict:<11}  {case.id}  {case.location.file}:{case.location.line}"
        if record and verdict_on(rule.id, record) in VIOLATIONS:
            reason, repro = headline(rule.id, record)
            yield from _wrapped(reason, "      ")
            yield f"      {repro}"
        elif record and record["effective"] in VIOLATIONS:
            violated = ", ".join(_violated(record))
            yield from _wrapped(
                f"the case is {record['effective']} because of {violated}", "      "
            )
    if len(cases) > MOST_CASES:
        yield f"  and {len(cases) - MOST_CASES} more: {PROGRAM} list --rule {rule.id}"
    if any(results[case.id]["space"] for case in cases if case.id in results):
        yield ""
        yield from _wrapped(evidence.POINT)


def _rank(rule: Rule, record: ResultRecord | None) -> tuple[int, bool]:
    if record is None:
        return len(VERDICTS), False
    return VERDICTS.index(verdict_on(rule.id, record)), record["effective"] not in VIOLATIONS


def _violated(record: ResultRecord) -> list[str]:
    return [rule for rule in record["rules"] if verdict_on(rule, record) in VIOLATIONS]


def of_case(suite: Suite, case: Case, run: Digest | None, whole_log: bool) -> Iterator[str]:
    """Yields lines about a case or a point of a sweep: its steps, its rules, and its verdict in the latest run; if
    `whole_log`, with the whole log of the kernel."""
    yield f"{case.id}  {case.location.file}:{case.location.line}"
    if case.about:
        yield from _wrapped(case.about)
    yield ""
    yield from _steps(case)
    yield f"entry:      {ENTRIES.get(case.entry, case.entry)}"
    if case.needs:
        yield f"needs:      {', '.join(case.needs)}"
    if case.hazardous:
        yield "hazard:     the call can crash the kernel, so the case runs in a separate guest"
    if case.ends_process:
        yield "hazard:     the call can end its process, so the case runs in a separate process"
    rules: Sequence[str] = case.rules
    if case.array and len(case.array.points) == 1:
        yield from _combination(case.array)
        rules = Conditions(case.array.model).all_rules(case.array.points[0])
    for id_ in rules:
        rule = suite.registry[id_]
        yield ""
        yield f"{rule.id}  {rule.document}, {rule.section}"
        yield from _wrapped(rule.statement)
        yield from _documented(rule)
        yield from _wrapped(f"If it fails: {rule.failure_means}")
    if run:
        yield ""
        name = case.id.partition(POINT)[0]
        results = run.by_case
        if case.id in results:  # a point that was run alone
            name = case.id
        record = results.get(name)
        whole = suite.find(name)
        yield from (
            _of_point(case, whole, record, run)
            if record and case.id != name
            else _of_result(record, run, whole_log)
        )


def _combination(array: CoveringArray) -> Iterator[str]:
    """Yields the values of the only point of an array, its fault, and what the reference requires."""
    (point,) = array.points
    model = array.model
    yield ""
    for axis, label in zip(model.parameters, point, strict=True):
        yield from _wrapped(f"{axis.name}={label}: {model.meanings[axis.name][label]}")
    faults = Conditions(model).faults(point)
    if faults:
        yield f"fault:      {faults[0]}: {model.faults[faults[0]]}; the request must be refused"
    else:
        yield "fault:      none; the request must be granted"
    answer = array.answer(0)
    for side, completions in (
        ("requester", answer.get("requester", [])),
        ("receiver", answer.get("receiver", [])),
    ):
        texts = [" ".join(words) for words in completions]
        yield f"{side + ':':<12}{'; '.join(texts) or 'no completion'}"
    yield f"memory:     {answer.get('tested', 'same')} in the region, {answer.get('other', 'same')} elsewhere"


def _steps(case: Case) -> Iterator[str]:
    """Yields the steps of the case in order. A sweep has a line for each clause of its expectations."""
    if case.kind is not Kind.SWEEP:
        set_up = set_up_of(case)
        yield from (f"given:      {line}" for line in set_up["given"])
        yield from (f"before:     {line}" for line in set_up["before"])
    yield f"call:       {case.when}"
    if case.sweep:
        if case.kind is Kind.SWEEP:
            axes = ", ".join(axis.name for axis in case.sweep.space.axes)
            yield f"swept:      {format_count(case.sweep.size, 'point')} over the axes {axes}; each point is one call"
            yield f"set-up:     for the set-up of a point, run {PROGRAM} explain {case.id}{POINT}AXIS=VALUE,..."
        for clause in clauses(case):
            yield f"expect:     {'; '.join(f'{name} {text}' for name, text in flat(clause))}"
    elif case.kind is Kind.COMBINATIONS:
        yield f"expect:     {evidence.OF_MODEL}"
    else:
        yield f"expect:     {'; '.join(f'{name} {text}' for name, text in flat(case.when.then.as_data()))}"
    for step in case.afterwards:
        yield f"afterwards: {step}: {'; '.join(f'{name} {text}' for name, text in flat(step.then.as_data()))}"


def of_retired(case: str, retired: Retired, run: Digest | None, whole_log: bool) -> Iterator[str]:
    """Yields why the tables no longer have a case, and its recorded verdict."""
    yield f"{case}  retired at {retired.location}"
    yield from _wrapped(f"Why: {retired.why}")
    results = run.by_case if run else {}
    if run and case in results:
        yield ""
        *lines, _ = _of_result(results[case], run, whole_log)  # the last line runs the case
        yield from lines


def _stack(run: Digest) -> str:
    return f"({run.environment.name}; {run.environment.when}; {run.shown_path})"


def _of_result(record: ResultRecord | None, run: Digest, whole_log: bool) -> Iterator[str]:
    yield f"Last verdict: {record['effective'] if record else 'not run'}  {_stack(run)}"
    if record is None:
        return
    yield from _wrapped(record["reason"])
    broken = _violated(record)
    passed = [rule for rule in record["rules"] if rule not in broken]
    if broken and passed:
        yield from _wrapped(f"violates {', '.join(broken)}, but not {', '.join(passed)}")
    if record["case"] in run.verdicts.unproven:
        yield from _wrapped(run.verdicts.unproven[record["case"]])
    for defect in run.violations.defects_in(record["case"]):
        yield from _wrapped(f"defect {defect.fingerprint}, {defect.severity.label}: {defect.title}")
    if record["observed"] or evidence.died(record):
        yield f"  observed: {evidence.observed(record)}"
        yield from (f"  {line}" for line in evidence.exchange_lines(record))
        yield from (
            f"  observed afterwards: {evidence.format_fields(step)}"
            for step in evidence.later(record["observed"])
        )
    yield from (
        f"  {line}" for deviation in record["deviations"] for line in evidence.deviation(deviation)
    )
    if record["verdict"] in VIOLATIONS:
        yield f"  answered by: {evidence.answered(run, record)}"
    yield from (f"  {line}" for line in evidence.kernel(record["kernel"]["log"], whole_log))
    if confirmed := run.violations.repetitions.text_of(record["case"]):
        yield from _wrapped(f"repeated: {confirmed}")
    yield f"  {record['repro']}"
    yield from (f"  {line}" for line in remarks_on(record))


def _of_point(case: Case, whole: Case | None, record: ResultRecord, run: Digest) -> Iterator[str]:
    """Yields lines about a point of the case `whole`: its own verdict, or why it is not known."""
    stack = _stack(run)
    if case.array is not None:
        verdict, lines = _at_point_of_model(case, whole, record)
        name = case.array.model.text(case.array.points[0])
    else:
        verdict, lines = _at_point_of_sweep(case, record, run)
        name = case.id.partition(POINT)[2]
    labels = dict(part.split("=", 1) for part in name.split(","))
    recorded = (deviation for deviation in record["deviations"] if labels == deviation["smallest"])
    deviation = None if verdict else next(recorded, None)
    if deviation:  # the results have the smallest point of each deviation
        verdict, lines = str(deviation.get("verdict", Verdict.FAIL)), _at_deviation(deviation)
    if not verdict:
        yield f"Last verdict: not recorded for this point  {stack}"
        yield from _wrapped(f"{', '.join(lines)}; the whole case is {record['effective']}")
        return
    yield f"Last verdict: {verdict}  {stack}"
    yield from (line for text in lines for line in _wrapped(text))
    if confirmed := run.violations.repetitions.text_at(record["case"], name):
        yield from _wrapped(f"repeated: {confirmed}")
    command_of_case = record["repro"]
    yield f"  {command_of_case}" if is_race(record) else f"  {command_of_case}{POINT}{name}"
    yield from (f"  {line}" for line in remarks_on(record))


def _at_deviation(deviation: Deviation) -> list[str]:
    expected, observed = deviation.get("expected", ""), deviation.get("observed", "")
    return [f"{', '.join(deviation['rules'])} expects {expected}: {observed}"]


def _at_point_of_sweep(case: Case, record: ResultRecord, run: Digest) -> tuple[str, list[str]]:
    """Returns the verdict on a point, and lines about it; without a verdict, the reason."""
    assert case.sweep is not None
    assert case.point is not None
    points = read_points(run.directory, record)
    if points is None:
        return "", ["the file with its points is missing"]
    number = OUTSIDE
    if points.space.as_data() == case.sweep.space.as_data():
        number = points.index[case.point]
    if number == OUTSIDE:
        return "", ["the sweep had a different space in that run"]
    outcome = points.outcomes[number]
    remarks = [f"remark: {note}" for note in outcome.notes]
    line = f"{outcome.rule} expects {outcome.expected}: {outcome.observed}"
    return outcome.verdict, [line, *remarks]


def _at_point_of_model(
    case: Case, whole: Case | None, record: ResultRecord
) -> tuple[str, list[str]]:
    """Returns the same for the point of a model."""
    assert case.array is not None
    (point,) = case.array.points
    seen = record["observed"].get("combinations")
    if whole is None or whole.array is None or not seen:
        return "", ["the run has no observation of its points"]
    if not is_of_model(record["observed"], whole.array):
        return "", ["the model had other points in that run"]
    if point not in whole.array.points:
        return "", ["the point is not among those of the case"]
    try:
        judged = Judged(whole.array, seen)
    except (ValueError, LookupError):  # a damaged file
        return "", ["what the run has of its points cannot be read"]
    if skipped := judged.skipped.get(point):
        lacks = skipped.startswith("need ")
        return (Verdict.UNSUPPORTED if lacks else Verdict.UNREACHABLE), [skipped]
    wrong = deviation_at(judged, whole, point)
    if wrong:
        return str(wrong["verdict"]), _at_deviation(wrong)
    return Verdict.PASS, ["no rule was violated at this point"]


def of_defect(defect: Defect, run: Digest, in_full: bool) -> Iterator[str]:
    """Yields lines about a defect: its severity, its rules, the evidence of its first case, and its cases; if
    `in_full`, with the whole log of the kernel, and without leaving out cases."""
    first = defect.first
    yield f"defect {defect.fingerprint}  {_stack(run)}"
    yield from _wrapped(defect.title)
    yield ""
    yield f"severity:    {defect.severity.label}"
    yield from _wrapped(f"{defect.severity.meaning} {defect.severity.advice}")
    yield f"answered by: {defect.answering}"
    again = run.violations.repetitions.share(defect)
    shows = f"{format_count(len(defect.cases), 'case')}, {format_count(defect.points, 'call')}"
    yield f"shows in:    {shows}{f': {again}' if again else ''}"
    if state := upstream(defect):
        yield f"upstream:    {state}"
    from reports.causes import causes  # imported late: only defects have causes

    for kind, text in causes(defect, run):
        yield f"{kind}:"
        yield from _wrapped(text)
    if defect.lost and not defect.unconfirmed:
        yield f"not counted: {format_count(len(defect.lost), 'call')} that did not occur again"
    yield ""
    for id_ in defect.rules:
        if facts := run.verdicts.rules.get(id_):
            yield from _wrapped(f"{id_}: {facts.statement}")
            yield from _wrapped(f"The document: {facts.documented}", "    ")
            if facts.argument_against:
                yield from _wrapped(f"Argument against: {facts.argument_against}", "    ")
    yield ""
    yield f"The first case: {first.name}"
    yield from (f"  {line}" for line in evidence.of_symptom(run, first, in_full))
    if defect.confirmed and not run.violations.repetitions.is_confirmed(first):
        confirmed = defect.confirmed[0]
        yield ""
        yield from _wrapped(f"A case that was repeated: {confirmed.name}", "")
        yield from _wrapped(run.violations.repetitions.text_about(confirmed))
    yield ""
    yield "All cases (of a sweep, its smallest failing points):"
    names = list(dict.fromkeys(symptom.name for symptom in defect.symptoms))
    shown = names if in_full else names[:MOST_CASES]
    yield from (f"  {name}" for name in shown)
    if more := len(names) - len(shown):
        yield f"  and {more} more, which explain --all lists"


def _documented(rule: Rule) -> list[str]:
    if rule.quote:
        lines = _wrapped(f'The document: "{rule.quote}"')
    else:
        lines = _wrapped(f"The document is not quoted: {rule.unquoted}")
    if rule.second_hand:
        lines += _wrapped(f"The statement is known from {rule.second_hand}")
    if rule.argument_against:
        lines += _wrapped(f"Argument against: {rule.argument_against}")
    return lines


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return wrapped(text, _WIDTH, indent, indent)


def defect_of(digits: str, run: Digest | None, option: str) -> tuple[Defect, Digest]:
    """Returns the only defect of a run with a fingerprint that begins with the `digits`. Raises
    UserError without a run (the hint names `option`, which selects a run), or if not exactly one defect matches."""
    if run is None:
        raise UserError(
            f"there is no run to search for the defect {digits}",
            hint=f"give {option} RUN",
        )
    digits = digits.lower()
    matches = Defect.called(digits, run.violations.defects)
    if len(matches) != 1:
        names = ", ".join(defect.fingerprint for defect in matches)
        if names:
            what = f"{digits} matches several defects: {names}"
        else:
            what = f"{run.path} has no defect {digits}"
        raise UserError(what, hint=f"{command('report', run.path)} shows all defects")
    return matches[0], run
