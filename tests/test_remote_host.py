"""Tests of runs on a host that is reached over ssh: the same verdicts as a local run."""

import io
import os
import re
import sys
import tarfile

import pytest

from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT
from fixtures.hosts import protocol, remote_worker, ssh
from fixtures.hosts.address import Address
from launched import ended
from patience import await_true
from project import QUIET_VERDICTS
from remote_runs import run, shared, stand_in, verdicts
from samples import footer_of, user_error

__all__ = ["run", "shared", "stand_in"]  # fixtures


@pytest.mark.parametrize(
    "parts, module",
    [(ssh.PARTS, "fixtures.bench"), (ssh.PEER_PARTS, "fixtures.hosts.agent")],
)
def test_the_files_that_a_host_gets_need_no_other_file(parts, module, tmp_path):
    archive = ssh.packed((ROOT / part, part) for part in parts)
    with tarfile.open(fileobj=io.BytesIO(archive)) as sent:
        sent.extractall(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = ended(sys.executable, "-c", f"import {module}", cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_violation_is_confirmed_on_the_host(run, stand_in):
    """The connection breaks when the violation is repeated."""
    began: list[str] = []

    def begins(line: str) -> None:
        began.append(line)
        if len(began) == 3:
            stand_in.cut()

    with stand_in.host() as host:
        recorded = run.on(host, "works", "wrongly-accepted", begins=begins, confirms=True)
    assert verdicts(recorded) == {"works": "PASS", "wrongly-accepted": "FAIL"}
    (again,) = recorded.confirmations
    assert (again["case"], again["confirmed"], again["by"]) == (
        "reg_mr/fake/wrongly-accepted",
        True,
        "repetition",
    )
    assert footer_of(recorded)["confirmation"]["confirmed"] == 1
    # the case is started again, unless its result was received before the break
    assert len(began) in (3, 4)
    await_true(lambda: not stand_in.left())  # the host removes its files when it detects the break


@pytest.mark.parametrize("name", ["peer", "wire_peer"])
def test_a_peer_that_the_host_cannot_reach_is_found_at_the_connection(stand_in, name):
    """On the host there is no node2; the message says which host has tried."""
    client = (stand_in.folder / "bin/ssh").read_text()
    unknown = "echo 'ssh: Could not resolve hostname node2' >&2; exit 255"
    stand_in.client(f'case "$*" in *node2*) {unknown} ;; esac\n{client}')
    flag = f"--{name.replace('_', '-')}"
    said = f"^host.invalid: {flag} root@node2:rxe0: root@node2 cannot be reached"
    with user_error(said, status=3):
        stand_in.host(**{name: "root@node2:rxe0"})
    await_true(lambda: not stand_in.left())


def test_a_worker_that_starts_slowly_is_announced(run, stand_in, monkeypatch, capsys):
    monkeypatch.setattr(remote_worker, "_STARTING_S", 0.0)
    with stand_in.host() as host:
        run.on(host, "not-supported")
    shown = capsys.readouterr().out
    assert re.search(r"^host\.invalid: the worker is starting, \d+ s$", shown, re.MULTILINE)


def test_a_run_over_ssh_has_the_verdicts_of_a_local_run(run, stand_in):
    with stand_in.host() as host:
        recorded = run.on(
            host,
            *QUIET_VERDICTS,
            "hangs",
            options=RunOptions(deadline=6.0),
        )
    assert verdicts(recorded) == {**QUIET_VERDICTS, "hangs": "HANG"}
    assert recorded.header["device"]["name"] == "fake0"
    assert footer_of(recorded)["complete"] is True
    assert footer_of(recorded)["boots"] == 2
    assert [line["boot_id"] for line in recorded.others if line["type"] == "worker"] == [
        "boot-1",
    ] * 2
    assert "1 skipped" in run.stage.console.read_text()
    await_true(lambda: not stand_in.left())


def test_a_host_reports_whether_its_silent_process_uses_the_processor(
    run, stand_in, tmp_path, monkeypatch
):
    computes = tmp_path / "computes"
    computes.touch()
    monkeypatch.setenv("FAKE_BENCH_COMPUTES", str(computes))
    with stand_in.host() as host:
        worker = run.place(host).start(["reg_mr/fake/hangs"])
        lines: list[bytes | None] = []

        def is_busy() -> bool:
            lines.append(worker.next_line(0.05))
            return bool(worker.busy())

        await_true(
            lambda: is_busy() and any(line and b'"type":"start"' in line for line in lines),
        )
        computes.unlink()
        await_true(lambda: not is_busy())
        worker.close()
    assert b"" not in lines


@pytest.mark.parametrize(
    "text, arguments",
    [
        ("lab7", ["--", "lab7"]),
        ("root@lab7", ["--", "root@lab7"]),
        ("lab7:2222", ["-p", "2222", "--", "lab7"]),
        ("me@[fd00::1]:22", ["-p", "22", "--", "me@fd00::1"]),
        ("[fd00::1]", ["--", "fd00::1"]),
    ],
)
def test_an_address_becomes_arguments_of_ssh(text, arguments):
    address = Address.parse(text)
    assert str(address) == text
    assert address.arguments == arguments
    assert ssh.command_line("ssh", address)[-len(arguments) - 1 : -1] == arguments


def test_lines_that_are_not_messages_with_the_secret_are_ignored():
    message = protocol.message(b"s", "hello", folder="x")
    assert protocol.parse_line(b"s", message) == {"event": "hello", "folder": "x"}
    assert (
        protocol.parse_line(b"s", protocol.carried(b"s", b'{"type":"start"}\n'))
        == b'{"type":"start"}\n'
    )
    for line in (
        message[:-1],
        b"x" + message,
        b"s M []\n",
        b"s M {\n",
        b"s X y\n",
        b"\n",
        b"Last login: today\n",
    ):
        assert protocol.parse_line(b"s", line) is None
