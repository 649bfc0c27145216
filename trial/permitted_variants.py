"""Permitted variants: references that make another choice where the documents allow several. No case may fail on them.

The other half of the trial: a case that accepts only one of several permitted behaviours raises a false alarm.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Any

from conformance.bench.calls import Return, Sge
from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import HUGETLB, ON_DEMAND, Domain, Region, Window
from reference.queues import SUCCESS, Queue
from reference.reregistration import CHANGE_ACCESS, CHANGE_TRANSLATION, Change
from reference.stack import WHOLE, Stack
from trial.violation import violates, violations_in

# A permitted variant is marked with the rule that leaves the choice open.
permits = violates


@permits("REREG-15")
class KeysKept(Device):
    """A region keeps its keys when it is re-registered."""

    def rekey(self, region: Region) -> None:
        """Does not change the keys."""


@permits("REREG-01")
class NoChangeOfTranslation(Device):
    """There is ibv_rereg_mr, and every change of the translation is answered with EOPNOTSUPP: the profile decides."""

    def missing_change(self, flags: int) -> bool:
        return super().missing_change(flags) or bool(flags & CHANGE_TRANSLATION)


@permits("REREG-08")
class OldRangeForgotten(Device):
    """Nobody looks whether the old range could be given back to fork, as in mainline libibverbs."""

    of_new_range = False

    def command_code(self, forks: bool, change: Change) -> int:
        self.of_new_range = True
        code = super().command_code(forks, change)
        self.of_new_range = False
        return code

    def do_fork(self, addr: int, length: int) -> bool:
        return super().do_fork(addr, length) or not self.of_new_range


@permits("REREG-15")
class KeysOfAnotherIndex(Device):
    """A region gets keys that have nothing in common with the old ones when it is re-registered."""

    def rekey(self, region: Region) -> None:
        self.forget_key(region)
        region.key = self.new_key()
        self.keys[region.key] = region


@permits("REG-21")
class KeysReused(Device):
    """The key of a deregistered region is used for the next one."""

    def __init__(self, stack: Stack = WHOLE) -> None:
        super().__init__(stack)
        self._free: list[int] = []

    def deregister(self, handle: int) -> None:
        key = self.regions[handle].key if handle in self.regions else None
        super().deregister(handle)
        if key is not None:
            self._free.append(key)

    def new_key(self) -> int:
        return self._free.pop() if self._free else super().new_key()


@permits("REREG-06")
class UnselectedAccessTaken(Device):
    """The library accepts access flags without CHANGE_ACCESS, and the device ignores them."""

    def input_fault(self, change: Change) -> bool:
        selected = change.access if change.flags & CHANGE_ACCESS else 0
        return super().input_fault(Change(change.flags, change.pd, change.addr, change.length, selected))


@permits("REREG-05")
class NoChangeRefused(Device):
    """A re-registration that selects nothing is an input error."""

    def input_fault(self, change: Change) -> bool:
        return not change.flags or super().input_fault(change)


@permits("BIND-12")
class BindsRefusedWhenPosted(Device):
    """A bind that the region does not allow is refused with an errno when it is posted."""

    def bind_fault(self, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool) -> int:
        fault = super().bind_fault(queue, window, region, info, posted)
        refused = not fault and self.bind_refused(window, region, info.addr, info.length, info.access)
        return errno.EPERM if refused else fault


@permits("BIND-11")
class BindsRefusedByCompletion(Device):
    """Wrong arguments of a bind are refused by its completion, except a missing region or objects of two PDs."""

    def bind_argument_fault(
        self, queue: Domain, window: Window, region: Region | None, length: int, access: int
    ) -> int:
        fault = super().bind_argument_fault(queue, window, region, length, access)
        return fault if region is None or fault == errno.EPERM else 0


@permits("BIND-15")
class InvalidationOfNothing(Device):
    """A local invalidation of a window that was never bound completes with success."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._bound: set[int] = set()  # the keys of binds

    def replace_key(self, window: Window, key: int) -> None:
        """Binds give a window its key."""
        self._bound.add(key)
        super().replace_key(window, key)

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        found = self.keys.get(key)
        never_bound = isinstance(found, Window) and found.kind == 2 and key not in self._bound
        return never_bound or super().local_invalidate(key, queue)


@permits("BIND-14")
class TypeOnePosted(Device):
    """A window of type 1 can be bound by a posted request as well."""

    def wrong_type(self, window: Window, posted: bool) -> bool:
        return not posted and window.kind == 2


@permits("BIND-03")
class UnconnectedTakesBinds(Device):
    """A queue pair that is not ready to send accepts a bind and never executes it."""

    def ibv_bind_mw(self, queue: Queue, window: Window, info: BindInfo, flags: int, wr_id: int) -> tuple[int, int]:
        if queue.state in ("INIT", "RTR"):
            return 0, self.next_key(window.key)
        return super().ibv_bind_mw(queue, window, info, flags, wr_id)


@permits("REG-23")
class NothingRegistered(Device):
    """A region of length 0 can be registered."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return super().range_fault(addr, length, access) if length else 0


@permits("REG-13")
class HugeWithoutPaging(Device):
    """HUGETLB without ON_DEMAND is refused."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access) or access & (HUGETLB | ON_DEMAND) == HUGETLB


@permits("REG-02")
class OtherErrnos(Device):
    """Every refusal of a registration has another errno."""

    def reported_errno(self, errno: int) -> int:
        return errno + 1


@permits("DEREG-02")
class OtherBusy(Device):
    """Deregistering a region that is in use returns EINVAL."""

    def dereg_answer(self, returned: Return) -> Return:
        return Return(errno.EINVAL, errno.EINVAL) if returned.value == errno.EBUSY else returned


@permits("ADV-01")
class AdviceOnNothingRefused(Device):
    """Advice on an empty list is refused."""

    def advise(self, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
        if not sg_list:
            self.domain_of(-1)
        super().advise(pd, advice, flags, sg_list)


@permits("ADV-05")
class PlainAdviceNotFound(Device):
    """Advice on a region that is not on demand returns ENOENT."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Sge) -> int:
        plain = not self.foreign(domain, region) and self.not_on_demand(region)
        return errno.ENOENT if plain else super().element_fault(domain, advice, region, sge)


@permits("ADV-14")
class AdviceOfWholePages(Device):
    """Advice makes all pages of its range resident as a whole, also without FLUSH and also for writing."""

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        start = addr // PAGE * PAGE
        return super().follow(start, -(-(addr + length) // PAGE) * PAGE - start, advice, flags)


@permits("BIND-01")
class ErrorsAreLoud(Device):
    """A queue pair goes to the error state after a failed bind, and so does its peer."""

    def complete(self, queue: Queue, request: SendRequest, status: str) -> None:
        super().complete(queue, request, status)
        if request.opcode == "BIND_MW" and status != SUCCESS:
            self.fail(queue.peer)


PERMITTED_VARIANTS = tuple(violations_in([sys.modules[__name__]]))
