"""What a window grants."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, ZERO_BASED, Domain, Region, Window
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import Watching
from trial.violation import permits, plain, violates

_WRITING = REMOTE_WRITE | REMOTE_ATOMIC


@violates("BIND-05", Device.lacks_local_write)
def write_window_of_read_only(self: Device, region: Region, access: int) -> bool:
    """A window with REMOTE_WRITE can be bound to a region without LOCAL_WRITE."""
    return bool(access & REMOTE_ATOMIC) and not region.access & LOCAL_WRITE


@violates("BIND-05", Device.through_window)
def window_needs_the_regions_right(
    self: Device, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A window allows writes only if its region allows them too."""
    if window.region and right == REMOTE_WRITE and not window.region.access & right:
        return None
    return plain(self).through_window(window, domain, queue, addr, length, right)


@violates("BIND-05", Device.window_allows)
def write_window_is_closed(self: Device, window: Window, right: int) -> bool:
    """A window's REMOTE_WRITE has no effect."""
    return right != REMOTE_WRITE and plain(self).window_allows(window, right)


@violates("BIND-05", Watching.window_allows, written="blind")
def write_windows_take_no_immediate(self: Watching, window: Window, right: int) -> bool:
    """A window with REMOTE_WRITE refuses writes with immediate data."""
    return plain(self).window_allows(window, right) and self.opcode != "RDMA_WRITE_WITH_IMM"


@violates("BIND-05", Device.bind_refused, written="blind")
def posted_write_window_on_read_only_region(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int
) -> bool:
    """A type 2 window with REMOTE_WRITE is bound to a region without LOCAL_WRITE."""
    if window.kind == 2:
        access &= ~_WRITING
    return plain(self).bind_refused(window, region, addr, length, access)


@violates("BIND-05", Device.lacks_local_write, written="blind")
def write_window_beside_read_on_read_only_region(self: Device, region: Region, access: int) -> bool:
    """REMOTE_WRITE | REMOTE_READ on a region without LOCAL_WRITE is bound."""
    return plain(self).lacks_local_write(region, access) and not access & REMOTE_READ


@violates("BIND-05", Device.window_allows, written="blind")
def write_window_needs_remote_write_of_the_region(self: Device, window: Window, right: int) -> bool:
    """A window writes only where its region has REMOTE_WRITE too, though LOCAL_WRITE is all that is required."""
    region = window.region
    denied = right == REMOTE_WRITE and region is not None and not region.access & REMOTE_WRITE
    return plain(self).window_allows(window, right) and not denied


@violates("BIND-06", Device.window_allows)
def read_window_is_closed(self: Device, window: Window, right: int) -> bool:
    """A window's REMOTE_READ has no effect."""
    return right != REMOTE_READ and plain(self).window_allows(window, right)


@violates("BIND-06", Device.lacks_local_write)
def read_window_needs_local_write(self: Device, region: Region, access: int) -> bool:
    """A window with REMOTE_READ requires LOCAL_WRITE of its region."""
    return bool(access) and not region.access & LOCAL_WRITE


@violates("BIND-06", Device.window_allows)
def read_windows_can_be_written(self: Device, window: Window, right: int) -> bool:
    """A window's REMOTE_READ grants writes."""
    return plain(self).window_allows(window, right) or (right == REMOTE_WRITE and bool(window.access & REMOTE_READ))


@violates("BIND-06", Device.window_allows, written="blind")
def read_window_needs_remote_read_of_the_region(self: Device, window: Window, right: int) -> bool:
    """A window reads only where its region has REMOTE_READ too."""
    region = window.region
    denied = right == REMOTE_READ and region is not None and not region.access & REMOTE_READ
    return plain(self).window_allows(window, right) and not denied


@violates("BIND-06", Device.lacks_local_write, name="read-window-needs-local-write", written="blind")
def read_only_window_needs_local_write(self: Device, region: Region, access: int) -> bool:
    """A window that only reads cannot be bound to a region without LOCAL_WRITE."""
    return not region.access & LOCAL_WRITE and bool(access & (_WRITING | REMOTE_READ))


