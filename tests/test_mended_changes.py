"""Tests of the project's changes to the driver's sources: changes that fit, changes that do not fit, and the form of
their files."""

import re

import pytest

from conformance.tables.suite import load_suite
from fixtures.guest.changes import Change, Edit, apply, read_changes
from samples import laid, user_error

FILE = "linux/rxe_mw.c"
SOURCE = """\
#include "rxe.h"

static int check(struct qp *qp);

struct window {
	int state;
};

static int check(struct qp *qp)
{
	if (qp->state)
		return 1;
	/* the end */
	return 0;
}

/* Binds.
 * Twice.
 */
int bind(struct qp *qp,
	int flags)
{
	/* the end */
	return check(qp);
}
"""


def change(*edits: Edit, name: str = "sample") -> Change:
    return Change(name, "why", ("BIND-10",), (), edits, "0" * 64)


def applied(*edits: Edit) -> str:
    changed, misfits = apply([change(*edits)], {FILE: SOURCE})
    assert misfits == {}
    return changed[FILE]


@pytest.mark.parametrize(
    "edit, text",
    [
        (
            Edit(FILE, "check", "before", "/* the end */", "\tone();\n"),
            "\treturn 1;\n\tone();\n\t/* the end */\n",
        ),
        (
            Edit(FILE, "check", "after", "/* the end */", "\ttwo();\n\n"),
            "\t/* the end */\n\ttwo();\n\n\treturn 0;",
        ),
        (Edit(FILE, "check", "instead", "qp->state", "!qp->state"), "\tif (!qp->state)\n"),
        (
            Edit(FILE, "", "above", "check", "static int helper(void);\n\n"),
            "static int check(struct qp *qp);\n\nstruct window {\n\tint state;\n};\n\n"
            "static int helper(void);\n\nstatic int check(struct qp *qp)\n{",
        ),
        (
            Edit(FILE, "", "above", "bind", "int f;\n\n"),
            "}\n\nint f;\n\n/* Binds.\n * Twice.\n */\nint bind(",
        ),
        (
            Edit(FILE, "struct window {", "before", "int state;", "\tint more;\n"),
            "\tint more;\n\tint state;\n",
        ),
        (
            Edit(FILE, "bind", "instead", "int flags", "long flags"),
            "int bind(struct qp *qp,\n\tlong flags)",
        ),
        (
            Edit(FILE, "check", "lines", "if (qp->state)", "", until="/* the end */"),
            "{\n\t/* the end */\n\treturn 0;",
        ),
        (
            Edit(
                FILE,
                "check",
                "lines",
                "/* the end */",
                "\t/* the end */\n\tlast();\n",
                until="return 0",
            ),
            "\treturn 1;\n\t/* the end */\n\tlast();\n\treturn 0;",
        ),
        (
            Edit(FILE, "", "instead", "/* the end */", "/* over */", past="int flags"),
            "int flags)\n{\n\t/* over */\n\treturn check(qp);",
        ),
    ],
    ids="before,after,words,above a definition,above a comment,structure,signature,lines,a line,past words".split(
        ",",
    ),
)
def test_an_edit_changes_one_place_and_is_not_applied_twice(edit, text):
    changed = applied(edit)
    assert text in changed
    assert changed.count(edit.text or text) == 1, "the same words in another function were changed"
    again, misfits = apply([change(edit)], {FILE: changed})
    assert again == {FILE: changed}
    assert (" already has " in misfits["sample"]) is (edit.anchor in text)


@pytest.mark.parametrize(
    "before, after, stays",
    [("Copy a", "Do copy a", True), ("\t", "\t\t", False)],
)
def test_only_the_edits_determine_the_identity_of_a_change(before, after, stays, tmp_path):
    texts = "subject: Copy a word\nabout: It is lost.\nrules: [BIND-10]\ncase: x\nedits:\n"
    edits = '  - {file: linux/rxe_mw.c, before: first, text: "\tone();"}\n'
    path = tmp_path / "sample.yaml"
    hashes = []
    for text in (texts + edits, (texts + edits).replace(before, after)):
        path.write_text(text)
        hashes += [change.sha256 for change in read_changes(tmp_path)]
    assert (hashes[0] == hashes[1]) is stays


