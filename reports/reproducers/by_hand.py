"""Finds the programs that were written by hand for defects whose cases C cannot express."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance.defects import Defect
from conformance.tables.suite import DOCS, ROOT

FOLDER = "by-hand"
_OWN = DOCS / "findings" / FOLDER
_INCLUDED = re.compile(r'^#include "(.+)"', re.MULTILINE)


def names_of(defect: Defect) -> list[str]:
    """Returns the names that the programs of a defect can have, which may have earlier fingerprints."""
    return [f"{FOLDER}/{name}.c" for name in defect.fingerprints]


def written_by_hand(defect: Defect) -> list[Path]:
    """Returns the suite's programs of a defect."""
    paths = (_OWN.parent / name for name in names_of(defect))
    return [path for path in paths if path.is_file()]


def with_included(programs: Sequence[Path]) -> dict[Path, str]:
    """Returns the texts of the programs and then of the files that they include."""
    texts = {path: path.read_text(encoding="utf-8") for path in programs}
    for text in [*texts.values()]:
        for name in _INCLUDED.findall(text):
            path = _OWN / name
            texts.setdefault(path, path.read_text(encoding="utf-8"))
    return texts


def listed(paths: Iterable[Path]) -> str:
    """Returns the paths, in a checkout without its directory."""
    return " and ".join(
        str(path.relative_to(ROOT) if path.is_relative_to(ROOT) else path) for path in paths
    )
