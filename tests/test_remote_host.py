"""Tests of runs on a host over ssh, with a program in place of ssh that connects to this machine. test_two_guests.py uses the
real sshd, and kernels that die."""

from __future__ import annotations

import compileall
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from actors import Stage
from conformance.results.records import Recorded
from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT, load_suite
from fixtures.hosts import link, protocol, ssh
from fixtures.hosts.address import Address
from fixtures.hosts.remote_host import Means, RemoteHost
from fixtures.hosts.remote_worker import Place, RemoteWorker
from fixtures.hosts.ssh import PARTS, packed
from kinds import Folders, Patch, rows
from patience import PATIENCE_S, await_true
from project import QUIET_VERDICTS, Project
from samples import footer_of, laid, user_error
from test_remote_peer import HELLO, Far, opened

ADDRESS = Address("host.invalid")


# Replaces fixtures/system/usable.py: the host has a device that exists only in the tests.
USABLE = """\
def the_only_device():
    return "fake0"
def check_names(device):
    pass
def check_use(device, port, gid_index, shared):
    return ""
"""
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class StandIn(Far):
    """This machine as another host whose boot id is a file."""

    def __init__(self, folder: Path, project: Project, monkeypatch: Patch, shared: Path) -> None:
        super().__init__(folder, monkeypatch)
        self.boot_id = shared / "boot_id"
        self.boots = 0
        self.dead = folder / "dead"  # while this file exists, the host cannot be reached
        self.serial = folder / "serial"
        self.serial.touch()
        self.console = f"tail -n +1 -f {self.serial}"
        self._monkeypatch = monkeypatch
        self.boot()
        self.goes_wrong(prefix=f"[ ! -e {self.dead} ] || exit 255; ")
        monkeypatch.setenv("RDMA_CTS_DERIVED", "")
        monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
        archive = shared / "archive"
        if not archive.exists():
            archive.write_bytes(self._packed(shared / "suite", project))
        self.archive = archive.read_bytes()

    def _packed(self, suite: Path, project: Project) -> bytes:
        """Packs the suite with the device of the tests, which needs no bindings on the host, and with bytecode, so that
        sessions need not compile the suite."""
        sources = [(ROOT, part) for part in PARTS if part != "cases"]
        for root, part in (
            *sources,
            *((project.root, part) for part in ("cases", "conftest.py", "tox.ini")),
        ):
            (suite / part).parent.mkdir(parents=True, exist_ok=True)
            if (root / part).is_dir():
                shutil.copytree(
                    root / part,
                    suite / part,
                    ignore=shutil.ignore_patterns("__pycache__"),
                )
            else:
                shutil.copy(root / part, suite / part)
        shutil.copytree(project.tables, suite / "vendor/0")
        (suite / "fixtures/system/usable.py").write_text(USABLE)
        (suite / "fixtures/system/packages.txt").write_text("remote python3-yaml module:yaml = =\n")
        for name, before, after in (
            ("protocol.py", f"ALIVE_S = {protocol.ALIVE_S}", "ALIVE_S = 0.2"),
            ("agent.py", BOOT_ID, str(self.boot_id)),
            ("../system/processes.py", "/ 20 > 0", "/ 100 > 0"),  # this machine may be busy
        ):
            path = suite / "fixtures/hosts" / name
            path.write_text(path.read_text().replace(before, after))
        compileall.compile_dir(suite, quiet=2, invalidation_mode=PycInvalidationMode.UNCHECKED_HASH)
        self._monkeypatch.setattr(ssh, "_LEFT_OUT", ())
        return packed((path, path.name) for path in suite.iterdir())

    def boot(self) -> None:
        self.boots += 1
        self.boot_id.write_text(f"boot-{self.boots}\n")

    def host(self, **means: Any) -> RemoteHost:
        options = {
            "device": "",
            "port": 1,
            "gid_index": None,
            "peer": None,
            "shared": False,
        }
        return opened(
            RemoteHost(
                ADDRESS,
                self.archive,
                options,
                Means(**{"return_s": PATIENCE_S, **means}),
                print,
            ),
        )

    def goes_wrong(self, **how: object) -> None:
        """Sets how the next connections break; see stand_in_ssh.py."""
        for name, value in how.items():
            self._monkeypatch.setenv(f"STAND_IN_{name.upper()}", str(value))

    def stop(self) -> None:
        """Reboots the host and stops all its connections, so that they stay silent."""
        self.boot()
        for pid in self.pids():
            os.kill(pid, signal.SIGSTOP)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: Folders) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture
