"""Runs the suite in a separate process, which imports nothing from the current directory."""

import os
import sys

from conformance.tables.suite import ROOT

COMMAND = (sys.executable, "-P", "-m", "commands", "run")


def environment() -> dict[str, str]:
    """Returns this process's environment with the suite on Python's path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))}
