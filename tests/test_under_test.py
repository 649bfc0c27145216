"""The user's own builds: the files that are used, refusals, the overlay on the image, hashes, and the builds that a
running guest can load."""

import gzip
import lzma
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UserError
from conformance.kernel.build_ids import suspects_of, under_test
from conformance.tables.suite import ROOT
from fixtures.guest import exchange
from fixtures.guest.driver import DRIVERS, Driver
from fixtures.guest.exchange import Exchange
from fixtures.guest.image import Image
from fixtures.guest.kernel import release_of
from fixtures.guest.recipe import Recipe
from fixtures.guest.under_test import Builds, UnderTest
from fixtures.system.digests import below
from fixtures.system.rdma_core import find_rdma_core
from kinds import Patch
from samples import laid, user_error

RELEASE = "7.2.0-image"
NEEDED = {"rdma_rxe": "ib_core", "ib_core": "", "virtio_blk": ""}
RECIPE = Recipe(
    required_modules=("virtio_blk", "rdma_rxe"),
    optional_modules=("udmabuf",),
    early_modules=("virtio_blk",),
    early_optional_modules=(),
)


def bzimage(path: Path, release: str) -> Path:
    """Makes a file that has only the header of a bootable kernel."""
    head = bytearray(0x400)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = struct.pack("<H", 0x300 - 0x200)
    text = f"{release} (me@here) #1 SMP\0".encode()
    head[0x300 : 0x300 + len(text)] = text
    path.write_bytes(bytes(head))
    return path


def module(release: str = RELEASE, depends: str = "") -> bytes:
    return f"\x7fELF\0depends={depends}\0vermagic={release} SMP mod_unload \0".encode()


def tree(root: Path, release: str = RELEASE) -> Path:
    """Makes a tree of a kernel's modules like `make modules_install`."""
    modules = {f"kernel/{name}.ko": module(release, depends) for name, depends in NEEDED.items()}
    laid(root / "lib/modules" / release, {**modules, "modules.builtin": "kernel/udmabuf.ko\n"})
    return root


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path / "vmlinuz", tmp_path / "initrd", tmp_path / "root", "digest", RELEASE, "digest")


def laid_out(stage: Path, image: Image, **builds: Path) -> tuple[dict[str, Any], list[str]]:
    """Lays out the builds; returns the hashes and the overlaid files."""
    found = UnderTest(Builds(**builds), image, RECIPE)  # type: ignore[arg-type]
    prepared = found.lay_out(stage)
    return found.hashes(), [name for name, _ in below(prepared.overlay)] if prepared.overlay else []


def test_without_builds_the_image_is_what_is_under_test(tmp_path: Path, image: Image) -> None:
    assert laid_out(tmp_path / "stage", image) == ({"image": "digest"}, [])


def test_the_release_of_a_kernel_is_read_from_its_file(tmp_path: Path) -> None:
    assert release_of(bzimage(tmp_path / "bzImage", "7.3.0-mine")) == "7.3.0-mine"


@pytest.mark.parametrize("content", [b"", b"\x7fELF", bytes(0x400), bytes(0x202) + b"HdrS"])
def test_a_file_that_is_not_a_kernel_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "vmlinux").write_bytes(content)
    with pytest.raises(UserError, match="not a bootable x86 kernel"):
        release_of(tmp_path / "vmlinux")


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)])
def test_a_single_module_lies_over_that_of_the_image(tmp_path: Path, image: Image, suffix: str, pack: Any) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / f"rdma_rxe.ko{suffix}").write_bytes(pack(module()))
    hashes, files = laid_out(tmp_path / "stage", image, modules=tmp_path / "mine")
    assert files == [f"usr/lib/modules/{RELEASE}/updates/rdma_rxe.ko"]
    assert list(hashes["modules"]["files"]) == ["rdma_rxe.ko"]
    own = UnderTest(Builds(modules=tmp_path / "mine"), image, RECIPE)
    assert own.lay_out(tmp_path / "again").prepare == "depmod -a\n"


def test_a_kernel_comes_with_its_own_modules_and_first_programs(tmp_path: Path, image: Image) -> None:
    kernel = bzimage(tmp_path / "bzImage", "7.3.0-mine")
    own = UnderTest(Builds(kernel=kernel, modules=tree(tmp_path / "mine", "7.3.0-mine")), image, RECIPE)
    prepared = own.lay_out(tmp_path / "stage")
    assert prepared.image.vmlinuz == kernel
    assert prepared.image.kernel_version == "7.3.0-mine"
    assert b"virtio_blk" in prepared.image.initrd.read_bytes()
    assert prepared.overlay is not None
    assert {name.split("7.3.0-mine/")[1] for name, _ in below(prepared.overlay)} == {
        "kernel/rdma_rxe.ko",
        "kernel/ib_core.ko",
        "kernel/virtio_blk.ko",
        "modules.builtin",
    }
    assert own.hashes()["kernel"]["release"] == "7.3.0-mine"


