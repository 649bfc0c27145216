"""Tests that each layer of `conformance/` imports only itself and the layers above it, and that each other folder
imports only itself and allowed folders."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT

# The layers, from the highest to the lowest, are the rows of the table in docs/architecture.md.
_TABLE = (
    (ROOT / "docs" / "architecture.md")
    .read_text()
    .split("\n## The layers of `conformance/`\n")[1]
    .split("\n## ")[0]
)
LAYERS = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", _TABLE, re.MULTILINE)
FILES = sorted((ROOT / "conformance").rglob("*.py"))
# The folders that each folder of the project may import besides itself; docs/architecture.md has the reasons.
FOLDERS = {
    "conformance": (),
    "fixtures": ("conformance",),
    "reports": ("conformance", "fixtures"),
    "trial": ("conformance", "fixtures", "reports"),
    "commands": ("conformance", "fixtures", "reports", "trial"),
    "ci": ("conformance", "fixtures", "reports", "trial", "commands"),
}


def imported(file: Path) -> Iterator[str]:
    """Yields the dotted names that a file imports, also those that it imports only for type checking."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_a_layer_imports_only_itself_and_the_layers_above_it():
    for file in FILES:
        parts = file.relative_to(ROOT / "conformance").with_suffix("").parts
        above = LAYERS[: LAYERS.index(parts[0]) + 1] if parts[0] != "__init__" else ()
        for module in imported(file):
            package, _, rest = module.partition(".")
            assert package != "conformance" or rest.partition(".")[0] in above, (
                f"{file} imports {module}"
            )


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_itself_and_allowed_folders(folder):
    inside = {path.name for path in ROOT.iterdir() if path.is_dir()} - {folder, *FOLDERS[folder]}
    for file in sorted((ROOT / folder).rglob("*.py")):
        for module in imported(file):
            assert module.partition(".")[0] not in inside, (
                f"{file.relative_to(ROOT)} imports {module}"
            )


def test_every_module_has_a_layer():
    assert {
        path.stem for path in (ROOT / "conformance").iterdir() if path.name[0] not in "_."
    } == set(LAYERS)
