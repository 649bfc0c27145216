"""`rdma-cts run`: the cases on a device of this host, or in the Soft-RoCE guest.

Chooses where to run and wires engine, fixtures and reports together; each of them does its part.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

from commands import choosing
from conformance.case import Case
from conformance.device import device_names
from conformance.errors import UserError
from conformance.libibverbs import DIALECTS
from conformance.profile import read_profile
from conformance.results import FILE_NAME, ResultsFile, exit_status, read_results
from conformance.suite import ROOT
from conformance.supervision import Supervisor, Worker
from fixtures import packages
from fixtures.host import HostWorker
from fixtures.softroce.guest import boot
from fixtures.softroce.image import Image, cache_directory, ensure_image
from fixtures.softroce.job import Job
from fixtures.softroce.recipe import DEFAULT_STACK, STACKS, recipe_for
from reports import junit
from reports.terminal import Progress, summary

NAME = "run"
HELP = "Run the cases on a device of this host or, without one, in the Soft-RoCE guest."
GUEST_DEVICE = "rxe0"
GUEST_PORT = "/dev/virtio-ports/rdma-cts.results"
# What the guest needs of the project; names as in the checkout.
SUITE_PARTS = ("conformance", "fixtures", "cases", "conftest.py", "tox.ini")

Start = Callable[[Sequence[str]], Worker]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    where = parser.add_argument_group("where")
    where.add_argument("--device", metavar="NAME", help="a device of this host, as in /sys/class/infiniband")
    where.add_argument("--port", type=int, default=1, metavar="N", help="its port (default 1)")
    where.add_argument("--gid-index", type=int, metavar="N", help="index in the port's GID table")
    where.add_argument("--guest", action="store_true", help="the Soft-RoCE guest even if this host has a device")
    where.add_argument("--stack", choices=tuple(STACKS), default=DEFAULT_STACK, help="the Debian the guest is made of")
    where.add_argument("--hazardous", action="store_true", help="on a device: also what may take the kernel down")
    choosing.add_arguments(parser)
    parser.add_argument("--profile", type=Path, metavar="FILE", help="what the device must have (see profiles)")
    parser.add_argument("--dialect", choices=DIALECTS, help="call the library's ibv_rereg_mr as this page has it")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default out/<time>-<device>)")
    parser.add_argument("--yes", action="store_true", help="install what is needed without asking")
    parser.add_argument("-q", "--quiet", action="store_true", help="only the summary")


def execute(arguments: argparse.Namespace) -> int:
    """Runs, writes results.jsonl and junit.xml, prints the summary; gives the contract's exit status."""
    suite = choosing.suite_from(arguments)
    cases = choosing.selection_from(arguments).apply(suite)
    if arguments.profile:
        read_profile(arguments.profile)
    progress = Progress(quiet=arguments.quiet)
    device = _host_device(arguments)
    if device and not arguments.hazardous:
        cases = _harmless(cases, progress)
    out = arguments.out or Path("out") / f"{datetime.now():%Y%m%dT%H%M%S}-{device or GUEST_DEVICE}"
    if (out / FILE_NAME).exists():
        raise UserError(f"{out / FILE_NAME} exists: a run is recorded there", hint="choose another --out")
    console = out / "console.log"
    if device:
        python = _ensure(packages.HOST, arguments, progress)
        start, stack = _on_host(arguments, python, device, console), "host"
    else:
        _ensure(packages.GUEST, arguments, progress)
        recipe = recipe_for(arguments.stack)
        image = ensure_image(recipe, cache_directory(), progress.say)
        start, stack = _in_guest(arguments, image, console, progress), recipe.stack
    header = {"stack": stack, "argv": sys.argv[1:]}
    results = ResultsFile(out / FILE_NAME)
    try:
        supervisor = Supervisor(suite, cases, results, progress, header, console, _repro(arguments, device))
        footer = supervisor.run(start)
    finally:
        results.close()
    recorded = read_results(out)
    (out / junit.FILE_NAME).write_bytes(junit.render(recorded))
    print(summary(recorded, out))
    return exit_status(footer)


