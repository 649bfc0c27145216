"""Tests of runs over ssh whose connection breaks, or whose host or client fails."""

import json
import os
import random
import re
import subprocess
import sys

import pytest

from far_host import HELLO
from fixtures.hosts import link, protocol, remote_host, ssh
from kinds import rows
from patience import PATIENCE_S, await_true
from remote_runs import ADDRESS, Run, run, shared, stand_in, verdicts, when_it_hangs
from samples import footer_of, laid, user_error

__all__ = ["run", "shared", "stand_in"]  # fixtures


def test_a_line_torn_by_a_broken_connection_is_ignored(stand_in, project, tmp_path, monkeypatch):
    """The first connection breaks after a random number of bytes."""
    rows = ("works", "wrongly-accepted", "not-supported")
    dice = random.Random(24)
    for number in range(int(os.environ.get("RDMA_CTS_MOMENTS", "1"))):
        stand_in.goes_wrong(bytes=dice.randrange(1200, 3000))
        with stand_in.host() as host:
            monkeypatch.delenv("STAND_IN_BYTES")
            run = Run(project, tmp_path / f"out{number}")
            recorded = run.on(host, *rows)
        assert run.stage.audience.reasons == [f"the connection to {ADDRESS} was cut"]
        assert list(verdicts(recorded).values()) == ["PASS", "FAIL", "UNSUPPORTED"]
        assert footer_of(recorded)["complete"] is True
        assert footer_of(recorded)["boots"] == 2


CRASHED = {"works": "PASS", "hangs": "CRASH", "not-supported": "UNSUPPORTED"}


def test_a_host_that_reboots_in_a_case_makes_that_case_a_crash(run, stand_in):
    with stand_in.host() as host:
        recorded = run.on(host, *CRASHED, begins=when_it_hangs(stand_in.boot, stand_in.cut))
    assert verdicts(recorded) == CRASHED
    assert "the kernel under test died" in recorded.results[1]["reason"]
    boots = [line["boot_id"] for line in recorded.others if line["type"] == "worker"]
    assert boots == ["boot-1", "boot-2"]


def test_a_host_that_does_not_return_is_reset_and_its_console_is_evidence(stand_in, run, tmp_path):
    reset = f"echo x >>{tmp_path}/resets; rm -f {stand_in.dead}; echo boot-9 >{stand_in.boot_id}"
    begins = when_it_hangs(
        stand_in.dead.touch,
        lambda: stand_in.serial.write_text(
            "[ 9.0] Kernel panic - not syncing: sysrq triggered crash\n",
        ),
        lambda: await_true(lambda: "panic" in (run.out / "host-console.log").read_text()),
        stand_in.cut,
    )
    with stand_in.host(return_s=1.0, power_cycle=reset, console=stand_in.console) as host:
        host.follow_console(run.out / "host-console.log")
        recorded = run.on(host, *CRASHED, begins=begins)
    assert verdicts(recorded) == CRASHED
    assert (
        "[ 9.0] Kernel panic - not syncing: sysrq triggered crash"
        in recorded.results[1]["kernel"]["log"]
    )
    assert (tmp_path / "resets").read_text() == "x\n"
    assert footer_of(recorded)["complete"] is True


def test_a_run_is_resumed_after_its_host_was_lost_and_the_case_is_a_crash(stand_in, run):
    with stand_in.host(return_s=0.5) as host:
        recorded = run.on(host, *CRASHED, begins=when_it_hangs(stand_in.dead.touch, stand_in.cut))
        assert f"{ADDRESS} did not return within 0.5 s: " in host.gone
    assert list(verdicts(recorded).values()) == ["PASS", "MISSED", "MISSED"]
    assert "did not return" in recorded.results[1]["reason"]
    assert footer_of(recorded)["complete"] is False
    stand_in.dead.unlink()
    stand_in.boot()
    with stand_in.host() as host:
        again = run.on(host, *CRASHED, carry_on=True)
    assert verdicts(again) == CRASHED
    assert again.results[1]["reason"].endswith("the host went down while the case ran")


def test_a_host_that_returns_with_another_kernel_is_reported(stand_in):
    with stand_in.host() as host:
        assert host.first
        host._same["kernel"] = "5.4.0-another"
        host.first.cut()
        with user_error(r"has changed: kernel was 5\.4\.0-another, and is now ", status=3):
            host.connected(host.first)


def test_a_host_that_does_not_answer_is_reported_while_the_run_waits(stand_in, monkeypatch, capsys):
    """The host accepts the connection and says nothing, such as one whose sshd hangs."""
    monkeypatch.setattr(link, "_SLOW_S", 0.1)
    monkeypatch.setattr(link, "_ENDING_S", 0.1)
    monkeypatch.setattr(remote_host, "_HELLO_S", 0.3)
    stand_in.client("exec sleep 36000")
    hint = "try: ssh -v -- host.invalid true"
    with user_error(f"^host.invalid did not respond in time; {hint}$", status=3):
        stand_in.host()
    said = "host.invalid: no answer for 0.1 s, waiting for another 0.2 s"
    assert capsys.readouterr().out == f"{said}; {hint}\n"


