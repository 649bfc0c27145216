"""Makes the digest of a recorded run: its rules with their verdicts, and a summary in one sentence.

Every report is made from a digest. Results files may come from untrusted sources: `read_results` checks the shape of
their records and replaces control characters, and each renderer escapes for its own syntax.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from conformance.defects import (
    Defect,
    Severity,
    Symptom,
    count_by_severity,
    defects_of,
    severity_of,
    shorts_in,
)
from conformance.errors import UserError, format_count
from conformance.model.printable import plain
from conformance.model.record import (
    ConfirmationRecord,
    FooterRecord,
    HeaderRecord,
    ResultRecord,
    WaiversAccount,
)
from conformance.model.record_shape import RESULT, completed
from conformance.model.rules import VENDOR, Needs
from conformance.model.verdict import OF_RULES, VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import (
    STANDING,
    RunConclusion,
    Standing,
    conclude_run,
    format_levels,
    verdict_on,
)
from conformance.results.records import Shown, read_results
from conformance.results.rule_conclusions import RuleConclusion, conclude_rules, touched, unproven
from conformance.run_options import LEFT_OUT
from conformance.tables.suite import CASES, POINT, Suite, load_suite, tables_digest
from conformance.tables.tiers import SMOKE, left_out
from reports.instrumented import headline_of, refuted
from reports.repetitions import Repetitions
from reports.text import flat, format_value

_MOST_REASONS = 4
_OWN_BUILDS = (
    "kernel",
    "linux",
    "modules",
    "rdma_core",
    "overlay",
)  # keys of the user's builds in the header
_PRELOAD = "etc/ld.so.preload"
_MOST_VALUE = 60  # the most characters of an environment variable's value in a headline
_VARIABLE = "given.environment."  # the prefix of the name of a variable that --guest-env sets
_DIGEST = re.compile(
    r"\b([0-9a-f]{12})[0-9a-f]{20,}\b",
)  # reports show only the first digits of a hash


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
        if self.second_hand:
            second_hand = f"; known from {self.second_hand}"
        else:
            second_hand = ""
        return f"{text} (not quoted: {self.unquoted.rstrip('.')}{second_hand})"


def _judged_again(header: HeaderRecord) -> str:
    """Returns the tables with which a run was recorded that `judge` has judged again; empty for any other run."""
    again = header.get("judged_again")
    if not again:
        return ""
    tables = str((again["suite"] or {}).get("tables_sha256") or "unknown")[:12]
    return f"{again['at'].replace('T', ' ')}, recorded with the tables {tables}"


@dataclass(frozen=True)
class Part:
    """One part of the summary sentence: the number of rules with this standing and, for some standings, the reasons."""

    standing: Standing
    count: int
    because: tuple[str, ...] = ()
    levels: str = ""

    def __str__(self) -> str:
        if self.because:
            why = f" (because {'; '.join(self.because)})"
        else:
            why = ""
        return f"{self.short}{why}"

    @property
    def short(self) -> str:
        """The part without the reasons."""
        if self.levels:
            levels = f" ({self.levels})"
        else:
            levels = ""
        return f"{self.count:,} {self.standing.phrase}{levels}"


@dataclass(frozen=True)
class Digest:
    """A run, as reports need it. `results` has a record for each planned case. A case without a recorded result has the
    verdict MISSED and is in `unrecorded`.

    Every record has all keys of model/record_shape.py. `directory` has the other files of the run. `named` is the path
    that the user gave: this directory or a file. `torn` is true if the last line of the file is incomplete.
    `confirmations` has the results of repeating violations. For a run that was read from a file, `suite` is set if
    the run has a footer, no violation, and the tables of this suite. The needs of rules and the number of left-out
    cases are then computed from the suite and not read from the header. `is_of_other_tables` is set if such
    a run does not have the tables of this suite.
    """

    directory: Path
    header: HeaderRecord
    results: tuple[ResultRecord, ...]
    footer: FooterRecord | None
    torn: bool = False
    confirmations: tuple[ConfirmationRecord, ...] = ()
    unrecorded: frozenset[str] = frozenset()
    named: Path | None = None
    suite: Suite | None = None
    is_of_other_tables: bool = False

    @cached_property
    def rules(self) -> Mapping[str, RuleFacts]:
        """The rules of the run's suite by id; for an old file, the rules that its results name."""
        texts_by_id = self.header["rules"] or {
            rule: {} for record in self.results for rule in record["rules"]
        }
        names = [field.name for field in fields(RuleFacts)[1:]]
        rules = {}
        for id_, texts in texts_by_id.items():
            rules[id_] = RuleFacts(id_, *(str(texts.get(name, "")) for name in names))
        return rules

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """The stack under test and the size of the run, as texts by name. A text is empty if its fact is unknown."""
        header, footer = self.header, self.footer
        facts: dict[str, object] = {
            "device": self.device,
            "driver": header["device"].get("driver"),
            "firmware": header["device"].get("fw") or "none",
            "kernel": header["env"].get("kernel"),
            "rdma-core": header["env"].get("rdma_core"),
            "stack": header["stack"],
            "transport": header["device"].get("transport"),
            "tier": header.get("tier"),
            "shard": _shard(header),
            "seed": header.get("seed"),
            "started": header["started"].replace("T", " "),
            "suite": header["suite"].get("version"),
            "tables": str(header["suite"].get("tables_sha256", ""))[:12],
            "judged again": _judged_again(header),
            "cases": f"{len(self.results):,}",
            "calls judged": f"{self.points:,}",
            "seconds": footer["duration_s"] if footer else None,
            "exit status": self.status,
        }
        return {name: "" if value is None else format_value(value) for name, value in facts.items()}

    @cached_property
    def under_test(self) -> Mapping[str, str]:
        """The first digits of the hashes of what was under test: kernel, modules, libraries, and the user's builds."""
        under_test = self.header.get("under_test")
        if isinstance(under_test, dict):
            return {name: _DIGEST.sub(r"\1", text) for name, text in flat(under_test)}
        return {}

    @cached_property
    def capabilities(self) -> Mapping[str, str]:
        """The ids, capabilities and limits that the device reports, as texts by name."""
        device = self.header["device"]
        capabilities: dict[str, object] = {
            name: device[name] for name in ("vendor_id", "vendor_part_id") if name in device
        }
        capabilities.update(device.get("caps", {}))
        return dict(flat(capabilities))

    @cached_property
    def verdicts(self) -> Mapping[str, str]:
        """The effective verdict on each rule with a result."""
        return {rule: conclusion.verdict for rule, conclusion in self._concluded.items()}

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The verdict on each rule as the cells of reports name it: PARTIAL is OFFERED if nothing is missing that the
        device offers, and OPEN if the documents leave every outcome open."""
        return {rule: conclusion.label for rule, conclusion in self._concluded.items()}

    @cached_property
    def restrictions(self) -> Mapping[str, str]:
        """For each rule that passed in part: the missing evidence, with reasons."""
        return {
            rule: conclusion.restriction
            for rule, conclusion in self._concluded.items()
            if conclusion.restriction
        }

    @cached_property
    def refutations(self) -> Mapping[str, str]:
        """The rules that passed on this kernel and that an instrumented kernel of its release refutes."""
        if self.changed_stack:
            return {}
        env = self.header.get("env", {})
        driver = str(self.header["device"].get("driver", ""))
        return refuted(driver, str(env.get("kernel", "")), self.verdicts)

    @cached_property
    def _decided(self) -> Sequence[ResultRecord]:
        return [self.repetitions.decided(result) for result in self.results]

    @cached_property
    def _concluded(self) -> Mapping[str, RuleConclusion]:
        conclusions = conclude_rules(self._decided, self._needs)
        if self.header.get("tier") == SMOKE:
            conclusions = {rule: touched(conclusion) for rule, conclusion in conclusions.items()}
        undecided = _rules_of(self.unrecorded)
        for rule in self.rules:  # in the order of the rules
            conclusion_here = conclusions.get(rule)
            worse = conclusion_here is None or OF_RULES.index(Verdict.MISSED) < OF_RULES.index(
                conclusion_here.verdict
            )
            if rule in undecided and worse:
                conclusions[rule] = RuleConclusion(Verdict.MISSED)
        return conclusions

    @cached_property
    def apart(self) -> frozenset[str]:
        """The rules of a vendor's dialect that were not judged, usually because the vendor's library is missing."""
        absent = (None, Verdict.UNSUPPORTED, Verdict.UNREACHABLE)
        return frozenset(
            id_
            for id_, rule in self.rules.items()
            if rule.since == VENDOR and self.verdicts.get(id_) in absent
        )

    @cached_property
    def documented_rules(self) -> Mapping[str, RuleFacts]:
        """The rules that are counted: all rules except those in `apart`."""
        return {id_: rule for id_, rule in self.rules.items() if id_ not in self.apart}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The number of rules with each standing. The first part is VERIFIED or, in the smallest tier, TOUCHED."""
        if self.header.get("tier") == SMOKE:
            first = Standing.TOUCHED
        else:
            first = Standing.VERIFIED
        count = Counter(
            found.standing for rule, found in self._concluded.items() if rule not in self.apart
        )
        count[Standing.WITHOUT_CASE] = len(self.documented_rules.keys() - self.verdicts.keys())
        count[Standing.APART] = len(self.apart)
        if first == Standing.TOUCHED:
            passed = (Standing.VERIFIED, Standing.OFFERED, Standing.IN_PART, Standing.LEFT_OPEN)
            count[Standing.TOUCHED] = sum(count.pop(standing, 0) for standing in passed)
        because = {
            Standing.UNSUPPORTED: self._why_unsupported,
            Standing.UNREACHABLE: self._why_unreachable,
        }
        violated = [
            rule
            for rule, verdict in self.verdicts.items()
            if STANDING[verdict] == Standing.VIOLATED
        ]
        levels = {Standing.VIOLATED: format_levels(violated, self._levels)}
        return tuple(
            Part(
                standing,
                count[standing],
                because[standing]() if standing in because else (),
                levels.get(standing, ""),
            )
            for standing in Standing
            if count[standing] or standing == first
        )

    @cached_property
    def _levels(self) -> Mapping[str, str]:
        return {rule: facts.level for rule, facts in self.rules.items()}

    @cached_property
    def _needs(self) -> Needs:
        if self.suite:
            return self.suite.registry.needs
        return Needs.of_header(self.header)

    @cached_property
    def unproven(self) -> Mapping[str, str]:
        """For each case whose refusal proves nothing: the reason why it proves nothing."""
        return unproven(self.results, self._needs)

    @property
    def sentence(self) -> str:
        return ", ".join([self._first, *map(str, self.parts[1:])]) + "."

    @property
    def short_sentence(self) -> str:
        """The verdict in one sentence, without the reasons."""
        return ", ".join([self._first, *(part.short for part in self.parts[1:])])

    @property
    def _first(self) -> str:
        verified = self.parts[0]
        return f"{verified.count:,} of {len(self.documented_rules):,} documented rules {verified.standing.phrase}"

    @cached_property
    def defects(self) -> tuple[Defect, ...]:
        """The defects, the most severe first. Unconfirmed and waived defects and defects of the stack come last."""
        return self.repetitions.applied(defects_of(self.results, shorts_in(self.header)))

    @cached_property
    def repetitions(self) -> Repetitions:
        if self.footer:
            figures = self.footer.get("confirmation")
        else:
            figures = None
        return Repetitions(self.confirmations, figures or {})

    @property
    def open_defects(self) -> tuple[Defect, ...]:
        """The defects that are neither waived, nor of the stack, nor unconfirmed."""
        return tuple(
            defect
            for defect in self.defects
            if not (defect.waived or defect.of_stack or defect.unconfirmed)
        )

    @cached_property
    def severities(self) -> Mapping[Severity, int]:
        """The numbers of results by their worst severity, without waived and unconfirmed results."""
        return count_by_severity(
            self._worst[result["case"]]
            for result in self.results
            if result["effective"] in VIOLATIONS and not self.repetitions.is_unconfirmed(result)
        )

    @cached_property
    def _worst(self) -> Mapping[str, Severity]:
        """The worst severity of each result that violates a rule, by case."""
        return {
            result["case"]: min(
                map(severity_of, self.symptoms[result["case"]]),
                key=lambda severity: severity.rank,
            )
            for result in self.results
            if result["effective"] in VIOLATIONS
        }

    @property
    def headline(self) -> str:
        """The severity of the run in one line: the changes of the stack (docs/mended-stack.md), the number of defects,
        the numbers of their results by severity, and the number of unconfirmed results. Empty parts are left out."""
        count = len(self.open_defects)
        parts = ", ".join(severity.count(number) for severity, number in self.severities.items())
        results = format_count(sum(self.severities.values()), "result")
        if parts:
            defects = f"{format_count(count, 'defect')} in {results}: {parts}"
        else:
            defects = ""
        other_violations = sum(result["effective"] in VIOLATIONS for result in self.results) - sum(
            self.severities.values(),
        )
        if other_violations:
            apart = f"{format_count(other_violations, 'result')} not confirmed"
        else:
            apart = ""
        refutation = headline_of(self.refutations)
        return "; ".join(filter(None, (self.changed_stack, defects, apart, refutation)))

    @property
    def changed_stack(self) -> str:
        """The changes of the stack and the user's builds in it, with hashes; empty if the stack is as shipped."""
        under_test: object = self.header.get("under_test")
        if isinstance(under_test, dict):
            build_given = under_test.get("given")
        else:
            build_given = None
        if isinstance(build_given, dict):
            parts = list(_own_parts(build_given))
        else:
            parts = []
        if parts:
            return f"the stack under test was changed: {', '.join(parts)}"
        return ""

    def by_severity(self) -> tuple[ResultRecord, ...]:
        """Returns first the violations, the most severe first, and then the other results in the order of the run."""
        rank = {case: severity.rank for case, severity in self._worst.items()}
        return tuple(
            sorted(self.results, key=lambda record: rank.get(record["case"], len(Severity))),
        )

    @cached_property
    def _made(self) -> dict[tuple[Callable[..., Any], int], Any]:
        return {}

    def once(self, make: Callable[[Any], Any], value: Any) -> Any:
        """Returns `make(value)`, and calls `make` only once for a value that several results share."""
        key = make, id(value)
        if key not in self._made:
            self._made[key] = make(value)
        return self._made[key]

    def defects_in(self, case: str) -> list[Defect]:
        """Returns the defects that occur in a case, the most severe first."""
        return self._by_case.get(case, [])

    @cached_property
    def symptoms(self) -> Mapping[str, list[Symptom]]:
        """The symptoms of each case; symptoms of the most severe defect come first."""
        by_case: dict[str, list[Symptom]] = {}
        for defect in self.defects:
            for symptom in defect.symptoms:
                by_case.setdefault(symptom.case, []).append(symptom)
        return by_case

    @cached_property
    def _by_case(self) -> Mapping[str, list[Defect]]:
        by_case: dict[str, list[Defect]] = {}
        for defect in self.defects:
            for case in defect.cases:
                by_case.setdefault(case, []).append(defect)
        return by_case

    @cached_property
    def concluded(self) -> RunConclusion:
        """The conclusion of the run, the same in every report."""
        footer = self.footer
        if footer:
            footer = {
                **footer,
                "verdicts": Counter(record["effective"] for record in self._decided),
            }
        return conclude_run(
            self.device,
            footer,
            {rule: facts.level for rule, facts in self.documented_rules.items()},
            self._concluded,
            self._needs,
            left_out=self._left_out,
            unrecorded=len(self.unrecorded),
        )

    @property
    def conclusion(self) -> str:
        return self.concluded.words

    @property
    def status(self) -> int:
        return self.concluded.status

    @cached_property
    def _left_out(self) -> int | None:
        """The number of cases of the default tier that were not planned; None if the run was made with other tables and
        the number cannot be checked."""
        if (
            "left_out" in self.header and not self.suite
        ):  # a 0 in the header of a run with other tables is not trusted
            if self.is_of_other_tables and not self.header["left_out"]:
                return None
            return self.header["left_out"]
        suite = self.suite or _suite_of(self.header)
        if suite:
            return len(left_out(suite.cases, self.header["planned"]))
        return None

    @property
    def path(self) -> Path:
        """The path that the user gave, or else the directory of the run."""
        return self.named or self.directory

    @property
    def name(self) -> str:
        """The heading of this run's column in a report."""
        env = self.header["env"]
        return f"{self.device}, {self.header['stack']}, kernel {env.get('kernel', '?')}"

    @property
    def when(self) -> str:
        """When the run began, to the minute; empty if its file does not tell."""
        return self.facts["started"][: len("2026-11-29 01:44")]

    @property
    def about(self) -> str:
        """The device, the versions and the time, in one line."""
        facts = self.facts
        parts = [f"{self.device} ({facts['driver']})" if facts["driver"] else self.device]
        parts += [
            f"{name} {facts[name]}" for name in ("kernel", "rdma-core", "stack") if facts[name]
        ]
        parts += [self.when] if self.when else []
        return ", ".join(parts)

    @property
    def device(self) -> str:
        return str(self.header["device"].get("name", "?"))

    @property
    def counts(self) -> Mapping[str, int]:
        return Counter(record["effective"] for record in self.results)

    @property
    def points(self) -> int:
        """The number of judged calls and operations. Each point of a sweep, and each other case with a result, counts
        as one."""
        sizes = (
            sum(record["points"].values())
            for record in self.results
            if record["verdict"] != Verdict.MISSED
        )
        return sum(size or 1 for size in sizes)

    @property
    def waivers(self) -> WaiversAccount:
        """The footer's account of waivers; empty for a run without waivers."""
        if self.footer:
            return self.footer["waivers"]
        return {}

    def violations(self) -> dict[str, list[ResultRecord]]:
        """Returns the violated rules in order, each with the results that violate it, the worst verdicts first."""
        by_rule: dict[str, list[ResultRecord]] = {}
        for record in sorted(self.results, key=lambda record: VERDICTS.index(record["effective"])):
            for rule in record["rules"]:
                if verdict_on(rule, record) in VIOLATIONS:
                    by_rule.setdefault(rule, []).append(record)
        order = list(self.rules)
        return dict(
            sorted(
                by_rule.items(),
                key=lambda item: order.index(item[0]) if item[0] in order else len(order),
            ),
        )

    def documented(self, record: ResultRecord) -> Iterator[str]:
        """Yields a line with the quote and the source of the document for each rule that the result violates."""
        for rule in record["rules"]:
            facts = self.rules.get(rule)
            if facts and facts.documented and verdict_on(rule, record) in VIOLATIONS:
                yield f"document of {rule}: {facts.documented}"
                if facts.argument_against:
                    yield f"argument against {rule}: {facts.argument_against}"

    def _of_rules(self, verdict: str) -> Iterator[tuple[str, ResultRecord]]:
        for record in self.results:
            if record["effective"] == verdict:
                rules = (rule for rule in record["rules"] if rule not in self.apart)
                yield from ((rule, record) for rule in rules if self.verdicts[rule] == verdict)

    def _why_unreachable(self) -> tuple[str, ...]:
        return _most(
            {(record["reason"], rule) for rule, record in self._of_rules(Verdict.UNREACHABLE)},
        )

    def _why_unsupported(self) -> tuple[str, ...]:
        undeclared = {
            (str(name), rule)
            for rule, record in self._of_rules(Verdict.UNSUPPORTED)
            for name in record["observed"].get("lacking", ())
        }
        count = Counter(name for name, _ in sorted(undeclared))
        if not count:
            return ()
        most_first = [name for name, _ in count.most_common()]
        return (f"it does not declare {', '.join(most_first)}",)


