"""Defines the options of a run as one value, and derives command lines from this value.

The same options appear on the command line of `rdma-cts run`, in plan.json for --resume, and as --rdma-… options on the
command line of pytest, on the host and in the guest. RunOptions has their values; OPTIONS describes the syntax and the
effect of each option. A run is resumed with the options with which it was started. Options that only affect the output
(--out, --yes, -q) are not in RunOptions.

The module is in `conformance` because both `commands` and `pytest_plugin` need it, and `conformance` never imports
`commands`. commands/cli/run_arguments.py parses arguments.
"""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from conformance.errors import RECORDED_PROGRAM
from conformance.model.case import Case
from conformance.model.deadline import CASE_DEADLINE_S, COMPLETION_DEADLINE_S
from conformance.model.vocabulary import DIALECTS, SUBJECTS, TIERS
from conformance.tables.health import HEALTH
from conformance.tables.suite import ROOT, Selection
from conformance.tables.tiers import DEFAULT, Shard

_T = TypeVar("_T")
PLUGIN_PREFIX = "--rdma-"
HOST, GUEST = "host", "guest"
# Groups of the help text.
WHERE, BUILDS, CASES = "where", "your own build under test", "which cases"
JUDGING, GENERAL = "how it is judged", "how it is run"

# the kernel's IB_DEVICE_NAME_MAX is 64, including the NUL
_DEVICE = re.compile(r"[^\s\0/,:]{1,63}")
# How long a host may take to restart after a crash, in seconds. The firmware of a server needs minutes.
RETURN_S = 300.0
# Percent; with more, repetitions of a request would take longer than the deadline of a case.
_MOST_LOSSES = 30


def checked(
    convert: Callable[[str], _T],
    fits: Callable[[_T], object],
    what: str,
) -> Callable[[str], _T]:
    """Returns a function that converts a text, and raises ArgumentTypeError if the text is not `what`."""

    def parse(text: str) -> _T:
        with suppress(ValueError):
            value = convert(text)
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
share_of_losses = checked(
    float,
    lambda percent: 0 < percent <= _MOST_LOSSES,
    f"a percentage above 0 and up to {_MOST_LOSSES}",
)
positive_count = checked(_digits, bool, "a number above 0")
whole_number = checked(int, lambda _: True, "a whole number")
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

    @property
    def default(self) -> Any:
        return getattr(RunOptions, self.name)

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


def _option(
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
        metadata={"option": Option("", flag, help, metavar, parse, **more)},
    )