def stand_in(tmp_path: Path, project: Project, monkeypatch: Patch, shared: Path) -> StandIn:
    table = project.tables / "reg_mr" / "fake.yaml"
    head, *parts = table.read_text().split("  - id: ")
    # A harmless row is last, after the rows that end or block their worker.
    table.write_text(
        "  - id: ".join([head, *sorted(parts, key=lambda row: row.startswith("not-supported"))]),
    )
    return StandIn(tmp_path / "host", project, monkeypatch, shared)


class Run:
    """Runs cases on a host. A test can act when a case begins."""

    def __init__(self, project: Project, out: Path) -> None:
        self.out = laid(out, {})
        self.stage = Stage(out)
        self.suite = load_suite([project.tables])

    def place(self, host: RemoteHost, alone: Sequence[str] = ()) -> Place:
        return Place(host, ["--rdma-cases", "vendor/0"], self.stage.console, alone, host.first)

    def on(
        self,
        host: RemoteHost,
        *rows: str,
        begins: Callable[[str], object] = lambda line: None,
        confirms: bool = False,
        **how: Any,
    ) -> Recorded:
        """Runs the rows; `begins` is called in a worker's thread with each line that reports a start. With `confirms`,
        violations are repeated."""
        place = self.place(host)

        def start(cases: Sequence[str]) -> RemoteWorker:
            worker = place.start(cases)
            next_line = worker.next_line

            def watched(timeout: float) -> bytes | None:
                line = next_line(timeout)
                if line and b'"type":"start"' in line:
                    begins(line.decode())
                return line

            worker.next_line = watched  # type: ignore[method-assign]
            return worker

        cases = [case for row in rows if (case := self.suite.find(f"reg_mr/fake/{row}"))]
        how |= {"again": (start,) if confirms else (), "boot_id": lambda: host.boot_id}
        return self.stage.supervise(start, suite=self.suite, cases=cases, **how)


@pytest.fixture
def run(stand_in: StandIn, project: Project, tmp_path: Path) -> Run:
    return Run(project, tmp_path / "out")


def verdicts(recorded: Recorded) -> dict[str, str]:
    return {line["case"].rpartition("/")[2]: line["verdict"] for line in recorded.results}


def when_it_hangs(*actions: Callable[[], object]) -> Callable[[str], None]:
    """Returns a function for `begins` that calls `actions` when the case `hangs` starts for the first time."""
    waiting = [actions]

    def begins(line: str) -> None:
        if "hangs" in line and waiting:
            for action in waiting.pop():
                action()

    return begins


# A run


def test_a_violation_is_confirmed_on_the_host(run: Run, stand_in: StandIn) -> None:
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


def test_a_run_over_ssh_has_the_verdicts_of_a_local_run(run: Run, stand_in: StandIn) -> None:
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
    run: Run,
    stand_in: StandIn,
) -> None:
    with stand_in.host() as host:
        worker = run.place(host).start(["reg_mr/fake/hangs"])
        lines: list[bytes | None] = []

        def is_busy() -> bool:
            lines.append(worker.next_line(0.05))
            return worker.busy()

        await_true(is_busy)  # while Python starts
        await_true(
            lambda: not is_busy() and any(line and b'"type":"start"' in line for line in lines),
        )
        worker.close()
    assert b"" not in lines


# Connections that break