@violates("BIND-06", Device.window_allows, written="blind")
def read_lost_beside_write_in_posted_windows(self: Device, window: Window, right: int) -> bool:
    """A type 2 window with REMOTE_WRITE | REMOTE_READ cannot be read."""
    lost = right == REMOTE_READ and window.kind == 2 and window.access & REMOTE_WRITE
    return plain(self).window_allows(window, right) and not lost


@violates("BIND-07", Device.lacks_local_write)
def atomic_window_of_read_only(self: Device, region: Region, access: int) -> bool:
    """A window with REMOTE_ATOMIC can be bound to a region without LOCAL_WRITE."""
    return bool(access & REMOTE_WRITE) and not region.access & LOCAL_WRITE


@violates("BIND-07", Device.bind_refused)
def atomic_window_refused(
    self: Device, window: Window, region: Region | None, addr: int, length: int, access: int
) -> bool:
    """A window with REMOTE_ATOMIC is refused although atomics are declared."""
    return bool(access & REMOTE_ATOMIC) or plain(self).bind_refused(window, region, addr, length, access)


@violates("BIND-07", Device.window_allows)
def atomic_window_is_closed(self: Device, window: Window, right: int) -> bool:
    """A window's REMOTE_ATOMIC has no effect."""
    return right != REMOTE_ATOMIC and plain(self).window_allows(window, right)


@violates("BIND-07", Device.lacks_local_write, written="blind")
def atomic_window_on_read_only_region(self: Device, region: Region, access: int) -> bool:
    """A window with REMOTE_ATOMIC alone is bound to a region without LOCAL_WRITE."""
    return plain(self).lacks_local_write(region, access & ~REMOTE_ATOMIC)


@violates("BIND-07", Device.window_allows, written="blind")
def write_windows_serve_atomics(self: Device, window: Window, right: int) -> bool:
    """A window with REMOTE_WRITE serves atomics as well."""
    return plain(self).window_allows(
        window,
        right & ~REMOTE_ATOMIC | REMOTE_WRITE if right == REMOTE_ATOMIC and window.access & REMOTE_WRITE else right,
    )


@violates("BIND-07", Device.window_allows, written="blind")
def posted_atomic_windows_serve_none(self: Device, window: Window, right: int) -> bool:
    """A type 2 window with REMOTE_ATOMIC refuses atomics."""
    return plain(self).window_allows(window, right) and not (right == REMOTE_ATOMIC and window.kind == 2)


