"""Reads one port of a device from sysfs: its state, and the GIDs and partitions that the port can use. The device need
not be open, so the options --port and --gid-index are checked before a run begins."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UserError
from conformance.kernel.interfaces import Interfaces
from conformance.kernel.log import text_of

SYSFS = Path("/sys/class/infiniband")
# The states of enum ibv_port_state in which a port transfers data. sysfs has the number and the name of the state.
_CARRYING = ("ARMED", "ACTIVE", "ACTIVE_DEFER")
# The names of link layers in sysfs. On "Unknown", the link layer of EFA, a GID has no network interface.
INFINIBAND, UNSPECIFIED = "InfiniBand", "Unknown"
ROCE_1, ROCE_2 = "RoCE v1", "RoCE v2"
_TYPES = {"IB/RoCE v1": ROCE_1, "RoCE v2": ROCE_2}
# full membership, in a partition key; two limited members cannot communicate
_FULL_MEMBER = 1 << 15
_DEFAULT_PARTITION = 0xFFFF
_LINK_LOCAL = "fe80:"


def device_names(sysfs: Path = SYSFS) -> list[str]:
    if sysfs.is_dir():
        return sorted(entry.name for entry in sysfs.iterdir())
    return []


@dataclass(frozen=True)
class Gid:
    """A GID of a port's GID table, with an address other than zero. `kind` is the RoCE version, if known. `interface`
    is the network interface of a RoCE GID, or empty if the interface is not in this network namespace. `up` is true if
    the interface is up, if the link layer needs no interface, or if sysfs does not have the interfaces of GIDs."""

    index: int
    address: str
    kind: str = ""
    interface: str = ""
    up: bool = True

    def __str__(self) -> str:
        return (
            f"{self.index} ({', '.join(filter(None, (self.kind, self.address, self.interface)))})"
        )


class Port:
    """A port: the name of its device and its number, from 1."""

    def __init__(
        self,
        device: str,
        number: int,
        sysfs: Path = SYSFS,
        interfaces: Interfaces | None = None,
    ) -> None:
        self.device, self.number = device, number
        self._folder = sysfs / device / "ports" / str(number)
        self._interfaces = interfaces or Interfaces()

    def check(self, gid_index: int | None = None) -> None:
        """Raises UserError if the port does not exist, is down, or has no usable GID at `gid_index`."""
        if not self._folder.is_dir():
            ports = sorted(path.name for path in self._folder.parent.glob("*"))
            raise UserError(
                f"{self.device} has no port {self.number}; its ports: {', '.join(ports) or 'none'}",
            )
        if not self.transfers:
            message = f"port {self.number} of {self.device} is {self.state}: it transfers no data"
            raise UserError(message, hint=self._activation, status=3)
        if gid_index is not None:
            self._check_gid(gid_index)

    @property
    def state(self) -> str:
        """The name of the port's state, such as ACTIVE; empty if sysfs does not have it."""
        return text_of(self._folder / "state").rpartition(" ")[2]

    @property
    def transfers(self) -> bool:
        return not self.state or self.state in _CARRYING

    @property
    def _activation(self) -> str:
        """What makes the port transfer data. On InfiniBand, a connected port waits in INIT for a subnet manager."""
        if self.link_layer == INFINIBAND and self.state == "INIT":
            return "no subnet manager has configured it: start one on this fabric, such as opensm"
        return "connect and activate the port, or select another with --port"

    @property
    def link_layer(self) -> str:
        """The name of the link layer in sysfs. On the link layer InfiniBand, ports have LIDs."""
        return text_of(self._folder / "link_layer")

    @property
    def pkey_index(self) -> int:
        """The index of the partition key to use: the default partition, else the first with full membership, else 0."""
        folder = self._folder / "pkeys"
        if folder.is_dir():
            names = sorted(map(int, os.listdir(folder)))
        else:
            names = []
        keys = {index: int(text_of(folder / str(index)) or "0", 0) for index in names}
        full = [index for index, key in keys.items() if key & _FULL_MEMBER]
        return next(
            (index for index in full if keys[index] == _DEFAULT_PARTITION),
            full[0] if full else 0,
        )

    def gids(self, indices: Iterable[int] | None = None) -> list[Gid]:
        """Returns the GIDs of the port. With `indices`, returns only the GIDs at these indices."""
        # A table may have a thousand GIDs. In an emulated guest, reading all of them takes seconds.
        folder = self._folder / "gids"
        listed = (
            map(int, os.listdir(folder)) if indices is None and folder.is_dir() else indices or ()
        )
        return [gid for index in sorted(listed) if (gid := self._gid(index))]

    def _gid(self, index: int) -> Gid | None:
        address = text_of(self._folder / "gids" / str(index))
        if not set(address[20:]) - set("0:"):  # the interface id is zero: no address
            return None
        if (layer := self.link_layer) in (INFINIBAND, UNSPECIFIED):
            return Gid(index, address, layer if layer == INFINIBAND else "")
        attributes = self._folder / "gid_attrs"
        kind = _TYPES.get(text_of(attributes / "types" / str(index)), "")
        if not attributes.is_dir():
            return Gid(index, address)
        interface = text_of(attributes / "ndevs" / str(index))
        if self._interfaces.has(interface, address):
            here = interface
        else:
            here = ""
        return Gid(index, address, kind, here, bool(here) and self._interfaces.carries(here))

    def _is_own(self, interface: str, of_port: str) -> bool:
        """Whether an interface is that of the port, or the bond of which that interface is a part. If the port's
        interface is unknown, every interface that is not stacked on a different one counts."""
        if of_port:
            return interface in (of_port, self._interfaces.master_of(of_port))
        return not self._interfaces.is_stacked(interface)

    def choose(self, gids: Sequence[Gid], own: str = "") -> int:
        """Returns the index of the GID of `gids` to use for loopback traffic. Raises UserError if no GID can be used.
        `own` is the name of the port's network interface, if the kernel reports it for this namespace.

        On InfiniBand, returns the index of the first GID, which every port has. On other link layers, only GIDs with
        `up` can be used. Of these, RoCE v2 is preferred, then the port's own interface to a VLAN, then an address that
        is not link-local, then the highest index.
        """
        if (layer := self.link_layer) == INFINIBAND:
            return 0
        usable = [gid for gid in gids if gid.up]
        if not usable:
            port, another = (
                f"port {self.number} of {self.device}",
                "select another with --port or --device",
            )
            if layer == UNSPECIFIED:
                raise UserError(
                    f"{port} has no GID, so nothing can be sent",
                    hint=another,
                    status=3,
                )
            raise UserError(
                f"{port} has no GID whose network interface is up",
                hint=self._remedy(gids),
                status=3,
            )
        return max(
            usable,
            key=lambda gid: (
                gid.kind != ROCE_1,
                self._is_own(gid.interface, own),
                not gid.address.startswith(_LINK_LOCAL),
                gid.index,
            ),
        ).index

    def _remedy(self, gids: Sequence[Gid]) -> str:
        down = next((gid.interface for gid in gids if gid.interface), "")
        if down:
            return f"ip link set {down} up"
        return "add an address to its network interface, or run in the network namespace of that interface"

    def _check_gid(self, index: int) -> None:
        gids = self.gids()
        gid_here = next((gid for gid in gids if gid.index == index), None)
        if gid_here and gid_here.up:
            return
        if gid_here is None:
            wrong = "is empty"
        elif gid_here.interface:
            wrong = f"belongs to {gid_here.interface}, which is down"
        else:
            wrong = "has no interface here"
        usable = ", ".join(str(gid) for gid in gids if gid.up) or "none"
        raise UserError(
            f"--gid-index {index}: this GID of port {self.number} of {self.device} {wrong}",
            hint=f"usable: {usable}",
        )
