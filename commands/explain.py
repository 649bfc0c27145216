"""`rdma-cts explain`: a rule or a case in full: what is promised, what proves it, and its latest verdict."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from commands import case_options
from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.record import ResultRecord
from conformance.model.rules import Rule
from conformance.model.verdict import VERDICTS, VIOLATIONS
from conformance.results.conclusions import headline, verdict_on
from conformance.results.records import FILE_NAME
from conformance.results.sweep_record import clauses
from conformance.tables.suite import Suite
from conformance.yamldoc.reader import suggestion
from reports.digest import Digest, flat, format_deviation, read

NAME = "explain"
HELP = "Explain a rule or a case: its source, its cases, its last verdict, what a failure means."

OUT = Path("out")  # where runs write their results by default
_WIDTH = 100
_CASES = 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("id", metavar="RULE_OR_CASE", help="such as REG-15 or reg_mr/registration/last-byte")
    parser.add_argument(
        "--results", type=Path, metavar="DIR", help=f"the run to look at (default: the latest in {OUT}/)"
    )
    case_options.add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the explanation; exit status 0. Raises UserError for an unknown id."""
    suite = case_options.suite_from(arguments)
    wanted = arguments.id
    rule = next((id_ for id_ in suite.registry if id_.upper() == wanted.upper()), None)
    path = arguments.results or latest(OUT)
    run = read(path) if path else None
    lines = _of_rule(suite, suite.registry[rule], run) if rule else _of_case(suite, _case(suite, wanted), run)
    print("\n".join(lines))
    return 0


def latest(folder: Path) -> Path | None:
    """The run in `folder` whose results were written last; None if there is none."""
    files = sorted(folder.glob(f"*/{FILE_NAME}"), key=lambda file: file.stat().st_mtime)
    return files[-1].parent if files else None


def _case(suite: Suite, wanted: str) -> Case:
    found = next((case for case in suite.cases if case.id == wanted), None)
    if found is None:
        ids = [case.id for case in suite.cases]
        raise UserError(
            f"there is no rule or case {wanted!r}{suggestion(wanted, [*suite.registry, *ids])}",
            hint="./rdma-cts list shows all cases, ./rdma-cts list --rules all rules",
        )
    return found


def _of_rule(suite: Suite, rule: Rule, run: Digest | None) -> Iterator[str]:
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
    cases = [case for case in suite.cases if rule.id in case.rules]
    results = {record["case"]: record for record in run.results} if run else {}
    if run:
        yield f"Last verdict: {run.verdicts.get(rule.id, 'not run')}  ({run.name}; {run.directory})"
        if rule.id in run.restrictions:
            yield from _wrapped(run.restrictions[rule.id])
        yield ""
    yield f"{len(cases)} cases prove it:"
    by_rank = sorted(cases, key=lambda case: _rank(rule, results.get(case.id)))
    for case in by_rank[:_CASES]:
        record = results.get(case.id)
        verdict = verdict_on(rule.id, record) if record else "-"
        yield f"  {verdict:<11}  {case.id}  {case.location.file}:{case.location.line}"
        if record and verdict_on(rule.id, record) in VIOLATIONS:
            reason, repro = headline(rule.id, record)
            yield from _wrapped(reason, "      ")
            yield f"      {repro}"
    if len(cases) > _CASES:
        yield f"  and {len(cases) - _CASES} more: ./rdma-cts list --rule {rule.id}"


def _rank(rule: Rule, record: ResultRecord | None) -> int:
    return VERDICTS.index(verdict_on(rule.id, record)) if record else len(VERDICTS)


def _of_case(suite: Suite, case: Case, run: Digest | None) -> Iterator[str]:
    yield f"{case.id}  {case.location.file}:{case.location.line}"
    if case.about:
        yield from _wrapped(case.about)
    yield ""
    for step in case.before:
        yield f"set up:  {step}"
    yield f"call:    {case.when}"
    if case.sweep:
        yield f"swept:   {case.sweep.size:,} points over {', '.join(axis.name for axis in case.sweep.space.axes)}"
        for clause in clauses(case):
            yield f"expect:  {'; '.join(f'{name} {text}' for name, text in flat(clause))}"
    else:
        yield f"expect:  {'; '.join(f'{name} {text}' for name, text in flat(case.when.then.as_data()))}"
    for step in case.afterwards:
        yield f"then:    {step}: {'; '.join(f'{name} {text}' for name, text in flat(step.then.as_data()))}"
    yield f"entry:   {case.entry}"
    if case.needs:
        yield f"needs:   {', '.join(case.needs)}"
    if case.hazardous:
        yield "hazard:  the call can crash the kernel, so the case runs in a guest of its own"
    for id_ in case.rules:
        rule = suite.registry[id_]
        yield ""
        yield f"{rule.id}  {rule.document}, {rule.section}"
        yield from _wrapped(rule.statement)
        yield from _documented(rule)
        yield from _wrapped(f"If it fails: {rule.failure_means}")
    record = next((record for record in run.results if record["case"] == case.id), None) if run else None
    if run:
        yield ""
        yield f"Last verdict: {record['effective'] if record else 'not run'}  ({run.name}; {run.directory})"
    if record:
        yield from _wrapped(record["reason"])
        if record["observed"]:
            yield f"  observed: {'; '.join(f'{name} {text}' for name, text in flat(record['observed']) if text)}"
        for each in record["deviations"]:
            text = format_deviation(each) + (f": {each['repro']}" if each["repro"] else "")
            yield from (f"  {line}" for line in text.splitlines())
        yield from (f"  kernel: {text}" for text in record["kernel"]["log"])
        yield f"  {record['repro']}"


def _documented(rule: Rule) -> list[str]:
    """The words of the rule's document, or why they are not given."""
    return _wrapped(f'The document: "{rule.quote}"' if rule.quote else f"The document is not quoted: {rule.unquoted}")


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
