"""Reads the mutants of a driver; a file has several mutants. A mutant has anchored edits of the driver's sources; for
rxe, these are the mended sources. An anchor may be in the text of a change of the mended stack. modules.py compiles a
mutant."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.older_python import zip
from conformance.tables.stray_files import display_path
from conformance.tables.suite import ROOT
from conformance.yamldoc.nodes import Node, TextError
from conformance.yamldoc.parsing import read_bytes
from conformance.yamldoc.reader import Reader, suggestion
from fixtures.guest.changes import LIBIBVERBS, Change, read_edits
from fixtures.guest.driver import DEFAULT_DRIVER

FOLDER = Path(__file__).parent  # contains a folder for each driver
_FLAGS = ("kills", "leaks", "permitted", "hides")
_KEYS = ("name", "about", "rules", "kind", *_FLAGS, "departs_from", "equivalent", "edits")
_REQUIRED = ("name", "about", "rules", "kind", "edits")
_SEPARATOR = b"---\n"


@dataclass(frozen=True)
class Mutant(Change):
    """A change of the driver that violates `rules`; `kind` is the kind of mistake. The name of a mutant never changes.

    `kills` says that the change can crash the kernel, and `leaks` that the module may be impossible to unload. A
    `permitted` mutant violates no rule, but may not follow the recommendations of the rules in `departs_from`. It
    `hides` other changes if it removes a capability that these changes need.
    `equivalent` is the reason why no program can observe the change, or the document that leaves the behaviour open.
    """

    file: str = ""
    kind: str = ""
    kills: bool = False
    leaks: bool = False
    permitted: bool = False
    hides: bool = False
    departs_from: tuple[str, ...] = ()
    equivalent: str = ""

    @property
    def of_header(self) -> bool:
        """Whether the mutant changes a header, which requires a compilation of the whole driver."""
        return any(file.endswith(".h") for file in self.files)


def read_mutants(
    folder: Path = FOLDER / DEFAULT_DRIVER,
    rules: Collection[str] | None = None,
) -> tuple[Mutant, ...]:
    """Returns all mutants in a driver's folder. Raises UserError (status 2) with file and line of each mistake; an id
    that is not among `rules` is one."""
    reader, mutants, names = Reader(), list[Mutant](), dict[str, str]()
    for path in sorted(folder.glob("*.yaml")):
        for node in _documents(path):
            mutant = _mutant(path, node, reader, rules)
            if mutant.name in names:
                reader.note(
                    node.location,
                    f"the name {mutant.name!r} is already used in {names[mutant.name]}",
                )
            names[mutant.name] = path.name
            mutants.append(mutant)
    if reader.mistakes:
        raise UserError(*map(str, reader.mistakes), status=2)
    return tuple(mutants)


def chosen_mutants(
    mutants: Sequence[Mutant],
    names: Sequence[str] = (),
    rules: Sequence[str] = (),
    files: Sequence[str] = (),
) -> list[Mutant]:
    """Returns the mutants that match names, rules and files; an empty list matches all. Raises UserError (status 2)."""
    questions: Sequence[tuple[Sequence[str], Callable[[Mutant], set[str]]]] = (
        (names, lambda mutant: {mutant.name}),
        (rules, lambda mutant: set(mutant.rules)),
        (files, lambda mutant: {mutant.file}),
    )
    for words, of in questions:
        there = sorted(set[str]().union(*map(of, mutants)))
        for word in words:
            if word not in there:
                near = suggestion(word, there) or "; --list shows all mutants"
                raise UserError(f"no mutant has the name, rule or file {word!r}{near}")
    chosen = list(mutants)
    for words, of in questions:
        if words:
            chosen = [mutant for mutant in chosen if of(mutant) & set(words)]
    return chosen


def _documents(path: Path) -> Iterator[Node]:
    line = 0
    for text in path.read_bytes().split(_SEPARATOR):
        if text.strip():
            try:
                yield read_bytes(b"\n" * line + text, display_path(path, ROOT))
            except TextError as error:
                raise UserError(*map(str, error.mistakes), status=2) from error
        line += text.count(b"\n") + 1


def _mutant(path: Path, node: Node, reader: Reader, rules: Collection[str] | None) -> Mutant:
    fields = reader.mapping(node, "a mutant", _KEYS, _REQUIRED)

    def text(key: str) -> str:
        if key in fields:
            return reader.text(fields[key], key) or ""
        return ""

    def flag(key: str) -> bool:
        return key in fields and bool(reader.truth(fields[key], key))

    def ids(key: str) -> tuple[str, ...]:
        if rules is not None:
            return reader.words(fields.get(key), "rule", rules)
        return tuple(
            reader.text(item, "a rule") or "" for item in reader.items(fields.get(key), key)
        )

    edits = read_edits(fields.get("edits"), reader)
    for edit, item in zip(edits, reader.items(fields.get("edits"), "edits"), strict=True):
        if edit.file.startswith(f"{LIBIBVERBS}/"):
            reader.note(
                item.location,
                f"{edit.file!r}: a trial exchanges only the driver and its provider in the guest; remove this mutant",
            )
    digest = hashlib.sha256(repr(edits).encode()).hexdigest()
    mutant = Mutant(
        text("name"),
        text("about"),
        ids("rules"),
        (),
        edits,
        digest,
        file=path.stem,
        kind=text("kind"),
    )
    flags: dict[str, Any] = {key: flag(key) for key in _FLAGS}
    return replace(mutant, departs_from=ids("departs_from"), equivalent=text("equivalent"), **flags)
