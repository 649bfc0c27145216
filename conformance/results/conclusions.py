"""Draws conclusions from recorded results: the conclusion about a run, the exit status of the run, and one-line texts
about results. The functions are pure. rule_conclusions.py judges rules, and judging/ judges cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.errors import format_count, format_list
from conformance.model.record import Deviation, FooterRecord, PairsFacts, ResultRecord
from conformance.model.rules import LEVELS, Needs
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.older_python import StrEnum

if TYPE_CHECKING:
    from conformance.results.rule_conclusions import RuleConclusion


def verdict_on(rule: str, record: ResultRecord) -> Verdict:
    """Returns the effective verdict of a result on one of its rules. In a sweep, only the points of this rule count."""
    of_points = record.get("rule_verdicts", {})
    if rule in of_points:
        points = Verdict(of_points[rule])
    else:
        points = record["effective"]
    waived = record["effective"] != record["verdict"] and points in VIOLATIONS
    if waived:
        return record["effective"]
    return points


def headline(rule: str, record: ResultRecord) -> tuple[str, str]:
    """Returns a line that says what a result shows about one of its rules, and the command that reproduces the result.
    For a sweep, the line is about the rule's largest group of deviating points, and the command runs the simplest point
    of this group, but of a race all tries. For random sequences, line and command are about the first sequence that deviates."""
    deviations = [
        deviation for deviation in record.get("deviations", ()) if rule in deviation["rules"]
    ]
    if not deviations:
        return record["reason"], record["repro"]
    first = deviations[0]
    text = first.get("observed") or record["reason"]
    if first.get("count"):
        text += f" ({format_points(first)})"
    return text + format_more(len(deviations) - 1), first.get("repro") or record["repro"]


# the `when` of a deviation without a formula: all points repeat one experiment
BY_CHANCE = "by chance"


def format_counts(counts: Mapping[str, int]) -> str:
    """Returns the number of points, and the number by verdict: `768 points: 760 PASS, 8 FAIL`."""
    shares = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())
    return f"{format_count(sum(counts.values()), 'point')}: {shares}"


def format_lacking(pairs: PairsFacts) -> str:
    """Returns how many combinations of a model's values no judged point has, with the reasons, the most frequent first."""
    lacking = sorted(pairs["lacking"].items(), key=lambda item: -item[1])
    parts = ", ".join(f"{count:,} {reason}" for reason, count in lacking)
    number = sum(pairs["lacking"].values())
    return f"{number:,} of {pairs['combinations']:,} combinations were not reached: {parts}"


def format_points(deviation: Deviation) -> str:
    """Describes the deviating points of a sweep: `32 of 96 points where PREFETCH: those with !LOCAL_WRITE`. Names the
    values that no point tells from those of the formula."""
    together = "".join(f"; {pair} always occur together" for pair in deviation.get("together", ()))
    return f"{_chosen_points(deviation)}{together}"


def _chosen_points(deviation: Deviation) -> str:
    count, of = deviation.get("count") or 0, deviation.get("of") or 0
    where = ""
    if deviation.get("clause"):
        where = f" where {deviation['clause']}"
    if deviation["when"] in ("", "always"):
        if count == 1:
            return f"the only point{where}"
        return f"all {count:,} points{where}"
    among = ""
    if of:
        among = f" of {of:,}"
    if deviation["when"] == BY_CHANCE:
        return f"{count:,}{among} {'try' if (of or count) == 1 else 'tries'}{where}"
    return f"{count:,}{among} {'point' if (of or count) == 1 else 'points'}{where}: those with {deviation['when']}"


def format_more(number: int) -> str:
    """Returns a remark with the number of further groups of deviating points ("ways" to deviate); empty for 0."""
    if number > 0:
        return f" (and {number} more way{'s' if number > 1 else ''})"
    return ""


class Standing(StrEnum):
    """The status of a rule in a run, in the order of the summary sentence. `phrase` is the text in this sentence, and
    `verdicts` are the verdicts on a rule with this status.

    OFFERED: everything was seen that the device offers, and the conclusion names what it does not offer. LEFT_OPEN: no
    result shows an outcome that the documents define, so that no result verifies the rule. In a run of the
    smallest tier, which verifies no rule, TOUCHED replaces these, VERIFIED and IN_PART. APART are rules of a vendor's
    dialect (its variant of a verb) that were not judged, usually because the vendor's library is missing. They
    are not counted among the documented rules.
    """

    phrase: str
    verdicts: tuple[Verdict, ...]

    VERIFIED = "verified", "verified", (Verdict.PASS,)
    OFFERED = "as offered", "verified for what this device offers"
    IN_PART = "in part", "passed in part", (Verdict.PARTIAL,)
    LEFT_OPEN = "left open", "left open by the documents"
    TOUCHED = "touched", "touched without a violation"
    VIOLATED = "violated", "violated", VIOLATIONS
    WAIVED = "waived", "waived", (Verdict.WAIVED,)
    OF_STACK = "of the stack", "violated by the stack on every device", (Verdict.STACK,)
    UNSUPPORTED = "unsupported", "unsupported by this device", (Verdict.UNSUPPORTED,)
    UNREACHABLE = "unreachable", "unreachable on this stack", (Verdict.UNREACHABLE,)
    UNDECIDED = "undecided", "undecided", INCOMPLETE
    WITHOUT_CASE = "not run", "without a case in this run"
    APART = "apart", "more of a vendor's dialect not judged"

    def __new__(cls, value: str, phrase: str, verdicts: tuple[Verdict, ...] = ()) -> Standing:
        member = str.__new__(cls, value)
        member._value_, member.phrase, member.verdicts = value, phrase, verdicts
        return member


