"""Where this process keeps the bytecode of the suite: in the suite's own cache, whatever the environment says.

Compiling the modules of a command takes as long as all else before its first case. Only for modules of the suite, and
only for this process, not for its children. Not for bytecode in a guest (fixtures/guest/derivation.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from conformance.cache import is_own
from conformance.errors import UserError
from fixtures.system.cache import cache_directory

if TYPE_CHECKING:
    from _typeshed.importlib import PathEntryFinderProtocol

_ROOT = Path(__file__).resolve().parents[1]


def keeps_files(given: Sequence[str]) -> bool:
    """Whether a command may write to the cache.

    A run on a device of this host writes nothing outside of its output directory, so one keeps files only with --guest.
    """
    return given[:1] != ["run"] or "--guest" in given


def keep(argv: Sequence[str]) -> None:
    """Has this process, whose whole command line is `argv`, use bytecode in the cache, if nobody else can write it."""
    writes = keeps_files(argv[argv.index("commands") + 1 :])
    try:
        folder = cache_directory() / "bytecode"
        if writes:
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, UserError):
        return  # the command itself says what is wrong with the cache
    if is_own(folder):
        sys.path_hooks.insert(0, _finder_of(os.fspath(folder), writes))
        sys.path_importer_cache.clear()


def _finder_of(folder: str, writes: bool) -> Callable[[str], PathEntryFinderProtocol]:
    """A hook that finds the suite's modules and has their bytecode in `folder`."""

    class Loader(SourceFileLoader):
        def get_code(self, fullname: str) -> CodeType | None:
            before = sys.pycache_prefix, sys.dont_write_bytecode
            sys.pycache_prefix, sys.dont_write_bytecode = folder, not writes
            try:
                return super().get_code(fullname)
            finally:
                sys.pycache_prefix, sys.dont_write_bytecode = before

    found = FileFinder.path_hook((Loader, [".py"]))

    def hook(path: str) -> PathEntryFinderProtocol:
        if not Path(path).resolve().is_relative_to(_ROOT):
            raise ImportError(f"not of the suite: {path}")
        return found(path)

    return hook
