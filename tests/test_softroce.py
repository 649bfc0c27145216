"""Tests of the Soft-RoCE guest: its recipe, the kernel's modules, builds that cannot succeed, and its job. test_own_builds.py
tests a real guest."""

import dataclasses
import lzma
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bad_places import full_disk
from conformance.errors import UserError
from conformance.run_options import RunOptions
from fixtures.guest import build, cpio, job, kernel, mirror, privileges
from fixtures.guest.build import guest_system
from fixtures.guest.guest import boot
from fixtures.guest.image import ensure_image
from fixtures.guest.job import Job
from fixtures.guest.recipe import STACKS, Recipe, recipe_for
from fixtures.system.cache import cache_directory
from fixtures.targets import builds
from samples import laid, user_error

# The recipe


def _changed(value: Any) -> Any:
    match value:
        case str():
            return value + "x"
        case int():
            return value + 1
        case tuple():
            if value:
                return (*value, "x")
            return (("/etc/x", "text"),)
        case dict():
            return {name: text + "# x\n" for name, text in value.items()}
    raise TypeError(f"no change known for {value!r}")


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Recipe)])
def test_every_input_of_the_recipe_changes_its_digest(name):
    recipe = Recipe()
    other = dataclasses.replace(recipe, **{name: _changed(getattr(recipe, name))})
    assert other.digest() != recipe.digest()


def test_a_kernel_of_another_suite_has_its_own_apt_source():
    recipe = dataclasses.replace(
        recipe_for("trixie-backports"),
        mirror="http://mirror.example/debian",
    )
    assert guest_system(recipe).command(Path("/x"))[-2:] == [
        "deb http://mirror.example/debian trixie main",
        "deb http://mirror.example/debian trixie-backports main",
    ]


# The host's apt sources

ONE_LINE = "# deb http://old.example/debian bookworm main\ndeb [arch=amd64] http://one.example/debian/ bookworm main\n"
STANZAS = """\
Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main

# a comment
Types: deb deb-src
URIs: https://two.example/debian
Suites: bookworm bookworm-updates
Components: main
"""


@pytest.mark.parametrize(
    "name, text, release, expected",
    [
        ("sources.list", ONE_LINE, "debian", "http://one.example/debian"),
        ("sources.list.d/debian.sources", STANZAS, "debian", "https://two.example/debian"),
        ("sources.list.d/debian.sources", STANZAS + "Enabled: no\n", "debian", ""),
        ("sources.list", ONE_LINE, "ubuntu", ""),
        ("sources.list", "deb file:/mnt/debian bookworm main\n", "debian", ""),
    ],
)
def test_the_mirror_is_in_the_apt_sources(tmp_path, name, text, release, expected):
    laid(
        tmp_path,
        {f"apt/{name}": text, "os-release": f'ID={release}\nVERSION_CODENAME="bookworm"\n'},
    )
    assert mirror.host_mirror(tmp_path) == expected


# The kernel's modules


def _kernel_packages(root: Path) -> kernel.KernelTree:
    modules = root / "usr/lib/modules/7.0-test"
    for name, depends in (("top", "mid-dle,low"), ("mid-dle", "low"), ("low", ""), ("other", "")):
        text = f"license=GPL\0depends={depends}\0name={name}\0".encode()
        content = b"\x7fELF".ljust(64, b"\0") + text
        laid(modules, {f"kernel/drivers/{name}.ko.xz": lzma.compress(content)})
    laid(modules, {"modules.builtin": "kernel/fs/in-side.ko\n", "vmlinuz": "kernel"})
    return kernel.KernelTree(root)


def test_modules_are_ordered_after_the_modules_that_they_need(tmp_path):
    tree = _kernel_packages(tmp_path)
    modules = tree.closure(("top", "in_side"), ("elsewhere", "mid-dle"))
    assert [module.name for module in modules] == ["low", "mid_dle", "top"]
    assert [module.name for module in tree.closure(("low",), ("other",))] == ["other", "low"]
    assert modules[1].path == Path("kernel/drivers/mid-dle.ko")
    assert modules[1].content.startswith(b"\x7fELF")
    assert tree.vmlinuz().read_bytes() == b"kernel"


def test_a_required_module_that_the_kernel_lacks_is_named(tmp_path):
    with pytest.raises(UserError, match=r"7\.0-test has no module rdma_rxe"):
        _kernel_packages(tmp_path).closure(("rdma-rxe",))


