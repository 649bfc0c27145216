"""A run over the real ssh, on a guest that stands for a host: its kernel panics in a case, and it is reset.

One guest serves all of it, because making one takes long; what needs no kernel is in test_remote_host.py.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.results.records import read_results
from patience import PATIENCE_S, await_true
from ssh_guest import SshGuest, host_image, keys_in, ssh_guest, ssh_on_path, started_with

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
CHOSEN = ("--verb", "dereg_mr", "-k", "dead_keys", "--no-confirm")
LONG = "dereg_mr/dead_keys/lkey-by-kind-by-operation"  # a sweep, in which there is time for a panic


@pytest.fixture(scope="module")
def guest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshGuest]:
    folder = tmp_path_factory.mktemp("host")
    keys_in(folder)
    with ssh_guest(folder, host_image()) as found:
        yield found


def started(guest: SshGuest, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """The command, whose ssh has the guest's keys unless `options` change its configuration."""
    settings = {
        "IdentityFile": guest.folder / "user_key",
        "IdentitiesOnly": "yes",
        "UserKnownHostsFile": guest.folder / "known_hosts",
        **options,
    }
    client = ssh_on_path(guest.folder, {name: str(value) for name, value in settings.items()})
    return started_with(client, *arguments)


def said(process: subprocess.Popen[str]) -> str:
    return process.communicate(timeout=PATIENCE_S)[0]


def on_guest(guest: SshGuest, command: str) -> str:
    ssh = [str(guest.folder / "bin" / "ssh"), "-p", str(guest.port), "root@127.0.0.1", command]
    return subprocess.run(ssh, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stdout


def test_a_host_with_an_unknown_key_is_not_trusted(guest: SshGuest, tmp_path: Path) -> None:
    (tmp_path / "known").touch()
    done = started(guest, "doctor", "--host", guest.address, UserKnownHostsFile=tmp_path / "known")
    output = said(done)
    assert f"rdma-cts: {guest.address}: its host key is not known; " in output, output
    assert done.returncode == 3


def test_a_host_with_another_key_is_not_trusted(guest: SshGuest, tmp_path: Path) -> None:
    keys_in(tmp_path)
    kind, key, *_ = (tmp_path / "host_key.pub").read_text().split()
    (tmp_path / "known").write_text(f"[127.0.0.1]:{guest.port} {kind} {key}\n")
    done = started(guest, "doctor", "--host", guest.address, UserKnownHostsFile=tmp_path / "known")
    assert f"rdma-cts: {guest.address}: its host key is not the known one" in said(done)
    assert done.returncode == 3


def test_no_password_is_asked_for(guest: SshGuest, tmp_path: Path) -> None:
    keys_in(tmp_path)
    done = started(guest, "doctor", "--host", guest.address, IdentityFile=tmp_path / "user_key")
    assert f"rdma-cts: {guest.address}: cannot log in without a password (the host offers: " in said(done)
    assert done.returncode == 3


def test_a_full_disk_is_reported_and_a_host_that_has_room_has_all_that_is_needed(guest: SshGuest) -> None:
    done = started(guest, "doctor", "--host", guest.address)
    assert "Works now: On an RDMA device of" in said(done)
    on_guest(guest, "mount -t tmpfs -o size=64k small /tmp")
    done = started(guest, "doctor", "--host", guest.address)
    output = said(done)
    on_guest(guest, "umount /tmp")
    assert f"rdma-cts: {guest.address}: the suite cannot be written to /tmp/" in output
    assert "No space left on device" in output
    assert done.returncode == 3
    assert on_guest(guest, "ls /tmp; echo listed") == "listed\n"


def test_a_kernel_that_panics_in_a_case_costs_that_case(guest: SshGuest, tmp_path: Path) -> None:
    out = tmp_path / "out"
    panic = subprocess.Popen(
        [
            str(guest.folder / "bin" / "ssh"),
            "-p",
            str(guest.port),
            "root@127.0.0.1",
            "read line && echo c >/proc/sysrq-trigger",
        ],
        stdin=subprocess.PIPE,
    )
    assert panic.stdin is not None
    run = started(
        guest,
        "run",
        "--host",
        guest.address,
        *CHOSEN,
        "--out",
        str(out),
        "--console",
        guest.console,
        "--power-cycle",
        guest.reset,
        "--return-within",
        "20",
    )
    await_true(lambda: run.poll() is not None or _in_flight(out))
    panic.stdin.write(b"now\n")
    panic.stdin.close()
    output = said(run)
    panic.kill()
    panic.wait()
    recorded = read_results(out)
    verdicts = [str(line["verdict"]) for line in recorded.results]
    assert run.returncode == 1, output
    assert verdicts.count("CRASH") == 1, output
    assert set(verdicts) <= {"PASS", "UNSUPPORTED", "CRASH"}
    assert recorded.footer is not None
    assert recorded.footer["complete"] is True
    assert len(verdicts) > 1
    (crash,) = [line for line in recorded.results if line["verdict"] == "CRASH"]
    assert any("Kernel panic - not syncing: sysrq triggered crash" in line for line in crash["kernel"]["log"])
    boots = [line["boot_id"] for line in recorded.others if line["type"] == "worker"]
    assert len(set(boots)) == 2
    assert on_guest(guest, "ls /tmp; echo listed") == "listed\n"


def _in_flight(out: Path) -> bool:
    """Whether the case LONG has begun."""
    path = out / "results.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return any(record["type"] == "start" and record["case"] == LONG for record in map(json.loads, lines))
