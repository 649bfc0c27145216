"""Boots guests for tests, each with its own command. Python in these guests uses the bytecode, tables and compiled C
that earlier guests have stored on the host."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance import cache
from conformance.tables.suite import ROOT
from fixtures.guest import derivation
from fixtures.guest.guest import Guest, boot
from fixtures.guest.image import ensure_image
from fixtures.guest.job import Job
from fixtures.guest.recipe import recipe_for
from fixtures.system.cache import cache_directory
from launched import prepare
from patience import PATIENCE_S

# The parts of the project that a guest of `told_by` gets, in addition to the cases and the script.
_PARTS = (
    *sorted(path.parent.name for path in ROOT.glob("*/__init__.py")),
    "ci",
    "conftest.py",
    "tox.ini",
    "rdma-cts",
)
_HELPERS = ("forked.py", "patience.py")  # imported by the scripts that run in a guest
_RESULT = "RESULT "


def boot_own(
    tree: Iterable[tuple[Path, str]],
    command: str,
    console: Path,
    environment: Mapping[str, str] | None = None,
) -> Guest:
    """Boots a guest of the default stack that has these files and runs the command; see Job."""
    prepare()
    image = ensure_image(recipe_for(), cache_directory(), print)
    settings = {cache.DIRECTORY: derivation.FOLDER, **(environment or {})}
    job = Job(
        tuple(tree),
        command,
        settings,
        derived=derivation.folder_of(cache_directory(), image.digest),
    )
    return boot(image, job, console=console)


def told_by(
    script: str,
    folder: Path,
    *arguments: str,
    files: Iterable[tuple[Path, str]] = (),
    settings: str = "",
    cases: Path = ROOT / "cases",
) -> Any:
    """Runs a script of tests/ in a guest with the whole project; returns the parsed JSON of its last line `RESULT …`.
    `files` are put next to the script, `settings` are assignments of variables in front of its command, `folder` gets
    the console, and `cases` replaces the suite's own cases."""
    console = folder / "console.log"
    tree = [
        (cases, "cases"),
        *((ROOT / part, part) for part in _PARTS),
        *((ROOT / "tests" / name, name) for name in (script, *_HELPERS)),
    ]
    command = " ".join((f"PYTHONPATH=/suite {settings} python3 {script}", *arguments, "; exit 7"))
    last, size = b"", 0
    with boot_own([*tree, *files], command, console) as guest:
        # on a busy machine, a script takes longer than the patience for one of its steps
        while (line := guest.next_line(PATIENCE_S)) or (
            line is None and console.stat().st_size > size
        ):
            last, size = line or last, console.stat().st_size
    text = console.read_text(errors="replace")
    lines = [line.removeprefix(_RESULT) for line in text.splitlines() if line.startswith(_RESULT)]
    assert lines, text[-4000:]
    assert json.loads(last) == {"type": "guest", "event": "exit", "status": 7}
    return json.loads(lines[-1])
