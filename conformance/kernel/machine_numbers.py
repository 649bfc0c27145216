"""Numbers of the kernel's interface that differ between processors: requests of ioctl(2), a flag of mmap(2), and system
calls without a function in libc."""

from __future__ import annotations

import os
from collections.abc import Mapping

from conformance.errors import HostLacks

# The directions of an ioctl's data, in the upper bits of its number (_IO and _IOW of <asm/ioctl.h>). _IOWR has the same
# bits on all these processors.
_NONE, _WRITE, _NONE_OF_POWER, _WRITE_OF_POWER = 0, 1 << 30, 1 << 29, 1 << 31
# MAP_NORESERVE of <asm/mman.h>.
_NORESERVE, _NORESERVE_OF_POWER = 0x4000, 0x40
# By the machine's name of uname(2). Arm and RISC-V have the numbers of <asm-generic/unistd.h>.
_GENERIC = {"delete_module": 106, "finit_module": 273}
_CALLS: Mapping[str, Mapping[str, int]] = {
    "x86_64": {"delete_module": 176, "finit_module": 313},
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
    "s390x": {"delete_module": 129, "finit_module": 344},
    "ppc64le": {"delete_module": 129, "finit_module": 353},
    "ppc64": {"delete_module": 129, "finit_module": 353},
}


def _is_power(machine: str) -> bool:
    return machine.startswith("ppc")


def io(kind: str, number: int, machine: str = os.uname().machine) -> int:
    """Returns the number of an ioctl without data."""
    return (_NONE_OF_POWER if _is_power(machine) else _NONE) | ord(kind) << 8 | number


def iow(kind: str, number: int, size: int, machine: str = os.uname().machine) -> int:
    """Returns the number of an ioctl to which a program passes `size` bytes."""
    direction = _WRITE_OF_POWER if _is_power(machine) else _WRITE
    return direction | size << 16 | ord(kind) << 8 | number


def map_noreserve(machine: str = os.uname().machine) -> int:
    return _NORESERVE_OF_POWER if _is_power(machine) else _NORESERVE


def system_call(name: str, machine: str = os.uname().machine) -> int:
    """Returns the number of a system call. Raises HostLacks for a processor that is not in the table."""
    if machine not in _CALLS:
        hint = f"the processors are {', '.join(_CALLS)}"
        raise HostLacks(f"the number of {name}(2) on {machine} is not known", hint)
    return _CALLS[machine][name]