def test_the_archive_can_be_unpacked():
    files = (("dir/odd", cpio.PROGRAM, b"12345"), ("dir/even", cpio.FILE, b"1234"))
    archive = cpio.archive(
        [cpio.Entry("dir", cpio.DIRECTORY), *(cpio.Entry(*file) for file in files)],
    )
    listing = subprocess.run(
        ["busybox", "cpio", "-tv"],
        input=archive,
        capture_output=True,
        check=True,
    ).stdout.decode()
    entries = [(words[-1], words[0]) for words in map(str.split, listing.splitlines())]
    assert entries == [("dir", "drwxr-xr-x"), ("dir/odd", "-rwxr-xr-x"), ("dir/even", "-rw-r--r--")]


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("RDMA_CTS_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "rdma-cts"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_directory() == tmp_path / "x" / "rdma-cts"
    monkeypatch.setenv("RDMA_CTS_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


# Builds that cannot succeed


def test_a_missing_tool_is_named_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    installing = "apt-get install --no-install-recommends mmdebstrap"
    with user_error(f"mmdebstrap is not installed; {installing}$", status=3):
        ensure_image(Recipe(), tmp_path, print)


def test_a_disk_that_is_too_small_is_reported_before_anything_is_downloaded(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "NEEDED_BYTES", 1 << 60)
    monkeypatch.setattr(privileges, "obstacle", lambda: None)  # also if this user cannot be root
    with user_error("not enough disk space", status=3):
        ensure_image(Recipe(), tmp_path, print)
    assert (tmp_path / "build-forky.log").read_bytes() == b""


@pytest.mark.slow
def test_a_mirror_that_does_not_respond_is_a_failed_download(tmp_path):
    assert os.geteuid() == 0, "only root can build an image: run the project's tests as root"
    with user_error("the guest from http://127.0.0.1:9/debian failed", status=3) as caught:
        ensure_image(Recipe(mirror="http://127.0.0.1:9/debian"), tmp_path, print)
    assert "Could not connect" in Path(caught.value.log).read_text()


@pytest.mark.parametrize(
    "line, message",
    [
        (
            "E: The repository 'http://x/debian forkly Release' does not have a Release file.",
            "no Debian suite 'forky'",
        ),
        ("E: Failed to fetch http://x/y.deb  404  Not Found", "downloading Debian packages"),
        ("dpkg: error: unable to create: No space left on device", "not enough disk space"),
        ("E: You don't have enough free space in /x/archives/.", "not enough disk space"),
        (
            "W: GPG error: The following signatures were invalid: NO_PUBKEY 6ED0E7B82643E131",
            "signature",
        ),
        ("E: Unable to locate package python3-pyverbs", "Unable to locate package python3-pyverbs"),
    ],
)
def test_why_the_bootstrap_failed_is_reported_in_one_line(tmp_path, line, message):
    log = tmp_path / "log"
    log.write_text(f"I: running apt-get update...\n{line}\nE: mmdebstrap failed to run\n")
    error = build.explain(Recipe(), log)
    assert message in str(error)
    assert (error.status, error.log) == (3, str(log))


def test_a_named_mirror_that_fails_is_told_without_its_credentials(tmp_path):
    log = tmp_path / "log"
    log.write_text("E: Failed to fetch http://x/y.deb  404  Not Found")
    error = build.explain(Recipe(mirror="http://me:secret@m.example/debian"), log)
    assert "from http://m.example/debian failed; check" in str(error)
    assert "set RDMA_CTS_MIRROR" not in str(error)


def test_a_dynamically_linked_busybox_is_refused(tmp_path, monkeypatch):
    for name, program in (("mmdebstrap", "true"), ("mkfs.erofs", "true"), ("busybox", "sh")):
        (tmp_path / name).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(privileges, "obstacle", lambda: None)
    with user_error("linked dynamically", status=3):
        ensure_image(Recipe(), tmp_path / "cache", print)


# The job


def test_a_job_with_a_missing_file_or_an_invalid_name_of_a_variable_is_refused(tmp_path):
    with pytest.raises(UserError, match="nothing-here cannot be copied"):
        job.pack(Job(((tmp_path / "nothing-here", "x"),), "true"), tmp_path / "job")
    with pytest.raises(ValueError, match="a;b"):
        job.pack(Job((), "true", {"a;b": ""}), tmp_path / "job")


def test_a_full_disk_is_the_reason_for_a_job_in_one_short_line(tmp_path):
    many = laid(tmp_path / "many", {f"{number}/file": "x" * 100 for number in range(50)})
    (tmp_path / "place").mkdir()
    said = rf"^{many} cannot be copied for the guest to {tmp_path}/place/job-\w+/suite/x: File too large$"
    with full_disk(10), user_error(said, status=3):
        job.pack(Job(((many, "x"),), "true"), tmp_path / "place/job")
    assert not any((tmp_path / "place").iterdir())


@pytest.mark.guest
@pytest.mark.nightly
def test_a_guest_without_the_driver_reports_the_reason(tmp_path):
    laid(tmp_path, {"overlay/etc/modprobe.d/none.conf": "install rdma_rxe /bin/false\n"})
    image = ensure_image(recipe_for(), cache_directory(), print)
    with pytest.raises(
        UserError,
        match=r"could not bring up its RDMA device: modprobe.*rdma_rxe",
    ) as caught:
        boot(image, Job((), "true"), console=tmp_path / "console", overlay=tmp_path / "overlay")
    assert caught.value.log == str(tmp_path / "console")


def test_a_stack_of_two_suites_needs_a_mirror_if_the_host_names_none(monkeypatch):
    monkeypatch.setattr("fixtures.guest.mirror.host_mirror", lambda: "")
    recipe = next(recipe for recipe in STACKS.values() if recipe.kernel_suite)
    with pytest.raises(UserError, match="RDMA_CTS_MIRROR"):
        guest_system(recipe).command(Path("root"))


@pytest.mark.parametrize("mirror", ["here", "http://", "http:/x", "https:// x", "/srv/debian"])
def test_a_mirror_that_is_no_address_is_refused(mirror, monkeypatch):
    monkeypatch.setenv("RDMA_CTS_MIRROR", mirror)
    with user_error(f"RDMA_CTS_MIRROR {mirror!r} is not the address of a mirror", status=2):
        recipe_for()
    for address in ("http://host/debian", "file:///srv/debian"):
        monkeypatch.setenv("RDMA_CTS_MIRROR", address)
        assert recipe_for().mirror == address


def test_names_of_packages_are_separated_by_commas():
    assert builds.tools_from(RunOptions(tools=("strace,gdb", "g++,gdb"))) == (
        "strace",
        "gdb",
        "g++",
    )
