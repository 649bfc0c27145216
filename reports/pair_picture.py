"""Draws what a run shows about the pairs of values of a model: a triangle with a cell for each pair."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from conformance.model.record import PairsFacts
from conformance.older_python import pairwise, zip

# The colours of the cells, by the letters of PairsFacts.
STATES = {"r": "right", "s": "some", "w": "wrong", "n": "lacking"}
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

    @cached_property
    def values(self) -> list[tuple[str, str]]:
        parameters = self.facts["parameters"]
        return [(name, label) for name, labels in parameters.items() for label in labels]

    @property
    def size(self) -> int:
        return len(self.values)

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
        labels, start = [], 0
        for name, values in self.facts["parameters"].items():
            end = start + len(values)
            labels.append(Label(name, end + 0.8, (start + end) / 2 + 0.8))
            start = end
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
        return ["=".join(self.values[number]) for number in sorted(wrong)]


def _row(row: int, columns: list[int]) -> str:
    """Returns the rectangles of the cells of one row, whose columns are in ascending order."""
    path, start = "", columns[0]
    for column, following in pairwise([*columns, -1]):
        if following != column + 1:
            width = column + 1 - start
            path += f"M{start} {row}h{width}v1h-{width}z"
            start = following
    return path