def test_a_kernel_with_all_built_in_has_an_empty_directory_of_modules(tmp_path: Path, image: Image) -> None:
    (tmp_path / "none").mkdir()
    kernel = bzimage(tmp_path / "bzImage", "7.3.0-mine")
    prepared = UnderTest(Builds(kernel=kernel, modules=tmp_path / "none"), image, RECIPE).lay_out(tmp_path / "stage")
    assert b"virtio_blk" not in prepared.image.initrd.read_bytes()
    assert prepared.overlay is not None
    assert prepared.prepare == "depmod -a\n", "modprobe finds what is built in"
    (builtin,) = prepared.overlay.rglob("modules.builtin")
    assert builtin.read_text() == "kernel/virtio_blk.ko\nkernel/rdma_rxe.ko\n"


@pytest.mark.parametrize("built_in", [("virtio_blk",), ("ib_core",), ("virtio_blk", "ib_core")])
def test_built_in_modules_are_left_out_and_known_to_modprobe(
    tmp_path: Path, image: Image, built_in: tuple[str, ...]
) -> None:
    kernel, modules = bzimage(tmp_path / "bzImage", "7.3.0-mine"), tree(tmp_path / "mine", "7.3.0-mine")
    folder = modules / "lib/modules/7.3.0-mine"
    for name in built_in:
        (folder / "kernel" / f"{name}.ko").unlink()
    list_of_them = "".join(f"kernel/{name}.ko\n" for name in built_in)
    (folder / "modules.builtin").write_text(list_of_them)
    prepared = UnderTest(Builds(kernel=kernel, modules=modules), image, RECIPE).lay_out(tmp_path / "stage")
    assert (b"virtio_blk" in prepared.image.initrd.read_bytes()) is ("virtio_blk" not in built_in)
    assert prepared.overlay is not None
    assert {path.stem for path in prepared.overlay.rglob("*.ko")} == {*NEEDED} - {*built_in, "udmabuf"}
    (carried,) = prepared.overlay.rglob("modules.builtin")
    assert carried.read_text() == list_of_them


def test_modules_for_drives_and_those_of_no_use_are_left_out_of_a_tree_for_the_images_kernel(
    tmp_path: Path, image: Image
) -> None:
    modules = tree(tmp_path / "mine")
    (modules / "lib/modules" / RELEASE / "kernel/of_no_use.ko").write_bytes(module())
    hashes, _ = laid_out(tmp_path / "stage", image, modules=modules)
    assert sorted(hashes["modules"]["files"]) == ["kernel/ib_core.ko", "kernel/rdma_rxe.ko"]


def refused(image: Image, **builds: Path) -> str:
    with pytest.raises(UserError) as caught:
        UnderTest(Builds(**builds), image, RECIPE)  # type: ignore[arg-type]
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.status in (2, 3)
    return str(caught.value)


def test_builds_that_do_not_fit_are_refused_in_one_line(tmp_path: Path, image: Image) -> None:
    kernel = bzimage(tmp_path / "bzImage", "7.3.0-mine")
    empty, mine, early, text = (tmp_path / name for name in ("empty", "mine", "early", "text"))
    for folder in (empty, mine, early, text):
        folder.mkdir()
    (mine / "rdma_rxe.ko").write_bytes(module("6.1.0-other"))
    (early / "virtio_blk.ko").write_bytes(module())
    (text / "rdma_rxe.ko").write_bytes(b"no module at all")
    assert "give the kernel's modules with --modules" in refused(image, kernel=kernel)
    assert "holds no module that a guest uses" in refused(image, modules=empty)
    assert "is for kernel 6.1.0-other, not for 7.2.0-image" in refused(image, modules=mine)
    assert "only together with --kernel" in refused(image, modules=early)
    assert "is not a kernel module" in refused(image, modules=text)
    assert "is not a directory" in refused(image, modules=tmp_path / "no")
    assert "is not a directory" in refused(image, overlay=kernel)
    assert "no libibverbs.so.1" in refused(image, rdma_core=empty)
    (early / "virtio_blk.ko").unlink()
    (early / "udmabuf.ko").write_bytes(module("7.3.0-mine"))
    assert "has no module" in refused(image, kernel=kernel, modules=early)
    (empty / "README").touch()
    assert "holds no module; give what" in refused(image, kernel=kernel, modules=empty)


