"""Makes `./rdma-cts run` without starting another Python, for scripts that run in the guest. Not itself a test."""

import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from commands.__main__ import main


class Forked:
    """A run in a child of this process.

    The child has this process's modules: in an emulator it takes seconds to load them.
    """

    def __init__(self, *arguments: str, before: Callable[[], object] = lambda: None) -> None:
        """`before` is called in the child first."""
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
        """Its status, and the end of its output."""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with self._said as said:
            said.seek(0)
            return {"status": status, "said": said.read()[-600:]}


def run_forked(*arguments: str) -> dict[str, Any]:
    """The status of such a run, and the end of its output."""
    return Forked(*arguments).wait()
