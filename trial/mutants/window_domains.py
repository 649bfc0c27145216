"""The protection domain and the queue pair of a window, and who may invalidate it."""

from __future__ import annotations

import errno

from conformance.bench.work_requests import BindInfo, SendRequest
from reference.device import Device
from reference.objects import REMOTE_ATOMIC, REMOTE_READ, Domain, Region, Window
from reference.queues import SUCCESS, Queue
from trial.mutants.bases import ATOMICS, Watching
from trial.violation import permits, plain, violates


@violates("BIND-18", Device.other_domain)
def region_of_any_domain(self: Device, queue: Domain, window: Window, region: Region) -> bool:
    """Only window and queue pair have to be of one domain; the region may be of another."""
    return window.domain is not queue


@violates("BIND-18", name="queue-of-another-domain-binds", written="blind")
@violates("BIND-18", Device.other_domain)
def queue_pair_of_any_domain(self: Device, queue: Domain, window: Window, region: Region) -> bool:
    """A window may be bound over the queue pair of another domain."""
    return window.domain is not region.domain


@violates("BIND-18", Device.window_opens)
def atomic_windows_ignore_the_domain(self: Device, window: Window, domain: Domain, queue: int) -> bool:
    """A window with the right to atomics is open to the queue pairs of every domain."""
    return bool(window.access & REMOTE_ATOMIC) or plain(self).window_opens(window, domain, queue)


@violates("BIND-18", Device.other_domain, written="blind")
def posted_bind_to_a_foreign_region(self: Device, queue: Domain, window: Window, region: Region) -> bool:
    """A type 2 window is bound to a region of another PD."""
    if window.kind == 2:
        return window.domain is not queue
    return plain(self).other_domain(queue, window, region)


@violates("BIND-18", Device.bind_argument_fault, written="blind")
def foreign_window_for_reads(
    self: Device, queue: Domain, window: Window, region: Region | None, length: int, access: int
) -> int:
    """A window of another PD than region and queue pair is bound if it only reads."""
    fault = plain(self).bind_argument_fault(queue, window, region, length, access)
    foreign = fault == errno.EPERM and access == REMOTE_READ and region is not None and queue is region.domain
    return 0 if foreign else fault


@violates("BIND-18", Watching.window_opens, written="blind")
def window_atomics_from_any_domain(self: Watching, window: Window, domain: Domain, queue: int) -> bool:
    """An atomic through a type 1 window's key is served whatever PD the queue pair is of."""
    return (window.kind == 1 and self.opcode in ATOMICS) or plain(self).window_opens(window, domain, queue)


@violates("BIND-18", Device.window_opens, written="blind")
def posted_window_for_every_queue(self: Device, window: Window, domain: Domain, queue: int) -> bool:
    """A type 2 window opens for every queue pair of whatever PD once it is bound."""
    return window.kind == 2 or plain(self).window_opens(window, domain, queue)


@permits("BIND-18", Device.bind_fault, written="blind")
def foreign_binds_are_invalid(
    self: Device, queue: Queue, window: Window, region: Region | None, info: BindInfo, posted: bool
) -> int:
    """A bind of objects of two PDs is refused with EINVAL."""
    fault = plain(self).bind_fault(queue, window, region, info, posted)
    return errno.EINVAL if fault == errno.EPERM else fault


@violates("BIND-19", Device.window_opens)
def any_queue_pair_opens(self: Device, window: Window, domain: Domain, queue: int) -> bool:
    """A window of type 2 can be accessed through every queue pair of its PD."""
    return window.domain is domain


@violates("BIND-19", Device.remote_invalidate)
def peers_invalidate_any_window(self: Device, key: int, queue: Queue) -> bool:
    """A SEND with invalidation ends a window whatever queue pair it arrives on."""
    window = self.keys.get(key)
    if isinstance(window, Window) and window.kind == 2 and window.region is not None:
        self.unbind(window)
        return True
    return False


@violates("BIND-19", Device.local_invalidate)
def failed_invalidations_are_reported_as_done(self: Device, key: int, queue: Queue) -> bool:
    """An invalidation that ends nothing succeeds."""
    plain(self).local_invalidate(key, queue)
    return True


@violates("BIND-19", Device.local_invalidate, written="blind")
def any_queue_invalidates(self: Device, key: int, queue: Queue) -> bool:
    """A local invalidation through another queue pair of the same PD ends the window."""
    window = self.keys.get(key)
    number = window.queue if isinstance(window, Window) and window.region else queue.number
    return self.invalidate(key, number, queue.domain)


