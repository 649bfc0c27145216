"""Says where in the sources the cause of a defect is, and which changes of this project mend it.

docs/findings/places.yaml has the places, by the fingerprint of a defect, and fixtures/guest/mended/ has the changes.
Different drivers can have defects of one fingerprint; a text is shown only for a run of the driver that it is about. Two
mistakes of a driver can also have one fingerprint: about a case that is not among those of the recorded defect, which
ci/rxe/waivers.yaml lists, a text says "perhaps".
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from conformance import cache
from conformance.defects import Defect, Symptom
from conformance.errors import UserError, command
from conformance.regular_file import read_regular
from conformance.tables.suite import DOCS, ROOT
from fixtures.guest import changes
from reports.digest import Digest
from reports.upstream import upstream

# The name of the file with the places. Uncertain places are left out.
PLACES = "places.yaml"
_DRIVER = re.compile(r"(?:drivers/infiniband/[sh]w|providers)/(\w+)")
_CHANGED = "rxe"  # the driver that the changes and the waivers are of; some changes are only of the library
_WAIVERS = Path("ci", "rxe", "waivers.yaml")


class Mend(NamedTuple):
    """A change of the mended stack: its name, what it does, the reason, and the trees that it edits, such as "linux"."""

    name: str
    subject: str
    about: str
    trees: str

    @property
    def of_library(self) -> bool:
        """Whether the change edits the library alone."""
        return self.trees == changes.LIBIBVERBS

    @property
    def command(self) -> str:
        """The command that writes the change for `git am`."""
        options = [word for tree in self.trees.split() for word in (f"--{tree}", "TREE")]
        return command("patches", *options, "--out", "DIR")


class Causes(NamedTuple):
    """The places, the changes that mend a defect, and the cases in which it was recorded, by fingerprint."""

    places: Mapping[str, str]
    mends: Mapping[str, Sequence[Mend]]
    cases: Mapping[str, Sequence[str]]


def causes(
    defect: Defect, run: Digest, shown: Symptom | None = None, is_sent: bool = False
) -> Iterator[tuple[str, str]]:
    """Yields what is known of the cause of a defect: the kind of the text, and the text. `shown` is the violation beside
    which the texts stand (default: the first of the defect). To the readers of a text that is sent, a change of this
    project is a patch that nobody has published, and none where a commit is known upstream."""
    if defect.another:
        return
    driver = str(run.header["device"].get("driver", ""))
    places = load().places
    why = unsure(defect.fingerprints, (shown or defect.first).case) if driver == _CHANGED else ""
    perhaps = "perhaps " if why else ""
    for name in defect.fingerprints:
        if name in places and {*_DRIVER.findall(places[name])} <= {driver}:
            yield f"{perhaps}in the source", f"{places[name]}{why}"
            break
    for mend in mends_of(defect.fingerprints):
        if mend.name in run.environment.changes:
            yield "not fixed by", f"{mend.name}, which this stack has: {mend.subject}"
    for mend in proposed(defect, run):
        if not is_sent:
            writes = f" ({mend.command} writes it)"
            yield f"{perhaps}fixed by", f"{mend.name}: {mend.subject}{writes}{why}"
        elif not upstream(defect):
            yield (
                "possible fix",
                f'a patch of the authors of rdma-cts, which is attached and in no tree of Linux or rdma-core: "{mend.subject}"{why}',
            )


def proposed(defect: Defect, run: Digest) -> list[Mend]:
    """Returns the changes that mend a defect, and that the stack of the run does not have."""
    of_driver = run.header["device"].get("driver") == _CHANGED
    return [
        mend
        for mend in mends_of(defect.fingerprints)
        if mend.name not in run.environment.changes
        and (mend.of_library or of_driver)
        and not defect.another
    ]


def unsure(fingerprints: Sequence[str], case: str) -> str:
    """Returns the reason why the cause and the changes of a recorded defect may not be those of this case; empty if the
    defect was recorded in it, or if its cases are not known."""
    recorded = list(chain(*(load().cases.get(name, ()) for name in fingerprints)))
    if not recorded or case in recorded:
        return ""
    return f" (known of other cases, such as {recorded[0]})"


def mends_of(fingerprints: Sequence[str]) -> tuple[Mend, ...]:
    """Returns the changes that mend a defect with one of these fingerprints, each once."""
    mends = load().mends
    return tuple(dict.fromkeys(mend for name in fingerprints for mend in mends.get(name, ())))


@functools.cache
def load() -> Causes:
    """Returns what is known of all causes. It is cached: the changes are many files of YAML."""
    path = DOCS / "findings" / PLACES
    waivers = ROOT / _WAIVERS
    own = Path(__file__), Path(changes.__file__)
    sources = [*own, path, waivers, *sorted(changes.FOLDER.glob("*.yaml"))]
    parts = [
        source.name.encode() + b"\0" + read_regular(source) for source in sources if source.exists()
    ]
    name = f"causes-{cache.digest_of(parts)}.json"
    recalled = cache.recalled(name)
    with contextlib.suppress(Exception):  # after any error in the cached file, all is read again
        cases = dict(recalled["cases"])
        return Causes(dict(recalled["places"]), _by_fingerprint(recalled["mends"]), cases)
    places, mends, cases = places_in(path), list(_read_mends()), _cases_in(waivers)
    cache.store(name, json.dumps({"places": places, "mends": mends, "cases": cases}).encode())
    return Causes(places, _by_fingerprint(mends), cases)


def _read_mends() -> Iterator[tuple[str, Mend]]:
    """Yields the fingerprints of the changes, each with its change."""
    for change in changes.read_changes(changes.FOLDER):
        trees = " ".join(sorted({file.partition("/")[0] for file in change.files}))
        for fingerprint in change.defects:
            yield fingerprint, Mend(change.name, change.subject, change.about, trees)


def _by_fingerprint(pairs: Iterable[tuple[str, Sequence[Any]]]) -> Mapping[str, Sequence[Mend]]:
    mends: dict[str, list[Mend]] = {}
    for fingerprint, fields in pairs:
        mends.setdefault(fingerprint, []).append(Mend(*fields))
    return mends


def _cases_in(path: Path) -> dict[str, list[str]]:
    """Returns the cases of a file of waivers, by fingerprint; an empty mapping if the file does not exist."""
    cases: dict[str, list[str]] = {}
    for waiver in _mapping_in(path).get("waivers", ()):
        for name in (waiver.get("defect", ""), *waiver.get("also", ())):
            cases.setdefault(name, []).extend(waiver.get("cases", ()))
    return cases


def places_in(path: Path) -> dict[str, str]:
    """Returns the texts of the file, by fingerprint; an empty mapping if the file does not exist."""
    places = _mapping_in(path)
    if not all(isinstance(place, str) for item in places.items() for place in item):
        raise UserError(f"{path}: expected a mapping from fingerprints to texts")
    return places


def _mapping_in(path: Path) -> dict[str, Any]:
    """Returns the mapping in a file of YAML; an empty one if the file is empty or does not exist."""
    if not path.exists():
        return {}
    import yaml  # imported late: only the first process reads YAML

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is several times as fast
    try:
        content = yaml.load(read_regular(path).decode(), loader) or {}
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected a mapping from fingerprints to texts")
    return content
