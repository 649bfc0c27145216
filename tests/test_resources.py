"""The counts of a process's resources: their sources, missing counts, and leaks."""

import os
import socket
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from conformance.device.other_process import killed
from conformance.errors import HostLacks, SetupRefused
from conformance.judging import judge
from conformance.kernel import resources
from conformance.kernel.log import KernelFile, number_after
from conformance.kernel.netlink import RdmaNetlink
from conformance.kernel.resources import (
    LOCKED,
    OTHERS,
    PAGES,
    PINNED,
    ResourceCounter,
    count_when_settled,
    kept,
    leaked,
    resource_evidence,
)
from conformance.model.observation import Observation
from patience import await_true, is_running
from samples import case, laid

STATUS = "Name:\tpython3\nVmLck:\t       4 kB\nVmPin:\t      16 kB\n"


class Netlink:
    def __init__(self, **counts: int) -> None:
        self.counts = counts

    def count(self) -> dict[str, int]:
        return dict(self.counts)

    def count_all(self) -> dict[str, int]:
        """The kernel has one more of each."""
        return {kind: number + 1 for kind, number in self.counts.items()}


@pytest.fixture
def system(tmp_path: Path) -> Path:
    files = {
        "proc/self/status": STATUS,
        "proc/self/cgroup": "12:rdma:/\n0::/cases\n",
        "proc/vmstat": "nr_foll_pin_acquired 12\nnr_foll_pin_released 5\n",
        "proc/sys/vm/stat_refresh": "",
        "cgroup/cases/rdma.current": "rxe1 hca_handle=1 hca_object=9\nrxe0 hca_handle=1 hca_object=7\n",
    }
    return laid(tmp_path, files)


def count(system: Path, netlink: Any, alone: bool = True) -> dict[str, int]:
    return ResourceCounter("rxe0", netlink, alone, system / "proc", system / "cgroup").count()


def test_windows_are_what_the_control_group_counts_beyond_the_netlink(system: Path) -> None:
    assert count(system, Netlink(QP=2, MR=1, PD=1)) == {
        "QP": 2,
        "MR": 1,
        "PD": 1,
        OTHERS: 3,
        PINNED: 16,
        LOCKED: 4,
        PAGES: 7,
    }


def test_a_new_object_is_counted_beside_the_kernels_own(system: Path) -> None:
    netlink = Netlink(QP=2, MR=1)
    counter = ResourceCounter("rxe0", netlink, True, system / "proc", system / "cgroup")  # type: ignore[arg-type]
    first = counter.count()
    netlink.counts = {"QP": 2, "MR": 3}
    assert leaked(first, counter.count()) == "the kernel still counts 2 MR"


def summary(*entries: tuple[bytes, int]) -> bytes:
    """The message in which the kernel sums up the objects of a device (fill_res_info of nldev.c)."""
    packed = b"".join(struct.pack("=HH4sHHQ", 4 + len(name) + 1, 17, name, 12, 18, number) for name, number in entries)
    return struct.pack("=IHHII", 16 + len(packed), 5 << 10 | 9, 0, 1, 0) + packed


