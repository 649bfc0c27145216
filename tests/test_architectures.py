"""Tests guests of other architectures than the host's: packages, images that are only unpacked, QEMU's command line, and
refusals. No guest is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT
from fixtures.guest import build, qemu, terminal
from fixtures.guest.driver import driver_for
from fixtures.guest.driver_module import module_of
from fixtures.guest.image import Image
from fixtures.guest.recipe import ESSENTIAL, SCRIPTS, recipe_for
from fixtures.guest.workshop import build_packages
from fixtures.system import packages, usable
from fixtures.system.architecture import AMD64, ARCHITECTURES, Architecture, host_architecture
from fixtures.targets import builds
from kinds import Patch
from launched import ended, script
from samples import laid, user_error

ROWS = list(ARCHITECTURES.values())
S390X = ARCHITECTURES["s390x"]


def set_machine(monkeypatch: Patch, machine: str) -> None:
    names = os.uname_result((*os.uname()[:4], machine))
    monkeypatch.setattr(os, "uname", lambda: names)


@pytest.fixture(autouse=True)
def host(monkeypatch: Patch) -> None:
    set_machine(monkeypatch, "x86_64")


@pytest.mark.parametrize("architecture", ROWS, ids=ARCHITECTURES)
def test_a_shell_is_not_on_the_console(architecture):
    assert architecture.console != architecture.terminal
    assert f"</dev/{architecture.terminal} " in terminal.shell(architecture.terminal)


@pytest.mark.parametrize("architecture", ROWS, ids=ARCHITECTURES)
def test_each_architecture_has_a_package_with_its_qemu(architecture):
    (need, *_) = packages.needs([architecture.debian])
    assert need.proof == f"program:{architecture.program}"


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "s390x", "ppc64le", "riscv64"])
def test_the_default_is_the_architecture_of_the_host(machine, monkeypatch):
    set_machine(monkeypatch, machine)
    assert host_architecture().machine == machine
    assert recipe_for().packages == recipe_for("forky", host_architecture()).packages
    assert "busybox-static" not in recipe_for().packages


def test_the_page_has_the_table():
    page = Path(ROOT, "docs/architectures.md").read_text(encoding="utf-8")
    lines = []
    for row in ROWS:
        (need, *_) = packages.needs([row.debian])
        order = row.description.split(", ")[1]
        cells = f"`{row.name}`", f"`{row.kernel_package}`", f"{row.page} KiB", order
        lines.append(f"| {' | '.join(cells)} | `{row.board}` | `{need.package}` |")
    assert "\n".join(lines) in page


def test_another_processor_gets_a_guest_of_amd64(monkeypatch):
    set_machine(monkeypatch, "mips64")
    assert host_architecture() is AMD64


def test_packages_of_another_architecture_are_only_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "find_tool", lambda name: name)
    recipe = recipe_for("forky", S390X)
    command = build.guest_system(recipe).command(tmp_path)
    assert {"--variant=extract", "--architectures=s390x"} <= set(command)
    (hook,) = (word for word in command if "-hook=" in word)
    assert hook.startswith("--extract-hook=")
    assert hook.endswith("linux-image-s390x ''")
    assert "chroot" not in hook, "the hook would run a program of the guest"
    (included,) = (word for word in command if word.startswith("--include="))
    assert set(ESSENTIAL) <= set(included.partition("=")[2].split(","))


def test_a_system_that_is_only_unpacked_knows_the_versions_of_its_packages(tmp_path):
    archives = tmp_path / "root/var/cache/apt/archives"
    for name in ("first", "second"):
        control = f"Package: {name}\nVersion: 65.0-1\nArchitecture: s390x\nMaintainer: Someone\nDescription: none\n"
        laid(tmp_path / name, {"DEBIAN/control": control})
        archives.mkdir(parents=True, exist_ok=True)
        ended("dpkg-deb", "--build", tmp_path / name, archives / f"{name}.deb")
    laid(tmp_path / "root", {"var/lib/dpkg/status": ""})
    text = recipe_for("forky", S390X).scripts["status.sh"]
    assert ended("sh", "-c", text, "sh", tmp_path / "root").returncode == 0
    query = (
        "dpkg-query",
        f"--admindir={tmp_path}/root/var/lib/dpkg",
        "-W",
        "-f=${Version} ${Status}",
    )
    assert ended(*query, "second:s390x").stdout == "65.0-1 install ok installed"
    assert "status.sh" not in recipe_for("forky", AMD64).scripts


def test_modules_for_another_architecture_are_compiled_by_programs_of_the_host(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(build, "find_tool", lambda name: name)
    for architecture, architectures, headers in (
        (S390X, "amd64,s390x", "linux-headers-7.2:s390x"),
        (AMD64, "amd64", "linux-headers-7.2"),
    ):
        recipe = recipe_for("forky", architecture)
        system = module_of(driver_for("siw"), recipe, "7.2")
        command = system.command(tmp_path)
        assert {"--variant=apt", f"--architectures={architectures}"} <= set(command)
        assert system.packages[-1] == build_packages(recipe, "7.2")[-1] == headers


def test_images_of_two_architectures_have_different_names_and_digests():
    recipes = [recipe_for("trixie", architecture) for architecture in ROWS]
    assert len({recipe.stack for recipe in recipes}) == len(ROWS)
    assert len({recipe.digest() for recipe in recipes}) == len(ROWS)
    assert recipes[0].stack == "trixie", "the name on amd64 is the name in recorded results"


def command_of(architecture: Architecture, memory: qemu.Freezing | None = None) -> list[str]:
    root = Path("/image/root.erofs")
    image = Image(root, root, root, "", "", architecture=architecture)
    machine = qemu.Machine(architecture.program, processor=architecture.processor)
    return qemu.command_line(machine, image, Path("/job"), Path("/console"), freezing=memory)


@pytest.mark.parametrize("architecture", ROWS, ids=ARCHITECTURES)
def test_drives_are_told_apart_by_their_serial_numbers(architecture):
    command = command_of(architecture)
    early = (SCRIPTS / "early-init.sh").read_text()
    for name in ("root", "job"):
        drive = f"virtio-blk-{architecture.bus},drive={name},serial={name}"
        assert drive in command
        assert f" {name}) {name}=/dev/" in early
    assert "/dev/vda" not in early


@pytest.mark.parametrize("architecture", ROWS, ids=ARCHITECTURES)
def test_only_a_whole_machine_has_persistent_memory(architecture):
    command = command_of(architecture, qemu.Freezing(Path("/memory"), 7))
    assert ("nvdimm,memdev=persistent" in command) == architecture.whole
    board = command[command.index("-M") + 1]
    assert ("nvdimm=on" in board) == architecture.whole
    assert "memory-backend=memory" in board


def test_kvm_is_only_for_guests_of_the_hosts_architecture(tmp_path, monkeypatch):
    monkeypatch.setattr(qemu, "kvm_present", lambda _: True)
    assert qemu.choose("nothing", tmp_path / "vmlinuz", S390X) == "tcg"
    monkeypatch.setenv("RDMA_CTS_ACCEL", "kvm")
    with user_error("RDMA_CTS_ACCEL is kvm, .* runs no s390x guest", status=2):
        qemu.choose("nothing", tmp_path / "vmlinuz", S390X)


def test_a_missing_qemu_is_named_with_its_package(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path / "apt-get", "exit 0")
    monkeypatch.setattr(packages, "find_program", {"apt-get": "/bin/apt-get"}.get)
    with user_error("qemu-system-s390x is not installed", status=3) as error:
        build.find_tool(S390X.program)
    assert error.value.hint.endswith("qemu-system-s390x")


def test_compiled_modules_are_taken_over_if_their_sources_exist(tmp_path, monkeypatch):
    python = "usr/lib/python3.14"
    laid(
        tmp_path / "compiled",
        {f"{python}/__pycache__/{name}.cpython-314.pyc": name for name in ("here", "gone")},
    )
    laid(tmp_path / "root", {f"{python}/here.py": ""})
    monkeypatch.setattr(build, "find_tool", lambda name: name)
    monkeypatch.setattr(build, "logged", lambda *_: None)
    build._take_compiled(tmp_path / "root.erofs", tmp_path / "root", tmp_path / "log")
    taken = [path.name for path in tmp_path.rglob("*.pyc")]
    assert taken == ["here.cpython-314.pyc"]


@pytest.mark.parametrize(
    "options, named",
    [
        (RunOptions(rdma_core=Path("tree")), "--rdma-core"),
        (RunOptions(kernel=Path("bzImage")), "--kernel"),
        (RunOptions(tools=("strace",)), "--tools"),
        (RunOptions(stack="forky-instrumented"), "--stack forky-instrumented"),
    ],
)
def test_what_the_host_cannot_execute_is_refused(options, named):
    builds.refuse_foreign_builds(options)
    options = RunOptions(**{**vars(options), "arch": "s390x"})
    with user_error(f"{named} needs a host that executes programs of s390x", status=2):
        builds.refuse_foreign_builds(options)


def test_a_python_of_32_bits_is_refused_on_a_device():
    with user_error("x86_64 with 32 bits, is not supported", status=3):
        usable.check_processor(4)
    usable.check_processor(8)
