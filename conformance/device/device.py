"""Opens the device under test with pyverbs, and returns its identity, declared capabilities and protection domains.
libibverbs.py and uverbs.py call the verbs under test."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import socket
import struct
import subprocess
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from conformance.bench.calls import PdAt
from conformance.bench.lingering import Lingering
from conformance.device import port as ports
from conformance.device.connection_manager import ConnectionManager
from conformance.device.pointers import Pointers
from conformance.device.port import SYSFS, Port, device_names
from conformance.device.uverbs import xrc_odp_caps
from conformance.errors import UserError
from conformance.kernel.log import text_of
from conformance.kernel.netlink import RdmaNetlink, driver_name
from conformance.kernel.resources import OwnQueuePairs
from conformance.model.declared import DeviceAttributes, declared_capabilities
from conformance.model.preflight import Findings
from conformance.model.record import DeviceFacts, Environment
from conformance.model.transport import INFINIBAND, IWARP, ROCE, UNSPECIFIED, Transport

# The raw attributes that results files contain.
_RECORDED = """
device_cap_flags atomic_cap odp_general_caps odp_rc_caps odp_uc_caps odp_ud_caps odp_xrc_caps
""".split()
_GRH_REQUIRED = 1 << 0  # IBV_QPF_GRH_REQUIRED in `flags` of struct ibv_port_attr
# Both ends of a connection are on this host, but software emulation on a busy host may be slow.
_CONNECTION_DEADLINE_S = 20.0
_WORD = 8  # bytes of a pointer
_LINK_LOCAL = "20"  # the scope of a link-local address in /proc/net/if_inet6
_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_IFREQ = struct.Struct("=16sHH4s16x")  # struct ifreq with a struct sockaddr_in


class ProtectionDomain(PdAt):
    """A PD that pyverbs has allocated, with its struct ibv_pd *."""

    def __init__(self, device: Device) -> None:
        from pyverbs.pd import PD

        self.device = device
        self.pyverbs: Any = PD(device.context)
        super().__init__(device.pointers.of(self.pyverbs), self.pyverbs.close)

    def close(self) -> None:
        """Deallocates the PD. Raises PyverbsRDMAError if the device refuses."""
        self.pyverbs.close()

    def forget(self) -> None:
        """Prevents a second deallocation by pyverbs after ibv_dealloc_pd."""
        self.device.pointers.forget_pd(self.pyverbs)


class Device:
    """An open device, for use as a context manager."""

    def __init__(self, name: str, port: int = 1, gid_index: int | None = None) -> None:
        if ctypes.sizeof(ctypes.c_void_p) != _WORD:
            message = "this Python is a 32-bit program, but the suite supports only the 64-bit structures of libibverbs"
            raise UserError(message, hint="use a 64-bit Python and a 64-bit libibverbs", status=3)
        names = device_names()
        if name not in names:
            if names:
                listed = f"devices here: {', '.join(names)}"
            else:
                listed = "this host has no RDMA device"
            raise UserError(f"no RDMA device {name!r}; {listed}", status=2 if names else 4)
        try:
            from pyverbs.device import Context
            from pyverbs.pyverbs_error import PyverbsError
        except ImportError as error:
            raise UserError(
                f"pyverbs cannot be imported ({error})",
                hint="install python3-pyverbs",
                status=3,
            ) from error
        # mlx5 reads this variable when a queue pair is created. By default, the device writes a message of up to 32
        # bytes into the completion, and the provider copies the message into the receiver's buffer. The region's key is
        # not used, so such a message is not evidence about the region.
        os.environ.setdefault("MLX5_SCATTER_TO_CQE", "0")
        # With this variable libmlx5 waits for ever at the first completion of a refused request.
        os.environ.pop("MLX5_FREEZE_ON_ERROR_CQE", None)
        try:
            self.context = Context(name=name)
        except PyverbsError as error:
            message = f"device {name} cannot be opened: {str(error).splitlines()[0]}"
            hint = (
                "check that ib_uverbs is loaded and /dev/infiniband/uverbs* can be read and written"
            )
            raise UserError(message, hint=hint, status=3) from error
        self.name = name
        self.port = port
        self.gid_index = gid_index
        self.pointers = Pointers()
        # The number of exchanges that exchange.c could have executed. If the number exceeds COMPILE_THRESHOLD,
        # native_exchange.py compiles exchange.c.
        self.exchanges_requested = 0
        self.findings = Findings()  # set by preflight
        self.lingering = Lingering()  # shared by all pairs of this device
        self.connection_manager: ConnectionManager | None = None
        self.netlink = RdmaNetlink(name)
        self.queue_pairs = OwnQueuePairs(self.netlink, port)
        self.driver_id = self.netlink.driver_id() or 0
        attributes = self.context.query_device_ex()
        self.attributes = attributes.orig_attr
        self.max_dm_size = int(attributes.max_dm_size)
        self.declared = DeviceAttributes(
            device_cap_flags=attributes.device_cap_flags_ex | self.attributes.device_cap_flags,
            atomic_cap=int(self.attributes.atomic_caps),
            odp_general_caps=attributes.odp_caps.general_caps,
            odp_rc_caps=attributes.odp_caps.rc_odp_caps,
            odp_uc_caps=attributes.odp_caps.uc_odp_caps,
            odp_ud_caps=attributes.odp_caps.ud_odp_caps,
            odp_xrc_caps=xrc_odp_caps(self.context.cmd_fd),
            max_sge_rd=self.attributes.max_sge_rd,
            max_sge=self.attributes.max_sge,
        )
        self.transport = transport_of(SYSFS / name, port)
        self.capabilities = declared_capabilities(self.declared, self.transport)

    def check_port(self) -> None:
        """Raises UserError for an unusable port or GID: the device would appear to refuse every operation."""
        self._in_sysfs.check(self.gid_index)

    @property
    def _in_sysfs(self) -> Port:
        return Port(self.name, self.port, SYSFS)

    @cached_property
    def pkey_index(self) -> int:
        return self._in_sysfs.pkey_index

    @property
    def uses_grh(self) -> bool:
        """Whether packets have a global route header. On InfiniBand, they have this header only if the user has
        selected a GID, or if the port requires the header or has no LID."""
        required = int(getattr(self._port, "flags", 0)) & _GRH_REQUIRED
        return (
            self.transport is not INFINIBAND
            or self.gid_index is not None
            or bool(required)
            or not self.lid
        )

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.connection_manager is not None:
            self.connection_manager.close()
        self.context.close()

    @property
    def driver(self) -> str:
        """The kernel driver's name, such as mlx5 or rxe."""
        return driver_name(self.driver_id)

    @property
    def max_elements(self) -> int:
        """The maximum number of SGEs of a request or a receive; 0 if the driver does not report it."""
        return int(self.attributes.max_sge)

    @property
    def max_read_elements(self) -> int:
        return int(self.attributes.max_sge_rd or self.attributes.max_sge)

    @property
    def lid(self) -> int:
        """The port's LID; 0 on Ethernet."""
        return int(self._port.lid)

    @property
    def active_mtu(self) -> int:
        """The port's active MTU, as a value of enum ibv_mtu."""
        return int(self._port.active_mtu)

    @cached_property
    def _port(self) -> Any:
        from pyverbs.pyverbs_error import PyverbsError

        try:
            return self.context.query_port(self.port)
        except PyverbsError as error:
            message = (
                f"port {self.port} of {self.name} cannot be queried: {str(error).splitlines()[0]}"
            )
            raise UserError(message, hint="select another port with --port", status=3) from error

    @cached_property
    def gid(self) -> Any:
        """The GID of loopback traffic, at `source_gid_index`."""
        return self.context.query_gid(self.port, self.source_gid_index)

    @cached_property
    def source_gid_index(self) -> int:
        """The index of the GID for loopback traffic: the requested GID, or else the most suitable GID of the port."""
        if self.gid_index is not None:
            return self.gid_index
        if self.transport is INFINIBAND:
            return 0
        port = self._in_sysfs
        return port.choose(
            port.gids(self._gid_indices()),
            self.netlink.network_interface(self.port),
        )

    def roce_gids(self) -> list[ports.Gid]:
        """Returns the GIDs of RoCE v2 whose interface is up."""
        gids = self._in_sysfs.gids(self._gid_indices())
        return [gid for gid in gids if gid.kind == ports.ROCE_2 and gid.up]

    def open_connection_manager(self) -> None:
        """Opens the connection manager on the address of the port's network interface. Must be called before RDMA
        objects are counted, because the connection manager creates objects. Raises UserError if the interface has no
        address."""
        interface = self.netlink.network_interface(self.port)
        if interface:
            address = address_of(interface)
        else:
            address = ""
        if not address:
            if interface:
                lacks = f"{interface} has no IP address"
            else:
                lacks = "it has no network interface"
            message = f"port {self.port} of {self.name} cannot connect queue pairs: {lacks}"
            if interface:
                hint = f"ip address add ADDRESS dev {interface}"
            else:
                hint = "select another port with --port"
            raise UserError(message, hint=hint, status=3)
        self.connection_manager = ConnectionManager(address, _CONNECTION_DEADLINE_S)

    def _gid_indices(self) -> list[int] | None:
        """Returns the indices of the port's valid GIDs; None if the stack is too old to return the whole table."""
        from pyverbs.pyverbs_error import PyverbsError

        try:
            table = self.context.query_gid_table(
                int(self._port.gid_tbl_len) * int(self.attributes.phys_port_cnt),
            )
        except (AttributeError, PyverbsError):
            return None
        return [int(entry.gid_index) for entry in table if int(entry.port_num) == self.port]

    def describe(self) -> DeviceFacts:
        return {
            "name": self.name,
            "driver": self.driver,
            "fw": text_of(SYSFS / self.name / "fw_ver"),
            "vendor_id": self.attributes.vendor_id,
            "vendor_part_id": self.attributes.vendor_part_id,
            "transport": self.transport.name,
            "caps": {
                **self.capabilities,
                **{name: getattr(self.declared, name) for name in _RECORDED},
                "max_mr_size": self.attributes.max_mr_size,
                "max_mw": self.attributes.max_mw,
            },
        }


