"""A program that enables fork protection and prints the effects. A process can enable fork protection only once, so the
program forks a child for each line that it reads, and only the child loads libibverbs. In an emulated guest, a new
Python process for each line would take a second.

A line has a device, a word of vocabulary.FORK_SETTINGS, and `asked` or `not_asked`. libibverbs queries through a socket
whether the kernel copies the pages of regions on fork. If the query fails, libibverbs protects the pages itself. With
`not_asked`, the query fails because no file descriptor can be opened.
"""

import contextlib
import ctypes
import functools
import itertools
import json
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.errors import HostLacks, SetupRefused
from conformance.kernel import paging

_ROOT = Path(__file__).parents[2]
_STATUS = "ibv_is_fork_initialized"
_STATUSES = ("DISABLED", "ENABLED", "UNNEEDED")
_HUGE = "RDMAV_HUGEPAGES_SAFE"
# The size of a huge page on most machines. If a huge page is larger, only this many bytes are used.
_LENGTH = 2 << 20
_MAP_HUGETLB = 0x40000


def observe(device: str, setting: str, kernel: str) -> tuple[int, dict[str, str]]:
    """Returns the result of ibv_fork_init and the observed effects, by name. Raises SetupRefused, and HostLacks for a
    library without ibv_is_fork_initialized."""
    if not hasattr(ctypes.CDLL("libibverbs.so.1"), _STATUS):
        raise HostLacks(f"this libibverbs has no {_STATUS}", "use a later rdma-core")
    program = _program()
    assert program.stdin
    assert program.stdout
    program.stdin.write(f"{device} {setting} {kernel}\n")
    program.stdin.flush()
    result = json.loads(program.stdout.readline() or '"the process has exited"')
    if isinstance(result, str):
        raise SetupRefused("a registration in a separate process", result)
    code, seen = result
    return code, seen


def prepare() -> None:
    """Starts the program if it is not running, and waits until it has loaded its modules."""
    _program()


@functools.cache
def _program() -> subprocess.Popen[str]:
    """Returns the running program. The program exits when this process exits, because its input is then closed."""
    # -S: this program needs no installed packages of Python.
    command = (sys.executable, "-S", "-m", "conformance.device.fork_settings")
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    program = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert program.stdout
    program.stdout.readline()
    return program


@contextlib.contextmanager
def no_descriptors(apply: bool = True) -> Iterator[None]:
    """Within the block, this process cannot open a file descriptor."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if apply:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def _effects(device: str, setting: str, kernel: str) -> tuple[int, dict[str, str]]:
    if setting.isupper():
        os.environ[setting] = "1"
    library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    library.ibv_get_device_name.restype = ctypes.c_char_p
    library.ibv_get_device_name.argtypes = library.ibv_open_device.argtypes = (ctypes.c_void_p,)
    library.ibv_open_device.restype = library.ibv_alloc_pd.restype = library.ibv_reg_mr.restype = (
        ctypes.c_void_p
    )
    library.ibv_alloc_pd.argtypes = library.ibv_dereg_mr.argtypes = (ctypes.c_void_p,)
    library.ibv_reg_mr.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    code = 0
    with no_descriptors(kernel == "not_asked"):
        # reads the environment; without descriptors, may return no devices
        library.ibv_get_device_list(None)
        if setting in ("ibv_fork_init", _HUGE):
            code = library.ibv_fork_init()
    devices = library.ibv_get_device_list(None)
    names = [library.ibv_get_device_name(device) for device in itertools.takewhile(bool, devices)]
    pd = library.ibv_alloc_pd(library.ibv_open_device(devices[names.index(device.encode())]))
    huge = setting == _HUGE
    memory = mmap.mmap(
        -1,
        _LENGTH,
        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_HUGETLB if huge else 0),
    )
    # not the first page of the mapping
    addr = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + mmap.PAGESIZE
    mr = library.ibv_reg_mr(pd, addr, mmap.PAGESIZE, 1)
    seen = {"registered": _range(addr) if mr else "refused"}
    with no_descriptors(kernel == "not_asked"):
        if setting == "late":
            code = library.ibv_fork_init()
        seen["status"] = _STATUSES[library.ibv_is_fork_initialized()]
    if mr:
        library.ibv_dereg_mr(mr)
    seen["deregistered"] = _range(addr)
    return code, seen


def _range(addr: int) -> str:
    if paging.inherited(addr, mmap.PAGESIZE)[0]:
        return "inherited"
    return "kept"


def _print(result: object) -> None:
    print(json.dumps(result), flush=True)


def _main() -> None:
    _print("ready")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                _print(_effects(*line.split()))
            except Exception as error:
                _print(f"{type(error).__name__}: {error}")
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            _print(f"its exit status is {status}")


if __name__ == "__main__":
    _main()
