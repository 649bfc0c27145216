"""C source in a number of columns: lines are wrapped where an argument or operand ends, never within a text."""

import textwrap
from collections.abc import Iterator

WIDTH = 80
_INDENT = 4


def statement(text: str, depth: int = 1, width: int = WIDTH) -> list[str]:
    """The lines of a statement at a depth of blocks; its further lines are indented once more."""
    lead, further = " " * _INDENT * depth, " " * _INDENT * (depth + 1)
    lines, line = [], lead
    for word in _words(text, width):
        if len(line + word.rstrip()) > width and line.strip():
            lines.append(line.rstrip())
            line = further
        line += word
    return [*lines, line.rstrip()]


def fitted(line: str, width: int) -> list[str]:
    """A line of C as several if it is too long; a remark stays as it is."""
    if len(line) <= width or line.lstrip().startswith(("/*", "*", "#")):
        return [line]
    own = len(line) - len(line.lstrip())
    if line.endswith("\\"):
        return [line]
    return [" " * (own % _INDENT) + each for each in statement(line.lstrip(), own // _INDENT, width)]


def _words(text: str, width: int) -> Iterator[str]:
    """Pieces that must not be broken: each ends with a blank, except the last. Long texts are split into several."""
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
    return [*(f'{"" if number == 0 else chr(34)}{word}" ' for number, word in enumerate(words[:-1])), f'"{words[-1]}']


def comment(paragraphs: list[str], width: int = WIDTH) -> list[str]:
    lines = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(paragraph.replace("*/", "* /").replace("/*", "/ *"), width - 6, break_on_hyphens=False)
    return [f"/* {lines[0]}", *(f" * {line}" for line in lines[1:-1]), f" * {lines[-1]} */"]
