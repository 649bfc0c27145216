"""Tests of what is new in a run against an earlier run, on recorded violations of real runs."""

import io
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import lxml.html
import pytest

from commands.__main__ import main
from conformance.defects import Defect, defects_of, families_of
from conformance.judging.combinations import deviation
from conformance.model.combinations import LACKING
from conformance.model.fault import Fault, FaultKind
from conformance.model.point_index import decode_index, encode_index
from conformance.model.verdict import VIOLATIONS
from conformance.results.records import read_written
from conformance.tables.suite import ROOT
from reports import html, markdown
from reports.compared.changes import NOT_TRIED, REGRESSED, UNKNOWN
from reports.compared.comparison import compare
from reports.compared.text import text
from reports.digest import Digest, digest, read
from reports.earlier_points import points_of
from reports.markdown import escaped
from reports.novelty import Novelty, known_in, novelty
from reports.terminal import QUIET, Progress, summary
from samples import changed, numbered, recorded, result

RUNS = Path(__file__).with_name("recorded_violations")


@pytest.fixture(scope="module")
def forky() -> Digest:
    return read(RUNS / "forky.jsonl")


def against_trixie(forky: Digest) -> Novelty:
    news = novelty(forky, read(RUNS / "trixie.jsonl"))
    assert news is not None
    return news


def test_each_defect_is_either_new_or_not_new(forky):
    news = against_trixie(forky)
    new = [item.defect.fingerprint for item in news.new]
    earlier = [defect.fingerprint for defect in news.earlier]
    assert sorted(new + earlier) == sorted(
        defect.fingerprint for defect in forky.violations.defects
    )
    assert "8b8051c7e5f5" in new, "trixie has no ibv_advise_mr"
    assert "6c8e18b350a5" in earlier


def test_nothing_is_new_against_the_run_itself(forky):
    news = novelty(forky, forky)
    assert news is not None
    assert list(news.new) == []
    assert news.sentence == f"0 defects new against {forky.path}; 23 not new; 0 gone"


def test_each_defect_of_the_earlier_run_is_counted_and_the_lost_ones_are_listed(forky):
    later = read(RUNS / "trixie.jsonl")
    news = novelty(later, forky)
    assert news
    lost = {kind: len(items) for kind, items in news.lost.items()}
    same = len(news.comparison.defects.by_kind["in both"])
    assert sum(lost.values()) + same == len(forky.violations.open_defects)
    assert lost["not decided"]
    assert news.sentence.endswith(f"; {lost['gone']} gone; {lost['not decided']} not decided")
    page, lines = html.render([later], news), [*news.hints()]
    for kind, items in news.lost.items():
        for defect in (item.defect for item in items):
            line = f"{kind}: {defect.severity.label}  {defect.fingerprint}  {defect.title}"
            assert (line in lines) == any(
                record["case"] in defect.cases for record in later.results
            )
            assert defect.fingerprint in page


def test_defects_without_a_case_in_the_run_are_one_line(forky):
    later = replace(forky, results=forky.results[:1])
    news = novelty(later, forky)
    assert news
    undecided = news.lost["not decided"]
    shown = [item for item in undecided if later.results[0]["case"] in item.defect.cases]
    lines = [line for line in news.hints() if line.startswith("not decided: ")]
    assert (
        lines[0] == f"not decided: {len(undecided) - len(shown)} defects without a case in this run"
    )
    assert len(lines) == 1 + len(shown)


def test_a_run_without_a_defect_has_no_heading_for_defects(forky):
    clean = digest(recorded([result(case) for case in numbered(2).cases]).shown(), Path())
    heading = "most severe first"
    assert heading not in summary(clean, RUNS, news=novelty(clean, forky))
    assert heading in summary(forky, RUNS, news=novelty(forky, clean))


def test_a_waived_defect_of_cases_that_the_earlier_run_lacks_is_new_too(forky):
    """A waiver changes whether a defect is open, and not whether the earlier run had it."""
    tried = forky.violations.defects[0]
    earlier = replace(
        forky, results=tuple(record for record in forky.results if record["case"] in tried.cases)
    )
    assert 0 < len(earlier.violations.defects) < len(forky.violations.defects)
    waived = replace(
        forky,
        results=tuple(
            record | {"effective": "WAIVED"} if record["verdict"] in VIOLATIONS else record
            for record in forky.results
        ),
    )
    plain, with_waivers = novelty(forky, earlier), novelty(waived, earlier)
    assert plain is not None
    assert with_waivers is not None
    new = {item.defect.fingerprint for item in with_waivers.new}
    assert new == {item.defect.fingerprint for item in plain.new if not item.news}
    assert tried.fingerprint not in new
    assert plain.first
    assert plain.first.fingerprint == plain.comparison.defects.by_kind[NOT_TRIED][0].fingerprint
    assert not any(line.startswith("report the worst") for line in text(plain.comparison, None))
    assert f"0 defects new against {forky.path} (and {len(new)} waived)" in with_waivers.sentence
    lines = summary(waived, RUNS, news=with_waivers).splitlines()
    assert not [
        line for line in lines if line.startswith(("next: ./rdma-cts explain", "report it"))
    ]