def transport_of(device: Path, port: int) -> Transport:
    """Returns the transport of a port, determined by the node type of the device and the link layer of the port."""
    if "RNIC" in text_of(device / "node_type"):
        return IWARP
    layer = text_of(device / "ports" / str(port) / "link_layer")
    return {ports.INFINIBAND: INFINIBAND, ports.UNSPECIFIED: UNSPECIFIED}.get(layer, ROCE)


def address_of(interface: str) -> str:
    """Returns an IP address of a network interface, preferably IPv4. A link-local address ends with %INTERFACE."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(
                any_socket,
                _SIOCGIFADDR,
                _IFREQ.pack(interface.encode(), 0, 0, b""),
            )
            return socket.inet_ntoa(_IFREQ.unpack_from(answer)[3])
        except OSError:
            pass
    lines = [line.split() for line in text_of(Path("/proc/net/if_inet6")).splitlines()]
    addresses = sorted((line[3] == _LINK_LOCAL, line[0]) for line in lines if line[5] == interface)
    if not addresses:
        return ""
    local, digits = addresses[0]
    return socket.inet_ntop(socket.AF_INET6, bytes.fromhex(digits)) + (
        f"%{interface}" if local else ""
    )


def environment() -> Environment:
    """Returns the software environment, for the header of results files."""
    return {
        "kernel": os.uname().release,
        "rdma_core": library_version(),
        "pyverbs": _pyverbs_version(),
        "python": ".".join(str(part) for part in __import__("sys").version_info[:3]),
        "tainted": int(text_of(Path("/proc/sys/kernel/tainted")) or 0),
    }


@cache  # a loaded library does not change
def library_version() -> str:
    """Returns the rdma-core version of the libibverbs that this process has loaded. No function of the library returns
    the version, but the file name contains the version: libibverbs.so.1.<abi>.<rdma-core version>."""
    ctypes.CDLL("libibverbs.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        # in an emulated guest, resolving the path of each mapping is slow
        if "libibverbs" not in line:
            continue
        match = re.search(
            r"libibverbs\.so\.1\.[0-9]+\.([0-9.]+)$",
            os.path.realpath(line.split()[-1]),
        )
        if match:
            return match[1]
    return "unknown"


def library_release() -> int | None:
    """Returns the release of rdma-core whose libibverbs this process has loaded, or None if it is unknown."""
    release = library_version().partition(".")[0]
    if release.isdecimal():
        return int(release)
    return None


@cache
def _pyverbs_version() -> str:
    for query in (
        "dpkg-query -W -f=${Version} python3-pyverbs",
        "rpm -q --qf=%{VERSION} python3-pyverbs",
    ):
        try:
            done = subprocess.run(query.split(), capture_output=True, text=True, check=False)
        except OSError:
            continue
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"
