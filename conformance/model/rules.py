"""A rule: one documented statement, with an id that never changes; and all of them by id.

Frozen data. What a rule says is read in tables/rules_file.py; whether a device keeps it, cases show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from conformance.model.record import RuleTexts
from conformance.yamldoc.nodes import Location

LEVELS = ("must", "should", "may")
LAYERS = ("header", "libibverbs", "provider", "kernel", "device")
RULE_ID = re.compile(r"[A-Z]+-[0-9]{2}[a-z]?")


@dataclass(frozen=True)
class Rule:
    """One documented statement.

    `layer` enforces it; `needs` names the capabilities without which it has no meaning; `since` is
    the rdma-core whose document first says it; `failure_means` is what breaking it does to people.
    """

    id: str
    verb: str
    statement: str
    document: str
    section: str
    level: str
    layer: str
    needs: tuple[str, ...]
    since: str
    failure_means: str
    location: Location

    def as_data(self) -> RuleTexts:
        """What a results file says of the rule, so that reports of it need no other file."""
        return {
            "verb": self.verb, "statement": self.statement, "document": self.document, "section": self.section,
            "level": self.level, "layer": self.layer, "since": self.since, "failure_means": self.failure_means,
        }  # fmt: skip


class Registry(dict[str, Rule]):
    """Rules by id; `predicates` are the named conditions by which sweeps say where a rule holds."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        super().__init__({rule.id: rule for rule in rules})
        self.predicates: dict[str, str] = {}
