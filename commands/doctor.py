"""`rdma-cts doctor`: what is missing on this host for each way of running, and how to get it."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from commands.output import show
from conformance.errors import PROGRAM, UserError
from fixtures import packages
from fixtures.cache import cache_directory
from fixtures.softroce import accelerator, privileges
from fixtures.softroce.build import NEEDED_BYTES
from fixtures.softroce.image import damage_of, image_folder
from fixtures.softroce.recipe import DEFAULT_STACK, STACKS, Recipe, recipe_for

NAME = "doctor"
HELP = "Show what is missing on this host for each way of running, and how to get it."
NO_WAY = 4  # exit status
ENOUGH_LOCKED_BYTES = 64 << 20

OK, MISSING, NOTE = "ok", "MISSING", "note"
_NODE = "uverbs"
_FULL_KERNEL = "start your distribution's full kernel (Debian: linux-image-amd64), or use the guest"


@dataclass(frozen=True)
class Finding:
    """One line of the table. MISSING prevents this way of running; NOTE costs cases or time; `remedy` is a command."""

    state: str
    about: str
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Host:
    """The host's files, all below `root` so that a test can use another tree."""

    root: Path = Path("/")

    def path(self, name: str) -> Path:
        """The path of a file of this host."""
        return self.root / name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("--stack", default=DEFAULT_STACK, choices=sorted(STACKS), help="the guest's Debian release")


def execute(arguments: argparse.Namespace) -> int:
    """Prints both tables. Exit status 0 if at least one way of running works, else 4."""
    ways = {
        f"On an RDMA device of this host ({PROGRAM} run --device NAME)": device_findings(Host()),
        f"In the Soft-RoCE guest ({PROGRAM} run --guest)": guest_findings(Host(), recipe_for(arguments.stack)),
    }
    for title, findings in ways.items():
        print(title)
        show([*table(findings), ""])
    ready = [title.partition(" (")[0] for title, findings in ways.items() if works(findings)]
    print(f"Works now: {'; '.join(ready)}." if ready else "Neither way works yet: follow the arrows of one of them.")
    return 0 if ready else NO_WAY


def works(findings: Iterable[Finding]) -> bool:
    """Whether nothing is missing."""
    return all(finding.state != MISSING for finding in findings)


def table(findings: Iterable[Finding]) -> list[str]:
    """The findings as lines of text, each followed by its remedy."""
    lines = []
    for finding in findings:
        lines.append(f"  {finding.state:7}  {finding.about:15}  {finding.text}")
        if finding.remedy:
            lines.append(f"  {'':7}  {'':15}  -> {finding.remedy}")
    return lines


def device_findings(host: Host) -> list[Finding]:
    """What running on a device of this host needs."""
    return [
        _devices(host),
        _device_nodes(host),
        _packages(("suite", *packages.HOST)),
        _python(),
        _locked_memory(),
        _hugepages(host),
    ]


def guest_findings(host: Host, recipe: Recipe) -> list[Finding]:
    """What building and running the guest needs."""
    cache = cache_directory()
    folder = image_folder(recipe, cache)
    built = damage_of(folder, recipe.digest()) is None
    findings = [_packages(("suite", *packages.GUEST)), _image(folder, built, recipe)]
    if not built:
        findings += [_disk(cache), _rights_to_build()]
    return [*findings, _processor(host, folder / "vmlinuz")]


