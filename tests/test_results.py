"""Tests of the format of results.jsonl: its lines, writing and reading of the file, and the exit status."""

from __future__ import annotations

import itertools
import lzma
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from conformance import regular_file
from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.model import record_shape as shape
from conformance.model.observation import Observation
from conformance.model.record import FooterRecord, Record
from conformance.model.rules import Needs
from conformance.model.verdict import VERDICTS, Verdict
from conformance.older_python import zip
from conformance.results import records, writer
from conformance.results.checked_json import MOST_LEVELS, parse
from conformance.results.conclusions import exit_status
from conformance.results.new_records import footer_record, result_record
from conformance.results.records import encode, read_results, read_written
from conformance.results.rule_conclusions import conclude_rules
from conformance.results.writer import ResultsFile
from samples import (
    case,
    header,
    numbered,
    observed_result,
    recorded,
    registry,
    result,
    rule_verdicts,
    written,
)

TESTS = Path(__file__).parent
CASE = case(
    "{rules: [REG-15, REG-16], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: EINVAL}}",
)


def footer(*verdicts: str, planned: int | None = None) -> FooterRecord:
    """Returns the footer of a run of `planned` cases, with one result for each verdict."""
    cases = numbered(max(planned or 0, len(verdicts), 1)).cases
    lines = [result(of, verdict) for of, verdict in zip(cases, verdicts, strict=False)]
    ids = [of.id for of in cases][: planned or len(verdicts)]
    return footer_record(ids, lines, registry(), duration_s=1.23456)


def test_a_result_has_every_field_of_the_contract():
    observed: Observation = {"rc": None, "returned": "NULL", "errno": "EPERM", "layer": "kernel"}
    judgement = Judgement(Verdict.FAIL, "one line", ("a note",))
    line = result_record(
        CASE,
        registry(),
        judgement,
        observed,
        kernel={"taint": 0, "log": ["x"]},
        duration_us=7,
    )
    assert line == {
        "type": "result",
        "case": "reg_mr/sample/sample",
        "rules": ["REG-15", "REG-16"],
        "level": "must",
        "entry": "libibverbs",
        "layer": "kernel",
        "verdict": "FAIL",
        "effective": "FAIL",
        "waiver": None,
        "reason": "one line",
        "call": "ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=REMOTE_WRITE)",
        "expected": {"outcome": "refused", "errno": ["EINVAL"]},
        "observed": observed,
        "source": {"file": "cases/reg_mr/sample.yaml", "line": 5},
        "kernel": {"taint": 0, "log": ["x"]},
        "duration_us": 7,
        "repro": "./rdma-cts run --only reg_mr/sample/sample",
        "notes": ["a note"],
        "set_up": {"given": ["buf: memory, anonymous, 4 pages"], "before": []},
    }


def test_json_of_the_most_levels_is_read_and_one_level_more_is_refused():
    most = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert parse(most)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(f"[{most}]")


def test_a_footer_has_every_field_of_the_contract():
    line = footer("PASS", "PASS", "FAIL")
    assert line == {
        "type": "footer",
        "complete": True,
        "verdicts": {"PASS": 2, "FAIL": 1},
        "rules": {"REG-01": "FAIL"},
        "rule_totals": {"FAIL": 1, "without_case": len(registry()) - 1},
        "points": 3,
        "duration_s": 1.235,
    }


@pytest.mark.parametrize("worse, other", list(itertools.combinations(VERDICTS, 2)))
def test_the_verdict_of_a_rule_is_the_worst_of_its_cases(worse, other):
    first, second = numbered(2).cases
    lines = [result(first, other), result(second, worse)]
    absent = other == "PASS" and worse in ("UNSUPPORTED", "UNREACHABLE")
    if absent:
        expected = "PARTIAL"
    else:
        expected = worse
    assert rule_verdicts(lines) == {"REG-01": expected}
    assert rule_verdicts(lines[::-1]) == {"REG-01": expected}


