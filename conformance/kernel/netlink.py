"""Queries the kernel's RDMA netlink for a device's driver and for the objects on it. Also creates and removes devices of
software drivers, like `rdma link`.

A total of all objects costs the device nothing. A list of queue pairs costs a command of the firmware for each queue
pair, also for those of other processes (`fill_res_qp_entry_query` of drivers/infiniband/core/nldev.c), and fails for a
driver that cannot query them. <rdma/rdma_netlink.h> defines the numbers. resources.py counts memory and memory windows;
device_users.py names the owners of objects.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from collections.abc import Iterator, Mapping

_NETLINK_RDMA = 20
_COMMAND = 5 << 10  # RDMA_NL_NLDEV: the commands below
_REQUEST, _ACK, DUMP = 0x1, 0x4, 0x300
_DONE, _ERROR = 3, 2
# RDMA_NLDEV_CMD_…
_GET, _NEW_LINK, _DELETE_LINK, _GET_PORT, _SYSTEM_GET, _RES_GET, _GET_CHARDEV = 1, 3, 4, 5, 6, 9, 15
# RDMA_NLDEV_CMD_RES_…_GET
QP, CQ, MR, PD = KINDS = ("QP", "CQ", "MR", "PD")
_LISTS = {QP: 10, CQ: 12, MR: 13, PD: 14}
OF_A_PROCESS = (CQ, MR, PD)  # the kinds that `count` lists
# RDMA_NLDEV_ATTR_…
_DEV_INDEX, _DEV_NAME, _PORT_INDEX, _NDEV_NAME, _LINK_TYPE, _CHARDEV_TYPE, _DRIVER_ID = (
    1, 2, 3, 51, 65, 69, 73,
)  # fmt: skip
_NDEV_INDEX, _LOCAL_QPN = 50, 21
RES_PID, RES_KERN_NAME = 28, 29
_TABLE = {PD: 46}  # RDMA_NLDEV_ATTR_RES_…, the list of the objects of a kind
# RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME and …_CURR, of 8 bytes
_SUMMARY_NAME, _SUMMARY_NUMBER = 17, 18
# RDMA_NLDEV_ATTR_DRIVER_DETAILS: also objects of a type of the driver's own, such as the SRD queue pairs of EFA
_DRIVER_DETAILS = 97
_COPY_ON_FORK = 93  # RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK
_HEADER = struct.Struct("=IHHII")
_BUFFER = 1 << 16
# The drivers of devices that consist of software.
SOFTWARE = ("rxe", "siw")


# enum rdma_driver_id of <rdma/ib_user_ioctl_verbs.h>, from 0 upwards.
DRIVERS = tuple(
    """
    unknown mlx5 mlx4 cxgb3 cxgb4 mthca bnxt_re ocrdma nes irdma vmw_pvrdma qedr hns usnic rxe hfi1 qib efa siw erdma
    mana ionic
    """.split(),
)


def driver_name(driver_id: int) -> str:
    """Returns the kernel driver's name for an enum rdma_driver_id, such as mlx5 or rxe."""
    if driver_id < len(DRIVERS):
        return DRIVERS[driver_id]
    return f"driver {driver_id}"


