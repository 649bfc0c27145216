"""Determines the cases of a run and their order, by the tier, the seed and the shard of a machine.

Each tier contains the cases of the smaller tiers. The cases of the smallest tier depend only on the tables and on the
shipped durations; therefore two runs of this tier have the same cases. The contents of a shard depend only on the ids,
the shipped durations and the number of shards; therefore all machines compute the same shards. suite.py has the other
criteria of a selection.
"""

from __future__ import annotations

import hashlib
import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from conformance.errors import UserError, format_count
from conformance.model.case import Case
from conformance.model.rules import shown_of_rules
from conformance.model.vocabulary import TIERS
from conformance.tables.health import CASES, HEALTH

DEFAULT = "default"
SMOKE, EXHAUSTIVE = "smoke", "exhaustive"
assert tuple(TIERS) == (SMOKE, DEFAULT, EXHAUSTIVE)


def of_tier(cases: Sequence[Case], tier: str) -> list[Case]:
    if tier == EXHAUSTIVE:
        return list(cases)
    if tier == HEALTH:
        return [case for case in cases if case.id in CASES]
    moderate = [case for case in cases if case.tier != EXHAUSTIVE]
    if tier == DEFAULT:
        return moderate
    return _every_direction_once(moderate)


def _every_direction_once(cases: Sequence[Case]) -> list[Case]:
    """Returns the smoke cases and, for each rule without a smoke case, the cheapest case of the rule. If cases of a
    rule show grants, at least one such case is returned; the same applies to refusals."""
    chosen = {case.id for case in cases if case.tier == SMOKE}
    showing: dict[tuple[str, str], dict[str, Case]] = {}
    for case in cases:
        directions = {(rule, direction.direction) for rule, direction in shown_of_rules(case)}
        for key in directions | {(rule, "") for rule in case.rules}:
            showing.setdefault(key, {})[case.id] = case
    # The rules' directions come first, those with few cases before those with many, because a case that is chosen for a
    # direction also counts as a case of its other rules and directions.
    for key in sorted(showing, key=lambda key: (not key[1], len(showing[key]), key)):
        if not chosen & showing[key].keys():
            chosen.add(min(showing[key].values(), key=_expense).id)
    return [case for case in cases if case.id in chosen]


def _expense(case: Case) -> tuple[bool, int, float, int, str]:
    """What a case of the smallest tier costs. Cases of nearly the same recorded duration compare by their calls."""
    seconds = shipped_durations().get(case.id, OTHER_S)
    return (not seconds, int(seconds / _STEP_S), case.cost, len(case.needs), case.id)


def ordered(cases: Sequence[Case], seed: int | None) -> list[Case]:
    """Returns the cases shuffled by `seed`. If `seed` is None, returns them in the order of the tables. The relative
    order of two cases depends only on the seed and on their ids, and not on other cases."""
    if seed is None:
        return list(cases)
    return sorted(cases, key=lambda case: hashlib.sha256(f"{seed} {case.id}".encode()).digest())


# The durations of the long cases in the guest, in seconds, by id; all other cases count as OTHER_S. A case has no
# duration (0) if the recorded stack could run its row only at another entry, such as uverbs. docs/quotes.py
# writes the file. Measurements of the machine itself are not used, because all machines must use the same numbers.
DURATIONS = Path(__file__).with_name("durations.json")
OTHER_S = 0.025
_STEP_S = 0.05  # durations in one step count as equal
_MOST_SHARDS = 10_000
_SHARD = re.compile(r"([1-9]\d{0,17})/([1-9]\d{0,17})")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Shard:
    """One of `of` shards, which are numbered from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @staticmethod
    def parse(text: str) -> Shard:
        """Returns the shard that a text such as 1/4 names. Raises ArgumentTypeError."""
        match = _SHARD.fullmatch(text)
        number, of = map(int, match.groups()) if match else (1, 0)
        if number > of:
            raise ArgumentTypeError(f"{text!r} is not a shard K/N, such as 1/4, with K from 1 to N")
        if of > _MOST_SHARDS:
            raise ArgumentTypeError(f"{text!r}: a run can have at most {_MOST_SHARDS:,} shards")
        return Shard(number, of)

    def part(
        self,
        items: Sequence[_Item],
        id_of: Callable[[_Item], str],
        seconds: Mapping[str, float] | None = None,
        what: str = "case",
    ) -> list[_Item]:
        """Returns the items of this shard, in their order. The longest items are assigned first, each to the shard with
        the shortest total so far. Without `seconds`, all items count as equally long. Raises UserError if empty."""
        durations = seconds or {}
        spent = [(0.0, number) for number in range(1, self.of + 1)]
        cases_here = set()
        for id_ in sorted(
            {id_of(item) for item in items},
            key=lambda id_: (-durations.get(id_, OTHER_S), id_),
        ):
            least, number = min(spent)
            spent[number - 1] = (least + durations.get(id_, OTHER_S), number)
            if number == self.number:
                cases_here.add(id_)
        if not cases_here:
            raise UserError(
                f"--shard {self}: this shard has none of the {format_count(len(items), what)}",
                hint="use fewer shards",
            )
        return [item for item in items if id_of(item) in cases_here]


@cache
def shipped_durations() -> Mapping[str, float]:
    """Returns the duration of each long case in seconds, by case id."""
    durations: dict[str, float] = json.loads(DURATIONS.read_text(encoding="ascii"))
    return durations
