"""Tests of what reports say about defects that are known upstream."""

import json
import re
from dataclasses import replace

import pytest

from conformance.tables.suite import ROOT
from reports.causes import causes, load, proposed
from reports.digest import read
from reports.upstream import ENTRIES, another_than_fixed, upstream
from samples import written_records

RXE = ROOT / "docs/runs/rxe.jsonl.xz"
FIXED, REPORTED = "de19cd258c26", "ca5610635990"


def test_each_entry_has_an_address_and_belongs_to_a_fingerprint():
    for name, entry in ENTRIES.items():
        assert re.fullmatch("[0-9a-f]{12}", name)
        assert entry["reported"].startswith("https://")
        assert entry.keys() <= {"reported", "fixed"}


def test_reports_say_where_a_defect_was_reported_and_fixed(cli):
    for name in (FIXED, REPORTED):
        told = "; ".join(f"{what}: {ENTRIES[name][what]}" for what in ENTRIES[name])
        for more in ((), ("--dispute",)):
            said = cli(0, "explain", name, "--run", RXE, *more).out
            (line,) = [line for line in said.splitlines() if line.startswith("upstream:")]
            assert set(line.removeprefix("upstream:").strip().split("; ")) == set(told.split("; "))


def test_comparisons_and_the_table_of_findings_say_that_a_defect_is_fixed_upstream(cli, tmp_path):
    trixie = ROOT / "docs/runs/trixie.jsonl.xz"
    fixed = f"fixed upstream: {ENTRIES[FIXED]['fixed']}"
    for form in ("text", "markdown"):
        more = () if form == "text" else ("--format", form)
        said = cli(1, "compare", trixie, RXE, *more).out.replace("\\", "")
        lines = [line for line in said.splitlines() if FIXED in line and "now also" not in line]
        assert any(f" ({fixed})" in line for line in lines), form
        assert "(reported upstream): now also " in said
    found = json.loads(cli(1, "compare", trixie, RXE, "--format", "json").out)["defects"]["new"]
    known = {defect["fingerprint"]: defect["upstream"] for defect in found}
    assert known[FIXED].startswith(f"fixed: {ENTRIES[FIXED]['fixed']}; reported: https://")
    assert "" in known.values()
    cli(0, "findings", RXE, "--out", tmp_path)
    rows = re.findall(r"^\|.*\|$", (tmp_path / "findings.md").read_text(), re.MULTILINE)
    assert {row.count(" | ") for row in rows[2:]} == {4}
    assert sum(f" | {fixed} | " in row for row in rows) == 2
    assert any(" | reported upstream | " in row for row in rows)


def test_pages_and_markdown_say_at_each_defect_that_it_is_known_upstream(cli, tmp_path):
    trixie, page = ROOT / "docs/runs/trixie.jsonl.xz", tmp_path / "page.html"
    fixed = f"(fixed upstream: {ENTRIES[FIXED]['fixed']})"
    cli(0, "report", RXE, "--out", page)
    (line,) = re.findall(rf'id="defect:{FIXED}"[^>]*>\s*<summary.*</summary>', page.read_text())
    assert '<span class="mark">fixed upstream</span>' in line
    known = [name for name in ENTRIES if f'id="defect:{name}"' in page.read_text()]
    assert re.search(
        rf'data-layer="known upstream"[^>]*>{len(known)} defects</a>', page.read_text()
    )
    cli(0, "report", trixie, "--against", RXE, "--out", page)
    cli(0, "report", RXE, "--against", trixie, "--format", "markdown", "--out", tmp_path / "text")
    (lost,) = re.findall('<details class="lead folded">.*?</details>', page.read_text(), re.DOTALL)
    listed = (tmp_path / "text").read_text().replace("\\", "")
    assert re.search(rf"{re.escape(fixed)} <span [^>]*>{FIXED}<", lost)
    assert re.search(rf"^- .*{FIXED}.*{re.escape(fixed)}$", listed, re.MULTILINE)


def test_a_defect_without_an_entry_has_no_such_line(cli):
    (name, *_) = [
        defect.fingerprint
        for defect in read(RXE).violations.defects
        if ENTRIES.keys().isdisjoint(defect.fingerprints)
    ]
    assert "upstream:" not in cli(0, "explain", name, "--run", RXE).out


