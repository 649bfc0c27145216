"""References that differ from the documents in single methods. A helper of tests."""

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

from reference.device import Device
from reference.objects import Refused


def device(**methods: Callable[..., Any]) -> Device:
    """A reference with these methods; the first argument of each is the reference's own method."""
    made = Device()
    for name, method in methods.items():
        setattr(made, name, partial(method, getattr(made, name)))
    return made


def refusing(errno: int) -> Callable[..., Any]:
    """A method that refuses every call."""
    return Mock(side_effect=Refused(errno))