def test_new_defects_come_first_and_the_most_severe_of_them_on_top(forky):
    news = against_trixie(forky)
    lines = summary(forky, RUNS, news=news).splitlines()
    assert lines[1] == news.sentence
    end = lines.index(f"not new against {news.name}:")
    assert "known, with new symptoms" in news.by_kind
    assert len(news.by_kind) > 1
    shown = iter(lines[3:end])
    for kind, items in news.by_kind.items():
        assert next(shown) == f"{kind}:"
        for item in items:
            assert item.defect.fingerprint in next(shown)
        ranks = [item.defect.severity.rank for item in items]
        assert ranks == sorted(ranks)
    foremost = news.comparison.defects.foremost
    assert foremost
    first = foremost.fingerprint
    assert any(f"explain {first}" in line and "first defect" in line for line in lines[end:])
    assert summary(forky, RUNS, level=QUIET, news=news).startswith(news.sentence)


def test_the_first_defect_is_the_most_severe_one_with_most_cases_that_are_worse(forky):
    """The old run lacks one case of a defect, and another defect with more cases, which has the same severity."""
    by_severity: dict[object, list[Defect]] = {}
    for defect in forky.violations.defects:
        by_severity.setdefault(defect.severity, []).append(defect)
    by_size = [
        sorted(items, key=lambda defect: len(defect.cases)) for items in by_severity.values()
    ]
    alike = next(items for items in by_size if len(items[0].cases) < len(items[-1].cases))
    small, large = alike[0], alike[-1]
    absent = {*small.cases, *large.cases[1:]}
    passed: Any = {"verdict": "PASS", "effective": "PASS", "deviations": []}
    results = [changed(r, passed) if r["case"] in absent else r for r in forky.results]
    news = novelty(forky, replace(forky, results=tuple(results)))
    assert news
    assert small.fingerprint in {item.defect.fingerprint for item in news.by_kind["new"]}
    said = summary(forky, RUNS, news=news)
    assert news.comparison.defects.foremost == large
    assert f"explain {large.fingerprint} --run" in said


def test_commands_name_a_case_that_passed_if_the_earlier_run_has_the_defect(forky):
    """Of a defect with two cases, one passed; the run is of a tree."""
    defect = next(defect for defect in forky.violations.defects if len(defect.cases) > 1)
    case = defect.cases[-1]
    tree: Any = {"repro": f"./rdma-cts run --guest --linux /tree --only {case}"}
    passed: Any = {"verdict": "PASS", "effective": "PASS", "deviations": []}
    ours = replace(
        forky,
        results=tuple(changed(r, tree) if r["case"] == case else r for r in forky.results),
    )
    earlier = replace(
        forky,
        results=tuple(changed(r, passed) if r["case"] == case else r for r in forky.results),
    )
    news = novelty(ours, earlier)
    assert news
    foremost = news.comparison.defects.foremost
    assert foremost
    assert foremost.fingerprint == defect.fingerprint
    said = summary(ours, RUNS, news=news)
    assert f"./rdma-cts reproducer {case} --run {RUNS}" in said
    explain = f"./rdma-cts explain {foremost.fingerprint} --run {RUNS} --against {earlier.path}"
    assert f"next: {explain} explains the first defect" in said
    (line,) = (line for line in said.splitlines() if line.startswith("bisect ("))
    assert line.endswith(f'"$PWD"/rdma-cts bisect-step --yes --guest --linux /tree --only {case}')
    (line,) = (line for line in text(news.comparison, None) if line.startswith("report the worst"))
    assert f"reproducer {case} --run" in line
    assert "bisect" not in summary(forky, RUNS, news=novelty(forky, forky))