@violates("BIND-19", Device.local_invalidate, written="blind")
def unknown_keys_invalidate(self: Device, key: int, queue: Queue) -> bool:
    """Invalidating a key that is nobody's succeeds."""
    return key not in self.keys or plain(self).local_invalidate(key, queue)


@violates("BIND-19", Device.remote_invalidate, written="blind")
def regions_key_invalidated(self: Device, key: int, queue: Queue) -> bool:
    """A SEND with invalidation of a region's key ends that key."""
    found = self.keys.get(key)
    if isinstance(found, Region) and found.domain is queue.domain:
        found.usable = False
        return True
    return plain(self).remote_invalidate(key, queue)


@violates("BIND-19", Device.local_invalidate, written="blind")
def type_one_window_invalidated(self: Device, key: int, queue: Queue) -> bool:
    """A local invalidation of a type 1 window's key takes it off its region."""
    found = self.keys.get(key)
    if isinstance(found, Window) and found.kind == 1 and found.region:
        self.unbind(found)
        return True
    return plain(self).local_invalidate(key, queue)


@violates("BIND-19", Device.invalidate, written="blind")
def invalidated_twice_succeeds(self: Device, key: int, queue: int, domain: Domain) -> bool:
    """A second invalidation of the same key succeeds."""
    found = self.keys.get(key)
    ended = isinstance(found, Window) and found.kind == 2 and found.region is None and found.domain is domain
    return ended or plain(self).invalidate(key, queue, domain)


@violates("BIND-19", Device.invalidate, written="blind")
def failed_invalidation_ends_the_window(self: Device, key: int, queue: int, domain: Domain) -> bool:
    """An invalidation through another queue pair fails, and yet the window is ended."""
    found = self.keys.get(key)
    done = plain(self).invalidate(key, queue, domain)
    if not done and isinstance(found, Window) and found.kind == 2 and found.region:
        self.unbind(found)
    return done


@permits("BIND-19", Device.window_opens, written="blind")
def posted_windows_of_the_queue_pair(self: Device, window: Window, domain: Domain, queue: int) -> bool:
    """A type 2 window is of the kind 2A, which belongs to a queue pair only; that of a PD is not checked besides."""
    return window.queue == queue if window.kind == 2 else plain(self).window_opens(window, domain, queue)


@permits("BIND-19", Device.complete, written="blind")
def failed_invalidations_are_protection_errors(self: Device, queue: Queue, request: SendRequest, status: str) -> None:
    """An invalidation that fails completes with LOC_PROT_ERR."""
    failed = request.opcode == "LOCAL_INV" and status not in (SUCCESS, "WR_FLUSH_ERR")
    plain(self).complete(queue, request, "LOC_PROT_ERR" if failed else status)


@violates("BIND-19a", Device.told_invalidation)
def invalidation_is_not_told(self: Device, key: int) -> int | None:
    """The receiver of a SEND with invalidation is not told that a key has been invalidated."""
    return None


@violates("BIND-19a", Device.told_invalidation)
def invalidation_of_the_wrong_key_is_told(self: Device, key: int) -> int | None:
    """The receiver of a SEND with invalidation is told the index of the key without its lowest byte."""
    return key & ~0xFF


@violates("BIND-19b", Device.post_fault)
def no_local_invalidation_over_uc(self: Device, queue: Queue, opcode: str) -> int:
    """A local invalidation cannot be posted to a queue pair of type UC."""
    refused = queue.kind == "UC" and opcode == "LOCAL_INV"
    return errno.EOPNOTSUPP if refused else plain(self).post_fault(queue, opcode)


@violates("BIND-19b", Device.local_invalidate)
def local_invalidation_over_uc_fails(self: Device, key: int, queue: Queue) -> bool:
    """A local invalidation over a queue pair of type UC completes with an error."""
    return queue.kind != "UC" and plain(self).local_invalidate(key, queue)


@violates("BIND-19b", Device.local_invalidate)
def local_invalidation_over_uc_holds_the_region(self: Device, key: int, queue: Queue) -> bool:
    """A local invalidation over a queue pair of type UC succeeds, and the window holds its region as before."""
    return queue.kind == "UC" or plain(self).local_invalidate(key, queue)


@violates("BIND-19b", Device.post_fault, written="blind")
def no_invalidation_on_uc(self: Device, queue: Queue, opcode: str) -> int:
    """SEND with invalidation and local invalidation are refused on UC."""
    refused = queue.kind == "UC" and opcode in ("LOCAL_INV", "SEND_WITH_INV")
    return errno.EINVAL if refused else plain(self).post_fault(queue, opcode)
