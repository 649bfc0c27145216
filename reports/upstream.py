"""Says what the maintainers of Linux and rdma-core know of a defect, so that nobody reports it twice.

upstream.json has, by the fingerprint of a defect, `reported`, the address of a report or of a patch, and `fixed`, the
commit and, if it is known, the first release that has it. It has only what was looked up at these addresses: a defect
without an entry may be known, too. The file is JSON, because a reader of YAML is slow to load.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from conformance.defects import Defect

# read at once: a run reads no file of the suite after its first worker has started
ENTRIES: Mapping[str, Mapping[str, str]] = json.loads(
    Path(__file__).with_suffix(".json").read_bytes()
)


def upstream(defect: Defect) -> str:
    """Returns where a defect was reported and fixed; empty if nothing is known."""
    entry = _entry(defect)
    return "; ".join(f"{what}: {entry[what]}" for what in ("fixed", "reported") if what in entry)


def upstream_in_short(defect: Defect) -> str:
    """Returns the commit that fixes a defect or, without one, that it was reported; empty if nothing is known."""
    entry = _entry(defect)
    if "fixed" in entry:
        return f"fixed upstream: {entry['fixed']}"
    return "reported upstream" if entry else ""


def _entry(defect: Defect) -> Mapping[str, str]:
    return next((ENTRIES[name] for name in defect.fingerprints if name in ENTRIES), {})