def test_a_family_across_headings_is_named_below_each(forky):
    values = {"operation": "RDMA_READ", "key": "region"}
    records = []
    for number, change in enumerate(("access", "all")):
        fault = Fault(FaultKind.MOVED, verb="traffic", operation="RDMA_READ", key="region")
        smallest = {**values, "change": change}
        deviation = {"when": "always", "rules": ["REREG-03"], "smallest": smallest}
        deviations = [{**deviation, "fault": fault.as_data()}]
        record: Any = {**forky.results[0], "verdict": "FAIL", "effective": "FAIL"}
        record |= {"case": f"access/changes/slice-{number}", "deviations": deviations}
        record.pop("alarms", None)
        records.append(record)
    one, two = (defects_of([record])[0] for record in records)
    ((alone, _),) = families_of([one], lambda defect: defect)
    ((with_other, _),) = families_of([one], lambda defect: defect, [two, *forky.violations.defects])
    assert alone == ""
    assert with_other.endswith("ibv_rereg_mr: perhaps of one cause with 1 under another heading")


def test_a_running_test_marks_violations_that_the_earlier_run_shows_too(forky):
    """The marks of a whole run name the same defects as the list at its end."""
    is_known = known_in(read(RUNS / "trixie.jsonl"))
    violations = [record for record in forky.results if record["verdict"] in VIOLATIONS]
    stream = io.StringIO()
    progress = Progress(stream, is_known=is_known)
    for done, record in enumerate(violations, 1):
        progress.result_recorded(record, done, len(violations) + 1)
    marked = set(re.findall(r"\(not new\) (\S+):", stream.getvalue()))
    news = against_trixie(forky)
    assert marked == {record["case"] for record in violations if is_known(record)}
    assert marked.isdisjoint(
        case for item in news.new if not item.news for case in item.defect.cases
    )
    alone = {case for item in news.new for case in item.defect.cases}
    assert marked >= {case for defect in news.earlier for case in defect.cases} - alone
    assert marked
    assert not any(map(known_in(None), violations))


def test_records_as_workers_send_them_are_marked_like_those_of_a_file():
    """A worker's record has only the keys with content."""
    path = ROOT / "docs/runs/rxe.jsonl.xz"
    is_known = known_in(read(path))
    violations = [
        record for record in read_written(path).results if record["verdict"] in VIOLATIONS
    ]
    assert any("deviations" not in record for record in violations)
    assert all(map(is_known, violations))


def test_a_run_that_was_compared_does_not_ask_for_a_comparison(forky):
    right = digest(recorded([result(numbered(1).cases[0])]).shown(), RUNS)
    assert "next: ./rdma-cts compare OLD" in summary(right, RUNS)
    assert "next:" not in summary(right, RUNS, news=novelty(right, forky))
    assert f" --mail --others {forky.path} writes" in summary(
        forky, RUNS, news=novelty(forky, forky)
    )
    assert "--others" not in summary(forky, RUNS)
    assert f"--mail --others {forky.path}<" in html.render([forky], novelty(forky, forky))
    assert "--others" not in html.render([forky])
    assert "next: ./rdma-cts explain" in summary(forky, RUNS, news=novelty(forky, forky))


def test_a_run_of_other_tables_is_compared_by_the_cases_of_both():
    first, *cases = numbered(6).cases
    old = recorded(
        [result(case) for case in (first, *cases[:2])], suite={"tables_sha256": "a" * 64}
    )
    new = recorded([result(case) for case in cases], suite={"tables_sha256": "b" * 64})
    runs = [digest(run.shown(), Path()) for run in (old, new)]
    news = novelty(runs[1], runs[0])
    assert news
    (line,) = news.hints()
    assert line.startswith(
        "the tables differ: 2 cases in both runs are compared; 3 only in this run"
    )
    assert line.endswith("and 1 only in . are not")
    assert not any("tables" in hint for hint in Novelty(compare(runs[0], runs[0])).hints())


def test_markdown_against_an_earlier_run_begins_with_what_is_new(tmp_path, capsys, forky):
    shutil.copy(RUNS / "forky.jsonl", tmp_path / "results.jsonl")
    against = ("--against", str(RUNS / "trixie.jsonl"))
    assert main(["report", str(tmp_path), *against, "--format", "markdown"]) == 0
    said = capsys.readouterr().out
    news = against_trixie(forky)
    new = [item.defect.fingerprint for item in news.new]
    first, _, rest = said.partition("| severity |")
    assert new
    assert list(re.findall(r"`([0-9a-f]{12})`", first)) == new
    assert set(re.findall(r"`([0-9a-f]{12})`", rest)[: len(new)]) == set(new)
    assert escaped(news.sentence) in first


