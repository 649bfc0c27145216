"""A stand-in for a host that is reached over ssh, and runs on this host."""

from __future__ import annotations

import compileall
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from actors import Stage
from conformance.results.records import Recorded
from conformance.tables.suite import ROOT, load_suite
from far_host import Far, opened
from fixtures.hosts import protocol, ssh
from fixtures.hosts.address import Address
from fixtures.hosts.remote_host import Means, RemoteHost
from fixtures.hosts.remote_worker import Place, RemoteWorker
from fixtures.hosts.ssh import PARTS, packed
from kinds import Folders, Patch
from patience import PATIENCE_S
from project import Project
from samples import laid

ADDRESS = Address("host.invalid")


# Replaces fixtures/system/usable.py: the host has a device that exists only in the tests.
USABLE = """\
def the_only_device():
    return "fake0"
def check_names(device):
    pass
def check_peer(peer, device):
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
        peers = {name: means.pop(name, None) for name in ("peer", "wire_peer")}
        options = {"device": "", "port": 1, "gid_index": None, "shared": False, **peers}
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
