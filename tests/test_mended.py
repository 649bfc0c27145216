"""Tests of the mended stack: one build for each set of changes, their names in reports, and the trial of changes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.model.kind import Kind
from fixtures.guest.changes import Change, Edit
from fixtures.guest.driver import driver_for
from fixtures.guest.image import Image
from fixtures.guest.mending import (
    EXPORTER_MODULE,
    Mended,
    chosen_changes,
    ensure_each,
    ensure_mended,
)
from fixtures.guest.recipe import recipe_for
from kinds import Patch
from launched import built_by, root_of
from reports import html, markdown, terminal
from reports.digest import digest
from samples import laid, numbered, recorded, result, user_error
from trial.kernel.modules import Modules
from trial.left_out import left_out, table
from trial.mended import SAMPLE, selected

KERNEL = "7.0-test"
RECIPE = recipe_for("forky-mended")
WHY = Change(
    "window",
    "why",
    ("BIND-10",),
    (),
    (Edit("linux/rxe_m.c", "", "after", "first", "more\n"),),
    "1" * 64,
)
PROVIDER = Change(
    "provider",
    "why",
    ("BIND-21",),
    (),
    (Edit("rdma-core/rxe.c", "", "after", "one", "two\n"),),
    "2" * 64,
)
LIBRARY = Change(
    "library",
    "why",
    ("BIND-21",),
    (),
    (Edit("libibverbs/memory.c", "", "after", "library", "new\n"),),
    "2" * 64,
)
MISFIT = Change(
    "misfit",
    "why",
    ("BIND-10",),
    (),
    (Edit("linux/rxe_m.c", "", "after", "gone", "x\n"),),
    "3" * 64,
)


class Workshop:
    """Stands in for mmdebstrap, its hook and the compilers. A compiled file has the text of its source."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = folder / "images" / "forky-0123" / "root.erofs"
        self.image = Image(folder / "vmlinuz", folder / "initrd", root, "0123", KERNEL)
        self.made, self.compiled, self.log = 0, 0, ""

    def mended(self, changes: Sequence[Change], say: Callable[[str], None] = print) -> Mended:
        return ensure_mended(changes, RECIPE, self.image, self.folder, say)

    def __call__(self, command: Sequence[str], log: Path) -> int:
        if "mmdebstrap" in command:
            self.made += 1
            drivers = dict.fromkeys(("rxe/rxe_m.c", "siw/siw_m.c"), "first\nlast\n")
            providers = dict.fromkeys(
                (f"rdma-core/providers/{name}/{name}.c" for name in ("rxe", "siw")),
                "one\n",
            )
            sources = {"rdma-core/libibverbs/memory.c": "library\n"}
            laid(root_of(command) / "source", {**drivers, **providers, **sources})
        else:
            system, _, folder, module = command[command.index("sh") + 2 :][:4]
            folder_made, root = Path(system + folder), Path(system) / "source"
            if module == EXPORTER_MODULE:
                (folder_made / f"{module}.ko").write_bytes(b"exporter")
                return 0
            self.compiled += 1
            (folder_made / f"{module}.ko").write_bytes(
                next(folder_made.glob("*_m*.c")).read_bytes()
            )
            if command[-4] == "rxe":
                compiled = (root / "rdma-core/providers/rxe/rxe.c").read_bytes()
                library = (root / "rdma-core/libibverbs/memory.c").read_bytes()
                names = {"librxe-rdmav65.so": compiled, "libibverbs.so.1.18.65.0": library}
                laid(root / "installed/lib", names)
        with log.open("a", encoding="utf-8") as sink:
            sink.write(self.log)
        return int(bool(self.log))


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: Patch) -> Workshop:
    fresh = Workshop(tmp_path)
    built_by(fresh, monkeypatch)
    return fresh


