"""Reads the rules from `rules.yaml` in the folder of each verb. Returns frozen rules, and mistakes with locations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from conformance.model import capability, vocabulary
from conformance.model.rules import IBA, LAYERS, LEVELS, MUST, RULE_ID, Registry, Rule
from conformance.tables import expansion, keys
from conformance.tables.keys import EVIDENCE, EXCEPT, FLAGS, QUOTE, SECOND_HAND, UNQUOTED
from conformance.tables.stray_files import display_path
from conformance.verbs import ENUMS
from conformance.yamldoc.nodes import Location, Mistake, Node, TextError, quoted
from conformance.yamldoc.parsing import read_file
from conformance.yamldoc.reader import Reader

FILE_NAME = "rules.yaml"
# of a quote: where a second sentence begins; the point of an abbreviation ends none
_NEXT_SENTENCE = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)[.?!] +[A-Z(]")
_PAGE = re.compile(r"\w*_\w+|rdma\w*")  # a name of a manual page, such as ibv_reg_mr
_PREDICATE = re.compile(r"[a-z][a-z0-9_]*")


def read_registry(folders: Iterable[Path], root: Path) -> tuple[Registry, list[Mistake]]:
    """Returns all rules under `folders`, in the order of the files, and all mistakes. Paths in messages are relative to
    `root` if they are below it."""
    registry = Registry()
    retired: dict[str, Location] = {}
    reader = Reader()
    for folder in folders:
        for path in sorted(folder.glob(f"*/{FILE_NAME}")):
            try:
                _read_file(read_file(path, display_path(path, root)), reader, registry, retired)
            except TextError as error:
                for mistake in error.mistakes:
                    reader.note(mistake.location, mistake.message)
    for rule in registry.values():
        if rule.id in retired:
            reader.note(
                rule.location,
                f"rule id {rule.id} is retired ({retired[rule.id]}); choose a new one",
            )
    files = list(dict.fromkeys(mistake.location.file for mistake in reader.mistakes))
    return registry, sorted(
        reader.mistakes,
        key=lambda item: (
            files.index(item.location.file),
            item.location.line,
            item.location.column,
        ),
    )


def _read_file(
    root: Node,
    reader: Reader,
    registry: Registry,
    retired: dict[str, Location],
) -> None:
    fields = reader.mapping(root, "a rules file", keys.RULES_FILE, keys.required(keys.RULES_FILE))
    verb = reader.word(fields.get("verb"), "verb", vocabulary.VERBS)
    for node in reader.items(fields.get("rules"), "rules"):
        rule = _read_rule(node, verb or "", reader)
        if rule is None:
            continue
        if rule.id in registry:
            reader.note(
                rule.location,
                f"duplicate rule id {rule.id} (first at {registry[rule.id].location})",
            )
        else:
            registry[rule.id] = rule
    for name, node in reader.named(
        fields.get("predicates"),
        "predicates",
        capability.NAMES,
    ).items():
        location = (fields["predicates"].keys or {})[name]
        if name in registry.predicates:
            reader.note(location, f"duplicate predicate {name}")
        if not _PREDICATE.fullmatch(name):
            reader.note(
                location,
                f"invalid name of a predicate: {quoted(name)}; use a-z, 0-9 and _",
            )
        registry.predicates[name] = _predicate(reader, name, node)
    for node in reader.items(fields.get("retired"), "retired"):
        entry = reader.mapping(node, "a retired rule", ("id", "why"), ("id", "why"))
        id_ = reader.text(entry.get("id"), "id")
        reader.text(entry.get("why"), "why")
        if id_:
            if not RULE_ID.fullmatch(id_):
                reader.note(
                    entry["id"].location,
                    f"invalid rule id {quoted(id_)}; write e.g. REG-15",
                )
            if id_ in retired:
                reader.note(
                    entry["id"].location,
                    f"duplicate retired rule id {id_} (first at {retired[id_]})",
                )
            retired.setdefault(id_, entry["id"].location)


def _predicate(reader: Reader, name: str, node: Node) -> str:
    """Returns the text of a predicate. For a predicate over flags, the text joins the names of the flags: `A | B`."""
    if not isinstance(node.value, dict):
        return reader.text(node, "a predicate") or ""
    if expansion.is_axis(node):
        words = tuple(
            str(bit.value).replace(" ", "") for bit in expansion.unknown_values(reader, name, node)
        )
    else:
        fields = reader.mapping(node, "a predicate", (FLAGS, EXCEPT), (FLAGS,))
        enum = reader.word(fields.get(FLAGS), "enumeration of flags", expansion.FLAG_ENUMS)
        if enum:
            flag_names = ENUMS[enum].short_names
        else:
            flag_names = ()
        if enum:
            excluded = reader.words(fields.get(EXCEPT), "flag", flag_names)
        else:
            excluded = ()
        words = tuple(flag for flag in flag_names if flag not in excluded)
    return " | ".join(words)


def _check_quote(reader: Reader, node: Node, quote: str) -> None:
    """Notes a quote of two sentences: a document may have other words between them."""
    if _NEXT_SENTENCE.search(quote):
        hint = "; quote the one that the rule needs, or split the rule"
        reader.note(node.location, f"a quote is at most one sentence{hint}")


def _check_document(reader: Reader, node: Node, document: str) -> None:
    """Notes a manual page without its section."""
    for page in document.split("; "):
        if _PAGE.fullmatch(page):
            text = f"{quoted(page)} is no manual page: write the section too, as in {page}(3)"
            reader.note(node.location, text)


def _read_rule(node: Node, verb: str, reader: Reader) -> Rule | None:
    before = len(reader.mistakes)
    fields = reader.mapping(node, "a rule", keys.RULE, keys.required(keys.RULE))
    keys_here = ("level", "layer", "needs", EVIDENCE)
    texts = {key: reader.text(fields[key], key) or "" for key in fields if key not in keys_here}
    if QUOTE in fields and UNQUOTED in fields:
        reader.note(
            (node.keys or {})[UNQUOTED],
            f"a rule with the key {QUOTE!r} cannot have {UNQUOTED!r} too",
        )
    elif isinstance(node.value, dict) and QUOTE not in fields and UNQUOTED not in fields:
        reader.note(
            node.location,
            f"a rule lacks the key {QUOTE!r} (or {UNQUOTED!r}, with the reason)",
        )
    level = reader.word(fields.get("level"), "level", LEVELS)
    if level == MUST and UNQUOTED in fields and QUOTE not in fields:
        reader.note(
            fields["level"].location,
            f"a rule of the level {MUST!r} needs a {QUOTE!r}; without one, its level is 'should'",
        )
    if texts.get("document", "").startswith(IBA) and SECOND_HAND not in fields:
        reader.note(
            fields["document"].location,
            f"a rule of the {IBA} needs the key {SECOND_HAND!r}: the public source that names the statement",
        )
    for key, check in ((QUOTE, _check_quote), ("document", _check_document)):
        if texts.get(key):
            check(reader, fields[key], texts[key])
    layer = reader.word(fields.get("layer"), "layer", LAYERS)
    needs = reader.words(fields.get("needs"), "capability", capability.NAMES)
    items = reader.items(fields.get(EVIDENCE), EVIDENCE)
    evidence = tuple(reader.text(item, "a part of the evidence") or "" for item in items)
    if (id_ := texts.get("id")) and not RULE_ID.fullmatch(id_):
        reader.note(fields["id"].location, f"invalid rule id {quoted(id_)}; write e.g. REG-15")
    if len(reader.mistakes) > before:
        return None
    quoted_texts = {QUOTE: "", UNQUOTED: "", **texts}
    return Rule(
        verb=verb,
        level=str(level),
        layer=str(layer),
        needs=needs,
        location=fields["id"].location,
        evidence=evidence,
        **quoted_texts,
    )
