"""Tests of the library without a device. A stub of libibverbs prints the arguments of its calls: the calls are issued in a
process that loads the stub in place of the real library."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import ANY

import pytest

from conformance.bench.calls import ABSENT, Return, Sge
from conformance.device.libibverbs import Libibverbs, clear_errno
from conformance.device.uverbs import Uverbs
from conformance.tables.suite import ROOT

STUB = Path(__file__).with_name("stub_libibverbs.c").read_text()


@pytest.fixture(scope="session", params=["mainline", "vendor"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the stub; the vendor's stub also exports the experimental call."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "vendor":
        options = ["-DEXPERIMENTAL"]
    else:
        options = []
    return built(folder, STUB, *options)


def built(folder: Path, stub: str, *options: str) -> Path:
    (folder / "stub.c").write_text(stub)
    command = ["cc", "-w", "-shared", "-fPIC", *options, "-o", "libibverbs.so.1", "stub.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


PRELUDE = """
import json
from types import SimpleNamespace
from conformance.device.libibverbs import Libibverbs, clear_errno
from conformance.bench.calls import IbvMr, Mr
pd = SimpleNamespace(pointer=77)
def show(returned):
    print(json.dumps([returned.value != 0 if returned.mr else returned.value, returned.errno,
                      returned.mr.fields() if returned.mr else None, returned.layer]), flush=True)
"""


def calls(library: Path, *expressions: str, dialect: str | None = None) -> list[tuple[str, Any]]:
    """Issues calls on the stub. Returns, for each call, the stub's arguments and the result that the suite returned."""
    code = "".join(f"\nmr = Mr(IbvMr(), 99)\nshow({expression})" for expression in expressions)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{PRELUDE}library = Libibverbs({dialect!r}){code}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    calls_seen = re.findall(r"((?:^[^\[].*\n)*)^(\[.*)\n", done.stdout, flags=re.MULTILINE)
    return [(received.strip(), json.loads(result)) for received, result in calls_seen]


FIELDS = {"addr": 3, "length": 4, "handle": 5, "lkey": 6, "rkey": 7}


# Calls, with the arguments that the stub must receive, and the result that the suite must return.
CALLS: list[tuple[str, Any, Any]] = [
    (
        "library.reg_mr(pd, 0, 4096, 1)",
        "ibv_reg_mr 77 0 4096 0 1",
        [True, 0, FIELDS, "kernel"],
    ),  # address zero is null
    ("library.reg_mr(pd, 4096, 2**64 - 1, 0)", f"ibv_reg_mr 77 4096 {2**64 - 1} 0 0", ANY),
    # With optional flags, the suite calls the function that the header's macro calls.
    (
        "library.reg_mr(pd, 4096, 8, 1 | 1 << 20)",
        f"ibv_reg_mr_iova2 77 4096 8 4096 {1 | 1 << 20}",
        ANY,
    ),
    (
        "library.reg_mr_iova(pd, 4096, 8, 16, 1 << 29)",
        f"ibv_reg_mr_iova2 77 4096 8 16 {1 << 29}",
        ANY,
    ),
    (
        "library.reg_mr_iova(pd, 4096, 8, 16, 1 << 31)",
        f"ibv_reg_mr_iova 77 4096 8 16 {1 << 31}",
        ANY,
    ),
    ("library.reg_mr(pd, 4096, 8, 2)", ANY, [0, 22, None, "kernel"]),  # null and errno
    ("library.reg_dmabuf_mr(pd, 5, 6, 7, -1, 1)", "fd -1 ibv_reg_dmabuf_mr 77 5 6 7 1", ANY),
    ("library.dereg_mr(mr)", ANY, [16, 1, None, "kernel"]),  # the returned code is not errno
    ("library.rereg_mr(mr, 8, None, 0, 0, 0)", ANY, [-1, 22, None, "libibverbs"]),
    ("library.rereg_mr(mr, 2, None, 0, 0, 0)", ANY, [-4, 22, None, "kernel"]),
]


def test_arguments_and_results_are_passed_unchanged(library):
    calls_seen = calls(library, *(expression for expression, _, _ in CALLS))
    assert calls_seen == [(arguments, result) for _, arguments, result in CALLS]


@pytest.mark.parametrize(
    "addr, length, access, code, layer",
    [
        (4096, 2**64 - 1, 0x41, errno.EINVAL, "libibverbs"),
        (0, 2**64 - 1, 0x41, errno.EINVAL, "kernel"),
        (4096, 2**64 - 1, 0x1, errno.EINVAL, "kernel"),
        (4096, 4096, 0x41, errno.EINVAL, "kernel"),
        (4096, 2**64 - 1, 0x41, errno.ENOMEM, "kernel"),
    ],
)
def test_libibverbs_itself_refuses_an_implicit_region_at_an_address(
    addr, length, access, code, layer
):
    refused = Return(0, code, layer="kernel")
    entry = cast(Any, SimpleNamespace(name="libibverbs"))
    assert Libibverbs._by_its_layer(entry, refused, addr, length, access).layer == layer


