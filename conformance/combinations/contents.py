"""The contents of memory before and after an operation: known bytes everywhere, and what a complete operation changes.
Afterwards each byte of the memory is compared, also outside of the ranges of the operation."""

from dataclasses import dataclass, field

from conformance.bench.memory_areas import CANARY
from conformance.combinations.extent import Extent
from conformance.combinations.stored import Stored
from conformance.older_python import zip


@dataclass(frozen=True)
class Range:
    """`length` bytes at the address `addr` of this process. `tested` is whether the memory is that of the region under
    test; else it is the other memory of the request."""

    addr: int
    length: int
    tested: bool


@dataclass
class Contents:
    """The memory of one point: the region's (`tested`) and the other. `extent` is the memory that the key opens."""

    memories: dict[bool, Stored]
    extent: Extent
    before: dict[bool, bytearray] = field(default_factory=dict)
    wanted: dict[bool, bytearray] = field(default_factory=dict)
    # Where bytes of the region under test would arrive in the other memory: the destination, and these bytes.
    guarded: list[tuple[int, bytes]] = field(default_factory=list)
    # The memories to which the operation would write beyond the end of the address space.
    nowhere: set[bool] = field(default_factory=set)
    # Where a datagram's header arrives, which is not compared: the memory, the first and the last offset.
    ignored: list[tuple[bool, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for tested, memory in self.memories.items():
            self.before[tested] = bytearray([CANARY]) * memory.size

    def put(self, place: Range, content: bytes) -> None:
        """Sets the contents of a range before the operation."""
        start = place.addr - self.memories[place.tested].addr
        self.before[place.tested][start : start + len(content)] = content

    def fill(self) -> None:
        """Writes the contents to the memory, and expects no change."""
        for tested, memory in self.memories.items():
            content = bytes(self.before[tested])
            memory.write(content)
            self.wanted[tested] = bytearray(content)

    def expect(self, place: Range, content: bytes, secret: bool = False) -> None:
        """Expects that a complete operation writes `content`. If `secret`, the bytes are those of the region under
        test, so a refused operation must not write them."""
        start = place.addr - self.memories[place.tested].addr
        self.wanted[place.tested][start : start + len(content)] = content
        if secret:
            self.guarded.append((start, content))

    def ignore(self, place: Range) -> None:
        """Does not compare the bytes of a range."""
        start = place.addr - self.memories[place.tested].addr
        self.ignored.append((place.tested, start, start + place.length))

    def states(self) -> tuple[str, str]:
        """Returns how much has changed in the memory of the region, and in the other: `all` of what a complete
        operation changes and nothing else, `nothing`, or `same` if a complete operation changes nothing; else which
        bytes changed. `own` is all of the other memory, if none of it comes from the region, `harmless` are other such
        bytes, and `within` are bytes that the key opens."""
        return self._state(True), self._state(False)

    def _state(self, tested: bool) -> str:
        memory = self.memories[tested]
        now = memory.read()
        before, wanted = bytes(self.before[tested]), bytes(self.wanted[tested])
        for where, start, end in self.ignored:
            if where is tested:
                now = now[:start] + before[start:end] + now[end:]
        if now == wanted and tested not in self.nowhere:
            if before == wanted:
                return "same"
            if tested or self.guarded:
                return "all"
            return "own"
        if now == before:
            return "nothing"
        if not tested and not self._leaked(now):
            return "harmless"
        if tested and self._within_extent(now, before):
            return "within"
        return f"part: {_first_change(now, before)}"

    def _within_extent(self, now: bytes, before: bytes) -> bool:
        """Returns whether only bytes have changed that the key opens."""
        start = self.extent.addr - self.memories[True].addr
        end = start + self.extent.length
        return now[:start] == before[:start] and now[end:] == before[end:]

    def _leaked(self, now: bytes) -> bool:
        """Returns whether the other memory has bytes of the region, where the operation would have written them."""
        return any(_has_any(now, start, content) for start, content in self.guarded)


def _has_any(now: bytes, start: int, content: bytes) -> bool:
    there = now[start : start + len(content)]
    return any(byte == secret for byte, secret in zip(there, content, strict=False))


def _first_change(now: bytes, before: bytes) -> str:
    pairs = zip(now, before, strict=True)
    changed = [at for at, (new, old) in enumerate(pairs) if new != old]
    return f"{len(changed)} bytes from {changed[0]:#x} to {changed[-1]:#x}"
