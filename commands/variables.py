"""`rdma-cts list variables`: prints the environment variables, which docs/variables.md describes."""

import argparse
from collections.abc import Mapping

from commands.cli.streams import show_meanings

# docs/variables.md explains these variables in more detail. A test compares both lists with the code.
VARIABLES: Mapping[str, str] = {
    "RDMA_CTS_CACHE": "the directory for images, templates and durations (default: $XDG_CACHE_HOME/rdma-cts, else"
    " ~/.cache/rdma-cts)",
    "RDMA_CTS_MIRROR": "the Debian mirror of the guest's packages (default: the mirror of this host's apt)",
    "RDMA_CTS_ACCEL": "the accelerator of QEMU: auto, kvm or tcg (default: auto)",
    "RDMA_CTS_TEMPLATES": "auto: guests are resumed from a template; off: each guest is booted (default: auto)",
    "RDMA_CTS_PMEM": "a device DAX that cases of persistent memory may overwrite",
    "RDMA_CTS_PYTHON": "the Python for ./rdma-cts",
    "RDMA_CTS_YES": "1: packages are installed without a question, as with --yes",
    "RDMA_CTS_CONTAINER": "1 or 0: whether this is a container, in which no question is asked (default: detected)",
    "CI": "any text: no question about packages is asked, as in a container",
    "RDMA_CTS_DERIVED": "the directory for parsed tables and compiled C (default: in the cache; a run on a device of"
    " this host stores none)",
    "CC": "the C compiler with which the installed header is checked (default: gcc or clang)",
    "NO_COLOR": "any text: no colours",
}
_INDENT = 22


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """There are no arguments."""


def execute(arguments: argparse.Namespace) -> int:
    del arguments
    show_meanings(VARIABLES, _INDENT)
    return 0
