"""Stand-ins for hosts with NICs: their /sys/class/infiniband, their network interfaces, and their RDMA netlink. The values
follow the drivers' sources and are no dumps of a machine."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv6Address
from pathlib import Path

from commands import doctor
from conformance.device.port import Port
from conformance.kernel.interfaces import Interfaces
from fixtures.system import devices, usable
from fixtures.targets import target
from kinds import Patch
from samples import laid
from stand_in_netlink import Owned, StandInDevice, StandInKernel

ACTIVE, DOWN, INIT = "4: ACTIVE", "1: DOWN", "2: INIT"
V1, V2 = "IB/RoCE v1", "RoCE v2"
# The GID of the hardware address of the interface with this number.
LINK_LOCAL = "fe80:0000:0000:0000:5054:00ff:fe12:{:04x}"
GUID = "fe80:0000:0000:0000:b859:9f03:00d4:{:04x}"
ADDRESS = "0000:0000:0000:0000:0000:ffff:c0a8:{:04x}"
ZERO = "0000:0000:0000:0000:0000:0000:0000:0000"
# A process that exists while the tests run, and that is not this one.
TRAINING = os.getppid()
IPOIB = Owned(kernel="ib_ipoib", type="UD")
NVME = Owned(kernel="rdma_cm")
MANAGEMENT = [Owned(kernel="ib_core", type="SMI"), Owned(kernel="ib_core", type="GSI")]


@dataclass(frozen=True)
class StandInPort:
    """`gids` are the address, the type and the interface of each GID, in the order of their indices."""

    layer: str = "Ethernet"
    state: str = ACTIVE
    gids: tuple[tuple[str, str, str], ...] = ()
    pkeys: tuple[int, ...] = (0xFFFF,)

    def files(self) -> dict[str, str]:
        files = {"link_layer": self.layer, "state": self.state}
        files |= {f"pkeys/{index}": f"{key:#06x}" for index, key in enumerate(self.pkeys)}
        for index, (address, kind, interface) in enumerate(self.gids):
            files[f"gids/{index}"] = address
            if kind:
                files[f"gid_attrs/types/{index}"] = kind
            if interface:
                files[f"gid_attrs/ndevs/{index}"] = interface
        return files


@dataclass(frozen=True)
class StandInHost:
    """`interfaces` have the number and the operstate of each network interface of this network namespace."""

    devices: Mapping[str, StandInDevice]
    ports: Mapping[str, tuple[StandInPort, ...]]
    interfaces: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    # the interface and the address, in the form of a GID
    addresses: tuple[tuple[str, str], ...] = ()
    firmware: str = "28.43.2026"

    def laid(self, folder: Path) -> Path:
        """Makes `ib` and `net` in a folder, in place of /sys/class/infiniband and /sys/class/net."""
        for name, ports in self.ports.items():
            files = {"fw_ver": self.firmware, "node_type": "1: CA"}
            for number, port in enumerate(ports, 1):
                files_here = port.files().items()
                files |= {f"ports/{number}/{path}": text for path, text in files_here}
            laid(folder / "ib" / name, {path: f"{text}\n" for path, text in files.items()})
        for name, (index, state) in self.interfaces.items():
            if state == "up":
                flags = "0x1003"
            else:
                flags = "0x1002"
            files = {"ifindex": str(index), "flags": flags, "operstate": state}
            files["uevent"] = "DEVTYPE=vlan" if "." in name else ""
            files["address"] = f"52:54:00:12:{index // 256:02x}:{index % 256:02x}"
            laid(folder / "net" / name, {path: f"{text}\n" for path, text in files.items()})
        if "bond0" in self.interfaces:
            for part in ("ens2f0", "ens2f1"):
                (folder / "net" / part / "master").symlink_to("../bond0")
        return folder

    def seen(self, folder: Path) -> Interfaces:
        """Returns the network interfaces of a folder that `laid` has made, with their addresses."""
        numbers = {name: number for name, (number, _) in self.interfaces.items()}
        addresses = {
            (numbers[name], IPv6Address(text).ipv4_mapped or IPv6Address(text))
            for name, text in self.addresses
        }
        return Interfaces(folder / "net", lambda: addresses)

    def port(self, folder: Path, device: str, number: int = 1) -> Port:
        return Port(device, number, folder / "ib", self.seen(folder))

    def installed(self, folder: Path, monkeypatch: Patch) -> StandInKernel:
        """Makes this the host of the commands."""
        self.laid(folder)
        port = partial(Port, sysfs=folder / "ib", interfaces=self.seen(folder))
        monkeypatch.setattr(usable, "Port", port)
        monkeypatch.setattr(usable, "device_names", lambda: sorted(self.devices))
        present = partial(devices.present_devices, folder / "ib")
        for module in (doctor, target, usable):
            monkeypatch.setattr(module, "present_devices", present)
        return StandInKernel(self.devices).installed(monkeypatch)


def infiniband(index: int, state: str = ACTIVE) -> StandInPort:
    return StandInPort("InfiniBand", state, ((GUID.format(index), V1, ""),), (0xFFFF, 0x7FFF))


def dgx() -> StandInHost:
    """Eight InfiniBand NICs. All have IPoIB, the last two also storage over nvme_rdma. A job uses the second."""
    names = [f"mlx5_{number}" for number in range(8)]
    kernel = {name: [*MANAGEMENT, IPOIB] for name in names}
    kernel["mlx5_6"] = kernel["mlx5_7"] = [*MANAGEMENT, IPOIB, *[NVME] * 16]
    kernel["mlx5_1"] = [*kernel["mlx5_1"], *[Owned(TRAINING)] * 4]
    return StandInHost(
        {name: StandInDevice("mlx5", {"QP": kernel[name]}) for name in names},
        {name: (infiniband(number),) for number, name in enumerate(names)},
    )


def vlans_and_pods() -> StandInHost:
    """A RoCE NIC with a VLAN, and a pod whose macvlan has the name and the number of this host's interface. The pod's
    GIDs have the highest indices."""
    gids = (
        (LINK_LOCAL.format(2), V1, "eth0"),
        (LINK_LOCAL.format(2), V2, "eth0"),
        (ADDRESS.format(1), V1, "eth0"),
        (ADDRESS.format(1), V2, "eth0"),
        (ADDRESS.format(0x701), V1, "eth0.7"),
        (ADDRESS.format(0x701), V2, "eth0.7"),
        (LINK_LOCAL.format(0x5555), V2, "eth0"),
        (ADDRESS.format(0x5555), V2, "eth0"),
        (ZERO, "", ""),
    )
    device = StandInDevice("bnxt_re", {"QP": list(MANAGEMENT)}, interface="eth0")
    return StandInHost(
        {"bnxt_re0": device},
        {"bnxt_re0": (StandInPort(gids=gids),)},
        {"eth0": (2, "up"), "eth0.7": (9, "up")},
        (("eth0", ADDRESS.format(1)), ("eth0.7", ADDRESS.format(0x701))),
    )


def efa() -> StandInHost:
    """An EFA with a job: its SRD queue pairs are of a type of the driver's own."""
    device = StandInDevice("efa", {"QP": [Owned(TRAINING, type="SRD")] * 3})
    port = StandInPort("Unknown", gids=((GUID.format(1), "", ""),))
    return StandInHost({"rdmap0s6": device}, {"rdmap0s6": (port,)})


