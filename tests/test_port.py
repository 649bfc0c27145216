"""Tests of the port, GID and partition that traffic uses, and of the messages about unusable ports and GIDs, with a
made-up /sys."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.device import device as device_module
from conformance.device.device import Device, transport_of
from conformance.device.port import Port
from conformance.errors import UserError
from conformance.kernel.interfaces import Interfaces, local_addresses
from conformance.kernel.netlink import RdmaNetlink
from conformance.model.transport import INFINIBAND, ROCE
from samples import laid, user_error
from stand_in_hosts import (
    ADDRESS,
    INIT,
    StandInHost,
    StandInPort,
    bond,
    infiniband,
    virtual_function,
    vlans_and_pods,
)
from stand_in_hosts import LINK_LOCAL as HERE

LINK_LOCAL, MAPPED = (
    "fe80:0000:0000:0000:5054:00ff:fe12:3456",
    "0000:0000:0000:0000:0000:ffff:c0a8:0001",
)
VLAN, GLOBAL = "0000:0000:0000:0000:0000:ffff:c0a8:0101", "2001:0db8:0000:0000:0000:0000:0000:0001"
PREFIX_ALONE, NONE = (
    "fe80:0000:0000:0000:0000:0000:0000:0000",
    "0000:0000:0000:0000:0000:0000:0000:0000",
)
V1, V2 = "IB/RoCE v1", "RoCE v2"
Entry = tuple[str, str, str]  # address, type, interface


@pytest.fixture
def port_of(tmp_path: Path) -> Callable[..., Port]:
    """Returns a function that makes a port in a made-up /sys, with a link layer, GIDs, and interfaces (name, flags,
    operstate)."""

    def make(
        link_layer: str = "Ethernet",
        *gids: Entry,
        state: str = "4: ACTIVE",
        pkeys: tuple[int, ...] = (0xFFFF,),
        interfaces: tuple[tuple[str, int, str], ...] = (("d0", 0x1003, "up"),),
    ) -> Port:
        folder = tmp_path / "ib" / "any0" / "ports" / "1"
        files = {"link_layer": link_layer, "state": state}
        files |= {f"pkeys/{index}": f"{key:#06x}" for index, key in enumerate(pkeys)}
        for index, (address, kind, interface) in enumerate(gids):
            files |= {f"gids/{index}": address}
            files |= {f"gid_attrs/types/{index}": kind} if kind else {}
            files |= {f"gid_attrs/ndevs/{index}": interface} if interface else {}
        laid(folder, {name: f"{text}\n" for name, text in files.items()})
        numbers = {name: number for number, (name, _, _) in enumerate(interfaces, 1)}
        for name, flags, operstate in interfaces:
            files = {"flags": f"{flags:#x}", "operstate": operstate, "ifindex": f"{numbers[name]}"}
            laid(tmp_path / "net" / name, {file: f"{text}\n" for file, text in files.items()})
        addresses = {
            (numbers[name], IPv6Address(text).ipv4_mapped or IPv6Address(text))
            for text, _, name in gids
            if name in numbers
        }
        return Port("any0", 1, tmp_path / "ib", Interfaces(tmp_path / "net", lambda: addresses))

    return make


@pytest.mark.parametrize(
    "link_layer, gids, index",
    [
        ("Ethernet", ((LINK_LOCAL, V1, "d0"), (MAPPED, V2, "d0"), (NONE, "", "")), 1),
        ("Ethernet", ((MAPPED, V2, "d0"), (MAPPED, V1, "d0")), 0),  # version 2 at any index
        (
            "Ethernet",
            ((GLOBAL, V2, "d0"), (LINK_LOCAL, V2, "d0")),
            0,
        ),  # link-local only if there is no other
        ("Ethernet", ((LINK_LOCAL, V1, "d0"), (LINK_LOCAL, V2, "d0")), 1),
        ("Ethernet", ((MAPPED, V1, "d0"),), 0),
        ("Ethernet", ((MAPPED, V2, "d0"), (PREFIX_ALONE, V2, "d0")), 0),
        ("Ethernet", ((MAPPED, V2, "d0"), (VLAN, V2, "d0.7")), 0),  # the VLAN's interface is down
        (
            "Ethernet",
            ((MAPPED, V2, "d0"), (VLAN, V2, "elsewhere")),
            0,
        ),  # the interface is in another network namespace
        (
            "Ethernet",
            ((LINK_LOCAL, "", ""), (MAPPED, "", ""), (PREFIX_ALONE, "", "")),
            1,
        ),  # an old kernel: no types
        ("InfiniBand", ((LINK_LOCAL, V1, ""), (LINK_LOCAL, V1, "")), 0),
        ("Unknown", ((LINK_LOCAL, V1, ""),), 0),  # EFA
    ],
)
def test_the_best_gid_whose_interface_is_up_is_used(port_of, link_layer, gids, index):
    port = port_of(
        link_layer,
        *gids,
        interfaces=(("d0", 0x1003, "up"), ("d0.7", 0x1003, "lowerlayerdown")),
    )
    assert port.choose(port.gids()) == index
    assert port.choose(port.gids(range(len(gids)))) == index
    if link_layer != "Ethernet":  # GIDs without an interface
        for usable in range(len(gids)):
            port.check(usable)


def test_an_empty_gid_is_refused_and_the_usable_gids_are_listed(port_of):
    with pytest.raises(UserError, match="this GID of port 1 of any0 is empty") as caught:
        port_of("Unknown", (LINK_LOCAL, V1, "")).check(1)
    assert caught.value.hint == f"usable: 0 ({LINK_LOCAL})"


def test_a_port_without_any_gid_is_refused(port_of):
    port = port_of("Unknown")
    with user_error(
        "port 1 of any0 has no GID, so .* sent; select another with --port or --device$",
        status=3,
    ):
        port.choose(port.gids())


@pytest.mark.parametrize(
    "gids, hint",
    [
        ((), "add an address to its network interface"),
        (((MAPPED, V2, "d0"),), "ip link set d0 up"),
        (((MAPPED, V2, "elsewhere"),), "run in the network namespace of that interface"),
    ],
)
def test_a_port_without_a_usable_gid_is_reported_with_what_to_do(port_of, gids, hint):
    port = port_of("Ethernet", *gids, interfaces=(("d0", 0x1002, "down"),))
    with user_error("port 1 of any0 has no GID whose network interface is up", status=3) as caught:
        port.choose(port.gids())
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "index, what",
    [
        (2, "is empty"),
        (9, "is empty"),
        (3, "belongs to d1, which is down"),
        (4, "has no interface here"),
    ],
)
def test_a_gid_that_cannot_be_used_is_refused_and_the_usable_gids_are_listed(port_of, index, what):
    gids = (
        (LINK_LOCAL, V1, "d0"),
        (MAPPED, V2, "d0"),
        (NONE, "", ""),
        (VLAN, V2, "d1"),
        (GLOBAL, V2, "elsewhere"),
    )
    port = port_of(
        "Ethernet", *gids, interfaces=(("d0", 0x1003, "unknown"), ("d1", 0x1002, "down"))
    )
    for good in (0, 1):
        port.check(good)
    with pytest.raises(UserError) as caught:
        port.check(index)
    assert caught.value.message == f"--gid-index {index}: this GID of port 1 of any0 {what}"
    assert caught.value.hint == f"usable: 0 (RoCE v1, {LINK_LOCAL}, d0), 1 (RoCE v2, {MAPPED}, d0)"
    assert caught.value.status == 2


@pytest.mark.parametrize("state", ["0: NOP", "1: DOWN", "2: INIT", "17: NEW"])
def test_a_port_that_is_not_active_is_refused(port_of, state):
    with user_error(f"port 1 of any0 is {state[3:].strip()}", status=3):
        port_of("InfiniBand", (LINK_LOCAL, V1, ""), state=state).check()


def test_a_port_that_does_not_exist_is_refused_and_the_existing_ports_are_listed(port_of, tmp_path):
    port_of()
    with pytest.raises(UserError, match="any0 has no port 2; its ports: 1"):
        Port("any0", 2, tmp_path / "ib").check()


@pytest.mark.parametrize(
    "pkeys, index",
    [
        ((0xFFFF,), 0),
        ((0x7FFF, 0x8001, 0xFFFF), 2),
        ((0x7FFF, 0x8001), 1),
        ((0x7FFF,), 0),
        ((), 0),
        ((0, 0x8005), 1),
    ],
)
def test_the_partition_has_full_membership_if_possible(port_of, pkeys, index):
    assert port_of("InfiniBand", pkeys=pkeys).pkey_index == index


# Ports of stand-ins for hosts


def chosen_on(host: StandInHost, folder: Path, number: int = 1) -> str:
    """Returns the address of the GID that a run on the first device of a host uses."""
    name, device = next(iter(host.devices.items()))
    host.laid(folder)
    port = host.port(folder, name, number)
    index = port.choose(port.gids(), device.interface)
    return next(gid.address for gid in port.gids() if gid.index == index)


def test_a_gid_of_a_pod_with_the_names_of_this_host_is_not_used(tmp_path):
    """The pod's macvlan and this host's interface are both eth0 with the number 2."""
    host = vlans_and_pods()
    assert chosen_on(host, tmp_path) == ADDRESS.format(1)
    port = host.port(tmp_path, "bnxt_re0")
    assert [gid.index for gid in port.gids() if gid.up] == [0, 1, 2, 3, 4, 5]
    with user_error("--gid-index 7: this GID .* has no interface here", status=2):
        port.check(7)


def test_gids_of_vlans_are_behind_those_of_the_port(tmp_path):
    host = vlans_and_pods()
    without = [address for address in host.addresses if address[0] != "eth0"]
    only_vlan = replace(host, addresses=tuple(without))
    assert chosen_on(only_vlan, tmp_path) == HERE.format(2), "the port's own default GID is enough"
    host.port(tmp_path, "bnxt_re0").check(5)
    for interface in ("eth0", ""):  # also if the kernel does not report the interface of the port
        device = replace(host.devices["bnxt_re0"], interface=interface)
        assert chosen_on(replace(host, devices={"bnxt_re0": device}), tmp_path) == ADDRESS.format(1)


def test_a_bond_is_the_interface_of_its_ports(tmp_path):
    assert chosen_on(bond(), tmp_path) == ADDRESS.format(4)


def test_a_virtual_function_and_the_second_port_have_their_own_gids(tmp_path):
    """The representors of virtual functions have no GIDs."""
    host = virtual_function()
    assert chosen_on(host, tmp_path, number=2) == ADDRESS.format(3)
    with user_error("port 1 of mlx5_0 is DOWN", status=3):
        host.port(tmp_path, "mlx5_0").check()
    host.port(tmp_path, "mlx5_0", 2).check()
    assert chosen_on(replace(host, devices=dict([*host.devices.items()][1:])), tmp_path) == (
        ADDRESS.format(2)
    )


def test_an_infiniband_port_in_init_waits_for_a_subnet_manager(tmp_path):
    host = StandInHost({}, {"mlx5_0": (infiniband(0, INIT), StandInPort(state=INIT))})
    host.laid(tmp_path)
    with user_error("mlx5_0 is INIT: .*; no subnet manager has configured it", status=3):
        host.port(tmp_path, "mlx5_0").check()
    with user_error("mlx5_0 is INIT: .*; connect and activate the port", status=3):
        host.port(tmp_path, "mlx5_0", 2).check()


def test_the_addresses_of_this_namespace_are_those_that_the_kernel_lists():
    addresses = local_addresses()
    # Not from /sys, which a chroot may lack.
    assert {number for number, _ in addresses} <= {number for number, _ in socket.if_nameindex()}
    if addresses:
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
    else:
        lines = []
    listed = {
        (int(words[1], 16), IPv6Address(bytes.fromhex(words[0]))) for words in map(str.split, lines)
    }
    assert listed == {address for address in addresses if address[1].version == 6}


# Paths, on a device that was not opened


def device(layer: str, lid: int = 7, flags: int = 0, gid_index: int | None = None) -> Device:
    unopened = Device.__new__(Device)
    unopened.name, unopened.port, unopened.gid_index = "any0", 1, gid_index
    unopened.transport = INFINIBAND if layer == "InfiniBand" else ROCE
    unopened.__dict__["_port"] = SimpleNamespace(lid=lid, flags=flags)
    return unopened


@pytest.mark.parametrize(
    "of, used",
    [
        (device("InfiniBand"), False),
        (device("InfiniBand", gid_index=0), True),
        (device("InfiniBand", flags=1), True),
        (device("InfiniBand", lid=0), True),
        (device("Ethernet", lid=0), True),
    ],
)
def test_infiniband_uses_the_lid_and_has_a_global_route_only_if_necessary(of, used):
    assert of.uses_grh is used


def test_the_transport_is_that_of_the_node_and_its_link(tmp_path):
    for node, layer, name in (
        ("1: CA", "InfiniBand", "InfiniBand"),
        ("1: CA", "Ethernet", "RoCE"),
        ("4: RNIC", "Ethernet", "iWARP"),
        ("7: unspecified", "Unknown", "unspecified"),
    ):
        laid(tmp_path / name, {"node_type": node, "ports/1/link_layer": layer})
        assert transport_of(tmp_path / name, 1).name == name


def test_a_device_uses_the_gid_table_of_the_stack_if_there_is_one(port_of, monkeypatch, tmp_path):
    port_of("Ethernet", (MAPPED, "", ""), (VLAN, "", ""))
    monkeypatch.setattr(device_module, "SYSFS", tmp_path / "ib")
    for indices, chosen in (([0], 0), (None, 1)):
        unopened = device("Ethernet")
        unopened.netlink = RdmaNetlink("any0")
        monkeypatch.setattr(Device, "_gid_indices", lambda _, gids=indices: gids)
        assert unopened.source_gid_index == chosen


def test_a_device_that_may_not_be_opened_is_reported_in_one_line(monkeypatch):
    class PyverbsError(Exception):
        pass

    def refused(name: str) -> None:
        raise PyverbsError(f"Failed to open device {name}\nErrno: 13, Permission denied")

    for name, module in (
        ("pyverbs", SimpleNamespace()),
        ("pyverbs.device", SimpleNamespace(Context=refused)),
        ("pyverbs.pyverbs_error", SimpleNamespace(PyverbsError=PyverbsError)),
    ):
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(device_module, "device_names", lambda: ["any0"])
    with user_error(
        "device any0 cannot be opened: Failed to open device any0; check that",
        status=3,
    ):
        Device("any0")


def test_a_program_of_32_bits_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr("ctypes.sizeof", lambda _: 4)
    with user_error("this Python is a 32-bit program", status=3):
        Device("any0")
