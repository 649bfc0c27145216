"""Tests of hosts that attack the program that connects to them. A host can report a wrong device, but must not choose a
name, a size or a waiting time on this machine."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from far_host import HELLO, Far, opened
from fixtures.hosts import link, messages, protocol, remote_worker
from fixtures.hosts.address import Address
from fixtures.hosts.remote_host import Means, RemoteHost
from fixtures.hosts.remote_worker import Place, RemoteWorker
from fixtures.system import console as consoles
from kinds import Patch, rows
from patience import PATIENCE_S

ADDRESS = Address("host.invalid")
CHECKED = {
    "event": "checked",
    "device": "fake0",
    "same": {"kernel": "7.2", "fake0": {"firmware": "1"}},
    "notes": ["fake0 is also in use by the kernel's ib_ipoib (1 protection domain)"],
}
ENDED = {"event": "ended", "what": "it is over", "external": False, "kind": "kernel-died", "by": ""}
CLOSED = {"event": "closed", "stuck": ""}
ERROR = {"event": "error", "message": "no", "hint": "", "status": 3}
FACTS: dict[str, Any] = {
    "transport": "RoCE",
    "capabilities": {"ATOMIC": True},
    "endpoint": {"address": "::1", "lid": 0, "active_mtu": 5},
}


# Lines that are not messages of the agent, and the errors about them.
MALFORMED: list[tuple[dict[str, Any], str]] = [
    *((json.loads(line), said) for line, said in rows("malformed_messages")),
    ({**HELLO, "folder": "x" * 5000}, "has a text of 5,000 characters"),
    (
        {**CHECKED, "same": {str(number): "x" for number in range(2000)}},
        "has 2,000 values in one object or list",
    ),
    ({**ERROR, "message": "x" * 30_000_000}, "has a text of 30,000,000 characters"),
    ({"event": "output", "text": "x" * (2 << 20)}, "has a text of 2,097,152 characters"),
]


@pytest.mark.parametrize("message, said", MALFORMED, ids=[said for _, said in MALFORMED])
def test_malformed_messages_of_the_agent_are_refused(message, said):
    problem = messages.wrong(message)
    assert said in problem
    assert len(problem) < 300
    assert problem.isprintable()


def test_valid_messages_of_the_agent_are_accepted():
    good: list[dict[str, Any]] = [HELLO, CHECKED, ENDED, CLOSED, ERROR]
    good += [{"event": "opened", "facts": FACTS}, {"event": "output", "text": "x"}]
    good += [
        {"event": "alive", "busy": False},
        {"event": "kernel", "line": ""},
        {"event": "tail", "lines": ["x"]},
    ]
    good += [
        {"event": "answered", "value": [1]},
        {"event": "answered", "failed": "x", "refused": None, "errno": 5},
    ]
    good.append(
        {
            "event": "findings",
            "findings": [{"state": "ok", "about": "a", "text": "b", "remedy": ""}],
        },
    )
    assert [messages.wrong(message) for message in good] == [""] * len(good)


class Hostile(Far):
    """A host that sends these messages."""

    def __init__(self, folder: Path, monkeypatch: Patch) -> None:
        super().__init__(folder, monkeypatch)
        self.script, self.console = folder / "script.json", folder / "console.log"
        self.client(f"exec {sys.executable} {ROOT / 'tests/hostile_ssh.py'}")
        monkeypatch.setenv("HOSTILE", str(self.script))
        self.sends()

    def sends(self, **responses: Any) -> None:
        """Sets the messages for each request; see hostile_ssh.py."""
        self.script.write_text(
            json.dumps({"hello": [HELLO], "check": [CHECKED], "close": [CLOSED], **responses}),
        )

    def open(self, device: str = "") -> RemoteHost:
        """Opens the host and checks its device."""
        return opened(RemoteHost(ADDRESS, b"", {"device": device}, Means(1.0), lambda text: None))

    def worker(self, host: RemoteHost) -> RemoteWorker:
        return Place(host, [], self.console, link=host.first).start(["x"])


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: Patch) -> Hostile:
    return Hostile(tmp_path / "host", monkeypatch)


@pytest.mark.parametrize(
    "device, responses, said",
    [
        (
            "",
            {"check": [{**CHECKED, "device": "x/../y"}]},
            "the device 'x/../y', which is not a device's name",
        ),
        ("", {"check": [{**CHECKED, "device": "a,b"}]}, "reports the device 'a,b'"),
        ("", {"check": [{**CHECKED, "device": ".."}]}, "reports the device '..'"),
        ("fake1", {}, "reports the device 'fake0', not fake1"),
        ("", {"check": [{**ERROR, "message": "y" * 4000}]}, "2,000 characters are left out"),
        (
            "",
            {"hello": [{**HELLO, "boot_id": 1}]},
            "sent a message that no agent sends: `hello`: boot_id is 1",
        ),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_a_host_cannot_choose_device_names(hostile, device, responses, said):
    hostile.sends(**responses)
    with pytest.raises(UserError) as caught:
        hostile.open(device)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 2200
    assert caught.value.status == 3


def test_a_worker_that_sends_a_malformed_message_counts_as_killed_externally(hostile):
    hostile.sends(start=[{**ENDED, "external": 1}])
    with hostile.open() as host:
        worker = hostile.worker(host)
        assert worker.next_line(60.0) == b""
        assert worker.end().external
        assert "external is 1, not true or false" in worker.end().what
        worker.close()


@pytest.mark.parametrize("flooded", ["start", "tail", "close"])
def test_a_host_that_prints_forever_does_not_fill_the_disk_or_block_the_run(
    hostile, monkeypatch, flooded
):
    for name in ("_ANSWER_S", "_CLOSED_S"):
        monkeypatch.setattr(remote_worker, name, 0.5)
    monkeypatch.setattr(consoles, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(consoles, "_KEPT_BYTES", 1 << 18)
    hostile.sends(**{flooded: [{"event": "output", "text": "x" * 60_000, "flood": True}]})
    with hostile.open() as host:
        worker = hostile.worker(host)
        began = time.monotonic()
        assert worker.next_line(0.5) is None
        worker.console_tail()
        worker.close()
        assert time.monotonic() - began < PATIENCE_S
    assert hostile.console.stat().st_size < 2 << 20


def test_an_interrupted_program_does_not_wait_for_the_host(hostile, monkeypatch):
    monkeypatch.setattr(remote_worker, "_CLOSED_S", 2 * PATIENCE_S)
    hostile.sends(close=[{"event": "silence"}])
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), hostile.open() as host:  # noqa: PT012 the way out is what counts
        worker = hostile.worker(host)
        try:
            raise KeyboardInterrupt
        finally:
            worker.close()
    assert time.monotonic() - began < PATIENCE_S


def test_the_output_of_ssh_is_bounded(hostile):
    hostile.sends(stderr=100)
    connection = link.Link.connected(ADDRESS, b"", 60.0)
    connection.cut()
    assert len(connection._messages()) <= 1 << 16


def test_the_size_and_values_of_a_message_are_bounded():
    for content in (b"[" * 100_000, b"[" + b"0," * 5_000_000 + b"0]", b'{"event": 1e999}'):
        assert protocol.parse_line(b"s", b"s M " + content + b"\n") is None