def mana() -> StandInHost:
    """A MANA with a job. Its driver has no query of queue pairs."""
    objects = {"QP": [*MANAGEMENT, Owned(TRAINING)], "CQ": [Owned(TRAINING)]}
    device = StandInDevice("mana", objects, refuses_queries=True, interface="eth1")
    gids = ((LINK_LOCAL.format(3), V2, "eth1"), (ADDRESS.format(1), V2, "eth1"))
    addresses = (("eth1", ADDRESS.format(1)),)
    ports = {"mana_0": (StandInPort(gids=gids),)}
    return StandInHost({"mana_0": device}, ports, {"eth1": (3, "up")}, addresses)


def virtual_function() -> StandInHost:
    """A virtual function of mlx5 beside its physical function with two ports, of which the first has no cable. The
    representors of the physical function are interfaces without GIDs."""
    gids = ((LINK_LOCAL.format(5), V2, "ens1v0"), (ADDRESS.format(2), V2, "ens1v0"))
    physical = (StandInPort(state=DOWN), StandInPort(gids=((ADDRESS.format(3), V2, "ens1f1"),)))
    interfaces = {
        "ens1v0": (5, "up"),
        "ens1f1": (6, "up"),
        "ens1f0_0": (7, "up"),
        "ens1f0_1": (8, "up"),
    }
    devices = {
        "mlx5_0": StandInDevice("mlx5", {"QP": list(MANAGEMENT)}, interface="ens1f1"),
        "mlx5_2": StandInDevice("mlx5", {"QP": list(MANAGEMENT)}, interface="ens1v0"),
    }
    ports = {"mlx5_0": physical, "mlx5_2": (StandInPort(gids=gids),)}
    addresses = (("ens1v0", ADDRESS.format(2)), ("ens1f1", ADDRESS.format(3)))
    return StandInHost(devices, ports, interfaces, addresses)


def bond() -> StandInHost:
    """A bond of two ports of a NIC (LAG): one device, whose GIDs belong to bond0 and to a VLAN on it. The kernel reports
    a part of the bond as the interface of the port."""
    gids = (
        (LINK_LOCAL.format(12), V1, "bond0"),
        (LINK_LOCAL.format(12), V2, "bond0"),
        (ADDRESS.format(4), V1, "bond0"),
        (ADDRESS.format(4), V2, "bond0"),
        (ADDRESS.format(0x704), V2, "bond0.7"),
    )
    interfaces = {
        "ens2f0": (10, "up"),
        "ens2f1": (11, "up"),
        "bond0": (12, "up"),
        "bond0.7": (13, "up"),
    }
    device = StandInDevice("mlx5", {"QP": list(MANAGEMENT)}, interface="ens2f0")
    ports = {"mlx5_bond_0": (StandInPort(gids=gids),)}
    addresses = (("bond0", ADDRESS.format(4)), ("bond0.7", ADDRESS.format(0x704)))
    return StandInHost({"mlx5_bond_0": device}, ports, interfaces, addresses)


HOSTS: Mapping[str, Callable[[], StandInHost]] = {
    "DGX": dgx,
    "VLANs and pods": vlans_and_pods,
    "EFA": efa,
    "MANA": mana,
    "VF": virtual_function,
    "bond": bond,
}