def test_a_rule_that_is_verified_in_part_names_what_the_device_does_not_offer():
    cases = numbered(4).cases
    lines = [
        result(cases[0]),
        *(result(case, "UNSUPPORTED", observed={"lacking": ["rereg_mr"]}) for case in cases[1:3]),
        result(
            cases[3],
            "UNREACHABLE",
            "no such memory here",
            observed={"unreachable": "no such memory here"},
        ),
    ]
    conclusion = conclude_rules(lines, Needs())["REG-01"]
    assert conclusion.absent == {"rereg_mr at libibverbs": 2, "no such memory here": 1}
    assert conclusion.restriction == (
        "passed in part (0 of 2); not offered (2 cases): rereg_mr at libibverbs; "
        "not reachable here (1 case): no such memory here"
    )
    footer = footer_record([case.id for case in cases], lines, registry(), duration_s=1.0)
    assert footer["rules"] == {"REG-01": "PARTIAL"}
    assert footer["rule_evidence"] == {"REG-01": conclusion.as_data()}
    assert footer["not_offered"] == {"REG-01": conclusion.absent}
    assert "not_offered" not in footer_record([cases[0].id], lines[:1], registry(), duration_s=1.0)


def test_open_outcomes_verify_no_unsupported_rule_and_waivers_count_by_the_effective_verdict():
    first, second = numbered(2).cases
    lines = [result(first, "PASS", expected={"outcome": "open"}), result(second, "UNSUPPORTED")]
    lines.append(result(CASE, "FAIL", effective="PASS", waiver={"issue": "1"}))
    assert rule_verdicts(lines) == {"REG-01": "UNSUPPORTED", "REG-15": "PASS", "REG-16": "PASS"}


@pytest.mark.parametrize(
    "verdicts, missing, complete, status",
    [
        ("PASS", 0, True, 0),
        ("PASS UNSUPPORTED UNREACHABLE", 0, True, 0),
        ("PASS FAIL", 0, True, 1),
        ("CRASH", 0, True, 1),
        ("HANG", 0, True, 1),
        ("BROKEN PASS", 0, True, 3),
        ("MISSED PASS", 0, False, 3),
        ("BROKEN FAIL MISSED", 0, False, 1),
        ("PASS", 1, False, 3),
        ("FAIL", 1, False, 1),
    ],
)
def test_a_run_with_a_gap_is_incomplete_and_its_status_says_violated_before_undecided_before_conformant(
    verdicts, missing, complete, status
):
    last = footer(*verdicts.split(), planned=len(verdicts.split()) + missing)
    assert (last["complete"], exit_status(last)) == (complete, status)


def test_written_records_are_read_back(tmp_path):
    run = recorded([result(CASE)])
    assert read_written(written(run, tmp_path)) == run
    assert read_written(tmp_path / "results.jsonl") == run


def test_a_compressed_file_is_read_like_the_file(tmp_path):
    path = written(recorded([result(CASE)]), tmp_path / "run") / records.FILE_NAME
    compressed = tmp_path / "rxe.jsonl.xz"
    compressed.write_bytes(lzma.compress(path.read_bytes()))
    assert read_results(compressed).results == read_results(path).results


@pytest.mark.parametrize(
    "content, wrong",
    [
        (lzma.compress(b"{}")[:-4], "not one whole stream of xz"),
        (lzma.compress(b"{}") + b"{}", "not one whole stream of xz"),
        (b"{}" * 16, "not a file of xz"),
    ],
)
def test_a_damaged_compressed_file_is_refused(content, wrong, tmp_path):
    (tmp_path / "run.jsonl.xz").write_bytes(content)
    with pytest.raises(UserError, match=wrong):
        read_results(tmp_path / "run.jsonl.xz")


def test_a_compressed_file_that_expands_too_far_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(regular_file, "MOST_BYTES", 1 << 16)
    (tmp_path / "run.jsonl.xz").write_bytes(lzma.compress(b"0" * (1 << 17)))
    with pytest.raises(UserError, match="larger than 65,536 bytes"):
        read_results(tmp_path / "run.jsonl.xz")


def test_each_line_is_in_the_file_as_soon_as_it_is_appended(tmp_path):
    file = ResultsFile(tmp_path / "deep" / "er" / "results.jsonl")
    file.append(header())
    assert file.path.read_bytes() == encode(header())
    file.close()


def test_a_record_is_one_line_of_ascii_whatever_its_texts():
    data = encode({"reason": "b\u00f6se \U0001f600 \x1b[31m\nnext\u2028line \ud800"})
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")


@pytest.mark.parametrize("folder", ["file", "n" * 300, "link"])
def test_a_place_that_cannot_be_written_is_refused_with_status_2(tmp_path, folder):
    (tmp_path / "file").write_text("")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "results.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError) as caught:
        ResultsFile(tmp_path / folder / "results.jsonl")
    assert caught.value.status == 2
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_without_a_record_is_removed_when_it_is_closed(tmp_path):
    ResultsFile(tmp_path / "results.jsonl").close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_with_status_3():
    full = ResultsFile.__new__(ResultsFile)
    full.path = Path("/dev/full")
    with Path("/dev/full").open("wb", buffering=0) as device:
        full._fd = device.fileno()
        with pytest.raises(UserError, match="No space left") as caught:
            full.append(header())
    assert caught.value.status == 3


