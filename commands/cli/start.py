"""Starts the command that the arguments name, without a search for modules in the working directory. The launcher
`rdma-cts` names in a variable the modules that every command needs. If this Python lacks one of them or is too old, the
launcher continues: it finds another Python, or installs packages. This file is also parsed by versions of Python that
the suite does not support. Damaged bytecode is replaced and prevents no command. The launcher starts Python with
-S, and if possible with SIGINT blocked: during the import of `site`, SIGINT would end Python with a traceback."""

# Both are built in: importing `signal` and `os` takes long enough to be interrupted.
import _signal  # type: ignore[import-not-found]
import posix


def _end(number, frame):  # type: ignore[no-untyped-def]
    """Ends this process at SIGINT, until commands/cli/endings.py handles signals."""
    posix.write(2, b"rdma-cts: interrupted\n")
    posix._exit(128 + number)


if __name__ == "__main__":
    if _signal.getsignal(_signal.SIGINT) != _signal.SIG_IGN:
        _signal.signal(_signal.SIGINT, _end)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGINT])  # also for child processes

import contextlib
import gc
import os
import runpy
import site
import sys
from importlib import machinery, util

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


class _Loader(machinery.SourceFileLoader):
    """Loads a module of which Python has stored only the beginning of the bytecode, because the disk was full."""

    def get_code(self, fullname):  # type: ignore[no-untyped-def]
        try:
            return super().get_code(fullname)
        except (EOFError, TypeError, ValueError):  # raised by `marshal` for damaged bytecode
            _remove(util.cache_from_source(self.path))
            return self.source_to_code(self.get_data(self.path), self.path)

    def set_data(self, path, data, **mode):  # type: ignore[no-untyped-def]
        super().set_data(path, data, **mode)
        try:
            is_whole = os.stat(path).st_size == len(data)
        except OSError:  # not stored at all, which Python permits
            return
        if not is_whole:
            _remove(path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):  # removed by another process, or of another user
        os.unlink(path)


def of_python_path() -> str:
    """Returns how PYTHONPATH can be the cause of an error: the loaded files that are in one of its directories; empty if
    there are none."""
    folders = set(os.environ.get("PYTHONPATH", "").split(os.pathsep)) - {"", _ROOT}
    files = [str(getattr(module, "__file__", "")) for module in list(sys.modules.values())]
    own = [path for path in files if os.path.dirname(path) in folders]
    return "PYTHONPATH provides {}; unset PYTHONPATH".format(", ".join(own)) if own else ""


def _use_loader() -> None:
    """Makes this process load modules with _Loader."""
    loaders = (
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (_Loader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )
    sys.path_hooks.insert(0, machinery.FileFinder.path_hook(*loaders))
    sys.path_importer_cache.clear()


def _start() -> None:
    _use_loader()
    if sys.flags.no_site:
        site.main()
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
    try:
        _start()
    except Exception as error:
        cause = of_python_path()
        if not cause:
            raise
        print(f"rdma-cts: {type(error).__name__}: {error}; {cause}", file=sys.stderr)
        sys.exit(3)