STANDING: Mapping[str, Standing] = {
    verdict: standing for standing in Standing for verdict in standing.verdicts
}


@dataclass(frozen=True)
class RunConclusion:
    """The conclusion about a run, in the words of every report, and its exit status. `left` says what a run without a
    violation has not shown. If `incomplete` (cut short, undecided, cases left out), another run can show more."""

    words: str
    status: int
    left: tuple[str, ...] = ()
    incomplete: bool = False

    @property
    def conforms(self) -> bool:
        """Whether the device conforms: no rule was violated, and nothing is in `left`, such as rules passed in part."""
        return self.status == 0 and not self.left


def format_levels(rules: Iterable[str], levels: Mapping[str, str]) -> str:
    """Returns the number of these rules of each level: `29 musts and 8 shoulds`. Rules of older runs have no level."""
    count = Counter(levels.get(rule, "") or "rule" for rule in rules)
    parts = [format_count(count[level], level) for level in (*LEVELS, "rule") if count[level]]
    return format_list(parts)


def conclude_run(
    device: str,
    footer: FooterRecord | None,
    of: Mapping[str, str],
    rules: Mapping[str, RuleConclusion],
    needs: Needs,
    *,
    left_out: int | None,
    unrecorded: int,
) -> RunConclusion:
    """Returns the conclusion about a run of the rules in `of`, which has the level of each rule. `rules` has the
    conclusion about each rule with a result.
    `left_out` is the number of cases of the default tier that were not planned, or None if this number is unknown.
    `unrecorded` is the number of planned cases without a result."""
    standings = {
        rule: rules[rule].standing if rule in rules else Standing.WITHOUT_CASE for rule in of
    }
    count = Counter(standings.values())
    if footer is None and not count[Standing.VIOLATED]:
        return RunConclusion("the run was cut short", 3, incomplete=True)
    status = exit_status(footer) if footer else 1
    if status == 1:
        violated = [rule for rule, standing in standings.items() if standing == Standing.VIOLATED]
        if footer and not violated and footer.get("waivers", {}).get("problems"):
            return RunConclusion("no rule was violated, but the waivers do not fit", status)
        number = format_levels(violated, of) or "a rule"
        words = f"{device} does not conform to its documents: {number} violated"
        if not footer:
            words += " (cut short)"
        return RunConclusion(words, status, incomplete=not footer)
    incomplete = {
        "without a case": counted(count[Standing.WITHOUT_CASE], "rule"),
        "undecided": counted(count[Standing.UNDECIDED], "rule"),
        "of the default tier not in the run": counted(left_out or 0, "case"),
        "without a result": counted(unrecorded, "planned case"),
    }
    partial = [
        rule
        for rule, verdict in rules.items()
        if verdict.verdict == Verdict.PARTIAL and not verdict.settled
    ]
    unreachable = [
        rule
        for rule, standing in standings.items()
        if standing == Standing.UNREACHABLE and rule not in needs.conditional
    ]
    further = {
        "unreachable here": counted(len(unreachable), "rule"),
        "passed only in part": counted(len(partial), "rule"),
    }
    incomplete_parts = [
        f"{number} {what}" for what, number in {**incomplete, **further}.items() if number
    ]
    if left_out is None:
        incomplete_parts.append("it is unknown how much of the default tier was run")
    verified = count[Standing.VERIFIED] or count[Standing.OFFERED] or count[Standing.WAIVED]
    if not (incomplete_parts or verified):
        incomplete_parts.append("no rule verified")
    of_stack = counted(count[Standing.OF_STACK], "rule")
    counts = [
        counted(count[Standing.WAIVED], "waived rule"),
        of_stack and f"{of_stack} violated by the stack on every device",
    ]
    if any(counts):
        exceptions = f" except for {' and '.join(filter(None, counts))}"
    else:
        exceptions = ""
    is_incomplete = left_out is None or any(incomplete.values())
    left, kept = ", ".join(incomplete_parts), f"no rule was violated{exceptions}"
    if incomplete_parts and not is_incomplete and verified:
        words = f"{kept}; {left}"
    elif incomplete_parts:
        words = f"partial: {left}; {kept}"
    elif status:
        words = f"the run is incomplete or broken: no conclusion about {device}"
    else:
        words = f"{device} conforms to its documents{exceptions}"
    return RunConclusion(words, status, tuple(incomplete_parts), is_incomplete or status == 3)


def counted(number: int, singular: str) -> str:
    """Returns the number with its noun, in the plural if necessary; empty for 0."""
    if number:
        return format_count(number, singular)
    return ""


def exit_status(footer: FooterRecord) -> int:
    """Returns the exit status of a run: 0 no violation, even if rules are unverified, 1 violated, 3 incomplete or
    broken. 1 precedes 3. A waiver that has expired, is not needed or does not fit also counts as a violation."""
    verdicts = footer["verdicts"]
    if footer.get("waivers", {}).get("problems"):
        return 1
    if any(verdicts.get(verdict) for verdict in VIOLATIONS):
        return 1
    if not footer["complete"] or any(verdicts.get(verdict) for verdict in INCOMPLETE):
        return 3
    return 0
