"""The port of a persona's device in files below /sys. As on a device, conformance/device/port.py chooses a GID of the
port."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from conformance.device.device import transport_of
from conformance.device.port import Port
from conformance.model.transport import Transport

_NAME, _INTERFACE = "any0", "eth0"
_LINK_LOCAL, _MAPPED = "fe80:0000:0000:0000:0c38:3dff:fe12:3456", "0000:0000:0000:0000:0000:ffff:c0a8:0001"
_V1, _V2 = "IB/RoCE v1", "RoCE v2"


@dataclass(frozen=True)
class SysfsPort:
    """A port: the node type of its device, its link layer, and its GIDs as (address, type, network interface).

    `chosen` is the index of the GID that traffic has to use, and `state` the state of the port in sysfs.
    """

    node: str
    link_layer: str
    gids: tuple[tuple[str, str, str], ...]
    chosen: int
    state: str = "4: ACTIVE"

    def begin(self) -> tuple[Transport, int]:
        """Returns the first findings of a run about the port: the transport and the index of the GID. Raises
        UserError."""
        with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
            root = Path(name)
            self._write(root)
            port = Port(_NAME, 1, root / "infiniband", root / "net")
            chosen = port.choose(port.gids())
            port.check(chosen)
            return transport_of(root / "infiniband" / _NAME, 1), chosen

    def _write(self, root: Path) -> None:
        """Writes the files. Files that the kernel would refuse to read, such as the interface of a GID without one, are
        left out."""
        device = root / "infiniband" / _NAME
        files = {"node_type": self.node, "ports/1/link_layer": self.link_layer, "ports/1/state": self.state}
        for index, (address, kind, interface) in enumerate(self.gids):
            files[f"ports/1/gids/{index}"] = address
            files[f"ports/1/gid_attrs/types/{index}"] = kind
            if interface:
                files[f"ports/1/gid_attrs/ndevs/{index}"] = interface
        paths = {device / file: text for file, text in files.items()}
        paths |= {root / "net" / _INTERFACE / "flags": "0x1003", root / "net" / _INTERFACE / "operstate": "up"}
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")


INFINIBAND = SysfsPort("1: CA", "InfiniBand", ((_LINK_LOCAL, _V1, ""),), 0)
ETHERNET = SysfsPort(
    "1: CA",
    "Ethernet",
    (
        (_LINK_LOCAL, _V1, _INTERFACE),
        (_LINK_LOCAL, _V2, _INTERFACE),
        (_MAPPED, _V1, _INTERFACE),
        (_MAPPED, _V2, _INTERFACE),
    ),
    3,
)
# drivers/infiniband/hw/mana/main.c: mana_ib_get_port_immutable, which has only version 2.
MANA = SysfsPort("1: CA", "Ethernet", ((_LINK_LOCAL, _V2, _INTERFACE), (_MAPPED, _V2, _INTERFACE)), 1)
IWARP = SysfsPort("4: RNIC", "Ethernet", ((_LINK_LOCAL, _V1, _INTERFACE),), 0)
# drivers/infiniband/hw/efa/efa_verbs.c: efa_port_link_layer, efa_query_gid. The GID has no network interface.
EFA = SysfsPort("7: unspecified", "Unknown", ((_LINK_LOCAL, _V1, ""),), 0)
PORTS = {"infiniband": INFINIBAND, "ethernet": ETHERNET, "mana": MANA, "iwarp": IWARP, "efa": EFA}