def test_changes_at_one_place_are_applied_in_their_order():
    first_change = change(Edit(FILE, "check", "before", "/* the end */", "\tone();\n"), name="one")
    two = change(Edit(FILE, "check", "before", "/* the end */", "\ttwo();\n"), name="two")
    assert (
        "\tone();\n\ttwo();\n\t/* the end */" in apply([first_change, two], {FILE: SOURCE})[0][FILE]
    )


@pytest.mark.parametrize(
    "edit, reason",
    [
        (
            Edit(FILE, "check", "before", "no such words", ""),
            "'no such words' occurs 0 times in check of linux/",
        ),
        (
            Edit(FILE, "", "before", "/* the end */", ""),
            "'/* the end */' occurs 2 times in linux/rxe_mw.c, not once",
        ),
        (
            Edit(FILE, "unbind", "before", "return", ""),
            "'unbind' is defined 0 times in linux/rxe_mw.c, not once",
        ),
        (Edit("linux/rxe_odp.c", "", "before", "x", ""), "there is no file linux/rxe_odp.c"),
        (Edit(FILE, "", "after", "x", "", past="/* the end */"), "'/* the end */' occurs 2 times"),
        (
            Edit(FILE, "", "after", "struct", "", past="int flags"),
            "'struct' does not follow 'int flags' in",
        ),
        (
            Edit(FILE, "check", "lines", "return 0", "", until="gone"),
            "'gone' does not follow 'return 0' in check of",
        ),
    ],
)
def test_a_change_that_does_not_fit_is_left_out_as_a_whole_and_the_others_are_applied(edit, reason):
    fits = Edit(FILE, "check", "after", "/* the end */", "\tfits();\n")
    half = change(Edit(FILE, "check", "after", "/* the end */", "\thalf();\n"), edit, name="half")
    changed, misfits = apply([half, change(fits, name="whole")], {FILE: SOURCE})
    assert list(misfits) == ["half"]
    assert misfits["half"].startswith(reason)
    assert "fits();" in changed[FILE]
    assert "half();" not in changed[FILE]


def test_two_changes_that_replace_the_same_words_do_not_fit_together():
    first, second = (
        change(Edit(FILE, "check", "instead", "qp->state", name), name=name) for name in ("a", "b")
    )
    changed, misfits = apply([first, second], {FILE: SOURCE})
    assert list(misfits) == ["b"]
    assert "if (a)" in changed[FILE]


@pytest.mark.parametrize(
    "edits, more, message",
    [
        ("  - {file: linux/a.c, before: x}", "", r"sample.yaml:6:5: an edit lacks the key `text`"),
        ("  - {file: linux/a.c, lines: x, text: new}", "", r"`lines` and `until` go together"),
        (
            "  - {file: a.c, before: x, text: new}",
            "",
            r"a file is one of linux/NAME, rdma-core/NAME, libibverbs/NAME, not 'a.c'",
        ),
        (
            "  - {file: linux/a.c, before: x, after: v, text: new}",
            "",
            r"one of above, before, after, instead, lines",
        ),
        (
            "  - {file: linux/a.c, befor: x, text: new}",
            "",
            r"unknown key 'befor' in an edit \(did you mean before\?\)",
        ),
        (
            "  - {file: linux/a.c, before: x, text: new}",
            "defects: [abc]\n",
            r"'abc' is not a fingerprint",
        ),
    ],
)
def test_a_mistake_in_a_change_is_located(tmp_path, edits, more, message):
    head = (
        f"subject: what\nabout: why\nrules: [BIND-10]\ncase: bind_mw/type_1/part-from-buf\n{more}"
    )
    laid(tmp_path, {"sample.yaml": f"{head}edits:\n{edits}"})
    with user_error(message, status=2, one_line=False):
        read_changes(tmp_path)


def test_each_change_of_the_project_names_existing_rules_and_has_short_anchors():
    suite = load_suite()
    rules = suite.registry
    changes = read_changes()
    assert len({change.name for change in changes}) == len(changes) >= 25
    for change in changes:
        assert set(change.rules) <= set(rules), change.name
        assert re.fullmatch(r"[a-z-]+", change.name)
        assert len(f"RDMA/rxe: {change.subject}") <= 75, (
            f"{change.name}: too long for the subject of a commit"
        )
        assert change.subject[-1] != "."
        assert suite.find(change.case), f"{change.name}: {change.case}"
        for edit in change.edits:
            assert len(edit.anchor) <= 60, f"{change.name}: an anchor is too long"
            assert "\n" not in edit.anchor
