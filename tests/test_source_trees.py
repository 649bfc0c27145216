"""Tests of source trees of Linux and rdma-core: which files are copied and compiled, and the messages about errors."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from commands.cli.run_arguments import recorded_options
from conformance.device.limits import can_fail
from conformance.model.deadline import CASE_DEADLINE_S
from conformance.results.records import read_written
from conformance.run_options import RunOptions
from conformance.tables.suite import load_suite
from fixtures.guest.driver import DRIVERS
from fixtures.guest.image import Image
from fixtures.guest.recipe import recipe_for
from fixtures.guest.source_trees import Compiled, compile_driver, compile_rdma_core, follow
from fixtures.guest.under_test import SLOWER, Builds, instrumented
from fixtures.targets import builds
from fixtures.targets.target import with_target
from kinds import Patch
from launched import built_by, git, root_of
from recorded_reference import record
from samples import laid, user_error
from trial.reference.device import Device
from trial.reference.stack import STACKS as SIMULATED

RECIPE = recipe_for()
RXE = "drivers/infiniband/sw/rxe"


class Compilers:
    """Trees to compile, and a replacement for mmdebstrap and the compilers, which copies the sources to its output."""

    def __init__(self, folder: Path) -> None:
        self.said = ""
        self.cache = folder / "cache"
        self.image = Image(
            folder / "vmlinuz",
            folder / "initrd",
            folder / "images/forky-0/root",
            "0",
            "7.2.1-test",
        )
        # A tree in which the driver was already built, and a tree that contains a build.
        driver = ("rxe.c", "rxe.h", "Makefile", "rxe.o", "rdma_rxe.mod.c", ".rxe.o.cmd")
        files = {
            "Makefile": "VERSION = 7\nPATCHLEVEL = 1\n",
            "include/uapi/rdma/rdma_user_rxe.h": "abi",
        }
        self.linux = laid(folder / "linux", {**files, **{f"{RXE}/{name}": name for name in driver}})
        core = "CMakeLists.txt libibverbs/x.c providers/rxe.c .git/config build/CMakeCache.txt build/x.o"
        self.rdma_core = laid(folder / "rdma-core", {name: name for name in core.split()})

    def driver(self) -> Compiled:
        return compile_driver(self.linux, DRIVERS["rxe"], RECIPE, self.image, self.cache, print)

    def __call__(self, command: Sequence[str], log: Path) -> int:
        if "mmdebstrap" in command:
            folders = "rxe siw rdma-core/libibverbs rdma-core/providers/rxe rdma-core/providers/siw"
            laid(root_of(command) / "source", {f"{name}/x": "" for name in folders.split()})
            return 0
        with log.open("a", encoding="utf-8") as sink:
            sink.write(self.said)
        trees = Path(command[command.index("sh") + 2]) / "source/trees"
        if "rdma-core" in command:
            text = (trees / "rdma-core/providers/rxe.c").read_bytes()
            names = (
                "libibverbs.so.1.18.65.0",
                "librxe-rdmav65.so",
                "libibverbs.so",
                "libmlx5.so.1",
            )
            laid(trees / "build/lib", dict.fromkeys(names, text))
            (trees / "build/lib/libibverbs.so.1").symlink_to("libibverbs.so.1.18.65.0")
        else:
            (trees / "rxe/rdma_rxe.ko").write_bytes((trees / "rxe/rxe.c").read_bytes())
        return int(bool(self.said))


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: Patch) -> Compilers:
    stand_in = Compilers(tmp_path)
    built_by(stand_in, monkeypatch)
    return stand_in


def state(tree: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_mtime_ns) for path in [tree, *tree.rglob("*")])


def test_the_driver_is_compiled_only_from_its_sources_and_the_tree_is_unchanged(compilers):
    before = state(compilers.linux)
    module = compilers.driver()
    assert (module.folder / "rdma_rxe.ko").read_text() == "rxe.c"
    (copy,) = (compilers.cache / "workshops").glob("*/root/source/trees/rxe")
    assert sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()) == [
        ".copied.json",
        "Makefile",
        "abi/rdma/rdma_user_rxe.h",
        "abi/uapi/rdma/rdma_user_rxe.h",
        "rdma_rxe.ko",
        "rxe.c",
        "rxe.h",
    ]
    assert state(compilers.linux) == before
    (compilers.linux / RXE / "rxe.c").write_text("edited")
    other = compilers.driver()
    assert (other.folder / "rdma_rxe.ko").read_text() == "edited"
    assert (module.folder / "rdma_rxe.ko").read_text() == "rxe.c", (
        "a compilation has changed files that a run may use"
    )
    assert module.source["sha256"] != other.source["sha256"]


def test_only_libraries_that_the_guest_needs_are_kept_of_rdma_core(compilers):
    before = state(compilers.rdma_core)
    files = compile_rdma_core(compilers.rdma_core, RECIPE, compilers.image, compilers.cache, print)
    names = ["libibverbs.so.1", "libibverbs.so.1.18.65.0", "librxe-rdmav65.so"]
    assert sorted(path.name for path in (files.folder / "lib").iterdir()) == names
    assert (files.folder / "lib/libibverbs.so.1").is_symlink(), (
        "not a link to the file whose name has the version"
    )
    (copy,) = (compilers.cache / "workshops").glob("*/root/source/trees/rdma-core")
    copied = json.loads((copy / ".copied.json").read_text())
    assert sorted(copied) == ["CMakeLists.txt", "libibverbs/x.c", "providers/rxe.c"]
    assert state(compilers.rdma_core) == before


def test_a_compile_error_is_reported_in_one_line_with_place_and_versions(compilers):
    compilers.said = "make[1]: Entering\n/source/trees/rxe/rxe.c:3:1: error: unknown type name 'more'\nmore of it\n"
    linux = compilers.linux
    what = f"--linux {linux}: rxe, of Linux 7.1 with the headers of 7.2, could not be compiled: "
    with user_error(
        f"^{what}{linux / RXE}/rxe.c:3:1: error: unknown type name 'more'(;|$)",
        status=2,
    ):
        compilers.driver()


def test_a_commit_is_recorded_only_if_the_tree_is_a_repository(compilers):
    for folder, keys in (
        (compilers.linux.parent, {"sha256"}),
        (compilers.linux, {"sha256", "commit"}),
    ):
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", "all")
        assert set(compilers.driver().source) == keys


def test_files_that_differ_from_the_commit_are_counted_where_they_are_compiled(compilers):
    tree = compilers.linux
    git(tree, "init", "-q")
    git(tree, "add", "--all")
    git(tree, "commit", "-q", "-m", "all")
    laid(tree, {"Makefile": "VERSION = 8\n", f"{RXE}/rxe_new.c": ""})
    assert "uncommitted" not in compilers.driver().source
    laid(tree, {f"{RXE}/rxe.c": "changed"})
    (tree / RXE / "rxe.h").unlink()
    assert compilers.driver().source["uncommitted"] == 2


def test_a_copy_follows_its_tree_and_changed_files_get_the_present_time(tmp_path):
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    laid(tree, {"a": "1", "b": "1", "c/d": "1"})

    def files() -> dict[str, Path]:
        return {str(path.relative_to(tree)): path for path in tree.rglob("*") if path.is_file()}

    first = follow(files(), copy)
    (copy / "a.o").write_text("compiled")
    for name in ("a", "b"):
        os.utime(copy / name, (5, 5))
    laid(tree, {"a": "2"})
    os.utime(tree / "a", (1, 1))  # the file has the time of an older commit
    (tree / "c/d").unlink()
    (tree / "c").rmdir()
    laid(tree, {"c": "a file by now"})
    assert follow(files(), copy) != first
    assert (copy / "a").read_text() == "2"
    assert (copy / "a").stat().st_mtime > 5
    assert (copy / "b").stat().st_mtime == 5
    assert (copy / "c").read_text() == "a file by now"
    assert (copy / "a.o").exists()


def test_a_tree_of_rdma_core_is_compiled_and_a_build_is_used_as_it_is(compilers):
    rdma_core = compilers.rdma_core
    tree = RunOptions(guest=True, rdma_core=rdma_core)
    assert builds.rdma_core_tree(tree) == rdma_core
    assert builds.builds_from(tree).rdma_core is None
    options = RunOptions(guest=True, rdma_core=rdma_core / "build")
    assert builds.rdma_core_tree(options) is None
    assert builds.builds_from(options).rdma_core == rdma_core / "build"


# The instrumented stack: its kernel is built once, and can fail the allocations of a call


STACK = "forky-instrumented"
RELEASE = "7.2.12-instrumented"


def test_the_instrumented_kernel_is_built_once_and_booted_with_its_modules(tmp_path, monkeypatch):
    commands: list[Sequence[str]] = []

    def make(command: Sequence[str], log: Path) -> int:
        commands.append(command)
        builtin = {f"lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/net/veth.ko\n"}
        laid(root_of(command) / "made", {**builtin, "bzImage": "kernel"})
        return 0

    built_by(make, monkeypatch)
    image = Image(
        tmp_path / "vmlinuz",
        tmp_path / "initrd",
        tmp_path / "root.erofs",
        "0123",
        "7.2.12-amd64",
    )
    builds = Builds(overlay=tmp_path)
    kernel_build = instrumented(builds, recipe_for(STACK), image, tmp_path, print)
    assert kernel_build.kernel
    kernel_build.kernel.with_name("accelerator").write_text(
        "what a run has found out about this kernel"
    )
    assert instrumented(builds, recipe_for(STACK), image, tmp_path, print) == kernel_build
    assert len(commands) == 1
    assert "CONFIG_KASAN=y" in " ".join(commands[0])
    assert (kernel_build.overlay, kernel_build.rdma_core) == (tmp_path, None)
    assert kernel_build.kernel.read_bytes() == b"kernel"
    assert kernel_build.modules
    assert (kernel_build.modules / "lib/modules" / RELEASE / "modules.builtin").exists()


def test_cases_on_the_instrumented_stack_have_more_time_by_default():
    options = RunOptions(guest=True, stack=STACK)
    assert with_target(options).deadline == CASE_DEADLINE_S * SLOWER
    assert with_target(RunOptions(guest=True, stack=STACK, deadline=7)).deadline == 7
    assert with_target(RunOptions(guest=True)).deadline is None


def test_the_default_deadline_keeps_its_value_if_it_is_given():
    arguments = ["--guest", "--stack", STACK, "--deadline", f"{CASE_DEADLINE_S:g}"]
    options = recorded_options(arguments, Path("plan.json"))
    assert with_target(options).deadline == CASE_DEADLINE_S
    assert with_target(options).arguments() == arguments
    assert "--rdma-deadline" in options.plugin_arguments()


def test_allocations_can_fail_only_if_fault_injection_includes_those_that_may_wait(tmp_path):
    assert not can_fail(tmp_path)
    laid(
        tmp_path,
        dict.fromkeys(("failslab/ignore-gfp-wait", "fail_page_alloc/ignore-gfp-wait"), "N\n"),
    )
    assert can_fail(tmp_path)
    laid(tmp_path, {"failslab/ignore-gfp-wait": "Y\n"})
    assert not can_fail(tmp_path)


class PageFaults(Device):
    """A device on which a page fault of the process uses up the injected failure during the first call."""

    def setup(self) -> None:
        super().setup()
        self.faults = 1

    def allocate(self) -> None:
        if self.allocations_left and self.faults:
            self.faults, self.allocations_left = 0, 0
        super().allocate()


@pytest.mark.parametrize("device", [Device, PageFaults])
@pytest.mark.parametrize(
    "name",
    [
        "advise_mr/codes/out-of-memory@uverbs",
        "alloc_mw/allocation/lack-of-memory-for-type-1",
        "reg_mr/registration/failure-for-lack-of-memory-local-write",
    ],
)
def test_a_call_is_repeated_until_each_allocation_has_failed(name, device, tmp_path):
    (stack,) = [failure for failure in SIMULATED if failure.reach("failing_allocations")]
    suite = load_suite()
    record(tmp_path, suite, [case for case in suite.cases if case.id == name], device(stack))
    (seen,) = read_written(tmp_path).results
    assert seen["verdict"] == "PASS"
    assert "ENOMEM" in seen["reason"]
