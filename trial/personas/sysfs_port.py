"""The port of a persona's device in files below /sys. As on a device, conformance/device/port.py chooses a GID of the
port."""

import itertools
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
    """A port: the node type of its device, its link layer, and its GIDs as (address, type). On Ethernet, each GID has a
    network interface.

    `chosen` is the index of the GID that traffic has to use, and `state` the state of the port in sysfs.
    """

    node: str
    link_layer: str
    gids: tuple[tuple[str, str], ...]
    chosen: int
    state: str = "4: ACTIVE"

    def begin(self) -> tuple[Transport, int]:
        """Returns a run's first findings about the port: transport and index of the GID. Raises UserError."""
        with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
            root = Path(name)
            self._write(root)
            port = Port(_NAME, 1, root / "infiniband", root / "net")
            chosen = port.choose(port.gids())
            port.check(chosen)
            return transport_of(root / "infiniband" / _NAME, 1), chosen

    def _write(self, root: Path) -> None:
        """Writes the files, without those that the kernel would refuse to read, such as an absent interface."""
        device = root / "infiniband" / _NAME
        files = {"node_type": self.node, "ports/1/link_layer": self.link_layer, "ports/1/state": self.state}
        for index, (address, kind) in enumerate(self.gids):
            files[f"ports/1/gids/{index}"] = address
            files[f"ports/1/gid_attrs/types/{index}"] = kind
            if self.link_layer == "Ethernet":
                files[f"ports/1/gid_attrs/ndevs/{index}"] = _INTERFACE
        paths = {device / file: text for file, text in files.items()}
        paths |= {root / "net" / _INTERFACE / "flags": "0x1003", root / "net" / _INTERFACE / "operstate": "up"}
        for path, text in paths.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")


PORTS = {
    "infiniband": SysfsPort("1: CA", "InfiniBand", ((_LINK_LOCAL, _V1),), 0),
    "ethernet": SysfsPort("1: CA", "Ethernet", tuple(itertools.product((_LINK_LOCAL, _MAPPED), (_V1, _V2))), 3),
    # drivers/infiniband/hw/mana/main.c: mana_ib_get_port_immutable, which has only version 2.
    "mana": SysfsPort("1: CA", "Ethernet", ((_LINK_LOCAL, _V2), (_MAPPED, _V2)), 1),
    "iwarp": SysfsPort("4: RNIC", "Ethernet", ((_LINK_LOCAL, _V1),), 0),
    # drivers/infiniband/hw/efa/efa_verbs.c: efa_port_link_layer, efa_query_gid. The GID has no network interface.
    "efa": SysfsPort("7: unspecified", "Unknown", ((_LINK_LOCAL, _V1),), 0),
}
