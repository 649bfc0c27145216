"""Tests of API-01 with headers that the tests write and change, so that they do not depend on the header of this
machine. Only the last test reads the installed header, and fails if none is installed. The tests need a C compiler."""

import os
import re
import sys
import tempfile
from dataclasses import astuple
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest
import yaml

from conformance.header import (
    FAIL,
    NOT_COVERED,
    PASS,
    UNREACHABLE,
    Check,
    check_bindings,
    check_header,
)
from conformance.verbs import CONSTANTS, ENUMS, STRUCTS, VERBS
from kinds import Patch
from launched import script
from patience import longer_and_longer
from samples import laid
from trial.reference.header import own_bindings, own_header, with_value

Edit = tuple[str, str]


class Checked(Protocol):
    """Checks the header with some pieces replaced; each piece must occur exactly once."""

    def __call__(self, *edits: Edit, **options: Any) -> list[Check]: ...


@pytest.fixture
def checked(tmp_path: Path) -> Checked:
    def check(*edits: Edit, **options: Any) -> list[Check]:
        text = own_header()
        for old, new in edits:
            assert text.count(old) == 1, (
                f"{old!r} is {text.count(old)} times in the header, not once"
            )
            text = text.replace(old, new)
        laid(tmp_path, {"infiniband/verbs.h": text})
        return check_header(include_dirs=[tmp_path], **options)

    return check


def findings(checks: list[Check]) -> dict[str, str]:
    """Returns the outcomes other than PASS, by item, without the items of the vendor's dialect."""
    return {
        check.item: check.outcome
        for check in checks
        if check.outcome != PASS and not check.item.endswith("(experimental)")
    }


def only(checks: list[Check], item: str) -> Check:
    matching = [check for check in checks if check.item == item]
    assert len(matching) == 1, f"{len(matching)} checks of {item}"
    return matching[0]


def struct_with(name: str, old: str, new: str) -> Edit:
    """Returns an edit of one field. The edit includes the struct's text before the field, so that the edited text
    occurs only once."""
    text = own_header()
    start = text.index(f"struct {name} {{")
    body = text[start : text.index("};", start)]
    assert body.count(old) == 1
    return body, body.replace(old, new)


def test_a_header_like_the_descriptions_passes_in_everything(checked):
    checks = checked()
    assert findings(checks) == {}
    items = [check.item for check in checks if check.outcome == PASS]
    assert len(items) == len(set(items))
    values = sum(len(described.values) for described in ENUMS.values())
    fields = sum(len(struct.fields) for struct in STRUCTS.values())
    # There is one item for each enumerator, constant and prototype, for the size of each struct, and for the offset,
    # the size and the type of each field.
    assert len(items) == values + len(CONSTANTS) + len(VERBS) + len(STRUCTS) + 3 * fields


def test_the_vendors_dialect_is_unreachable_with_a_mainline_header(checked):
    vendor = [check for check in checked() if check.item.endswith("(experimental)")]
    assert {check.item: check.outcome for check in vendor} == {
        "struct ibv_rereg_mr_attr (experimental)": UNREACHABLE,
        "prototype ibv_rereg_mr (experimental)": UNREACHABLE,
        "enum ibv_access_flags.ALLOCATE_MR (experimental)": UNREACHABLE,
    }
    assert {check.reason for check in vendor} == {"vendor-only: this header does not have it"}


def test_a_vendors_header_is_compared_with_the_vendors_dialect(checked):
    checks = checked(
        (
            VERBS["ibv_rereg_mr"].signature,
            "struct ibv_rereg_mr_attr; int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, "
            "void *addr, size_t length, uint64_t access, struct ibv_rereg_mr_attr *attr)",
        ),
        ("IBV_ACCESS_MW_BIND = 16,", "IBV_ACCESS_MW_BIND = 16, IBV_ACCESS_ALLOCATE_MR = 2048,"),
    )
    assert findings(checks) == {"prototype ibv_rereg_mr": FAIL}
    assert only(checks, "prototype ibv_rereg_mr (experimental)").outcome == PASS
    assert only(checks, "struct ibv_rereg_mr_attr (experimental)").outcome == NOT_COVERED
    flag = only(checks, "enum ibv_access_flags.ALLOCATE_MR (experimental)")
    assert (flag.outcome, flag.found) == (NOT_COVERED, "2048")


