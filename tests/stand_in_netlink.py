"""A stand-in for the kernel's RDMA netlink: devices with the objects of processes and of the kernel. It counts the
commands that a real device would have to execute."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from conformance.kernel import netlink
from kinds import Patch

_HEADER = struct.Struct("=IHHII")
_TYPES = {"SMI": 0, "GSI": 1, "RC": 2, "UC": 3, "UD": 4, "SRD": 0xFF}
_OF_DRIVER = "SRD"  # a type of the driver's own, which only a request with details shows
_COMMANDS = {9: "totals", 10: "QP", 12: "CQ", 13: "MR", 14: "PD"}
_TABLES = {"QP": 19, "CQ": 35, "MR": 40, "PD": 46}
_DETAILS = 97
# A module that creates queue pairs by rdma_cm has its own name only on its PD.
_OF_CONNECTION = {"rdma_cm": "nvme_rdma"}


@dataclass(frozen=True)
class Owned:
    """An object of a process, or of a module of the kernel. An object with neither is that of a hidden process."""

    pid: int = 0
    kernel: str = ""
    type: str = "RC"  # of a queue pair
    number: int = 0
    in_reset: bool = False


@dataclass
class StandInDevice:
    """`objects` are the objects by kind; if there are no PDs, each owner of queue pairs has one. If `refuses_queries`,
    the driver has no query of queue pairs. The kernel cannot list the kinds in `unlisted`."""

    driver: str
    objects: dict[str, list[Owned]] = field(default_factory=dict)
    refuses_queries: bool = False
    commands: int = 0  # the number of queue pairs that the firmware was asked for
    interface: str = ""  # of each port
    unlisted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        owners = [
            Owned(entry.pid, _OF_CONNECTION.get(entry.kernel, entry.kernel))
            for entry in self.objects.get("QP", ())
        ]
        self.objects = {"PD": list(dict.fromkeys(owners)), **self.objects}


class StandInKernel:
    """Answers like drivers/infiniband/core/nldev.c. `asked` has the kinds of the requests."""

    def __init__(self, devices: Mapping[str, StandInDevice]) -> None:
        self.devices = dict(devices)
        self.asked: list[str] = []
        self._messages: list[bytes] = []

    def installed(self, monkeypatch: Patch) -> StandInKernel:
        monkeypatch.setattr(netlink, "opened", lambda protocol: self)
        return self

    def send(self, request: bytes) -> None:
        _, kind, flags, _, _ = _HEADER.unpack_from(request)
        attributes = dict(_attributes(request[_HEADER.size :]))
        command, dumps = kind & 0x3FF, bool(flags & 0x300)
        if command == 1:
            names = enumerate(self.devices)
            bodies = [_number(1, index) + _text(2, name) for index, name in names]
            self._messages = [*map(_message, bodies), _done(0)]
            return
        device = list(self.devices.values())[struct.unpack("=I", attributes[1])[0]]
        if command == 15:
            drivers = netlink.DRIVERS
            self._messages = [_message(_number(73, drivers.index(device.driver))), _error(0)]
        elif command == 5:
            if device.interface:
                name = _text(51, device.interface)
            else:
                name = b""
            self._messages = [_message(name), _error(0)]
        else:
            self._answer(device, _COMMANDS[command], attributes, dumps)

    def _answer(
        self,
        device: StandInDevice,
        what: str,
        attributes: Mapping[int, bytes],
        dumps: bool,
    ) -> None:
        self.asked.append(what)
        details = _DETAILS in attributes
        if what == "totals":
            self._messages = [_message(b"".join(_totals(device, details)))]
        elif dumps:
            self._messages = self._dumped(device, what, details)
        else:
            self._messages = [self._one(device, struct.unpack("=I", attributes[21])[0])]

    def _dumped(self, device: StandInDevice, what: str, details: bool) -> list[bytes]:
        shown = [entry for entry in device.objects.get(what, ()) if details or not _hidden(entry)]
        if what in device.unlisted:
            return [_done(-errno.EOPNOTSUPP)]
        if what == "QP":
            device.commands += len(shown)
            if device.refuses_queries and shown:
                return [_done(-errno.EOPNOTSUPP)]
        entries = b"".join(_nested(_TABLES[what] + 1, _owner(entry)) for entry in shown)
        return [_message(_nested(_TABLES[what], entries)), _done(0)]

    def _one(self, device: StandInDevice, number: int) -> bytes:
        same = [entry for entry in device.objects.get("QP", ()) if entry.number == number]
        if not same:
            return _error(-errno.ENOENT)
        device.commands += 1
        if device.refuses_queries or same[0].in_reset:
            return _error(-errno.EAGAIN if same[0].in_reset else -errno.EOPNOTSUPP)
        return _message(_owner(same[0]))

    def recv(self, _: int) -> bytes:
        return self._messages.pop(0)


def own(**more: int | str | bool) -> Owned:
    return Owned(os.getpid(), **more)  # type: ignore[arg-type]


def _hidden(entry: Owned) -> bool:
    return entry.type == _OF_DRIVER


def _owner(entry: Owned) -> bytes:
    body = _attribute(26, bytes([_TYPES[entry.type]]))
    if entry.pid:
        body += _number(28, entry.pid)
    return body + (_text(29, entry.kernel) if entry.kernel else b"")


def _totals(device: StandInDevice, details: bool) -> Iterable[bytes]:
    for kind in ("PD", "CQ", "QP", "MR"):
        counted = [entry for entry in device.objects.get(kind, ()) if details or not _hidden(entry)]
        yield _text(17, kind.lower()) + _attribute(18, struct.pack("=Q", len(counted)))


def _attribute(number: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), number) + value + b"\0" * (-len(value) % 4)


def _nested(number: int, value: bytes) -> bytes:
    return _attribute(number | 0x8000, value)


def _number(number: int, value: int) -> bytes:
    return _attribute(number, struct.pack("=I", value))


def _text(number: int, text: str) -> bytes:
    return _attribute(number, text.encode() + b"\0")


def _message(body: bytes, kind: int = 5 << 10) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, 0, 1, 0) + body


def _done(number: int) -> bytes:
    return _message(struct.pack("=i", number), 3)


def _error(number: int) -> bytes:
    return _message(struct.pack("=i", number) + b"\0" * _HEADER.size, 2)


def _attributes(data: bytes) -> Iterable[tuple[int, bytes]]:
    return netlink.attributes_of(data)
