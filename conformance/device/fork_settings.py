"""Turns on fork protection in one way and prints the effects. This is a program, because a process can turn on fork
protection only once.

The arguments are a device, a word of vocabulary.FORK_SETTINGS, and `asked` or `not_asked`. libibverbs asks the kernel
through a socket whether the kernel copies the pages of regions on fork, and protects the pages itself if it cannot ask.
With `not_asked`, no file descriptor can be opened while libibverbs would ask.
"""

import contextlib
import ctypes
import itertools
import json
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from conformance.errors import SetupRefused
from conformance.kernel import paging

_ROOT = Path(__file__).parents[2]
_STATUSES = ("DISABLED", "ENABLED", "UNNEEDED")
_HUGE = "RDMAV_HUGEPAGES_SAFE"
# The size of a huge page on most machines. If huge pages are larger, only this many bytes of a page are used.
_LENGTH = 2 << 20
_MAP_HUGETLB = 0x40000


def observe(device: str, setting: str, kernel: str) -> tuple[int, dict[str, str]]:
    """Returns the result of ibv_fork_init, and the observed effects by name. Raises SetupRefused."""
    variable = {setting: "1"} if setting.isupper() else {}
    # -S: this program needs no installed packages of Python.
    command = (sys.executable, "-S", "-m", "conformance.device.fork_settings", device, setting, kernel)
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(_ROOT), **variable}
    )
    if done.returncode:
        raise SetupRefused("a registration in a separate process", done.stderr.strip().rpartition("\n")[2])
    code, seen = json.loads(done.stdout)
    return code, seen


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


def _main(device: str, setting: str, kernel: str) -> None:
    library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
    library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
    library.ibv_get_device_name.restype = ctypes.c_char_p
    library.ibv_get_device_name.argtypes = library.ibv_open_device.argtypes = (ctypes.c_void_p,)
    library.ibv_open_device.restype = library.ibv_alloc_pd.restype = library.ibv_reg_mr.restype = ctypes.c_void_p
    library.ibv_alloc_pd.argtypes = library.ibv_dereg_mr.argtypes = (ctypes.c_void_p,)
    library.ibv_reg_mr.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    code = 0
    with no_descriptors(kernel == "not_asked"):
        library.ibv_get_device_list(None)  # reads the environment; may find no device while no descriptor can be opened
        if setting in ("ibv_fork_init", _HUGE):
            code = library.ibv_fork_init()
    devices = library.ibv_get_device_list(None)
    names = [library.ibv_get_device_name(each) for each in itertools.takewhile(bool, devices)]
    pd = library.ibv_alloc_pd(library.ibv_open_device(devices[names.index(device.encode())]))
    huge = setting == _HUGE
    memory = mmap.mmap(-1, _LENGTH, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | (_MAP_HUGETLB if huge else 0))
    addr = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + mmap.PAGESIZE  # not the first page of the mapping
    mr = library.ibv_reg_mr(pd, addr, mmap.PAGESIZE, 1)
    seen = {"registered": _range(addr) if mr else "refused"}
    with no_descriptors(kernel == "not_asked"):
        if setting == "late":
            code = library.ibv_fork_init()
        seen["status"] = _STATUSES[library.ibv_is_fork_initialized()]
    if mr:
        library.ibv_dereg_mr(mr)
    seen["deregistered"] = _range(addr)
    sys.stdout.write(json.dumps((code, seen)))


def _range(addr: int) -> str:
    return "inherited" if paging.inherited(addr, mmap.PAGESIZE)[0] else "kept"


if __name__ == "__main__":
    _main(*sys.argv[1:])
