"""Packages added to a guest's image make another image. Packages that would replace packages of the image are refused
with a message."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from conformance.run_options import RunOptions
from fixtures.guest import added, image
from fixtures.guest.build import FILES
from fixtures.guest.image import ensure_image
from fixtures.guest.recipe import Recipe
from targets import builds


def _base(recipe: Recipe, place: Path, log: Path, progress: Callable[[str], None]) -> str:
    for name in FILES:
        (place / name).write_bytes(name.encode())
    return "7.0-test"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Replaces the package manager by a stand-in; returns the packages of each addition."""
    calls: list[Sequence[str]] = []

    def add(recipe: Recipe, base: Path, packages: Sequence[str], place: Path, *_: object) -> None:
        calls.append(packages)
        for name in FILES:
            (place / name).write_bytes((base / name).read_bytes() + b"+")

    monkeypatch.setattr(image, "build", _base)
    monkeypatch.setattr(image, "build_added", add)
    return calls


def test_packages_are_added_to_a_copy_once(tmp_path: Path, installed: list[Sequence[str]]) -> None:
    plain = ensure_image(Recipe(), tmp_path, print)
    first = ensure_image(Recipe(), tmp_path, print, ("strace", "gdb"))
    assert ensure_image(Recipe(), tmp_path, print, ("gdb", "strace")) == first
    assert installed == [("strace", "gdb")]
    assert first.root.read_bytes() == b"root.erofs+"
    assert plain.root.read_bytes() == b"root.erofs"
    assert (first.kernel_version, first.base, plain.base) == ("7.0-test", plain.digest, Recipe().digest())
    assert first.digest not in (plain.digest, ensure_image(Recipe(), tmp_path, print, ("gdb",)).digest)


def test_images_with_packages_do_not_push_out_those_without(tmp_path: Path, installed: list[Sequence[str]]) -> None:
    plain = ensure_image(Recipe(), tmp_path, print).root
    for name in ("one", "two", "three", "four"):
        ensure_image(Recipe(), tmp_path, print, (name,))
    assert plain.exists()
    assert len(list((tmp_path / "images").glob("forky-with-*"))) == image.KEPT_IMAGES


@pytest.mark.parametrize(
    ("log", "status", "message"),
    [
        ("E: Unable to locate package gbd\n", 2, "the Debian suite 'forky' has no package 'gbd'"),
        ("E: Package 'kmod-x' has no installation candidate\n", 2, "has no package 'kmod-x'"),
        ("E: replaces: libc6 rdma-core\n", 3, "would replace its libc6 rdma-core"),
        ("W: Failed to fetch http://mirror.example/x\n", 3, "downloading Debian packages for the guest failed"),
    ],
)
def test_why_packages_could_not_be_added_is_one_line(tmp_path: Path, log: str, status: int, message: str) -> None:
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
def test_packages_that_would_replace_others_are_not_installed(tmp_path: Path, plan: str) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f"""#!/bin/sh
case "$*" in *--simulate*) cat <<'END'
{plan}
END
;; *) echo "installed: $*" ;; esac
""")
    apt.chmod(0o755)
    done = subprocess.run(
        ["sh", str(added.SCRIPT), "/root-of-the-guest", "strace"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "MMDEBSTRAP_APT_CONFIG": "/dev/null"},
    )
    assert done.returncode == (1 if PLANS[plan] else 0)
    assert (f"E: replaces: {PLANS[plan]}\n" == done.stdout) == bool(PLANS[plan])
    assert ("installed: " in done.stdout) == (not PLANS[plan])


def test_names_of_packages_are_separated_by_commas() -> None:
    assert builds.tools_from(RunOptions(tools=("strace,gdb", "g++,gdb"))) == ("strace", "gdb", "g++")
