"""The exact calls of the suite, made on a stub of libibverbs that prints its arguments. The test compiles the stub;
every call runs in a process that loads the stub in place of the real library."""

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
from typing import Any

import pytest

from conformance.bench.calls import ABSENT, Sge
from conformance.device.uverbs import Uverbs
from conformance.tables.suite import ROOT

STUB = Path(__file__).with_name("stub_libibverbs.c").read_text()


@pytest.fixture(scope="session", params=["mainline", "vendor"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the stub; the vendor's stub also exports the experimental call."""
    folder = tmp_path_factory.mktemp(request.param)
    options = ["-DEXPERIMENTAL"] if request.param == "vendor" else []
    return built(folder, STUB, *options)


def built(folder: Path, stub: str, *options: str) -> Path:
    (folder / "stub.c").write_text(stub)
    command = ["cc", "-w", "-shared", "-fPIC", *options, "-o", "libibverbs.so.1", "stub.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


PRELUDE = """
import json
from types import SimpleNamespace
from conformance.device.libibverbs import Libibverbs
from conformance.bench.calls import IbvMr, Mr
pd = SimpleNamespace(pointer=77)
def show(returned):
    print(json.dumps([returned.value != 0 if returned.mr else returned.value, returned.errno,
                      returned.mr.fields() if returned.mr else None, returned.layer]), flush=True)
"""


def calls(library: Path, *expressions: str, dialect: str | None = None) -> list[tuple[str, Any]]:
    """Makes calls; returns the arguments that the stub received in each, and the suite's result for its answer."""
    code = "".join(f"\nmr = Mr(IbvMr(), 99)\nshow({each})" for each in expressions)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{PRELUDE}library = Libibverbs({dialect!r}){code}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    answered = re.findall(r"((?:^[^\[].*\n)*)^(\[.*)\n", done.stdout, flags=re.MULTILINE)
    return [(seen.strip(), json.loads(answer)) for seen, answer in answered]


FIELDS = {"addr": 3, "length": 4, "handle": 5, "lkey": 6, "rkey": 7}


# Calls, with the arguments that must arrive, and the result for the stub's answer; None is any.
CALLS: list[tuple[str, str | None, Any]] = [
    ("library.reg_mr(pd, 0, 4096, 1)", "ibv_reg_mr 77 0 4096 0 1", [True, 0, FIELDS, "kernel"]),  # address zero is null
    ("library.reg_mr(pd, 4096, 2**64 - 1, 0)", f"ibv_reg_mr 77 4096 {2**64 - 1} 0 0", None),
    # Optional flags take the call that the header takes.
    ("library.reg_mr(pd, 4096, 8, 1 | 1 << 20)", f"ibv_reg_mr_iova2 77 4096 8 4096 {1 | 1 << 20}", None),
    ("library.reg_mr_iova(pd, 4096, 8, 16, 1 << 29)", f"ibv_reg_mr_iova2 77 4096 8 16 {1 << 29}", None),
    ("library.reg_mr_iova(pd, 4096, 8, 16, 1 << 31)", f"ibv_reg_mr_iova 77 4096 8 16 {1 << 31}", None),
    ("library.reg_mr(pd, 4096, 8, 2)", None, [0, 22, None, "kernel"]),  # null and errno
    ("library.reg_dmabuf_mr(pd, 5, 6, 7, -1, 1)", "fd -1 ibv_reg_dmabuf_mr 77 5 6 7 1", None),
    ("library.dereg_mr(mr)", None, [16, 1, None, "kernel"]),  # the returned code is not errno
    ("library.rereg_mr(mr, 8, None, 0, 0, 0)", None, [-1, 22, None, "libibverbs"]),
    ("library.rereg_mr(mr, 2, None, 0, 0, 0)", None, [-4, 22, None, "kernel"]),
]


def test_arguments_arrive_whole_and_answers_come_as_they_are(library: Path) -> None:
    found = calls(library, *(expression for expression, _, _ in CALLS))
    wanted = [
        (seen if arguments is None else arguments, told if answer is None else answer)
        for (seen, told), (_, arguments, answer) in zip(found, CALLS, strict=True)
    ]
    assert found == wanted


def test_calls_that_an_older_library_lacks_are_not_offered(tmp_path: Path) -> None:
    source = STUB.replace("ibv_reg_dmabuf_mr(void", "another(void").replace("ibv_reg_mr_iova2(void", "yet_another(void")
    expressions = ("library.reg_dmabuf_mr(pd, 5, 6, 7, -1, 1)", "library.reg_mr(pd, 4096, 8, 1 << 20)")
    dmabuf, plain = calls(built(tmp_path, source), *expressions)
    assert dmabuf == ("", [0, 95, None, "libibverbs"])
    assert plain[0] == f"ibv_reg_mr_iova 77 4096 8 4096 {1 << 20}"


def test_the_experimental_call_is_found_where_the_library_exports_it(library: Path) -> None:
    expression = "library.experimental_rereg_mr(mr, 4, pd, 0, 0, 1 << 40)"
    if library.name.startswith("vendor"):
        [(seen, answer)] = calls(library, expression)
        assert seen == f"ibv_exp_rereg_mr 4 77 {1 << 40:x} 1"
        assert answer[:2] == [13, 0]
    else:
        with pytest.raises(subprocess.CalledProcessError):
            calls(library, expression)


def test_the_dialect_makes_the_plain_call_with_an_attr_of_null(library: Path) -> None:
    expression = "library.experimental_rereg_mr(mr, 4, pd, 0, 12, 0)"
    [(seen, answer)] = calls(library, expression, dialect="experimental")
    assert seen == "ibv_rereg_mr 4 77 12 1"
    assert answer[:2] == [-4, 22]


PD: Any = SimpleNamespace(handle=0x12345678, pointer=1, context_pointer=2)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Records the ioctls that are made. Each succeeds, and the created object gets the handle 7."""
    found: list[bytes] = []

    def ioctl(_: int, number: int, data: bytearray, mutate: bool) -> int:
        assert (number, mutate) == (0xC0181B01, True)
        found.append(bytes(data))
        struct.pack_into("=Q", data, 24 + 8, 7)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return found


def attributes(command: bytes) -> dict[int, tuple[int, bytes]]:
    """Returns the size of each attribute, and its field of eight bytes."""
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
