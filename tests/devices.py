"""Makes references in which a test has replaced single methods."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

from trial.reference.device import Device
from trial.reference.objects import Refused


def device(**methods: Callable[..., Any]) -> Device:
    """Returns a reference with these methods; each gets the method that it replaces as its first argument."""
    device_stand_in = Device()
    for name, method in methods.items():
        setattr(device_stand_in, name, partial(method, getattr(device_stand_in, name)))
    return device_stand_in


def refusing(errno: int) -> Callable[..., Any]:
    """Returns a method that refuses every call with this errno."""
    return Mock(side_effect=Refused(errno))