def _own_parts(given: Mapping[str, object]) -> Iterator[str]:
    """Yields each part of the stack that is not as shipped. The values in `given` may be of any type."""
    changes = given.get("changes")
    if isinstance(changes, dict) and changes:
        names = ", ".join(f"{name} {str(digest)[:8]}" for name, digest in changes.items())
        yield f"{format_count(len(changes), 'change')} ({names})"
    for name in _OWN_BUILDS:
        if (build := given.get(name)) and isinstance(build, dict):
            files = build.get("files")
            if isinstance(files, dict) and _PRELOAD in files:
                preloads = " with a preload"
            else:
                preloads = ""
            yield f"{name.replace('_', '-')} {str(build.get('sha256'))[:8]}{preloads}"
    if (environment := given.get("environment")) and isinstance(environment, dict):
        yield f"environment {', '.join(_assignment(*item) for item in environment.items())}"


def _assignment(name: str, value: object) -> str:
    if value == LEFT_OUT:
        return name
    return f"{name}={str(value)[:_MOST_VALUE]}"


def called(name: str) -> str:
    """Returns the shown name for a key of Digest.under_test, whose values are hashes and environment variables."""
    if name.startswith(_VARIABLE):
        return f"variable {name.removeprefix(_VARIABLE)}"
    return f"hash of {name}"


