"""A device in Python for the tests of the plugin and of the supervision. The conftest of a made-up project imports all
names of this module. The device accepts every registration except ON_DEMAND, which it does not declare. Kinds of memory
cause the events that tests need: `huge` a failure of the harness, `no_access` the death of the process, `hole` a call
that never returns.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from conformance.bench.calls import IbvMr, IbvPd, Mr, Return
from conformance.model.capability import Capabilities
from conformance.pytest_plugin import options, recorder
from conformance.tables import suite

ON_DEMAND = 1 << 6


class FakePd:
    def __init__(self) -> None:
        self._pd = IbvPd(context=0x1000, handle=1)
        self.pointer = ctypes.addressof(self._pd)
        self.context_pointer = 0x1000

    def close(self) -> None:
        pass


class FakeMemory:
    def __init__(self, size: int) -> None:
        self._bytes = ctypes.create_string_buffer(size)
        self.addr = ctypes.addressof(self._bytes)
        self.size = size

    def close(self) -> None:
        pass


class FakeEntry:
    name = "libibverbs"

    def reg_mr(self, pd: FakePd, addr: int, length: int, access: int) -> Return:
        if access & ON_DEMAND:
            return Return(0, errno.EOPNOTSUPP)
        struct = IbvMr(pd.context_pointer, pd.pointer, addr, length, 7, 11, 12)
        return Return(ctypes.addressof(struct), 0, Mr(struct))

    def dereg_mr(self, mr: Mr) -> Return:
        return Return(0, 0)


class FakeBench:
    page = 4096
    hugepage = 2 << 20
    max_read_elements = 3

    def __init__(self) -> None:
        self._entry = FakeEntry()

    def entry(self, name: str) -> FakeEntry:
        return self._entry

    def alloc_pd(self) -> FakePd:
        return FakePd()

    def allocate(self, kind: str, size: int) -> FakeMemory:
        if kind == "huge":
            raise RuntimeError("no such memory\nand a second line")
        if kind == "no_access":
            os._exit(1)
        if kind == "hole":
            signal.pause()
        return FakeMemory(size)

    def resources(self) -> dict[str, int]:
        return {}

    def register_elsewhere(self, memory: Any, access: int) -> Any:
        raise NotImplementedError

    def locked_memory_limit(self, size: int) -> AbstractContextManager[None]:
        return nullcontext()


class FakeWatch:
    def since_last(self) -> dict[str, Any]:
        return {"taint": 0, "log": []}


class FakeDevice:
    def __enter__(self) -> FakeDevice:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def check_port(self) -> None:
        pass

    def describe(self) -> dict[str, Any]:
        return {
            "name": "fake0",
            "driver": "fake",
            "fw": "",
            "vendor_id": 1,
            "vendor_part_id": 2,
            "transport": "Ethernet",
            "caps": {"odp": False},
        }


def fake_environment() -> dict[str, Any]:
    return {"kernel": "7.2.0", "rdma_core": "65.0", "pyverbs": "65.0", "python": "3.14", "tainted": 0}


@pytest.fixture(scope="session")
def bench() -> FakeBench:
    return FakeBench()


@pytest.fixture(scope="session")
def capabilities() -> Capabilities:
    return Capabilities({"odp": False}, {}, {})


@pytest.fixture(scope="session")
def kernel_watch() -> FakeWatch:
    return FakeWatch()


for module in (options, recorder):
    vars(module)["open_device"] = lambda config: FakeDevice()
vars(recorder)["environment"] = fake_environment
suite.CASES = Path.cwd() / "cases"