@pytest.mark.parametrize("noise", ["yes", "while :; do echo hi; sleep 0.1; done"])
def test_a_host_that_sends_only_noise_is_reported_as_silent(stand_in, monkeypatch, noise):
    monkeypatch.setattr(link, "_ENDING_S", 0.1)
    stand_in.client(f"{noise}\n:")  # a separate process, which does not read its input
    with user_error(r"^host\.invalid did not respond in time; ", status=3):
        link.Link.connected(ADDRESS, b"x" * (1 << 20), 0.5)


@pytest.mark.parametrize(
    "noise",
    ["yes", "while :; do echo hi; sleep 0.1; done", "cat /dev/zero", "sleep 999"],
)
def test_a_connection_with_only_noise_is_lost(stand_in, monkeypatch, noise):
    monkeypatch.setattr(protocol, "SILENCE_S", 0.5)
    hello = f"read -r program; read -r secret size; echo \"$secret M \"'{json.dumps(HELLO)}'"
    stand_in.client(f"{hello}\n{noise}")
    connection = link.Link.connected(ADDRESS, b"\n", PATIENCE_S)
    try:
        with pytest.raises(link.Lost):
            connection.next(PATIENCE_S)
    finally:
        connection.cut()


def test_a_panic_on_the_console_ends_the_wait_for_a_silent_host(stand_in, run, monkeypatch):
    monkeypatch.setattr(protocol, "SILENCE_S", PATIENCE_S)
    monkeypatch.setattr(protocol, "PANIC_S", 4.0)
    panic = "Kernel panic - not syncing: Fatal exception\n"
    with stand_in.host(console=stand_in.console) as host:
        host.follow_console(run.out / "host-console.log")
        begins = when_it_hangs(lambda: stand_in.serial.write_text(panic), stand_in.stop)
        recorded = run.on(host, "works", "hangs", begins=begins)
    assert verdicts(recorded) == {"works": "PASS", "hangs": "CRASH"}


@pytest.mark.parametrize("given, output", rows("messages_of_ssh"))
def test_a_failure_of_ssh_is_reported_in_one_line(stand_in, tmp_path, given, output):
    status, _, says = given.partition(" ")
    laid(tmp_path, {"says": says.replace("\\n", "\n")})
    stand_in.goes_wrong(says=tmp_path / "says", status=status)
    with user_error(f"^{re.escape(output)}", status=3):
        stand_in.host()


def test_an_ssh_client_that_is_killed_is_reported(stand_in):
    stand_in.client("kill -9 $$")
    with user_error(
        "^host.invalid: ssh was killed by signal 9; try: ssh -- host.invalid true$",
        status=3,
    ):
        stand_in.host()


def test_an_ssh_client_that_cannot_be_executed_is_reported(stand_in):
    (stand_in.folder / "bin/ssh").write_text("just text\n")
    with user_error(r"/bin/ssh cannot be started: Exec format error$", status=3):
        stand_in.host()


def test_a_full_disk_is_reported(stand_in):
    stand_in.goes_wrong(prefix="ulimit -f 8; ")
    with user_error(r"host\.invalid: the suite cannot be written to .*: File too large", status=3):
        stand_in.host()
    await_true(lambda: not stand_in.left())


def test_a_python_that_is_too_old_or_of_another_architecture_is_reported():
    opening = ssh.opening(b"secret", 0)
    for have, output in (
        ("sys.version_info = (3, 8)", b"Python 3.9 or later is needed"),
        ("import struct; struct.calcsize = lambda kind: 4", b"64 bits are needed"),
    ):
        code = f"import sys; {have}; exec(eval(sys.stdin.buffer.readline()))"
        done = subprocess.run(
            [sys.executable, "-c", code, "/nowhere"],
            input=opening,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 3
        assert output in done.stdout
        assert isinstance(protocol.parse_line(b"secret", done.stdout), dict)


def test_a_hazardous_case_runs_in_its_own_boot(stand_in, run, tmp_path):
    resets = tmp_path / "resets"
    reset = f"echo x >>{resets}; wc -l <{resets} >{stand_in.boot_id}"
    hazardous = ("reg_mr/fake/works", "reg_mr/fake/wrongly-accepted")
    boots = []
    with stand_in.host(power_cycle=reset) as host:
        place = run.place(host, hazardous)
        for case in (*hazardous, "reg_mr/fake/not-supported"):
            worker = place.start([case])
            boots.append(host.boot_id)
            while worker.next_line(PATIENCE_S):
                pass
            assert (
                worker.end().what
                == f"the process under test ended with status {int('wrongly' in case)}"
            )
            worker.close()
    assert boots == ["boot-1", "1", "1"]  # the first hazardous case runs in the present boot
    assert stand_in.left() == []


def test_a_power_command_that_fails_is_reported(stand_in):
    with stand_in.host(power_cycle="echo the outlet is on fire; exit 4") as host:
        assert host.first
        with user_error("the power command failed with status 4: the outlet is on fire", status=3):
            host.reset(host.first)
