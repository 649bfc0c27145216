"""Series of patches for git am, from trees with and without history. Git applies the series. Trees to which a change
does not apply are reported."""

from dataclasses import replace
from pathlib import Path

import pytest

import commands.patches
from commands.__main__ import main
from fixtures.guest.changes import Change, Edit
from kinds import Patch
from launched import git
from reports.kernel_log import trimmed
from samples import laid

DRIVER = "drivers/infiniband/sw/rxe"
FIRST = "int bind(void)\n{\n\treturn 0;\n}\n"
LATER = FIRST + "\nint check(int key)\n{\n\tif (key & 0xff)\n\t\treturn 1;\n\n\treturn 0;\n}\n"
CASE, WHOLE_KEY = (
    "bind_mw/type_1/part-from-buf",
    "bind_mw/rebinding/key-with-another-index-mw.rkey-+-0x100",
)
TO_CHECK = Edit("linux/rxe_mw.c", "check", "instead", "key & 0xff", "key")
TO_BIND = Edit("linux/rxe_mw.c", "bind", "instead", "return 0", "return 1")
TO_ADD = Edit("linux/rxe_mw.c", "", "above", "check", "int unbind;\n\n")
WHY = "The whole key is not compared. Compare it."
CHECK = Change(
    "check",
    WHY,
    ("BIND-20",),
    (),
    (TO_CHECK,),
    "0",
    "Compare the whole key",
    WHOLE_KEY,
    blame="check",
)
BIND = Change("bind", "Bind it.", ("BIND-17",), (), (TO_BIND,), "1", "Bind it", CASE, blame="bind")
LACKING = Change(
    "unbind",
    "Add it.",
    ("BIND-21",),
    (),
    (TO_ADD,),
    "2",
    "Add unbinding",
    CASE,
    feature=True,
)


