"""The environment variables that users may set, with their meaning. Each is read where it is used, not here."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping

# What docs/variables.md explains at more length; a test compares both with what the code reads.
VARIABLES: Mapping[str, str] = {
    "RDMA_CTS_CACHE": "where images, templates and durations are kept (default: $XDG_CACHE_HOME/rdma-cts, else"
    " ~/.cache/rdma-cts)",
    "RDMA_CTS_MIRROR": "the Debian mirror that the guest is made from (default: that of this host's apt)",
    "RDMA_CTS_ACCEL": "how the guest's processor is made: auto, kvm or tcg (default: auto)",
    "RDMA_CTS_TEMPLATES": "auto: guests are resumed from a template; off: each is booted (default: auto)",
    "RDMA_CTS_PMEM": "a device DAX that cases of persistent memory may overwrite",
    "RDMA_CTS_PYTHON": "the Python that ./rdma-cts runs with",
    "RDMA_CTS_YES": "1: packages are installed without asking, as with --yes",
    "RDMA_CTS_CONTAINER": "1 or 0: whether this is a container, in which nobody is asked (default: found out)",
    "CI": "any text: nobody is asked about packages, as in a container",
    "RDMA_CTS_DERIVED": "where read tables and compiled C are kept (default: in the cache; nothing is kept by a run"
    " on a device of this host)",
    "CC": "the C compiler with which the installed header is checked (default: gcc or clang)",
    "NO_COLOR": "any text: no colours",
}
_WIDTH, _INDENT = 100, 22


def help_text() -> str:
    """The variables as a part of the help text."""
    return "\n".join(["environment variables:", *_lines(), "", "exit statuses and more: README.md, docs/"])


def _lines() -> Iterator[str]:
    for name, meaning in VARIABLES.items():
        yield from textwrap.wrap(
            meaning, _WIDTH, initial_indent=f"  {name}".ljust(_INDENT), subsequent_indent=" " * _INDENT
        )
