"""Determines the device of a process: if several are named, each xdist worker owns one of them.

A worker that dies is replaced by one with another number, so that devices are assigned by locks, not by numbers. Not
for opening devices (options.py).
"""

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.device.port import device_names
from conformance.errors import UserError

_OWNED = pytest.StashKey[tuple[str, int]]()


def has_several(config: pytest.Config) -> bool:
    """Whether more than one device is named."""
    return "," in str(config.getoption("--rdma-device") or "")


def named_devices(config: pytest.Config) -> list[str]:
    """The devices under test: those of --rdma-device, or the only device of this host. Raises UserError."""
    names = [name for name in str(config.getoption("--rdma-device") or "").split(",") if name]
    if len(set(names)) < len(names):
        raise UserError(f"--rdma-device {','.join(names)} has a duplicate")
    if not names:
        names = device_names()
        if len(names) != 1:
            here = f"devices here: {', '.join(names)}" if names else "this host has no RDMA device"
            raise UserError(f"name the device under test with --rdma-device; {here}", status=2 if names else 4)
    return names


def check_workers(config: pytest.Config) -> None:
    """Raises UserError unless each of several devices has a worker, and each worker a device."""
    if not has_several(config):
        return
    names = named_devices(config)
    workers = config.getoption("numprocesses", None)
    if workers != len(names):
        raise UserError(f"{len(names)} devices need as many workers, one each", hint=f"add -n {len(names)}")


def own_device(config: pytest.Config) -> str:
    """The device of this process: with several devices, one that no other worker has; else the first one."""
    names = named_devices(config)
    worker = getattr(config, "workerinput", None)
    if worker is None or len(names) == 1:
        return names[0]
    if _OWNED not in config.stash:
        config.stash[_OWNED] = _lock_device(names, str(worker["testrunuid"]))
    return config.stash[_OWNED][0]


def _lock_device(names: Sequence[str], run: str) -> tuple[str, int]:
    """A free device, and the descriptor of its lock, which this process holds until it ends."""
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
