"""A process in place of ssh and of the agent on another host."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT
from fixtures.hosts import peer
from fixtures.hosts.remote_host import RemoteHost
from fixtures.hosts.ssh import PEER_PARTS, packed
from kinds import Patch
from launched import script
from patience import await_true, is_running

FAKE = """\
import os, time
from conformance.errors import UserError
class Requesters:
    def __init__(self, name):
        if name != "fake0":
            raise UserError(f"no RDMA device {name!r}; this host has none", status=4)
    def facts(self):
        return {"transport": "RoCE", "capabilities": {}, "endpoint": {"address": "::1", "lid": 7, "active_mtu": 4}}
    def answer(self, call, arguments):
        while call == "hang" and not os.path.exists(os.environ["TMPDIR"] + "/answer"):
            time.sleep(0.01)
        return {"value": [call, arguments]}
"""


# The first message of an agent.
HELLO = {
    "event": "hello",
    "boot_id": "boot-1",
    "machine": "x86_64",
    "python": "3.13.5",
    "folder": "/tmp/rdma-cts-1",
}


class Far:
    """Acts as the other host: has its temporary directories, and local processes that replace ssh."""

    def __init__(self, folder: Path, monkeypatch: Patch) -> None:
        self.folder = folder
        self.tmp = folder / "tmp"
        for place in (self.tmp, folder / "pids"):
            place.mkdir(parents=True)
        self.client(f'exec {sys.executable} {ROOT / "tests/stand_in_ssh.py"} "$@"')
        monkeypatch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        monkeypatch.setenv("TMPDIR", str(self.tmp))
        monkeypatch.setenv("STAND_IN_PIDS", str(folder / "pids"))

    def client(self, text: str) -> None:
        """Replaces ssh by this shell script."""
        script(self.folder / "bin" / "ssh", text)

    def pids(self) -> list[int]:
        """Returns the ids of the running processes that replace ssh."""
        numbers = [int(path.name) for path in (self.folder / "pids").iterdir()]
        return [pid for pid in numbers if is_running(pid)]

    def cut(self) -> None:
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)

    def left(self) -> list[str]:
        """Returns the names of the directories that connections have made on the host and not removed."""
        return sorted(path.name for path in self.tmp.glob("rdma-cts-*"))


def opened(host: RemoteHost) -> RemoteHost:
    """Opens a host; if that fails, removes everything from the host, as the context manager does."""
    try:
        host.open()
    except BaseException:
        host.__exit__()
        raise
    return host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: Patch) -> Iterator[Far]:
    far_host = Far(tmp_path / "far", monkeypatch)
    (tmp_path / "fake.py").write_text(FAKE)
    name = "fixtures/hosts/requester.py"
    tree = [
        *((ROOT / part, part) for part in PEER_PARTS if part != name),
        (tmp_path / "fake.py", name),
    ]
    monkeypatch.setattr(peer, "packed", lambda _: packed(tree))
    yield far_host
    await_true(lambda: not far_host.left())