def test_a_line_torn_by_a_broken_connection_is_ignored(
    stand_in: StandIn,
    project: Project,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
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


def test_a_host_that_reboots_in_a_case_makes_that_case_a_crash(run: Run, stand_in: StandIn) -> None:
    with stand_in.host() as host:
        recorded = run.on(host, *CRASHED, begins=when_it_hangs(stand_in.boot, stand_in.cut))
    assert verdicts(recorded) == CRASHED
    assert "the kernel under test died" in recorded.results[1]["reason"]
    boots = [line["boot_id"] for line in recorded.others if line["type"] == "worker"]
    assert boots == ["boot-1", "boot-2"]


def test_a_host_that_does_not_return_is_reset_and_its_console_is_evidence(
    stand_in: StandIn,
    run: Run,
    tmp_path: Path,
) -> None:
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


def test_a_run_is_resumed_after_its_host_was_lost_and_the_case_is_a_crash(
    stand_in: StandIn,
    run: Run,
) -> None:
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


def test_a_host_that_returns_with_another_kernel_is_reported(stand_in: StandIn) -> None:
    with stand_in.host() as host:
        assert host.first
        host._same["kernel"] = "5.4.0-another"
        host.first.cut()
        with user_error(r"has changed: kernel was 5\.4\.0-another, and is now ", status=3):
            host.connected(host.first)


@pytest.mark.parametrize("noise", ["yes", "while :; do echo hi; sleep 0.1; done"])
def test_a_host_that_sends_only_noise_is_reported_as_silent(
    stand_in: StandIn,
    monkeypatch: Patch,
    noise: str,
) -> None:
    monkeypatch.setattr(link, "_ENDING_S", 0.1)
    stand_in.client(f"{noise}\n:")  # a separate process, which does not read its input
    with user_error(r"^host\.invalid did not respond in time$", status=3):
        link.Link.connected(ADDRESS, b"x" * (1 << 20), 0.5)


@pytest.mark.parametrize(
    "noise",
    ["yes", "while :; do echo hi; sleep 0.1; done", "cat /dev/zero", "sleep 999"],
)
def test_a_connection_with_only_noise_is_lost(
    stand_in: StandIn,
    monkeypatch: Patch,
    noise: str,
) -> None:
    monkeypatch.setattr(protocol, "SILENCE_S", 0.5)
    hello = f"read -r program; read -r secret size; echo \"$secret M \"'{json.dumps(HELLO)}'"
    stand_in.client(f"{hello}\n{noise}")
    connection = link.Link.connected(ADDRESS, b"\n", PATIENCE_S)
    try:
        with pytest.raises(link.Lost):
            connection.next(PATIENCE_S)
    finally:
        connection.cut()


def test_a_panic_on_the_console_ends_the_wait_for_a_silent_host(
    stand_in: StandIn,
    run: Run,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(protocol, "SILENCE_S", PATIENCE_S)
    monkeypatch.setattr(protocol, "PANIC_S", 4.0)
    panic = "Kernel panic - not syncing: Fatal exception\n"
    with stand_in.host(console=stand_in.console) as host:
        host.follow_console(run.out / "host-console.log")
        begins = when_it_hangs(lambda: stand_in.serial.write_text(panic), stand_in.stop)
        recorded = run.on(host, "works", "hangs", begins=begins)
    assert verdicts(recorded) == {"works": "PASS", "hangs": "CRASH"}


# Failures of a host


@pytest.mark.parametrize(("given", "output"), rows("messages_of_ssh"))
def test_a_failure_of_ssh_is_reported_in_one_line(
    stand_in: StandIn,
    tmp_path: Path,
    given: str,
    output: str,
) -> None:
    status, _, says = given.partition(" ")
    laid(tmp_path, {"says": says.replace("\\n", "\n")})
    stand_in.goes_wrong(says=tmp_path / "says", status=status)
    with user_error(f"^{re.escape(output)}", status=3):
        stand_in.host()


def test_an_ssh_client_that_is_killed_is_reported(stand_in: StandIn) -> None:
    stand_in.client("kill -9 $$")
    with user_error(
        "^host.invalid: ssh was killed by signal 9; try: ssh -- host.invalid true$",
        status=3,
    ):
        stand_in.host()


def test_an_ssh_client_that_cannot_be_executed_is_reported(stand_in: StandIn) -> None:
    (stand_in.folder / "bin/ssh").write_text("just text\n")
    with user_error(r"/bin/ssh cannot be started: Exec format error$", status=3):
        stand_in.host()


def test_a_full_disk_is_reported(stand_in: StandIn) -> None:
    stand_in.goes_wrong(prefix="ulimit -f 8; ")
    with user_error(r"host\.invalid: the suite cannot be written to .*: File too large", status=3):
        stand_in.host()
    await_true(lambda: not stand_in.left())


def test_a_python_that_is_too_old_or_of_another_architecture_is_reported() -> None:
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


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("lab7", ["--", "lab7"]),
        ("root@lab7", ["--", "root@lab7"]),
        ("lab7:2222", ["-p", "2222", "--", "lab7"]),
        ("me@[fd00::1]:22", ["-p", "22", "--", "me@fd00::1"]),
        ("[fd00::1]", ["--", "fd00::1"]),
    ],
)
def test_an_address_becomes_arguments_of_ssh(text: str, arguments: list[str]) -> None:
    address = Address.parse(text)
    assert str(address) == text
    assert address.arguments == arguments
    assert ssh.command_line("ssh", address)[-len(arguments) - 1 : -1] == arguments


def test_lines_that_are_not_messages_with_the_secret_are_ignored() -> None:
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


def test_a_hazardous_case_runs_in_its_own_boot(stand_in: StandIn, run: Run, tmp_path: Path) -> None:
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


def test_a_power_command_that_fails_is_reported(stand_in: StandIn) -> None:
    with stand_in.host(power_cycle="echo the outlet is on fire; exit 4") as host:
        assert host.first
        with user_error("the power command failed with status 4: the outlet is on fire", status=3):
            host.reset(host.first)
