"""References that differ from the documents in single methods. A helper of tests."""

from collections.abc import Callable
from functools import partial
from typing import Any

from reference.device import Device
from reference.objects import Refused


def device(**methods: Callable[..., Any]) -> Device:
    """A reference with these methods; the first argument of each is the reference's own method."""
    made = Device()
    for name, method in methods.items():
        setattr(made, name, partial(method, getattr(made, name)))
    return made


def recording(calls: list[Any]) -> Callable[..., Any]:
    """The reference's own method, which also records the arguments of each call."""

    def method(was: Callable[..., Any], *arguments: object) -> Any:
        calls.append(arguments)
        return was(*arguments)

    return method


def refusing(errno: int) -> Callable[..., Any]:
    """A method that refuses every call."""

    def refuse(*_: object) -> None:
        raise Refused(errno)

    return refuse
