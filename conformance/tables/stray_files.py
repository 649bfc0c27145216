"""What lies beside the tables: files that nobody would read and tables that nobody would run.

A case must not vanish because its file has another ending, lies too deep, or belongs to a verb without
a test function. Not for what stands in a table (loader.py).
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.yamldoc.nodes import Location, Mistake

_ENDINGS = (".yaml", ".yml")


def shown(path: Path, root: Path) -> str:
    """The path as messages name it: relative to the project where it lies inside."""
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)


def stray_files(folder: Path, root: Path) -> list[Mistake]:
    """YAML files under `folder` that are no `<verb>/<name>.yaml` and would be passed over in silence.

    Hidden directories are left alone: a vendor's checkout has some of its own.
    """
    mistakes: list[Mistake] = []

    def unreadable(error: OSError) -> None:
        mistakes.append(Mistake(Location(shown(Path(error.filename), root), 1, 1), f"cannot be read: {error.strerror}"))

    for parent, directories, files in os.walk(folder, onerror=unreadable):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            fault = _fault(path.relative_to(folder)) if path.suffix.lower() in _ENDINGS else ""
            if fault:
                mistakes.append(Mistake(Location(shown(path, root), 1, 1), f"would be ignored: {fault}"))
    return mistakes


def _fault(path: Path) -> str:
    if path.suffix != ".yaml":
        return f"a table's name ends in .yaml, not in {path.suffix}"
    if len(path.parts) < 2:
        return "a table belongs in the folder of its verb, such as reg_mr/"
    if len(path.parts) > 2:
        return "a table belongs directly in the folder of its verb, not deeper"
    return ""


def unrun(tables: Iterable[tuple[str, str]], cases: Path, root: Path) -> list[Mistake]:
    """The tables, given as (file, verb), whose verb's folder in `cases` does not run them exactly once."""
    mistakes: list[Mistake] = []
    found: dict[str, list[Location]] = {}
    for file, verb in tables:
        folder = cases / verb.removeprefix("ibv_")
        if verb not in found:
            found[verb] = list(_test_functions(folder, root))
            mistakes += [
                Mistake(location, f"a second test function that takes `case`: {verb}'s cases would run twice")
                for location in found[verb][1:]
            ]
        if not found[verb]:
            wanted = shown(folder / f"test_{folder.name}.py", root)
            mistakes.append(
                Mistake(
                    Location(file, 1, 1), f"nothing runs this table: {wanted} has no test function that takes `case`"
                )
            )
    return mistakes


def _test_functions(folder: Path, root: Path) -> Iterator[Location]:
    """Where the folder's test functions with an argument `case` stand. Reads the files, runs nothing."""
    for path in sorted(folder.glob("test_*.py")):
        try:
            module = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # pytest tells it better; here the file just runs nothing
        for each in ast.walk(module):
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test"):
                arguments = [*each.args.posonlyargs, *each.args.args, *each.args.kwonlyargs]
                if any(argument.arg == "case" for argument in arguments):
                    yield Location(shown(path, root), each.lineno, each.col_offset + 1)
