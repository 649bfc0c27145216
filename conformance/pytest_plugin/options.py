"""Defines the --rdma-… options of pytest, and returns the suite, profile, cases and device that they specify. If
several devices are named, each xdist worker uses one device. Devices are assigned by locks and not by the workers'
numbers, because a worker that replaces a dead worker has a new number. run_options.py defines the common options."""

from __future__ import annotations

import argparse
import fcntl
import functools
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from conformance.device.device import Device
from conformance.device.port import device_names
from conformance.device.remote_peer import RemoteDevice
from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.profile import Profile
from conformance.model.record import DeviceFacts
from conformance.model.transport import IWARP
from conformance.pytest_plugin.older_pytest import StashKey, root_of, stash_of
from conformance.run_options import OPTIONS, RunOptions
from conformance.tables.profile import read_profile
from conformance.tables.suite import Suite, load_suite
from conformance.yamldoc.reader import suggestion

_T = TypeVar("_T")
_OWNED = StashKey[tuple[str, int]]()


def has_several(config: pytest.Config) -> bool:
    """Whether more than one device is named."""
    return "," in str(config.getoption("--rdma-device") or "")


def named_devices(config: pytest.Config) -> list[str]:
    """Returns the devices under test: those of --rdma-device, or the only device of this host. Raises UserError."""
    names = [name for name in str(config.getoption("--rdma-device") or "").split(",") if name]
    if len(set(names)) < len(names):
        raise UserError(f"--rdma-device {','.join(names)} names a device twice")
    if not names:
        names = device_names()
        if len(names) != 1:
            if names:
                here = f"devices here: {', '.join(names)}"
            else:
                here = "this host has no RDMA device"
            raise UserError(
                f"name the device under test with --rdma-device; {here}",
                status=2 if names else 4,
            )
    return names


def check_workers(config: pytest.Config) -> None:
    """If several devices are named, raises UserError unless there is exactly one worker for each device."""
    if not has_several(config):
        return
    names = named_devices(config)
    workers = config.getoption("numprocesses", None)
    if workers != len(names):
        raise UserError(f"{len(names)} devices need as many workers", hint=f"add -n {len(names)}")


def own_device(config: pytest.Config) -> str:
    """Returns the device of this process: of several devices, a device that no other worker uses."""
    names = named_devices(config)
    worker = getattr(config, "workerinput", None)
    if worker is None or len(names) == 1:
        return names[0]
    if _OWNED not in stash_of(config):
        stash_of(config)[_OWNED] = _lock_device(names, str(worker["testrunuid"]))
    return stash_of(config)[_OWNED][0]


def _lock_device(names: Sequence[str], run: str) -> tuple[str, int]:
    """Returns a device that no other worker uses, and the descriptor of its lock, which this process holds."""
    for name in names:
        path = Path(tempfile.gettempdir()) / f"rdma-cts-{run}-{name}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        return name, descriptor
    raise UserError(f"more workers than devices ({', '.join(names)})")


# Capabilities that both the requester and the responder need.
_AT_BOTH_ENDS = ("xrc", "atomics", "flush_global", "flush_persistent", "atomic_write")

SUITE = StashKey[Suite]()
PROFILE = StashKey[Profile]()
# If a session received texts in place of files: the text of each file, by the value of the option that names the file.
HANDED = StashKey[dict[str, str]]()


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("rdma-cts", "conformance of RDMA memory-region verbs")
    for flag, settings in _declarations():
        group.addoption(flag, **settings)


def set_options(config: pytest.Config, arguments: Sequence[str]) -> None:
    """Sets the --rdma-… options of a session that has not started yet, as if these arguments had been passed to pytest.
    For any other argument, argparse prints an error and exits."""
    vars(config.option).update(vars(_parser().parse_args(arguments)))


@functools.cache
def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag, settings in _declarations():
        parser.add_argument(flag, **settings)
    return parser