@pytest.mark.parametrize("cut", [0, 1, 20, len(encode(result(CASE))) - 2])
def test_a_file_without_footer_is_a_run_cut_short_and_a_torn_last_line_is_left_out(tmp_path, cut):
    recorded_run = recorded([result(CASE)], complete=False)
    with (written(recorded_run, tmp_path) / "results.jsonl").open("ab") as file:
        file.write(encode(result(CASE))[:cut])
    assert read_written(tmp_path) == replace(recorded_run, torn=bool(cut))


TYPES: dict[str, Any] = {
    get_args(get_type_hints(type_)["type"])[0]: type_ for type_ in get_args(Record)
}


def test_each_key_of_a_result_except_those_that_are_never_in_a_file_has_a_default():
    """mypy checks that the defaults fit the types."""
    assert set(shape.RESULT) == set(TYPES["result"].__annotations__) - {"points_data"}


def test_a_large_result_leaves_room_for_the_results_of_all_other_cases(stage, monkeypatch):
    monkeypatch.setattr(writer, "MOST_RESULTS_BYTES", 160_000)
    suite = numbered(20)
    lines = [encode(header())]
    for row in suite.cases:
        honest = observed_result(row)
        if row is suite.cases[0]:
            honest["observed"] = {**honest["observed"], "errno": "E" * 30_000}
        lines += [encode({"type": "start", "case": row.id}), encode(honest)]
    recorded = stage.play(lines, suite=suite)
    first, *others = recorded.results
    assert first["verdict"] == "BROKEN"
    assert "a file of results has at most 160,000 bytes" in first["reason"]
    assert {line["verdict"] for line in others} == {"PASS"}
    assert sum(len(encode(record)) for record in recorded.results) < 160_000


def test_a_run_whose_results_might_not_fit_into_a_file_is_refused_before_it_begins(
    tmp_path, monkeypatch, cli
):
    monkeypatch.setattr("commands.cli.choice.MOST_CASES", 3)
    said = cli(2, "run", "--guest", "--out", tmp_path / "out").err
    assert "are more than the 3 that a results file can have; select fewer cases\n" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, right",
    [("results.jsonl", "results.jsonl.xz"), ("a run", "a run.jsonl.xz")],
)
def test_packed_results_with_the_name_of_others_are_named_as_such(name, right, tmp_path, cli):
    path = tmp_path / name
    path.write_bytes(lzma.compress((TESTS / "recorded_violations/forky.jsonl").read_bytes()))
    said = f"rdma-cts: {path} has compressed results; name it {right}\n"
    for words in (("report", path), ("compare", path, path), ("judge", path)):
        assert cli(2, *words).err == said
    path.rename(tmp_path / right)
    cli(0, "report", tmp_path / right, "--out", tmp_path / "report.html")


def test_a_file_without_any_record_is_told_from_an_empty_one(tmp_path, cli):
    odd, empty = tmp_path / "odd", tmp_path / "empty.jsonl"
    odd.write_bytes(b"\0" * 100_000)
    assert (
        f"{odd} is not a results file: it has no header of schema rdma-cts/1; a run is a directory"
        in cli(2, "report", odd).err
    )
    empty.touch()
    for words in (("report", empty), ("judge", empty)):
        assert f"{empty}: nothing was recorded, no header" in cli(2, *words).err


BUNDLE = b"manifest.json".ljust(257, b"\0") + b"ustar\n"


@pytest.mark.parametrize(
    "name, content",
    {
        "run.tar": BUNDLE,
        "a run.tar.xz": lzma.compress(BUNDLE),
        "run": lzma.compress(BUNDLE) + b"\n",
    }.items(),
)
def test_a_bundle_that_is_given_as_a_run_is_named_as_one(name, content, tmp_path, cli):
    path = tmp_path / name
    path.write_bytes(content)
    for words in (("report", path), ("explain", "REG-01", "--run", path), ("compare", path, path)):
        (said,) = cli(2, *words).err.splitlines()
        assert said.startswith(f"rdma-cts: {path} is a bundle, not a run; ./rdma-cts judge ")
        assert said.endswith(f"`mkdir RUN && tar xf {shlex.quote(str(path))} -C RUN`, and give RUN")
