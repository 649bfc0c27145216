"""`./rdma-cts run` without a Python of its own, for scripts that run in the guest. No test itself."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

from commands.__main__ import main


def run_forked(*arguments: str) -> dict[str, Any]:
    """The status of a run in a child of this process, and the end of what it says.

    The child has this process's modules: in an emulator it takes seconds to load them.
    """
    with tempfile.TemporaryFile("w+") as said:
        if not (child := os.fork()):
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            status = main(["run", *arguments])
            sys.stdout.flush()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said.seek(0)
        return {"status": status, "said": said.read()[-600:]}
