"""The device under test, opened with pyverbs: what it is, what it declares, its protection domains.

Not for the verbs under test (calls.py) and not for finding out what the device really does.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from conformance.calls import IbvPd
from conformance.capability import Declared, declared_capabilities
from conformance.errors import UserError

SYSFS = Path("/sys/class/infiniband")


def device_names(sysfs: Path = SYSFS) -> list[str]:
    """The RDMA devices that the kernel of this host knows."""
    return sorted(entry.name for entry in sysfs.iterdir()) if sysfs.is_dir() else []


class ProtectionDomain:
    """A PD allocated with pyverbs, with the C pointer that exact calls need."""

    def __init__(self, device: Device) -> None:
        from pyverbs.pd import PD

        self._pd = PD(device.context)
        self.pointer = _pd_pointer(self._pd)

    @property
    def context_pointer(self) -> int:
        """struct ibv_context * of the PD."""
        return IbvPd.from_address(self.pointer).context or 0

    def close(self) -> None:
        """Deallocates the PD. Raises PyverbsRDMAError when the device refuses."""
        self._pd.close()


class Device:
    """An open device. Use as a context manager."""

    def __init__(self, name: str, port: int = 1, gid_index: int | None = None) -> None:
        try:
            from pyverbs.device import Context
            from pyverbs.pyverbs_error import PyverbsError
        except ImportError as error:
            raise UserError(
                f"pyverbs cannot be imported ({error})", hint="install python3-pyverbs", status=3
            ) from error
        known = device_names()
        if name not in known:
            listed = f"devices here: {', '.join(known)}" if known else "this host has no RDMA device"
            raise UserError(f"no RDMA device {name!r}; {listed}", status=2 if known else 4)
        try:
            self.context = Context(name=name)
        except PyverbsError as error:
            raise UserError(
                f"device {name} cannot be opened: {str(error).splitlines()[0]}",
                hint="check that ib_uverbs is loaded and /dev/infiniband/uverbs* can be read and written",
                status=3,
            ) from error
        self.name = name
        self.port = port
        self.gid_index = gid_index
        attributes = self.context.query_device_ex()
        self.attributes = attributes.orig_attr
        self.declared = Declared(
            device_cap_flags=attributes.device_cap_flags_ex | self.attributes.device_cap_flags,
            atomic_cap=int(self.attributes.atomic_caps),
            odp_general_caps=attributes.odp_caps.general_caps,
        )
        self.capabilities = declared_capabilities(self.declared)

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def describe(self) -> dict[str, Any]:
        """The device as a result's header shows it."""
        driver = SYSFS / self.name / "device" / "driver"
        return {
            "name": self.name,
            "driver": driver.resolve().name if driver.exists() else _driver_of(self.name),
            "fw": _text_of(SYSFS / self.name / "fw_ver"),
            "vendor_id": self.attributes.vendor_id,
            "vendor_part_id": self.attributes.vendor_part_id,
            "transport": _text_of(SYSFS / self.name / "ports" / str(self.port) / "link_layer"),
            "caps": {
                **self.capabilities,
                "device_cap_flags": self.declared.device_cap_flags,
                "atomic_cap": self.declared.atomic_cap,
                "odp_general_caps": self.declared.odp_general_caps,
                "max_mr_size": self.attributes.max_mr_size,
                "max_mw": self.attributes.max_mw,
            },
        }


def environment() -> dict[str, Any]:
    """The software around the device, as a result's header shows it."""
    return {
        "kernel": os.uname().release,
        "rdma_core": library_version(),
        "pyverbs": _package_version("python3-pyverbs"),
        "python": ".".join(str(part) for part in __import__("sys").version_info[:3]),
        "tainted": int(_text_of(Path("/proc/sys/kernel/tainted")) or 0),
    }


def library_version() -> str:
    """The rdma-core version of the libibverbs that this process has loaded.

    The library has no call that tells; its file is named libibverbs.so.1.<abi>.<rdma-core version>.
    """
    ctypes.CDLL("libibverbs.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        match = re.search(r"libibverbs\.so\.1\.[0-9]+\.([0-9.]+)$", os.path.realpath(line.split()[-1]))
        if match:
            return match[1]
    return "unknown"


def _package_version(package: str) -> str:
    for query in (["dpkg-query", "-W", "-f=${Version}", package], ["rpm", "-q", "--qf=%{VERSION}", package]):
        try:
            found = subprocess.run(query, capture_output=True, text=True, check=False)
        except OSError:
            continue
        if found.returncode == 0:
            return found.stdout.strip()
    return "unknown"


def _driver_of(name: str) -> str:
    # A software device has no parent driver; the kernel names it <driver><number> unless told otherwise,
    # and sysfs marks rxe by the attribute `parent`, the network device it rests on.
    return "rxe" if (SYSFS / name / "parent").exists() else re.sub(r"_?[0-9]+$", "", name)


def _text_of(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _pd_pointer(pd: Any) -> int:
    """The struct ibv_pd * behind a pyverbs PD.

    Newer pyverbs shows it as a property. In older ones it is the object's first own field, behind
    those of the base class. Either is checked against the handle that pyverbs itself reports.
    """
    from pyverbs.base import PyverbsCM

    pointer = getattr(pd, "pd", None)
    if not isinstance(pointer, int):
        pointer = ctypes.c_void_p.from_address(id(pd) + PyverbsCM.__basicsize__).value or 0
    handle = getattr(pd, "handle", None)
    if not pointer or (handle is not None and IbvPd.from_address(pointer).handle != handle):
        raise UserError(
            "this pyverbs keeps its struct ibv_pd where the suite does not find it",
            hint="please report the pyverbs version",
            status=3,
        )
    return pointer
