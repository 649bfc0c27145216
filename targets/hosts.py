"""Hosts that are reached over ssh, for runs and `rdma-cts doctor`: the files for the host, and the object that starts
workers on its device. fixtures/hosts/ implements the connection."""

import functools
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from conformance.errors import UserError
from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT
from fixtures.hosts.address import Address
from fixtures.hosts.link import Link
from fixtures.hosts.remote_host import Means, RemoteHost
from fixtures.hosts.remote_worker import Place
from fixtures.hosts.ssh import PARTS, packed
from fixtures.system import packages, usable
from fixtures.system.readiness import Finding
from targets import builds

Say = Callable[[str], None]
_PROFILE = Path("profile.yaml")
_FINDINGS_S = 60.0


def install_client(say: Say, assume_yes: bool) -> None:
    """Installs ssh on this host if it is missing; asks first unless `assume_yes`. Raises UserError."""
    packages.ensure_tools(packages.SSH, assume_yes=assume_yes, say=say)


def opened(options: RunOptions, say: Say) -> RemoteHost:
    """Checks the device of --host, and returns a context manager for the host. At the end of the block, all files are
    removed from the host. Raises UserError."""
    builds.refuse_over_ssh(options)
    if options.peer:
        usable.on_another_host(options.peer)  # reports a syntax error before a connection is opened
    uses = packages.SEQUENCES if options.tier == "exhaustive" and options.sequences else ()
    wanted = {name: getattr(options, name) for name in ("port", "gid_index", "peer", "shared")}
    wanted |= {"device": options.device or "", "uses": uses}
    means = Means(options.return_within, options.console or "", options.power_cycle or "")
    host = RemoteHost(_address(options.host or ""), archive(options), wanted, means, say)
    host.open()
    return host


def places(
    options: RunOptions, host: RemoteHost, out: Path, hazardous: Collection[str]
) -> list[Place]:
    """Returns, for each device of the host, an object that starts workers on this device. Results and console are
    written to the directory `out`. Each of the `hazardous` cases gets its own boot, if the host can be reset."""
    profile = _PROFILE if options.profile else None
    inside = replace(
        options, cases=tuple(Path(name) for _, name in _vendor(options)), profile=profile
    )
    host.follow_console(out / "host-console.log")
    links = [
        host.first,
        *[None] * len(options.devices),
    ]  # the first device uses the existing connection
    return [
        Place(host, inside.on(device).plugin_arguments(), out / "console.log", hazardous, link)
        for device, link in zip(options.devices, links, strict=False)
    ]


def findings(host: str) -> list[Finding]:
    """Returns what a run on a device of `host` needs, and whether the host has it. Raises UserError."""
    link = Link.connected(_address(host), archive(RunOptions()), _FINDINGS_S)
    try:
        link.ask("doctor")
        reply = link.answer("findings", _FINDINGS_S)
        return [
            Finding(each["state"], each["about"], each["text"], each["remedy"])
            for each in reply["findings"]
        ]
    finally:
        link.end(_FINDINGS_S)


def _address(text: str) -> Address:
    try:
        return Address.parse(text)
    except ValueError as error:
        raise UserError(f"--host {error}") from None


def _vendor(options: RunOptions) -> list[tuple[Path, str]]:
    return [(folder.resolve(), f"vendor/{number}") for number, folder in enumerate(options.cases)]


def archive(options: RunOptions) -> bytes:
    """Returns the packed files for the host, which are packed once for all hosts of a lab. Raises UserError."""
    profile = [(options.profile, str(_PROFILE))] if options.profile else []
    return _packed((*((ROOT / part, part) for part in PARTS), *_vendor(options), *profile))


_packed = functools.cache(packed)
