"""Tests of what the freezing of a guest rests on: QEMU's control channel, with a thread in place of QEMU; the files of the
memory; and the session in the guest that waits for a request."""

import json
import os
import socket
import threading
from typing import Any

import pytest

from fixtures.guest import kept
from fixtures.guest.freezing import checksum, save
from fixtures.guest.qmp import NEGOTIATION, Qmp, QmpError, send
from fixtures.guest.ready import ReadySession
from fixtures.guest.request import Request, recorded_to
from patience import PATIENCE_S


def qemu_says(*messages: object) -> tuple[socket.socket, list[dict[str, Any]]]:
    """Returns a channel on which each command gets the next of these messages as a response, and the list of received
    commands."""
    ours, theirs = socket.socketpair()
    sent: list[dict[str, Any]] = []

    def play() -> None:
        with theirs:
            theirs.sendall(b'{"QMP": {}}\n')
            for response in [{"return": {}}, *messages]:
                sent.append(json.loads(theirs.recv(1 << 16)))
                for message in response if isinstance(response, list) else [response]:
                    theirs.sendall(json.dumps(message).encode() + b"\r\n")

    threading.Thread(target=play, daemon=True).start()
    return ours, sent


def migrate(control: Qmp) -> None:
    control.execute("migrate")
    control.migrated()


def migration(status: str) -> dict[str, Any]:
    return {"event": "MIGRATION", "data": {"status": status}}


def test_a_command_returns_its_value_and_earlier_events_are_kept():
    channel, sent = qemu_says(
        [{"event": "STOP"}, migration("active"), migration("completed"), {"return": {"a": 1}}],
    )
    with channel:
        control = Qmp(channel, PATIENCE_S)
        assert control.execute("migrate", uri="fd:state") == {"a": 1}
        control.migrated()
    assert [command["execute"] for command in sent] == ["qmp_capabilities", "migrate"]
    assert sent[1]["arguments"] == {"uri": "fd:state"}


@pytest.mark.parametrize(
    "responses, reason",
    [
        ([{"error": {"desc": "no such command"}}], "migrate: no such command"),
        ([[migration("failed"), {"return": {}}]], "the migration has the status failed"),
        ([[{"return": {}}]], "QEMU closed its control channel"),
        (["text"], "closed its control channel"),
    ],
)
def test_refusals_of_qemu_are_errors(responses, reason):
    channel, _ = qemu_says(*responses)
    with channel, pytest.raises(QmpError, match=reason):
        migrate(Qmp(channel, PATIENCE_S))


def test_commands_that_were_sent_in_advance_have_their_results_in_order():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        send(ours, NEGOTIATION)
        send(ours, "getfd", fdname="state")
        responses = [{"QMP": {}}, {"return": {}}, migration("completed"), {"error": {"desc": "no"}}]
        theirs.sendall(b"".join(json.dumps(response).encode() + b"\n" for response in responses))
        with pytest.raises(QmpError, match="getfd: no"):
            Qmp(ours, PATIENCE_S, [NEGOTIATION, "getfd"])


def test_a_silent_qemu_is_an_error():
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(QmpError, match="did not reply in time"):
        Qmp(ours, 0.05)


def test_the_checksum_depends_on_content_and_place_but_not_on_holes(tmp_path):
    sparse, dense = tmp_path / "sparse", tmp_path / "dense"
    content = b"x" * 100 + bytes((1 << 20) - 100) + b"y" * 70000 + bytes(5 << 16)
    dense.write_bytes(content)
    with sparse.open("wb") as file:
        file.write(b"x" * 100)
        file.seek(1 << 20)
        file.write(b"y" * 70000)
        file.truncate(len(content))
    assert checksum(sparse) == checksum(dense)
    dense.write_bytes(content[:-70000] + b"z" + content[-69999:])
    moved = tmp_path / "moved"
    moved.write_bytes(bytes(1 << 16) + content[: -(1 << 16)])
    assert len({checksum(path) for path in (sparse, dense, moved)}) == 3
    empty = tmp_path / "empty"
    empty.touch()
    assert checksum(empty) == 0


def test_a_file_in_memory_is_saved_whole_and_with_holes(tmp_path):
    content = bytes(1 << 20) + b"x" * 100 + bytes(1 << 20) + b"y"
    with open(os.memfd_create("test"), "wb", buffering=0) as file:
        file.write(content)
        save(file.fileno(), tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == content
    assert (tmp_path / "saved").stat().st_blocks * 512 < len(content) / 4


def test_a_file_is_no_longer_trusted_after_a_write_or_a_reboot_of_the_host(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("a")
    assert not kept.is_trusted(tmp_path, ["file"])
    kept.trust(tmp_path, ["file"])
    assert kept.is_trusted(tmp_path, ["file"])
    before = path.stat()
    path.write_text("b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not kept.is_trusted(tmp_path, ["file"])
    kept.trust(tmp_path, ["file"])
    (tmp_path / "boot_id").write_text("another\n")
    monkeypatch.setattr(kept, "BOOT_ID", tmp_path / "boot_id")
    assert not kept.is_trusted(tmp_path, ["file"])
    (tmp_path / "verified").write_text("{")
    assert not kept.is_trusted(tmp_path, ["file"])


# The session that waits for a request


PORT = "/dev/port"
OPTIONS = ("--rdma-alone", "--rdma-device", "rxe0")
READY = json.dumps({"cases": ["reg_mr/a", "reg_mr/b", "reg_mr/c"]}).encode() + b"\n"


def asked_for(cases: str = "", *more: str, port: str = PORT) -> Request:
    arguments = (*recorded_to(port), *OPTIONS, *more)
    return Request(arguments, files={"only": f"reg_mr/a\nreg_mr/b#x=1\n{cases}\n"})


@pytest.mark.parametrize(
    "line, asked, serves",
    [
        (READY, asked_for(), True),
        (READY, asked_for("reg_mr/b"), True),  # a sweep
        (READY, asked_for("reg_mr/b#x=2"), True),  # a point of a sweep
        (READY, asked_for("reg_mr/d"), False),
        (READY, asked_for("", "--rdma-seed", "7"), False),
        (READY, asked_for(port="/dev/other"), False),
        (b"", asked_for(), False),  # a session that has ended
        (READY[:-1], asked_for(), False),
    ],
)
def test_a_ready_session_serves_collected_cases_with_its_own_options(line, asked, serves):
    output, end = os.pipe()
    os.write(end, line)
    os.close(end)
    assert ReadySession(1, output, 0).serves(asked, PORT, OPTIONS) is serves


def test_a_ready_session_gets_the_line_of_the_request():
    received, requests = os.pipe()
    output, end = os.pipe()
    os.close(end)
    ReadySession(1, output, requests).go_on(b"line\n")
    assert os.read(received, 100) == b"line\n"
