"""Says what the maintainers of Linux and rdma-core know of a defect, so that nobody reports it twice.

upstream.json has, by the fingerprint of a defect, `reported`, the address of a report or of a patch, and `fixed`, the
commit and, if it is known, the first release that has it (`in rdma-core 64`, `in Linux 7.3`). It has only what was
looked up at these addresses: a defect without an entry may be known, too. The file is JSON, because a reader of YAML is
slow to load.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from conformance.defects.owner import ALIKE


class Named(Protocol):
    """A defect of a run, or of a summary."""

    @property
    def title(self) -> str: ...

    @property
    def fingerprints(self) -> Sequence[str]: ...

    @property
    def another(self) -> str: ...


_RELEASE = re.compile(r"\bin (?P<project>rdma-core|Linux) (?P<release>[\d.]+)$")
_VERSIONS = {"rdma-core": "rdma_core", "Linux": "kernel"}  # keys of the header's `env`


# read at once: a run reads no file of the suite after its first worker has started
ENTRIES: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_suffix(".json").read_bytes()
)


def another_than_fixed(fingerprints: Sequence[str], env: Mapping[str, object]) -> str:
    """Returns the words for a defect that the tested stack cannot have, because it has the release with the fix: what
    shows this fingerprint there is another mistake. Empty if the stack is older, or if no release is known. `env` is
    that of the run's header."""
    fix = _RELEASE.search(_entry(fingerprints).get("fixed", ""))
    tested = str(env.get(_VERSIONS[fix["project"]]) or "") if fix else ""
    if not fix or not _version(tested) or _version(tested) < _version(fix["release"]):
        return ""
    return f"{ALIKE}{fix['project']} {fix['release']}; this stack has {tested}, so it is another mistake"


def _version(text: str) -> tuple[int, ...]:
    digits = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, digits[0].split("."))) if digits else ()


def upstream(defect: Named) -> str:
    """Returns where a defect was reported and fixed, or that it is another than the reported one; empty if nothing is
    known."""
    if defect.another:
        return defect.another
    entry = _entry(defect.fingerprints)
    return "; ".join(f"{what}: {entry[what]}" for what in ("fixed", "reported") if what in entry)


def upstream_in_short(defect: Named) -> str:
    """Returns the commit that fixes a defect or, without one, that it was reported, or that it is another than the
    reported one; empty if nothing is known."""
    if defect.another:
        return defect.another
    entry = _entry(defect.fingerprints)
    if "fixed" in entry:
        return f"fixed upstream: {entry['fixed']}"
    return "reported upstream" if entry else ""


def titled(defect: Named, title: str = "") -> str:
    """Returns the title of a defect, which is its own unless one is given, and what is known of it upstream."""
    known = upstream_in_short(defect)
    return f"{title or defect.title} ({known})" if known else title or defect.title


def upstream_in_a_word(defect: Named) -> str:
    """Returns whether a defect was fixed or reported; empty if nothing is known."""
    return "" if defect.another else upstream_in_short(defect).partition(":")[0]


def _entry(fingerprints: Sequence[str]) -> Mapping[str, str]:
    return next((ENTRIES[name] for name in fingerprints if name in ENTRIES), {})
