"""On-demand regions, and implicit ones."""

from reference.device import Device
from reference.memory import Memory
from reference.objects import ON_DEMAND, REMOTE_ATOMIC, Domain, Region
from trial.violation import violates


class _RememberingMemory(Memory):
    """Memory that answers with what it had been when it was first read, for the regions of `region`."""

    region = 0

    def __init__(self) -> None:
        super().__init__()
        self._read: dict[tuple[int, int, int], bytes] = {}

    def read(self, addr: int, length: int) -> bytes | None:
        name = (self.region, addr, length)
        if self.region and name in self._read:
            return self._read[name]
        content = super().read(addr, length)
        if content is not None and self.region:
            self._read[name] = content
        return content

    def write(self, addr: int, content: bytes) -> bool:
        self._read.clear()
        return super().write(addr, content)


@violates("REG-12", written="blind")
class OnDemandServesNoAtomicsOnFreshPages(Device):
    """An atomic on an on-demand region fails when it is the first operation on the region."""

    def setup(self) -> None:
        self._seen: set[int] = set()

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        found = self.found(rkey)
        if isinstance(found, Region) and found.access & ON_DEMAND and found.handle not in self._seen:
            self._seen.add(found.handle)
            if right == REMOTE_ATOMIC:
                return None
        return super().remote(rkey, domain, queue, addr, length, right)