def _most(pairs: set[tuple[str, str]]) -> tuple[str, ...]:
    count = Counter(reason for reason, _ in sorted(pairs))
    shown = [f"{reason} ({number:,})" for reason, number in count.most_common(_MOST_REASONS)]
    rest = len(count) - len(shown)
    return (*shown, *([f"{rest} more"] if rest else []))


def read(path: Path) -> Digest:
    """Reads the file or directory `path`. Raises UserError if the file is invalid."""
    return digest(read_results(path), path if path.is_dir() else path.parent, str(path))


def digest(recorded: Shown, directory: Path, name: str = "", is_own: bool = False) -> Digest:
    """Returns the digest of a recorded run. Raises UserError if the header of a run without a violation contradicts the
    tables. If `is_own`, this process has made the whole run from its own tables, and the header is not compared with
    the tables."""
    where = name or str(directory)
    header = recorded.header
    by_case_here = {record["case"]: record for record in recorded.results}
    by_case: dict[str, ResultRecord] = {}  # in the planned order, not in the order of completion
    never: ResultRecord = {**RESULT, "reason": "planned but never recorded"}
    missed = completed(never)
    unrecorded: list[str] = []
    for case in map(str, header["planned"]):
        if case in by_case_here:
            by_case[case] = by_case_here[case]
        else:
            unrecorded.append(case)
            by_case[case] = missed.copy()  # faster than a new record
            by_case[case]["case"] = case
    by_case |= {case: record for case, record in by_case_here.items() if case not in by_case}
    footer = recorded.footer
    if footer:
        footer = footer.copy()
        count: Counter[str] = Counter(record["effective"] for record in by_case.values())
        footer |= {"complete": not count[Verdict.MISSED], "verdicts": dict(count)}
    # A results file would be changed only to hide violations, so only runs without a violation are compared.
    good = (
        footer and not is_own and not any(footer["verdicts"].get(verdict) for verdict in VIOLATIONS)
    )
    if good:
        suite = _suite_of(header)
    else:
        suite = None
    if suite and (wrong := wrong_by_tables(header, suite)):
        raise UserError(f"{where} is not a run of its tables, or was changed: {wrong}")
    return Digest(
        directory,
        header,
        tuple(by_case.values()),
        footer,
        recorded.torn,
        tuple(recorded.confirmations),
        frozenset(unrecorded),
        Path(name) if name else None,
        suite,
        bool(good) and not suite,
    )


