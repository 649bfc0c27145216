"""Handles command lines in results: checks those of others before a user copies them, and leaves out values that may
be secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

from conformance.errors import RECORDED_PROGRAM
from conformance.option import Option, name_of
from conformance.run_options import OPTIONS

# A command in the form of `shlex.join`, with the point of a sweep after its case.
_COMMAND = re.compile(r"""(?:\./)?rdma-cts run(?: (?:[\w@%+=:,./#-]|'[^']*'|"'")+)*""", re.ASCII)
_CASE = re.compile(r"[\w@%+=:,./#][\w@%+=:,./#-]*", re.ASCII)  # an id that needs no quotes

_PROGRAMS = ("./rdma-cts", "rdma-cts")


@cache
def _running_flags() -> frozenset[str]:
    """The options of a command that only runs cases."""
    flags = {option.flag for option in OPTIONS.values() if option.decides}
    return frozenset(flags | {OPTIONS["only"].flag})


def is_reproduction(text: str) -> bool:
    """Whether a recorded command only runs cases: it has no other syntax of the shell, and no option that starts another
    program. A user copies the command from the report of somebody else's run."""
    options, only, case = text.rpartition(" --only ")
    if only and _CASE.fullmatch(case):
        return _only_runs(options)
    return _only_runs(text)


@lru_cache(maxsize=256)  # the commands of a run differ only in their case
def _only_runs(text: str) -> bool:
    if not _COMMAND.fullmatch(text):
        return False
    words = shlex.split(text) if "'" in text else text.split(" ")
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    return given <= _running_flags()


LEFT_OUT = "left out"  # in place of a value that may be secret
# Variables with these prefixes select libraries and providers.
_SELECTS_CODE = ("LD_", "IBV_", "RDMAV_", "MLX4_", "MLX5_")


def recorded_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables as results have them. Only a value that selects code under test is recorded, because any
    other value may be secret."""
    shown = {}
    for name, value in variables.items():
        shown[name] = value if name.startswith(_SELECTS_CODE) else LEFT_OUT
    return shown


def without_values(argv: Sequence[str]) -> list[str]:
    """Returns the arguments of a command without the values of private options. Results travel in reports, bundles and
    mails, and the command line is a part of them."""
    shown: list[str] = []
    private: Option | None = None
    for word in argv:
        flag, equals, value = word.partition("=")
        if private:
            shown.append(_shown(private, word))
            private = None
            continue
        private = _private_option(flag)
        if private and equals:
            shown.append(f"{flag}={_shown(private, value)}")
            private = None
        else:
            shown.append(word)
    return shown


def called_here(text: str) -> str:
    """Returns a recorded command with the program as it is called here: a run of a checkout may be shown by an installed
    package."""
    program, space, rest = text.partition(" ")
    return f"{RECORDED_PROGRAM}{space}{rest}" if program in _PROGRAMS else text


def command_without_values(text: str) -> str:
    """Returns a command that `is_reproduction` accepts without the values of private options."""
    words = shlex.split(text)
    shown = without_values(words)
    return text if shown == words else shlex.join(shown)


def with_profile(text: str, profile: Path | None) -> str:
    """Returns the command of a case, which ends with the case, with this profile in place of its own, if any."""
    words = shlex.split(text)
    flag = OPTIONS["profile"].flag
    if flag in words:
        at = words.index(flag)
        del words[at : at + 2]
    if profile:
        words[-2:-2] = [flag, str(profile)]
    return shlex.join(words)


def _private_option(flag: str) -> Option | None:
    """Returns the private option that a word names. argparse also accepts the beginning of a name, unless it is a whole
    name: --guest is not --guest-env."""
    if len(flag) <= len("--"):
        return None
    by_flag = {option.flag: option for option in OPTIONS.values()}
    matching = [by_flag[flag]] if flag in by_flag else by_flag.values()
    for option in matching:
        if option.private and option.flag.startswith(flag):
            return option
    return None


def _shown(option: Option, value: str) -> str:
    if option.name == "guest_env":
        return name_of(value)
    return LEFT_OUT
