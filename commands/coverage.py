"""`rdma-cts list coverage`: prints how many cases prove each documented statement, which statements no case proves, on which
objects no case judges a rule, and how many cases expect each documented return code. With the results of a run, it also
prints the verdicts and how often each return code was observed."""

from __future__ import annotations

import argparse
import errno
import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from commands.cli.catalogue import COMMANDS
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show
from conformance.errors import UserError, format_count
from conformance.model.case import Case, Step
from conformance.model.record import ResultRecord
from conformance.model.verdict import OF_RULES
from conformance.older_python import zip
from conformance.results.records import read_results
from conformance.tables.suite import Suite
from conformance.verbs import ENUMS, VERBS, ReturnCode, Verb
from reports.digest import read

WIDTH = 120
_NOT_RUN, _NOT_JUDGED = "-", "not judged"


@dataclass(frozen=True)
class RuleCoverage:
    """A rule, and how many cases prove it. A case with a successful and a refused step is counted in both numbers."""

    id: str
    document: str
    statement: str
    cases: int
    success: int  # cases that prove the rule by a successful call
    refused: int  # cases that prove the rule by a refused call
    open: int  # cases that only record what happens
    verdict: str = ""  # empty without results; "-" if the rule has no result; "not judged" for a vendor's dialect


@dataclass(frozen=True)
class CodeCoverage:
    """A documented return code: how many cases expect it, and how often a run observed it (None without results)."""

    verb: str
    code: str
    expected: int
    observed: int | None


