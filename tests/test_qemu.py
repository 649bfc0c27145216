"""Tests of guests that fail to start, with a shell script in place of QEMU, and of the choice between KVM and emulation."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

import launched
from conformance.errors import UserError
from conformance.supervision.worker import TRIES
from fixtures.guest import build, qemu
from fixtures.guest.freezing import await_event
from fixtures.guest.guest import Guest, boot
from fixtures.guest.image import Image
from fixtures.guest.job import Job
from kinds import Patch, rows
from launched import killed_after
from patience import PATIENCE_S, await_true, is_running, longer_and_longer
from samples import user_error

UP = '{"type":"guest","event":"up","uptime_s":1.5}'
WARM = '{"type":"guest","event":"warm"}'


class FakeQemu:
    """QEMU as a shell script that writes its process id to the file `pid`, with an image that it never reads."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.pid = folder / "pid"
        self.console = folder / "console"
        place = folder / "image"
        self.image = Image(place / "vmlinuz", place / "initrd", place / "root.erofs", "", "")

    def put(self, script: str) -> None:
        launched.script(self.programs / "qemu-system-x86_64", f"echo $$ >{self.pid}\n{script}")

    def boot(self, console: Path | None = None, deadline_s: float = PATIENCE_S) -> Guest:
        return boot(
            self.image,
            Job((), "true"),
            console=console or self.console,
            deadline_s=deadline_s,
        )

    def fails(self, message: str, deadline_s: float = PATIENCE_S) -> UserError:
        with user_error(re.escape(message), status=3) as caught:
            self.boot(deadline_s=deadline_s)
        return caught.value

    def runs(self) -> bool:
        return is_running(int(self.pid.read_text()))


@pytest.fixture
def fake_qemu(tmp_path: Path, monkeypatch: Patch) -> FakeQemu:
    stand_in = FakeQemu(tmp_path)
    monkeypatch.setenv("PATH", f"{stand_in.programs}:{os.environ['PATH']}")
    monkeypatch.setenv("RDMA_CTS_ACCEL", "tcg")
    return stand_in


# Sets the shell variable `console` to the file to which QEMU must write the console.
CONSOLE = "console=$(echo \"$*\" | sed 's/.*id=console,path=//; s/[ ,].*//'); "


def test_if_qemu_is_killed_externally_before_the_guest_is_up_another_guest_is_started(
    fake_qemu, tmp_path
):
    tried = tmp_path / "tried"
    fake_qemu.put(
        f"echo >>{tried}; [ $(wc -l <{tried}) -lt {TRIES} ] && kill -9 $$; echo '{UP}'; exec sleep 60",
    )
    with fake_qemu.boot() as guest:
        assert guest.up["uptime_s"] == 1.5
    assert tried.read_text() == "\n" * TRIES


@pytest.mark.slow
@pytest.mark.parametrize("script, message", rows("guests_that_do_not_start"))
def test_a_guest_that_cannot_start_is_reported(fake_qemu, tmp_path, script, message):
    fake_qemu.put(CONSOLE + script)
    error = fake_qemu.fails(message)
    # an empty console is not named
    assert error.log == (str(fake_qemu.console) if "$console" in script else "")
    assert not fake_qemu.runs()
    assert list(tmp_path.glob("work-*")) == []


@pytest.mark.slow
def test_a_guest_that_hangs_is_killed_at_its_deadline(fake_qemu):
    fake_qemu.put("exec sleep infinity")
    for deadline_s in longer_and_longer(0.5):
        fake_qemu.fails(f"did not come up within {deadline_s:g} s", deadline_s)
        # else QEMU was killed before it wrote its process id
        if fake_qemu.pid.exists() and fake_qemu.pid.read_text():
            break
    assert not fake_qemu.runs()


def test_a_starved_guest_is_awaited_beyond_its_deadline(fake_qemu, monkeypatch):
    fake_qemu.put(f"echo '{UP}'; echo '{WARM}'; exec sleep infinity")
    monkeypatch.setattr(Guest, "starved", lambda guest, limit_s: limit_s == 0.0)
    with fake_qemu.boot(deadline_s=0.0) as guest:
        assert await_event(guest, "warm", 0.0)["event"] == "warm"


def test_temporary_files_are_only_next_to_the_console_and_are_removed(
    fake_qemu, tmp_path, monkeypatch
):
    monkeypatch.setattr("tempfile.tempdir", "/proc/no/such/place")
    place = tmp_path / "out"
    fake_qemu.put(f"echo '{UP}'; exec sleep infinity")
    with fake_qemu.boot(place / "console"):
        assert len(list(place.iterdir())) == 2
    assert list(place.iterdir()) == [place / "console"]


