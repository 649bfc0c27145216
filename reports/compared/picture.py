"""Draws what a run shows about the pairs of values of a model: a triangle with a cell for each pair."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from conformance.model.record import PairsFacts
from conformance.older_python import pairwise, zip
from conformance.results.conclusions import format_counts, format_lacking

# The colours of the cells, by the letters of PairsFacts.
STATES = {"r": "right", "s": "some", "w": "wrong", "n": "lacking"}
# Shares of the number of cells in a row: the size of a letter, the least distance of lines, and the room to the right.
_LETTER, _LINE, _ROOM = 0.0215, 0.032, 0.18
_Cell = tuple[int, int]


@dataclass(frozen=True)
class Label:
    """The name of a parameter, in the middle of its rows and to the right of its last column."""

    name: str
    x: float
    y: float


@dataclass(frozen=True)
class Picture:
    """The picture of a case. A row and a column is a value, in the order of the parameters."""

    case: str
    facts: PairsFacts

    @property
    def evidence(self) -> str:
        """The points by verdict, and how many combinations were not reached, with the reasons."""
        parts = []
        if self.facts.get("points"):
            parts.append(format_counts(self.facts["points"]))
        if self.facts.get("lacking"):
            parts.append(format_lacking(self.facts).replace(" were ", " "))
        return "; ".join(parts)

    @cached_property
    def values(self) -> list[tuple[str, str]]:
        parameters = self.facts["parameters"]
        return [(name, label) for name, labels in parameters.items() for label in labels]

    @property
    def names(self) -> list[str]:
        return ["=".join(value) for value in self.values]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def width(self) -> float:
        return self.size * (1 + _ROOM)

    @property
    def letter(self) -> float:
        return self.size * _LETTER

    @cached_property
    def cells(self) -> dict[_Cell, str]:
        """The state of each cell, by the numbers of its column and of its row."""
        starts, groups = 0, list[range]()
        for labels in self.facts["parameters"].values():
            groups.append(range(starts, starts + len(labels)))
            starts += len(labels)
        pairs = itertools.combinations(groups, 2)
        cells = [cell for pair in pairs for cell in itertools.product(*pair)]
        return dict(zip(cells, self.facts["states"], strict=True))

    @cached_property
    def paths(self) -> dict[str, str]:
        """The path of the cells of each colour: adjacent cells of a row are one rectangle."""
        rows: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for (column, row), state in self.cells.items():
            if state in STATES:
                rows[STATES[state]][row].append(column)
        paths: dict[str, str] = defaultdict(str)
        for state, of_state in rows.items():
            for row, columns in of_state.items():
                paths[state] += _row(row, sorted(columns))
        return paths

    @cached_property
    def labels(self) -> list[Label]:
        """The labels, from the last to the first, so far apart that they can be read: a parameter can have few rows. Each is
        to the right of the cells in its line."""
        labels: list[Label] = []
        ends = list(itertools.accumulate(map(len, self.facts["parameters"].values())))
        line = self.size * _LINE
        lowest = self.size + line
        for name, (start, end) in zip(
            reversed(self.facts["parameters"]), reversed([*pairwise([0, *ends])]), strict=True
        ):
            lowest = min((start + end) / 2 + 0.8, lowest - line)
            right = next(place for place in ends if place >= min(lowest, self.size))
            labels.append(Label(name, max(end, right) + 0.8, lowest))
        return labels

    @cached_property
    def counts(self) -> dict[str, int]:
        counts = Counter(self.facts["states"])
        return {state: counts[letter] for letter, state in STATES.items() if counts[letter]}

    @cached_property
    def always_wrong(self) -> list[str]:
        """The values that are wrong in every pair."""
        states: dict[int, set[str]] = defaultdict(set)
        for cell, state in self.cells.items():
            for number in cell:
                states[number].add(state)
        wrong = [number for number, there in states.items() if there - {"-", "n"} == {"w"}]
        return [self.names[number] for number in sorted(wrong)]


def _row(row: int, columns: list[int]) -> str:
    """Returns the rectangles of the cells of one row, whose columns are in ascending order."""
    path, start = "", columns[0]
    for column, following in pairwise([*columns, -1]):
        if following != column + 1:
            width = column + 1 - start
            path += f"M{start} {row}h{width}v1h-{width}z"
            start = following
    return path