@permits("BIND-07", Device.complete, written="blind")
def successes_carry_vendor_numbers(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """A completion with success has a vendor's number beside it."""
    plain(self).complete(queue, request, status)
    if queue.polled and status == SUCCESS and self.asks_completion(queue, request.flags):
        queue.polled.append(queue.polled.pop()._replace(vendor_err=1))


@violates("BIND-08", Device.window_base)
def zero_based_window_ignored(self: Device, window: Window) -> int:
    """A window with ZERO_BASED is addressed by pointers."""
    return window.addr


@violates("BIND-08", Device.window_base)
def zero_based_from_the_region(self: Device, window: Window) -> int:
    """A window with ZERO_BASED is addressed from the beginning of its region."""
    start = window.addr - window.region.iova if window.region else 0
    return start if window.access & ZERO_BASED else window.addr


@violates("BIND-08", Device.window_base, written="blind")
def zero_based_window_from_its_page(self: Device, window: Window) -> int:
    """ZERO_BASED counts from the beginning of the page in which the window starts."""
    return window.addr % PAGE if window.access & ZERO_BASED else plain(self).window_base(window)


@violates("BIND-08", Device.window_base, written="blind")
def zero_based_window_from_its_region(self: Device, window: Window) -> int:
    """ZERO_BASED counts from the region's first byte instead of the window's."""
    if window.access & ZERO_BASED and window.region:
        return window.addr - window.region.iova
    return plain(self).window_base(window)


@violates("BIND-08", Device.window_base, written="blind")
def zero_based_ignored_in_posted_binds(self: Device, window: Window) -> int:
    """ZERO_BASED is ignored for type 2 windows."""
    return window.addr if window.kind == 2 else plain(self).window_base(window)


@violates("BIND-08", Device.through_window, written="blind")
def zero_based_window_on_zero_based_region(
    self: Device, window: Window, domain: Domain, queue: int, addr: int, length: int, right: int
) -> int | None:
    """A ZERO_BASED window on a ZERO_BASED region is found at the region's beginning."""
    place = plain(self).through_window(window, domain, queue, addr, length, right)
    region = window.region
    if place is not None and region and region.access & window.access & ZERO_BASED:
        place -= window.addr
    return place


@violates("BIND-09", Device.window_allows)
def window_has_the_regions_rights(self: Device, window: Window, right: int) -> bool:
    """A window allows what its region allows."""
    return plain(self).window_allows(window, right) or (window.region is not None and self.allows(window.region, right))


@violates("BIND-09", Device.window_allows)
def no_rights_is_all_rights(self: Device, window: Window, right: int) -> bool:
    """A window bound with access flags 0 allows everything."""
    return not window.access or plain(self).window_allows(window, right)


@violates("BIND-09", Device.bind_refused)
def no_rights_refused(self: Device, window: Window, region: Region | None, addr: int, length: int, access: int) -> bool:
    """A bind with access flags 0 is refused."""
    return (length > 0 and not access) or plain(self).bind_refused(window, region, addr, length, access)


@violates("BIND-09", Device.bind_argument_fault, written="blind")
def bind_without_rights_refused(
    self: Device, queue: Domain, window: Window, region: Region | None, length: int, access: int
) -> int:
    """A bind with access flags 0 is refused."""
    if region is not None and length and not access:
        return errno.EINVAL
    return plain(self).bind_argument_fault(queue, window, region, length, access)


@violates("BIND-09", Device.window_allows, written="blind")
def atomics_by_the_regions_right(self: Device, window: Window, right: int) -> bool:
    """A window without REMOTE_ATOMIC serves atomics where its region allows them."""
    region = window.region
    leaks = right == REMOTE_ATOMIC and region is not None and region.access & REMOTE_ATOMIC
    return bool(leaks) or plain(self).window_allows(window, right)


@violates("BIND-09", written="blind")
class RightsOfTheBindBefore(Device):
    """A window that is bound again keeps the rights of its last binding."""

    def setup(self) -> None:
        self._rights: dict[int, int] = {}

    def bind(
        self, window: Window, region: Region | None, addr: int, length: int, access: int, key: int, queue: int
    ) -> None:
        super().bind(window, region, addr, length, access, key, queue)
        if region is not None and length:
            old = self._rights.get(id(window), 0) & ~ZERO_BASED
            self._rights[id(window)] = access
            window.access |= old

    def dealloc_mw(self, window: Window) -> None:
        super().dealloc_mw(window)
        self._rights.pop(id(window), None)


@violates("BIND-09", Device.window_allows, written="blind")
def rights_of_a_sibling_window(self: Device, window: Window, right: int) -> bool:
    """A window has the rights of another window on the same range of its region as well."""
    region = window.region
    siblings = region.windows if region else []
    return plain(self).window_allows(window, right) or any(
        each.access & right == right and (each.addr, each.length) == (window.addr, window.length) for each in siblings
    )


@violates("BIND-09", Device.window_allows, written="blind")
def no_rights_mean_read(self: Device, window: Window, right: int) -> bool:
    """A window bound with access flags 0 can be read."""
    bare = not window.access and window.region is not None and right == REMOTE_READ
    return bare or plain(self).window_allows(window, right)