def test_a_report_against_an_earlier_run_names_its_stack_and_the_page_the_regressed_cases():
    old, new = (read(ROOT / f"docs/runs/{name}.jsonl.xz") for name in ("trixie", "rxe"))
    news = novelty(new, old)
    assert news is not None
    stack = "against trixie, kernel 6.12.117+deb13-amd64, rdma-core 56.1, 2026-12-01"
    assert escaped(stack) in markdown.render([new], news)
    page = lxml.html.fromstring(html.render([new], news).encode())
    assert stack in page.xpath("//p/text()")
    listed = [" ".join(item.text_content().split()) for item in page.xpath("//details//li[code]")]
    changes = [*news.comparison.of(REGRESSED), *news.comparison.of(UNKNOWN)]
    assert len(changes) > 27
    assert {f"{change.arrow} {change.name}" for change in changes} <= {*listed}


def test_the_page_against_an_earlier_run_is_of_one_run(tmp_path):
    shutil.copy(RUNS / "forky.jsonl", tmp_path / "results.jsonl")
    arguments = ["report", str(tmp_path), "--against", str(RUNS / "trixie.jsonl")]
    assert main(arguments) == 0
    assert "not new against" in (tmp_path / "report.html").read_text()
    assert main([*arguments, "--format", "junit"]) == 2
    assert main([*arguments, str(RUNS / "trixie.jsonl")]) == 2
    assert main(["run", "--against", str(tmp_path / "absent")]) == 2


@pytest.mark.parametrize("is_wrong_before", [True, False])
def test_points_that_a_gone_defect_has_hidden_are_no_new_symptoms(is_wrong_before):
    """A fixed defect was at two points where a known defect shows now; a point that passed before has regressed."""
    run = read(ROOT / "docs/runs/rxe.jsonl.xz")
    model = run.by_case["access/model/slice"]
    shown = next(item for item in model["deviations"] if item["rules"] == ["BIND-19a"])
    moved = {"kind": "moved", "verb": "traffic", "operation": "SEND", "key": "region"}
    fixed = {**shown, "fault": moved, "count": 2, "rules": ["REG-26"]}
    fewer = {**shown, "count": shown["count"] - 2}
    before = [fewer if item is shown else item for item in model["deviations"]] + [fixed]
    seen = model["observed"]["combinations"]
    index = decode_index(seen["index"], sum(points_of(model).values()))
    wrong = [deviation(each, seen["iba"]) is not None for each in seen["classes"]]
    if not is_wrong_before:
        place = next(
            place for place, number in enumerate(index) if number < LACKING and wrong[number]
        )
        index[place] = wrong.index(False)
    old = {**model["observed"], "combinations": {**seen, "index": encode_index(index)}}
    earlier = replace(run, results=(changed(model, {"deviations": before, "observed": old}),))
    now = replace(run, results=(model,))
    (gone,) = [of for of in earlier.violations.defects if not of.is_among(now.violations.defects)]
    header: Any = {**run.header, "argv": ["run", "--only", gone.fingerprint, "--only", "x"]}
    news = novelty(replace(now, header=header), earlier)
    assert news
    (defect,) = [*news.comparison.defects.uncovered] or [
        item.defect for item in news.by_kind["known, with new symptoms"]
    ]
    assert bool(news.comparison.defects.uncovered) is is_wrong_before
    assert news.sentence.startswith(f"{gone.fingerprint} is gone; 0 defects new against ")
    line = f"no longer hidden: {defect.severity.label}  {defect.fingerprint}  {defect.title}"
    lines = [*news.hints()]
    assert (line in lines) is is_wrong_before
    page = html.render([news.comparison.new], news)
    assert ("<h3>no longer hidden</h3>" in page) is is_wrong_before
    assert not is_wrong_before or lines.index(line) > lines.index(
        next(line for line in lines if line.startswith(f"gone: {gone.severity.label}"))
    )
    compared = [line for line in text(news.comparison, None) if defect.fingerprint in line]
    assert any("no longer hidden" in line for line in compared) is is_wrong_before
    assert any("now also" in line for line in compared) is not is_wrong_before


def test_a_defect_that_the_cases_of_a_run_still_show_is_not_gone(forky):
    name = forky.violations.defects[0].fingerprint
    header: Any = {**forky.header, "argv": ["run", f"--only={name[:6]}"]}
    news = novelty(replace(forky, header=header), forky)
    assert news
    assert news.sentence.startswith(f"{name} is still shown; 0 defects new")