def _entries(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []


def _devices(host: Host) -> Finding:
    names = _entries(host.path("sys/class/infiniband"))
    if names:
        return Finding(OK, "RDMA devices", ", ".join(names))
    if _module_available(host, "rdma_rxe"):
        return Finding(MISSING, "RDMA devices", "none; the module rdma_rxe makes one of a network device",
                       "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev NETDEV")  # fmt: skip
    return Finding(MISSING, "RDMA devices", "none, and this kernel has no module rdma_rxe to make one",
                   _FULL_KERNEL)  # fmt: skip


def _module_available(host: Host, name: str) -> bool:
    if host.path(f"sys/module/{name}").exists():
        return True
    modules = host.path("lib/modules") / os.uname().release
    for index in ("modules.dep", "modules.builtin"):
        try:
            lines = (modules / index).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            continue
        files = (Path(line.partition(":")[0]).name.partition(".ko")[0] for line in lines)
        if name in (file.replace("-", "_") for file in files):
            return True
    return False


def _device_nodes(host: Host) -> Finding:
    directory = host.path("dev/infiniband")
    nodes = [directory / name for name in _entries(directory) if name.startswith(_NODE)]
    if not nodes:
        if _module_available(host, "ib_uverbs"):
            return Finding(MISSING, "device nodes", f"no {directory}/uverbs*", "modprobe ib_uverbs")
        return Finding(MISSING, "device nodes", f"no {directory}/uverbs*, and this kernel has no module ib_uverbs",
                       _FULL_KERNEL)  # fmt: skip
    closed = [node for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if closed:
        return Finding(MISSING, "device nodes", f"no right to read and write {', '.join(map(str, closed))}",
                       f"sudo chmod a+rw {' '.join(map(str, closed))}")  # fmt: skip
    return Finding(OK, "device nodes", ", ".join(map(str, nodes)))


def _packages(uses: Iterable[str]) -> Finding:
    uses = list(uses)
    missing = packages.missing(uses)
    if missing:
        return Finding(MISSING, "packages", f"not installed: {', '.join(missing)}",
                       f"{_sudo()}{packages.command(missing)}")  # fmt: skip
    return Finding(OK, "packages", ", ".join(need.package for need in packages.needs(uses)))


def _sudo() -> str:
    return "" if os.geteuid() == 0 else "sudo "


def _python() -> Finding:
    python = packages.python_for(("suite", *packages.HOST))
    if python:
        return Finding(OK, "Python", python)
    modules = [n.proof.partition(":")[2] for n in packages.needs(("suite", *packages.HOST))
               if n.proof.startswith("module:")]  # fmt: skip
    return Finding(MISSING, "Python", f"no Python on this host has all of the modules {', '.join(modules)}",
                   "install the packages named above; they are for /usr/bin/python3")  # fmt: skip


def _locked_memory() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Finding(OK, "locked memory", "no limit")
    if os.geteuid() == 0 or soft >= ENOUGH_LOCKED_BYTES:
        return Finding(OK, "locked memory", f"limit {soft >> 10} KiB")
    return Finding(NOTE, "locked memory", f"limit {soft >> 10} KiB: larger regions cannot be registered",
                   "ulimit -l unlimited (for good: /etc/security/limits.d)")  # fmt: skip


def _hugepages(host: Host) -> Finding:
    try:
        lines = host.path("proc/meminfo").read_text(encoding="utf-8").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("HugePages_Free:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return Finding(NOTE, "hugepages", "this kernel has none: cases on hugepages cannot run")
    if free:
        return Finding(OK, "hugepages", f"{free} free")
    return Finding(NOTE, "hugepages", "none reserved: cases on hugepages cannot run",
                   "echo 16 | sudo tee /proc/sys/vm/nr_hugepages")  # fmt: skip


def _image(folder: Path, built: bool, recipe: Recipe) -> Finding:
    if built:
        return Finding(OK, "guest image", str(folder))
    why = "damaged" if folder.exists() else "not built yet"
    return Finding(NOTE, "guest image", f"{why} ({recipe.stack}); the next run builds it, in about a minute")


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _disk(cache: Path) -> Finding:
    try:
        free = shutil.disk_usage(_existing(cache)).free
    except OSError as error:
        return Finding(MISSING, "disk space", f"{cache}: {error.strerror}", "set RDMA_CTS_CACHE to another directory")
    text = f"{free >> 20} MiB free for {cache}, {NEEDED_BYTES >> 20} needed to build"
    if free < NEEDED_BYTES:
        return Finding(MISSING, "disk space", text, "set RDMA_CTS_CACHE to a directory on a larger disk")
    return Finding(OK, "disk space", text)


def _rights_to_build() -> Finding:
    if os.geteuid() == 0:
        return Finding(OK, "rights", "root, which may build the image")
    if reason := privileges.obstacle():
        return Finding(MISSING, "rights", f"building the image needs root, or a user namespace: {reason}",
                       f"provide that, or use root for the guest: sudo -E {PROGRAM} run --guest")  # fmt: skip
    return Finding(OK, "rights", "a user namespace, in which the image can be built without root")


def _processor(host: Host, vmlinuz: Path) -> Finding:
    try:
        requested = accelerator.requested()
    except UserError as error:
        return Finding(MISSING, "processor", error.message, error.hint)
    if requested != accelerator.AUTO:
        return Finding(OK, "processor", f"{requested}, as RDMA_CTS_ACCEL says")
    if not accelerator.kvm_present(host.path("dev/kvm")):
        return Finding(OK, "processor", "software emulation: no usable /dev/kvm (it would only make runs faster)")
    found = accelerator.remembered(vmlinuz)
    if found == accelerator.TCG:
        return Finding(OK, "processor", "software emulation: /dev/kvm exists but does not start the guest's kernel")
    if found == accelerator.KVM:
        return Finding(OK, "processor", "/dev/kvm")
    return Finding(OK, "processor", "/dev/kvm if the guest's kernel starts there (tried at the next run), "
                   "else software emulation")  # fmt: skip
