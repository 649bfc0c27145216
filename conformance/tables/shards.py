"""Shards: the parts into which several machines divide the cases of a run, the violations of a trial, or cells.

N shards are the whole, and no two have anything in common. The contents of a shard depend only on the ids, the shipped
durations and N, so that machines agree without communicating. Not for putting results together (results/merging.py).
"""

import json
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from conformance.errors import UserError

# Seconds in the guest of the long cases, by id; all others count as _OTHER_S. A machine's own durations are not
# used: those of another machine differ.
DURATIONS = Path(__file__).with_name("durations.json")
_OTHER_S = 0.15
_MOST = 10_000  # shards
_SHARD = re.compile(r"([1-9]\d{0,4})/([1-9]\d{0,4})")

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Shard:
    """Number `number` of `of` shards, from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @staticmethod
    def parse(text: str) -> "Shard":
        """The shard in a text such as 1/4. Raises ArgumentTypeError."""
        match = _SHARD.fullmatch(text)
        number, of = map(int, match.groups()) if match else (1, 0)
        if not number <= of <= _MOST:
            raise ArgumentTypeError(f"{text!r} is not a shard K/N, such as 1/4, with K from 1 to N")
        return Shard(number, of)

    def part(
        self, items: Sequence[_Item], id_of: Callable[[_Item], str], seconds: Mapping[str, float] | None = None
    ) -> list[_Item]:
        """The items of this shard, in their order; by default all take equally long.

        The longest are assigned first, each to the shard with the least time so far. Raises UserError if this one has
        none.
        """
        known = seconds or {}
        spent = [(0.0, number) for number in range(1, self.of + 1)]
        own = set()
        for id_ in sorted({id_of(item) for item in items}, key=lambda id_: (-known.get(id_, _OTHER_S), id_)):
            least, number = min(spent)
            spent[number - 1] = (least + known.get(id_, _OTHER_S), number)
            if number == self.number:
                own.add(id_)
        if not own:
            raise UserError(f"--shard {self}: no case is left for it among {len(items)}", hint="take fewer shards")
        return [item for item in items if id_of(item) in own]


@cache
def shipped_durations() -> Mapping[str, float]:
    """Seconds by case id."""
    found: dict[str, float] = json.loads(DURATIONS.read_text(encoding="ascii"))
    return found
