"""`rdma-cts doctor`: prints what is missing on this host for each way of running, and the remedies."""

import argparse
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from commands.cli import nics_page
from commands.cli.run_arguments import add, add_argument
from commands.cli.streams import remark, show
from conformance.device.port import device_names
from conformance.errors import PROGRAM, UserError, format_count
from conformance.kernel.netlink import RdmaNetlink, driver_name
from conformance.option import word
from conformance.tables.profile import read_profile
from fixtures.guest import privileges, qemu
from fixtures.guest.build import NEEDED_BYTES
from fixtures.guest.image import damage_of, image_folder
from fixtures.guest.recipe import DEFAULT_STACK, Recipe, recipe_for
from fixtures.hosts.lab_file import LabHost, read_lab
from fixtures.system import packages
from fixtures.system.architecture import Architecture, architecture_of
from fixtures.system.cache import cache_directory, check_usable
from fixtures.system.devices import present_devices
from fixtures.system.readiness import (
    DEVICES,
    MISSING,
    NOTE,
    OK,
    Finding,
    device_findings,
    packages_finding,
    works,
)
from fixtures.system.usable import check_use, check_warnings
from fixtures.targets import hosts

NO_WAY = 4  # exit status


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "--host [USER@]HOST[:PORT]",
        "check only this host, which is reached over ssh",
        type=word,
    )
    add(
        parser,
        "--lab FILE",
        "check each host in the file of a lab, in one table",
    )
    add(
        parser,
        "--device NAME",
        "check only this device, and print notes on its driver if it is of this host",
        type=word,
    )
    add_argument(parser, "stack", DEFAULT_STACK)
    add_argument(parser, "arch", None)


def execute(arguments: argparse.Namespace) -> int:
    """Prints a table for each way of running. Returns exit status 0 if at least one way works, in a lab each host,
    else 4."""
    if arguments.lab:
        if arguments.host or arguments.device:
            raise UserError("--lab names the hosts and their devices", hint="leave out the others")
        title = f"On the hosts of a lab ({PROGRAM} run --lab {arguments.lab})"
        findings = lab_findings(arguments.lab)
        ready = sum(finding.state == OK for finding in findings)
        verb = "is" if ready == 1 else "are"
        number = f"{ready} of {format_count(len(findings), 'host')} {verb} ready."
        return _print_tables({title: findings}, number)
    if arguments.host:
        which, name = arguments.device or "an RDMA device", arguments.device or "NAME"
        run = f"{PROGRAM} run --host {arguments.host} --device {name}"
        findings = hosts.findings(arguments.host, remark)
        if arguments.device:
            findings.insert(0, presence(arguments.device, findings))
        return _print_tables({f"On {which} of {arguments.host} ({run})": findings})
    if arguments.device:
        title = f"On {arguments.device} ({PROGRAM} run --device {arguments.device})"
        driver = driver_of(arguments.device)
        findings = [*device_findings(), *use_findings(arguments.device), *driver_findings(driver)]
        return _print_tables({title: findings})
    return _print_tables(
        {
            f"On an RDMA device of this host ({PROGRAM} run --device NAME)": device_findings(),
            f"In the Soft-RoCE guest ({PROGRAM} run --guest)": guest_findings(
                recipe_for(arguments.stack, architecture_of(arguments.arch)),
            ),
        },
    )


def _print_tables(ways: Mapping[str, Sequence[Finding]], conclusion: str = "") -> int:
    for title, findings in ways.items():
        print(title)
        show([*table(findings), ""])
    ready = [title.partition(" (")[0] for title, findings in ways.items() if works(findings)]
    if len(ways) > 1:
        missing = "Neither way works yet: follow the arrows of one way."
    else:
        missing = "This way does not work yet."
    print(conclusion or (f"Works now: {'; '.join(ready)}." if ready else missing))
    if ready:
        return 0
    return NO_WAY


def lab_findings(file: Path) -> list[Finding]:
    """Returns for each host in the file of a lab what it lacks for a run, or that it lacks nothing."""
    labelled = read_lab(file, {"profile": read_profile, "waivers": Path}, say=remark)
    return [_host_finding(host) for host in labelled]


def _host_finding(host: LabHost) -> Finding:
    device = host.options.get("device")
    try:
        findings = hosts.findings(host.options["host"], remark)
    except UserError as error:
        return Finding(MISSING, host.name, error.message, error.hint)
    if device:
        findings.insert(0, presence(device, findings))
    told = [finding for finding in findings if finding.state == MISSING or finding.remedy]
    texts = [f"{finding.about}: {finding.text}" for finding in told]
    remedy = "; ".join(dict.fromkeys(finding.remedy for finding in told if finding.remedy))
    if not works(findings):
        return Finding(MISSING, host.name, "; ".join(texts), remedy)
    (devices,) = (finding for finding in findings if finding.about == DEVICES)
    return Finding(OK, host.name, "; ".join([device or devices.text, *texts]), remedy)


def presence(device: str, findings: Iterable[Finding]) -> Finding:
    """Returns whether another host, of which these are the findings, has a device."""
    (devices,) = (finding for finding in findings if finding.about == DEVICES)
    if devices.state != OK:
        return Finding(MISSING, device, "this host has no RDMA device")
    if device in devices.text.split(", "):
        return Finding(OK, device, "this host has it")
    return Finding(MISSING, device, f"this host has only {devices.text}")


