"""Tests of the Soft-RoCE guest: its recipe, its cache, and its failures. test_own_builds.py tests a real guest."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import json
import lzma
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import launched
from conformance.errors import UserError
from conformance.run_options import RunOptions
from conformance.supervision import TRIES
from conformance.tables.suite import ROOT
from fixtures.guest import added, build, cpio, image, job, kernel, mirror, privileges, qemu
from fixtures.guest.build import FILES, guest_system
from fixtures.guest.freezing import await_event
from fixtures.guest.guest import Guest, boot
from fixtures.guest.image import Image, ensure_image, renew_image
from fixtures.guest.job import Job
from fixtures.guest.kept import MANIFEST
from fixtures.guest.recipe import STACKS, Recipe, recipe_for
from fixtures.system import packages
from fixtures.system.cache import cache_directory
from fixtures.targets import builds
from fixtures.targets.guests import Guests
from kinds import Patch, rows
from patience import PATIENCE_S, await_true, command_lines, is_running, longer_and_longer
from samples import flip, laid, user_error

UP = '{"type":"guest","event":"up","uptime_s":1.5}'
WARM = '{"type":"guest","event":"warm"}'


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
def test_every_input_of_the_recipe_changes_its_digest(name: str) -> None:
    recipe = Recipe()
    other = dataclasses.replace(recipe, **{name: _changed(getattr(recipe, name))})
    assert other.digest() != recipe.digest()


def test_a_kernel_of_another_suite_has_its_own_apt_source() -> None:
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
    ("name", "text", "release", "expected"),
    [
        ("sources.list", ONE_LINE, "debian", "http://one.example/debian"),
        ("sources.list.d/debian.sources", STANZAS, "debian", "https://two.example/debian"),
        ("sources.list.d/debian.sources", STANZAS + "Enabled: no\n", "debian", ""),
        ("sources.list", ONE_LINE, "ubuntu", ""),
        ("sources.list", "deb file:/mnt/debian bookworm main\n", "debian", ""),
    ],
)
def test_the_mirror_is_in_the_apt_sources(
    tmp_path: Path,
    name: str,
    text: str,
    release: str,
    expected: str,
) -> None:
    laid(
        tmp_path,
        {f"apt/{name}": text, "os-release": f'ID={release}\nVERSION_CODENAME="bookworm"\n'},
    )
    assert mirror.host_mirror(tmp_path) == expected


# The kernel's modules


def _kernel_packages(root: Path) -> kernel.KernelTree:
    modules = root / "usr/lib/modules/7.0-test"
    for name, depends in (("top", "mid-dle,low"), ("mid-dle", "low"), ("low", ""), ("other", "")):
        content = f"\x7fELF\0license=GPL\0depends={depends}\0name={name}\0".encode()
        laid(modules, {f"kernel/drivers/{name}.ko.xz": lzma.compress(content)})
    laid(modules, {"modules.builtin": "kernel/fs/in-side.ko\n", "vmlinuz": "kernel"})
    return kernel.KernelTree(root)


def test_modules_are_ordered_after_the_modules_that_they_need(tmp_path: Path) -> None:
    tree = _kernel_packages(tmp_path)
    modules = tree.closure(("top", "in_side"), ("elsewhere", "mid-dle"))
    assert [module.name for module in modules] == ["low", "mid_dle", "top"]
    assert [module.name for module in tree.closure(("low",), ("other",))] == ["other", "low"]
    assert modules[1].path == Path("kernel/drivers/mid-dle.ko")
    assert modules[1].content.startswith(b"\x7fELF")
    assert tree.vmlinuz().read_bytes() == b"kernel"


def test_a_required_module_that_the_kernel_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"7\.0-test has no module rdma_rxe"):
        _kernel_packages(tmp_path).closure(("rdma-rxe",))


def test_the_archive_can_be_unpacked() -> None:
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


# The cache


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
    ("name", "damage", "output"),
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
    tmp_path: Path,
    fake_build: FakeBuild,
    name: str,
    damage: Callable[[Path], object],
    output: str,
) -> None:
    damage(ensure_image(Recipe(), tmp_path, print).root.with_name(name))
    said: list[str] = []
    image_here = ensure_image(Recipe(), tmp_path, said.append)
    assert fake_build.count == 2
    assert output in said[0]
    assert image.damage_of(image_here.root.parent, Recipe().digest()) is None


@pytest.mark.parametrize("kind", ["file", "link", "broken link"])
def test_a_file_or_link_at_the_path_of_an_image_is_replaced(
    tmp_path: Path,
    fake_build: FakeBuild,
    kind: str,
) -> None:
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


def test_expired_lists_are_used_only_if_apt_reports_that_they_have_expired(
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
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


def test_an_image_of_expired_lists_is_recorded_or_refused(
    tmp_path: Path,
    fake_build: FakeBuild,
    monkeypatch: Patch,
) -> None:
    fake_build.said = EXPIRED
    monkeypatch.setattr(packages, "ensure_tools", lambda *_, **__: "")
    monkeypatch.setenv("RDMA_CTS_CACHE", str(tmp_path))
    named = Guests(RunOptions(guest=True), tmp_path, print)  # this builds the image
    assert named.given["expired"] == ["forky"]
    with user_error("made from package lists that have expired: forky", status=3) as refused:
        Guests(RunOptions(guest=True, strict_packages=True), tmp_path, print)
    assert "RDMA_CTS_MIRROR" in (refused.value.hint or "")


@contextlib.contextmanager
def killed_after(line: bytes, program: str) -> Iterator[None]:
    """Runs a Python program until it prints the line, and kills it at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-uc", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == line
        yield
        process.kill()


