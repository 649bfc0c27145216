"""Rules: documented statements with ids that never change. `Registry` holds all rules by id.

Frozen data. Not for reading rules from files (tables/rules_file.py).
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from conformance.model.evidence import Needs
from conformance.model.record import RuleTexts
from conformance.yamldoc.nodes import Location

LEVELS = ("must", "should", "may")
# The `since` of a rule that only a vendor's document has.
VENDOR = "vendor"
LAYERS = ("header", "libibverbs", "provider", "kernel", "device")
# The prefix of the rules about declarations themselves: a device has what it declares.
DECLARATIONS = "CAP-"
RULE_ID = re.compile(r"[A-Z]+-[0-9]{2}[a-z]?")


@dataclass(frozen=True)
class Rule:
    """One documented statement.

    `layer` is the part of the stack that must enforce it. `needs` are the capabilities without which the rule does
    not apply. `since` is the first rdma-core release whose document has it. `failure_means` says what a violation
    means to an application. `location` is that of the id in its file.

    `quote` is at most one sentence, word for word, from `section` of `document`; `[…]` stands for words left out.
    `short` is its subject in a few words, for titles of defects; without it, titles have the id.

    If the document cannot be quoted, `unquoted` has the reason; one of the two is empty.

    `evidence` names the items that verify the rule, if these are not all that its cases can show. `conditional` names
    the situation that the rule is about, if a stack need not have it: the rule needs no evidence if no case is
    reachable.
    """

    id: str
    verb: str
    statement: str
    document: str
    section: str
    quote: str
    unquoted: str
    level: str
    layer: str
    needs: tuple[str, ...]
    since: str
    failure_means: str
    location: Location
    short: str = ""
    evidence: tuple[str, ...] = ()
    conditional: str = ""

    def as_data(self) -> RuleTexts:
        """Returns the fields of the rule in a results file; reports need no other file."""
        texts: RuleTexts = {
            "verb": self.verb,
            "statement": self.statement,
            "document": self.document,
            "section": self.section,
            "level": self.level,
            "layer": self.layer,
            "since": self.since,
            "failure_means": self.failure_means,
        }
        if self.short:
            texts["short"] = self.short
        if self.quote:
            texts["quote"] = self.quote
        else:
            texts["unquoted"] = self.unquoted
        if self.conditional:
            texts["conditional"] = self.conditional
        return texts


class Registry(dict[str, Rule]):
    """Rules by id. `predicates` are texts of named predicates, which the sweeps of all tables can use.

    `needs` is the evidence that verifies the rules, from the tables that were read with them.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        super().__init__({rule.id: rule for rule in rules})
        self.predicates: dict[str, str] = {}
        self.needs = Needs()

    def as_data(self) -> dict[str, RuleTexts]:
        texts = {rule.id: rule.as_data() for rule in self.values()}
        for rule, items in self.needs.items.items():
            texts[rule] |= {"evidence": list(items), "cases": self.needs.cases.get(rule, 0)}
        return texts
