"""The kernel's ABI as bytes: what is written to a device's descriptor, on machines of either byte order."""

from __future__ import annotations

import errno
import fcntl
import struct
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.bench.calls import ABSENT, Sge
from conformance.device.uverbs import Uverbs

PD: Any = SimpleNamespace(handle=0x12345678, pointer=1, context_pointer=2)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The ioctls that were made; each succeeds, and its object gets the handle 7."""
    found: list[bytes] = []

    def ioctl(_: int, number: int, data: bytearray, mutate: bool) -> int:
        assert (number, mutate) == (0xC0181B01, True)
        found.append(bytes(data))
        struct.pack_into("=Q", data, 24 + 8, 7)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return found


def attributes(command: bytes) -> dict[int, tuple[int, bytes]]:
    """Of each attribute its size, and its field of eight bytes."""
    length, *_ = struct.unpack_from("=HHHHQII", command)
    assert length == len(command)
    every = struct.iter_unpack("=HHHH8s", command[24:])
    return {number: (size, field) for number, size, _, _, field in every}


def test_a_value_of_four_bytes_is_in_the_first_bytes_of_its_field(sent: list[bytes]) -> None:
    made = Uverbs(3, 14).reg_dmabuf_mr(PD, 5, 6, 7, -1, 0x01020304).mr
    assert made is not None
    assert made.handle == 7
    (command,) = sent
    found = attributes(command)
    assert found[5] == (4, b"\xff\xff\xff\xff\0\0\0\0")
    assert found[6] == (4, (0x01020304).to_bytes(4, sys.byteorder) + bytes(4))
    assert found[1] == (0, PD.handle.to_bytes(8, sys.byteorder))
    assert found[3] == (8, (6).to_bytes(8, sys.byteorder))


def test_advice_has_a_constant_of_eight_bytes_and_flags_of_four(sent: list[bytes]) -> None:
    assert Uverbs(3, 14).advise_mr(PD, 2, 1, [Sge(1, 2, 3)]).value == 0
    found = attributes(sent[0])
    assert found[1] == (8, (2).to_bytes(8, sys.byteorder))
    assert found[2] == (4, (1).to_bytes(4, sys.byteorder) + bytes(4))
    assert found[3][0] == 16


def test_a_kernel_that_does_not_tell_its_driver_takes_no_ioctl(sent: list[bytes]) -> None:
    uverbs = Uverbs(3, 0)
    for returned in (uverbs.advise_mr(PD, 0, 0, ()), uverbs.reg_dmabuf_mr(PD, 0, 1, 0, 3, 0)):
        assert (returned.value, returned.errno, returned.mr) == (errno.EPROTONOSUPPORT, errno.EPROTONOSUPPORT, None)
        assert returned.errno in ABSENT
    assert sent == []
