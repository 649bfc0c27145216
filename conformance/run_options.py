"""The options of a run as one value, and the command lines that are derived from it.

The same options are on the command line of `rdma-cts run`, in plan.json for --resume, and --rdma-… options of pytest on
the host and in the guest. RunOptions has their values; OPTIONS describes the syntax and the effect of each. All must be
the same when a run is carried on. Options that only affect the output (--out, --yes, -q) are not among them.

This module is a layer of its own: `commands` and `pytest_plugin` both need it, and `conformance` never imports
`commands`. Not for parsing arguments (commands/run_arguments.py).
"""

import argparse
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from conformance.errors import PROGRAM
from conformance.model.case import Case
from conformance.model.deadline import CASE_DEADLINE_S, COMPLETION_DEADLINE_S
from conformance.model.vocabulary import DIALECTS, SUBJECTS, TIERS
from conformance.tables.shards import Shard
from conformance.tables.suite import ROOT
from conformance.tables.tiers import DEFAULT, SEQUENCES_S

PLUGIN_PREFIX = "--rdma-"
HOST, GUEST = "host", "guest"
# Groups of the help text.
WHERE, BUILDS, CASES = "where", "one's own build under test", "which cases"
JUDGING, GENERAL = "how it is judged", "how it is run"

_DEVICE = re.compile(r"[^\s\0/,:]{1,63}")  # the kernel's IB_DEVICE_NAME_MAX is 64, with the NUL
# How long a host that has gone down may take to come back, in seconds: a server's firmware needs minutes.
RETURN_S = 300.0


def positive_seconds(text: str) -> float:
    """A finite number of seconds above 0. Raises ArgumentTypeError."""
    seconds = _number(text)
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds


def budget_seconds(text: str) -> float:
    """A finite number of seconds, 0 or more. Raises ArgumentTypeError."""
    seconds = _number(text)
    if not 0 <= seconds < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def positive_count(text: str) -> int:
    """A whole number above 0. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def whole_number(text: str) -> int:
    """A whole number, which may be negative. Raises ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def index(text: str) -> int:
    """A whole number, 0 or more. Raises ArgumentTypeError."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not an index, 0 or more")
    return int(text)


def word(text: str) -> str:
    """A text that is not blank: an empty one would be part of every id. Raises ArgumentTypeError."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not a word")
    return text


def given_path(text: str) -> Path:
    """A path. Raises ArgumentTypeError for an empty text, as of a variable that is not set: no directory is meant."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a path")
    return Path(text)


def device_name(text: str) -> str:
    """The name of a device, as in a directory of sysfs. Raises ArgumentTypeError for a text that can be none."""
    if not _DEVICE.fullmatch(text) or text in (".", ".."):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a device")
    return text


def device_names(text: str) -> str:
    """The same for several with commas between them."""
    for name in text.split(","):
        device_name(name)
    return text


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


@dataclass(frozen=True)
class Option:
    """The syntax and the effect of one field of RunOptions.

    `parse` converts the text to the value. A field whose default is False is a switch; one whose default is an empty
    tuple may be given several times. `decides`: the outcome of a case depends on it, so that the command which
    reproduces the case needs it. `only_on` is HOST or GUEST if it has no effect on the other target. `plugin`: it is
    also an option of pytest, as --rdma-….
    """

    name: str
    flag: str
    help: str
    group: str = GENERAL
    metavar: str | None = None
    parse: Callable[[str], Any] = str
    choices: tuple[str, ...] | None = None
    decides: bool = True
    only_on: str = ""
    plugin: bool = False

    @property
    def default(self) -> Any:
        """The value of the field if the option is not given."""
        return getattr(RunOptions, self.name)

    @property
    def plugin_flag(self) -> str:
        """The name of pytest's option."""
        return PLUGIN_PREFIX + self.flag.removeprefix("--")

    def settings(self, default: Any) -> dict[str, Any]:
        """Keyword arguments for argparse's add_argument and for pytest's addoption; the help names the default."""
        if self.default is False:
            return {"action": "store_true", "help": self.help}
        several = {"action": "append"} if self.default == () else {}
        chosen = {"choices": self.choices} if self.choices else {}
        shown = f" (default {format_value(default)})" if default else ""
        return {**several, **chosen, "type": self.parse, "metavar": self.metavar, "help": self.help + shown}

    def to_arguments(self, flag: str, value: Any) -> list[str]:
        """The arguments for `value`; none for the default. `flag` is the name to use, `flag` or `plugin_flag`."""
        if value == self.default:
            return []
        if value is True:
            return [flag]
        found = []
        for each in value if isinstance(value, tuple) else (value,):
            text = format_value(each)
            # As an argument of its own, a value that begins with a dash would be parsed as another option.
            found += [f"{flag}={text}"] if text.startswith("-") else [flag, text]
        return found