@dataclass(frozen=True)
class Coverage:
    rules: tuple[RuleCoverage, ...]
    codes: tuple[CodeCoverage, ...]
    cases: int
    complete: bool | None = None  # None without results, False if the run is incomplete
    cases_run: int = 0  # the suite's cases that have a result

    @property
    def without_case(self) -> list[str]:
        return [rule.id for rule in self.rules if not rule.cases]

    @property
    def only_open(self) -> list[str]:
        """The rules whose cases all leave the outcome open."""
        return [
            rule.id for rule in self.rules if rule.cases and not rule.success and not rule.refused
        ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "--run RUN", "a run, whose verdicts and return codes are also shown")
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the coverage. Returns exit status 1 if a rule has no case, else 0."""
    suite = suite_from(arguments)
    if arguments.run is None:
        coverage = cover(suite)
    else:
        coverage = cover_with_results(suite, arguments.run)
    show(render(coverage))
    if coverage.without_case:
        return 1
    return 0


def cover(suite: Suite) -> Coverage:
    return Coverage(tuple(_rules(suite, None)), tuple(_codes(suite.cases, None)), len(suite.cases))


def cover_with_results(suite: Suite, path: Path) -> Coverage:
    """Returns the coverage of the tables and of the results of a run. Raises UserError if the results are invalid."""
    run = read(path)
    recorded = read_results(path)
    try:
        verdicts = {**run.verdicts.of_rules, **dict.fromkeys(run.verdicts.apart, _NOT_JUDGED)}
        codes = tuple(_codes(suite.cases, recorded.results))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UserError(
            f"{path}: a result cannot be read ({type(error).__name__}: {error})",
        ) from error
    complete = bool(recorded.footer and recorded.footer["complete"])
    cases = {record["case"] for record in recorded.results} & {case.id for case in suite.cases}
    return Coverage(tuple(_rules(suite, verdicts)), codes, len(suite.cases), complete, len(cases))


def _rules(suite: Suite, verdicts: Mapping[str, str] | None) -> Iterator[RuleCoverage]:
    by_rule: dict[str, list[set[str]]] = {rule_id: [] for rule_id in suite.registry}
    for case in suite.cases:
        for rule_id in case.rules:
            by_rule[rule_id].append(directions(case))
    for rule_id, rule in suite.registry.items():
        count = Counter(direction for counts in by_rule[rule_id] for direction in counts)
        if verdicts is None:
            verdict = ""
        else:
            verdict = verdicts.get(rule_id, _NOT_RUN)
        counts = (len(by_rule[rule_id]), count["success"], count["refused"], count["open"])
        yield RuleCoverage(rule_id, rule.document, rule.statement, *counts, verdict)


def directions(case: Case) -> set[str]:
    """Returns the directions in which a case proves its rules: `success`, `refused`, or `open` if it proves nothing."""
    if case.sweep:
        return {clause.then.outcome for clause in case.sweep.deciding if clause.then} - {"open"}
    # If the outcome of the judged call is open, the case never fails, whatever its later steps expect. A model's
    # combinations find violations but prove no rule.
    if case.when.then.outcome == "open" or not case.kind.traits.proves:
        return {"open"}
    return {step.then.outcome for step in case.judged_steps} - {"open"}


def _codes(cases: Sequence[Case], results: Sequence[ResultRecord] | None) -> Iterator[CodeCoverage]:
    if results is None:
        seen = None
    else:
        seen = [returned_code for record in results for returned_code in _returns_in(record)]
    for verb in VERBS.values():
        for code in verb.return_codes:
            if seen is None:
                observed = None
            else:
                observed = sum(_has_code(item, verb, code) for item in seen)
            yield CodeCoverage(verb.name, code.name, _expecting(cases, verb, code), observed)


def _expecting(cases: Iterable[Case], verb: Verb, code: ReturnCode) -> int:
    def expects(step: Step) -> bool:
        named = (*step.then.errno, *step.then.code)
        return step.call == verb.name and any(_names(code, verb, name) for name in named)

    return sum(any(map(expects, case.judged_steps)) for case in cases)


# One call in a result: its name; its return value, or errno if it returned NULL; and the expected codes.
_Returned = tuple[str, str, tuple[str, ...]]


def _returns_in(record: ResultRecord) -> Iterator[_Returned]:
    observed, expected = record["observed"], record["expected"]
    first = {"call": record.get("call", ""), **expected}
    later = zip(expected.get("afterwards", ()), observed.get("afterwards", ()), strict=False)
    for step, seen in [(first, observed), *later]:
        if "returned" in seen:
            if seen["returned"] == "NULL":
                reason = seen.get("errno", "")
            else:
                reason = seen["returned"]
            named = (*step.get("errno", ()), *step.get("code", ()))
            yield step["call"].partition("(")[0], str(reason), named


def _names(code: ReturnCode, verb: Verb, name: str) -> bool:
    if verb.code_enum:
        short = ENUMS[verb.code_enum].short(code.name)
    else:
        short = code.name
    return name in (code.name, short)


def _has_code(returned: _Returned, verb: Verb, code: ReturnCode) -> bool:
    """Returns whether a call returned the code. ENOTSUP and EOPNOTSUPP are the same number on Linux, but
    ibv_advise_mr(3) lists them as two codes. The number counts only for the code that the case expects, because one
    call must not count for both codes."""
    call, reason, expected = returned
    if reason.startswith("E") and not verb.code_enum:
        number = getattr(errno, reason, None)
    else:
        number = None
    same = _names(code, verb, reason) or code.value == number or str(code.value) == reason
    if call != verb.name or not same:
        return False
    twins = [item for item in verb.return_codes if item.value == code.value]
    return len(twins) == 1 or any(_names(code, verb, name) for name in expected)


def render(coverage: Coverage) -> Iterator[str]:
    """Yields the lines of the text report: rules, totals, return codes."""
    yield from _rule_lines(coverage)
    yield ""
    yield from _totals(coverage)
    yield ""
    yield from _scope_lines()
    yield ""
    yield from _code_lines(coverage)


def _rule_lines(coverage: Coverage) -> Iterator[str]:
    with_results = coverage.complete is not None
    width = max((len(rule.id) for rule in coverage.rules), default=4)
    document = min(18, max((len(rule.document) for rule in coverage.rules), default=8))
    if with_results:
        verdict = f"{'verdict':<11}  "
    else:
        verdict = ""
    head = f"{'rule':<{width}}  cases  success  refused  open  {verdict}{'document':<{document}}  "
    yield f"{head}statement"
    for rule in coverage.rules:
        counts = [
            f"{number or '-':>{size}}"
            for number, size in (
                (rule.cases, 5),
                (rule.success, 7),
                (rule.refused, 7),
                (rule.open, 4),
            )
        ]
        # The verdict is in brackets if every case is open: then it means only that no case crashed or hung.
        if rule.id in coverage.only_open:
            shown = f"({rule.verdict})"
        else:
            shown = rule.verdict
        if with_results:
            verdict = f"{shown:<11}  "
        else:
            verdict = ""
        if len(rule.document) <= document:
            source = rule.document
        else:
            source = f"{rule.document[: document - 1]}…"
        statement = textwrap.shorten(rule.statement, max(20, WIDTH - len(head)), placeholder="…")
        yield f"{rule.id:<{width}}  {'  '.join(counts)}  {verdict}{source:<{document}}  {statement}"


def _scope_lines() -> Iterator[str]:
    if "trial" not in COMMANDS:
        yield "the package rdma-cts-trial knows on which objects no case judges a rule"
        return
    from trial.scopes import scopes  # imported late: a package of its own

    objects = scopes()
    yield (
        f"{len(objects.cells)} objects of which a rule's sentence is true, "
        f"{len(objects.unjudged)} that no case judges:"
    )
    for because, cells in itertools.groupby(objects.unjudged.items(), lambda item: item[1]):
        yield from textwrap.wrap(
            f"  {', '.join(str(cell) for cell, _ in cells)}: {because}",
            WIDTH,
            subsequent_indent="    ",
        )


def _totals(coverage: Coverage) -> Iterator[str]:
    rules = coverage.rules
    both = sum(bool(rule.success and rule.refused) for rule in rules)
    single = sum(bool(rule.success) != bool(rule.refused) for rule in rules)
    yield (
        f"{len(rules)} rules, {len(rules) - len(coverage.without_case)} with a case: "
        f"{both} in both directions, {single} in one direction; {coverage.cases} cases"
    )
    if coverage.complete is not None:
        counts = Counter(rule.verdict for rule in rules)
        figures = [
            f"{counts[verdict]} {verdict}" for verdict in reversed(OF_RULES) if counts[verdict]
        ]
        figures.append(f"{counts[_NOT_RUN]} without a result")
        if counts[_NOT_JUDGED]:
            figures.append(f"{counts[_NOT_JUDGED]} of a vendor's dialect not judged")
        yield f"results of {coverage.cases_run} of the {coverage.cases} cases; rules: {', '.join(figures)}"
    if coverage.complete is False:
        yield "these results are from an incomplete run"
    yield from _listed("only open cases, which prove nothing", coverage.only_open)
    yield from _listed("without a case", coverage.without_case)


def _listed(what: str, ids: Sequence[str]) -> Iterator[str]:
    if ids:
        text = f"{what} ({len(ids)}): {' '.join(ids)}"
        yield from textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _code_lines(coverage: Coverage) -> Iterator[str]:
    codes, with_results = coverage.codes, coverage.complete is not None
    verb = max((len(code.verb) for code in codes), default=4)
    name = max((len(code.code) for code in codes), default=4)
    if with_results:
        observed = "  observed"
    else:
        observed = ""
    yield f"{'documented return codes':<{verb + name + 2}}  expected by{observed}"
    for code in codes:
        if code.expected:
            expected = format_count(code.expected, "case")
        else:
            expected = "no case"
        if with_results:
            observed = f"  {format_count(code.observed, 'time') if code.observed else 'never'}"
        else:
            observed = ""
        yield f"{code.verb:<{verb}}  {code.code:<{name}}  {expected:<11}{observed}".rstrip()
    yield f"documented codes expected by a case: {sum(code.expected > 0 for code in codes)} of {len(codes)}"
    if with_results:
        yield f"documented codes observed: {sum(bool(code.observed) for code in codes)} of {len(codes)}"
