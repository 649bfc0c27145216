"""The user's own module and libraries in a real guest: the header shows by their marks that they were loaded."""

import shutil
import subprocess
from pathlib import Path

import pytest

from conformance.model.record import HeaderRecord
from conformance.results.records import read_results
from fixtures.guest.build import find_tool
from fixtures.guest.image import ensure_image
from fixtures.guest.recipe import recipe_for
from fixtures.system.cache import cache_directory
from fixtures.system.digests import sha256_of
from launched import run_in_guest
from patience import PATIENCE_S

pytestmark = pytest.mark.guest
MARK = b"\xab" * 20
_NOTE = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0"  # the head of a note with a build id
_SIGNED = b"~Module signature appended~\n"


def marked(content: bytes) -> bytes:
    """The same program with a build id of our own; unsigned, because its signature would be wrong now."""
    if content.endswith(_SIGNED):
        end = len(content) - len(_SIGNED)
        content = content[: end - 12 - int.from_bytes(content[end - 4 : end], "big")]
    start = content.index(_NOTE) + len(_NOTE)
    return content[:start] + MARK + content[start + len(MARK) :]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image's own driver and libraries, each with a mark: in modules/ and in prefix/."""
    place = tmp_path_factory.mktemp("own")
    image = ensure_image(recipe_for(), cache_directory(), print)
    root = place / "root"
    fsck = find_tool("mkfs.erofs").replace("mkfs.erofs", "fsck.erofs")
    subprocess.run([fsck, f"--extract={root}", "--force", str(image.root)], check=True, stdout=subprocess.DEVNULL)
    (place / "modules").mkdir()
    (driver,) = (root / "usr/lib/modules").rglob("rdma_rxe.ko")
    (place / "modules/rdma_rxe.ko").write_bytes(marked(driver.read_bytes()))
    libraries = place / "prefix/lib"
    (libraries / "libibverbs").mkdir(parents=True)
    (machine,) = {path.parent for path in (root / "usr/lib").glob("*/libibverbs.so.1")}
    for path in machine.glob("libibverbs.so.1*"):
        shutil.copy2(path, libraries / path.name, follow_symlinks=False)
    (provider,) = machine.glob("libibverbs/librxe-rdmav*.so")
    (libraries / "libibverbs" / provider.name).write_bytes(marked(provider.read_bytes()))
    shutil.rmtree(root)
    return place


@pytest.fixture(scope="module")
def header(place: Path) -> HeaderRecord:
    own = ("--modules", place / "modules", "--rdma-core", place / "prefix", "--guest-env", "COLOUR=blue", "--keep")
    done = run_in_guest(place / "out", *own, only=["dereg_mr/deregistration/of-none"])
    assert done.returncode == 0, done.stdout + done.stderr
    return read_results(place / "out").header


def test_the_module_that_was_given_is_the_one_that_was_loaded(header: HeaderRecord, place: Path) -> None:
    under_test = header["under_test"]
    assert under_test["modules"]["rdma_rxe"]["build_id"] == MARK.hex()
    assert under_test["modules"]["ib_core"]["build_id"] != MARK.hex()
    given = under_test["given"]["modules"]["files"]
    assert given == {"rdma_rxe.ko": sha256_of(place / "modules/rdma_rxe.ko")}


def test_the_libraries_that_were_given_are_the_ones_that_were_loaded(header: HeaderRecord, place: Path) -> None:
    (provider,) = (place / "prefix/lib/libibverbs").iterdir()
    assert header["under_test"]["libraries"][provider.name] == sha256_of(provider)
    assert f"lib/{provider.name}" in header["under_test"]["given"]["rdma_core"]["files"]


def test_a_module_of_ones_own_is_no_fault_of_a_case(header: HeaderRecord, place: Path) -> None:
    assert header["env"]["tainted"] != 0
    (line,) = read_results(place / "out").results
    assert line["verdict"] == "PASS"


@pytest.mark.nightly
def test_what_is_kept_starts_the_same_guest_again(header: HeaderRecord, place: Path) -> None:
    assert header["under_test"]["given"]["environment"] == {"COLOUR": "blue"}
    assert sorted(path.name for path in (place / "out/guest").iterdir()) == ["job.erofs", "start.sh"]
    subprocess.run([place / "out/guest/start.sh"], stdin=subprocess.DEVNULL, check=True, timeout=PATIENCE_S)
    said = (place / "out/guest/results").read_bytes()
    assert b'"verdict":"PASS"' in said
    assert b'"event":"exit"' in said


def in_a_shell(place: Path, out: Path, commands: str) -> str:
    """The output of a shell in the guest for these commands."""
    own = ("--modules", place / "modules", "--guest-env", "COLOUR=blue")
    done = run_in_guest(out, "--shell", *own, said=f"{commands}\nexit\n")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_shell_in_the_guest_has_the_device_and_what_was_given(place: Path, tmp_path: Path) -> None:
    said = in_a_shell(place, tmp_path / "shell", "echo answer-$((6 * 7))-$COLOUR; rdma link; ls /sys/class/net")
    assert "answer-42-blue" in said
    assert "link rxe0/1 state ACTIVE" in said
    words = said.split()
    assert {"d0", "d1", "lo"} <= set(words)
    assert not {"eth0", "ens3", "enp0s3"} & set(words)
    assert [path.name for path in (tmp_path / "shell").iterdir()] == ["console.log"]


@pytest.mark.nightly
def test_a_run_in_such_a_shell_is_one_on_a_device_of_the_host(place: Path, tmp_path: Path) -> None:
    said = in_a_shell(
        place, tmp_path / "shell", "./rdma-cts run --only dereg_mr/deregistration/of-none; echo status-$?"
    )
    assert "; no rule was violated (exit status 0)" in said
    assert "status-0" in said
