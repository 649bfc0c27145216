"""The helpers of the programs: pieces of C in snippets/, each with the pieces that it needs.

The first line `// needs: …` names other pieces. A line that begins with `@name ` is only in programs with that feature,
one with `@!name ` only in the others.
"""

import functools
from collections.abc import Collection, Iterable
from pathlib import Path

_FOLDER = Path(__file__).with_name("snippets")
_NEEDS = "// needs: "


@functools.cache
def _read(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the pieces that a piece needs, and its lines."""
    first, *rest = (_FOLDER / f"{name}.c").read_text(encoding="utf-8").splitlines()
    if first.startswith(_NEEDS):
        return tuple(first.removeprefix(_NEEDS).split()), tuple(rest)
    return (), (first, *rest)


def with_needed(names: Iterable[str]) -> list[str]:
    """The pieces and those that they need, each after the pieces that it needs."""
    found: dict[str, None] = {}

    def add(name: str) -> None:
        for needed in _read(name)[0]:
            add(needed)
        found.setdefault(name)

    for name in names:
        add(name)
    return list(found)


def lines_of(name: str, features: Collection[str]) -> list[str]:
    """The lines of a piece in a program with these features."""
    lines = []
    for line in _read(name)[1]:
        if line.startswith("@"):
            condition, _, line = line[1:].partition(" ")
            if (condition.removeprefix("!") in features) == condition.startswith("!"):
                continue
        lines.append(line)
    return lines