def test_module_and_provider_are_built_once_and_again_if_damaged(tmp_path, workshop):
    build = workshop.mended([WHY, PROVIDER])
    assert build.module.read_text() == "first\nmore\nlast\n"
    assert {name: path.read_text() for name, path in build.laid.items()} == {
        "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav65.so": "one\ntwo\n",
        "opt/rdma-cts/rdma_cts_exporter.ko": "exporter",
    }
    library = workshop.mended([WHY, LIBRARY]).laid
    assert (
        library["usr/lib/x86_64-linux-gnu/libibverbs.so.1.18.65.0"].read_text() == "library\nnew\n"
    )
    assert workshop.mended([WHY, PROVIDER]) == build
    assert workshop.made == 1
    build.module.write_bytes(b"something else")
    assert workshop.mended([WHY, PROVIDER]).module.read_bytes() != b"something else"
    assert (workshop.made, workshop.compiled) == (1, 3), "made again, or not compiled again"
    names = ["build-mended-forky.log", "mended", "workshop.lock", "workshops"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_modules_of_another_driver_are_compiled_in_the_same_workshop(tmp_path, workshop):
    change = Change(
        "mutant",
        "why",
        (),
        (),
        (Edit("linux/siw_m.c", "", "after", "first", "more\n"),),
        "4" * 64,
    )
    said: list[str] = []
    modules = Modules(RECIPE, workshop.image, tmp_path, driver_for("siw"), said.append)
    assert "building the workshop" in said[0]
    modules.begin([[change], [MISFIT]])
    assert modules.of([change]).read_text() == "first\nmore\nlast\n"
    assert modules.of([]).read_text() == "first\nlast\n", "the sources stayed changed"
    workshop.mended([WHY])
    assert (workshop.made, workshop.compiled) == (1, 3)


def test_several_sets_are_built_in_one_workshop_each_from_the_unchanged_sources(tmp_path, workshop):
    sets = [[WHY, PROVIDER], [PROVIDER], [WHY], []]
    builds = list(ensure_each(sets, RECIPE, workshop.image, tmp_path, print))
    assert (workshop.made, workshop.compiled) == (1, 4)
    assert [build.module.read_text() == "first\nlast\n" for build in builds] == [
        False,
        True,
        False,
        True,
    ]
    assert [len(build.laid) for build in builds] == [2, 2, 1, 1], (
        "a provider without changes was built"
    )


def test_a_change_that_does_not_fit_is_reported_in_one_line_and_the_others_are_built(workshop):
    # the stack is built in the first pass, and read from the cache in the second
    for _ in range(2):
        said: list[str] = []
        build = workshop.mended([MISFIT, WHY], said.append)
        line = "the change misfit does not fit and is left out: 'gone' occurs 0 times in linux/rxe_m.c, not once"
        assert said[-1] == line
        assert build.changes == {"window": "1" * 64}
        assert build.given()["changes_left_out"].keys() == {"misfit"}
    assert build.module.read_text() == "first\nmore\nlast\n"


def test_the_error_of_a_compiler_is_quoted(workshop, monkeypatch):
    def fails(command, log):
        if "mmdebstrap" not in command:
            workshop.log = (
                "rxe_m.c:3:1: error: unknown type name 'more'\nE: rxe could not be compiled\n"
            )
        return workshop(command, log)

    built_by(fails, monkeypatch)
    with user_error(
        r"could not be compiled: rxe_m.c:3:1: error: unknown type name",
        status=3,
    ) as caught:
        workshop.mended([WHY])
    assert "build-mended-forky.log" in caught.value.log


def test_if_the_mirror_has_another_kernel_the_message_names_the_image_to_remove(workshop):
    workshop.log = f"E: Unable to locate package linux-headers-{KERNEL}\n"
    with pytest.raises(
        UserError,
        match=r"no longer has the headers .* which the workshop needs",
    ) as caught:
        workshop.mended([WHY])
    assert "forky-0123" in caught.value.hint


def test_a_change_can_be_left_out():
    names = [change.name for change in chosen_changes(())]
    assert "window-bounds" in names
    assert [change.name for change in chosen_changes(("window-bounds",))] == [
        n for n in names if n != "window-bounds"
    ]


def test_the_headline_of_every_report_names_the_changes_of_the_stack(tmp_path):
    lines = [result(numbered(1).cases[0])]
    plain, changed = (
        digest(recorded(lines, under_test=under_test).shown(), tmp_path)
        for under_test in ({}, {"given": {"changes": {"window": "1" * 64, "provider": "2" * 64}}})
    )
    assert plain.environment.changed_stack == plain.summary.headline == ""
    line = "the stack under test was changed: 2 changes (window 11111111, provider 22222222)"
    assert changed.summary.headline.startswith(line)
    for text in (terminal.summary(changed, tmp_path), html.render([changed])):
        assert line in text
    assert "2 changes" in markdown.render([changed])


CASES = numbered(3 * SAMPLE).cases
IDS = [case.id for case in CASES]


def test_the_mended_trial_runs_violated_cases_their_rules_and_a_sample():
    shipped = {IDS[5]: result(CASES[5], "FAIL")}
    assert selected(["BIND-10"], CASES, shipped) == [IDS[5], IDS[SAMPLE], IDS[2 * SAMPLE]]
    assert selected(["REG-01"], CASES, shipped) == IDS


def test_the_mended_trial_runs_only_rows_of_the_exhaustive_tier():
    dear = [replace(case, tier="exhaustive") for case in CASES]
    assert selected(["REG-01"], [dear[0], replace(dear[1], kind=Kind.SWEEP)], {}) == [IDS[0]]
    assert selected(["BIND-10"], dear, {IDS[5]: result(CASES[5], "FAIL")}) == []


def test_only_the_rules_of_a_change_are_violated_if_it_is_left_out():
    results_before = {case.id: result(case) for case in CASES[:3]} | {
        IDS[3]: result(CASES[3], "FAIL")
    }
    without = [
        result(CASES[0], "FAIL"),
        result(CASES[1]),
        result(CASES[2], "UNSUPPORTED"),
        result(CASES[3], "FAIL"),
    ]
    problems = left_out("window-bounds", ["REG-01"], [], results_before, without)
    assert (problems.violated, problems.not_verified, problems.tried) == ((IDS[0],), (IDS[2],), 4)
    assert problems.outcome == "only its own"
    assert len(problems.defects) == 1
    assert "| window-bounds | REG-01 | 1 | 1 |" in table([problems])


def test_a_violation_of_other_rules_and_the_absence_of_violations_are_reported():
    results_before = {IDS[0]: result(CASES[0])}
    assert (
        left_out("a", ["BIND-10"], [], results_before, [result(CASES[0], "CRASH")]).outcome
        == "others as well"
    )
    assert (
        left_out("a", ["REG-01"], [], results_before, [result(CASES[0])]).outcome
        == "none: no case detects it"
    )


def test_the_changes_of_the_mended_stack_are_listed(cli):
    assert cli(0, "trial", "mended", "run", "--list").out
