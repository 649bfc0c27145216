"""Tests of the user's own builds: the files that are used, refusals, the overlay on the image, hashes, and the builds
that a running guest can load."""

import gzip
import lzma
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.kernel.build_ids import suspects_of, under_test
from conformance.tables.suite import ROOT
from fixtures.guest import exchange
from fixtures.guest.driver import DRIVERS
from fixtures.guest.exchange import Exchange
from fixtures.guest.image import Image
from fixtures.guest.kernel import release_of
from fixtures.guest.recipe import Recipe
from fixtures.guest.under_test import Builds, Prepared, UnderTest
from fixtures.system.digests import below
from fixtures.system.rdma_core import find_rdma_core
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
    text = f"depends={depends}\0vermagic={release} SMP mod_unload \0".encode()
    return b"\x7fELF".ljust(64, b"\0") + text


def tree(root: Path, release: str = RELEASE) -> Path:
    """Makes a tree of a kernel's modules like `make modules_install`."""
    modules = {f"kernel/{name}.ko": module(release, depends) for name, depends in NEEDED.items()}
    laid(root / "lib/modules" / release, {**modules, "modules.builtin": "kernel/udmabuf.ko\n"})
    return root


IMAGE = Image(Path("vmlinuz"), Path("initrd"), Path("root"), "digest", RELEASE, "digest")
MINE = "7.3.0-mine"


def own(**builds: Path) -> UnderTest:
    return UnderTest(Builds(**builds), IMAGE, RECIPE)  # type: ignore[arg-type]


def files_of(prepared: Prepared) -> list[str]:
    assert prepared.overlay is not None
    return [name for name, _ in below(prepared.overlay)]


def test_without_builds_the_image_is_what_is_under_test(tmp_path):
    assert own().hashes() == {"image": "digest"}
    assert own().lay_out(tmp_path / "stage").overlay is None


def test_the_release_of_a_kernel_is_read_from_its_file(tmp_path):
    assert release_of(bzimage(tmp_path / "bzImage", "7.3.0-mine")) == "7.3.0-mine"


@pytest.mark.parametrize("content", [b"", b"\x7fELF", bytes(0x400), bytes(0x202) + b"HdrS"])
def test_a_file_that_is_not_a_kernel_is_refused(tmp_path, content):
    (tmp_path / "vmlinux").write_bytes(content)
    with pytest.raises(UserError, match="not a bootable x86 kernel"):
        release_of(tmp_path / "vmlinux")


@pytest.mark.parametrize(
    "suffix, pack",
    [("", bytes), (".xz", lzma.compress), (".gz", gzip.compress)],
)
def test_a_single_module_replaces_that_of_the_image(tmp_path, suffix, pack):
    mine = own(modules=laid(tmp_path / "mine", {f"rdma_rxe.ko{suffix}": pack(module())}))
    prepared = mine.lay_out(tmp_path / "stage")
    assert files_of(prepared) == [f"usr/lib/modules/{RELEASE}/updates/rdma_rxe.ko"]
    assert prepared.prepare == "depmod -a\n"
    assert list(mine.hashes()["modules"]["files"]) == ["rdma_rxe.ko"]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    return bzimage(tmp_path / "bzImage", MINE)


def test_a_kernel_has_its_own_modules_and_initrd(tmp_path, kernel):
    mine = own(kernel=kernel, modules=tree(tmp_path / "mine", MINE))
    prepared = mine.lay_out(tmp_path / "stage")
    assert prepared.image.vmlinuz == kernel
    assert prepared.image.kernel_version == mine.hashes()["kernel"]["release"] == MINE
    assert b"virtio_blk" in prepared.image.initrd.read_bytes()
    assert {name.split(f"{MINE}/")[1] for name in files_of(prepared)} == {
        "kernel/rdma_rxe.ko",
        "kernel/ib_core.ko",
        "kernel/virtio_blk.ko",
        "modules.builtin",
    }


