"""Reading names out of a preprocessed header: enumerators, fields, macros, prototypes.

It finds what the descriptions lack and words a difference for people; every number comes from the
compiler. It is no C parser: it knows the declarations that headers are made of, and what it cannot
read it leaves out, which the comparison of sizes then shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_DEFINE = re.compile(r"^#define[ \t]+(\w+)(\(?)", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """The text of a header, preprocessed with its macro definitions kept (`-E -P -dD`)."""

    text: str

    @property
    def code(self) -> str:
        """The text without directives and attributes."""
        lines = (line for line in self.text.splitlines() if not line.startswith("#"))
        return _ATTRIBUTE.sub("", "\n".join(lines))

    def macros(self) -> list[str]:
        """The names of macros that take no arguments, in the order of their definition."""
        return [name for name, bracket in _DEFINE.findall(self.text) if not bracket]

    def enumerators(self, enum: str) -> list[str]:
        """The names that `enum` declares; empty if the header has no such enumeration."""
        body = _braced(self.code, rf"\benum\s+{enum}\s*{{")
        return [match[0] for part in _split(body, ",") if (match := re.match(r"\w+", part))]

    def fields(self, struct: str) -> dict[str, str]:
        """The fields of `struct` as they are declared, by name; empty if there is no such struct."""
        return dict(_fields(_braced(self.code, rf"\bstruct\s+{struct}\s*{{")))

    def prototype(self, function: str) -> str:
        """The first declaration of a function as written there, on one line; empty if there is none."""
        for match in re.finditer(rf"[\w\s*]*\b{function}\s*\([^()]*\)", self.code):
            text = " ".join(match[0].split())
            # A call looks the same, but for what stands before it.
            if not re.match(rf"(return\b|{function}\b)", text):
                return text.removeprefix("extern ").removeprefix("static ").removeprefix("inline ")
        return ""


def _braced(code: str, opening: str) -> str:
    """The text between the brace that ends `opening` and its partner; empty if it is not there."""
    match = re.search(opening, code)
    if not match:
        return ""
    depth = 1
    for index in range(match.end(), len(code)):
        depth += {"{": 1, "}": -1}.get(code[index], 0)
        if not depth:
            return code[match.end() : index]
    return ""


def _split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators outside of any bracket, stripped, empty ones left out."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == separator and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _fields(body: str) -> Iterator[tuple[str, str]]:
    """Name and declaration of each field, those of anonymous structs and unions included."""
    for statement in _split(body, ";"):
        inner = re.search(r"\{(.*)\}\s*(.*)$", statement, re.DOTALL)
        if inner and not inner[2]:
            yield from _fields(inner[1])
            continue
        first, *others = _split(statement, ",")
        for name in (_name(first, typed=True), *map(_name, others)):
            if name:
                yield name, " ".join(statement.split())


def _name(declarator: str, typed: bool = False) -> str:
    """The name that a declarator gives: `*(*f)(int)` gives f, `char name[64]` name, `int x : 3` x.

    Empty for an unnamed bit-field; `typed` says that the type comes first and is no name.
    """
    pointer = re.search(r"\(\s*\*\s*(\w+)", declarator)
    if pointer:
        return pointer[1]
    words = re.findall(r"\w+", re.split(r"[\[:]", declarator.replace("}", "} "))[0])
    return words[-1] if len(words) > typed else ""
