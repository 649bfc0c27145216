"""Another process that is killed: what is counted of it, and why it could not be made."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from conformance.device.other_process import killed
from conformance.errors import HostLacks, SetupRefused
from patience import await_true, is_running


class Counted:
    """What a kernel counts: first what the process has, then what is left of it, in order; the last stays."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)
        self.alive: list[bool] = []

    def __call__(self, process: int) -> Mapping[str, int]:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            self.alive.append(False)
        else:
            self.alive.append(True)
        return {"MR": self.counts.pop(0) if len(self.counts) > 1 else self.counts[0], "QP": 0}


def test_it_is_counted_alive_and_then_until_nothing_is_left() -> None:
    count = Counted(3, 2, 1, 0)
    assert killed(lambda: "kept", count) == {"MR": 0, "QP": 0}
    assert count.alive == [True, False, False, False]


def test_it_ends_with_the_process_that_began_it() -> None:
    """Else it would keep the pipes of a trial that is ended in the middle of a case."""
    number, report = os.pipe()

    def ended(process: int) -> Mapping[str, int]:
        os.write(report, str(process).encode())
        os._exit(0)

    if not (parent := os.fork()):
        killed(lambda: "kept", ended)
    os.waitpid(parent, 0)
    left = int(os.read(number, 20))
    await_true(lambda: not is_running(left))
    os.close(number)
    os.close(report)


def test_what_stays_is_told() -> None:
    assert killed(lambda: "kept", Counted(3, 1)) == {"MR": 1, "QP": 0}


def test_why_it_could_not_be_set_up_is_told() -> None:
    def prepare() -> object:
        raise SetupRefused("registering the MR 'mr'", "ENOMEM")

    with pytest.raises(SetupRefused, match="registering the MR 'mr'"):
        killed(prepare, Counted(0))


def test_where_the_kernel_counts_nothing_nothing_is_shown() -> None:
    with pytest.raises(HostLacks, match="does not tell"):
        killed(lambda: "kept", Counted(0))