def test_with_an_empty_directory_of_modules_all_modules_are_built_in(tmp_path, kernel):
    prepared = own(kernel=kernel, modules=laid(tmp_path / "none", {})).lay_out(tmp_path / "stage")
    assert b"virtio_blk" not in prepared.image.initrd.read_bytes()
    assert prepared.prepare == "depmod -a\n", (
        "without depmod, modprobe does not find what is built in"
    )
    (builtin,) = (tmp_path / "stage").rglob("modules.builtin")
    assert builtin.read_text() == "kernel/virtio_blk.ko\nkernel/rdma_rxe.ko\n"


@pytest.mark.parametrize("built_in", [("virtio_blk",), ("ib_core",), ("virtio_blk", "ib_core")])
def test_built_in_modules_are_left_out_and_known_to_modprobe(tmp_path, kernel, built_in):
    modules = tree(tmp_path / "mine", MINE)
    folder = modules / "lib/modules" / MINE
    for name in built_in:
        (folder / "kernel" / f"{name}.ko").unlink()
    list_of_them = "".join(f"kernel/{name}.ko\n" for name in built_in)
    (folder / "modules.builtin").write_text(list_of_them)
    prepared = own(kernel=kernel, modules=modules).lay_out(tmp_path / "stage")
    assert (b"virtio_blk" in prepared.image.initrd.read_bytes()) is ("virtio_blk" not in built_in)
    assert {Path(name).stem for name in files_of(prepared) if name.endswith(".ko")} == {
        *NEEDED,
    }.difference(built_in)
    (carried,) = (tmp_path / "stage").rglob("modules.builtin")
    assert carried.read_text() == list_of_them


def test_of_a_tree_for_the_images_kernel_only_the_rdma_modules_are_used(tmp_path):
    modules = tree(tmp_path / "mine")
    laid(modules / "lib/modules" / RELEASE, {"kernel/of_no_use.ko": module()})
    assert sorted(own(modules=modules).hashes()["modules"]["files"]) == [
        "kernel/ib_core.ko",
        "kernel/rdma_rxe.ko",
    ]


def refused(**builds: Path) -> str:
    with pytest.raises(UserError) as caught:
        own(**builds)
    assert len(str(caught.value).splitlines()) == 1
    assert caught.value.status == 2
    return str(caught.value)


def test_builds_that_do_not_fit_are_refused_in_one_line(tmp_path, kernel):
    empty, no = laid(tmp_path / "empty", {}), tmp_path / "no"
    mine = laid(tmp_path / "mine", {"rdma_rxe.ko": module("6.1.0-other")})
    early = laid(tmp_path / "early", {"virtio_blk.ko": module()})
    other = laid(tmp_path / "other", {"udmabuf.ko": module(MINE)})
    assert "give the kernel's modules with --modules" in refused(kernel=kernel)
    assert "has no module (*.ko); give" in refused(modules=empty)
    assert "is for kernel 6.1.0-other, not for 7.2.0-image" in refused(modules=mine)
    assert "only together with --kernel" in refused(modules=early)
    assert "is not a kernel module" in refused(
        modules=laid(tmp_path / "text", {"rdma_rxe.ko": "no module at all"}),
    )
    module_file = module()
    table = len(module_file).to_bytes(8, "little") + bytes(10) + b"\x40\0\x01\0"
    cut_off = [module_file[:63], module_file[:40] + table + module_file[62:]]
    for number, content in enumerate(cut_off):
        folder = laid(tmp_path / f"cut-{number}", {"rdma_rxe.ko": content})
        assert "is not a whole kernel module" in refused(modules=folder)
    assert "is not a directory" in refused(modules=no)
    assert "is not a directory" in refused(overlay=kernel)
    assert "no libibverbs.so.1" in refused(rdma_core=empty)
    assert "has no module" in refused(kernel=kernel, modules=other)
    assert "has no module; give what" in refused(kernel=kernel, modules=laid(empty, {"README": ""}))


