"""Tests of the cache of guest images, and of images with added packages; a stand-in replaces the build."""

from __future__ import annotations

import dataclasses
import errno
import fcntl
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import launched
from conformance.errors import UserError
from conformance.run_options import RunOptions
from fixtures.guest import added, build, image, privileges
from fixtures.guest.build import FILES, guest_system
from fixtures.guest.image import Image, ensure_image, renew_image
from fixtures.guest.kept import IMAGES, MANIFEST
from fixtures.guest.recipe import STACKS, Recipe, recipe_for
from fixtures.system import packages
from fixtures.targets.guests import Guests
from kinds import Patch
from launched import killed_after
from patience import PATIENCE_S, await_true, command_lines
from samples import flip, laid, user_error


@dataclasses.dataclass
class FakeBuild:
    """Replaces the build: writes three files, writes `said` to the log, counts its calls, and can fail."""

    count: int = 0
    failure: Exception | None = None
    said: str = ""
    content: bytes = b"root"

    def __call__(
        self,
        recipe: Recipe,
        place: Path,
        log: Path,
        progress: Callable[[str], None],
        native: object = None,
    ) -> str:
        self.count += 1
        (place / "vmlinuz").write_bytes(b"kernel")
        log.write_text(self.said)
        if self.failure:
            raise self.failure
        laid(place, {"initrd": b"initrd", "root.erofs": recipe.suite.encode() + self.content})
        return "7.0-test"


@pytest.fixture
def fake_build(monkeypatch: Patch) -> FakeBuild:
    fake = FakeBuild()
    monkeypatch.setattr(image, "build", fake)
    return fake


def manifest_with(**changes: Any) -> Callable[[Path], object]:
    return lambda path: path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    "name, damage, output",
    [
        *((name, flip, "damaged") for name in FILES),
        *((name, Path.unlink, "damaged") for name in (*FILES, MANIFEST)),
        *((name, lambda path: os.truncate(path, 3), "damaged") for name in (*FILES, MANIFEST)),
        (MANIFEST, lambda path: path.write_text('{"files": 7}'), "damaged"),
        (MANIFEST, manifest_with(files={}), "lists different files"),
        (MANIFEST, manifest_with(digest="0" * 64), "belongs to a different image"),
        (MANIFEST, manifest_with(kernel_version=7), "belongs to a different image"),
    ],
)
def test_a_damaged_or_foreign_image_is_detected_and_built_again(
    tmp_path, fake_build, name, damage, output
):
    damage(ensure_image(Recipe(), tmp_path, print).root.with_name(name))
    said: list[str] = []
    image_here = ensure_image(Recipe(), tmp_path, said.append)
    assert fake_build.count == 2
    assert output in said[0]
    assert image.damage_of(image_here.root.parent, Recipe().digest()) is None


@pytest.mark.parametrize("kind", ["file", "link", "broken link"])
def test_a_file_or_link_at_the_path_of_an_image_is_replaced(tmp_path, fake_build, kind):
    folder, elsewhere = image.image_folder(Recipe(), tmp_path), tmp_path / "elsewhere"
    folder.parent.mkdir()
    if kind == "file":
        folder.write_text("")
    else:
        folder.symlink_to(elsewhere)
    if kind == "link":
        laid(elsewhere, {"kept": ""})
    assert ensure_image(Recipe(), tmp_path, print).root.is_file()
    assert folder.is_dir()
    assert not folder.is_symlink()
    assert kind != "link" or (elsewhere / "kept").exists()


EXPIRED = "E: Release file for http://mirror.example/debian/dists/forky/InRelease is expired (invalid since 3d)."


def test_expired_lists_are_used_only_if_apt_reports_that_they_have_expired(tmp_path, monkeypatch):
    tried: list[tuple[str, ...]] = []

    def run(command: Sequence[str], log: Path, *_: object) -> int:
        tried.append(tuple(command))
        log.write_text(EXPIRED if len(tried) == 1 else "")
        if len(tried) == 1:
            return 1
        return 0

    monkeypatch.setattr(build, "run_logged", run)
    said: list[str] = []
    assert guest_system(recipe_for()).make(tmp_path / "root", tmp_path / "log", said.append)
    assert ["Check-Valid-Until" in " ".join(command) for command in tried] == [False, True]
    assert "forky on this mirror have expired" in said[0]


def test_an_interrupted_build_leaves_no_temporary_file(tmp_path, monkeypatch):
    made: list[str] = []

    def run(command: Sequence[str], *_: object) -> int:
        made.append(launched.ended(*command[:2], "mktemp", "-d").stdout.strip())
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "run_logged", run)
    monkeypatch.setattr(build, "find_tool", lambda name: name)
    with pytest.raises(KeyboardInterrupt):
        guest_system(recipe_for()).make(tmp_path / "root", tmp_path / "log", print)
    assert made[0].startswith(str(tmp_path))
    assert not any(tmp_path.iterdir())