def test_a_build_that_is_killed_leaves_no_mount_and_no_process(tmp_path: Path) -> None:
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


def test_a_second_run_waits_for_the_first_to_build(tmp_path: Path, fake_build: FakeBuild) -> None:
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


def test_the_files_of_a_killed_build_are_removed(tmp_path: Path, fake_build: FakeBuild) -> None:
    leftover = laid(tmp_path / "images" / "building-forky+killed", {})
    ensure_image(Recipe(), tmp_path, print)
    assert not leftover.exists()


FULL = "not enough disk space"


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, FULL), (errno.EDQUOT, FULL), (errno.EIO, "Input/output error")],
)
def test_a_build_that_fails_is_reported_and_leaves_nothing(
    tmp_path: Path,
    fake_build: FakeBuild,
    number: int,
    message: str,
) -> None:
    fake_build.failure = OSError(number, os.strerror(number))
    with user_error(message, status=3) as caught:
        ensure_image(Recipe(), tmp_path, print)
    assert caught.value.log == str(tmp_path / "build-forky.log")
    assert not list((tmp_path / "images").iterdir())


def test_old_images_of_a_stack_are_removed_except_the_latest_and_those_in_use(
    tmp_path: Path,
    fake_build: FakeBuild,
) -> None:
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


def test_an_old_image_is_renewed_with_the_current_packages(
    tmp_path: Path,
    fake_build: FakeBuild,
) -> None:
    old = aged(tmp_path, days=3)
    renew_image(Recipe(), tmp_path, 4, print)
    assert fake_build.count == 1
    fake_build.content = b"newer"
    renew_image(Recipe(), tmp_path, 2, print)
    new = ensure_image(Recipe(), tmp_path, print)
    assert (new.root, new.digest) == (old.root, old.digest)
    assert new.content != old.content
    assert [path.name for path in (tmp_path / "images").iterdir()] == [new.root.parent.name]


def test_an_image_that_cannot_be_renewed_is_kept(tmp_path: Path, fake_build: FakeBuild) -> None:
    old = aged(tmp_path, days=3)
    fake_build.failure = UserError("no network", status=3)
    with pytest.raises(UserError, match="no network"):
        renew_image(Recipe(), tmp_path, 2, print)
    assert ensure_image(Recipe(), tmp_path, print) == old


