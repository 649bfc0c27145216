"""Names the users of a device: the processes and the parts of the kernel that have queue pairs on it.

An object without a process id but with a name is the kernel's, and the name is that of the module that has created it
(`fill_res_name_pid` of drivers/infiniband/core/nldev.c). An object with neither belongs to a process that this PID
namespace does not show.
"""

import os
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from conformance.errors import format_count
from conformance.kernel.netlink import CQ, QP, RES_KERN_NAME, RES_PID, RES_TYPE, RdmaNetlink

# IB_QPT_SMI and IB_QPT_GSI: the kernel creates them on every port for management. The queue pair with which mlx5 changes
# memory keys (IB_QPT_RESERVED1, 0x1000) is reported in eight bits, and therefore as 0 too.
_MANAGEMENT = (0, 1)
_NOUNS = {QP: "queue pair", CQ: "completion queue"}
_HIDDEN = "a process outside of this PID namespace"


@dataclass(frozen=True)
class Users:
    """The number of objects of each process and of each module of the kernel. `of` is the kind of object, in words.
    If the driver cannot report queue pairs, as mana, the users of completion queues are counted."""

    processes: Mapping[str, int] = field(default_factory=dict)
    kernel: Mapping[str, int] = field(default_factory=dict)
    of: str = _NOUNS[QP]

    def __bool__(self) -> bool:
        """Whether processes use the device. The kernel alone needs no consideration: its traffic is not judged."""
        return bool(self.processes)

    def in_words(self) -> str:
        """Returns who uses the device, processes first; empty if nobody does."""
        all_users = (*self.processes.items(), *self.kernel.items())
        return ", ".join(f"{user} ({format_count(number, self.of)})" for user, number in all_users)


def users_of(netlink: RdmaNetlink) -> Users:
    """Returns the users of a device, except this process and the management of ports."""
    kind = QP
    try:
        objects = netlink.objects(QP)
    except OSError:
        kind = CQ
        try:
            objects = netlink.objects(CQ)
        except OSError:
            objects = []
    processes, kernel = Counter[str](), Counter[str]()
    for attributes in objects:
        if attributes.get(RES_TYPE, b"\xff")[0] in _MANAGEMENT:
            continue
        name = attributes.get(RES_KERN_NAME, b"").rstrip(b"\0").decode(errors="replace")
        if RES_PID in attributes:
            processes[_process(struct.unpack("=I", attributes[RES_PID])[0])] += 1
        elif name:
            kernel[f"the kernel's {name}"] += 1
        else:
            processes[_HIDDEN] += 1
    del processes[_process(os.getpid())]
    return Users(dict(processes), dict(kernel), _NOUNS[kind])


def _process(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        name = "?"
    return f"process {pid} ({name})"