def test_a_directory_laid_over_a_link_of_the_merged_usr_does_not_hide_what_is_there(
    tmp_path: Path, image: Image
) -> None:
    names = ("lib/x86_64-linux-gnu/mine.so", "etc/ld.so.preload", "opt/tool/.git/config", "bin/tool")
    laid(tmp_path / "mine", dict.fromkeys(names, "#!/bin/sh\n"))
    (tmp_path / "mine/bin/tool").chmod(0o755)
    (tmp_path / "mine/link").symlink_to("etc")
    hashes, files = laid_out(tmp_path / "stage", image, overlay=tmp_path / "mine")
    assert files == [
        "etc/ld.so.preload",
        "link",
        "opt/tool/.git/config",
        "usr/bin/tool",
        "usr/lib/x86_64-linux-gnu/mine.so",
    ]
    assert hashes["overlay"]["files"]["bin/tool"].endswith(" executable")
    assert hashes["overlay"]["files"]["link"] == "-> etc"


@pytest.mark.parametrize(
    "change",
    [lambda file: file.write_text("two"), lambda file: file.rename(f"{file}.old"), lambda file: file.chmod(0o755)],
    ids=["content", "name", "mode"],
)
def test_every_change_of_an_overlay_changes_its_hash(
    tmp_path: Path, image: Image, change: Callable[[Path], object]
) -> None:
    folder = laid(tmp_path / "mine", {"file": "one"})
    before = UnderTest(Builds(overlay=folder), image, RECIPE).hashes()["overlay"]["sha256"]
    change(folder / "file")
    assert UnderTest(Builds(overlay=folder), image, RECIPE).hashes()["overlay"]["sha256"] != before


# rdma-core


def rdma_core(root: Path, libraries: str, providers: str, bindings: str) -> Path:
    names = (
        f"{libraries}/libibverbs.so.1",
        f"{libraries}/libother.so",
        f"{providers}/librxe-rdmav65.so",
        f"{bindings}/pyverbs/device.cpython-314-x86_64-linux-gnu.so",
    )
    return laid(root, {name: name for name in names})


@pytest.mark.parametrize(
    ("libraries", "providers", "bindings"),
    [
        ("build/lib", "build/lib", "build/python"),
        ("lib", "lib/libibverbs", "lib/python3.14/site-packages"),
        ("lib64", "lib64/libibverbs", "lib64/python3.14/site-packages"),
        ("lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu/libibverbs", "lib/python3/dist-packages"),
    ],
)
def test_a_build_tree_and_every_usual_prefix_are_found(
    tmp_path: Path, libraries: str, providers: str, bindings: str
) -> None:
    found = find_rdma_core(rdma_core(tmp_path, libraries, providers, bindings))
    assert sorted(name for name, _ in found.files()) == [
        "lib/libibverbs.so.1",
        "lib/librxe-rdmav65.so",
        "python/pyverbs/device.cpython-314-x86_64-linux-gnu.so",
    ]
    place = Path("/opt/x")
    assert found.environment(place) == {"LD_LIBRARY_PATH": "/opt/x/lib", "RDMAV_DRIVERS": "/opt/x/lib/librxe"}
    assert found.environment() == {
        "LD_LIBRARY_PATH": str(tmp_path / libraries),
        "RDMAV_DRIVERS": str(tmp_path / providers / "librxe"),
    }


# The software that was really running


def note(name: bytes, kind: int, content: bytes) -> bytes:
    return struct.pack("=III", len(name), len(content), kind) + name + content


