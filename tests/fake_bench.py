"""A device in Python for tests of the plugin and of the supervision: the reference without on-demand paging, changed so
that it wrongly accepts REMOTE_WRITE without LOCAL_WRITE. Three kinds of memory cause failures: with `huge` the harness
raises an exception, with `no_access` the process exits, and with `hole` the case hangs, after it has computed for as long as the
file FAKE_BENCH_COMPUTES exists. The conftest of a made-up project imports all names of this module.
"""

import os
import signal
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.model.declared import Capabilities
from conformance.pytest_plugin import options, recorder
from conformance.tables import suite
from samples import header
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.memory import Range
from trial.reference.stack import without


class Accepting(Device):
    def write_alone(self, access: int) -> bool:
        return False


class FakeBench(ReferenceBench):
    def allocate(self, kind: str, size: int) -> Range:
        if kind == "huge":
            raise RuntimeError("no such memory\nand a second line")
        if kind == "no_access":
            os._exit(1)
        if kind == "hole":
            computes_while = Path(os.environ.get("FAKE_BENCH_COMPUTES", "/nonexistent"))
            while computes_while.exists():
                pass
            signal.pause()
        return super().allocate(kind, size)


@pytest.fixture(scope="session")
def bench() -> FakeBench:
    return FakeBench(Accepting(without("odp")))


@pytest.fixture(scope="session")
def capabilities() -> Capabilities:
    return Capabilities({"odp": False}, {}, {})


@pytest.fixture(scope="session")
def kernel_watch() -> Any:
    return SimpleNamespace(since_last=lambda: {"taint": 0, "log": []})


FACTS = {**header()["device"], "caps": {"odp": False}}
OPEN = SimpleNamespace(check_port=lambda: None, describe=lambda: dict(FACTS))
vars(options)["open_device"] = lambda config: nullcontext(OPEN)
vars(recorder)["environment"] = lambda: header()["env"]
suite.CASES = Path.cwd() / "cases"
