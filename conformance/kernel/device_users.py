"""Names the users of a device: the processes and the parts of the kernel that have protection domains on it.

Every user of memory through libibverbs has a domain, also a program whose queue pairs are opaque objects of the firmware
(DevX of mlx5: UCX, NVSHMEM, DOCA), and the list of domains costs no command of the firmware. A program that makes its
domains themselves by DevX is not seen. An object without a process id but with a name
is the kernel's, and the name is that of the module that has created it (`fill_res_name_pid` of
drivers/infiniband/core/nldev.c). An object with neither belongs to a process that this PID namespace does not show.
"""

import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.errors import format_count
from conformance.kernel.netlink import PD, RES_KERN_NAME, RES_PID, RdmaNetlink, driver_name

_NOUN = "protection domain"
_CORE = "ib_core"  # the management of ports
_HIDDEN = "a process outside of this PID namespace"


@dataclass(frozen=True)
class Users:
    """The number of protection domains of each process and of each module of the kernel."""

    processes: Mapping[str, int] = field(default_factory=dict)
    kernel: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether processes use the device. The kernel alone needs no consideration: its traffic is not judged."""
        return bool(self.processes)

    def in_words(self) -> str:
        """Returns who uses the device, processes first; empty if nobody does."""
        all_users = (*self.processes.items(), *self.kernel.items())
        return ", ".join(f"{user} ({format_count(number, _NOUN)})" for user, number in all_users)


def users_of(netlink: RdmaNetlink) -> Users:
    """Returns the users of a device, except this process, the management of ports and the driver itself."""
    try:
        domains = netlink.objects(PD)
    except OSError:
        domains = []
    driver = driver_name(netlink.driver_id() or 0)
    processes, kernel = Counter[str](), Counter[str]()
    for attributes in domains:
        name = attributes.get(RES_KERN_NAME, b"").rstrip(b"\0").decode(errors="replace")
        if RES_PID in attributes:
            processes[_process(struct.unpack("=I", attributes[RES_PID])[0])] += 1
        elif not name:
            processes[_HIDDEN] += 1
        elif name != _CORE and driver not in name:
            kernel[f"the kernel's {name}"] += 1
    del processes[_process(os.getpid())]
    return Users(dict(processes), dict(kernel))


def _process(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        name = "?"
    return f"process {pid} ({name})"
