"""The table of packages has every module that the project imports and every program that it calls."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from conformance.tables.suite import ROOT
from fixtures.system import packages

# Modules that come with another module, or that only a type checker reads.
WITH = {"_pytest": "pytest", "markupsafe": "jinja2", "_typeshed": ""}
# Functions whose first argument is a program or a command.
CALLS = {"which", "find_program", "find_tool", "ran", "started", "Popen", "check_output"}
# Programs of packages that every Debian has.
OF_DEBIAN = {"apt-config", "bash", "dmesg", "dpkg-query", "mount", "sh", "tar", "true", "unshare"}
# Programs that only run where a device is, such as in a guest, and programs without which a command works.
ELSEWHERE = {"insmod", "ip", "modprobe", "rdma"}
OPTIONAL = {"sendmail", "zstd"}
# Programs of packages in the table whose proof is another program.
OF_PACKAGE = {"gcc": "gcc"}


@cache
def sources() -> dict[Path, ast.Module]:
    folders = [path for path in ROOT.iterdir() if (path / "__init__.py").exists()]
    trees = {}
    for folder in [*folders, ROOT / "tests"]:
        for path in folder.rglob("*.py"):
            trees[path] = ast.parse(path.read_text())
    return trees


def own_modules() -> set[str]:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()}
    return folders | {path.stem for path in ROOT.glob("*/**/*.py")}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yields the first word of the name of each imported module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def first_word(node: ast.expr, constants: dict[str, ast.expr]) -> str:
    """Returns the program in the first argument of a call; empty if only the running program knows it."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if name in constants:
            return first_word(constants.pop(name), constants)
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]) | ast.Starred(value=first):
            return first_word(first, constants)
    return ""


def called(tree: ast.Module) -> Iterator[str]:
    constants = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constants[name] = value
    other = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[command, *_]) if name in CALLS - other:
                yield first_word(command, dict(constants))
            case ast.Call(func=ast.Attribute(attr=name), args=[command, *_]) if name in CALLS:
                yield first_word(command, dict(constants))
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="subprocess"), attr="run"),
                args=[command, *_],
            ):
                yield first_word(command, dict(constants))


def provided(kinds: set[str]) -> set[str]:
    """Returns what the packages for the project's tests provide, of these kinds of proof."""
    proofs = [
        need.proof.partition(":") for need in packages.needs(("suite", *packages.NIGHTLY_TEST))
    ]
    return {what for kind, _, what in proofs if kind in kinds}


def test_every_imported_module_is_in_a_package_for_the_tests():
    foreign = {name for tree in sources().values() for name in imported(tree)}
    foreign -= own_modules() | sys.stdlib_module_names
    assert "pyverbs" in foreign
    needed = {WITH.get(name, name) for name in foreign} - {""}
    assert needed <= provided({"module"})


def test_every_called_program_is_in_a_package_for_the_tests():
    words = {word for tree in sources().values() for word in called(tree)}
    programs = {word for word in words if word and not set(word) & set("/ ")}
    assert {"ssh-keygen", "git", "mkfs.erofs"} <= programs
    names = {need.package for need in packages.needs(("suite", *packages.NIGHTLY_TEST))}
    assert {package for program, package in OF_PACKAGE.items() if program in programs} <= names
    elsewhere = OF_DEBIAN | ELSEWHERE | OPTIONAL | OF_PACKAGE.keys()
    assert programs - elsewhere <= provided({"program", "static"}) | {"ssh"}
