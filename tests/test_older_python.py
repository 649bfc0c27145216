"""Tests what stands in for newer Pythons and newer pyverbs, and that every module can be parsed by the oldest Python."""

import ast
import ctypes
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.device import bindings, fork_settings
from conformance.errors import HostLacks
from conformance.tables.suite import ROOT
from launched import ended

OLDEST = (3, 9)
FOLDERS = ("conformance", "cases", "fixtures", "reports", "trial", "commands")


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_oldest_python_can_parse_every_module(folder):
    for path in sorted(Path(ROOT, folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text, str(path), feature_version=OLDEST)
        if path.name != "older_python.py":
            assert [f"{path}:{line}: {what}" for line, what in newer_parts(tree)] == []


def test_every_module_can_be_imported():
    """On the oldest Python, this also evaluates what no parser sees, such as `int | None` outside of annotations."""
    for folder in ("conformance", "fixtures", "reports", "trial", "commands"):
        for path in sorted(Path(ROOT, folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            if not name.endswith(".__main__") and ".snippets." not in name:  # parts of programs
                importlib.import_module(name.removesuffix(".__init__"))


@pytest.mark.nightly
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a system")
def test_the_unit_tests_pass_on_the_oldest_python_with_its_own_packages():
    done = ended(ROOT / "ci/oldest.sh")
    assert "Python 3.9" in done.stdout
    assert done.returncode == 0, done.stdout[-4000:]


# Modules, and what 3.9 lacks in each of them.
NEWER = {
    "datetime": {"UTC"},
    "enum": {"StrEnum"},
    "hashlib": {"file_digest"},
    "itertools": {"pairwise", "batched"},
    "types": {"UnionType", "NoneType"},
    "typing": {"NotRequired", "Self", "TypeAlias", "assert_never", "is_typeddict", "override"},
    "sys": {"orig_argv"},
}
NEWER_METHODS = {"bit_count", "add_note", "file_digest", "orig_argv"}


def newer_parts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields the line and the name of what the oldest Python lacks."""
    imported = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if node.module in ("__future__", "conformance.older_python"):
                imported |= names
            for name in sorted(names & NEWER.get(node.module or "", set())):
                yield node.lineno, f"{node.module}.{name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            of = NEWER.get(ast.unparse(node.value), set()) | NEWER_METHODS
            if node.attr in of:
                yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Call):
            keywords = {keyword.arg for keyword in node.keywords}
            called = ast.unparse(node.func)
            if called == "zip" and "strict" in keywords and "zip" not in imported:
                yield node.lineno, "zip(strict=)"
            if called.endswith(".total") and not node.args:
                yield node.lineno, "Counter.total()"
            if called.endswith("dataclass") and keywords & {"slots", "kw_only"}:
                yield node.lineno, "dataclass(slots=, kw_only=)"
            if called in ("isinstance", "issubclass") and has_union(node.args[1]):
                yield node.lineno, f"{called}(, X | Y)"
    if "annotations" not in imported:
        for annotation in evaluated_annotations(tree):
            if has_union(annotation):
                yield annotation.lineno, "X | Y in an annotation"


def has_union(node: ast.AST) -> bool:
    return any(isinstance(part, ast.BitOr) for part in ast.walk(node))


def evaluated_annotations(tree: ast.Module) -> Iterator[ast.expr]:
    """Yields the annotations that Python evaluates unless `annotations` is imported: not those of local variables."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns:
            yield node.returns
        if isinstance(node, ast.arg) and node.annotation:
            yield node.annotation
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for statement in node.body:
                if isinstance(statement, ast.AnnAssign):
                    yield statement.annotation


def test_newer_parts_of_python_are_found():
    text = "from enum import StrEnum\nfrom dataclasses import dataclass\nzip(a, b, strict=True)\n"
    text += "n.bit_count() or types.UnionType\n@dataclass(kw_only=True)\nclass A: pass\n"
    text += "Counter(a).total()\n"
    text += "isinstance(a, int | str)\n"
    assert sorted(line for line, _ in newer_parts(ast.parse(text))) == [1, 3, 4, 4, 5, 7, 8]


def test_unions_in_annotations_are_found_where_python_evaluates_them():
    text = "def f(a: int | None) -> str | None:\n    b: int | None\nclass A:\n    c: int | None\n"
    assert sorted(line for line, _ in newer_parts(ast.parse(text))) == [1, 1, 4]
    assert list(newer_parts(ast.parse(f"from __future__ import annotations\n{text}"))) == []


def test_the_stand_ins_of_an_older_python_do_what_python_does(monkeypatch):
    name = "conformance.older_python"
    newer = importlib.import_module(name)
    monkeypatch.setattr(sys, "version_info", (*OLDEST, 0, "final", 0))
    monkeypatch.delitem(sys.modules, name)
    older = importlib.import_module(name)
    monkeypatch.setitem(sys.modules, name, newer)
    for module in newer, older:
        assert list(module.zip("ab", (1, 2), strict=True)) == [("a", 1), ("b", 2)]
        assert list(module.zip("ab", (1,))) == [("a", 1)]
        with pytest.raises(ValueError, match="zip"):
            list(module.zip("ab", (1,), strict=True))
        assert list(module.pairwise("abc")) == [("a", "b"), ("b", "c")]
        assert module.bit_count(0b10110) == 3
        word = module.StrEnum("Word", {"NEW": "new"}).NEW
        assert (str(word), f"{word}", word == "new") == ("new", "new", True)
        with (ROOT / "LICENSE").open("rb") as file:
            digest = module.file_digest(file, "sha256").hexdigest()
        assert len(digest) == 64


def test_the_keys_of_a_record_are_the_same_in_an_older_python():
    from typing import TypedDict

    from conformance.older_python import NotRequired, optional_keys, required_keys

    class Sample(TypedDict):
        present: int
        absent: NotRequired[str]

    assert required_keys(Sample) == {"present"}
    assert optional_keys(Sample) == {"absent"}


@pytest.mark.parametrize(
    "error, lacking",
    [
        (ImportError("cannot import name 'CQEX' from 'pyverbs.cq' (/usr/x.so)"), "cq.CQEX"),
        (
            AttributeError("'pyverbs.qp.QPEx' object has no attribute 'wr_flush'"),
            "qp.QPEx.wr_flush",
        ),
        (ModuleNotFoundError("No module named 'pyverbs.dmabuf'"), "dmabuf"),
        (AttributeError("'Pair' object has no attribute 'wr_flush'"), ""),
        (ImportError("cannot import name 'x' from 'conformance'"), ""),
    ],
)
def test_what_an_old_pyverbs_lacks_is_named(error, lacking, monkeypatch):
    monkeypatch.setattr(bindings, "library_version", lambda: "33.2")
    assert bindings.lacking_binding(error) == (lacking and f"pyverbs 33 has no {lacking}")


def test_an_old_library_cannot_report_fork_protection(monkeypatch):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(HostLacks, match="this libibverbs has no ibv_is_fork_initialized"):
        fork_settings.observe("rxe0", "ibv_fork_init", "asked")
