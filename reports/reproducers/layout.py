"""Wraps C source to a number of columns, at spaces outside of strings. Also reads the helper functions of the programs,
which are pieces of C in snippets/.

The first line of a piece, `// needs: …`, names other pieces and the headers that the piece needs. A line that begins
with `@name ` is only in programs with the feature `name`. A line that begins with `@!name ` is only in programs without
this feature."""

import functools
import textwrap
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

WIDTH = 80
_INDENT = 4


def statement(text: str, depth: int = 1, width: int = WIDTH) -> list[str]:
    """Returns the lines of a statement within `depth` blocks. All lines except the first have one more indent."""
    lead, further = " " * _INDENT * depth, " " * _INDENT * (depth + 1)
    lines, line = [], lead
    for word in _words(text, width):
        if len(line + word.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = further
        line += word
    return [*lines, line.rstrip()]


def fitted(line: str, width: int) -> list[str]:
    """Returns a line of C, as several lines if it is too long. A comment or a part of a macro is not wrapped."""
    if len(line) <= width or line.lstrip().startswith(("/*", "*", "#")):
        return [line]
    indent = len(line) - len(line.lstrip())
    if line.endswith("\\"):
        return [line]
    return [
        " " * (indent % _INDENT) + piece
        for piece in statement(line.lstrip(), indent // _INDENT, width)
    ]


def _words(text: str, width: int) -> Iterator[str]:
    """Yields the unbreakable words of a line, with their spaces. Long string literals are split."""
    current, within = "", False
    for position, character in enumerate(text):
        current += character
        if character == '"' and text[position - 1] != "\\":
            within = not within
        if character == " " and not within:
            yield from _split(current, width)
            current = ""
    yield from _split(current, width)


def _split(piece: str, width: int) -> list[str]:
    if not piece.startswith('"') or len(piece) <= width - 3 * _INDENT:
        return [piece]
    words = textwrap.wrap(piece, width - 4 * _INDENT, drop_whitespace=False, break_on_hyphens=False)
    return [
        *(f'{"" if number == 0 else chr(34)}{word}" ' for number, word in enumerate(words[:-1])),
        f'"{words[-1]}',
    ]


def comment(paragraphs: list[str], width: int = WIDTH) -> list[str]:
    lines = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(
            paragraph.replace("*/", "* /").replace("/*", "/ *"),
            width - 6,
            break_on_hyphens=False,
        )
    return [f"/* {lines[0]}", *(f" * {line}" for line in lines[1:-1]), f" * {lines[-1]} */"]


_FOLDER = Path(__file__).with_name("snippets")
_NEEDS = "// needs: "


@functools.cache
def _read(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the names of the pieces and headers that a piece needs, and the lines of the piece."""
    first, *rest = (_FOLDER / f"{name}.c").read_text(encoding="utf-8").splitlines()
    if first.startswith(_NEEDS):
        return tuple(first.removeprefix(_NEEDS).split()), tuple(rest)
    return (), (first, *rest)


def with_needed(names: Iterable[str]) -> tuple[list[str], set[str]]:
    """Returns the pieces `names` and all pieces that they need, and the headers of all these pieces. A piece comes
    after the pieces that it needs."""
    needed_here: dict[str, None] = {}
    headers: set[str] = set()

    def add(name: str) -> None:
        for needed in _read(name)[0]:
            if needed.startswith("<"):
                headers.add(needed.strip("<>"))
            else:
                add(needed)
        needed_here.setdefault(name)

    for name in names:
        add(name)
    return list(needed_here), headers


def lines_of(name: str, features: Collection[str]) -> list[str]:
    """Returns the lines of a piece in a program with these features."""
    lines = []
    for line in _read(name)[1]:
        if line.startswith("@"):
            condition, _, line = line[1:].partition(" ")
            if (condition.removeprefix("!") in features) == condition.startswith("!"):
                continue
        lines.append(line)
    return lines