def test_an_image_of_expired_lists_is_recorded_or_refused(tmp_path, fake_build, monkeypatch):
    fake_build.said = EXPIRED
    monkeypatch.setattr(packages, "ensure_tools", lambda *_, **__: "")
    monkeypatch.setenv("RDMA_CTS_CACHE", str(tmp_path))
    named = Guests(RunOptions(guest=True), tmp_path, print)  # this builds the image
    assert named.given["expired"] == ["forky"]
    with user_error("made from package lists that have expired: forky", status=3) as refused:
        Guests(RunOptions(guest=True, strict_packages=True), tmp_path, print)
    assert "RDMA_CTS_MIRROR" in (refused.value.hint or "")


def test_a_build_that_is_killed_leaves_no_mount_and_no_process(tmp_path):
    """The building program is killed after its command has mounted a file system."""
    (tmp_path / "place").mkdir()
    script = f"mount -t tmpfs none {tmp_path}/place && echo mounted && exec sleep 1000.125"
    command = [*privileges.prefix(), "sh", "-c", script]
    with killed_after(
        b"mounted\n",
        "from pathlib import Path; from fixtures.guest.build import run_logged;"
        f"run_logged({command!r}, Path({str(tmp_path / 'log')!r}), print, {{'mounted': 'mounted'}})",
    ):
        pass
    await_true(
        lambda: not any("1000.125" in word for words in command_lines().values() for word in words),
    )
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def test_a_second_run_waits_for_the_first_to_build(tmp_path, fake_build):
    waiting = threading.Event()
    (tmp_path / "images").mkdir()
    with (tmp_path / "image-forky.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # the image of another stack is built meanwhile
        ensure_image(STACKS["trixie"], tmp_path, print)
        second = threading.Thread(
            target=ensure_image,
            args=(Recipe(), tmp_path, lambda _: waiting.set()),
        )
        second.start()
        assert waiting.wait(PATIENCE_S)
        assert fake_build.count == 1
    second.join(PATIENCE_S)
    assert fake_build.count == 2


def test_the_files_of_a_killed_build_are_removed(tmp_path, fake_build):
    leftover = laid(tmp_path / "images" / "building-forky+killed", {})
    ensure_image(Recipe(), tmp_path, print)
    assert not leftover.exists()


FULL = "not enough disk space"


@pytest.mark.parametrize(
    "number, message",
    [(errno.ENOSPC, FULL), (errno.EDQUOT, FULL), (errno.EIO, "Input/output error")],
)
def test_a_build_that_fails_is_reported_and_leaves_nothing(tmp_path, fake_build, number, message):
    fake_build.failure = OSError(number, os.strerror(number))
    with user_error(message, status=3) as caught:
        ensure_image(Recipe(), tmp_path, print)
    assert caught.value.log == str(tmp_path / "build-forky.log")
    assert not list((tmp_path / "images").iterdir())


def test_old_images_of_a_stack_are_removed_except_the_latest_and_those_in_use(tmp_path, fake_build):
    using = ensure_image(Recipe(layout=9), tmp_path, print)
    os.utime(using.root.parent, (0, 0))
    for number in range(1, 5):
        place = ensure_image(Recipe(layout=number), tmp_path, print).root.parent
        os.utime(place, (number, number))
    assert sorted(path.stat().st_mtime for path in (tmp_path / "images").iterdir()) == [0, 3, 4]


def aged(tmp_path: Path, days: float) -> Image:
    """Makes the image appear to have been built this many days ago."""
    image = ensure_image(Recipe(), tmp_path, print)
    then = time.time() - days * 86_400
    os.utime(image.root.with_name("manifest.json"), (then, then))
    if image.in_use:
        image.in_use.close()
    return image


def test_an_old_image_is_renewed_with_the_current_packages(tmp_path, fake_build):
    old = aged(tmp_path, days=3)
    renew_image(Recipe(), tmp_path, 4, print)
    assert fake_build.count == 1
    fake_build.content = b"newer"
    renew_image(Recipe(), tmp_path, 2, print)
    new = ensure_image(Recipe(), tmp_path, print)
    assert (new.root, new.digest) == (old.root, old.digest)
    assert new.content != old.content
    assert [path.name for path in (tmp_path / "images").iterdir()] == [new.root.parent.name]


def test_an_image_that_cannot_be_renewed_is_kept(tmp_path, fake_build):
    old = aged(tmp_path, days=3)
    fake_build.failure = UserError("no network", status=3)
    with pytest.raises(UserError, match="no network"):
        renew_image(Recipe(), tmp_path, 2, print)
    assert ensure_image(Recipe(), tmp_path, print) == old


@pytest.fixture
def installed(fake_build: FakeBuild, monkeypatch: Patch) -> list[Sequence[str]]:
    """Replaces the package manager, and returns the packages of each addition."""
    calls: list[Sequence[str]] = []

    def add(recipe: Recipe, base: Path, packages: Sequence[str], place: Path, *_: object) -> None:
        calls.append(packages)
        for name in FILES:
            (place / name).write_bytes((base / name).read_bytes() + b"+")

    monkeypatch.setattr(image, "build_added", add)
    return calls


def test_packages_are_added_to_a_copy_once(tmp_path, installed):
    plain = ensure_image(Recipe(), tmp_path, print)
    first = ensure_image(Recipe(), tmp_path, print, ("strace", "gdb"))
    assert ensure_image(Recipe(), tmp_path, print, ("gdb", "strace")) == first
    assert installed == [("strace", "gdb")]
    assert first.root.read_bytes() == plain.root.read_bytes() + b"+" == b"forkyroot+"
    assert (first.kernel_version, first.base, plain.base) == (
        "7.0-test",
        plain.digest,
        Recipe().digest(),
    )
    assert first.digest not in (
        plain.digest,
        ensure_image(Recipe(), tmp_path, print, ("gdb",)).digest,
    )


def test_images_with_packages_do_not_displace_images_without(tmp_path, installed):
    plain = ensure_image(Recipe(), tmp_path, print).root
    for name in ("one", "two", "three", "four"):
        ensure_image(Recipe(), tmp_path, print, (name,))
    assert plain.exists()
    assert len(list((tmp_path / "images").glob("forky-with-*"))) == IMAGES.most


@pytest.mark.parametrize(
    "log, status, message",
    [
        ("E: Unable to locate package gbd\n", 2, "the Debian suite 'forky' has no package 'gbd'"),
        ("E: Package 'kmod-x' has no installation candidate\n", 2, "has no package 'kmod-x'"),
        ("E: replaces: libc6 rdma-core\n", 3, "would replace libc6 rdma-core"),
        (
            "W: Failed to fetch http://mirror.example/x\n",
            3,
            "downloading Debian packages for the guest failed",
        ),
    ],
)
def test_why_packages_could_not_be_added_is_reported(tmp_path, log, status, message):
    (tmp_path / "log").write_text(log)
    error = added.explain(Recipe(), tmp_path / "image", tmp_path / "log")
    assert message in error.message
    assert (error.status, error.log) == (status, str(tmp_path / "log"))


PLANS = {
    "Inst strace (7.2 Debian:testing [amd64])\nConf strace (7.2 Debian:testing [amd64])": "",
    "Inst libc6 [2.43-6] (2.43-7 Debian:testing [amd64])\nInst gdb (18.1 Debian:testing [amd64])": "libc6",
    "Remv libfoo [1.0]\nInst libfoo2 (1.0 Debian:testing [amd64])": "libfoo",
}


@pytest.mark.parametrize("plan", PLANS, ids=["nothing", "upgrade", "removal"])
def test_packages_that_would_replace_others_are_not_installed(tmp_path, plan):
    responses = (
        f'case "$*" in *--simulate*) cat <<\'END\'\n{plan}\nEND\n;; *) echo "installed: $*" ;; esac'
    )
    launched.script(tmp_path / "apt-get", responses)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MMDEBSTRAP_APT_CONFIG": "/dev/null"}
    done = launched.ended("sh", added.SCRIPT, "/root-of-the-guest", "strace", env=environment)
    assert done.returncode == (1 if PLANS[plan] else 0)
    assert (f"E: replaces: {PLANS[plan]}\n" == done.stdout) == bool(PLANS[plan])
    assert ("installed: " in done.stdout) == (not PLANS[plan])


def test_a_build_says_how_long_it_takes_as_the_last_one_did(tmp_path, fake_build, monkeypatch):
    said: list[str] = []
    clock = iter(range(0, 10**6, 7))
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    ensure_image(recipe_for("forky"), tmp_path, said.append)
    ensure_image(recipe_for("trixie"), tmp_path, said.append)
    begun = [line for line in said if line.startswith("building the Soft-RoCE guest image")]
    assert begun[0].endswith("; 1 to 5 minutes on two processors, by the speed of the mirror")
    assert begun[1].endswith("; the last build of an image here took 7 s")
    assert said.count("the image is ready after 7 s") == 2
