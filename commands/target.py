"""Where cases run: on a device of this host, or in the Soft-RoCE guest; and how a worker there is started.

Not for what a run records (run.py), for guests (guests.py) or for how a process is made (fixtures/host.py).
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from commands import builds
from commands.guests import DEVICE, Guests
from conformance.device.device import device_names
from conformance.errors import UserError
from conformance.kernel.netlink import RdmaNetlink
from conformance.supervision import Worker
from conformance.tables.suite import ROOT
from conformance.tables.tiers import SEQUENCES_S
from fixtures import packages, persistent
from fixtures.host import HostWorker
from fixtures.rdma_core import find_rdma_core
from fixtures.softroce.recipe import DEFAULT_STACK, STACKS

GUEST_DEVICE = DEVICE
# What the command that runs one case again has to say too, if it was said.
_REPEATED = (
    "stack", "port", "gid_index", "cases", "profile", "dialect", "kernel", "modules", "rdma_core", "overlay",
    "guest_env", "seed", "sequences",
)  # fmt: skip
_DEFAULTS = {"stack": DEFAULT_STACK, "port": 1, "sequences": SEQUENCES_S}

Say = Callable[[str], None]
Start = Callable[[Sequence[str]], Worker]


@dataclass(frozen=True)
class Target:
    """A stack to run on; `repro` and a case's id make the command that runs just that case there.

    `given` are the hashes of what was put under test. `boot_id` names this start of the kernel, where that is
    this host's.
    """

    stack: str
    repro: str
    start: Start
    given: dict[str, Any] = field(default_factory=dict)
    boot_id: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that say where."""
    where = parser.add_argument_group("where")
    where.add_argument("--device", metavar="NAME", help="a device of this host, as in /sys/class/infiniband")
    where.add_argument("--port", type=int, default=_DEFAULTS["port"], metavar="N", help="its port (default 1)")
    where.add_argument("--gid-index", type=int, metavar="N", help="index in the port's GID table")
    where.add_argument("--guest", action="store_true", help="the Soft-RoCE guest even if this host has a device")
    where.add_argument("--stack", choices=tuple(STACKS), default=DEFAULT_STACK, help="the Debian the guest is made of")
    where.add_argument("--shared", action="store_true", help="on a device: even if others have queue pairs on it")
    where.add_argument("--hazardous", action="store_true", help="on a device: also what may take the kernel down")


def host_device(arguments: argparse.Namespace) -> str:
    """The device of this host to run on; empty for the guest. Raises UserError, also if others use it."""
    device = _named_device(arguments)
    if device and not arguments.shared and (users := RdmaNetlink(device).other_users()):
        raise UserError(f"{device} is in use, by queue pairs: {', '.join(users)}", hint="end that, or give --shared")
    return device


def _named_device(arguments: argparse.Namespace) -> str:
    names = device_names()
    if arguments.device:
        if arguments.guest:
            raise UserError("--device and --guest exclude each other")
        if arguments.device not in names:
            here = f"devices of this host: {', '.join(names)}" if names else "this host has no RDMA device"
            raise UserError(f"no RDMA device {arguments.device!r}; {here}")
        return str(arguments.device)
    return names[0] if len(names) == 1 and not arguments.guest else ""


def on_host(arguments: argparse.Namespace, device: str, out: Path, say: Say) -> Target:
    """The place where cases run on `device` of this host; what is lacking for it is installed."""
    builds.refuse_on_host(arguments)
    persistent.device()  # what the environment names and is none is told here, once
    own = find_rdma_core(arguments.rdma_core) if arguments.rdma_core else None
    python = packages.ensure_tools(packages.HOST, assume_yes=arguments.yes, say=say)
    options = ["--rdma-device", device, "--rdma-port", str(arguments.port), *_plain_options(arguments)]
    if arguments.profile:
        options += ["--rdma-profile", str(arguments.profile.resolve())]
    if arguments.gid_index is not None:
        options += ["--rdma-gid-index", str(arguments.gid_index)]
    for folder in arguments.cases:
        options += ["--rdma-cases", str(folder.resolve())]
    environment = own.environment() if own else {}

    def start(cases: Sequence[str]) -> Worker:
        return HostWorker(ROOT, python, options, cases, out / "console.log", environment)

    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    given = {"rdma_core": own.hashes()} if own else {}
    return Target("host", _repro(arguments, f"--device={device}"), start, given, boot_id)


def in_guest(arguments: argparse.Namespace, _device: str, out: Path, say: Say) -> Target:
    """The place where cases run in the guest; what is lacking for it is installed, its image built."""
    guests = Guests(arguments, out, say)
    options = _plain_options(arguments)
    repro = _repro(arguments, "--guest")
    return Target(guests.stack, repro, lambda cases: guests.run(cases, options), guests.given)


def _plain_options(arguments: argparse.Namespace) -> list[str]:
    """The options of the engine's pytest plugin that are the same everywhere."""
    dialect = ["--rdma-dialect", arguments.dialect] if arguments.dialect else []
    seed = ["--rdma-seed", str(arguments.seed)] if arguments.seed is not None else []
    return [*dialect, *seed, "--rdma-sequences", str(arguments.sequences)]


def _repro(arguments: argparse.Namespace, where: str) -> str:
    """The command that runs one case in the same place, without the case's id."""
    words = ["./rdma-cts", "run", *where.split("=")]
    for name in _REPEATED:
        said = getattr(arguments, name)
        for value in said if isinstance(said, list) else [said]:
            if value not in (None, _DEFAULTS.get(name)):
                words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*words, "--only"])
