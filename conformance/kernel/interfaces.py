"""Reads the network interfaces of this network namespace: their states, and whether an address of a GID is one of theirs.

sysfs names the interface of a GID also if the interface is in a different namespace (`print_ndev` of
drivers/infiniband/core/sysfs.c), and names and numbers of interfaces are unique only within a namespace: an interface
of a container is usually eth0. Therefore only an address proves that the interface of a GID is here."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Union

from conformance.kernel.log import text_of
from conformance.kernel.netlink import DUMP, attributes_of, opened, request

NET = Path("/sys/class/net")
_UP = 1  # IFF_UP of <linux/if.h>
_NOT_CARRYING = ("down", "lowerlayerdown", "notpresent")  # operstate of an interface
# <linux/rtnetlink.h> and <linux/if_addr.h>
_NETLINK_ROUTE, _GET_ADDRESSES = 0, 22
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_MESSAGE = struct.Struct("=BBBBI")  # struct ifaddrmsg
_STACKED = ("vlan", "macvlan", "ipvlan")  # DEVTYPE in the uevent of an interface

# Pairs of the number of an interface and one of its addresses.
Addresses = set[tuple[int, Union[ipaddress.IPv4Address, ipaddress.IPv6Address]]]


def local_addresses() -> Addresses:
    """Returns the IP addresses of the interfaces of this network namespace; empty without rtnetlink."""
    try:
        with opened(_NETLINK_ROUTE) as link:
            messages = request(link, _GET_ADDRESSES, _MESSAGE.pack(0, 0, 0, 0, 0), DUMP)
    except OSError:
        return set()
    addresses: Addresses = set()
    for message in messages:
        interface = _MESSAGE.unpack_from(message)[-1]
        values = dict(attributes_of(message[_MESSAGE.size :]))
        # On a link between two hosts, the first is this host's and the second the other's.
        if address := values.get(_IFA_LOCAL, values.get(_IFA_ADDRESS)):
            addresses.add((interface, ipaddress.ip_address(address)))
    return addresses


class Interfaces:
    """The interfaces of this namespace. Tests pass a different folder and different addresses."""

    def __init__(
        self,
        folder: Path = NET,
        addresses: Callable[[], Addresses] = local_addresses,
    ) -> None:
        self._folder = folder
        self._read_addresses = addresses

    @cached_property
    def _addresses(self) -> Addresses:
        return self._read_addresses()

    def has(self, name: str, gid: str) -> bool:
        """Whether the interface of this namespace with this name has the address of a GID. The GID that every port has
        is made from the hardware address of its interface."""
        folder = self._folder / name
        if not name or not folder.is_dir():
            return False
        address = ipaddress.IPv6Address(gid)
        number = int(text_of(folder / "ifindex") or "0")
        ip = address.ipv4_mapped or address
        return (number, ip) in self._addresses or address == _default_gid(folder)

    def carries(self, name: str) -> bool:
        """Whether an interface is up and has a link."""
        folder = self._folder / name
        up = int(text_of(folder / "flags") or "1", 0) & _UP
        return bool(up) and text_of(folder / "operstate") not in _NOT_CARRYING

    def is_stacked(self, name: str) -> bool:
        """Whether an interface is stacked on a different one, as a VLAN is."""
        uevent = text_of(self._folder / name / "uevent").splitlines()
        return any(f"DEVTYPE={kind}" in uevent for kind in _STACKED)

    def master_of(self, name: str) -> str:
        """Returns the name of the bond of which an interface is a part; empty if there is none."""
        master = self._folder / name / "master"
        if name and master.exists():
            return master.resolve().name
        return ""


def _default_gid(folder: Path) -> ipaddress.IPv6Address | None:
    """Returns the link-local address with the modified EUI-64 of the hardware address (RFC 4291, appendix A)."""
    octets = text_of(folder / "address").split(":")
    if len(octets) != 6:
        return None
    first, *rest = (int(octet, 16) for octet in octets)
    eui = bytes([first ^ 2, *rest[:2], 0xFF, 0xFE, *rest[2:]])
    return ipaddress.IPv6Address(b"\xfe\x80" + b"\0" * 6 + eui)
