"""The builds that a running guest can load, and the places of their files."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from fixtures.guest import exchange
from fixtures.guest.driver import DRIVERS, Driver
from fixtures.guest.exchange import Exchange
from fixtures.guest.image import Image
from fixtures.guest.under_test import Builds, UnderTest
from test_under_test import RECIPE, RELEASE, bzimage, module, rdma_core, tree


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path / "vmlinuz", tmp_path / "initrd", tmp_path / "root", "digest", RELEASE, "digest")


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


@pytest.mark.parametrize("what", ["kernel", "another module", "pyverbs", "overlay", "nothing"])
def test_for_any_other_build_a_guest_is_booted(tmp_path: Path, image: Image, what: str) -> None:
    (tmp_path / "mine").mkdir()
    match what:
        case "kernel":
            builds = {"kernel": bzimage(tmp_path / "bzImage", RELEASE), "modules": tree(tmp_path / "mine")}
        case "another module":
            builds = {"modules": tree(tmp_path / "mine")}
        case "pyverbs":
            builds = {"rdma_core": rdma_core(tmp_path / "core", "lib", "lib", "python")}
        case "overlay":
            (tmp_path / "mine/file").touch()
            builds = {"overlay": tmp_path / "mine"}
        case _:
            builds = {}
    assert exchanged(tmp_path, image, **builds) is None


def test_an_exchange_puts_files_and_variables_in_place_and_names_a_library_that_does_not_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLOUR", "red")
    path = str(tmp_path / "deep/file")
    exchange.make(Exchange({path: b"\0content"}, environment={"COLOUR": "blue"}).packed())
    assert Path(path).read_bytes() == b"\0content"
    assert os.environ["COLOUR"] == "blue"
    with pytest.raises(UserError, match=r"a library cannot be loaded: .*deep/file") as caught:
        exchange.make(Exchange({path: b""}, libraries=[path]).packed())
    assert caught.value.status == 3


def test_a_module_that_does_not_load_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "exchange", lambda path: f"{path.name}: Invalid argument")
    with pytest.raises(UserError, match=r"the driver's module cannot be exchanged: a\.ko: Invalid argument"):
        exchange.make(Exchange({str(tmp_path / "a.ko"): b""}, str(tmp_path / "a.ko")).packed())
