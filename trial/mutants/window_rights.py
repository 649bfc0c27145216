"""What a window grants."""

from reference.device import Device
from reference.objects import LOCAL_WRITE, REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Region, Window
from trial.violation import plain, violates

_WRITING = REMOTE_WRITE | REMOTE_ATOMIC


@violates("BIND-06", Device.lacks_local_write, name="read-window-needs-local-write", written="blind")
def read_only_window_needs_local_write(self: Device, region: Region, access: int) -> bool:
    """A window that only reads cannot be bound to a region without LOCAL_WRITE."""
    return not region.access & LOCAL_WRITE and bool(access & (_WRITING | REMOTE_READ))


@violates("BIND-09", Device.window_allows, written="blind")
def rights_of_a_sibling_window(self: Device, window: Window, right: int) -> bool:
    """A window has the rights of another window on the same range of its region as well."""
    region = window.region
    siblings = region.windows if region else []
    return plain(self).window_allows(window, right) or any(
        each.access & right == right and (each.addr, each.length) == (window.addr, window.length) for each in siblings
    )
