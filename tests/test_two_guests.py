"""Tests with two hosts over the real ssh: refused keys, a lab in which one host panics, connections between the two
hosts, and packets of a wire peer. All tests use the same two guests, because booting a guest takes long. Tests that need
no kernel are in test_remote_host.py. RDMA_CTS_TWO_GUESTS=DIR keeps the files of the runs in DIR."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.older_python import zip
from conformance.results.records import Recorded, read_written
from conformance.tables.suite import ROOT, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from fixtures.system.packages import find_program
from kinds import Folders
from launched import ended, script
from patience import PATIENCE_S, await_true
from samples import footer_of
from ssh_guest import SshGuest, free_port, host_image, keys_in, ssh_guest

KEPT = os.environ.get("RDMA_CTS_TWO_GUESTS", "")
pytestmark = [pytest.mark.guest, pytest.mark.nightly]
LONG = "dereg_mr/dead_keys/lkey-by-kind-by-operation"  # a sweep that takes long enough for a panic during the sweep
NAMES = ("left", "right")
# Cases of the data path with few points: a point with a peer takes a quarter of a second on emulated processors.
INTERRUPTED = "bind_mw/data_path/type-2-operation-by-access-by-place"
FEW_POINTS = (
    "bind_mw/data_path/type-1-unreliable-operation-by-access-by-place",
    "bind_mw/data_path/type-2-zero-based-by-place",
    "bind_mw/data_path/type-2-of-another-queue-pair",
    "bind_mw/data_path/several-packets",
    "reg_mr/data_path/unreliable-operation-by-access-by-place",
    "reg_mr/data_path/flush-by-access-by-place",
    "reg_mr/data_path/unreliable-local-operation-by-access-by-place",
)
# Tables of packets without a case that crashes the kernel.
OF_PACKETS = ("first_packets", "keys_between", "unreliable")
WIRED = "10.78.0.2"  # the address of the right guest on the network between the guests
# Creates a device on the network between the guests, and sets up ssh from root to the other guest.
_PREPARE = """\
modprobe virtio_net
ip link set eth1 up && ip address add {address}/24 dev eth1 || exit 1
rdma link add wire0 type rxe netdev eth1 || exit 1
mkdir -p /root/.ssh && cp id_ed25519 known_hosts /root/.ssh/ || exit 1
"""


@pytest.fixture(scope="module")
def guests(tmp_path_factory: Folders) -> Iterator[dict[str, SshGuest]]:
    """Two guests by name, joined by a private network. Each can reach the guest `right` by ssh."""
    folder = tmp_path_factory.mktemp("hosts")
    for name in NAMES:
        (folder / name).mkdir()
        keys_in(folder / name)
    (folder / "wired").write_text(f"{WIRED} {(folder / 'right/host_key.pub').read_text()}")
    tree = ((folder / "right/user_key", "id_ed25519"), (folder / "wired", "known_hosts"))
    image, port = host_image(), free_port()
    with ExitStack() as stack:
        facts = {}
        for number, (name, mode) in enumerate(zip(NAMES, ("listen", "connect"), strict=True), 1):
            wire = f"-netdev socket,id=wire,{mode}=127.0.0.1:{port}"
            network = (
                f"{wire} -device virtio-net-pci,netdev=wire,mac=52:54:00:77:00:0{number}".split()
            )
            prepare = _PREPARE.format(address=f"10.78.0.{number}")
            facts[name] = stack.enter_context(
                ssh_guest(folder / name, image, network=network, prepare=prepare, tree=tree),
            )
        yield facts


@pytest.fixture
def folder(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """The directory of the runs: in RDMA_CTS_TWO_GUESTS, or else in a temporary directory."""
    if not KEPT:
        return tmp_path
    folder = Path(KEPT).resolve() / str(request.node.name)
    folder.mkdir(parents=True)
    return folder


def write_ssh(guests: dict[str, SshGuest], **options: Path) -> Path:
    """Writes an ssh that uses no file of this user, and returns its folder. Its configuration has the keys of all guests
    and of their users, and `options` change it."""
    folder = next(iter(guests.values())).folder.parent
    (folder / "known_hosts").write_text(
        "".join((guest.folder / "known_hosts").read_text() for guest in guests.values()),
    )
    config = {"IdentitiesOnly": "yes", "UserKnownHostsFile": folder / "known_hosts", **options}
    lines = [f"{name} {value}\n" for name, value in config.items()]
    if "IdentityFile" not in options:
        lines += [f"IdentityFile {guest.folder / 'user_key'}\n" for guest in guests.values()]
    (folder / "config").write_text("".join(lines))
    script(
        folder / "bin/ssh",
        f'exec {find_program("ssh")} -F {shlex.quote(str(folder / "config"))} "$@"',
    )
    return folder / "bin"


def started(guests: dict[str, SshGuest], *arguments: str, **options: Path) -> subprocess.Popen[str]:
    """Starts the command with an ssh of write_ssh. The input of the command is empty, and its output is a pipe."""
    path = os.pathsep.join([str(write_ssh(guests, **options)), os.environ["PATH"]])
    how: Any = {
        "env": {**os.environ, "PATH": path, "RDMA_CTS_PYTHON": sys.executable},
        "text": True,
    }
    streams: Any = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
    }
    return subprocess.Popen(["./rdma-cts", *arguments], cwd=ROOT, **how, **streams)


def on(guest: SshGuest, command: str) -> list[str]:
    """Returns the ssh command line that runs a command on a guest."""
    return [
        str(guest.folder.parent / "bin" / "ssh"),
        "-p",
        str(guest.port),
        "root@127.0.0.1",
        command,
    ]


def output_on(guest: SshGuest, command: str) -> str:
    return ended(*on(guest, command), stdin=subprocess.DEVNULL).stdout


def said(guests: dict[str, SshGuest], *arguments: object, **options: Path) -> tuple[str, int]:
    run = started(guests, *map(str, arguments), **options)
    return output_of(run), run.returncode


def output_of(process: subprocess.Popen[str]) -> str:
    """Waits for the command and returns its whole output, which pytest prints if the test fails."""
    began = time.monotonic()
    output = process.communicate(timeout=PATIENCE_S)[0]
    print(output, f"status {process.returncode} after another {time.monotonic() - began:.1f} s")
    return output


@pytest.mark.parametrize(
    "option, file, why",
    [
        ("UserKnownHostsFile", "none", "its host key is not known; "),
        ("UserKnownHostsFile", "others", "its host key is not the known key"),
        ("IdentityFile", "user_key", "cannot log in without a password (the host offers: "),
    ],
)
def test_a_host_with_another_key_is_not_trusted_and_no_password_is_asked_for(
    guests, tmp_path, option, file, why
):
    guest = guests["left"]
    keys_in(tmp_path)
    kind, key, *_ = (tmp_path / "host_key.pub").read_text().split()
    (tmp_path / "none").touch()
    (tmp_path / "others").write_text(f"[127.0.0.1]:{guest.port} {kind} {key}\n")
    output, status = said(guests, "doctor", "--host", guest.address, **{option: tmp_path / file})
    assert f"rdma-cts: {guest.address}: {why}" in output
    assert status == 3


def test_doctor_reports_a_full_disk_of_the_host_and_leaves_no_files_there(guests):
    guest = guests["left"]
    assert "Works now: On an RDMA device of" in said(guests, "doctor", "--host", guest.address)[0]
    output_on(guest, "mount -t tmpfs -o size=64k small /tmp")
    output, status = said(guests, "doctor", "--host", guest.address)
    output_on(guest, "umount /tmp")
    assert f"rdma-cts: {guest.address}: the suite cannot be written to /tmp/" in output
    assert "No space left on device" in output
    assert status == 3
    assert output_on(guest, "ls /tmp; echo listed") == "listed\n"


def test_requests_from_another_host_have_the_verdicts_of_loopback(guests, folder):
    """A device of the left guest is under test, and a device of the right guest posts the requests."""
    of = f"run --host {guests['left'].address} --device wire0 --no-confirm --only {' --only '.join(FEW_POINTS)}"
    for name, more in (("loopback", ()), ("peer", ("--peer", f"root@{WIRED}:wire0"))):
        said(guests, *of.split(), *more, "--out", folder / name)
    outs = (folder / "loopback", folder / "peer")
    loopback, peer = map(read_written, outs)
    assert peer.header["device"]["peer"] == f"root@{WIRED}:wire0"
    assert verdicts(peer) == verdicts(loopback)
    assert "BROKEN" not in verdicts(peer).values()
    assert said(guests, "compare", *outs)[1] == 0


def test_a_reset_of_the_peers_host_affects_only_the_case_in_flight(guests, folder):
    """The host of the peer is reset and boots again; no other case is affected."""
    out = folder / "out"
    of = (
        f"run --host {guests['left'].address} --device wire0 --peer root@{WIRED}:wire0 --no-confirm"
    )
    few = [word for case in (INTERRUPTED, *FEW_POINTS[:3]) for word in ("--only", case)]
    run = started(guests, *of.split(), *few, "--out", str(out))
    await_true(lambda: run.poll() is not None or in_flight(out, INTERRUPTED))
    subprocess.run(guests["right"].reset, shell=True, check=True)
    output = output_of(run)
    verdicts_by_case = verdicts(read_written(out))
    assert [id_ for id_, verdict in verdicts_by_case.items() if verdict == "BROKEN"] == [
        INTERRUPTED
    ], output
    assert "the peer is lost: " in output
    assert set(verdicts_by_case.values()) == {"PASS", "FAIL", "BROKEN"}
    assert boots(read_written(out)) == 1


@pytest.fixture
def sender(guests: dict[str, SshGuest]) -> Iterator[SshGuest]:
    """The right guest without an RDMA device, whose driver would have UDP port 4791."""
    right = guests["right"]
    write_ssh(guests)
    output_on(right, "rdma link delete wire0; rdma link delete rxe0; rmmod rdma_rxe")
    yield right
    output_on(
        right, "rdma link add rxe0 type rxe netdev d0; rdma link add wire0 type rxe netdev eth1"
    )


def wired(guests: dict[str, SshGuest], out: Path, cases: Iterable[str]) -> list[str]:
    """The arguments of a run of cases on the left guest with the wire peer on the right one."""
    of = f"run --host {guests['left'].address} --device wire0 --wire-peer root@{WIRED}:eth1"
    return [*of.split(), "--no-confirm", "--out", str(out), *named(cases)]


def of_packets(tables: Iterable[str]) -> list[str]:
    begins = tuple(f"wire/{name}/" for name in tables)
    cases = of_tier(load_suite().cases, DEFAULT)
    return [case.id for case in cases if case.id.startswith(begins)]


def named(cases: Iterable[str]) -> list[str]:
    return [word for case in cases for word in ("--only", case)]


def test_packets_from_another_host_have_the_verdicts_of_a_guest(guests, sender, folder):
    cases = of_packets(OF_PACKETS)
    output, _ = said(guests, *wired(guests, folder / "hosts", cases))
    said(guests, "run", "--guest", "--no-confirm", "--out", folder / "guest", *named(cases))
    hosts, guest = (read_written(folder / name) for name in ("hosts", "guest"))
    assert verdicts(hosts) == verdicts(guest), output
    assert set(verdicts(hosts).values()) == {"PASS", "FAIL"}


def lab_of(guests: dict[str, SshGuest], folder: Path) -> Path:
    path = folder / "lab.yaml"
    same = {"group": "rxe", "device": "rxe0"}
    hosts = [
        {
            **same,
            "name": name,
            "host": guest.address,
            "power_cycle": guest.reset,
            "console": guest.console,
        }
        for name, guest in guests.items()
    ]
    path.write_text(yaml.safe_dump({"groups": {"rxe": {"return_within": 20}}, "hosts": hosts}))
    return path


def verdicts(run: Recorded) -> dict[str, str]:
    return {str(line["case"]): str(line["verdict"]) for line in run.results}


def boots(run: Recorded) -> int:
    return len({line["boot_id"] for line in run.others if line["type"] == "worker"})


def test_a_lab_runs_on_both_hosts_at_once_and_no_node_differs(guests, folder):
    out = folder / "out"
    of = ("--verb", "reg_mr", "-k", "access_flags", "--out", out)
    output, _ = said(guests, "run", "--lab", lab_of(guests, folder), *of)
    first_run, right = (read_written(out / name) for name in NAMES)
    assert footer_of(first_run)["complete"] is True, output
    assert verdicts(first_run) == verdicts(right)
    assert len(verdicts(first_run)) > 10
    page = (out / "lab.html").read_text()
    assert "Nothing." in page
    assert "2 nodes, 1 group, no node differs" in output
    for run_there in (
        first_run,
        right,
    ):  # each violation was repeated on its guest, with the same result
        failed = list(verdicts(run_there).values()).count("FAIL")
        assert footer_of(run_there)["confirmation"] == {
            "confirmed": failed,
            "not_confirmed": 0,
            "not_tried": 0,
        }
    overlap = [started_and_ended(node) for node in (first_run, right)]
    # The two runs overlap in time.
    assert max(begin for begin, _ in overlap) < min(end for _, end in overlap)


def started_and_ended(run: Recorded) -> tuple[float, float]:
    begin = datetime.fromisoformat(str(run.header["started"])).timestamp()
    return begin, begin + float(footer_of(run)["duration_s"])


def test_a_panic_of_one_host_affects_one_case_there_and_nothing_elsewhere(guests, folder):
    out, victim = folder / "out", guests["right"]
    of = f"--verb dereg_mr -k dead_keys --no-confirm --out {out}"
    run = started(guests, "run", "--lab", str(lab_of(guests, folder)), *of.split())
    panic = subprocess.Popen(
        on(victim, "read line && echo c >/proc/sysrq-trigger"),
        stdin=subprocess.PIPE,
    )
    assert panic.stdin is not None
    await_true(lambda: run.poll() is not None or in_flight(out / "right"))
    panic.stdin.write(b"now\n")
    panic.stdin.close()
    output = output_of(run)
    panic.kill()
    panic.wait()
    first_run, right = (read_written(out / name) for name in NAMES)
    assert run.returncode == 1, output
    for node in (first_run, right):
        assert footer_of(node)["complete"] is True
    (crashed,) = [line for line in right.results if line["verdict"] == "CRASH"]
    assert any(
        "Kernel panic - not syncing: sysrq triggered crash" in line
        for line in crashed["kernel"]["log"]
    )
    assert (boots(first_run), boots(right)) == (1, 2)
    assert "CRASH" not in verdicts(first_run).values()
    assert {**verdicts(right), crashed["case"]: verdicts(first_run)[crashed["case"]]} == verdicts(
        first_run
    )
    assert "CRASH" in (out / "lab.html").read_text().partition('id="rules"')[0]
    assert f"{crashed['rules'][0]}: " in output
    assert "CRASH (right): no majority" in output
    assert output_on(victim, "ls /tmp; echo listed") == "listed\n"


def test_a_lab_that_is_killed_is_resumed_as_a_whole(guests, folder):
    out = folder / "out"
    chosen = ("--verb", "dereg_mr", "-k", "dead_keys", "--no-confirm")
    run = started(guests, "run", "--lab", str(lab_of(guests, folder)), *chosen, "--out", str(out))
    await_true(lambda: run.poll() is not None or all(in_flight(out / name) for name in NAMES))
    run.kill()
    run.communicate(timeout=PATIENCE_S)
    before = [verdicts(read_written(out / name)) for name in NAMES]
    output, status = said(guests, "run", "--resume", out)
    assert status == 0, output
    for name, earlier in zip(NAMES, before, strict=True):
        run_there = read_written(out / name)
        assert footer_of(run_there)["complete"] is True
        assert earlier.items() <= verdicts(run_there).items()
    assert "no node differs" in output
    output, status = said(guests, "run", "--resume", out)  # without a connection to a host
    assert status == 0
    assert output.count("is complete") == len(NAMES)
    assert "connected" not in output


def in_flight(out: Path, case: str = LONG) -> bool:
    path = out / "results.jsonl"
    if path.exists():
        lines = path.read_bytes().split(b"\n")[:-1]
    else:
        lines = []
    return any(
        record["type"] == "start" and record["case"] == case for record in map(json.loads, lines)
    )
