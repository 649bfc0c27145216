"""Defines the nodes of a YAML document, and the mistakes in such a document. Each `Node` has the line and column of its
value; therefore later checks can report the location of a mistake. parsing.py reads a document into nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAX_NUMBER = (1 << 64) - 1


@dataclass(frozen=True)
class Location:
    file: str  # the path in messages
    line: int  # numbered from 1; 0 stands for the whole file, and messages then show only the path
    column: int  # numbered from 1
    # for an axis value: the text that has its placeholder, for the end of a message
    within: str = ""

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}:{self.line}:{self.column}"
        return self.file


@dataclass(frozen=True)
class Mistake:
    location: Location
    message: str

    def __str__(self) -> str:
        return f"{self.location}: {self.message}{self.location.within}"


def plain(node: Node) -> object:
    """Returns the value of a node as Python data without locations."""
    if isinstance(node.value, dict):
        return {key: plain(value) for key, value in node.value.items()}
    if isinstance(node.value, tuple):
        return [plain(item) for item in node.value]
    return node.value


class TextError(Exception):
    """Raised if a text is not YAML of the supported kind. `mistakes` are all mistakes that were found."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


@dataclass(frozen=True)
class Node:
    # a scalar, a list, or a mapping by key
    value: str | int | bool | tuple[Node, ...] | dict[str, Node] | None
    location: Location
    plain: bool = True  # whether a scalar is written without quotes
    keys: dict[str, Location] | None = None  # the location of each key of a mapping
    name: str = ""  # the name of an axis value; empty if the table gives no name

    @property
    def kind(self) -> str:
        """The kind of value, and the value of a scalar, for error messages."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, tuple):
            return "a list"
        if self.value is None:
            return "nothing"
        if isinstance(self.value, bool):
            return f"the boolean {str(self.value).lower()}"
        if isinstance(self.value, int):
            return f"the number {self.value}"
        return f"the text {quoted(self.value)}"


def quoted(text: str) -> str:
    """Returns the text in quotes for a message, shortened to 60 characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