def driver_of(device: str) -> str:
    """Returns the name of a device's kernel driver. Raises UserError if the device does not exist."""
    if device not in (names := device_names()):
        raise UserError(
            f"there is no device {device}",
            hint=f"devices of this host: {', '.join(names) or 'none'}",
        )
    return driver_name(RdmaNetlink(device).driver_id() or 0)


def use_findings(device: str) -> list[Finding]:
    """Returns whether a run on this device would be refused because of its ports, its users or a setting of the kernel.
    The port is the first that transfers data."""
    (present,) = (shown for shown in present_devices() if shown.name == device)
    findings = []
    try:
        note = check_use(device, present.port, None, shared=False)
        findings.append(Finding(OK, "port", f"{present.port}; {note or 'nobody uses the device'}"))
    except UserError as error:
        findings.append(Finding(MISSING, "port and users", error.message, error.hint))
    try:
        check_warnings(None, hazardous=False)
    except UserError as error:
        findings.append(Finding(MISSING, "kernel", error.message, error.hint))
    return findings


def driver_findings(driver: str, page: Path = nics_page.PAGE) -> list[Finding]:
    """Returns the notes on this driver, and the notes on every driver, from the page about NICs: violated rules with
    their places in the source, and other effects."""
    text = nics_page.text_of_page(page)
    if not text:
        return [
            Finding(NOTE, driver, "the page nics.md of the documentation describes known drivers"),
        ]
    findings = []
    for name, cells in nics_page.rows_about(driver, nics_page.VIOLATIONS, text):
        what = "; ".join(filter(None, cells))
        findings.append(
            Finding(
                NOTE, name, f"{what} (from its source in Linux 7.2 and rdma-core 65, not tested)"
            )
        )
    return findings


def table(findings: Iterable[Finding]) -> list[str]:
    """Returns the findings as lines of text. The remedy of a finding is the next line."""
    lines = []
    for finding in findings:
        lines.append(f"  {finding.state:7}  {finding.about:15}  {finding.text}")
        if finding.remedy:
            lines.append(f"  {'':7}  {'':15}  -> {finding.remedy}")
    return lines


def guest_findings(recipe: Recipe, root: Path = Path("/")) -> list[Finding]:
    """Returns what building and running the guest needs, and whether this host has it."""
    cache = cache_directory()
    folder = image_folder(recipe, cache)
    return [
        Finding(OK, "architecture", recipe.machine.description),
        packages_finding(("suite", *packages.guest(recipe.machine))),
        *_image_findings(folder, cache, recipe),
        _processor(root, folder / "vmlinuz", recipe.machine),
    ]


def _image_findings(folder: Path, cache: Path, recipe: Recipe) -> list[Finding]:
    try:
        check_usable(cache)
    except UserError as error:
        return [Finding(MISSING, "guest image", error.message, error.hint)]
    built = damage_of(folder, recipe.digest()) is None
    if built:
        needs = []
    else:
        needs = [_disk(cache), _rights_to_build()]
    return [_image(folder, built, recipe, works(needs)), *needs]


def _image(folder: Path, built: bool, recipe: Recipe, buildable: bool) -> Finding:
    if built:
        return Finding(OK, "guest image", str(folder))
    if folder.exists():
        why = "damaged"
    else:
        why = "not built yet"
    if buildable:
        then = "; the next run builds it, in about a minute"
    else:
        then = ""
    return Finding(NOTE, "guest image", f"{why} ({recipe.stack}){then}")


def _disk(cache: Path) -> Finding:
    try:
        free = shutil.disk_usage(
            next(folder for folder in (cache, *cache.parents) if folder.exists()),
        ).free
    except OSError as error:
        return Finding(
            MISSING,
            "disk space",
            f"{cache}: {error.strerror}",
            "set RDMA_CTS_CACHE to another directory",
        )
    text = f"{free >> 20} MiB free for {cache}, {NEEDED_BYTES >> 20} needed to build"
    if free < NEEDED_BYTES:
        return Finding(
            MISSING,
            "disk space",
            text,
            "set RDMA_CTS_CACHE to a directory on a larger disk",
        )
    return Finding(OK, "disk space", text)


def _rights_to_build() -> Finding:
    if os.geteuid() == 0:
        return Finding(OK, "rights", "root, which can build the image")
    if obstacle := privileges.obstacle():
        text = f"building the image needs root, or a user namespace: {obstacle.reason}"
        return Finding(MISSING, "rights", text, obstacle.remedy)
    return Finding(OK, "rights", "a user namespace, in which the image can be built without root")


def _processor(root: Path, vmlinuz: Path, architecture: Architecture) -> Finding:
    try:
        requested = qemu.requested()
    except UserError as error:
        return Finding(MISSING, "processor", error.message, error.hint)
    if requested == qemu.TCG:
        return Finding(OK, "processor", f"{requested}, which RDMA_CTS_ACCEL requests")
    obstacle = qemu.known_obstacle(vmlinuz, architecture, root / "dev/kvm")
    if obstacle and requested == qemu.KVM:
        refusal = qemu.refused(obstacle)
        return Finding(MISSING, "processor", refusal.message, refusal.hint)
    if obstacle:
        return Finding(OK, "processor", f"software emulation: {obstacle}")
    if qemu.remembered(vmlinuz) == qemu.KVM:
        return Finding(OK, "processor", "/dev/kvm")
    if requested == qemu.KVM:
        text = "/dev/kvm, which RDMA_CTS_ACCEL requests (tried at the next run)"
        return Finding(OK, "processor", text)
    return Finding(
        OK,
        "processor",
        "/dev/kvm if the guest's kernel starts there (tried at the next run), else software emulation",
    )