def test_kernel_modules_and_libraries_are_known_by_their_marks(tmp_path: Path) -> None:
    notes = note(b"Xen\0", 3, b"1234") + note(b"GNU\0", 1, b"1234") + note(b"GNU\0", 3, bytes(range(20)))
    files: dict[str, str | bytes] = {
        "kernel/notes": notes,
        "module/ib_core/notes/.note.gnu.build-id": note(b"GNU\0", 3, b"\xff" * 20),
        "module/ib_core/holders/rdma_rxe/x": "",
        "module/rdma_rxe/srcversion": "ABC\n",
        "module/rdma_rxe/taint": "OE\n",
        "module/other/srcversion": "ABC\n",
    }
    sys, lines = laid(tmp_path / "sys", files), []
    for name in ("libibverbs.so.1.18.65.0", "librxe-rdmav65.so", "libmlx5.so.1.27.65.0", "libc.so.6"):
        (tmp_path / name).write_bytes(b"")
        lines.append(f"7f00-7f01 r-xp 00000000 00:1c 17      {tmp_path / name}\n")
    (tmp_path / "maps").write_text("".join(lines) + "7f00-7f01 rw-p 00000000 00:00 0\n")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert under_test("rxe", sys, tmp_path / "maps") == {
        "kernel": {"build_id": bytes(range(20)).hex()},
        "modules": {"ib_core": {"build_id": "ff" * 20}, "rdma_rxe": {"srcversion": "ABC", "taint": "OE"}},
        "libraries": {"libibverbs.so.1.18.65.0": empty, "librxe-rdmav65.so": empty},
    }
    assert len(under_test("nameless", sys, tmp_path / "maps")["libraries"]) == 3
    assert suspects_of("rxe0", "rxe", sys) == ["ib_core", "ib_uverbs", "rxe0", "rxe", "rdma_rxe"]


def test_a_system_without_build_ids_is_not_an_error(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text("")
    assert under_test("rxe", tmp_path / "sys", tmp_path / "maps") == {"kernel": {}, "modules": {}, "libraries": {}}


# Builds that a running guest can load


def exchanged(tmp_path: Path, image: Image, **builds: Any) -> Exchange | None:
    return UnderTest(Builds(**builds), image, RECIPE).lay_out(tmp_path / "stage").exchange


def test_the_drivers_module_and_libraries_are_taken_over(tmp_path: Path, image: Image) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/rdma_rxe.ko").write_bytes(module())
    libraries = rdma_core(tmp_path / "core", "lib", "lib", "none")
    (libraries / "lib/librdmacm.so.1.3.65.0").write_bytes(b"")
    (libraries / "lib/librdmacm.so.1").symlink_to("librdmacm.so.1.3.65.0")
    found = exchanged(tmp_path, image, modules=tmp_path / "mine", rdma_core=libraries)
    assert found is not None
    assert found.module == f"/usr/lib/modules/{RELEASE}/updates/rdma_rxe.ko"
    assert found.files[found.module] == module()
    assert found.libraries == ["/opt/rdma-core/lib/libibverbs.so.1", "/opt/rdma-core/lib/librdmacm.so.1.3.65.0"]
    assert "/etc/libibverbs.d/rxe.driver" in found.files
    assert found.environment["RDMAV_DRIVERS"] == "/opt/rdma-core/lib/librxe"


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_guest_exchanges_the_module_of_its_own_driver(driver: Driver) -> None:
    text = "from fixtures.guest import exchange; print(exchange.DEVICE, exchange.MODULE)"
    environment = {"PATH": os.environ["PATH"], **driver.environment}
    told = subprocess.check_output([sys.executable, "-c", text], cwd=ROOT, env=environment, text=True)
    assert told.split() == [driver.device, driver.module]


@pytest.mark.parametrize(
    "builds",
    [
        lambda place: {"kernel": bzimage(place / "bzImage", RELEASE), "modules": tree(place / "mine")},
        lambda place: {"modules": tree(place / "mine")},
        lambda place: {"rdma_core": rdma_core(place / "core", "lib", "lib", "python")},
        lambda place: {"overlay": laid(place / "mine", {"file": ""})},
        lambda place: {},
    ],
    ids=["a kernel", "another module", "pyverbs", "an overlay", "nothing"],
)
def test_for_any_other_build_a_guest_is_booted(
    tmp_path: Path, image: Image, builds: Callable[[Path], dict[str, Path]]
) -> None:
    assert exchanged(tmp_path, image, **builds(tmp_path)) is None


def test_an_exchange_puts_files_and_variables_in_place_and_names_a_library_that_does_not_load(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    path = str(tmp_path / "deep/file")
    exchange.make(Exchange({path: b"\0content"}, environment={"COLOUR": "blue"}).packed())
    assert Path(path).read_bytes() == b"\0content"
    assert os.environ["COLOUR"] == "blue"
    with user_error(r"a library cannot be loaded: .*deep/file", status=3):
        exchange.make(Exchange({path: b""}, libraries=[path]).packed())


def test_a_module_that_does_not_load_is_one_line(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(exchange, "exchange", lambda path: f"{path.name}: Invalid argument")
    with pytest.raises(UserError, match=r"the driver's module cannot be exchanged: a\.ko: Invalid argument"):
        exchange.make(Exchange({str(tmp_path / "a.ko"): b""}, str(tmp_path / "a.ko")).packed())
