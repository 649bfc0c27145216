"""`rdma-cts variables`: prints the environment variables, which docs/variables.md describes. The module that uses a
variable reads it."""

import argparse
import sys
from collections.abc import Mapping

from reports.text import columns_of, wrapped

# docs/variables.md explains these variables in more detail. A test compares both lists with the code.
VARIABLES: Mapping[str, str] = {
    "RDMA_CTS_CACHE": "where images, templates and durations are kept (default: $XDG_CACHE_HOME/rdma-cts, else"
    " ~/.cache/rdma-cts)",
    "RDMA_CTS_MIRROR": "the Debian mirror that the guest is made from (default: that of this host's apt)",
    "RDMA_CTS_ACCEL": "how the guest's processor runs: auto, kvm or tcg (default: auto)",
    "RDMA_CTS_TEMPLATES": "auto: guests are resumed from a template; off: each is booted (default: auto)",
    "RDMA_CTS_PMEM": "a device DAX that cases of persistent memory may overwrite",
    "RDMA_CTS_PYTHON": "the Python that ./rdma-cts runs with",
    "RDMA_CTS_YES": "1: packages are installed without asking, as with --yes",
    "RDMA_CTS_CONTAINER": "1 or 0: whether this is a container, in which nobody is asked (default: detected)",
    "CI": "any text: nobody is asked about packages, as in a container",
    "RDMA_CTS_DERIVED": "where parsed tables and compiled C are kept (default: in the cache; nothing is kept by a run"
    " on a device of this host)",
    "CC": "the C compiler with which the installed header is checked (default: gcc or clang)",
    "NO_COLOR": "any text: no colours",
}
_INDENT = 22


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command has no arguments."""


def execute(arguments: argparse.Namespace) -> int:
    del arguments
    width = min(columns_of(sys.stdout), 100)
    for name, meaning in VARIABLES.items():
        print(*wrapped(f"{name:<{_INDENT}}{meaning}", width, " " * _INDENT), sep="\n")
    return 0
