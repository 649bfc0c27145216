"""What this process holds of a device and of memory, counted by the kernel; a case has to leave it as it was.

Objects are counted by the kernel's RDMA netlink, which does not know windows. They are counted by the RDMA control
group, if this process is in one: it knows how many objects there are in all, of whatever kind.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from conformance.kernel.netlink import RdmaNetlink
from conformance.model.observation import KernelEvidence, ResourceCounts

Counts = dict[str, int]

OTHERS = "MW or other"  # what is neither a queue pair, completion queue, region nor PD
PINNED, LOCKED, PAGES = "kB pinned", "kB locked", "pages pinned"
_MEMORY = (PINNED, LOCKED, PAGES)
_STATUS = {"VmPin": PINNED, "VmLck": LOCKED}
# A driver may free what was given back a little later, from a queue of its own.
SETTLING_S = 1.0
_POLL_S = 0.005
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


class ResourceCounter:
    """The counts of one device; those that this system does not tell are left out.

    `alone` says that nothing else on this kernel pins pages: then those are counted too.
    """

    def __init__(
        self, device: str, netlink: RdmaNetlink, alone: bool = False, proc: Path = _PROC, cgroups: Path = _CGROUPS
    ) -> None:
        self._device = device
        self._netlink = netlink
        self._alone = alone
        self._proc = proc
        self._group = _group_file(proc, cgroups)

    def count(self) -> Counts:
        """Objects of this process by kind; memory pinned by drivers and locked, in kB; pages pinned, in pages."""
        counts = self._netlink.count()
        objects = self._objects()
        if objects is not None and counts:
            counts[OTHERS] = objects - sum(counts.values())
        counts |= self._memory()
        return counts

    def _objects(self) -> int | None:
        if self._group is None:
            return None
        try:
            text = self._group.read_text()
        except OSError:
            return None
        found = re.search(rf"^{re.escape(self._device)} .*hca_object=([0-9]+)", text, re.MULTILINE)
        return int(found[1]) if found else None

    def _memory(self) -> Counts:
        status = (self._proc / "self" / "status").read_text(errors="replace")
        lines = re.findall(r"^(VmPin|VmLck):\s+([0-9]+) kB", status, re.MULTILINE)
        counts = {_STATUS[name]: int(kb) for name, kb in lines}
        if self._alone:
            try:
                # Each processor counts for itself; reading this file lets the kernel add all up.
                (self._proc / "sys/vm/stat_refresh").read_bytes()
                text = (self._proc / "vmstat").read_text()
            except OSError:
                return counts
            pages = dict(re.findall(r"^nr_foll_pin_(acquired|released) ([0-9]+)", text, re.MULTILINE))
            if len(pages) == 2:
                counts[PAGES] = int(pages["acquired"]) - int(pages["released"])
        return counts


def _group_file(proc: Path, cgroups: Path) -> Path | None:
    """The file in which this process's own control group counts RDMA objects; None where there is none."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        return None
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    path = cgroups / group / "rdma.current"
    return path if group and path.exists() else None


def leaked(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """What is counted now and was not before, in words; empty if nothing."""
    left = [f"{after[kind] - count} {kind}" for kind, count in before.items() if after.get(kind, 0) > count]
    return f"the kernel still counts {', '.join(left)}" if left else ""


def count_when_settled(before: Mapping[str, int], count: Callable[[], Counts]) -> Counts:
    """The counts once nothing is left over, or after a second in which something always was."""
    until = time.monotonic() + SETTLING_S
    while True:
        after = count()
        if not leaked(before, after) or time.monotonic() > until:
            return after
        time.sleep(_POLL_S)


def resource_evidence(before: Mapping[str, int], after: Mapping[str, int]) -> KernelEvidence:
    """Both counts as a result's `kernel` shows them, if there are any: `resources` are objects, `memory` the rest."""
    found: KernelEvidence = {}
    if objects := _counts(before, after, memory=False):
        found["resources"] = objects
    if memory := _counts(before, after, memory=True):
        found["memory"] = memory
    return found


def _counts(before: Mapping[str, int], after: Mapping[str, int], memory: bool) -> ResourceCounts | None:
    """The counts of memory, or of all else; None where both are empty."""
    first, last = ({kind: n for kind, n in each.items() if (kind in _MEMORY) == memory} for each in (before, after))
    return {"before": first, "after": last} if first or last else None