class RdmaNetlink:
    """Queries the kernel about one device. If the kernel has no RDMA netlink, the results are empty."""

    def __init__(self, device: str) -> None:
        self._socket: socket.socket | None
        self._index = 0
        try:
            self._socket = opened(_NETLINK_RDMA)
            self._index = self._find(device)
        except OSError:
            self._socket = None

    def totals(self) -> dict[str, int]:
        """Returns the number of objects of each kind on the device, of all processes and the kernel together; empty if
        the kernel does not have these totals."""
        if self._socket is None:
            return {}
        (message,) = self._ask(_RES_GET, self._with_details(), 0)
        numbers = {
            kind: message.partition(entry)[2][:_NUMBER_SIZE] for kind, entry in _ENTRIES.items()
        }
        if not all(numbers.values()):
            return {}
        return {kind: int.from_bytes(number, sys.byteorder) for kind, number in numbers.items()}

    def count(self, process: int = 0) -> dict[str, int]:
        """Returns the number of completion queues, regions and PDs that a process has on the device. `process` is the id
        of the process; 0 means this process. Kinds that the kernel cannot list are omitted. Queue pairs are not listed,
        but each queue pair has a completion queue and a PD, which cannot be destroyed before it."""
        if self._socket is None:
            return {}
        # Each object is a nested attribute and contains the process id of its owner.
        owner = _attribute(RES_PID, struct.pack("=I", process or os.getpid()))
        counts = {}
        for kind in OF_A_PROCESS:
            try:
                messages = self._ask(_LISTS[kind], self._with_details(), DUMP)
            except OSError:
                continue
            counts[kind] = sum(message.count(owner) for message in messages)
        return counts

    def has_queue_pair(self, number: int, port: int) -> bool:
        """Whether this process may still have the queue pair of this number on a port. The kernel queries only this
        queue pair. It refuses the query of an existing queue pair in RESET, or with a driver that has no such query."""
        body = self._device() + b"".join(
            _attribute(key, struct.pack("=I", value))
            for key, value in ((_PORT_INDEX, port), (_LOCAL_QPN, number))
        )
        try:
            (message,) = self._ask(_LISTS[QP], body, 0)
        except OSError as error:
            return error.errno != errno.ENOENT
        owner = dict(attributes_of(message)).get(RES_PID)
        return owner is None or owner == struct.pack("=I", os.getpid())

    def objects(self, kind: str) -> list[Mapping[int, bytes]]:
        """Returns the attributes of each object of a kind, PD, on the device. Raises OSError if the kernel cannot list
        them."""
        tables = [
            table
            for message in self._ask(_LISTS[kind], self._with_details(), DUMP)
            for number, table in attributes_of(message)
            if number == _TABLE[kind]
        ]
        return [dict(attributes_of(entry)) for table in tables for _, entry in attributes_of(table)]

    def driver_id(self) -> int | None:
        """Returns the enum rdma_driver_id of the device's driver, or None if unknown."""
        answer = self._queried(
            _GET_CHARDEV,
            _DRIVER_ID,
            self._device() + _attribute(_CHARDEV_TYPE, b"uverbs\0"),
        )
        if answer:
            return int(struct.unpack("=I", answer)[0])
        return None

    def copies_on_fork(self) -> bool:
        """Whether the kernel reports that it copies the pages of regions on fork."""
        return any(self._queried(_SYSTEM_GET, _COPY_ON_FORK, b"")[:1])

    def network_interface(self, port: int) -> str:
        """Returns the name of the network interface of a port; empty if there is no interface or no name."""
        body = self._device() + _attribute(_PORT_INDEX, struct.pack("=I", port))
        return self._queried(_GET_PORT, _NDEV_NAME, body).rstrip(b"\0").decode()

    def delete_link(self) -> None:
        """Removes the device, which must belong to a software driver. Raises OSError."""
        self._ask(_DELETE_LINK, self._device(), _ACK)

    def _device(self) -> bytes:
        return _attribute(_DEV_INDEX, struct.pack("=I", self._index))

    def _with_details(self) -> bytes:
        return self._device() + _attribute(_DRIVER_DETAILS, b"\1")

    def _find(self, device: str) -> int:
        for message in self._ask(_GET, b"", DUMP):
            attributes = dict(attributes_of(message))
            if attributes.get(_DEV_NAME, b"").rstrip(b"\0").decode() == device:
                return int(struct.unpack("=I", attributes[_DEV_INDEX])[0])
        raise OSError(f"the kernel's RDMA netlink does not have {device}")

    def _ask(self, command: int, body: bytes, how: int) -> list[bytes]:
        if self._socket:
            return request(self._socket, command | _COMMAND, body, how)
        return []

    def _queried(self, command: int, number: int, body: bytes) -> bytes:
        """Returns an attribute of the response to a query; empty if the kernel refuses the query."""
        try:
            responses = [dict(attributes_of(message)) for message in self._ask(command, body, _ACK)]
        except OSError:
            return b""
        return next((response[number] for response in responses if number in response), b"")


def add_link(device: str, driver: str, interface: str) -> None:
    """Creates a device on a network interface. `driver` is a software driver, as in `rdma link add`. Raises OSError."""
    names = {_DEV_NAME: device, _LINK_TYPE: driver, _NDEV_NAME: interface}
    body = b"".join(_attribute(number, name.encode() + b"\0") for number, name in names.items())
    with opened(_NETLINK_RDMA) as link:
        request(link, _NEW_LINK | _COMMAND, body, _ACK)


def opened(protocol: int) -> socket.socket:
    """Returns a socket of a NETLINK_… protocol of <linux/netlink.h>. Raises OSError."""
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
    link.bind((0, 0))
    return link


def request(link: socket.socket, kind: int, body: bytes, how: int) -> list[bytes]:
    """Returns the bodies of all messages of one response. Reads the whole response, because unread messages would
    precede the next response. Without _ACK and DUMP in `how`, the response is a single message. Raises OSError."""
    link.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | how, 1, 0) + body)
    messages: list[bytes] = []
    while True:
        data = link.recv(_BUFFER)
        while data:
            length, type_, _, _, _ = _HEADER.unpack_from(data)
            if type_ in (_DONE, _ERROR):
                # An error has a number other than 0. With 0, an _ERROR is the acknowledgement of a request.
                has_number = length >= _HEADER.size + 4
                if has_number:
                    number = struct.unpack_from("=i", data, _HEADER.size)[0]
                else:
                    number = 0
                if number:
                    raise OSError(-number, os.strerror(-number))
                return messages
            messages.append(data[_HEADER.size : length])
            if not how:
                return messages
            data = data[(length + 3) & ~3 :]


def _attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)


_NUMBER_SIZE = 8
# The bytes in front of the number of each type of object in a summary.
_ENTRIES = {
    kind: _attribute(_SUMMARY_NAME, kind.lower().encode() + b"\0")
    + struct.pack("=HH", 4 + _NUMBER_SIZE, _SUMMARY_NUMBER)
    for kind in KINDS
}


def attributes_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the number and the value of each attribute."""
    while len(data) >= 4:
        length, number = struct.unpack_from("=HH", data)
        yield number & 0x3FFF, data[4:length]
        data = data[max(4, (length + 3) & ~3) :]