def commit(tree: Path, text: str, subject: str, folder: str = DRIVER) -> None:
    laid(tree / folder, {"rxe_mw.c": text})
    if not (tree / ".git").exists():
        git(tree, "init", "-q")
    git(tree, "add", "--all")
    git(tree, "commit", "-q", "-m", subject)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A tree with three commits, and changes that fit it."""
    path = tmp_path / "tree"
    commit(path, "\n", "Begin")
    commit(path, FIRST, "RDMA/rxe: Add binding")
    commit(path, LATER, "RDMA/rxe: Add the check")
    monkeypatch.setattr(commands.patches, "read_changes", lambda: (BIND, CHECK, LACKING))
    return path


def patches(tree: Path, *more: str) -> int:
    return main(["patches", "--linux", str(tree), "--out", str(tree.parent / "out"), *more])


def made(tree: Path, series: str = "linux") -> list[Path]:
    return sorted((tree.parent / "out" / series).iterdir())


def test_git_am_applies_the_series_and_then_the_features(tree):
    assert patches(tree, "--features", "--signoff", "A Name <name@example.org>") == 0
    git(tree, "am", "--quiet", *map(str, made(tree)))
    assert (tree / DRIVER / "rxe_mw.c").read_text() == LATER.replace(
        "return 0",
        "return 1",
        1,
    ).replace(" & 0xff", "")
    git(tree, "am", "--quiet", *map(str, made(tree, "linux-features")))
    assert "int unbind;\n\nint check(" in (tree / DRIVER / "rxe_mw.c").read_text()
    assert git(tree, "log", "-3", "--format=%s|%an|%ae").splitlines() == [
        "RDMA/rxe: Add unbinding|A Name|name@example.org",
        "RDMA/rxe: Compare the whole key|A Name|name@example.org",
        "RDMA/rxe: Bind it|A Name|name@example.org",
    ]


def test_a_message_has_the_document_and_the_commit_at_fault_but_not_the_program(tree):
    assert patches(tree, "--signoff", "A Name <name@example.org>") == 0
    mail = made(tree)[1].read_text()
    fault = git(tree, "log", "-1", "--format=%H")[:12]
    assert (
        f'\nFixes: {fault} ("RDMA/rxe: Add the check")\nSigned-off-by: A Name <name@example.org>\n---\n'
        in mail
    )
    message, _, below = mail.partition("\n---\n")
    assert "The whole key is not compared. Compare it.\n" in message
    assert "(BIND-20 of rdma-cts):\n" in message
    assert "#include <infiniband/verbs.h>" in below
    assert "#include" not in message
    git(tree, "am", "--quiet", *map(str, made(tree)))
    assert "#include" not in git(tree, "log", "-1", "--format=%B")
    assert git(tree, "log", "-1", "--skip=1", "--format=%B").count("Fixes: ") == 1


def test_a_tree_without_history_has_the_same_patches_without_fixes(tree, tmp_path, capsys):
    bare = tmp_path / "bare" / "tree"
    laid(bare / DRIVER, {"rxe_mw.c": LATER})
    assert patches(bare) == 0
    assert capsys.readouterr().err == f"{bare} has no history: no Fixes: lines\n"
    assert "Fixes:" not in made(bare)[1].read_text()
    assert "Signed-off-by" not in made(bare)[0].read_text(), "only --signoff adds the line"
    git(tree, "am", "--quiet", *map(str, made(bare)))


def test_the_first_commit_of_a_history_is_not_named_in_fixes(tmp_path, tree, capsys):
    imported = tmp_path / "imported" / "tree"
    commit(imported, LATER, "Import")
    assert patches(imported) == 0
    assert capsys.readouterr().err == f"{imported} has a single commit: no Fixes: lines\n"
    cut = tmp_path / "cut" / "tree"
    git(tmp_path, "clone", "-q", "--depth=2", f"file://{tree}", str(cut))
    assert patches(cut) == 0
    assert ["Fixes:" in letter.read_text() for letter in made(cut)] == [False, True]


def test_a_commit_that_only_moves_the_driver_is_not_blamed(tree):
    old = tree.parent / "moved" / "tree"
    for text, subject in (("\n", "Begin"), (FIRST, "Add binding"), (LATER, "Add the check")):
        commit(old, text, subject, "staging")
    (old / DRIVER).mkdir(parents=True)
    git(old, "mv", "staging/rxe_mw.c", f"{DRIVER}/rxe_mw.c")
    git(old, "commit", "-q", "-m", "Move out of staging")
    assert patches(old) == 0
    assert ['("Add binding")' in letter.read_text() for letter in made(old)] == [True, False]
    assert '("Add the check")' in made(old)[1].read_text()


def test_a_tree_with_uncommitted_files_is_named_and_the_series_is_for_head(tree, capsys):
    laid(tree / DRIVER, {"rxe_mw.c": "int other;\n"})
    assert patches(tree) == 0
    assert (
        capsys.readouterr().err
        == f"{tree}: 1 files of {DRIVER} are not committed: the series is for HEAD\n"
    )
    assert len(made(tree)) == 2
    assert (tree / DRIVER / "rxe_mw.c").read_text() == "int other;\n"


def test_no_program_that_the_tree_names_is_started(tree, tmp_path):
    started = tmp_path / "started"
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {started}\ncat\n")
    program.chmod(0o755)
    laid(tree / DRIVER, {"rxe_mw.c": "int other;\n"})
    laid(tree / ".git" / "info", {"attributes": "* filter=made diff=made\n"})
    for name in (
        "core.fsmonitor",
        "diff.external",
        "diff.made.textconv",
        "filter.made.clean",
        "filter.made.smudge",
        "gpg.program",
    ):
        git(tree, "config", name, str(program))
    git(tree, "config", "log.showSignature", "true")
    assert patches(tree) == 0
    assert not started.exists()


def test_a_change_that_does_not_fit_is_named_and_left_out(tree, monkeypatch, capsys):
    monkeypatch.setattr(
        commands.patches,
        "read_changes",
        lambda: (BIND, replace(BIND, name="zap"), CHECK),
    )
    commit(tree, LATER.replace("key & 0xff", "key & 0xfe"), "Another version")
    assert patches(tree) == 0
    conflict, other = capsys.readouterr().err.splitlines()
    assert (
        "the change zap does not fit and is left out: another change replaces the same words"
        in conflict
    )
    occurs = "'key & 0xff' occurs 0 times in check of linux/rxe_mw.c, not once"
    assert other == f"{tree}: the change check does not fit and is left out: {occurs}"
    assert [path.name for path in made(tree)] == ["0001-RDMA-rxe-Bind-it.patch"]


def test_patches_fails_if_no_change_fits(tree, capsys):
    commit(tree, "int other;\n", "Another driver")
    assert patches(tree) == 2
    assert (
        capsys.readouterr().err.splitlines()[-1] == "rdma-cts: no change fits; see the lines above"
    )


def test_bad_input_is_reported(tree, capsys, monkeypatch):
    out = str(tree.parent / "out")
    (tree.parent / "empty").mkdir()
    assert patches(tree, "--signoff", "Name") == 2
    assert """--signoff 'Name': "Name <mail@host>" is expected""" in capsys.readouterr().err
    assert patches(tree, "--rdma-core", str(tree)) == 2
    assert (
        f"--rdma-core {tree}: there is no providers/rxe in it, so it is not"
        in capsys.readouterr().err
    )
    assert patches(tree) == 0
    assert patches(tree) == 2
    assert f"{out}/linux has files already" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(tree.parent / "empty"))
    assert patches(tree) == 3
    assert capsys.readouterr().err == "rdma-cts: git is not installed\n"


def test_an_oops_is_trimmed_to_its_certain_lines():
    log = [
        "[    1.000000] rxe0: qp#17 before",
        "[    2.000000] BUG: kernel NULL pointer dereference, address: 0000000000000160",
        "[    2.000001] #PF: supervisor read access in kernel mode",
        "[    2.000002] Oops: Oops: 0000 [#1] SMP NOPTI",
        "[    2.000003] RIP: 0010:__rxe_put+0x12/0x60 [rdma_rxe]",
        "[    2.000004] Code: dd eb eb 89 c2 eb d4",
        "[    2.000005] RAX: 00000000ffffffff RBX: ffff8e2ace88ee40",
        "[    2.000006] Call Trace:",
        "[    2.000007]  <TASK>",
        "[    2.000008]  rxe_invalidate_mw+0x9d/0x110 [rdma_rxe]",
        "[    2.000009]  ? hrtimer_start_range_ns+0x6e/0xf0",
        "[    2.000010]  do_work+0x74/0x220 [rdma_rxe]",
        "[    2.000011]  </TASK>",
        "[    2.000012] Modules linked in: rdma_rxe",
        "[    2.000013] RIP: 0010:__rxe_put+0x12/0x60 [rdma_rxe]",
    ]
    assert trimmed(log) == [
        "BUG: kernel NULL pointer dereference, address: 0000000000000160",
        "Oops: Oops: 0000 [#1] SMP NOPTI",
        "RIP: 0010:__rxe_put+0x12/0x60 [rdma_rxe]",
        "Call Trace:",
        " rxe_invalidate_mw+0x9d/0x110 [rdma_rxe]",
        " do_work+0x74/0x220 [rdma_rxe]",
    ]
    assert trimmed(log[:1]) == []