class Answer:
    """A netlink socket with one answer, which is the only message."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def send(self, _: bytes) -> None: ...

    def recv(self, _: int) -> bytes:
        data, self.data = self.data, b""
        assert data, "the kernel would not answer again"
        return data


@pytest.mark.parametrize("names", [(b"pd", b"cq", b"qp", b"mr"), (b"pd", b"cq", b"qp")], ids=["all", "an older kernel"])
def test_one_answer_of_the_kernel_has_the_numbers_of_all_kinds(names: tuple[bytes, ...]) -> None:
    netlink = RdmaNetlink.__new__(RdmaNetlink)
    netlink._index = 0
    netlink._socket = cast(socket.socket, Answer(summary(*((name, 300 + at) for at, name in enumerate(names)))))
    numbers = {"PD": 300, "CQ": 301, "QP": 302, "MR": 303}
    assert netlink.count_all() == (numbers if b"mr" in names else {})


def test_pages_are_counted_only_where_nobody_else_pins_any(system: Path) -> None:
    assert PAGES not in count(system, Netlink(), alone=False)


@pytest.mark.parametrize("lack", ["proc/self/cgroup", "cgroup/cases/rdma.current", "proc/vmstat"])
def test_counts_that_a_system_does_not_provide_are_omitted(system: Path, lack: str) -> None:
    (system / lack).unlink()
    assert {OTHERS, PAGES} - set(count(system, Netlink(MR=1))) == {PAGES if lack == "proc/vmstat" else OTHERS}


def test_counts_only_of_the_control_group_are_remarks_and_not_leaks() -> None:
    assert leaked({"MR": 1, OTHERS: 2}, {"MR": 1, OTHERS: 5}) == ""
    assert kept({OTHERS: 2}, {OTHERS: 5}) == "the RDMA control group counts 3 more objects than before (MW or other)"
    assert kept({OTHERS: 2}, {OTHERS: 2}) == kept({}, {}) == ""
    observed: Observation = {"returned": "NULL", "errno": "EINVAL", "rc": None, "remarks": ["noticed"]}
    judgement = judge(case("{rules: [REG-01], when: {access: []}, then: refused}"), [], observed)
    assert (judgement.verdict, judgement.notes) == ("PASS", ("noticed",))


def test_more_than_before_is_left_over_and_less_is_not() -> None:
    assert leaked({"MR": 1, PINNED: 4}, {"MR": 3, PINNED: 16}) == "the kernel still counts 2 MR, 12 kB pinned"
    assert leaked({"MR": 1, PINNED: 4}, {"MR": 0}) == ""


def test_resources_freed_a_little_later_are_not_leaks(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter([{"MR": 1}, {"MR": 1}, {"MR": 0}])
    assert count_when_settled({"MR": 0}, lambda: next(counts)) == {"MR": 0}
    monkeypatch.setattr(resources, "SETTLING_S", 0.02)
    assert count_when_settled({"MR": 0}, lambda: {"MR": 1}) == {"MR": 1}


def test_the_evidence_keeps_objects_and_memory_apart() -> None:
    assert resource_evidence({"MR": 0, PINNED: 0}, {"MR": 1, PINNED: 4}) == {
        "resources": {"before": {"MR": 0}, "after": {"MR": 1}},
        "memory": {"before": {PINNED: 0}, "after": {PINNED: 4}},
    }


TEXT = "VmPinned: 3 kB\nVmPin:\t      16 kB\nnr_released 5\nnr_acquired 12"


def test_each_reading_gives_the_text_as_it_is_then(tmp_path: Path) -> None:
    path = tmp_path / "status"
    path.write_text("a" * 200_000)
    file = KernelFile(path)
    assert file.read() == "a" * 200_000
    path.write_text("short")
    assert file.read() == file.read() == "short"


def test_a_file_that_is_not_there_is_looked_for_again(tmp_path: Path) -> None:
    file = KernelFile(tmp_path / "status")
    with pytest.raises(FileNotFoundError):
        file.read()
    (tmp_path / "status").write_text("here")
    assert file.read() == "here"


def test_a_forked_process_reads_of_itself() -> None:
    file = KernelFile(Path("/proc/self/stat"))
    assert file.read().startswith(f"{os.getpid()} ")
    if not (child := os.fork()):
        os._exit(0 if file.read().startswith(f"{os.getpid()} ") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert file.read().startswith(f"{os.getpid()} ")


def test_a_file_is_closed_when_it_is_no_longer_used() -> None:
    def is_open() -> bool:
        return any(os.path.realpath(f"/proc/self/fd/{name}") == "/proc/version" for name in os.listdir("/proc/self/fd"))

    file = KernelFile(Path("/proc/version"))
    file.read()
    assert is_open()
    del file
    assert not is_open()


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("VmPin:", 16),
        ("VmPinned:", 3),
        ("nr_acquired ", 12),
        ("nr_released ", 5),
        ("VmLck:", None),
        ("acquired ", None),
    ],
)
def test_a_number_is_that_of_the_line_that_begins_with_its_name(name: str, number: int | None) -> None:
    assert number_after(TEXT, name) == number


def test_a_name_without_a_number_has_none() -> None:
    assert number_after("VmPin:", "VmPin:") is number_after("VmPin: none", "VmPin:") is None


class Counted:
    """A kernel with given counts: of the living process, and then of its leftovers; the last count is repeated."""

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
    """A surviving child would keep the pipes of a trial open."""
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


def test_remaining_resources_are_reported() -> None:
    assert killed(lambda: "kept", Counted(3, 1)) == {"MR": 1, "QP": 0}


def test_why_it_could_not_be_set_up_is_reported() -> None:
    def prepare() -> object:
        raise SetupRefused("registering the MR 'mr'", "ENOMEM")

    with pytest.raises(SetupRefused, match="registering the MR 'mr'"):
        killed(prepare, Counted(0))


def test_without_counts_of_the_kernel_none_are_shown() -> None:
    with pytest.raises(HostLacks, match="does not report"):
        killed(lambda: "kept", Counted(0))
