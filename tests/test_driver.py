"""Tests of the modules for the guest's drivers, which are compiled once for each kernel."""

import dataclasses
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from fixtures.guest import driver_module, once
from fixtures.guest.build import Progress
from fixtures.guest.driver import DRIVERS
from fixtures.guest.driver_module import ensure_module, module_of
from fixtures.guest.image import Image
from fixtures.guest.kept import MODULES
from fixtures.guest.recipe import SCRIPTS, STACKS, Recipe, recipe_for
from launched import built_by, root_of
from samples import laid, user_error

SIW = DRIVERS["siw"]
KERNEL = "7.0-test"
FORKY = recipe_for()


@dataclasses.dataclass
class Compiler:
    """Stands in for mmdebstrap and its hook: counts its calls; writes the module, or fails with the output `log`."""

    count: int = 0
    log: str = ""
    started: threading.Event = dataclasses.field(default_factory=threading.Event)
    may_end: threading.Event = dataclasses.field(default_factory=threading.Event)

    def __call__(self, command: Sequence[str], log: Path) -> int:
        self.count += 1
        self.started.set()
        assert self.may_end.wait(30)
        log.write_text(self.log, encoding="utf-8")
        if self.log:
            return 1
        laid(root_of(command) / "made", {"siw.ko": b"\x7fELF module"})
        return 0


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    stand_in = Compiler()
    stand_in.may_end.set()
    built_by(stand_in, monkeypatch)
    return stand_in


def module(folder: Path, recipe: Recipe = FORKY, say: Progress = print) -> Path:
    root = folder / "images" / "forky-0123" / "root.erofs"
    image = Image(folder / "vmlinuz", folder / "initrd", root, "0123", KERNEL, "0123")
    return ensure_module(SIW, recipe, image, folder, say)


def test_a_module_is_compiled_once_and_again_when_it_is_damaged(tmp_path, compiler):
    module_file = module(tmp_path)
    assert module_file.read_bytes() == b"\x7fELF module"
    assert module(tmp_path) == module_file
    assert compiler.count == 1
    module_file.write_bytes(b"something else")
    assert module(tmp_path).read_bytes() == b"\x7fELF module"
    assert compiler.count == 2
    assert [path.name for path in (tmp_path / "modules").iterdir()] == [module_file.parent.name], (
        "the damaged module remains"
    )


def test_only_the_latest_versions_are_kept(tmp_path, compiler):
    for number in range(MODULES.most + 2):
        recipe = dataclasses.replace(FORKY, mirror=f"http://{number}.example/debian")
        latest = module(tmp_path, recipe)
    assert len(list((tmp_path / "modules").iterdir())) == MODULES.most
    assert latest.exists()


def test_two_runs_at_once_compile_a_module_once(tmp_path, compiler):
    compiler.may_end.clear()
    waiting = threading.Event()
    says: list[Progress] = [print, lambda text: waiting.set()]
    first, second = (threading.Thread(target=module, args=(tmp_path, FORKY, say)) for say in says)
    first.start()
    assert compiler.started.wait(30)
    second.start()
    assert waiting.wait(30), "the second run does not say that it waits"
    compiler.may_end.set()
    first.join()
    second.join()
    assert compiler.count == 1


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(Recipe(), suite="sid"),
        dataclasses.replace(Recipe(), kernel_suite="sid"),
        dataclasses.replace(Recipe(), mirror="http://mirror.example/debian"),
    ],
)
def test_every_input_of_a_module_changes_its_digest(other, monkeypatch):
    of_another = dataclasses.replace(SIW, option="CONFIG_OTHER")
    inputs = (
        (SIW, Recipe(), KERNEL),
        (SIW, other, KERNEL),
        (SIW, Recipe(), "7.1"),
        (of_another, Recipe(), KERNEL),
    )
    digests = {once.digest(module_of(*input)) for input in inputs}
    monkeypatch.setattr(driver_module, "_SCRIPT", SCRIPTS / "init.sh")
    assert len({*digests, once.digest(module_of(SIW, Recipe(), KERNEL))}) == len(inputs) + 1


@pytest.mark.parametrize("stack", STACKS)
def test_a_module_is_made_from_the_suites_of_its_stack(stack, tmp_path, compiler):
    recipe = dataclasses.replace(recipe_for(stack), mirror="http://mirror.example/debian")
    command = module_of(SIW, recipe, KERNEL).command(tmp_path / "root")
    assert f"--include=make,xz-utils,linux-headers-{KERNEL}" in command
    assert recipe.suite in command
    assert any(recipe.kernel_suite in word for word in command)


@pytest.mark.parametrize(
    "log, message",
    [
        (
            f"E: Unable to locate package linux-headers-{KERNEL}\n",
            f"no longer has the headers of .* kernel {KERNEL}",
        ),
        ("E: Failed to fetch http://x  Could not connect to x:80\n", "downloading Debian packages"),
        (
            "E: drivers/infiniband/sw/siw could not be compiled\n",
            "drivers/infiniband/sw/siw could not be compiled",
        ),
    ],
)
def test_the_reason_why_a_module_cannot_be_made_is_one_line(log, message, tmp_path, compiler):
    compiler.log = log
    with user_error(message, status=3) as caught:
        module(tmp_path)
    assert "\n" not in str(caught.value)
    assert Path(caught.value.log).read_text(encoding="utf-8") == log
    assert list((tmp_path / "modules").iterdir()) == []
