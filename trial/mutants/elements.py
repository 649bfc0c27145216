"""Lists of SGEs."""

from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.device import Device
from reference.objects import Region
from reference.queues import Queue
from trial.violation import plain, violates


@violates("REG-26", Device.gather, written="blind")
def second_elements_range_unchecked(self: Device, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
    """The range of every element but the first is not held against its region when it is read."""
    content = plain(self).gather(queue, sges[:1])
    for sge in sges[1:]:
        found = self.found(sge.lkey)
        if not sge.length:
            continue
        if content is None or not isinstance(found, Region) or not self.opens_locally(found, queue.domain):
            return None
        part = self.memory.read(self.translate(found, sge.addr), sge.length)
        if part is None:
            return None
        content += part
    return content


@violates("REG-26", Device.gather, written="blind")
def second_element_from_any_domain(self: Device, queue: Queue, sges: Sequence[Sge]) -> bytes | None:
    """Of several elements only the first has to be of the queue pair's PD."""
    own, content = queue.domain, b""
    for number, sge in enumerate(sges):
        found = self.found(sge.lkey)
        if number and isinstance(found, Region):
            queue.domain = found.domain
        part = plain(self).gather(queue, [sge])
        queue.domain = own
        if part is None:
            return None
        content += part
    return content
