"""The protection domain and the queue pair of a window, and who may invalidate it."""

from reference.device import Device
from reference.objects import Region, Window
from reference.queues import Queue
from trial.violation import plain, violates


@violates("BIND-19", Device.remote_invalidate)
def peers_invalidate_any_window(self: Device, key: int, queue: Queue) -> bool:
    """A SEND with invalidation ends a window whatever queue pair it arrives on."""
    window = self.keys.get(key)
    if isinstance(window, Window) and window.kind == 2 and window.region is not None:
        self.unbind(window)
        return True
    return False


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
