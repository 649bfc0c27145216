"""Says what the maintainers of Linux and rdma-core know of a defect, so that nobody reports it twice.

upstream.json has, by the fingerprint of a defect, `reported`, the address of a report or of a patch, and `fixed`, the
commit and, if it is known, the first release that has it. It has only what was looked up at these addresses: a defect
without an entry may be known, too. The file is JSON, because a reader of YAML is slow to load.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

from conformance.defects import Defect

_FILE = Path(__file__).with_suffix(".json")


@functools.cache
def entries() -> Mapping[str, Mapping[str, str]]:
    data: Mapping[str, Mapping[str, str]] = json.loads(_FILE.read_bytes())
    return data


def upstream(defect: Defect) -> str:
    """Returns where a defect was reported and fixed; empty if nothing is known."""
    entry = next((entries()[name] for name in defect.fingerprints if name in entries()), {})
    return "; ".join(f"{what}: {entry[what]}" for what in ("fixed", "reported") if what in entry)
