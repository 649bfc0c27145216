"""The verdicts of a run on its rules, and the evidence that is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING

from conformance.model.record import ResultRecord
from conformance.model.rules import VENDOR, Needs, not_quoted
from conformance.model.verdict import INCOMPLETE, OF_RULES, VIOLATIONS, Verdict
from conformance.results.conclusions import verdict_on
from conformance.results.rule_conclusions import RuleConclusion, conclude_rules, touched, unproven
from conformance.tables.tiers import SMOKE
from reports.instrumented import refuted
from reports.own_tables import rules_of

if TYPE_CHECKING:
    from reports.digest import Digest


@dataclass(frozen=True)
class RuleFacts:
    """A rule as the results file describes it. If an old file lacks a text, the text is empty."""

    id: str
    verb: str = ""
    statement: str = ""
    document: str = ""
    section: str = ""
    quote: str = ""
    unquoted: str = ""
    second_hand: str = ""
    argument_against: str = ""
    level: str = ""
    layer: str = ""
    failure_means: str = ""
    since: str = ""

    @property
    def source(self) -> str:
        return ", ".join(filter(None, (self.document, self.section)))

    @cached_property
    def documented(self) -> str:
        """The quote of the document with its source, or the reason why the document is not quoted, in one line."""
        if self.quote:
            text = f'"{self.quote}" ({self.source})'
        else:
            text = self.source
        if not self.unquoted:
            return text
        return f"{text} {not_quoted(self.second_hand, self.unquoted)}"


class RuleVerdicts:
    def __init__(self, run: Digest) -> None:
        self._run = run

    @cached_property
    def rules(self) -> Mapping[str, RuleFacts]:
        """The rules of the run's suite by id; for an old file, the rules that its results name."""
        texts_by_id = self._run.header["rules"] or {
            rule: {} for record in self._run.results for rule in record["rules"]
        }
        names = [field.name for field in fields(RuleFacts)[1:]]
        rules = {}
        for id_, texts in texts_by_id.items():
            rules[id_] = RuleFacts(id_, *(str(texts.get(name, "")) for name in names))
        return rules

    @cached_property
    def of_rules(self) -> Mapping[str, str]:
        """The effective verdict on each rule with a result."""
        return {rule: conclusion.verdict for rule, conclusion in self.concluded.items()}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The verdict on each rule as the cells of reports name it: PARTIAL is OFFERED if nothing is missing that the
        device offers, and OPEN if the documents leave every outcome open."""
        return {rule: conclusion.label for rule, conclusion in self.concluded.items()}

    @cached_property
    def restrictions(self) -> Mapping[str, str]:
        """For each rule that passed in part: the missing evidence, with reasons."""
        return {
            rule: conclusion.restriction
            for rule, conclusion in self.concluded.items()
            if conclusion.restriction
        }

    @cached_property
    def refutations(self) -> Mapping[str, str]:
        """The rules that passed on this kernel and that an instrumented kernel of its release refutes."""
        if self._run.environment.changed_stack:
            return {}
        env = self._run.header.get("env", {})
        driver = str(self._run.header["device"].get("driver", ""))
        return refuted(driver, str(env.get("kernel", "")), self.of_rules)

    @cached_property
    def apart(self) -> frozenset[str]:
        """The rules of a vendor's dialect that were not judged, usually because the vendor's library is missing."""
        absent = (None, Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
        return frozenset(
            id_
            for id_, rule in self.rules.items()
            if rule.since == VENDOR and self.of_rules.get(id_) in absent
        )

    @cached_property
    def documented(self) -> Mapping[str, RuleFacts]:
        """The rules that are counted: all rules except those in `apart`."""
        return {id_: rule for id_, rule in self.rules.items() if id_ not in self.apart}

    @cached_property
    def unproven(self) -> Mapping[str, str]:
        """For each case whose refusal proves nothing: the reason why it proves nothing."""
        return unproven(self._run.results, self.needs)

    @cached_property
    def decided(self) -> Sequence[ResultRecord]:
        return [self._run.violations.repetitions.decided(result) for result in self._run.results]

    @cached_property
    def concluded(self) -> Mapping[str, RuleConclusion]:
        conclusions = conclude_rules(self.decided, self.needs)
        if self._run.header.get("tier") == SMOKE:
            conclusions = {rule: touched(conclusion) for rule, conclusion in conclusions.items()}
        undecided = rules_of(self._run.unrecorded)
        for rule in self.rules:  # in the order of the rules
            conclusion_here = conclusions.get(rule)
            worse = conclusion_here is None or OF_RULES.index(Verdict.MISSED) < OF_RULES.index(
                conclusion_here.verdict
            )
            if rule in undecided and worse:
                conclusions[rule] = RuleConclusion(Verdict.MISSED)
        return conclusions

    @cached_property
    def undecided(self) -> Mapping[str, tuple[str, str]]:
        """For each rule with an undecided case: the verdict on the first of these cases, and its id and reason."""
        records: dict[str, list[ResultRecord]] = {}
        for record in self._run.results:
            for rule in record["rules"]:
                if verdict_on(rule, record) in INCOMPLETE:
                    records.setdefault(rule, []).append(record)
        undecided = {}
        for rule, (first, *others) in records.items():
            more = f" (and {len(others)} more)" if others else ""
            text = f"{first['case']}: {first['reason']}{more}"
            undecided[rule] = verdict_on(rule, first), text
        return undecided

    @cached_property
    def levels(self) -> Mapping[str, str]:
        return {rule: facts.level for rule, facts in self.rules.items()}

    @cached_property
    def needs(self) -> Needs:
        if self._run.suite:
            return self._run.suite.registry.needs
        return Needs.of_header(self._run.header)

    def quotes(self, record: ResultRecord) -> Iterator[str]:
        """Yields a line with the quote and the source of the document for each rule that the result violates."""
        for rule in record["rules"]:
            facts = self.rules.get(rule)
            if facts and facts.documented and verdict_on(rule, record) in VIOLATIONS:
                yield f"document of {rule}: {facts.documented}"
                if facts.argument_against:
                    yield f"argument against {rule}: {facts.argument_against}"
