"""Tests of programs that the suite starts: limits of time, processes that remain, programs of the system, process 1."""

import os
import signal
import subprocess
import sys

from conformance.tables.suite import ROOT
from fixtures.guest.build import run_logged
from fixtures.system import processes
from launched import script
from patience import PATIENCE_S, await_true, is_running

LEAVES = "sleep 36000 & echo $! >{}; echo said; echo wrong >&2; exit 3"


def test_a_process_that_outlives_a_program_is_killed_and_delays_nobody(tmp_path):
    pid = tmp_path / "pid"
    done = processes.ran(["sh", "-c", LEAVES.format(pid)])
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\n", "wrong\n")
    await_true(lambda: not is_running(int(pid.read_text())))


def test_a_process_that_outlives_a_build_is_killed_and_delays_nobody(tmp_path):
    pid, log = tmp_path / "pid", tmp_path / "log"
    steps: list[str] = []
    assert run_logged(["sh", "-c", LEAVES.format(pid)], log, steps.append, {"said": "a step"}) == 3
    assert log.read_text().endswith("\nsaid\nwrong\n")
    assert steps[-1] == "a step"


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path):
    pid = tmp_path / "pid"
    done = processes.ran(["sh", "-c", f"sleep 36000 & echo $! >{pid}; echo said; wait"], 1.0)
    assert (done.returncode, done.stdout) == (124, "said\n")
    assert processes.last_line(done.stderr) == "sh has not ended after 1 s"
    if pid.exists():  # on a slow machine the shell may not have come so far
        await_true(lambda: not is_running(int(pid.read_text())))


def test_a_file_that_a_program_fills_has_a_limit_even_if_nobody_looks(tmp_path):
    """A supervisor that is stopped cannot shorten the console of a guest that prints without end."""
    console = tmp_path / "console"
    fills = f"for part in 1 2 3 4; do head -c 400000 /dev/zero; done >>{console} 2>/dev/null; echo lives"
    with processes.started(["sh", "-c", fills], 1 << 20, stdout=subprocess.PIPE) as program:
        said, _ = program.communicate(timeout=PATIENCE_S)
    assert (said, program.returncode) == (b"lives\n", 0)
    assert console.stat().st_size == 1 << 20


def test_programs_find_the_programs_of_the_system(tmp_path, monkeypatch):
    """The default PATH of Debian's ordinary users has no sbin."""
    script(tmp_path / "sbin" / "depmod-of-a-test", "echo it runs")
    monkeypatch.setattr(processes, "_SYSTEM_PROGRAMS", (str(tmp_path / "sbin"),))
    for command in (["depmod-of-a-test"], ["sh", "-c", "depmod-of-a-test"]):
        assert processes.ran(command).stdout == "it runs\n"
        assert run_logged(command, tmp_path / "log", print, {}) == 0


def test_a_process_has_ended_even_if_nobody_has_waited_for_it():
    child = subprocess.Popen(["true"])
    assert processes.has_ended(child.pid, PATIENCE_S)
    assert not processes.has_ended(os.getpid())
    child.wait()
    assert processes.has_ended(child.pid)


# Stands for process 1: orphans become its children.
INIT = """
import ctypes, os, signal, sys, time
from fixtures.system.init import continue_in_child
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
me, os.getpid = os.getpid(), lambda: 1
continue_in_child()
reader, writer = os.pipe()
if not (child := os.fork()):
    os.write(writer, str(os.fork()).encode() + b" ")
    os._exit(0)
os.waitpid(child, 0)
orphan = max(map(int, os.read(reader, 40).split()))
while os.path.exists(f"/proc/{orphan}"):
    time.sleep(0.01)
print("reaped", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
os.kill(me, signal.SIGTERM)
while True:
    time.sleep(1)
"""


def test_process_1_waits_for_orphans_and_passes_signals_on():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", INIT]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (7, b"reaped\n", b"")
    killed = INIT.partition("reader,")[0] + f"os.kill(os.getppid(), {signal.SIGCHLD}); os.abort()"
    done = subprocess.run([*command[:2], killed], env=environment, timeout=PATIENCE_S, check=False)
    assert done.returncode == 128 + signal.SIGABRT
