"""On-demand memory by transport: declared operations that are not carried out, and windows and advice on this
memory."""

from reference.device import Device
from reference.objects import ON_DEMAND, Region, Window


class _Declared(Device):
    """Some declared operations on on-demand memory are refused."""

    lacking: tuple[str, ...] = ()

    def not_on_demand_here(self, found: Region | Window | None) -> bool:
        region = found.region if isinstance(found, Window) else found
        on_demand = region is not None and region.access & ON_DEMAND
        return bool(on_demand and self.on_demand_need in self.lacking) or super().not_on_demand_here(found)


class _OnDemandWindows(Device):
    """A right of windows over on-demand regions has no effect."""

    denied = 0

    def window_allows(self, window: Window, right: int) -> bool:
        on_demand = window.region is not None and window.region.access & ON_DEMAND
        return not (on_demand and right == self.denied) and super().window_allows(window, right)
