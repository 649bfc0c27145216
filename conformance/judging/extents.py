"""The ranges of keys, and the operations that leave them. Addresses are assumed: a range is compared with another of the
same case."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from conformance.judging.regions import Region
from conformance.model.case import Argument, Arguments, MemorySpec, mask_of
from conformance.model.positions import locate
from conformance.model.quantity import WRAP, Quantity
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
# The page sizes, and the distance between two objects, that are assumed when ranges are compared. The result does not
# depend on the page sizes, because all quantities of a table scale with these sizes.
_PAGE, _HUGE_PAGE, _APART = 4096, 2 << 20, 1 << 44


@dataclass(frozen=True)
class Extents:
    """The ranges of the regions and windows of a scene, by name. `places` has memory and dma-bufs, and `bound` the
    arguments of the last bind of each window."""

    places: Mapping[str, MemorySpec]
    regions: Mapping[str, Region]
    windows: Collection[str]
    bound: Mapping[str, Arguments | None]

    def exceeds(
        self, arguments: Arguments, quantity: Quantity, addr: Argument, length: Argument
    ) -> bool:
        """Whether an operation addresses bytes outside of the range of the key `quantity`."""
        name = next((name for name, _ in quantity.names), "")
        if name in self.windows:
            extent = self._window_extent(name)
        else:
            extent = self._region_extent(name)
        here, size = self._value(addr), self._value(length)
        if extent is None or here is None or size is None:
            return False
        position, operation = (
            str(arguments.get("position", "whole")),
            str(arguments.get("op", "")),
        )
        try:
            offset, size = locate(position, operation, here, size)
        except LookupError:
            return False
        start = (here + offset - extent[0]) % WRAP
        return size > 0 and start + size > extent[1]

    def _region_extent(self, name: str) -> tuple[int, int] | None:
        region = self.regions.get(name)
        if region is None or region.length is None:
            return None
        first, length = (
            0 if region.first is None else self._value(region.first),
            self._value(region.length),
        )
        if first is None or length is None:
            return None
        return (first, length)

    def _window_extent(self, name: str) -> tuple[int, int] | None:
        bound = self.bound.get(name)
        if bound is None:
            return None
        first = (
            0
            if mask_of(bound, "access") & _ACCESS.value_of("ZERO_BASED")
            else self._value(bound["addr"])
        )
        length = self._value(bound["length"])
        if first is None or length is None:
            return None
        return (first, length)

    def _value(self, argument: Argument) -> int | None:
        """Returns the value of a quantity, with an assumed address for each object; None if the value is unknown."""
        if not isinstance(argument, Quantity):
            return getattr(argument, "number", None)
        try:
            return argument.evaluate(_PAGE, _HUGE_PAGE, self._property)
        except LookupError:
            return None

    def _property(self, name: str, property_: str) -> int:
        """Returns the value of an object's property. Raises LookupError for values that the device determines."""
        if name in self.places:
            addr = _APART * (1 + list(self.places).index(name))
            size = self.places[name].size.evaluate(_PAGE, _HUGE_PAGE, self._property)
            return {"": addr, "addr": addr, "size": size, "end": addr + size}[property_]
        region = self.regions.get(name)
        value_here = region and {"addr": region.addr, "length": region.length}.get(property_)
        if value_here:
            value = self._value(value_here)
        else:
            value = None
        if value is None:
            raise LookupError(name)
        return value
