"""Starts the command that the arguments name, without a search for modules in the working directory. The launcher
`rdma-cts` names in a variable the modules that every command needs. If this Python lacks one of them or is too old, the
launcher continues: it finds another Python, or installs packages. This file is also parsed by versions of Python that
the suite does not support."""

import gc
import os
import runpy
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(os.path.dirname(_HERE))
_NEEDED = "RDMA_CTS_NEEDED"  # names of modules
_DOUBTED = "RDMA_CTS_DOUBTED"  # makes the launcher check each Python before it starts one


def _lacking(modules: "list[str]") -> "list[str]":
    """Returns those of the modules that this Python does not have."""
    missing = []
    for name in modules:
        if not any(finder.find_spec(name, None) for finder in sys.meta_path):
            missing.append(name)
    return missing


def _start() -> None:
    sys.path[:] = [_ROOT, *(path for path in sys.path if path not in ("", _HERE, _ROOT))]
    is_old = sys.version_info < (3, 9)
    if is_old or _lacking(os.environ.pop(_NEEDED, "").split()):
        os.environ[_DOUBTED] = "1"
        os.execv("/bin/sh", ["sh", os.path.join(_ROOT, "rdma-cts"), *sys.argv[1:]])
    from fixtures.system import cache

    cache.use_bytecode(sys.argv[1:])
    # Results and tables are many objects that stay: a search for cycles among them would take a fifth of the time.
    gc.set_threshold(100_000, 20, 20)
    runpy.run_module("commands", None, "__main__", True)


if __name__ == "__main__":
    _start()