_on_host = partial(_option, group=WHERE, only_on=HOST)
_of_lost_host = partial(_on_host, decides=False, private=True)
_in_guest = partial(_option, group=WHERE, only_on=GUEST)
_build = partial(_option, group=BUILDS, only_on=GUEST)
_case = partial(_option, group=CASES, decides=False)
_judging = partial(_option, group=JUDGING)


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. After the target is determined, either `device` or `guest` is set."""

    device: str | None = _on_host(
        None,
        "a device of this host, as in /sys/class/infiniband; several devices of the same kind share the cases",
        "NAME[,NAME]",
        device_names,
        plugin=True,
    )
    port: int = _on_host(1, "the port of the device", "N", positive_count, plugin=True)
    gid_index: int | None = _on_host(None, "index in the port's GID table", "N", index, plugin=True)
    peer: str | None = _on_host(
        None,
        "the device that posts requests, on this or another host (default: loopback on the device under test)",
        "[HOST:]DEVICE",
        word,
        plugin=True,
    )
    wire_peer: str | None = _on_host(
        None,
        "a machine with an ordinary network interface that sends packets to the device (docs/wire.md)",
        "[USER@]HOST[:INTERFACE]",
        word,
        plugin=True,
    )
    exporter: Path | None = _on_host(
        None,
        "a module of the suite's exporter of dma-bufs that move, compiled for the device's host (docs/data-path.md)",
        "FILE",
        given_path,
        plugin=True,
    )
    host: str | None = _on_host(
        None,
        "run on a device of HOST, which is reached over ssh",
        "[USER@]HOST[:PORT]",
        word,
    )
    console: str | None = _of_lost_host(
        None,
        "with --host: a command that prints the console of HOST, as evidence of a crash",
        "COMMAND",
        word,
    )
    power_cycle: str | None = _of_lost_host(
        None,
        "with --host: a command that resets HOST if HOST does not restart by itself",
        "COMMAND",
        word,
    )
    return_within: float = _on_host(
        RETURN_S,
        "with --host: seconds for HOST to restart by itself, and again after a reset",
        "S",
        positive_seconds,
        decides=False,
    )
    guest: bool = _in_guest(False, "run in the Soft-RoCE guest, even if this host has a device")
    guests: int | None = _in_guest(
        None,
        "the number of guests that run at the same time (default: one for each processor, if memory allows)",
        "N",
        positive_count,
        decides=False,
    )
    stack: str | None = _in_guest(None, "the Debian release in the guest")
    arch: str | None = _in_guest(None, "the architecture of the guest")
    driver: str | None = _in_guest(None, "the driver of the guest's device")
    shared: bool = _on_host(
        False,
        "on a device: run even if other processes have protection domains on it",
    )
    isolate: str | None = _on_host(
        None,
        "on a device: run as this user, who cannot change the results; needs root",
        "USER",
        word,
    )
    hazardous: bool = _on_host(False, "on a device: also run cases that may crash the kernel")
    kernel: Path | None = _build(
        None,
        "in the guest: this kernel (bzImage or vmlinuz)",
        "FILE",
        given_path,
    )
    modules: Path | None = _build(
        None,
        "in the guest: the modules of --kernel, or modules that replace those of the image",
        "DIR",
        given_path,
    )
    linux: Path | None = _build(
        None,
        "in the guest: the driver, compiled from this source tree",
        "TREE",
        given_path,
    )
    rdma_core: Path | None = _option(
        None,
        "a build tree or install prefix of rdma-core; in the guest, also a source tree",
        "DIR",
        given_path,
        group=BUILDS,
    )
    sanitize: bool = _build(
        False,
        "in the guest: compile rdma-core with AddressSanitizer, whose reports are violations",
    )
    overlay: Path | None = _build(
        None,
        "files to copy unchanged over the guest's root directory",
        "DIR",
        given_path,
    )
    guest_env: tuple[str, ...] = _build(
        (),
        "a variable of the guest's environment; without VALUE, the value is that of this environment",
        "NAME[=VALUE]",
        private=True,
    )
    tools: tuple[str, ...] = _build(
        (),
        "Debian packages to add to the guest, such as strace, gdb or ibverbs-utils",
        "PACKAGE[,PACKAGE]",
        decides=False,
    )
    strict_packages: bool = _build(
        False,
        "do not use an image whose package lists have expired",
        decides=False,
    )
    without: tuple[str, ...] = _build(
        (),
        "a change to leave out of a mended stack (see docs/mended-stack.md)",
        "CHANGE",
    )
    verify_calls: bool = _in_guest(
        False,
        "compare what a worker reports about a call of the kernel with the calls that the guest's kernel has traced",
        decides=False,
    )
    keep: bool = _build(
        False,
        "keep each guest's drive, and a script that starts the guest again",
        decides=False,
    )
    verbs: tuple[str, ...] = _case((), "only this verb, e.g. reg_mr", "VERB", flag="--verb")
    rules: tuple[str, ...] = _case((), "only the cases of this rule", "ID", flag="--rule")
    words: tuple[str, ...] = _case(
        (),
        "only cases with this word in the id",
        "WORD",
        word,
        flag="-k",
    )
    only: tuple[str, ...] = _case(
        (),
        "only the case with this id, or one point of a sweep: CASE#axis=value,axis=value; or all cases of a defect "
        "that a run in out/ has shown, given by the fingerprint of the defect",
        "CASE",
    )
    tier: str = _case(DEFAULT, "the tier of cases", choices=(HEALTH, *TIERS), plugin=True)
    shard: Shard | None = _case(
        None,
        "only part K of N parts of similar duration, for N machines; `merge` joins the parts",
        "K/N",
        Shard.parse,
    )
    cases: tuple[Path, ...] = _option(
        (),
        "also the tables in DIR/<verb>/",
        "DIR",
        given_path,
        plugin=True,
        group=CASES,
    )
    profile: Path | None = _judging(
        None,
        "the profile of the device, such as ci/rxe/profile.yaml",
        "FILE",
        given_path,
        plugin=True,
    )
    waivers: Path | None = _judging(
        None,
        "known violations (see docs/waivers.md)",
        "FILE",
        given_path,
        decides=False,
    )
    subject: str | None = _judging(
        None,
        "the subject of the verdicts; if it is the device, violations by the kernel's core or by libibverbs do not"
        " count (default: the device; in the guest, the stack)",
        choices=SUBJECTS,
        decides=False,
    )
    against: Path | None = _judging(
        None,
        "list first what is new against this earlier run, such as one of the stack as shipped",
        "RUN",
        given_path,
        decides=False,
    )
    no_confirm: bool = _judging(False, "do not repeat cases with a violation", decides=False)
    confirm: str | None = _judging(
        None,
        "which violations are repeated: drawn: three of each defect, and all hangs; all (default: drawn)",
        choices=("drawn", "all"),
        decides=False,
    )
    dialect: str | None = _judging(
        None,
        "the variant of ibv_rereg_mr, if the library's exports do not show it",
        choices=DIALECTS,
        plugin=True,
    )
    poster: str | None = _judging(
        None,
        "wr: post requests over RC, UC and UD with the builders of ibv_wr_post(3) instead of ibv_post_send, where"
        " possible; wire: the wire peer sends the requests of peers, where possible (docs/wire.md)",
        choices=("wr", "wire"),
        plugin=True,
    )
    wire_losses: float | None = _judging(
        None,
        "lose, repeat and reorder P %% of the packets between the wire peer and the device (docs/wire.md)",
        "P",
        share_of_losses,
        plugin=True,
    )
    deadline: float | None = _option(
        None,
        "seconds after which a case counts as hung; the deadline of one completion is a sixth of this time,"
        f" {COMPLETION_DEADLINE_S:g} s at most",
        "S",
        positive_seconds,
        plugin=True,
        standard=CASE_DEADLINE_S,
    )
    seed: int | None = _option(
        None,
        "shuffle cases and points, in the same way for the same N",
        "N",
        whole_number,
        plugin=True,
    )

    def seen_from_project(self, directory: Path) -> RunOptions:
        """Returns the same run for a command in the project's directory: relative paths become absolute."""
        if directory == ROOT:
            return self
        paths: dict[str, Any] = {
            name: directory / item for name, item in vars(self).items() if isinstance(item, Path)
        }
        return replace(self, cases=tuple(directory / folder for folder in self.cases), **paths)

    def on(self, device: str) -> RunOptions:
        """Returns the same run on a target: a device of this host or, if `device` is empty, the guest."""
        return replace(self, device=device or None, guest=not device)

    def has_effect(self, option: Option) -> bool:
        """Whether an option has an effect on the target; before the target is determined, every option counts."""
        return option.only_on != (HOST if self.guest else GUEST if self.device else None)

    def deciding(self) -> RunOptions:
        """Returns the run with only the options that affect the outcome of a case on the target."""
        undecided = {
            name: option.default
            for name, option in OPTIONS.items()
            if not (option.decides and self.has_effect(option))
        }
        return replace(self, **undecided)

    def for_target(self, device: str) -> RunOptions:
        """Returns the run on a target without the options that have no effect there."""
        run = self.on(device)
        idle = {
            name: option.default for name, option in OPTIONS.items() if not run.has_effect(option)
        }
        return replace(run, **idle)

    def of_case(self, case: Case) -> RunOptions:
        """Returns the run of only this case, on the same target and with the same outcome. On a host, a hazardous case
        is run only with --hazardous."""
        deciding = self.deciding()
        return replace(
            deciding,
            only=(case.id,),
            guest_env=tuple(map(name_of, deciding.guest_env)),
            hazardous=not self.guest and (self.hazardous or case.hazardous),
        )

    def arguments(self) -> list[str]:
        """Returns the arguments of `rdma-cts run` for this run; --only comes last."""
        last = OPTIONS["only"]
        chosen = [
            (option, getattr(self, name)) for name, option in OPTIONS.items() if option is not last
        ]
        return [
            word
            for name, value in [*chosen, (last, self.only)]
            for word in name.to_arguments(name.flag, value)
        ]

    def reproduction(self, case: Case, device: str = "") -> str:
        """Returns the shell command that runs only this case (see of_case), on `device` if several devices are under
        test. The command ends with the case's id."""
        alone = self.of_case(case)
        return shlex.join(
            [RECORDED_PROGRAM, "run", *replace(alone, device=device or alone.device).arguments()],
        )

    @property
    def selection(self) -> Selection:
        """The criteria of the run's cases."""
        return Selection(self.verbs, self.rules, self.words, self.only, self.tier)

    @property
    def beside_others(self) -> bool:
        """Whether the run is allowed while other processes use the device."""
        return self.shared or self.tier == HEALTH

    @property
    def judged_subject(self) -> str:
        """The subject of the run's verdicts, once the target is determined."""
        return self.subject or ("stack" if self.guest else "device")

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices of this host that share the cases; empty for the guest."""
        if self.device:
            return tuple((self.device or "").split(","))
        return ()

    def plugin_arguments(self) -> list[str]:
        """Returns the --rdma-… arguments of pytest for this run, without the arguments that select cases."""
        run = self.deciding()
        chosen = [(option, getattr(run, name)) for name, option in OPTIONS.items() if option.plugin]
        return [
            word for name, value in chosen for word in name.to_arguments(name.plugin_flag, value)
        ]

    def inside_guest(
        self,
        device: str,
        cases: tuple[Path, ...],
        profile: Path | None,
    ) -> RunOptions:
        """Returns the options of pytest in the guest, where `device` is local and the files have these paths."""
        return replace(self.deciding(), guest=False, device=device, cases=cases, profile=profile)


# A command in the form of `shlex.join`, with the point of a sweep after its case.
_COMMAND = re.compile(r"""(?:\./)?rdma-cts run(?: (?:[\w@%+=:,./#-]|'[^']*'|"'")+)*""", re.ASCII)


@cache
def _running_flags() -> frozenset[str]:
    """The options of a command that only runs cases."""
    flags = {option.flag for option in OPTIONS.values() if option.decides}
    return frozenset(flags | {OPTIONS["only"].flag})


def is_reproduction(text: str) -> bool:
    """Whether a recorded command only runs cases: it has no other syntax of the shell, and no option that starts another
    program. A user copies the command from the report of somebody else's run."""
    if not _COMMAND.fullmatch(text):
        return False
    words = shlex.split(text) if "'" in text else text.split(" ")
    given = {word.partition("=")[0] for word in words if word.startswith("-")}
    return given <= _running_flags()


def name_of(variable: str) -> str:
    """Returns the name in NAME=VALUE."""
    return variable.partition("=")[0]


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


def command_without_values(text: str) -> str:
    """Returns a command that `is_reproduction` accepts without the values of private options."""
    words = shlex.split(text)
    shown = without_values(words)
    return text if shown == words else shlex.join(shown)


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


def _named(name: str, option: Option) -> Option:
    return replace(option, name=name, flag=option.flag or f"--{name.replace('_', '-')}")


# The options by the names of their fields, in the order of --help.
OPTIONS: Mapping[str, Option] = {
    field.name: _named(field.name, field.metadata["option"]) for field in fields(RunOptions)
}