def _host_device(arguments: argparse.Namespace) -> str:
    """The device of this host to run on; empty for the guest."""
    names = device_names()
    if arguments.device:
        if arguments.guest:
            raise UserError("--device and --guest exclude each other")
        if arguments.device not in names:
            here = f"devices of this host: {', '.join(names)}" if names else "this host has no RDMA device"
            raise UserError(f"no RDMA device {arguments.device!r}; {here}")
        return str(arguments.device)
    return names[0] if len(names) == 1 and not arguments.guest else ""


def _harmless(cases: list[Case], progress: Progress) -> list[Case]:
    """The cases without those that can take this host's kernel with them."""
    chosen = [case for case in cases if not case.hazardous]
    if not chosen:
        raise UserError("every selected case can take the kernel down", hint="--hazardous runs them all the same")
    if len(chosen) < len(cases):
        progress.say(f"left out {len(cases) - len(chosen)} cases that can take the kernel down (see --hazardous)")
    return chosen


def _ensure(uses: Sequence[str], arguments: argparse.Namespace, progress: Progress) -> str:
    return packages.ensure_tools(uses, assume_yes=arguments.yes, say=progress.say)


def _repro(arguments: argparse.Namespace, device: str) -> str:
    """The command that runs one case in the same place, without the case's id."""
    parts = ["./rdma-cts run", f"--device {device}" if device else "--guest"]
    if not device and arguments.stack != DEFAULT_STACK:
        parts.append(f"--stack {arguments.stack}")
    if device and arguments.port != 1:
        parts.append(f"--port {arguments.port}")
    if device and arguments.gid_index is not None:
        parts.append(f"--gid-index {arguments.gid_index}")
    parts += [f"--cases {folder}" for folder in arguments.cases]
    return " ".join([*parts, "--only"])


def _dialect(arguments: argparse.Namespace) -> list[str]:
    return ["--rdma-dialect", arguments.dialect] if arguments.dialect else []


def _on_host(arguments: argparse.Namespace, python: str, device: str, console: Path) -> Start:
    options = ["--rdma-device", device, "--rdma-port", str(arguments.port), *_dialect(arguments)]
    if arguments.profile:
        options += ["--rdma-profile", str(arguments.profile.resolve())]
    if arguments.gid_index is not None:
        options += ["--rdma-gid-index", str(arguments.gid_index)]
    for folder in arguments.cases:
        options += ["--rdma-cases", str(folder.resolve())]
    return lambda cases: HostWorker(ROOT, python, options, cases, console)


def _in_guest(arguments: argparse.Namespace, image: Image, console: Path, progress: Progress) -> Start:
    vendor = [(folder.resolve(), f"vendor/{number}") for number, folder in enumerate(arguments.cases)]
    command = " ".join([
        "python3 -m pytest -p no:cacheprovider --color=no -q cases",
        f"--rdma-device {GUEST_DEVICE} --rdma-only only --rdma-stream {GUEST_PORT}",
        *(f"--rdma-cases {name}" for _, name in vendor),
        *(["--rdma-profile profile.yaml"] if arguments.profile else []),
        *_dialect(arguments),
    ])  # fmt: skip

    boots = itertools.count(1)

    def start(cases: Sequence[str]) -> Worker:
        number = next(boots)
        own = console if number == 1 else console.with_name(f"console-{number}.log")
        progress.say(f"booting the Soft-RoCE guest (kernel {image.kernel_version}; its console: {own})")
        with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
            only = Path(name) / "only"
            only.write_text("\n".join(cases) + "\n")
            tree = [*((ROOT / part, part) for part in SUITE_PARTS), (only, "only"), *vendor]
            if arguments.profile:
                tree.append((arguments.profile, "profile.yaml"))
            guest = boot(image, Job(tuple(tree), command), console=own)
        progress.say(f"the guest is up after {guest.up['uptime_s']} s")
        return guest

    return start
