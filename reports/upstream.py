"""Says what the maintainers of Linux and rdma-core know of a defect, so that nobody reports it twice.

upstream.json has, by the fingerprint of a defect, `reported`, the address of a report or of a patch, and `fixed`, the
commit and, if it is known, the first release that has it. It has only what was looked up at these addresses: a defect
without an entry may be known, too. The file is JSON, because a reader of YAML is slow to load.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Named(Protocol):
    """A defect of a run, or of a summary."""

    @property
    def title(self) -> str: ...

    @property
    def fingerprints(self) -> Sequence[str]: ...


# read at once: a run reads no file of the suite after its first worker has started
ENTRIES: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_suffix(".json").read_bytes()
)


def upstream(defect: Named) -> str:
    """Returns where a defect was reported and fixed; empty if nothing is known."""
    entry = _entry(defect)
    return "; ".join(f"{what}: {entry[what]}" for what in ("fixed", "reported") if what in entry)


def upstream_in_short(defect: Named) -> str:
    """Returns the commit that fixes a defect or, without one, that it was reported; empty if nothing is known."""
    entry = _entry(defect)
    if "fixed" in entry:
        return f"fixed upstream: {entry['fixed']}"
    return "reported upstream" if entry else ""


def titled(defect: Named, title: str = "") -> str:
    """Returns the title of a defect, which is its own unless one is given, and what is known of it upstream."""
    known = upstream_in_short(defect)
    return f"{title or defect.title} ({known})" if known else title or defect.title


def upstream_in_a_word(defect: Named) -> str:
    """Returns whether a defect was fixed or reported; empty if nothing is known."""
    return upstream_in_short(defect).partition(":")[0]


def _entry(defect: Named) -> Mapping[str, str]:
    return next((ENTRIES[name] for name in defect.fingerprints if name in ENTRIES), {})