def doctored() -> list[list[dict[str, Any]]]:
    """Puts the doctored pieces into as few headers as possible; the pieces in one header concern different items."""
    headers: list[tuple[set[str], list[dict[str, Any]]]] = []
    for piece in yaml.safe_load(Path(__file__).with_name("doctored_headers.yaml").read_text()):
        about = {re.split(r"[ .]", item)[1] for item in piece["findings"]}
        about |= {edit[0] for edit in piece["edits"] if len(edit) == 3}
        for concerned, pieces in headers:
            if about.isdisjoint(concerned):
                concerned |= about
                pieces.append(piece)
                break
        else:
            headers.append((about, [piece]))
    return [pieces for _, pieces in headers]


@pytest.mark.parametrize(
    "pieces",
    doctored(),
    ids=lambda pieces: f"{pieces[0]['name']} and {len(pieces) - 1} more",
)
def test_a_doctored_header_gives_the_findings_of_its_pieces_and_no_others(pieces, checked):
    edits = [
        struct_with(*edit) if len(edit) == 3 else edit
        for piece in pieces
        for edit in piece["edits"]
    ]
    expected = {item: said for piece in pieces for item, said in piece["findings"].items()}
    checks = checked(*edits)
    assert findings(checks) == {
        item: said if isinstance(said, str) else said[0] for item, said in expected.items()
    }
    for item, said in expected.items():
        if not isinstance(said, str):
            assert [*astuple(only(checks, item))[1:]][: len(said)] == said


def test_a_struct_that_embeds_a_missing_struct_is_compared_in_its_other_fields(checked):
    text = own_header()
    start = text.index("struct ibv_mw_bind_info {")
    middle = text[start : text.index("struct ibv_sge {", start)]
    checks = checked((middle, middle.replace("ibv_mw_bind_info", "renamed")))
    names = ("ibv_mw_bind_info", "ibv_mw_bind", "ibv_mw_bind.bind_info type")
    assert findings(checks) == {f"struct {name}": FAIL for name in names}
    assert "needs types that this header lacks" in only(checks, "struct ibv_mw_bind").reason
    assert only(checks, "struct ibv_mw_bind.wr_id type").outcome == PASS


def test_a_header_without_anything_described_fails_item_by_item(tmp_path):
    laid(tmp_path, {"infiniband/verbs.h": "/* empty */\n"})
    checks = check_header(include_dirs=[tmp_path])
    assert PASS not in {check.outcome for check in checks}
    failed = [check for check in checks if check.outcome == FAIL]
    assert {check.reason.partition(";")[0] for check in failed} == {"missing in this header"}
    values = sum(len(described.values) for described in ENUMS.values())
    assert len(failed) == values + len(CONSTANTS) + len(STRUCTS) + len(VERBS)


def test_a_header_need_not_have_what_is_newer_than_its_release(checked):
    gone = ("IBV_ACCESS_HUGETLB = 128,", ""), ("IBV_ACCESS_LOCAL_WRITE = 1,", "")
    flag, old = "enum ibv_access_flags.HUGETLB", checked(*gone, release=27)
    check = only(old, flag)
    assert (check.outcome, check.reason) == (
        UNREACHABLE,
        "rdma-core has it since 28, and this is 27",
    )
    assert only(old, "enum ibv_access_flags.LOCAL_WRITE").outcome == FAIL
    assert only(checked(*gone, release=28), flag).outcome == FAIL


def test_without_a_header_the_check_is_unreachable_and_names_the_package(tmp_path):
    # -nostdinc hides an installed header. If the compiler had no directory to search, its message would be different.
    checks = check_header(compiler="cc -nostdinc", include_dirs=[tmp_path])
    assert checks == [
        Check(
            "<infiniband/verbs.h>",
            UNREACHABLE,
            reason="no <infiniband/verbs.h> installed; install libibverbs-dev",
        ),
    ]


