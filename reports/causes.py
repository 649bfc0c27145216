"""Says where in the sources the cause of a defect is, and which changes of this project mend it.

docs/findings/places.yaml has the places, by the fingerprint of a defect, and fixtures/guest/mended/ has the changes.
Different drivers can have defects of one fingerprint; a text is shown only for a run of the driver that it is about.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from conformance.defects import Defect
from conformance.errors import UserError
from conformance.regular_file import read_regular
from conformance.tables.suite import ROOT
from fixtures.guest.changes import LIBIBVERBS, Change, read_changes
from reports.digest import Digest

# The name of the file with the places. Uncertain places are left out.
PLACES = "places.yaml"
_DRIVER = re.compile(r"(?:drivers/infiniband/[sh]w|providers)/(\w+)")
_CHANGED = "rxe"  # the driver that the changes are of, if they are not only of the library


def causes(defect: Defect, run: Digest) -> Iterator[tuple[str, str]]:
    """Yields what is known of the cause of a defect: the kind of the text, and the text."""
    driver = str(run.header["device"].get("driver", ""))
    places, mended = load()
    for name in defect.fingerprints:
        if name in places and {*_DRIVER.findall(places[name])} <= {driver}:
            yield "in the source", places[name]
            break
    changes = {
        change.name: change for name in defect.fingerprints for change in mended.get(name, ())
    }
    for change in changes.values():
        of_library = all(file.startswith(f"{LIBIBVERBS}/") for file in change.files)
        if of_library or driver == _CHANGED:
            yield "fixed by", f"{change.name}: {change.subject} (./rdma-cts patches writes it)"


@functools.cache
def load() -> tuple[Mapping[str, str], Mapping[str, Sequence[Change]]]:
    """Returns the places, and the changes, by fingerprint."""
    return places_in(ROOT / "docs" / "findings" / PLACES), mending()


def mending() -> Mapping[str, Sequence[Change]]:
    """Returns, by fingerprint, the changes of the mended stack that mend a defect."""
    mended: dict[str, list[Change]] = {}
    for change in read_changes():
        for fingerprint in change.defects:
            mended.setdefault(fingerprint, []).append(change)
    return mended


def places_in(path: Path) -> dict[str, str]:
    """Returns the texts of the file, by fingerprint; an empty mapping if the file does not exist."""
    if not path.exists():
        return {}
    try:
        places = yaml.safe_load(read_regular(path).decode()) or {}
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(places, dict) or not all(
        isinstance(place, str) for item in places.items() for place in item
    ):
        raise UserError(f"{path}: expected a mapping from fingerprints to texts")
    return places
