"""Tests of a user's own module and libraries in a guest: the run's header has the build ids and hashes of the files
that were loaded. A resumed guest loads both; at night, its results are compared with those of a booted guest."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conformance.results.records import Recorded, read_written
from fixtures.guest.build import find_tool
from fixtures.guest.image import ensure_image
from fixtures.guest.recipe import recipe_for
from fixtures.system.cache import cache_directory
from fixtures.system.digests import sha256_of
from kinds import Folders
from launched import run_in_guest
from patience import PATIENCE_S
from samples import laid

pytestmark = pytest.mark.guest
MARK = b"\xab" * 20
_NOTE = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"  # the beginning of a note with a build id
_SIGNED = b"~Module signature appended~\n"
FAILING_POINT = "reg_mr/rights_space/local#access=LOCAL_WRITE+ON_DEMAND,op=RECV"
CHOSEN = ("dealloc_mw/deallocation/key-ends-for-rdma-write", FAILING_POINT)


def marked(content: bytes) -> bytes:
    """Returns the file with a build id of the tests, and without the signature, which would no longer be valid."""
    if content.endswith(_SIGNED):
        end = len(content) - len(_SIGNED)
        content = content[: end - 12 - int.from_bytes(content[end - 4 : end], "big")]
    start = content.index(_NOTE) + len(_NOTE)
    return content[:start] + MARK + content[start + len(MARK) :]


@pytest.fixture(scope="module")
def place(tmp_path_factory: Folders) -> Path:
    """The driver of the image (in modules/) and its libraries (in prefix/). Driver and provider have the id MARK."""
    place = tmp_path_factory.mktemp("own")
    image = ensure_image(recipe_for(), cache_directory(), print)
    root = place / "root"
    fsck = find_tool("mkfs.erofs").replace("mkfs.erofs", "fsck.erofs")
    subprocess.run(
        [fsck, f"--extract={root}", "--force", str(image.root)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (driver,) = (root / "usr/lib/modules").rglob("rdma_rxe.ko")
    (machine,) = {path.parent for path in (root / "usr/lib").glob("*/libibverbs.so.1")}
    (provider,) = machine.glob("libibverbs/librxe-rdmav*.so")
    changed = {"modules/rdma_rxe.ko": driver, f"prefix/lib/libibverbs/{provider.name}": provider}
    laid(place, {name: marked(path.read_bytes()) for name, path in changed.items()})
    for path in machine.glob("libibverbs.so.1*"):
        shutil.copy2(path, place / "prefix/lib" / path.name, follow_symlinks=False)
    shutil.rmtree(root)
    return place


def own(place: Path) -> tuple[str | Path, ...]:
    return ("--modules", place / "modules", "--rdma-core", place / "prefix")


@pytest.fixture(scope="module")
def resumed(place: Path) -> Recorded:
    """Runs a row, and a point of a sweep that fails, in a resumed guest with these builds."""
    return run_of(place / "resumed", *own(place))


@pytest.fixture(scope="module")
def booted(place: Path) -> Recorded:
    """Runs the same cases in a guest that is booted with these builds."""
    more = ("--guest-env", "COLOUR=blue", "--keep")
    return run_of(place / "out", *own(place), *more, RDMA_CTS_TEMPLATES="off")


def run_of(out: Path, *options: str | Path, **environment: str) -> Recorded:
    done = run_in_guest(out, "--guests", "1", "--no-confirm", *options, only=CHOSEN, **environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "booting the guest instead" not in done.stdout + done.stderr
    return read_written(out)


def test_the_given_module_was_loaded(resumed, place):
    under_test = resumed.header["under_test"]
    assert under_test["modules"]["rdma_rxe"]["build_id"] == MARK.hex()
    assert under_test["modules"]["ib_core"]["build_id"] != MARK.hex()
    modules = under_test["given"]["modules"]["files"]
    assert modules == {"rdma_rxe.ko": sha256_of(place / "modules/rdma_rxe.ko")}


def test_the_given_libraries_were_loaded(resumed, place):
    (provider,) = (place / "prefix/lib/libibverbs").iterdir()
    under_test = resumed.header["under_test"]
    assert under_test["libraries"][provider.name] == sha256_of(provider)
    assert f"lib/{provider.name}" in under_test["given"]["rdma_core"]["files"]


def verdicts(recorded: Recorded) -> dict[str, tuple[str, str]]:
    return {line["case"]: (line["verdict"], line["reason"]) for line in recorded.results}


def test_the_taint_by_an_unsigned_module_fails_no_case(resumed):
    assert resumed.header["env"]["tainted"] != 0
    assert [verdicts(resumed)[case][0] for case in CHOSEN] == ["PASS", "FAIL"]


def others(recorded: Recorded) -> dict[str, object]:
    """Returns the build ids and hashes of the kernel and of the builds whose build id these tests do not change."""
    under_test = recorded.header["under_test"]
    builds = {**under_test["modules"], **under_test["libraries"]}
    return {
        "kernel": under_test["kernel"],
        **{name: mark for name, mark in builds.items() if "rxe" not in name},
    }


@pytest.mark.nightly
@pytest.mark.parametrize("options", [(), ("--deadline", "100")])
def test_resumed_guests_have_the_results_of_a_booted_guest(options, booted, resumed, tmp_path):
    """The booted guest is compared with a resumed guest with the same builds, and with a guest without them, once with
    the default deadline and once with another. The builds are those of the image, except for the build id."""
    for results in (resumed, run_of(tmp_path / "out", *options)):
        assert verdicts(results) == verdicts(booted)
        assert results.header["planned"] == booted.header["planned"]
        assert others(results) == others(booted)


@pytest.mark.nightly
def test_a_kept_guest_can_be_started_again(booted, place):
    assert booted.header["under_test"]["given"]["environment"] == {"COLOUR": "blue"}
    assert sorted(path.name for path in (place / "out/guest").iterdir()) == [
        "job.erofs",
        "start.sh",
    ]
    subprocess.run(
        [place / "out/guest/start.sh"],
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=PATIENCE_S,
    )
    said = (place / "out/guest/results").read_bytes()
    assert b'"verdict":"PASS"' in said
    assert b'"event":"exit"' in said


REPORT = """
import json, os, pathlib, resource
from pyverbs.device import Context, get_device_list
pathlib.Path("kept").write_text("writable")
print("REPORT", json.dumps({
    "devices": sorted(device.name.decode() for device in get_device_list()),
    "nodes": sorted(os.listdir("/dev/infiniband")),
    "caps": Context(name="rxe0").query_device().max_mr > 0,
    "word": os.environ["WORD"], "home": os.environ["HOME"], "cwd": os.getcwd(),
    "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] == resource.RLIM_INFINITY,
    "huge": [line.split()[1] for line in open("/proc/meminfo") if line.startswith("HugePages_Free")],
    "persistent": [os.path.getsize(os.environ["RDMA_CTS_PMEM"]), open("/sys/bus/dax/devices/dax0.0/align").read()],
    "gid": open("/sys/class/infiniband/rxe0/ports/1/gids/1").read().strip(),
    "interfaces": sorted(os.listdir("/sys/class/net")),
    "module": pathlib.Path("/sys/module/rdma_rxe/notes/.note.gnu.build-id").read_bytes()[-20:].hex(),
}))
"""


def in_a_shell(place: Path, out: Path, commands: str, *options: str | Path) -> str:
    """Runs these commands in a shell in the guest; returns the output."""
    done = run_in_guest(
        out,
        "--shell",
        "--modules",
        place / "modules",
        *options,
        said=f"{commands}\nexit\n",
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shell_in_the_guest_has_the_devices_and_the_given_options(place, tmp_path):
    word = 'it\'s "$quoted"'
    laid(tmp_path, {"overlay/opt/report.py": REPORT})
    options = (
        "--guest-env",
        f"WORD={word}",
        "--guest-env",
        "RDMA_CTS_DEVICES=2",
        "--overlay",
        tmp_path / "overlay",
    )
    said = in_a_shell(
        place,
        tmp_path / "shell",
        "echo answer-$((6 * 7)); python3 /opt/report.py; rdma link",
        *options,
    )
    assert "answer-42" in said
    assert "link rxe0/1 state ACTIVE" in said
    (report,) = (line for line in said.splitlines() if line.startswith("REPORT "))
    assert json.loads(report.removeprefix("REPORT ")) == {
        "devices": ["rxe0", "rxe1"],
        "nodes": ["uverbs0", "uverbs1"],
        "caps": True,
        "word": word,
        "home": "/root",
        "cwd": "/suite",
        "memlock": True,
        "huge": ["16"],
        "persistent": [0, "4096\n"],
        "gid": "0000:0000:0000:0000:0000:ffff:0a4d:0001",
        "interfaces": ["d0", "d1", "d2", "d3", "lo"],
        "module": MARK.hex(),
    }
    assert [path.name for path in (tmp_path / "shell").iterdir()] == ["console.log"]


@pytest.mark.nightly
def test_a_run_in_a_shell_of_the_guest_is_a_run_on_a_device_of_a_host(place, tmp_path):
    said = in_a_shell(
        place,
        tmp_path / "shell",
        "./rdma-cts run --only dereg_mr/deregistration/of-none; echo status-$?",
    )
    assert "; no rule was violated (exit status 0)" in said
    assert "status-0" in said


@pytest.mark.nightly
def test_the_network_of_the_guest_loses_packets_in_both_directions_and_cases_pass(place, tmp_path):
    """The cases have hundreds of packets of reliable connections, and pass on Soft-RoCE."""
    shown = "tc -s qdisc show dev d0; ip netns exec rdma-cts-wire tc -s qdisc show dev d1"
    said = in_a_shell(
        place,
        tmp_path / "shell",
        f"./rdma-cts run --rule REG-20 -k @wire --wire-losses 20; echo status-$?; {shown}",
    )
    assert "status-0" in said
    dropped = re.findall(r"qdisc .*?netem.*?dropped (\d+)", said, re.DOTALL)
    assert len(dropped) == 2
    assert all(map(int, dropped))
