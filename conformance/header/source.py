"""Finds names in the text of a preprocessed header: enumerators, fields, macros, prototypes.

The names are used in messages, and to find items of the header that the suite does not describe. Values, offsets and
sizes come from the compiler (compare.py). This module is not a complete C parser: it reads only the forms of
declarations that are common in headers. If a field is not found, the comparison of sizes still shows a difference.
"""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_LONGEST_TYPE = 1000  # the maximum number of characters that are read before a function's name
_BRACE = re.compile(r"[{}]")
_DEFINE = re.compile(r"^#define[ \t]+(\w+)(\(?)", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """The text of a preprocessed header with its macro definitions (`-E -P -dD`)."""

    text: str

    @functools.cached_property
    def code(self) -> str:
        lines = (line for line in self.text.splitlines() if not line.startswith("#"))
        return _ATTRIBUTE.sub("", "\n".join(lines))

    def macros(self) -> list[str]:
        """Returns the names of macros without arguments, in the order of their definitions."""
        return [name for name, bracket in _DEFINE.findall(self.text) if not bracket]

    def enumerators(self, enum: str) -> list[str]:
        """Returns the names that `enum` declares; empty if the header does not have the enumeration."""
        body = _braced(self.code, rf"\benum\s+{enum}\s*{{")
        return [match[0] for part in _split(body, ",") if (match := re.match(r"\w+", part))]

    def fields(self, struct: str) -> dict[str, str]:
        """Returns the declaration of each field of `struct`, by the field's name; empty if there is no such struct."""
        return dict(_fields(_braced(self.code, rf"\bstruct\s+{struct}\s*{{")))

    def prototype(self, function: str) -> str:
        """Returns the first declaration of a function, on one line; empty if there is none."""
        for match in re.finditer(rf"\b{function}\s*\([^()]*\)", self.code):
            before = re.split(
                r"[^\w\s*]",
                self.code[max(0, match.start() - _LONGEST_TYPE) : match.start()],
            )[-1]
            text = " ".join(f"{before}{match[0]}".split())
            # A call of the function also matches the pattern, but has no type before the name.
            if not re.match(rf"(return\b|{function}\b)", text):
                return text.removeprefix("extern ").removeprefix("static ").removeprefix("inline ")
        return ""


def _braced(code: str, opening: str) -> str:
    """Returns the text between the brace at the end of `opening` and the matching brace; empty if not found."""
    match = re.search(opening, code)
    if not match:
        return ""
    depth = 1
    for brace in _BRACE.finditer(code, match.end()):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return code[match.end() : brace.start()]
    return ""


def _split(text: str, separator: str) -> list[str]:
    """Splits a text at separators outside of brackets. Returns the stripped, nonempty parts."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in "([{") - (char in ")]}")
        if char == separator and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def _fields(body: str) -> Iterator[tuple[str, str]]:
    for statement in _split(body, ";"):
        inner = re.search(r"\{(.*)\}\s*(.*)$", statement, re.DOTALL)
        if inner and not inner[2]:
            yield from _fields(inner[1])
            continue
        first, *further = _split(statement, ",")
        for name in (_name(first, typed=True), *map(_name, further)):
            if name:
                yield name, " ".join(statement.split())


def _name(declarator: str, typed: bool = False) -> str:
    """Returns the name in a declarator: f for `*(*f)(int)`, name for `char name[64]`, x for `int x : 3`. Returns an
    empty text for an unnamed bit-field. `typed` is whether the declarator begins with its type."""
    pointer = re.search(r"\(\s*\*\s*(\w+)", declarator)
    if pointer:
        return pointer[1]
    words = re.findall(r"\w+", re.split(r"[\[:]", declarator.replace("}", "} "))[0])
    return words[-1] if len(words) > typed else ""