def test_all_texts_about_a_defect_name_its_cause_and_its_fix(cli, tmp_path):
    name = "85c569cb8aca"
    place = load()[0][name]
    shown = tmp_path / "report.html"
    cli(0, "report", RXE, "--format", "html", "--out", shown)
    texts = [cli(0, "explain", name, "--run", RXE, *more).out for more in ((), ("--dispute",))]
    texts += [cli(0, "reproducer", name, "--run", RXE, "--mail").out, shown.read_text()]
    for text in texts:
        plain = " ".join(text.split())
        assert f"in the source: {place}" in plain
        writes = "./rdma-cts patches --linux TREE --out DIR writes it"
        ours = rf"fixed by: window-bounds: Keep remote access within the bounds[^(]* \({re.escape(writes)}"
        assert bool(re.search(ours, plain)) is not plain.startswith("Subject:")


def test_a_mail_names_a_patch_of_this_project_only_where_no_commit_is_known_upstream(cli):
    run = read(RXE)
    mended = [defect for defect in run.violations.defects if proposed(defect, run)]
    by_state = {bool(upstream(defect)): defect for defect in mended}
    assert by_state.keys() == {False, True}
    for is_known, defect in by_state.items():
        sent = cli(0, "reproducer", defect.fingerprint, "--run", RXE, "--mail")
        plain = " ".join(sent.out.split())
        ours = "possible fix: a patch of the authors of rdma-cts, which is attached and in no tree"
        assert (ours in plain) is not is_known
        assert ("attach the possible fix" in sent.err) is not is_known
        assert ("It is known upstream" in plain) is is_known
        assert "fixed by:" not in plain


def test_a_cause_is_named_only_for_the_driver_that_it_is_about():
    run = read(RXE)
    defects = run.violations.defects
    with_cause = [defect for defect in defects if list(causes(defect, run))]
    other = replace(
        run, header={**run.header, "device": {**run.header["device"], "driver": "mlx5"}}
    )
    still = [text for defect in with_cause for _, text in causes(defect, other)]
    assert with_cause
    assert not any(re.search(r"/(?:rxe|siw)/|window-bounds", text) for text in still)


TESTED = {
    ("rdma-core", "64", "56.1"): False,
    ("rdma-core", "64", "64.0"): True,
    ("rdma-core", "64", "65.0"): True,
    ("rdma-core", "64", None): False,
    ("Linux", "7.3", "7.2.12+deb14-amd64"): False,
    ("Linux", "7.3", "7.10.0-rc1"): True,
}


@pytest.mark.parametrize("project, release, tested", TESTED)
def test_a_defect_of_a_stack_with_the_fix_is_another_mistake(project, release, tested, monkeypatch):
    monkeypatch.setitem(ENTRIES, "0" * 12, {"fixed": f"commit abc of it, in {project} {release}"})
    env = {"rdma-core": {"rdma_core": tested}, "Linux": {"kernel": tested}}[project]
    said = another_than_fixed(["0" * 12], env)
    assert bool(said) is TESTED[project, release, tested]
    assert not said or f"fixed in {project} {release}; this stack has {tested}" in said


def test_no_text_names_the_cause_of_a_defect_that_the_tested_release_has_fixed(cli, tmp_path):
    name, trixie = "40d0db806016", ROOT / "docs/runs/trixie.jsonl.xz"
    run = read(trixie)
    header = {**run.header, "env": {**run.header["env"], "rdma_core": "65.0"}}
    newer = written_records([header, *run.results], tmp_path / "newer")
    page = tmp_path / "page.html"
    cli(0, "report", newer, "--out", page)
    (_, shown) = page.read_text().split(f'id="defect:{name}"')
    shown, _, _ = shown.partition('<details class="defect')
    compared = cli(1, "compare", RXE, newer).out
    texts = {
        "explain": cli(0, "explain", name, "--run", newer).out,
        "compare": next(line for line in compared.splitlines() if f"  {name}  " in line),
        "mail": cli(0, "reproducer", name, "--run", newer, "--mail").out,
        "page": shown,
    }
    word = (
        "same fingerprint as a defect fixed in rdma-core 64; this stack has 65.0, so it is another"
    )
    for form, text in texts.items():
        plain = " ".join(text.split()).replace("Same fingerprint", "same fingerprint")
        assert word in plain, form
        for known in (
            "wr_set_sge_list",
            "406cd2ad0",
            "nown upstream",
            "by: provider",
            "by provider",
        ):
            assert known not in plain, form
    assert "wr_set_sge_list" in cli(0, "explain", name, "--run", trixie).out
