"""C source in 72 columns: statements are wrapped where an argument or operand ends, never within a text."""

from __future__ import annotations

import textwrap

WIDTH = 72
_INDENT = 4


def statement(text: str, depth: int = 1) -> list[str]:
    """The lines of a statement at a depth of blocks; its further lines are indented once more."""
    lead, further = " " * _INDENT * depth, " " * _INDENT * (depth + 1)
    lines, line = [], lead
    for word in _words(text):
        if len(line + word.rstrip()) > WIDTH and line.strip():
            lines.append(line.rstrip())
            line = further
        line += word
    return [*lines, line.rstrip()]


def _words(text: str) -> list[str]:
    """Pieces that must not be broken: each ends with a blank, except the last. Long texts are split into several."""
    pieces: list[str] = []
    current, within = "", False
    for position, character in enumerate(text):
        current += character
        if character == '"' and text[position - 1] != "\\":
            within = not within
        if character == " " and not within:
            pieces.append(current)
            current = ""
    pieces.append(current)
    return [part for piece in pieces for part in _split(piece)]


def _split(piece: str) -> list[str]:
    if not piece.startswith('"') or len(piece) <= WIDTH - 3 * _INDENT:
        return [piece]
    words = textwrap.wrap(piece, WIDTH - 4 * _INDENT, drop_whitespace=False, break_on_hyphens=False)
    return [*(f'{"" if number == 0 else chr(34)}{word}" ' for number, word in enumerate(words[:-1])), f'"{words[-1]}']


def comment(paragraphs: list[str]) -> list[str]:
    """A block comment; an empty paragraph is an empty line."""
    lines = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(paragraph, WIDTH - 3, break_long_words=False, break_on_hyphens=False) or [""]
    if not lines:
        return []
    lines = [line.replace("*/", "* /") for line in lines]
    marked = [f"/* {lines[0]}", *(f" * {line}".rstrip() for line in lines[1:])]
    if len(marked[-1]) + 3 > WIDTH + 2:
        return [*marked, " */"]
    return [*marked[:-1], f"{marked[-1]} */"]
