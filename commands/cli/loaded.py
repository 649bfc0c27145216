"""Loads what a run can need after its first worker has started. On a device of this host, the library under test has the
rights of the user, and could change the files of the suite: what is loaded before is beyond its reach. A run in the guest
loads nothing in advance, because no guest can change files of the host, and because it would take a second."""

import importlib
import pkgutil
from collections.abc import Iterator

from conformance.sweeps import formula
from reports import causes, html, instrumented, own_tables

_PACKAGES = ("conformance", "reports")
# Modules that only the process under test imports, which has pytest; and modules whose text becomes part of programs.
_LEFT_OUT = ("conformance.pytest_plugin", "reports.reproducers.snippets")
# Modules of Python that are imported late.
_OF_PYTHON = ("difflib", "lzma", "textwrap", "traceback")


def load_all() -> None:
    """Imports all modules that a run can need, and reads the suite's own files that it can need."""
    for name in (*_OF_PYTHON, *_names()):
        importlib.import_module(name)
    causes.load()
    formula.load()
    html.load()
    instrumented.recorded()
    own_tables.load()


def _names() -> Iterator[str]:
    for package in _PACKAGES:
        found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        yield from (module.name for module in found if not module.name.startswith(_LEFT_OUT))