def test_without_a_compiler_the_check_is_unreachable(monkeypatch, tmp_path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    [check] = check_header()
    assert (check.outcome, check.reason) == (
        UNREACHABLE,
        "no C compiler found; install gcc or clang, or set CC",
    )


@pytest.mark.parametrize(
    "compiler, edits, reason",
    [
        ("no-such-compiler -O2", [], "the C compiler 'no-such-compiler' was not found"),
        ("cc 'unclosed", [], "the compiler's command line \"cc 'unclosed\" is malformed"),
        ("true", [], "cannot run ask: "),
        ("false", [], "<infiniband/verbs.h> cannot be read: no message"),
        (
            "cc",
            [("struct ibv_mr {", "struct ibv_mr { nonsense here;")],
            "<infiniband/verbs.h> .*verbs.h:.*nonsense",
        ),
        (
            "cc",
            [("#include <pthread.h>", "#include <no/such/file.h>")],
            "<infiniband/verbs.h> .*no/such/file.h",
        ),
    ],
)
def test_a_useless_compiler_in_CC_or_header_is_unreachable_with_the_first_error(
    compiler, edits, reason, monkeypatch, checked
):
    monkeypatch.setenv("CC", compiler)
    [check] = checked(*edits)
    assert check.outcome == UNREACHABLE
    assert re.match(reason, check.reason)


def test_a_compiler_that_hangs_is_killed_with_its_children(tmp_path):
    child = tmp_path / "child"
    hanging = script(tmp_path / "hanging", f"sleep infinity &\necho $! > {child}\nwait")
    for timeout_s in longer_and_longer(0.5):
        [check] = check_header(compiler=str(hanging), timeout_s=timeout_s)
        assert (check.outcome, check.reason) == (
            UNREACHABLE,
            f"{hanging} did not exit within {timeout_s:g} s",
        )
        # if there is none, the compiler was killed before it had a child
        if child.exists() and child.read_text():
            break
    # A killed orphan may still exist as a zombie until its new parent collects it.
    status = Path("/proc") / child.read_text().strip() / "stat"
    assert not status.exists() or status.read_text().split()[2] in "ZX"


@pytest.mark.parametrize("edits", [[], [("struct ibv_mr {", "?")]])
def test_nothing_is_left_behind(edits, monkeypatch, checked, tmp_path):
    checked(*edits)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(scratch)
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = sorted(os.walk(tmp_path))
    checked(*edits)
    assert sorted(os.walk(tmp_path)) == before


# The bindings, with modules of the tests in place of pyverbs.


def bindings() -> ModuleType:
    """Returns the reference's bindings, with macros as in pyverbs: names with a leading underscore, no enumeration."""
    module = own_bindings()
    for described in ENUMS.values():
        if described.alias_of:
            vars(module).update(
                {f"_{var.name}": var.value for var in vars(module).pop(described.name)},
            )
    return module


def test_bindings_like_the_descriptions_pass():
    checks = check_bindings(bindings())
    assert {check.outcome for check in checks} == {PASS}
    assert len(checks) == sum(len(described.values) for described in ENUMS.values())


def test_a_wrong_an_absent_and_an_added_name_of_the_bindings_are_distinguished():
    module = with_value(bindings(), "ibv_access_flags", "IBV_ACCESS_REMOTE_READ", 1024)
    del vars(module)["_IBV_ADVISE_MR_FLAG_FLUSH"]
    with_value(module, "ibv_send_flags", "IBV_SEND_NEW", 512)
    assert [binding for binding in check_bindings(module) if binding.outcome != PASS] == [
        Check(
            "pyverbs enum ibv_access_flags.REMOTE_READ",
            FAIL,
            "4",
            "1024",
            "pyverbs has a different value",
        ),
        Check(
            "pyverbs enum ibv_advise_mr_flag.FLUSH",
            UNREACHABLE,
            "1",
            "",
            "reference_enums does not export it",
        ),
        Check(
            "pyverbs enum ibv_send_flags.NEW",
            NOT_COVERED,
            "",
            "512",
            "pyverbs has IBV_SEND_NEW, which the suite does not describe",
        ),
    ]


@pytest.fixture
def no_pyverbs(monkeypatch: Patch, tmp_path: Path) -> Path:
    """Makes a search path on which the only pyverbs is the test's own."""
    for name in [module for module in sys.modules if module.partition(".")[0] == "pyverbs"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


@pytest.mark.parametrize("module", ["libibverbs_enums", "enums"])
def test_bindings_are_found_under_the_new_and_the_old_name(module, no_pyverbs):
    laid(
        no_pyverbs / "pyverbs",
        {"__init__.py": "", f"{module}.py": "IBV_ACCESS_REMOTE_READ = 5\n"},
    )
    assert only(check_bindings(), "pyverbs enum ibv_access_flags.REMOTE_READ").found == "5"


def test_bindings_that_are_absent_or_do_not_load_are_unreachable(no_pyverbs):
    [absent] = check_bindings()
    broken = "raise ImportError('libibverbs.so.1: cannot open')\n"
    laid(no_pyverbs / "pyverbs", {"__init__.py": "", "libibverbs_enums.py": broken})
    [unloaded] = check_bindings()
    assert (absent.outcome, unloaded.outcome) == (UNREACHABLE, UNREACHABLE)
    assert "install python3-pyverbs" in absent.reason
    assert "libibverbs.so.1: cannot open" in unloaded.reason


def test_the_installed_header_differs_only_by_its_age():
    checks = check_header()
    assert [check.outcome for check in checks] != [UNREACHABLE], (
        f"nothing was compared: {checks[0].reason}"
    )
    failed = [check for check in checks if check.outcome == FAIL]
    assert [check for check in failed if "rdma-core has it since" not in check.reason] == []