def _shard(header: HeaderRecord) -> str:
    if shard := header.get("shard"):
        return f"{shard.get('number', '?')} of {shard.get('of', '?')}"
    if header.get("shards"):
        return f"{len(header['shards'])}, merged"
    return ""


def wrong_by_tables(header: HeaderRecord, suite: Suite) -> str:
    """Returns the contradiction between the header and the tables of `suite`; empty if there is none. In a header of
    a different version, a rule may have more or fewer fields, but the common fields must have the same values."""
    registry = suite.registry
    registry_data, controls = plain([registry.as_data(), dict(registry.needs.controls)])
    recorded = header["rules"]
    if recorded.keys() != registry_data.keys() or any(
        recorded[rule].get(name, text) != text
        for rule, texts in registry_data.items()
        for name, text in texts.items()
    ):
        return "the rules of its header are not those of the tables"
    if header["controls"] != controls:
        return "the controls of its header are not those of the tables"
    if (claimed := header.get("left_out")) is not None:
        count = len(left_out(suite.cases, header["planned"]))
        if claimed != count:
            missing = f"{format_count(count, 'case')} of the default tier {'is' if count == 1 else 'are'} not in the plan"
            return f"{missing}, but the number in its header is {claimed:,}"
    return ""


def _suite_of(header: HeaderRecord | None) -> Suite | None:
    """Returns this suite; None if the run of `header` was made with other tables."""
    try:
        tables = tables_digest([CASES])
        if header is None or header["suite"].get("tables_sha256") == tables:
            return suite_of(tables)
        return None
    except (OSError, UserError):  # mistakes in the tables do not prevent a report
        return None


@lru_cache(maxsize=1)
def suite_of(tables_sha256: str) -> Suite:
    """Returns this suite, whose tables have the hash `tables_sha256`. A command reads it only once."""
    return load_suite()


def _rules_of(cases: Collection[str]) -> frozenset[str]:
    """Returns the rules of cases by this suite's tables. Ids are permanent, so the run may be of other tables."""
    if cases:
        suite = _suite_of(None)
    else:
        suite = None
    ids = {case.partition(POINT)[0] for case in cases}
    if suite:
        return frozenset(rule for case in suite.cases if case.id in ids for rule in case.rules)
    return frozenset()
