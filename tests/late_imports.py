"""Makes a run on a device of this host, for test_late_imports.py, with the device of a made-up project. The last line of
the output has what the process of the run has loaded after its first worker had started: modules, code in another form,
and files of the suite or of its cache. `--signalled N` ends the run with SIGTERM at the N-th line of its workers."""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Optional

from commands.__main__ import run_as_program
from conformance import cache
from conformance.tables.suite import ROOT
from fixtures.system import host, packages
from fixtures.targets import target

project, signalled, *arguments = sys.argv[1:]
modules: set[str] = set()  # those of the time when the first worker starts
loaded: list[str] = []
FOLDERS = (str(ROOT), os.environ[cache.DIRECTORY])
CODE = ("compile", "marshal.loads", "pickle.find_class", "ctypes.dlopen")
EXPRESSION = b"lambda point: "  # of a model that was read before


def note(event: str, values: Any) -> None:
    if not modules:
        return
    if event == "compile" and isinstance(values[0], bytes) and values[0].startswith(EXPRESSION):
        return
    if event in CODE and values[0] is not None:
        loaded.append(f"{event} {values[0]!r:.80}")
    elif event == "open" and isinstance(values[0], str) and values[0].startswith(FOLDERS):
        writes = values[2] & (os.O_WRONLY | os.O_RDWR | os.O_DIRECTORY)
        if not writes and not os.path.isdir(values[0]):
            loaded.append(values[0])


class Worker(host.HostWorker):
    """A worker in the made-up project."""

    lines = 0

    def __init__(self, _: Path, *how: Any) -> None:
        modules.update(modules or sys.modules)
        super().__init__(Path(project), *how)

    def next_line(self, timeout: float) -> Optional[bytes]:
        line = super().next_line(timeout)
        Worker.lines += bool(line)
        if Worker.lines == int(signalled):
            os.kill(os.getpid(), signal.SIGTERM)
        return line


sys.addaudithook(note)
vars(host)["HostWorker"] = Worker
vars(packages)["ensure_tools"] = lambda *_, **__: sys.executable
vars(target)["with_target"] = lambda options, *_: options.on("fake0")
vars(target)["check_before_tables"] = lambda _: None
sys.argv = ["rdma-cts", "run", *arguments]
status = run_as_program()
late = [*sorted(set(sys.modules) - modules), *loaded] if modules else ["no worker has started"]
print(json.dumps({"status": status, "late": late}))
