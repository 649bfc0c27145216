"""Runs `./rdma-cts run` in a child process without starting another Python; for scripts that run in the guest."""

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from commands.__main__ import main


class Forked:
    """A run in a child of this process. The child inherits the loaded modules; loading them again would take seconds in
    an emulator."""

    def __init__(self, *arguments: str, before: Callable[[], object] = lambda: None) -> None:
        """Starts the run; the child first calls `before`."""
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed when it has been read
        self.pid = os.fork()
        if self.pid:
            return
        os.dup2(self._said.fileno(), 1)
        os.dup2(self._said.fileno(), 2)
        before()
        status = main(["run", *arguments])
        sys.stdout.flush()
        os._exit(status)

    def wait(self) -> dict[str, Any]:
        """Waits for the end of the run; returns its exit status and the end of its output."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self._said as said:
            said.seek(0)
            return {"status": status, "said": said.read()[-600:]}


def run_forked(*arguments: str) -> dict[str, Any]:
    """Runs `./rdma-cts run` in a child; returns its exit status and the end of its output."""
    return Forked(*arguments).wait()
