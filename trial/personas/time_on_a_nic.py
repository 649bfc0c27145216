"""Adds up the time that cases would take on a NIC: the latencies of its calls, and the waits for completions that never
come. The time is computed and not waited for. The latencies are usual ones of a NIC with firmware commands; a device
with ten times these latencies needs less than ten times this time, because the waits stay the same."""

from collections.abc import Callable, Mapping
from typing import Any

from trial.reference.device import Device

# Seconds for each call, by the method of the reference that executes it.
LATENCIES_S: Mapping[str, float] = {
    "register": 60e-6,
    "reg_dmabuf_mr": 100e-6,
    "dereg_mr": 60e-6,
    "change": 120e-6,
    "alloc_pd": 20e-6,
    "dealloc_pd": 20e-6,
    "alloc_mw": 60e-6,
    "dealloc_mw": 60e-6,
    "create_qp": 600e-6,  # with its completion queue
    "destroy_qp": 600e-6,
    "move_qp": 300e-6,  # from RESET to RTS in three commands
    "reset_qp": 100e-6,
    "query_qp": 60e-6,
    "ibv_bind_mw": 5e-6,
    "post_send": 5e-6,  # until the request is complete
    "post_receive": 1e-6,
}


class OnANic(Device):
    """The base of a device that adds up its time in `spent_s`; `waited_s` is the part of the waits."""

    spent_s = waited_s = 0.0

    def waits(self, seconds: float) -> None:
        self.spent_s += seconds
        self.waited_s += seconds
        super().waits(seconds)


def on_a_nic(kind: type[Device]) -> type[OnANic]:
    """Returns a class of the reference whose objects add up their time."""
    timed = {name: _timed(getattr(kind, name), cost) for name, cost in LATENCIES_S.items()}
    return type(f"{kind.__name__}OnANic", (OnANic, kind), timed)


def _timed(method: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    def timed(device: OnANic, *arguments: Any, **named: Any) -> Any:
        device.spent_s += seconds
        return method(device, *arguments, **named)

    return timed
