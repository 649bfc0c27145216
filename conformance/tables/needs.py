"""What verifies each rule: what the rows and points of its tables show, unless rules.yaml names it.

Cases of the default tier count. Not for the evidence of a run (results/).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from conformance.model.case import Case
from conformance.model.evidence import Needs, Shown, controls, shown_of_rules
from conformance.model.rules import Registry
from conformance.tables.tiers import DEFAULT, of_tier
from conformance.yamldoc.nodes import Mistake, quoted
from conformance.yamldoc.reader import suggestion


def needs_of(registry: Registry, cases: Sequence[Case]) -> tuple[Needs, list[Mistake]]:
    """The evidence that the rules need, and a mistake for each that a rule names and no case of it shows."""
    by_rule: dict[str, set[str]] = {rule: set() for rule in registry}
    everything: set[Shown] = set()
    planned = [case for case in of_tier(cases, DEFAULT) if case.kind.traits.proves]
    for case in planned:
        for rule, shown in shown_of_rules(case):
            everything.add(shown)
            by_rule[rule].add(shown.item)
    mistakes = [
        Mistake(rule.location, f"no case of {rule.id} shows {quoted(item)}{suggestion(item, by_rule[rule.id])}")
        for rule in registry.values()
        for item in rule.evidence
        if item not in by_rule[rule.id]
    ]
    items = {rule.id: rule.evidence or tuple(sorted(by_rule[rule.id])) for rule in registry.values()}
    number = Counter(rule for case in planned for rule in case.rules)
    conditional = frozenset(rule.id for rule in registry.values() if rule.conditional)
    return Needs(items, controls(everything), conditional, dict(number)), mistakes