def test_each_line_is_returned_as_soon_as_it_is_complete(fake_qemu, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fake_qemu.put(f"echo '{UP}'; exec cat {pipe}")
    with fake_qemu.boot() as guest, pipe.open("wb", buffering=0) as end:
        assert guest.up["uptime_s"] == 1.5
        assert guest.next_line(0.05) is None
        end.write(b"one\n\ntwo\nthr")
        assert [guest.next_line(PATIENCE_S) for _ in range(3)] == [b"one\n", b"\n", b"two\n"]
        assert guest.next_line(0.05) is None
        end.write(b"ee\ncut sh")
        end.close()
        assert [guest.next_line(PATIENCE_S) for _ in range(4)] == [b"three\n", b"cut sh", b"", b""]
        assert guest.wait() == 0


def test_nobody_waits_for_what_qemu_leaves_after_the_end_of_its_job(tmp_path):
    (tmp_path / "work").mkdir()
    ended = json.dumps({"type": "guest", "event": "exit", "status": 0})
    script = f"sleep {PATIENCE_S} & echo $!; echo '{ended}'; echo late; wait"
    console = tmp_path / "console.log"
    guest = Guest(["sh", "-c", script], console, tmp_path / "work", ends_with_job=True)
    holds_the_stream = int(guest.next_line(PATIENCE_S) or b"")
    try:
        assert guest.next_line(PATIENCE_S) == f"{ended}\n".encode()
        assert guest.next_line(PATIENCE_S) == b""
        end = guest.end()
        assert (end.what, end.external) == ("the command in the guest ended with status 0", False)
        guest.close()
        await_true(lambda: not is_running(guest.pid))
    finally:
        os.kill(holds_the_stream, signal.SIGKILL)


def test_qemu_is_killed_with_the_program_that_started_it(fake_qemu, tmp_path):
    fake_qemu.put(f"echo '{UP}'; exec sleep infinity")
    with killed_after(
        b"up\n",
        "from pathlib import Path; from fixtures.guest.guest import Guest, boot, Job\n"
        "from fixtures.guest.image import Image; p = Path('/nowhere')\n"
        f"g = boot(Image(p, p, p, '', '', ''), Job((), 'true'), console=Path({str(tmp_path / 'console')!r}))\n"
        "print('up', flush=True); g.wait(None)\n",
    ):
        assert fake_qemu.runs()
    await_true(lambda: not fake_qemu.runs())


# Emulation or KVM


@pytest.mark.parametrize(
    "script, found",
    [
        ("exit 0", "kvm"),
        ("echo 'qemu: some warning' >&2; exit 0", "kvm"),
        ("echo 'Could not access KVM kernel module' >&2; exit 1", "tcg"),
        ("echo 'KVM internal error. Suberror: 1' >&2; exec sleep infinity", "tcg"),
    ],
)
def test_kvm_is_used_if_the_kernel_starts_under_it(fake_qemu, tmp_path, monkeypatch, script, found):
    monkeypatch.setenv("RDMA_CTS_ACCEL", "auto")
    monkeypatch.setattr(qemu, "kvm_present", lambda _: True)
    fake_qemu.put(script)
    program = build.find_tool("qemu-system-x86_64")
    assert qemu.choose(program, tmp_path / "vmlinuz") == found
    fake_qemu.pid.unlink()
    assert qemu.choose(program, tmp_path / "vmlinuz") == found
    assert not fake_qemu.pid.exists(), "QEMU was started again"


def test_a_requested_kvm_that_does_not_start_the_kernel_is_refused_at_once(
    fake_qemu, tmp_path, monkeypatch
):
    monkeypatch.setenv("RDMA_CTS_ACCEL", "kvm")
    monkeypatch.setattr(qemu, "kvm_present", lambda _: False)
    with user_error("kvm, and there is no usable /dev/kvm; unset RDMA_CTS_ACCEL", status=2):
        qemu.choose("nothing", tmp_path / "vmlinuz")
    monkeypatch.setattr(qemu, "kvm_present", lambda _: True)
    fake_qemu.put("echo 'KVM internal error. Suberror: 1' >&2; exec sleep infinity")
    program = build.find_tool("qemu-system-x86_64")
    refused = "kvm, and /dev/kvm exists but does not start the guest's kernel; unset RDMA_CTS_ACCEL"
    with user_error(refused, status=2):
        qemu.choose(program, tmp_path / "vmlinuz")
    fake_qemu.put("exit 0")
    assert qemu.choose(program, tmp_path / "vmlinuz") == "kvm", "the failed test was not repeated"


def test_a_test_boot_is_killed_with_the_program_that_started_it(fake_qemu):
    """QEMU pauses after an internal error of KVM, and would never exit."""
    fake_qemu.put("exec sleep infinity")
    with killed_after(
        b"begun\n",
        "from pathlib import Path; from fixtures.guest import build, qemu\n"
        "program = build.find_tool('qemu-system-x86_64'); print('begun', flush=True)\n"
        "qemu.kernel_starts(program, Path('/nowhere'), qemu.AMD64)\n",
    ):
        await_true(lambda: fake_qemu.pid.exists() and fake_qemu.pid.read_text())
    await_true(lambda: not fake_qemu.runs())


def test_the_accelerator_can_be_named(monkeypatch):
    monkeypatch.setenv("RDMA_CTS_ACCEL", "tcg")
    assert qemu.choose("nothing", Path("/nowhere")) == "tcg"
    monkeypatch.setenv("RDMA_CTS_ACCEL", "xen")
    with user_error("auto, kvm, tcg", status=2):
        qemu.choose("nothing", Path("/nowhere"))


def test_without_a_device_node_there_is_no_kvm(tmp_path):
    (tmp_path / "kvm").write_bytes(b"")
    assert not qemu.kvm_present(tmp_path / "kvm")
    assert not qemu.kvm_present(tmp_path / "none")
