"""Where cases run: on a device of this host, or in the Soft-RoCE guest; and how a worker there is started.

Not for what a run records (run.py) and not for how a guest or a process is made (fixtures/).
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.device import device_names
from conformance.errors import UserError
from conformance.suite import ROOT
from conformance.supervision import Worker
from fixtures import packages
from fixtures.host import HostWorker
from fixtures.softroce.guest import boot
from fixtures.softroce.image import Image, cache_directory, ensure_image
from fixtures.softroce.job import Job
from fixtures.softroce.recipe import DEFAULT_STACK, STACKS, recipe_for

GUEST_DEVICE = "rxe0"
GUEST_PORT = "/dev/virtio-ports/rdma-cts.results"
# What the guest needs of the project; names as in the checkout.
SUITE_PARTS = ("conformance", "fixtures", "cases", "conftest.py", "tox.ini")

Say = Callable[[str], None]
Start = Callable[[Sequence[str]], Worker]


@dataclass(frozen=True)
class Place:
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
    where.add_argument("--port", type=int, default=1, metavar="N", help="its port (default 1)")
    where.add_argument("--gid-index", type=int, metavar="N", help="index in the port's GID table")
    where.add_argument("--guest", action="store_true", help="the Soft-RoCE guest even if this host has a device")
    where.add_argument("--stack", choices=tuple(STACKS), default=DEFAULT_STACK, help="the Debian the guest is made of")
    where.add_argument("--hazardous", action="store_true", help="on a device: also what may take the kernel down")


def host_device(arguments: argparse.Namespace) -> str:
    """The device of this host to run on; empty for the guest. Raises UserError."""
    names = device_names()
    if arguments.device:
        if arguments.guest:
            raise UserError("--device and --guest exclude each other")
        if arguments.device not in names:
            here = f"devices of this host: {', '.join(names)}" if names else "this host has no RDMA device"
            raise UserError(f"no RDMA device {arguments.device!r}; {here}")
        return str(arguments.device)
    return names[0] if len(names) == 1 and not arguments.guest else ""


def on_host(arguments: argparse.Namespace, device: str, console: Path, say: Say) -> Place:
    """The place where cases run on `device` of this host; what is lacking for it is installed."""
    python = packages.ensure_tools(packages.HOST, assume_yes=arguments.yes, say=say)
    options = ["--rdma-device", device, "--rdma-port", str(arguments.port), *_plain_options(arguments)]
    if arguments.profile:
        options += ["--rdma-profile", str(arguments.profile.resolve())]
    if arguments.gid_index is not None:
        options += ["--rdma-gid-index", str(arguments.gid_index)]
    for folder in arguments.cases:
        options += ["--rdma-cases", str(folder.resolve())]

    def start(cases: Sequence[str]) -> Worker:
        return HostWorker(ROOT, python, options, cases, console)

    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return Place("host", _repro(arguments, f"--device {device}"), start, boot_id=boot_id)


def in_guest(arguments: argparse.Namespace, _device: str, console: Path, say: Say) -> Place:
    """The place where cases run in the guest; what is lacking for it is installed, its image built."""
    packages.ensure_tools(packages.GUEST, assume_yes=arguments.yes, say=say)
    recipe = recipe_for(arguments.stack)
    image = ensure_image(recipe, cache_directory(), say)
    given = {"image": image.digest}
    return Place(recipe.stack, _repro(arguments, "--guest"), _booting(arguments, image, console, say), given)


def _booting(arguments: argparse.Namespace, image: Image, console: Path, say: Say) -> Start:
    vendor = [(folder.resolve(), f"vendor/{number}") for number, folder in enumerate(arguments.cases)]
    command = " ".join([
        "python3 -m pytest -p no:cacheprovider --color=no -q cases",
        f"--rdma-device {GUEST_DEVICE} --rdma-only only --rdma-stream {GUEST_PORT}",
        *(f"--rdma-cases {name}" for _, name in vendor),
        *(["--rdma-profile profile.yaml"] if arguments.profile else []),
        *_plain_options(arguments),
    ])  # fmt: skip

    def start(cases: Sequence[str]) -> Worker:
        own = _unused(console)
        say(f"booting the Soft-RoCE guest (kernel {image.kernel_version}; its console: {own})")
        with tempfile.TemporaryDirectory(prefix="work-", dir=console.parent) as name:
            only = Path(name) / "only"
            only.write_text("\n".join(cases) + "\n")
            tree = [*((ROOT / part, part) for part in SUITE_PARTS), (only, "only"), *vendor]
            if arguments.profile:
                tree.append((arguments.profile, "profile.yaml"))
            guest = boot(image, Job(tuple(tree), command), console=own)
        say(f"the guest is up after {guest.up['uptime_s']} s")
        return guest

    return start


def _unused(console: Path) -> Path:
    """The file for the next guest's console: console.log, console-2.log, …; those of earlier ones are evidence."""
    names = (console.with_name(f"{console.stem}-{number}{console.suffix}") for number in itertools.count(2))
    return next(path for path in itertools.chain([console], names) if not path.exists())


def _plain_options(arguments: argparse.Namespace) -> list[str]:
    """The options of the engine's pytest plugin that are the same everywhere."""
    return ["--rdma-dialect", arguments.dialect] if arguments.dialect else []


def _repro(arguments: argparse.Namespace, where: str) -> str:
    """The command that runs one case in the same place, without the case's id."""
    parts = ["./rdma-cts run", where]
    if where == "--guest" and arguments.stack != DEFAULT_STACK:
        parts.append(f"--stack {arguments.stack}")
    if where != "--guest" and arguments.port != 1:
        parts.append(f"--port {arguments.port}")
    if where != "--guest" and arguments.gid_index is not None:
        parts.append(f"--gid-index {arguments.gid_index}")
    parts += [f"--cases {folder}" for folder in arguments.cases]
    return " ".join([*parts, "--only"])
