"""Stand-ins for hosts with NICs: their /sys/class/infiniband, their network interfaces, and their RDMA netlink. The values
follow the drivers' sources and are no dumps of a machine."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from conformance.device.port import Port
from fixtures.system import devices, usable
from kinds import Patch
from samples import laid
from stand_in_netlink import Owned, StandInDevice, StandInKernel
from targets import target

ACTIVE, DOWN, INIT = "4: ACTIVE", "1: DOWN", "2: INIT"
V1, V2 = "IB/RoCE v1", "RoCE v2"
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
    firmware: str = "28.43.2026"

    def laid(self, folder: Path) -> Path:
        """Makes `ib` and `net` in a folder, in place of /sys/class/infiniband and /sys/class/net."""
        for name, ports in self.ports.items():
            files = {"fw_ver": self.firmware, "node_type": "1: CA"}
            for number, port in enumerate(ports, 1):
                own = port.files().items()
                files |= {f"ports/{number}/{path}": text for path, text in own}
            laid(folder / "ib" / name, {path: f"{text}\n" for path, text in files.items()})
        for name, (index, state) in self.interfaces.items():
            flags = "0x1003" if state == "up" else "0x1002"
            files = {"ifindex": str(index), "flags": flags, "operstate": state}
            laid(folder / "net" / name, {path: f"{text}\n" for path, text in files.items()})
        return folder

    def installed(self, folder: Path, monkeypatch: Patch) -> StandInKernel:
        """Makes this the host of the commands."""
        self.laid(folder)
        port = partial(Port, sysfs=folder / "ib", interfaces=folder / "net")
        monkeypatch.setattr(usable, "Port", port)
        monkeypatch.setattr(usable, "device_names", lambda: sorted(self.devices))
        present = partial(devices.present_devices, folder / "ib")
        for module in (target, usable):
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
    """A RoCE NIC with a VLAN, and a pod whose macvlan has the name of this host's interface. The pod's GID has the
    highest index."""
    gids = (
        (LINK_LOCAL.format(1), V1, "eth0"),
        (LINK_LOCAL.format(1), V2, "eth0"),
        (ADDRESS.format(1), V1, "eth0"),
        (ADDRESS.format(1), V2, "eth0"),
        (ADDRESS.format(0x701), V1, "eth0.7"),
        (ADDRESS.format(0x701), V2, "eth0.7"),
        (ADDRESS.format(0x5555), V2, "eth0"),
        (ZERO, "", ""),
    )
    device = StandInDevice("bnxt_re", {"QP": list(MANAGEMENT)}, interface_index=2)
    interfaces = {"eth0": (2, "up"), "eth0.7": (9, "up")}
    return StandInHost({"bnxt_re0": device}, {"bnxt_re0": (StandInPort(gids=gids),)}, interfaces)


def efa() -> StandInHost:
    """An EFA with a job: its SRD queue pairs are of a type of the driver's own."""
    device = StandInDevice("efa", {"QP": [Owned(TRAINING, type="SRD")] * 3})
    port = StandInPort("Unknown", gids=((GUID.format(1), "", ""),))
    return StandInHost({"rdmap0s6": device}, {"rdmap0s6": (port,)})


def mana() -> StandInHost:
    """A MANA with a job. Its driver has no query of queue pairs."""
    objects = {"QP": [*MANAGEMENT, Owned(TRAINING)], "CQ": [Owned(TRAINING)]}
    device = StandInDevice("mana", objects, refuses_queries=True, interface_index=3)
    gids = ((LINK_LOCAL.format(1), V2, "eth1"), (ADDRESS.format(1), V2, "eth1"))
    return StandInHost(
        {"mana_0": device}, {"mana_0": (StandInPort(gids=gids),)}, {"eth1": (3, "up")}
    )


def virtual_function() -> StandInHost:
    """A virtual function of mlx5 beside its physical function with two ports, of which the first has no cable. The
    representors of the physical function are interfaces without GIDs."""
    gids = ((LINK_LOCAL.format(2), V2, "ens1v0"), (ADDRESS.format(2), V2, "ens1v0"))
    physical = (StandInPort(state=DOWN), StandInPort(gids=((ADDRESS.format(3), V2, "ens1f1"),)))
    interfaces = {
        "ens1v0": (5, "up"),
        "ens1f1": (6, "up"),
        "ens1f0_0": (7, "up"),
        "ens1f0_1": (8, "up"),
    }
    devices = {
        "mlx5_0": StandInDevice("mlx5", {"QP": list(MANAGEMENT)}, interface_index=6),
        "mlx5_2": StandInDevice("mlx5", {"QP": list(MANAGEMENT)}, interface_index=5),
    }
    ports = {"mlx5_0": physical, "mlx5_2": (StandInPort(gids=gids),)}
    return StandInHost(devices, ports, interfaces)


def bond() -> StandInHost:
    """A bond of two ports of a NIC (LAG): one device, whose GIDs belong to bond0 and to a VLAN on it."""
    gids = (
        (LINK_LOCAL.format(4), V1, "bond0"),
        (LINK_LOCAL.format(4), V2, "bond0"),
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
    device = StandInDevice("mlx5", {"QP": list(MANAGEMENT)}, interface_index=12)
    return StandInHost(
        {"mlx5_bond_0": device}, {"mlx5_bond_0": (StandInPort(gids=gids),)}, interfaces
    )


HOSTS: Mapping[str, Callable[[], StandInHost]] = {
    "DGX": dgx,
    "VLANs and pods": vlans_and_pods,
    "EFA": efa,
    "MANA": mana,
    "VF": virtual_function,
    "bond": bond,
}
