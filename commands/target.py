"""Where cases run: on a device of this host, or in the Soft-RoCE guest; and how a worker there is started.

Not for what a run records (run.py), for guests (guests.py) or for how a process is made (fixtures/host.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from commands import builds
from commands.guests import DEVICE, Guests
from conformance.device.device import device_names
from conformance.errors import UserError
from conformance.kernel.netlink import RdmaNetlink
from conformance.run_options import RunOptions
from conformance.supervision import Worker
from conformance.tables.suite import ROOT
from fixtures import packages, persistent
from fixtures.host import HostWorker
from fixtures.rdma_core import find_rdma_core

GUEST_DEVICE = DEVICE

Say = Callable[[str], None]
Start = Callable[[Sequence[str]], Worker]


@dataclass(frozen=True)
class Target:
    """A stack to run on; `start` makes a worker there for the case ids given to it.

    `given` are the hashes of what was put under test. `boot_id` names this start of the kernel, where that is
    this host's.
    """

    stack: str
    start: Start
    given: dict[str, Any] = field(default_factory=dict)
    boot_id: str = ""


def settled(options: RunOptions) -> RunOptions:
    """The options with their target: a device of this host, or the guest. Raises UserError, also if others use it."""
    device = _device(options)
    if device and not options.shared and (users := RdmaNetlink(device).other_users()):
        raise UserError(f"{device} is in use, by queue pairs: {', '.join(users)}", hint="end that, or give --shared")
    return options.on(device)


def _device(options: RunOptions) -> str:
    """The device of this host to run on; empty for the guest."""
    names = device_names()
    if options.device:
        if options.guest:
            raise UserError("--device and --guest exclude each other")
        if options.device not in names:
            here = f"devices of this host: {', '.join(names)}" if names else "this host has no RDMA device"
            raise UserError(f"no RDMA device {options.device!r}; {here}")
        return options.device
    return names[0] if len(names) == 1 and not options.guest else ""


def target_of(options: RunOptions, out: Path, say: Say, assume_yes: bool) -> Target:
    """The target of settled options; what it lacks is installed, without asking if `assume_yes`. Raises UserError."""
    return (_in_guest if options.guest else _on_host)(options, out, say, assume_yes)


def _on_host(options: RunOptions, out: Path, say: Say, assume_yes: bool) -> Target:
    builds.refuse_on_host(options)
    persistent.device()  # an environment that names persistent memory which is none is reported here, once
    own = find_rdma_core(options.rdma_core) if options.rdma_core else None
    python = packages.ensure_tools(packages.HOST, assume_yes=assume_yes, say=say)
    environment = own.environment() if own else {}
    # The worker runs in another directory.
    profile = options.profile.resolve() if options.profile else None
    arguments = replace(
        options, cases=tuple(folder.resolve() for folder in options.cases), profile=profile
    ).plugin_arguments()

    def start(cases: Sequence[str]) -> Worker:
        return HostWorker(ROOT, python, arguments, cases, out / "console.log", environment)

    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    given = {"rdma_core": own.hashes()} if own else {}
    return Target("host", start, given, boot_id)


def _in_guest(options: RunOptions, out: Path, say: Say, assume_yes: bool) -> Target:
    guests = Guests(options, out, say, assume_yes)
    return Target(guests.stack, guests.run, guests.given)
