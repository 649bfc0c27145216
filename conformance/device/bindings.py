"""Names what pyverbs of an old rdma-core lacks, so that cases which need it are UNSUPPORTED rather than BROKEN."""

from __future__ import annotations

import re

from conformance.device.device import library_version

# Python's messages about a missing name of a module, a missing attribute of an object, and a missing module.
_MESSAGES = (
    re.compile(r"cannot import name '(?P<name>\w+)' from 'pyverbs\.(?P<place>[\w.]+)'"),
    re.compile(r"'pyverbs\.(?P<place>[\w.]+)' object has no attribute '(?P<name>\w+)'"),
    re.compile(r"No module named '(?P<place>pyverbs)\.(?P<name>[\w.]+)'"),
)


def lacking_binding(error: Exception) -> str:
    """Returns which part of pyverbs the error reports as missing, such as `pyverbs 33 has no qp.QPEx.wr_flush`; empty
    for an error of another kind."""
    for message in _MESSAGES:
        match = message.search(str(error))
        if match:
            release = library_version().partition(".")[0]
            name = f"{match['place']}.{match['name']}".replace("pyverbs.", "")
            return f"pyverbs {release} has no {name}"
    return ""
