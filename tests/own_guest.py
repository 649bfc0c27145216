"""Guests that a test boots itself, with a command of its own. No test itself.

Their Python finds the bytecode, tables and compiled C that other guests have left on the host, and need not make them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from conformance import derived
from fixtures.cache import cache_directory
from fixtures.softroce import derivation
from fixtures.softroce.guest import Guest, Job, boot
from fixtures.softroce.image import ensure_image
from fixtures.softroce.recipe import recipe_for


def boot_own(
    tree: Iterable[tuple[Path, str]],
    command: str,
    console: Path,
    environment: Mapping[str, str] | None = None,
) -> Guest:
    """A guest of the default stack that runs the command among these files; see Job."""
    image = ensure_image(recipe_for(), cache_directory(), print)
    settings = {derived.DIRECTORY: derivation.FOLDER, **(environment or {})}
    job = Job(tuple(tree), command, settings, derived=derivation.folder_of(cache_directory(), image.digest))
    return boot(image, job, console=console)
