"""Finds files that would not be read as tables, and tables that would not be run: a file with a wrong suffix or in a
wrong folder, or a table of a verb without a test function. Such mistakes would silently remove cases."""

import ast
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.yamldoc.nodes import Location, Mistake

_ENDINGS = (".yaml", ".yml")


def display_path(path: Path, root: Path) -> str:
    """Returns the path for messages: relative to `root` if the path is below `root`."""
    if path.is_relative_to(root):
        return str(path.relative_to(root))
    return str(path)


def stray_files(folder: Path, root: Path) -> list[Mistake]:
    """Returns a mistake for each YAML file under `folder` that is not `<verb>/<name>.yaml` and would be ignored. Hidden
    directories, such as `.git` in a vendor's checkout, are skipped."""
    mistakes: list[Mistake] = []

    def unreadable(error: OSError) -> None:
        mistakes.append(
            Mistake(
                Location(display_path(Path(error.filename), root), 1, 1),
                f"cannot be read: {error.strerror}",
            ),
        )

    for parent, directories, files in os.walk(folder, onerror=unreadable):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(files):
            path = Path(parent, name)
            if path.suffix.lower() in _ENDINGS:
                fault = _fault(path.relative_to(folder))
            else:
                fault = ""
            if fault:
                mistakes.append(
                    Mistake(Location(display_path(path, root), 1, 1), f"would be ignored: {fault}"),
                )
    return mistakes


def _fault(path: Path) -> str:
    if path.suffix != ".yaml":
        return f"a table's name ends in .yaml, not in {path.suffix}"
    if len(path.parts) < 2:
        return "a table belongs in the folder of its verb, such as reg_mr/"
    if len(path.parts) > 2:
        return "a table belongs directly in the folder of its verb, not deeper"
    return ""


def not_run_once(tables: Iterable[tuple[str, str]], cases: Path, root: Path) -> list[Mistake]:
    """Returns the mistakes that prevent that each table, given as (file, verb), is run exactly once: the folder of the
    verb in `cases` must have exactly one test function with the argument `case`."""
    mistakes: list[Mistake] = []
    by_folder: dict[str, list[Location]] = {}
    for file, verb in tables:
        folder = cases / verb.removeprefix("ibv_")
        if verb not in by_folder:
            by_folder[verb] = list(_test_functions(folder, root))
            mistakes += [
                Mistake(
                    location,
                    f"a second test function with the argument `case`: {verb}'s cases would run twice",
                )
                for location in by_folder[verb][1:]
            ]
        if not by_folder[verb]:
            expected_file = display_path(folder / f"test_{folder.name}.py", root)
            mistakes.append(
                Mistake(
                    Location(file, 1, 1),
                    f"nothing runs this table: {expected_file} has no test function with the argument `case`",
                ),
            )
    return mistakes


def _test_functions(folder: Path, root: Path) -> Iterator[Location]:
    """Yields the locations of the test functions with an argument `case`, without running the files."""
    for path in sorted(folder.glob("test_*.py")):
        try:
            module = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue  # pytest reports the error, and runs no test of the file
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                if any(argument.arg == "case" for argument in arguments):
                    yield Location(display_path(path, root), node.lineno, node.col_offset + 1)
