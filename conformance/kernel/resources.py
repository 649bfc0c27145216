"""Counts the RDMA objects and the locked memory of this process, to detect leaks of a case. The kernel's RDMA netlink
counts objects by type, except memory windows. The RDMA control group of this process, if there is one, counts all
objects; the difference between the two counts is reported as OTHERS.

A count that is the same for all processes together needs one query of the kernel and no command of the device. Only if
this total has changed are the objects of this process counted, one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from conformance.kernel.log import KernelFile, number_after, text_of
from conformance.kernel.netlink import QP, RdmaNetlink
from conformance.model.observation import KernelEvidence, ResourceCounts

Counts = dict[str, int]

OTHERS = "MW or other"  # objects other than queue pairs, completion queues, regions and PDs
PINNED, LOCKED, PAGES = "kB pinned", "kB locked", "pages pinned"
_MEMORY = (PINNED, LOCKED, PAGES)
_FOLLOWED = ("nr_foll_pin_acquired ", "nr_foll_pin_released ")
_STATUS = {"VmPin:": PINNED, "VmLck:": LOCKED}
# A driver may free the resources of destroyed objects a little later, from a work queue.
SETTLING_S = 1.0
POLL_S = 0.005
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


_NO_NUMBER = (1 << 24) - 1  # no queue pair has this number: it is that of multicast


class OwnQueuePairs:
    """The queue pairs that this process has created on a port and that the kernel still has. They are known by their
    numbers, so no queue pair of another process is queried."""

    def __init__(self, netlink: RdmaNetlink, port: int) -> None:
        self._netlink, self._port = netlink, port
        self._numbers = set[int]()

    def created(self, number: int) -> None:
        self._numbers.add(number)

    def count(self) -> int | None:
        """Returns the number of these queue pairs; None if the kernel does not know which ones it has."""
        if self._netlink.has_queue_pair(_NO_NUMBER, self._port):
            return None
        numbers = sorted(self._numbers)
        self._numbers = {
            number for number in numbers if self._netlink.has_queue_pair(number, self._port)
        }
        return len(self._numbers)


class ResourceCounter:
    """Counts the resources of one device. Counts that this system does not provide are omitted. `alone`: no other
    process on this kernel uses the device or pins pages. The counts then include the kernel's count of pinned pages,
    and the totals of all objects show what this process has."""

    def __init__(
        self,
        device: str,
        netlink: RdmaNetlink,
        queue_pairs: OwnQueuePairs,
        alone: bool = False,
        proc: Path = _PROC,
        cgroups: Path = _CGROUPS,
    ) -> None:
        self._device = device
        self._netlink = netlink
        self._queue_pairs = queue_pairs
        self._alone = alone
        self._totals: Counts = {}  # when the objects of this process were last counted
        self._own: Counts = {}
        self._status = KernelFile(proc / "self" / "status", at_once=True)
        self._pages = (
            (KernelFile(proc / "sys/vm/stat_refresh"), _statistics(proc / "vmstat"))
            if alone
            else None
        )
        group = _group_file(proc, cgroups)
        self._group = KernelFile(group, at_once=True) if group else None

    def count(self) -> Counts:
        """Returns the objects by type, memory pinned by drivers and locked memory in kB, and pinned pages."""
        counts = self._own_objects()
        objects = self._objects()
        if objects is not None and counts:
            counts[OTHERS] = objects - sum(counts.values())
        counts |= self._memory()
        return counts

    def _own_objects(self) -> Counts:
        """Returns the objects of this process. If `alone`, all other objects belong to the kernel, and their number
        does not change."""
        totals = self._netlink.totals()
        if self._alone and totals and self._totals:
            return {
                kind: held + totals[kind] - self._totals[kind] for kind, held in self._own.items()
            }
        if not totals or totals != self._totals:
            self._totals, self._own = totals, self._listed()
        return dict(self._own)

    def _listed(self) -> Counts:
        queue_pairs = self._queue_pairs.count()
        if queue_pairs is None:
            first = {}
        else:
            first = {QP: queue_pairs}
        return first | self._netlink.count()

    def _objects(self) -> int | None:
        if self._group is None:
            return None
        line = f"\n{self._group.text()}".partition(f"\n{self._device} ")[2].partition("\n")[0]
        number = line.partition("hca_object=")[2].partition(" ")[0]
        if number.isdecimal():
            return int(number)
        return None

    def _memory(self) -> Counts:
        status = self._status.read()
        sizes = {kind: number_after(status, name) for name, kind in _STATUS.items()}
        if self._pages:
            sizes[PAGES] = self._pinned_pages(*self._pages)
        return {kind: number for kind, number in sizes.items() if number is not None}

    @staticmethod
    def _pinned_pages(refresh: KernelFile, statistics: KernelFile) -> int | None:
        try:
            # Each processor has its own counters. A read of `stat_refresh` makes the kernel add up the counters.
            refresh.read()
            text = statistics.read()
        except OSError:
            return None
        acquired, released = (number_after(text, name) for name in _FOLLOWED)
        if acquired is None or released is None:
            return None
        return acquired - released


def _statistics(path: Path) -> KernelFile:
    """Returns the kernel's statistics of memory: only the first part, which is faster, if this part has the numbers of
    pinned pages."""
    first = KernelFile(path, at_once=True)
    if number_after(first.text(), _FOLLOWED[-1]) is not None:
        return first
    return KernelFile(path)


def _group_file(proc: Path, cgroups: Path) -> Path | None:
    """Returns the file with the RDMA object count of this process's own control group, or None."""
    lines = text_of(proc / "self" / "cgroup").splitlines()
    group = next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")
    path = cgroups / group / "rdma.current"
    if group and path.exists():
        return path
    return None


def leaked(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Returns a text with the resources whose count in `after` is higher than in `before`, or an empty text. Omits
    OTHERS, because a context may retain internal objects, such as the UARs of mlx5."""
    more = {kind: after.get(kind, 0) - count for kind, count in before.items() if kind != OTHERS}
    remaining = [f"{number} {kind}" for kind, number in more.items() if number > 0]
    if remaining:
        return f"the kernel still counts {', '.join(remaining)}"
    return ""


def kept(before: Mapping[str, int], after: Mapping[str, int]) -> str:
    """Returns a remark if the number of objects that only the control group counts has grown; else an empty text."""
    more = after.get(OTHERS, 0) - before.get(OTHERS, 0)
    if more > 0:
        return f"the RDMA control group counts {more} more objects than before ({OTHERS})"
    return ""


def count_when_settled(before: Mapping[str, int], count: Callable[[], Counts]) -> Counts:
    """Returns the counts as soon as they contain no leak, or after SETTLING_S."""
    until = time.monotonic() + SETTLING_S
    while True:
        after = count()
        if not leaked(before, after) or time.monotonic() > until:
            return after
        time.sleep(POLL_S)


def resource_evidence(before: Mapping[str, int], after: Mapping[str, int]) -> KernelEvidence:
    """Returns the counts in the form of `kernel` of a result: objects as `resources`, all other counts as `memory`."""
    evidence: dict[str, ResourceCounts] = {}
    for name, memory in (("resources", False), ("memory", True)):
        first = {kind: n for kind, n in before.items() if (kind in _MEMORY) == memory}
        last = {kind: n for kind, n in after.items() if (kind in _MEMORY) == memory}
        if first or last:
            evidence[name] = {"before": first, "after": last}
    return cast(KernelEvidence, evidence)
