"""The mutants of the reference: violations, violations that were written blind, and permitted variants."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from conformance import verbs
from conformance.bench import calls, memory_areas, work_requests
from conformance.errors import PROGRAM, UserError
from conformance.tables.suite import Suite
from conformance.tables.tiers import Shard
from conformance.yamldoc.reader import suggestion
from trial import mutants
from trial.mutant_table import BLIND, Violation, mutants_of
from trial.mutants import bases, pages
from trial.reference import (
    access,
    advice,
    extended,
    memory,
    objects,
    packets,
    queues,
    reregistration,
    sent_packets,
    served_packets,
)
from trial.reference.device import Device

# The modules with the names that expressions in tables can use.
_OF_BENCH = (dataclasses, verbs, calls, memory_areas, work_requests)
VOCABULARY = (
    *_OF_BENCH,
    access,
    advice,
    extended,
    memory,
    objects,
    packets,
    queues,
    reregistration,
    sent_packets,
    served_packets,
    bases,
    pages,
)
_ALL = tuple(mutants_of(mutants, Device, VOCABULARY))
_VIOLATING = [mutant for mutant in _ALL if not mutant.permitted]
VIOLATIONS: tuple[Violation, ...] = tuple(
    mutant for mutant in _VIOLATING if mutant.written != BLIND
)
# The author of these mutants had the rules, the documents and the reference, but had not seen the cases or the engine.
# docs/trial.md has the first figures of these mutants.
BLIND_VIOLATIONS = tuple(mutant for mutant in _VIOLATING if mutant.written == BLIND)
PERMITTED_VARIANTS = tuple(mutant for mutant in _ALL if mutant.permitted)
# Rules whose violation no case could detect, with the reasons.
UNTRIABLE = {
    "REREG-15": "a driver may reuse resources or not: the behaviour is recorded, and the case never fails",
}

# Blind violations that no case can or may detect, with the reasons.
UNDETECTED = {
    "on-demand-memory-has-to-be-there-at-once": "no page says that memory may be mapped after its registration",
    "on-demand-reads-the-old-page": "a write clears the stored bytes, and each READ writes to the requester's memory",
    "hugetlb-without-a-look": "the page does not say who guarantees the size of the pages",
    "hugetlb-looks-at-the-first-page": "the page does not say who guarantees the size of the pages",
    "hugetlb-for-the-whole-space": "the page does not say who guarantees the size of the pages",
    "persistent-right-flushes-globally": "no page says that the right to flush to persistence excludes the other flush",
    "same-address-forgets-zero-based": "no page says what ZERO_BASED means together with an hca_va",
    "no-domain-goes-down": "no page says that the library checks whether the PD is NULL",
    "old-fork-failure-not-told": "no page says that each failure to restore a range is reported",
    "failure-to-post-returns-zero": "no page says when a bind can be posted",
}


def chosen_of(
    violations: Sequence[Violation],
    suite: Suite,
    rules: Sequence[str] = (),
    names: Sequence[str] = (),
    shard: Shard | None = None,
) -> list[Violation]:
    """Returns the mutants of these rules and names, or all mutants; with a shard, only the mutants in the shard. Raises
    UserError."""
    _check_rules(violations, suite)
    for rule in rules:
        if rule not in suite.registry:
            near = suggestion(rule, list(suite.registry))
            hint = "" if near else f"see {PROGRAM} list --rules"
            raise UserError(f"unknown rule {rule!r}{near}", hint=hint)
        if rule in UNTRIABLE:
            raise UserError(f"{rule} cannot be tried: {UNTRIABLE[rule]}")
    for name in names:
        if name not in {item.name for item in violations}:
            near = suggestion(name, [item.name for item in violations])
            hint = "" if near else "trial/mutants/ has them; --rule RULE tries all of one rule"
            raise UserError(f"unknown violation {name!r}{near}", hint=hint)
    chosen = [
        item
        for item in violations
        if not (rules or names) or item.rule in rules or item.name in names
    ]
    if not chosen:
        raise UserError(f"no violation of {' or '.join(rules)}")
    if shard:
        return shard.part(chosen, lambda item: item.name)
    return chosen


def _check_rules(violations: Sequence[Violation], suite: Suite) -> None:
    """Raises UserError with the place of each rule that does not exist."""
    mistakes = []
    for violation in violations:
        for rule in (violation.rule, *violation.departs_from):
            if rule not in suite.registry:
                near = suggestion(rule, list(suite.registry))
                mistakes.append(f"{violation.location}: unknown rule {rule!r}{near}")
    if mistakes:
        raise UserError(*mistakes)


def named(name: str) -> Violation:
    """Returns the mutant of the reference with a name. Raises KeyError."""
    return {mutant.name: mutant for mutant in _ALL}[name]
