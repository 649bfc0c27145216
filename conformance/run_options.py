"""Defines the options of a run as one value, and derives command lines from this value.

The same options appear on the command line of `rdma-cts run`, in plan.json for --resume, and as --rdma-… options on the
command line of pytest, on the host and in the guest. RunOptions has their values; OPTIONS describes the syntax and the
effect of each option. A run is resumed with the options with which it was started. Options that only affect the output
(--out, --yes, -q) are not in RunOptions.

The module is in `conformance` because both `commands` and `pytest_plugin` need it, and `conformance` never imports
`commands`. commands/cli/run_arguments.py parses arguments.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from conformance.errors import RECORDED_PROGRAM
from conformance.model.case import Case
from conformance.model.deadline import CASE_DEADLINE_S, COMPLETION_DEADLINE_S
from conformance.model.vocabulary import DIALECTS, SUBJECTS, TIERS
from conformance.option import (
    BUILDS,
    CASES,
    GUEST,
    HOST,
    Option,
    build,
    deadline_seconds,
    device_names,
    given_path,
    in_guest,
    index,
    judging,
    name_of,
    of_lost_host,
    on_host,
    option,
    positive_count,
    positive_seconds,
    selecting,
    share_of_losses,
    whole_number,
    word,
)
from conformance.tables.health import HEALTH
from conformance.tables.suite import ROOT, Selection
from conformance.tables.tiers import DEFAULT, Shard

# How long a host may take to restart after a crash, in seconds. The firmware of a server needs minutes.
RETURN_S = 300.0


@dataclass(frozen=True)
class RunOptions:
    """The options of a run. After the target is determined, either `device` or `guest` is set."""

    device: str | None = on_host(
        None,
        "a device of this host, as in /sys/class/infiniband; several devices of the same kind share the cases",
        "NAME[,NAME]",
        device_names,
        plugin=True,
    )
    port: int = on_host(1, "the port of the device", "N", positive_count, plugin=True)
    gid_index: int | None = on_host(None, "index in the port's GID table", "N", index, plugin=True)
    peer: str | None = on_host(
        None,
        "the device that posts requests, on this or another host (default: loopback on the device under test)",
        "[HOST:]DEVICE",
        word,
        plugin=True,
    )
    wire_peer: str | None = on_host(
        None,
        "a machine with an ordinary network interface that sends packets to the device (docs/wire.md)",
        "[USER@]HOST[:INTERFACE]",
        word,
        plugin=True,
    )
    exporter: Path | None = on_host(
        None,
        "a module of the suite's exporter of dma-bufs that move, compiled for the device's host (docs/data-path.md)",
        "FILE",
        given_path,
        plugin=True,
    )
    host: str | None = on_host(
        None,
        "run on a device of HOST, which is reached over ssh",
        "[USER@]HOST[:PORT]",
        word,
    )
    console: str | None = of_lost_host(
        None,
        "with --host: a command that prints the console of HOST, as evidence of a crash",
        "COMMAND",
        word,
    )
    power_cycle: str | None = of_lost_host(
        None,
        "with --host: a command that resets HOST if HOST does not restart by itself",
        "COMMAND",
        word,
    )
    return_within: float = on_host(
        RETURN_S,
        "with --host: seconds for HOST to restart by itself, and again after a reset",
        "S",
        positive_seconds,
        decides=False,
    )
    guest: bool = in_guest(False, "run in the Soft-RoCE guest, even if this host has a device")
    guests: int | None = in_guest(
        None,
        "the number of guests that run at the same time (default: one for each processor, if memory allows)",
        "N",
        positive_count,
        decides=False,
    )
    stack: str | None = in_guest(None, "the Debian release in the guest")
    arch: str | None = in_guest(None, "the architecture of the guest")
    driver: str | None = in_guest(None, "the driver of the guest's device")
    shared: bool = on_host(
        False,
        "on a device: run even if other processes have protection domains on it",
    )
    isolate: str | None = on_host(
        None,
        "on a device: run as this user, who cannot change the results; needs root",
        "USER",
        word,
    )
    hazardous: bool = on_host(False, "on a device: also run cases that may crash the kernel")
    kernel: Path | None = build(
        None,
        "in the guest: this kernel (bzImage or vmlinuz)",
        "FILE",
        given_path,
    )
    modules: Path | None = build(
        None,
        "in the guest: the modules of --kernel, or modules that replace those of the image",
        "DIR",
        given_path,
    )
    linux: Path | None = build(
        None,
        "in the guest: the driver, compiled from this source tree",
        "TREE",
        given_path,
    )
    rdma_core: Path | None = option(
        None,
        "a build tree or install prefix of rdma-core; in the guest, also a source tree",
        "DIR",
        given_path,
        group=BUILDS,
    )
    sanitize: bool = build(
        False,
        "in the guest: compile rdma-core with AddressSanitizer, whose reports are violations",
    )
    overlay: Path | None = build(
        None,
        "files to copy unchanged over the guest's root directory",
        "DIR",
        given_path,
    )
    guest_env: tuple[str, ...] = build(
        (),
        "a variable of the guest's environment; without VALUE, the value is that of this environment",
        "NAME[=VALUE]",
        private=True,
    )
    tools: tuple[str, ...] = build(
        (),
        "Debian packages to add to the guest, such as strace, gdb or ibverbs-utils",
        "PACKAGE[,PACKAGE]",
        decides=False,
    )
    strict_packages: bool = build(
        False,
        "do not use an image whose package lists have expired",
        decides=False,
    )
    without: tuple[str, ...] = build(
        (),
        "a change to leave out of a mended stack (see docs/mended-stack.md)",
        "CHANGE",
    )
    verify_calls: bool = in_guest(
        False,
        "compare what a worker reports about a call of the kernel with the calls that the guest's kernel has traced",
        decides=False,
    )
    keep: bool = build(
        False,
        "keep each guest's drive, and a script that starts the guest again",
        decides=False,
    )
    verbs: tuple[str, ...] = selecting((), "only this verb, e.g. reg_mr", "VERB", flag="--verb")
    rules: tuple[str, ...] = selecting((), "only the cases of this rule", "ID", flag="--rule")
    words: tuple[str, ...] = selecting(
        (),
        "only cases with this word in the id",
        "WORD",
        word,
        flag="-k",
    )
    only: tuple[str, ...] = selecting(
        (),
        "only the case with this id, or one point of a sweep: CASE#axis=value,axis=value; or all cases of a defect "
        "that a run in out/ has shown, given by the fingerprint of the defect",
        "CASE",
    )
    tier: str = selecting(DEFAULT, "the tier of cases", choices=(HEALTH, *TIERS), plugin=True)
    shard: Shard | None = selecting(
        None,
        "only part K of N parts of similar duration, for N machines; `merge` joins the parts",
        "K/N",
        Shard.parse,
    )
    cases: tuple[Path, ...] = option(
        (),
        "also the tables in DIR/<verb>/",
        "DIR",
        given_path,
        plugin=True,
        group=CASES,
    )
    profile: Path | None = judging(
        None,
        "the profile of the device, such as ci/rxe/profile.yaml",
        "FILE",
        given_path,
        plugin=True,
    )
    waivers: Path | None = judging(
        None,
        "known violations (see docs/waivers.md)",
        "FILE",
        given_path,
        decides=False,
    )
    subject: str | None = judging(
        None,
        "the subject of the verdicts; if it is the device, violations by the kernel's core or by libibverbs do not"
        " count (default: the device; in the guest, the stack)",
        choices=SUBJECTS,
        decides=False,
    )
    against: Path | None = judging(
        None,
        "list first what is new against this earlier run, such as one of the stack as shipped; `compare` has the status",
        "RUN",
        given_path,
        decides=False,
    )
    no_confirm: bool = judging(False, "do not repeat cases with a violation", decides=False)
    confirm: str | None = judging(
        None,
        "which violations are repeated: drawn: three of each defect, and all hangs; all (default: drawn)",
        choices=("drawn", "all"),
        decides=False,
    )
    dialect: str | None = judging(
        None,
        "the variant of ibv_rereg_mr, if the library's exports do not show it",
        choices=DIALECTS,
        plugin=True,
    )
    poster: str | None = judging(
        None,
        "wr: post requests over RC, UC and UD with the builders of ibv_wr_post(3) instead of ibv_post_send, where"
        " possible; wire: the wire peer sends the requests of peers, where possible (docs/wire.md)",
        choices=("wr", "wire"),
        plugin=True,
    )
    wire_losses: float | None = judging(
        None,
        "lose, repeat and reorder P %% of the packets between the wire peer and the device (docs/wire.md)",
        "P",
        share_of_losses,
        plugin=True,
    )
    deadline: float | None = option(
        None,
        "seconds after which a case counts as hung; the deadline of one completion is a sixth of this time,"
        f" {COMPLETION_DEADLINE_S:g} s at most",
        "S",
        deadline_seconds,
        plugin=True,
        standard=CASE_DEADLINE_S,
    )
    seed: int | None = option(
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


def _named(name: str, option: Option) -> Option:
    return replace(option, name=name, flag=option.flag or f"--{name.replace('_', '-')}")


# The options by the names of their fields, in the order of --help.
OPTIONS: Mapping[str, Option] = {
    field.name: _named(field.name, field.metadata["option"]) for field in fields(RunOptions)
}