def test_the_cache_is_where_the_environment_says(monkeypatch: Patch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("RDMA_CTS_CACHE", raising=False)
    assert cache_directory() == tmp_path / ".cache" / "rdma-cts"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_directory() == tmp_path / "x" / "rdma-cts"
    monkeypatch.setenv("RDMA_CTS_CACHE", str(tmp_path / "own"))
    assert cache_directory() == tmp_path / "own"


# Builds that cannot succeed


def test_a_missing_tool_is_named_with_its_package(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    installing = "apt-get install --no-install-recommends mmdebstrap"
    with user_error(f"mmdebstrap is not installed; {installing}$", status=3):
        ensure_image(Recipe(), tmp_path, print)


def test_a_disk_that_is_too_small_is_reported_before_anything_is_downloaded(
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(build, "NEEDED_BYTES", 1 << 60)
    monkeypatch.setattr(privileges, "obstacle", lambda: None)  # also if this user cannot be root
    with user_error("not enough disk space", status=3):
        ensure_image(Recipe(), tmp_path, print)
    assert (tmp_path / "build-forky.log").read_bytes() == b""


@pytest.mark.slow
def test_a_mirror_that_does_not_respond_is_a_failed_download(tmp_path: Path) -> None:
    assert os.geteuid() == 0, "only root can build an image: run the project's tests as root"
    with user_error("downloading Debian packages for the guest failed", status=3) as caught:
        ensure_image(Recipe(mirror="http://127.0.0.1:9/debian"), tmp_path, print)
    assert "Could not connect" in Path(caught.value.log).read_text()


@pytest.mark.parametrize(
    ("line", "message"),
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
def test_why_the_bootstrap_failed_is_reported_in_one_line(
    tmp_path: Path,
    line: str,
    message: str,
) -> None:
    log = tmp_path / "log"
    log.write_text(f"I: running apt-get update...\n{line}\nE: mmdebstrap failed to run\n")
    error = build.explain(Recipe(), log)
    assert message in str(error)
    assert (error.status, error.log) == (3, str(log))


def test_a_dynamically_linked_busybox_is_refused(tmp_path: Path, monkeypatch: Patch) -> None:
    for name, program in (("mmdebstrap", "true"), ("mkfs.erofs", "true"), ("busybox", "sh")):
        (tmp_path / name).symlink_to(f"/bin/{program}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(privileges, "obstacle", lambda: None)
    with user_error("linked dynamically", status=3):
        ensure_image(Recipe(), tmp_path / "cache", print)


# Guests that fail to start; QEMU is a shell script here


class FakeQemu:
    """QEMU as a shell script that writes its process id to the file `pid`, with an image that it never reads."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "programs"
        self.pid = folder / "pid"
        self.console = folder / "console"
        place = folder / "image"
        self.image = Image(place / "vmlinuz", place / "initrd", place / "root.erofs", "", "")

    def put(self, script: str) -> None:
        launched.script(self.programs / "qemu-system-x86_64", f"echo $$ >{self.pid}\n{script}")

    def boot(self, console: Path | None = None, deadline_s: float = PATIENCE_S) -> Guest:
        return boot(
            self.image,
            Job((), "true"),
            console=console or self.console,
            deadline_s=deadline_s,
        )

    def fails(self, message: str, deadline_s: float = PATIENCE_S) -> UserError:
        with user_error(re.escape(message), status=3) as caught:
            self.boot(deadline_s=deadline_s)
        return caught.value

    def runs(self) -> bool:
        return is_running(int(self.pid.read_text()))


@pytest.fixture
def fake_qemu(tmp_path: Path, monkeypatch: Patch) -> FakeQemu:
    stand_in = FakeQemu(tmp_path)
    monkeypatch.setenv("PATH", f"{stand_in.programs}:{os.environ['PATH']}")
    monkeypatch.setenv("RDMA_CTS_ACCEL", "tcg")
    return stand_in


# Sets the shell variable `console` to the file to which QEMU must write the console.
CONSOLE = "console=$(echo \"$*\" | sed 's/.*id=console,path=//; s/[ ,].*//'); "


def test_if_qemu_is_killed_externally_before_the_guest_is_up_another_guest_is_started(
    fake_qemu: FakeQemu,
    tmp_path: Path,
) -> None:
    tried = tmp_path / "tried"
    fake_qemu.put(
        f"echo >>{tried}; [ $(wc -l <{tried}) -lt {TRIES} ] && kill -9 $$; echo '{UP}'; exec sleep 60",
    )
    with fake_qemu.boot() as guest:
        assert guest.up["uptime_s"] == 1.5
    assert tried.read_text() == "\n" * TRIES


@pytest.mark.slow
@pytest.mark.parametrize(("script", "message"), rows("guests_that_do_not_start"))
def test_a_guest_that_cannot_start_is_reported(
    fake_qemu: FakeQemu,
    tmp_path: Path,
    script: str,
    message: str,
) -> None:
    fake_qemu.put(CONSOLE + script)
    error = fake_qemu.fails(message)
    # an empty console is not named
    assert error.log == (str(fake_qemu.console) if "$console" in script else "")
    assert not fake_qemu.runs()
    assert list(tmp_path.glob("work-*")) == []


@pytest.mark.slow
def test_a_guest_that_hangs_is_killed_at_its_deadline(fake_qemu: FakeQemu) -> None:
    fake_qemu.put("exec sleep infinity")
    for deadline_s in longer_and_longer(0.5):
        fake_qemu.fails(f"did not come up within {deadline_s:g} s", deadline_s)
        if (
            fake_qemu.pid.exists() and fake_qemu.pid.read_text()
        ):  # else QEMU was killed before it wrote its process id
            break
    assert not fake_qemu.runs()


def test_a_starved_guest_is_awaited_beyond_its_deadline(
    fake_qemu: FakeQemu,
    monkeypatch: Patch,
) -> None:
    fake_qemu.put(f"echo '{UP}'; echo '{WARM}'; exec sleep infinity")
    monkeypatch.setattr(Guest, "starved", lambda guest, limit_s: limit_s == 0.0)
    with fake_qemu.boot(deadline_s=0.0) as guest:
        assert await_event(guest, "warm", 0.0)["event"] == "warm"


def test_temporary_files_are_only_next_to_the_console_and_are_removed(
    fake_qemu: FakeQemu,
    tmp_path: Path,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc/no/such/place")
    place = tmp_path / "out"
    fake_qemu.put(f"echo '{UP}'; exec sleep infinity")
    with fake_qemu.boot(place / "console"):
        assert len(list(place.iterdir())) == 2
    assert list(place.iterdir()) == [place / "console"]


def test_each_line_is_returned_as_soon_as_it_is_complete(
    fake_qemu: FakeQemu,
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    fake_qemu.put(f"echo '{UP}'; exec cat {pipe}")
    with fake_qemu.boot() as guest, pipe.open("wb", buffering=0) as end:
        assert guest.up["uptime_s"] == 1.5
        assert guest.next_line(0.05) is None
        end.write(b"one\n\ntwo\nthr")
        assert [guest.next_line(PATIENCE_S) for _ in range(3)] == [b"one\n", b"\n", b"two\n"]
        assert guest.next_line(0.05) is None
        end.write(b"ee\ncut sh")
        end.close()
        assert [guest.next_line(PATIENCE_S) for _ in range(4)] == [b"three\n", b"cut sh", b"", b""]
        assert guest.wait() == 0


def test_qemu_is_killed_with_the_program_that_started_it(
    fake_qemu: FakeQemu,
    tmp_path: Path,
) -> None:
    fake_qemu.put(f"echo '{UP}'; exec sleep infinity")
    with killed_after(
        b"up\n",
        "from pathlib import Path; from fixtures.guest.guest import Guest, boot, Job\n"
        "from fixtures.guest.image import Image; p = Path('/nowhere')\n"
        f"g = boot(Image(p, p, p, '', '', ''), Job((), 'true'), console=Path({str(tmp_path / 'console')!r}))\n"
        "print('up', flush=True); g.wait(None)\n",
    ):
        assert fake_qemu.runs()
    await_true(lambda: not fake_qemu.runs())


# Emulation or KVM


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("exit 0", "kvm"),
        ("echo 'qemu: some warning' >&2; exit 0", "kvm"),
        ("echo 'Could not access KVM kernel module' >&2; exit 1", "tcg"),
        ("echo 'KVM internal error. Suberror: 1' >&2; exec sleep infinity", "tcg"),
    ],
)
def test_kvm_is_used_if_the_kernel_starts_under_it(
    fake_qemu: FakeQemu,
    tmp_path: Path,
    monkeypatch: Patch,
    script: str,
    found: str,
) -> None:
    monkeypatch.setenv("RDMA_CTS_ACCEL", "auto")
    monkeypatch.setattr(qemu, "kvm_present", lambda _: True)
    fake_qemu.put(script)
    program = build.find_tool("qemu-system-x86_64")
    assert qemu.choose(program, tmp_path / "vmlinuz") == found
    fake_qemu.pid.unlink()
    assert qemu.choose(program, tmp_path / "vmlinuz") == found
    assert not fake_qemu.pid.exists(), "QEMU was started again"


def test_the_accelerator_can_be_named(monkeypatch: Patch) -> None:
    monkeypatch.setenv("RDMA_CTS_ACCEL", "kvm")
    assert qemu.choose("nothing", Path("/nowhere")) == "kvm"
    monkeypatch.setenv("RDMA_CTS_ACCEL", "xen")
    with user_error("auto, kvm, tcg", status=2):
        qemu.choose("nothing", Path("/nowhere"))


def test_without_a_device_node_there_is_no_kvm(tmp_path: Path) -> None:
    (tmp_path / "kvm").write_bytes(b"")
    assert not qemu.kvm_present(tmp_path / "kvm")
    assert not qemu.kvm_present(tmp_path / "none")


# The job


def test_a_job_with_a_missing_file_or_an_invalid_name_of_a_variable_is_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match="nothing-here cannot be copied"):
        job.pack(Job(((tmp_path / "nothing-here", "x"),), "true"), tmp_path / "job")
    with pytest.raises(ValueError, match="a;b"):
        job.pack(Job((), "true", {"a;b": ""}), tmp_path / "job")


@pytest.mark.guest
@pytest.mark.nightly
def test_a_guest_without_the_driver_reports_the_reason(tmp_path: Path) -> None:
    laid(tmp_path, {"overlay/etc/modprobe.d/none.conf": "install rdma_rxe /bin/false\n"})
    image = ensure_image(recipe_for(), cache_directory(), print)
    with pytest.raises(
        UserError,
        match=r"could not bring up its RDMA device: modprobe.*rdma_rxe",
    ) as caught:
        boot(image, Job((), "true"), console=tmp_path / "console", overlay=tmp_path / "overlay")
    assert caught.value.log == str(tmp_path / "console")


def test_a_stack_of_two_suites_needs_a_mirror_if_the_host_names_none(monkeypatch: Patch) -> None:
    monkeypatch.setattr("fixtures.guest.mirror.host_mirror", lambda: "")
    recipe = next(recipe for recipe in STACKS.values() if recipe.kernel_suite)
    with pytest.raises(UserError, match="RDMA_CTS_MIRROR"):
        guest_system(recipe).command(Path("root"))


@pytest.mark.parametrize("mirror", ["here", "http://", "http:/x", "https:// x", "/srv/debian"])
def test_a_mirror_that_is_no_address_is_refused(mirror: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv("RDMA_CTS_MIRROR", mirror)
    with user_error(f"RDMA_CTS_MIRROR {mirror!r} is not the address of a mirror", status=2):
        recipe_for()
    for address in ("http://host/debian", "file:///srv/debian"):
        monkeypatch.setenv("RDMA_CTS_MIRROR", address)
        assert recipe_for().mirror == address


# Packages added to an image make another image


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


def test_packages_are_added_to_a_copy_once(tmp_path: Path, installed: list[Sequence[str]]) -> None:
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


def test_images_with_packages_do_not_displace_images_without(
    tmp_path: Path,
    installed: list[Sequence[str]],
) -> None:
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
        ("E: replaces: libc6 rdma-core\n", 3, "would replace libc6 rdma-core"),
        (
            "W: Failed to fetch http://mirror.example/x\n",
            3,
            "downloading Debian packages for the guest failed",
        ),
    ],
)
def test_why_packages_could_not_be_added_is_reported(
    tmp_path: Path,
    log: str,
    status: int,
    message: str,
) -> None:
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
    responses = (
        f'case "$*" in *--simulate*) cat <<\'END\'\n{plan}\nEND\n;; *) echo "installed: $*" ;; esac'
    )
    launched.script(tmp_path / "apt-get", responses)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MMDEBSTRAP_APT_CONFIG": "/dev/null"}
    done = launched.ended("sh", added.SCRIPT, "/root-of-the-guest", "strace", env=environment)
    assert done.returncode == (1 if PLANS[plan] else 0)
    assert (f"E: replaces: {PLANS[plan]}\n" == done.stdout) == bool(PLANS[plan])
    assert ("installed: " in done.stdout) == (not PLANS[plan])


def test_names_of_packages_are_separated_by_commas() -> None:
    assert builds.tools_from(RunOptions(tools=("strace,gdb", "g++,gdb"))) == (
        "strace",
        "gdb",
        "g++",
    )
