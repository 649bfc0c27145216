"""`rdma-cts list`: lists the cases or the rules."""

import argparse
from collections import Counter
from collections.abc import Iterator

from commands.cli.run_arguments import add, add_selection, selection_from, suite_from
from commands.cli.streams import remark, show
from conformance.errors import format_count
from conformance.model.case import Case
from conformance.tables.suite import Suite
from conformance.tables.tiers import DEFAULT, EXHAUSTIVE, of_tier
from reports.earlier import named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "--rules", "show the rules instead of the cases", dest="of_rules")
    add_selection(parser, EXHAUSTIVE)


def execute(arguments: argparse.Namespace) -> int:
    """Prints one line for each case or rule, and returns exit status 0."""
    suite = suite_from(arguments)
    arguments.only = [*named(arguments.only, suite, remark)]
    cases = selection_from(arguments).apply(suite)
    show(_rules(suite, cases) if arguments.of_rules else _cases(cases, bool(arguments.only)))
    return 0


def _cases(cases: list[Case], by_id: bool) -> Iterator[str]:
    width = max(len(case.id) for case in cases)
    for case in cases:
        if case.point is None:
            swept = case.sweep
        else:
            swept = None
        if swept:
            outcome = format_count(swept.size, "point")
        else:
            outcome = case.when.then.outcome
        yield f"{case.id:{width}}  {' '.join(case.rules):8}  {outcome}"
    yield _total(cases, by_id)


def _total(cases: list[Case], by_id: bool) -> str:
    """Returns the last line. Unless `by_id`, it has the size of a run without --tier if that run has fewer cases."""
    total = f"{len(cases)} case{'' if len(cases) == 1 else 's'}"
    of_run = len(of_tier(cases, DEFAULT))
    if by_id or of_run == len(cases):
        return total
    return f"{total}; a run without --tier has {of_run} of them (tier {DEFAULT})"


def _rules(suite: Suite, cases: list[Case]) -> Iterator[str]:
    counts = Counter(rule for case in cases for rule in set(case.rules))
    is_chosen = len(cases) < len(suite.cases)
    for rule in suite.registry.values():
        count = counts[rule.id]
        if is_chosen and not count:
            continue
        yield f"{rule.id:10} {rule.document:22} {count:4} {'case ' if count == 1 else 'cases'}  {rule.statement}"
    yield f"{len(suite.registry)} rules, {len(counts)} with a selected case"