def test_an_overlay_is_laid_below_usr_where_the_image_has_a_link_of_the_merged_usr(tmp_path):
    names = (
        "lib/x86_64-linux-gnu/mine.so",
        "etc/ld.so.preload",
        "opt/tool/.git/config",
        "bin/tool",
    )
    folder = laid(tmp_path / "mine", dict.fromkeys(names, "#!/bin/sh\n"))
    (folder / "bin/tool").chmod(0o755)
    (folder / "link").symlink_to("etc")
    overlay = own(overlay=folder)
    assert files_of(overlay.lay_out(tmp_path / "stage")) == [
        "etc/ld.so.preload",
        "link",
        "opt/tool/.git/config",
        "usr/bin/tool",
        "usr/lib/x86_64-linux-gnu/mine.so",
    ]
    hashes = overlay.hashes()["overlay"]["files"]
    assert hashes["bin/tool"].endswith(" executable")
    assert hashes["link"] == "-> etc"


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_text("two"),
        lambda file: file.rename(f"{file}.old"),
        lambda file: file.chmod(0o755),
    ],
    ids=["content", "name", "mode"],
)
def test_every_change_of_an_overlay_changes_its_hash(tmp_path, change):
    folder = laid(tmp_path / "mine", {"file": "one"})
    before = own(overlay=folder).hashes()["overlay"]["sha256"]
    change(folder / "file")
    assert own(overlay=folder).hashes()["overlay"]["sha256"] != before


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
    "libraries, providers, bindings",
    [
        ("build/lib", "build/lib", "build/python"),
        ("lib", "lib/libibverbs", "lib/python3.14/site-packages"),
        ("lib64", "lib64/libibverbs", "lib64/python3.14/site-packages"),
        ("lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu/libibverbs", "lib/python3/dist-packages"),
    ],
)
def test_a_build_tree_and_every_usual_prefix_are_found(tmp_path, libraries, providers, bindings):
    build = find_rdma_core(rdma_core(tmp_path, libraries, providers, bindings))
    assert sorted(name for name, _ in build.files()) == [
        "lib/libibverbs.so.1",
        "lib/librxe-rdmav65.so",
        "python/pyverbs/device.cpython-314-x86_64-linux-gnu.so",
    ]
    place = Path("/opt/x")
    assert build.environment(place) == {
        "LD_LIBRARY_PATH": "/opt/x/lib",
        "RDMAV_DRIVERS": "/opt/x/lib/librxe",
    }
    assert build.environment() == {
        "LD_LIBRARY_PATH": str(tmp_path / libraries),
        "RDMAV_DRIVERS": str(tmp_path / providers / "librxe"),
    }


# The software that was running


def note(name: bytes, kind: int, content: bytes) -> bytes:
    return struct.pack("=III", len(name), len(content), kind) + name + content


def test_kernel_modules_and_libraries_are_identified_by_their_marks(tmp_path):
    notes = (
        note(b"Xen\0", 3, b"1234")
        + note(b"GNU\0", 1, b"1234")
        + note(b"GNU\0", 3, bytes(range(20)))
    )
    files: dict[str, str | bytes] = {
        "kernel/notes": notes,
        "module/ib_core/notes/.note.gnu.build-id": note(b"GNU\0", 3, b"\xff" * 20),
        "module/ib_core/holders/rdma_rxe/x": "",
        "module/rdma_rxe/srcversion": "ABC\n",
        "module/rdma_rxe/taint": "OE\n",
        "module/other/srcversion": "ABC\n",
    }
    libraries = (
        "libibverbs.so.1.18.65.0",
        "librxe-rdmav65.so",
        "libmlx5.so.1.27.65.0",
        "libc.so.6",
    )
    lines = [f"7f00-7f01 r-xp 00000000 00:1c 17      {tmp_path / name}\n" for name in libraries]
    sys = laid(tmp_path / "sys", files)
    laid(
        tmp_path,
        {
            **dict.fromkeys(libraries, ""),
            "maps": "".join(lines) + "7f00-7f01 rw-p 00000000 00:00 0\n",
        },
    )
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert under_test("rxe", sys, tmp_path / "maps") == {
        "kernel": {"build_id": bytes(range(20)).hex()},
        "modules": {
            "ib_core": {"build_id": "ff" * 20},
            "rdma_rxe": {"srcversion": "ABC", "taint": "OE"},
        },
        "libraries": {"libibverbs.so.1.18.65.0": empty, "librxe-rdmav65.so": empty},
    }
    assert len(under_test("nameless", sys, tmp_path / "maps")["libraries"]) == 3
    assert suspects_of("rxe0", "rxe", sys) == ["ib_core", "ib_uverbs", "rxe0", "rxe", "rdma_rxe"]


