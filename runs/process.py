"""The command and the environment of a run in a separate process, which imports nothing from the current directory."""

import os
import sys

from conformance.tables.suite import ROOT

COMMAND = (sys.executable, "-P", "-m", "commands", "run")


def environment() -> dict[str, str]:
    """Returns the environment of this process, with the suite in PYTHONPATH."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
    }
