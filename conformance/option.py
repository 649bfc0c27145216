"""Defines what an option of a run is: its syntax, its help, its parser and its effect. run_options.py has the options."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

_T = TypeVar("_T")
PLUGIN_PREFIX = "--rdma-"
HOST, GUEST = "host", "guest"
# Groups of the help text.
WHERE, BUILDS, CASES = "where", "your own build under test", "which cases"
JUDGING, GENERAL = "how it is judged", "how it is run"

# Percent; with more, repetitions of a request would take longer than the deadline of a case.
_MOST_LOSSES = 30
_MOST_COUNT = 1_000_000  # of seconds, guests, days and others
_MOST_SEED = 2**63 - 1  # what fits into a signed integer of 64 bits, as all integers of results do
# the kernel's IB_DEVICE_NAME_MAX is 64, including the NUL
_DEVICE = re.compile(r"[^\s\0/,:]{1,63}")


def checked(
    convert: Callable[[str], _T],
    fits: Callable[[_T], object],
    what: str,
    most: int = _MOST_COUNT,
) -> Callable[[str], _T]:
    """Returns a function that converts a text, and raises ArgumentTypeError if the text is not `what`, or if it is a
    number above `most` or below its negative."""

    def parse(text: str) -> _T:
        with suppress(ValueError):
            value = convert(text)
            if isinstance(value, (int, float)) and math.inf > abs(value) > most:
                raise argparse.ArgumentTypeError(f"{text!r} is beyond the limit of {most:,}")
            if fits(value):
                return value
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")

    return parse


def _digits(text: str) -> int:
    return int(text if text.isascii() and text.isdigit() else "")


positive_seconds = checked(
    float,
    lambda seconds: 0 < seconds < math.inf,
    "a number of seconds above 0",
)
# less ends the worker before its first case
deadline_seconds = checked(
    float, lambda seconds: 1 <= seconds < math.inf, "a number of seconds, at least 1"
)
share_of_losses = checked(
    float,
    lambda percent: 0 < percent <= _MOST_LOSSES,
    f"a percentage above 0 and up to {_MOST_LOSSES}",
)
positive_count = checked(_digits, bool, "a number above 0")
whole_number = checked(int, lambda _: True, "a whole number", _MOST_SEED)
index = checked(_digits, lambda _: True, "an index, 0 or more")
# A blank word would select every case; an empty path is usually an unset variable of a shell. Both are refused.
word = checked(str, str.strip, "a word")
_path = checked(str, lambda text: text and "\0" not in text, "a path")
# The name of a device in sysfs.
device_name = checked(
    str,
    lambda text: _DEVICE.fullmatch(text) and text not in (".", ".."),
    "the name of a device",
)


def given_path(text: str) -> Path:
    return Path(_path(text))


def device_names(text: str) -> str:
    return ",".join(map(device_name, text.split(",")))


@dataclass(frozen=True)
class Option:
    """The syntax and the effect of one field of RunOptions.

    `parse` converts the text to the value. An option with the default False is a switch; an option with an empty tuple
    as its default may be given several times. `decides` is whether the outcome of a case depends on the option; the
    command that reproduces the case then has the option. `only_on` is HOST or GUEST if the option has an effect only
    there. `plugin` is whether pytest also has the option, as --rdma-…. The values of a `private` option may be secret:
    only the plan of the run has them. `standard` is the value that applies if an option with the default None is not
    given; the help text shows it.
    """

    name: str
    flag: str
    help: str
    metavar: str | None = None
    parse: Callable[[str], Any] = str
    group: str = GENERAL
    choices: tuple[str, ...] | None = None
    decides: bool = True
    only_on: str = ""
    plugin: bool = False
    private: bool = False
    standard: Any = None
    default: Any = None

    @property
    def plugin_flag(self) -> str:
        return PLUGIN_PREFIX + self.flag.removeprefix("--")

    def settings(self, default: Any) -> dict[str, Any]:
        """Returns keyword arguments for add_argument and addoption; the help text names the default."""
        if self.default is False:
            return {"action": "store_true", "help": self.help}
        if self.default == ():
            several = {"action": "append"}
        else:
            several = {}
        if self.choices:
            chosen = {"choices": self.choices}
        else:
            chosen = {}
        if default is None:
            standard = self.standard
        else:
            standard = default
        if standard:
            shown = f" (default {format_value(standard)})"
        else:
            shown = ""
        return {
            **several,
            **chosen,
            "type": self.parse,
            "metavar": self.metavar,
            "help": self.help + shown,
        }

    def to_arguments(self, flag: str, value: Any) -> list[str]:
        """Returns the arguments for `value`; none for the default. `flag` is self.flag or self.plugin_flag."""
        if value == self.default:
            return []
        if value is True:
            return [flag]
        words = []
        for item in value if isinstance(value, tuple) else (value,):
            text = format_value(item)
            # argparse would treat a separate argument that begins with a dash as an option.
            words += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
        return words


def format_value(value: Any) -> str:
    """Returns the text of a value on a command line. `parse` of the option converts this text back to the value."""
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def option(
    default: Any,
    help: str,
    metavar: str | None = None,
    parse: Callable[[str], Any] = str,
    *,
    flag: str = "",
    **more: Any,
) -> Any:
    """Returns a field of RunOptions with its option. Without `flag`, the flag is derived from the field's name."""
    return field(
        default=default,
        metadata={"option": Option("", flag, help, metavar, parse, default=default, **more)},
    )


on_host = partial(option, group=WHERE, only_on=HOST)
of_lost_host = partial(on_host, decides=False, private=True)
in_guest = partial(option, group=WHERE, only_on=GUEST)
build = partial(option, group=BUILDS, only_on=GUEST)
selecting = partial(option, group=CASES, decides=False)
judging = partial(option, group=JUDGING)


def name_of(variable: str) -> str:
    """Returns the name in NAME=VALUE."""
    return variable.partition("=")[0]