def _declarations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the flag of each option, and the keyword arguments that declare the option to pytest and to argparse."""
    for option in OPTIONS.values():
        if option.plugin:
            if isinstance(option.default, tuple):
                default = list(option.default)
            else:
                default = option.default
            settings = option.settings(default)
            if option.name == "device":
                settings |= {
                    "metavar": "NAME[,NAME]",
                    "help": f"{option.help}, each with its own worker (-n)",
                }
            yield option.plugin_flag, {"default": default, **settings}
    yield (
        "--rdma-only",
        {"metavar": "FILE", "help": "run only the cases whose ids are in FILE, one per line"},
    )
    yield (
        "--rdma-alone",
        {
            "action": "store_true",
            "help": "count pinned pages; no other process on this kernel uses RDMA or pins pages",
        },
    )
    yield "--rdma-out", {"metavar": "DIR", "help": "write results.jsonl to this new directory"}
    yield (
        "--rdma-stream",
        {"metavar": "PATH", "help": "write result lines to PATH for a supervisor"},
    )
    yield (
        "--rdma-mark",
        {
            "metavar": "FILE",
            "help": "begin each line of --rdma-stream with the text in FILE; FILE is removed",
        },
    )


def suite_of(config: pytest.Config) -> Suite:
    """Returns the suite, which is read once per process. Raises pytest.UsageError with all mistakes."""
    return _read_once(config, SUITE, lambda: load_suite(config.getoption("--rdma-cases")))


def profile_of(config: pytest.Config) -> Profile:
    """Returns the profile of --rdma-profile, which is read once; without the option, an empty profile."""
    path = config.getoption("--rdma-profile")
    return _read_once(config, PROFILE, lambda: read_profile(path) if path else Profile())


def _read_once(config: pytest.Config, key: StashKey[_T], read: Callable[[], _T]) -> _T:
    if key not in stash_of(config):
        try:
            stash_of(config)[key] = read()
        except UserError as error:
            raise pytest.UsageError(*str(error).splitlines()) from error
    return stash_of(config)[key]


def text_of(config: pytest.Config, path: str, *, remove: bool = False) -> str:
    """Returns the text of a file that an option names; with `remove`, removes the file. Raises OSError."""
    handed = stash_of(config).get(HANDED, {})
    if path in handed:
        if remove:
            return handed.pop(path)
        return handed[path]
    text = Path(path).read_text(encoding="utf-8")
    if remove:
        Path(path).unlink()
    return text


def selected_cases(config: pytest.Config) -> list[Case] | None:
    """Returns the cases and points that --rdma-only names; None without that option. Raises pytest.UsageError."""
    path = config.getoption("--rdma-only")
    if not path:
        return None
    try:
        chosen = list(dict.fromkeys(text_of(config, path).split()))
    except OSError as error:
        raise pytest.UsageError(f"--rdma-only {path}: {error.strerror}") from error
    suite = suite_of(config)
    cases = []
    for name in chosen:
        try:
            case = suite.find(name)
        except UserError as error:
            raise pytest.UsageError(f"--rdma-only {path}: {error}") from error
        if case is None:
            near = suggestion(name, [case.id for case in suite.cases])
            raise pytest.UsageError(f"--rdma-only {path}: unknown case {name!r}{near}")
        cases.append(case)
    return cases


def options_of(config: pytest.Config, device: str | None) -> RunOptions:
    """Returns the options of this session as options of `rdma-cts run` on `device` of this host."""
    options = {
        name: config.getoption(option.plugin_flag)
        for name, option in OPTIONS.items()
        if option.plugin
    }
    options |= {"device": device, "cases": tuple(options["cases"])}
    return RunOptions(**options).seen_from_project(config.invocation_params.dir)


def case_of(item: pytest.Item) -> Case | None:
    """Returns the case that an item runs; None for other tests."""
    callspec = getattr(item, "callspec", None)
    if callspec:
        case = callspec.params.get("case")
    else:
        case = None
    if isinstance(case, Case):
        return case
    return None


def cases_of(session: pytest.Session) -> list[Case]:
    return [case for item in session.items if (case := case_of(item)) is not None]


def check(config: pytest.Config) -> DeviceFacts | None:
    """Returns the facts of the device under test; None if the session does not run cases. Raises UserError or
    pytest.UsageError if the session should run cases but cannot."""
    folder = root_of(config) / "cases"
    named = [
        (config.invocation_params.dir / argument.partition("::")[0]).resolve()
        for argument in config.args
    ]
    if not any(path.is_relative_to(folder) or folder.is_relative_to(path) for path in named):
        return None
    selected_cases(config)
    suite_of(config)
    if config.option.collectonly:
        return None
    profile = profile_of(config)
    check_workers(config)
    with open_device(config) as device:
        device.check_port()
        facts = device.describe()
        profile.check(facts["name"], facts["driver"])
        if name := config.getoption("--rdma-peer"):
            facts["peer"] = name
        return facts


def open_device(config: pytest.Config) -> Device:
    """Opens the device that this process uses. Raises UserError."""
    return Device(
        own_device(config),
        config.getoption("--rdma-port"),
        config.getoption("--rdma-gid-index"),
    )


def open_peer(config: pytest.Config, device: Device) -> Device:
    """Opens the device of this host that --rdma-peer names. Raises UserError if the device cannot be the peer."""
    peer = Device(config.getoption("--rdma-peer"))
    try:
        peer.check_port()
        check_peer(device, peer)
    except BaseException:
        peer.close()
        raise
    return peer


def check_peer(device: Device, peer: Device | RemoteDevice) -> None:
    """Raises UserError if the peer has a different transport, or lacks a capability that both ends need and that the
    device under test declares."""
    if IWARP in (device.transport, peer.transport):
        raise UserError(
            "--peer is not for iWARP, whose queue pairs are connected on one device only",
            status=3,
        )
    if device.transport is not peer.transport:
        raise UserError(
            f"{peer.name} is {peer.transport.name}, {device.name} is {device.transport.name}",
            status=3,
        )
    lacks = [
        name
        for name in _AT_BOTH_ENDS
        if device.capabilities.get(name) and not peer.capabilities.get(name)
    ]
    if lacks:
        raise UserError(
            f"the peer {peer.name} does not declare these capabilities of {device.name}: {', '.join(lacks)}",
            status=3,
        )
