"""Tells what two runs of a race prove. A race is one experiment that is tried many times, and chance decides which tries
violate a rule (a *hit*). If only one of two runs has hits, the stacks can still be equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from conformance.errors import format_count
from conformance.judging.chance import SURE, chance_of_hits
from conformance.judging.steps import was_in_flight
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict

# what a reader of the command that repeats a race must know
RACE = "a race: a PASS proves little, so repeat the command"


def is_race(record: ResultRecord) -> bool:
    """Whether chance decides about a result: it is of tries, or requests were in flight (supervision/confirmation.py)."""
    return bool(record["space"].get("tries")) or was_in_flight(record["observed"])


def remarks_on(record: ResultRecord) -> Iterator[str]:
    """Yields what stands below the command that repeats a result; nothing unless it is a race."""
    if is_race(record):
        yield RACE
        if tries := tries_of(record):
            yield f"{tries} tries of this run violated a rule"


@dataclass(frozen=True)
class Tries:
    """The judged tries of a race, and how many of them violate a rule."""

    hits: int
    of: int

    def __str__(self) -> str:
        return f"{self.hits:,} of {self.of:,}"


def tries_of(record: ResultRecord) -> Tries | None:
    """Returns the tries of a result; None if it is not that of a race, if a try ended the process or the kernel, or if an
    older version has not counted them. Tries with requests in flight must fit the verdict, which may be that of newer tables."""
    if record["space"].get("tries"):
        counts = record.get("points") or {}
        hits = sum(counts.get(verdict, 0) for verdict in VIOLATIONS)
        of = hits + counts.get(Verdict.PASS, 0)
    else:
        seen = record["observed"].get("in_flight", {"hits": 0, "of": 0})
        hits, of = seen["hits"], seen["of"]
        if record["verdict"] not in (VIOLATIONS if hits else (Verdict.PASS,)):
            return None
    return Tries(hits, of) if 0 <= hits <= of and of else None


@dataclass(frozen=True)
class Race:
    """A race that only one of two runs has hit: the tries of the old and of the new run, and the command that repeats
    the case on the stack without a hit. `together` is the chance of all races of the defect."""

    old: Tries
    new: Tries
    repro: str
    together: float = 1.0

    @property
    def is_decided(self) -> bool:
        """Whether the hits show that the stacks differ."""
        return min(self.chance, self.together) <= SURE

    @property
    def is_new(self) -> bool:
        """Whether it is the new run that has hits."""
        return bool(self.new.hits)

    @property
    def chance(self) -> float:
        """The greatest probability with which runs of equal stacks have all their hits in this one run."""
        hit, without = self._sides
        return chance_of_hits(hit.hits, hit.of, without)

    @property
    def odds(self) -> str:
        """What the hits of the race, and those of all races of the defect, prove, in words."""
        together = ""
        if self.together < self.chance:
            together = f", and in all races of the defect with at most {_percent(self.together)}"
        return f"equal stacks differ so with a probability of at most {_percent(self.chance)}{together}"

    @property
    def runs(self) -> int:
        """The number of further runs without a hit after which the stacks differ beyond chance."""
        hit, without = self._sides
        number = 0
        while chance_of_hits(hit.hits, hit.of, (number + 1) * without) > SURE:
            number += 1
        return number

    @property
    def _sides(self) -> tuple[Tries, int]:
        """The tries of the run with hits, and the number of tries of the other run."""
        return (self.new, self.old.of) if self.is_new else (self.old, self.new.of)

    def lines(self) -> Iterator[str]:
        """Yields what was seen how often and what this proves; then the command that would tell, if that is not enough."""
        where, other, claim = ("new", "old", "new") if self.is_new else ("old", "new", "fixed")
        yield (
            f"hits: {self.old} tries in the old run, {self.new} in the new run: the {where} stack has the defect; "
            f"{self.odds}"
        )
        if not self.is_decided:
            times = format_count(self.runs, "time")
            yield f"to tell, at most {times} on the {other} stack: {self.repro}"
            yield f"  a hit shows that the defect is not {claim}; no hit in all of them shows that it is"


def without_a_hit(
    record: ResultRecord, shown: ResultRecord, races: Mapping[str, Race]
) -> tuple[bool, str]:
    """Returns what a result proves of a defect that it does not show and `shown` shows: whether its stack is surely without
    the defect, and why; the reason is empty if the result proves what any other result proves. `races` are those of
    Comparison."""
    tries, hits = tries_of(record), tries_of(shown)
    if tries and hits and hits.hits and not tries.hits:
        race = races.get(record["case"]) or Race(tries, hits, "")
        if race.is_decided:
            of = f"no hit in {tries.of:,} tries of this race, and {hits} above"
            return True, f"{of}: {race.odds}"
    if not tries and not (is_race(record) and record["verdict"] in (Verdict.PASS, *VIOLATIONS)):
        return False, ""
    number = f" in {tries.of:,} tries of" if tries else " in"
    return False, f"did not show the defect{number} this race, which does not prove its absence"


def _percent(share: float) -> str:
    return f"{100 * share:.2g}%" if share >= 0.0001 else "0.01%"


def races_of(
    before: Mapping[str, ResultRecord], after: Mapping[str, ResultRecord]
) -> dict[str, Race]:
    """Returns the races that both runs have tried and only one of them has hit, by case."""
    races = {}
    for case in before.keys() & after.keys():
        old, new = tries_of(before[case]), tries_of(after[case])
        if old and new and bool(old.hits) != bool(new.hits):
            without = before[case] if new.hits else after[case]
            races[case] = Race(old, new, without["repro"])
    return races