def test_an_object_refused_without_errno_is_not_refused_with_an_earlier_errno():
    location = ctypes.CDLL(None).__errno_location
    location.restype = ctypes.POINTER(ctypes.c_int)
    location()[0] = errno.EBUSY
    clear_errno()
    assert location()[0] == 0


def test_calls_that_an_older_library_lacks_are_not_offered(tmp_path):
    source = STUB.replace("ibv_reg_dmabuf_mr(void", "another(void").replace(
        "ibv_reg_mr_iova2(void",
        "yet_another(void",
    )
    expressions = (
        "library.reg_dmabuf_mr(pd, 5, 6, 7, -1, 1)",
        "library.reg_mr(pd, 4096, 8, 1 << 20)",
    )
    dmabuf, plain = calls(built(tmp_path, source), *expressions)
    assert dmabuf == ("", [0, 95, None, "libibverbs"])
    assert plain[0] == f"ibv_reg_mr_iova 77 4096 8 4096 {1 << 20}"


def test_the_experimental_call_is_found_only_if_the_library_exports_it(library):
    expression = "library.experimental_rereg_mr(mr, 4, pd, 0, 0, 1 << 40)"
    if library.name.startswith("vendor"):
        [(seen, result)] = calls(library, expression)
        assert seen == f"ibv_exp_rereg_mr 4 77 {1 << 40:x} 1"
        assert result[:2] == [13, 0]
    else:
        with pytest.raises(subprocess.CalledProcessError):
            calls(library, expression)


def test_the_dialect_calls_ibv_rereg_mr_with_an_attr_of_null(library):
    expression = "library.experimental_rereg_mr(mr, 4, pd, 0, 12, 0)"
    [(seen, result)] = calls(library, expression, dialect="experimental")
    assert seen == "ibv_rereg_mr 4 77 12 1"
    assert result[:2] == [-4, 22]


PD: Any = SimpleNamespace(handle=0x12345678, pointer=1, context_pointer=2)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Records the issued ioctls. Each succeeds, and the created object gets the handle 7."""
    messages: list[bytes] = []

    def ioctl(_: int, number: int, data: bytearray, mutate: bool) -> int:
        assert (number, mutate) == (0xC0181B01, True)
        messages.append(bytes(data))
        struct.pack_into("=Q", data, 24 + 8, 7)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return messages


def attributes(command: bytes) -> dict[int, tuple[int, bytes]]:
    """Returns the size of each attribute, and its field of eight bytes."""
    length, *_ = struct.unpack_from("=HHHHQII", command)
    assert length == len(command)
    every = struct.iter_unpack("=HHHH8s", command[24:])
    return {number: (size, field) for number, size, _, _, field in every}


def test_a_value_of_four_bytes_is_in_the_first_bytes_of_its_field(sent):
    region = Uverbs(3, 14).reg_dmabuf_mr(PD, 5, 6, 7, -1, 0x01020304).mr
    assert region is not None
    assert region.handle == 7
    (command,) = sent
    fields = attributes(command)
    assert fields[5] == (4, b"\xff\xff\xff\xff\0\0\0\0")
    assert fields[6] == (4, (0x01020304).to_bytes(4, sys.byteorder) + bytes(4))
    assert fields[1] == (0, PD.handle.to_bytes(8, sys.byteorder))
    assert fields[3] == (8, (6).to_bytes(8, sys.byteorder))


def test_advice_has_a_constant_of_eight_bytes_and_flags_of_four(sent):
    assert Uverbs(3, 14).advise_mr(PD, 2, 1, [Sge(1, 2, 3)]).value == 0
    fields = attributes(sent[0])
    assert fields[1] == (8, (2).to_bytes(8, sys.byteorder))
    assert fields[2] == (4, (1).to_bytes(4, sys.byteorder) + bytes(4))
    assert fields[3][0] == 16


def test_without_a_driver_id_of_the_kernel_no_ioctl_is_issued(sent):
    uverbs = Uverbs(3, 0)
    for returned in (uverbs.advise_mr(PD, 0, 0, ()), uverbs.reg_dmabuf_mr(PD, 0, 1, 0, 3, 0)):
        assert (returned.value, returned.errno, returned.mr) == (
            errno.EPROTONOSUPPORT,
            errno.EPROTONOSUPPORT,
            None,
        )
        assert returned.errno in ABSENT
    assert sent == []
