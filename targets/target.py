"""Chooses the target of a run (a device of this host, a device of another host, or the guest), and starts workers."""

import functools
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.device import persistent
from conformance.errors import UserError, command
from conformance.model.deadline import CASE_DEADLINE_S
from conformance.run_options import RunOptions
from conformance.supervision import Start, Worker
from conformance.tables.suite import ROOT
from fixtures.guest.capacity import guests_at_once
from fixtures.guest.qemu import MEMORY_MB
from fixtures.guest.recipe import INSTRUMENTED_STACKS
from fixtures.guest.under_test import SLOWER
from fixtures.system import packages, usable
from fixtures.system.cache import cache_directory
from fixtures.system.devices import (
    LAB_FILE,
    PresentDevice,
    best_of,
    lab_of,
    present_devices,
    refuse_to_choose,
)
from fixtures.system.rdma_core import find_rdma_core
from runs.durations import Durations
from targets import builds
from targets.guests import Guests

if TYPE_CHECKING:
    from fixtures.hosts.remote_host import RemoteHost

Say = Callable[[str], None]
# Environment variables that make the dynamic loader use other libraries than the system's.
_PRELOADS = ("LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH")


@dataclass(frozen=True)
class Target:
    """The target of a run. Each of `starts` starts one worker at a time, for given case ids.

    `given` are facts about the software under test, such as hashes of the user's builds. `boot_id` returns an id of the
    present boot if the kernel under test is the kernel of a host, else an empty text. Each of `again` starts a worker
    that repeats violated cases. `durations` are the durations of cases in earlier runs in the guest; None for a host.
    """

    stack: str
    starts: Sequence[Start]
    given: dict[str, Any] = field(default_factory=dict)
    boot_id: Callable[[], str] = str
    again: Sequence[Start] = ()
    durations: Durations | None = None


def with_target(
    options: RunOptions, host: "RemoteHost | None" = None, say: Say = lambda _: None
) -> RunOptions:
    """Returns the options with the target: a device of the connected `host`, a device of this host, or the guest.
    Raises UserError for an option that does not fit the target. Also raises UserError if the device does not exist, if
    its port or GID cannot be used for traffic, or if another process uses the device."""
    if host:
        return options.on(host.device)
    refuse_conflicts(options)
    if options.peer:
        usable.on_another_host(
            options.peer
        )  # reports a syntax error before the device is searched for
    device = _device(options)
    devices = options.on(device).devices
    (builds.refuse_on_host if devices else builds.refuse_in_guest)(options)
    if options.peer and device:
        usable.check_peer(options.peer, device)
    for name in devices:
        if note := usable.check_use(name, options.port, options.gid_index, options.shared):
            say(note)
    if options.stack in INSTRUMENTED_STACKS and options.case_deadline_s == CASE_DEADLINE_S:
        options = replace(options, case_deadline_s=CASE_DEADLINE_S * SLOWER)
    return options.on(device)


def refuse_conflicts(options: RunOptions) -> None:
    """Raises UserError for options that exclude each other on every host."""
    if options.host:
        builds.refuse_over_ssh(options)
        return
    builds.refuse_without_host(options)
    if options.device and options.guest:
        raise UserError("--device and --guest exclude each other")
    if options.device:
        builds.refuse_on_host(options)
    elif options.guest:
        builds.refuse_in_guest(options)
        builds.refuse_conflicts(options)


def _device(options: RunOptions) -> str:
    if options.device:
        usable.check_names(options.device)
        return options.device
    if options.guest:
        return ""
    devices = present_devices()
    if any(not device.is_software for device in devices):
        raise refuse_to_choose(devices, _commands(options, devices))
    return devices[0].name if len(devices) == 1 else ""


def _commands(options: RunOptions, devices: Sequence[PresentDevice]) -> list[tuple[str, str]]:
    """Returns what a user may have meant who has named no device, with the commands."""
    hardware = [device.name for device in devices if not device.is_software]
    device = best_of(devices).name
    of_lab = replace(options.for_target(device), device=None)
    lab = f"{lab_of(hardware)} && {command('run', '--lab', LAB_FILE, *of_lab.arguments())}"
    return [
        ("one of them", command("run", *options.for_target(device).arguments())),
        ("each of them at the same time, as a lab of one host (needs sshd on this host)", lab),
        (
            "Soft-RoCE in a guest, and none of them",
            command("run", *options.for_target("").arguments()),
        ),
    ]


def prepare(
    options: RunOptions,
    out: Path,
    say: Say,
    assume_yes: bool,
    host: "RemoteHost | None" = None,
    hazardous: Collection[str] = (),
) -> Target:
    """Returns the target of options that `with_target` has returned. The target is ready to start workers. `hazardous`
    are ids of cases. Installs missing packages on this host; asks first unless `assume_yes`. Raises UserError."""
    if host:
        from targets import hosts  # imported late: only runs over ssh need it

        starts = [place.start for place in hosts.places(options, host, out, hazardous)]
        return Target("host", starts, {}, lambda: host.boot_id, starts)
    return (_in_guest if options.guest else _on_host)(options, out, say, assume_yes)


def _on_host(options: RunOptions, out: Path, say: Say, assume_yes: bool) -> Target:
    from fixtures.system.host import HostWorker, OtherUser  # imported late: guests do not need it

    persistent.device()  # reports a wrong RDMA_CTS_PMEM before any worker starts
    own = find_rdma_core(options.rdma_core) if options.rdma_core else None
    python = packages.ensure_tools(packages.HOST, assume_yes=assume_yes, say=say)
    environment = own.environment() if own else {}
    # absolute, because the worker runs in a different directory
    profile = options.profile.resolve() if options.profile else None
    inside = replace(
        options, cases=tuple(folder.resolve() for folder in options.cases), profile=profile
    )

    user = OtherUser.named(options.isolate) if options.isolate else None
    if user:
        read = (
            *inside.cases,
            *filter(None, (profile, options.rdma_core and options.rdma_core.resolve())),
        )
        user.check(python, (ROOT, ROOT / "cases", out.resolve()), read)

    def start(device: str, cases: Sequence[str]) -> Worker:
        arguments = inside.on(device).plugin_arguments()
        return HostWorker(ROOT, python, arguments, cases, out / "console.log", environment, user)

    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    given: dict[str, Any] = {"rdma_core": own.hashes()} if own else {}
    if preloaded := {name: os.environ[name] for name in _PRELOADS if os.environ.get(name)}:
        given["environment"] = preloaded
    starts = [functools.partial(start, device) for device in options.devices]
    return Target("host", starts, given, lambda: boot_id, starts)


def _in_guest(options: RunOptions, out: Path, say: Say, assume_yes: bool) -> Target:
    workers = guests_at_once(options.guests, MEMORY_MB)
    guests = Guests(options, out, say, assume_yes)
    name = f"{guests.stack}-{guests.driver.name}-{guests.accelerator}.json"
    durations = Durations(cache_directory() / "durations" / name)
    return Target(
        guests.stack,
        [guests.run] * workers,
        guests.given,
        again=[guests.run_again] * workers,
        durations=durations,
    )