def test_a_system_without_build_ids_is_not_an_error(tmp_path):
    (tmp_path / "maps").write_text("")
    assert under_test("rxe", tmp_path / "sys", tmp_path / "maps") == {
        "kernel": {},
        "modules": {},
        "libraries": {},
    }


# Builds that a running guest can load


def test_a_running_guest_can_exchange_the_drivers_module_and_libraries(tmp_path):
    modules = laid(tmp_path / "mine", {"rdma_rxe.ko": module()})
    libraries = rdma_core(tmp_path / "core", "lib", "lib", "none")
    laid(libraries, {"lib/librdmacm.so.1.3.65.0": ""})
    (libraries / "lib/librdmacm.so.1").symlink_to("librdmacm.so.1.3.65.0")
    exchange = own(modules=modules, rdma_core=libraries).lay_out(tmp_path / "stage").exchange
    assert exchange is not None
    assert exchange.module == f"/usr/lib/modules/{RELEASE}/updates/rdma_rxe.ko"
    assert exchange.files[exchange.module] == module()
    assert exchange.libraries == [
        "/opt/rdma-core/lib/libibverbs.so.1",
        "/opt/rdma-core/lib/librdmacm.so.1.3.65.0",
    ]
    assert "/etc/libibverbs.d/rxe.driver" in exchange.files
    assert exchange.environment["RDMAV_DRIVERS"] == "/opt/rdma-core/lib/librxe"


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
def test_a_guest_exchanges_the_module_of_its_own_driver(driver):
    text = "from fixtures.guest import exchange; print(exchange.DEVICE, exchange.MODULE)"
    environment = {"PATH": os.environ["PATH"], **driver.environment}
    output = subprocess.check_output(
        [sys.executable, "-c", text],
        cwd=ROOT,
        env=environment,
        text=True,
    )
    assert output.split() == [driver.device, driver.module]


@pytest.mark.parametrize(
    "builds",
    [
        lambda place: {
            "kernel": bzimage(place / "bzImage", RELEASE),
            "modules": tree(place / "mine"),
        },
        lambda place: {"modules": tree(place / "mine")},
        lambda place: {"rdma_core": rdma_core(place / "core", "lib", "lib", "python")},
        lambda place: {"overlay": laid(place / "mine", {"file": ""})},
        lambda place: {},
    ],
    ids=["a kernel", "another module", "pyverbs", "an overlay", "nothing"],
)
def test_a_running_guest_cannot_load_any_other_build(tmp_path, builds):
    assert own(**builds(tmp_path)).lay_out(tmp_path / "stage").exchange is None


def test_an_exchange_puts_files_and_variables_in_place_and_names_a_library_that_does_not_load(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("COLOUR", "red")
    path = str(tmp_path / "deep/file")
    exchange.make(Exchange({path: b"\0content"}, environment={"COLOUR": "blue"}).packed())
    assert Path(path).read_bytes() == b"\0content"
    assert os.environ["COLOUR"] == "blue"
    with user_error(r"a library cannot be loaded: .*deep/file", status=3):
        exchange.make(Exchange({path: b""}, libraries=[path]).packed())


def test_a_module_that_does_not_load_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(exchange, "exchange", lambda path: f"{path.name}: Invalid argument")
    with pytest.raises(
        UserError,
        match=r"the driver's module cannot be exchanged: a\.ko: Invalid argument",
    ):
        exchange.make(Exchange({str(tmp_path / "a.ko"): b""}, str(tmp_path / "a.ko")).packed())