def format_value(value: Any) -> str:
    """The text of one value on a command line; `parse` of its option returns the same value."""
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _option(
    default: Any,
    help: str,
    group: str = GENERAL,
    metavar: str | None = None,
    parse: Callable[[str], Any] = str,
    *,
    flag: str = "",
    **more: Any,
) -> Any:
    """A field of RunOptions with its option, whose flag is the field's name unless it is given."""
    return field(default=default, metadata={"option": Option("", flag, help, group, metavar, parse, **more)})


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. After the target is determined, either `device` or `guest` is set."""

    device: str | None = _option(
        None,
        "a device of this host, as in /sys/class/infiniband; several of one kind share the cases",
        WHERE,
        "NAME[,NAME]",
        device_names,
        only_on=HOST,
        plugin=True,
    )
    port: int = _option(1, "its port", WHERE, "N", positive_count, only_on=HOST, plugin=True)
    gid_index: int | None = _option(None, "index in the port's GID table", WHERE, "N", index, only_on=HOST, plugin=True)
    peer: str | None = _option(
        None,
        "the device that posts requests, of the same host or another (default: loopback on the device under test)",
        WHERE,
        "[HOST:]DEVICE",
        word,
        only_on=HOST,
        plugin=True,
    )
    host: str | None = _option(
        None, "a device of this host, which is reached over ssh", WHERE, "[USER@]HOST[:PORT]", word, only_on=HOST
    )
    console: str | None = _option(
        None,
        "with --host: prints the host's console, as evidence when it dies",
        WHERE,
        "COMMAND",
        word,
        decides=False,
        only_on=HOST,
    )
    power_cycle: str | None = _option(
        None,
        "with --host: resets the host if it does not come back",
        WHERE,
        "COMMAND",
        word,
        decides=False,
        only_on=HOST,
    )
    return_within: float = _option(
        RETURN_S,
        "with --host: how long it may take to come back, by itself and after the reset",
        WHERE,
        "S",
        positive_seconds,
        decides=False,
        only_on=HOST,
    )
    guest: bool = _option(False, "the Soft-RoCE guest even if this host has a device", WHERE, only_on=GUEST)
    guests: int | None = _option(
        None,
        "how many guests run at the same time (default: one for each processor, as far as memory allows)",
        WHERE,
        "N",
        positive_count,
        decides=False,
        only_on=GUEST,
    )
    stack: str | None = _option(None, "the Debian that the guest is made of", WHERE, only_on=GUEST)
    driver: str | None = _option(None, "the driver of the guest's device", WHERE, only_on=GUEST)
    shared: bool = _option(False, "on a device: even if others have queue pairs on it", WHERE, only_on=HOST)
    isolate: str | None = _option(
        None, "on a device: as this user, who can change no result; as root only", WHERE, "USER", word, only_on=HOST
    )
    hazardous: bool = _option(False, "on a device: also what may take the kernel down", WHERE, only_on=HOST)
    kernel: Path | None = _option(
        None, "in the guest: this kernel (bzImage or vmlinuz)", BUILDS, "FILE", given_path, only_on=GUEST
    )
    modules: Path | None = _option(
        None,
        "in the guest: its modules, or single ones in place of the image's",
        BUILDS,
        "DIR",
        given_path,
        only_on=GUEST,
    )
    linux: Path | None = _option(
        None, "in the guest: its driver, compiled from this source tree", BUILDS, "TREE", given_path, only_on=GUEST
    )
    rdma_core: Path | None = _option(
        None, "a build tree or install prefix of rdma-core; in the guest, also a source tree", BUILDS, "DIR", given_path
    )
    overlay: Path | None = _option(
        None, "files to lay over the guest's root, as they are", BUILDS, "DIR", given_path, only_on=GUEST
    )
    guest_env: tuple[str, ...] = _option(
        (), "a variable of the guest's environment", BUILDS, "NAME=VALUE", only_on=GUEST
    )
    tools: tuple[str, ...] = _option(
        (),
        "Debian packages to add to the guest, such as strace, gdb or ibverbs-utils",
        BUILDS,
        "PACKAGE[,PACKAGE]",
        decides=False,
        only_on=GUEST,
    )
    strict_packages: bool = _option(
        False, "use no image made from package lists that have expired", BUILDS, decides=False, only_on=GUEST
    )
    without: tuple[str, ...] = _option(
        (), "a change that a mended stack is not to have (see docs/mended-stack.md)", BUILDS, "CHANGE", only_on=GUEST
    )
    keep: bool = _option(
        False, "keep each guest's drive and a script to start it again", BUILDS, decides=False, only_on=GUEST
    )
    verbs: tuple[str, ...] = _option((), "only this verb, e.g. reg_mr", CASES, "VERB", decides=False, flag="--verb")
    rules: tuple[str, ...] = _option((), "only what proves this rule", CASES, "ID", decides=False, flag="--rule")
    words: tuple[str, ...] = _option(
        (), "only ids with this word in them", CASES, "WORD", word, decides=False, flag="-k"
    )
    only: tuple[str, ...] = _option(
        (),
        "only the case of this id, or one point of a sweep: CASE#axis=value,axis=value; or by its fingerprint, all "
        "cases of a defect that a run in out/ has shown",
        CASES,
        "CASE",
        decides=False,
    )
    tier: str = _option(DEFAULT, "how much to take on", CASES, choices=tuple(TIERS), decides=False, plugin=True)
    shard: Shard | None = _option(
        None,
        "only the Kth of N parts of equal length, for N machines; merge makes one run of them",
        CASES,
        "K/N",
        Shard.parse,
        decides=False,
    )
    cases: tuple[Path, ...] = _option((), "also the tables in DIR/<verb>/", CASES, "DIR", given_path, plugin=True)
    profile: Path | None = _option(
        None, "what the device must have (see profiles)", JUDGING, "FILE", given_path, plugin=True
    )
    waivers: Path | None = _option(
        None, "violations that are known (see docs/waivers.md)", JUDGING, "FILE", given_path, decides=False
    )
    subject: str | None = _option(
        None,
        "what is judged; what the kernel's core or libibverbs answers fails no device (default: the device,"
        " in the guest the stack)",
        JUDGING,
        choices=SUBJECTS,
        decides=False,
    )
    no_confirm: bool = _option(False, "do not try each violation again alone", JUDGING, decides=False)
    dialect: str | None = _option(
        None, "whose ibv_rereg_mr the library has, if not as its exports tell", JUDGING, choices=DIALECTS, plugin=True
    )
    poster: str | None = _option(
        None,
        "post requests over RC, UC and UD by the builders of ibv_wr_post(3) wherever these can, not by ibv_post_send",
        JUDGING,
        choices=("wr",),
        plugin=True,
    )
    case_deadline_s: float = _option(
        CASE_DEADLINE_S,
        "a case that takes longer hangs; one completion is awaited for a sixth of it,"
        f" {COMPLETION_DEADLINE_S:g} s at most",
        GENERAL,
        "S",
        positive_seconds,
        plugin=True,
        flag="--deadline",
    )
    seed: int | None = _option(
        None,
        "shuffle cases and points, the same way for the same N; random sequences begin there",
        GENERAL,
        "N",
        whole_number,
        plugin=True,
    )
    sequences: float = _option(
        SEQUENCES_S,
        "how many seconds the exhaustive tier tries random sequences at each entry; 0: not at all",
        GENERAL,
        "S",
        budget_seconds,
        plugin=True,
    )

    def seen_from_project(self, directory: Path) -> "RunOptions":
        """The same run for a command in the project's directory: paths relative to `directory` become absolute."""
        if directory == ROOT:
            return self
        paths: dict[str, Any] = {name: directory / each for name, each in vars(self).items() if isinstance(each, Path)}
        return replace(self, cases=tuple(directory / folder for folder in self.cases), **paths)

    def on(self, device: str) -> "RunOptions":
        """The same run on a target: a device of this host or, if `device` is empty, the guest."""
        return replace(self, device=device or None, guest=not device)

    def has_effect(self, option: Option) -> bool:
        """Whether an option has an effect on the target; before the target is determined, every option counts."""
        return option.only_on != (HOST if self.guest else GUEST if self.device else None)

    def deciding(self) -> "RunOptions":
        """The run with only the options that affect the outcome of a case on its target; others have defaults."""
        others = {name: each.default for name, each in OPTIONS.items() if not (each.decides and self.has_effect(each))}
        return replace(self, **others)

    def of_case(self, case: Case) -> "RunOptions":
        """The run of one case alone, on the same target and with the same outcome.

        A hazardous case needs --hazardous on a host, which else leaves it out.
        """
        return replace(
            self.deciding(), only=(case.id,), hazardous=not self.guest and (self.hazardous or case.hazardous)
        )

    def arguments(self) -> list[str]:
        """The arguments of `rdma-cts run` for this run; --only comes last."""
        last = OPTIONS["only"]
        chosen = [(each, getattr(self, name)) for name, each in OPTIONS.items() if each is not last]
        return [word for each, value in [*chosen, (last, self.only)] for word in each.to_arguments(each.flag, value)]

    def reproduction(self, case: Case, device: str = "") -> str:
        """The shell command that runs one case alone (see of_case), on that `device` if several are under test.

        The case's id is at its end.
        """
        alone = self.of_case(case)
        return shlex.join([PROGRAM, "run", *replace(alone, device=device or alone.device).arguments()])

    @property
    def judged_subject(self) -> str:
        """What the run passes judgement on, once the target is determined."""
        return self.subject or ("stack" if self.guest else "device")

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices of this host that share the cases; empty for the guest."""
        return tuple((self.device or "").split(",")) if self.device else ()

    def plugin_arguments(self) -> list[str]:
        """The --rdma-… arguments of pytest for this run, without those that select cases."""
        run = self.deciding()
        chosen = [(each, getattr(run, name)) for name, each in OPTIONS.items() if each.plugin]
        return [word for each, value in chosen for word in each.to_arguments(each.plugin_flag, value)]

    def inside_guest(self, device: str, cases: tuple[Path, ...], profile: Path | None) -> "RunOptions":
        """The options of pytest inside the guest, where the device is one of the host, and files have other paths."""
        return replace(self.deciding(), guest=False, device=device, cases=cases, profile=profile)


def _named(name: str, option: Option) -> Option:
    return replace(option, name=name, flag=option.flag or f"--{name.replace('_', '-')}")


# The option of each field, by the field's name, in the order of --help.
OPTIONS: Mapping[str, Option] = {each.name: _named(each.name, each.metadata["option"]) for each in fields(RunOptions)}
