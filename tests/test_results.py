"""Tests of the format of results.jsonl: its lines, writing and reading of the file, and the exit status."""

from __future__ import annotations

import itertools
import json
import lzma
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from actors import Stage
from conformance import regular_file
from conformance.errors import UserError
from conformance.judging import Judgement
from conformance.model import record_shape as shape
from conformance.model.observation import Observation
from conformance.model.printable import plain
from conformance.model.record import FooterRecord, Record
from conformance.model.rules import Needs
from conformance.model.verdict import VERDICTS, Verdict
from conformance.older_python import zip
from conformance.results import records, writer
from conformance.results.checked_json import MOST_LEVELS, parse, values_in
from conformance.results.conclusions import exit_status
from conformance.results.records import (
    Recorded,
    decode,
    encode,
    footer_record,
    read_results,
    read_written,
    result_record,
)
from conformance.results.rule_conclusions import conclude_rules
from conformance.results.shared import SharedValues
from conformance.results.writer import ResultsFile
from kinds import Cli, Patch
from reports.digest import digest
from samples import (
    case,
    changed,
    header,
    numbered,
    observed_result,
    recorded,
    registry,
    result,
    rule_verdicts,
    written,
)

CASE = case(
    "{rules: [REG-15, REG-16], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: EINVAL}}",
)


def footer(*verdicts: str, planned: int | None = None) -> FooterRecord:
    """Returns the footer of a run of `planned` cases, with one result for each verdict."""
    cases = numbered(max(planned or 0, len(verdicts), 1)).cases
    lines = [result(of, verdict) for of, verdict in zip(cases, verdicts, strict=False)]
    ids = [of.id for of in cases][: planned or len(verdicts)]
    return footer_record(ids, lines, registry(), duration_s=1.23456)


def test_a_result_has_every_field_of_the_contract() -> None:
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


@pytest.mark.parametrize("room", [1 << 20, 1])
def test_results_that_are_read_share_equal_values(
    room: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the room for stored values is used up, results still share the values that are already stored."""
    monkeypatch.setattr("conformance.results.shared._MOST_BYTES", room)
    lines = [result(case, observed={"rc": number}) for number, case in enumerate(numbered(2).cases)]
    path = written(recorded(lines, complete=False), tmp_path)
    first_record, other = read_results(path).results
    assert [first_record["observed"], other["observed"]] == [{"rc": 0}, {"rc": 1}]
    assert {*map(id, first_record)} == {*map(id, other)}
    assert next(iter(first_record["observed"])) is next(iter(other["observed"]))
    assert first_record["deviations"] is other["deviations"], "the default value is not shared"
    assert first_record["rules"] is other["rules"]
    assert (first_record["expected"] is other["expected"]) is (room > 1)


def test_json_of_the_most_levels_is_read_and_one_level_more_is_refused() -> None:
    most = "[" * MOST_LEVELS + "]" * MOST_LEVELS
    assert parse(most)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse(f"[{most}]")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"observed":{"rc":0}', b'"observed":{"rc":1,"call":"x"}'),
        (b'"observed":{"rc":0}', b'"observed":{"rc":"x"}'),
        (b'"observed":{"rc":0}', b'"observed":{"rc":0},"unknown":null'),
        (b'"observed":{"rc":0}', b'"observed":{"rc":[1],[2]}'),
        (
            b'"observed":{"rc":0}',
            b'"observed":' + b'{"a":' * MOST_LEVELS + b"0" + b"}" * MOST_LEVELS,
        ),
        (
            b'"observed":{"rc":0}',
            b'"observed":' + b'{"a":' * (MOST_LEVELS - 1) + b"0" + b"}" * (MOST_LEVELS - 1),
        ),
        (b'"kernel":{}', b'"kernel":{"log":[1]}'),
        (b'"kernel":{}', b'"kernel":{"log":["\\u001b"]}'),
        (b'"kernel":{}', b'"kernel":{"log":["a"]}'),
        (b'"reason":"why"', b'"reason":7'),
        (b'"reason":"why"', b'"reason":"x","reason":"y"'),
        (b'"duration_us":7', b'"duration_us":"7"'),
        (b'"verdict":"FAIL"', b'"verdict":"CRASH"'),
        (b'{"type":"result"', b'{"type":1e999}{"type":"result"'),
    ],
)
def test_a_line_after_similar_lines_is_accepted_or_refused_like_a_single_line(
    before: bytes,
    after: bytes,
) -> None:
    record = result(
        numbered(1).cases[0],
        "FAIL",
        observed={"rc": 0},
        kernel={},
        reason="why",
        duration_us=7,
    )
    record |= {"fault": {"kind": "accepted"}}
    line, shared = encode(record)[:-1], SharedValues()
    assert before in line
    for text in (line, line.replace(before, after), line):
        try:
            single = decode(text)
        except ValueError:
            continue  # not a record, which the reader refuses
        assert single["type"] == "result"
        try:
            complete = shape.check(single, "")
        except UserError:
            with pytest.raises(ValueError, match=re.escape(shape.mistake_in(single))):
                shared.accept(single)
            continue
        written, shown, _ = shared.accept(single)
        assert (written, shown) == (single, plain(complete))
    assert single["type"] == "result"
    assert shared.accept(single)[2] == 0, "a value of an earlier line counts again"


def test_a_footer_has_every_field_of_the_contract() -> None:
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


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(VERDICTS, 2)))
def test_the_verdict_of_a_rule_is_the_worst_of_its_cases(one: str, other: str) -> None:
    first, second = numbered(2).cases
    lines = [result(first, other), result(second, one)]
    absent = other == "PASS" and one in ("UNSUPPORTED", "UNREACHABLE")
    if absent:
        expected = "PARTIAL"
    else:
        expected = one
    assert rule_verdicts(lines) == {"REG-01": expected}
    assert rule_verdicts(lines[::-1]) == {"REG-01": expected}


def test_a_rule_that_is_verified_in_part_names_what_the_device_does_not_offer() -> None:
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


def test_open_outcomes_verify_no_unsupported_rule_and_waivers_count_by_the_effective_verdict() -> (
    None
):
    first, second = numbered(2).cases
    lines = [result(first, "PASS", expected={"outcome": "open"}), result(second, "UNSUPPORTED")]
    lines.append(result(CASE, "FAIL", effective="PASS", waiver={"issue": "1"}))
    assert rule_verdicts(lines) == {"REG-01": "UNSUPPORTED", "REG-15": "PASS", "REG-16": "PASS"}


@pytest.mark.parametrize(
    ("verdicts", "missing", "complete", "status"),
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
    verdicts: str,
    missing: int,
    complete: bool,
    status: int,
) -> None:
    last = footer(*verdicts.split(), planned=len(verdicts.split()) + missing)
    assert (last["complete"], exit_status(last)) == (complete, status)


def test_written_records_are_read_back(tmp_path: Path) -> None:
    run = recorded([result(CASE)])
    assert read_written(written(run, tmp_path)) == run
    assert read_written(tmp_path / "results.jsonl") == run


def test_a_compressed_file_is_read_like_the_file(tmp_path: Path) -> None:
    path = written(recorded([result(CASE)]), tmp_path / "run") / records.FILE_NAME
    compressed = tmp_path / "rxe.jsonl.xz"
    compressed.write_bytes(lzma.compress(path.read_bytes()))
    assert read_results(compressed).results == read_results(path).results


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (lzma.compress(b"{}")[:-4], "not one whole stream of xz"),
        (lzma.compress(b"{}") + b"{}", "not one whole stream of xz"),
        (b"{}" * 16, "not a file of xz"),
    ],
)
def test_a_damaged_compressed_file_is_refused(content: bytes, wrong: str, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl.xz").write_bytes(content)
    with pytest.raises(UserError, match=wrong):
        read_results(tmp_path / "run.jsonl.xz")


def test_a_compressed_file_that_expands_too_far_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regular_file, "MOST_BYTES", 1 << 16)
    (tmp_path / "run.jsonl.xz").write_bytes(lzma.compress(b"0" * (1 << 17)))
    with pytest.raises(UserError, match="larger than 65,536 bytes"):
        read_results(tmp_path / "run.jsonl.xz")


def test_each_line_is_in_the_file_as_soon_as_it_is_appended(tmp_path: Path) -> None:
    file = ResultsFile(tmp_path / "deep" / "er" / "results.jsonl")
    file.append(header())
    assert file.path.read_bytes() == encode(header())
    file.close()


def test_a_record_is_one_line_of_ascii_whatever_its_texts() -> None:
    data = encode({"reason": "b\u00f6se \U0001f600 \x1b[31m\nnext\u2028line \ud800"})
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert data.endswith(b"\n")


@pytest.mark.parametrize("folder", ["file", "n" * 300, "link"])
def test_a_place_that_cannot_be_written_is_refused_with_status_2(
    tmp_path: Path,
    folder: str,
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "results.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError) as caught:
        ResultsFile(tmp_path / folder / "results.jsonl")
    assert caught.value.status == 2
    assert len(str(caught.value).splitlines()) == 1
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_without_a_record_is_removed_when_it_is_closed(tmp_path: Path) -> None:
    ResultsFile(tmp_path / "results.jsonl").close()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_with_status_3() -> None:
    full = ResultsFile.__new__(ResultsFile)
    full.path = Path("/dev/full")
    with Path("/dev/full").open("wb", buffering=0) as device:
        full._fd = device.fileno()
        with pytest.raises(UserError, match="No space left") as caught:
            full.append(header())
    assert caught.value.status == 3


@pytest.mark.parametrize("cut", [0, 1, 20, len(encode(result(CASE))) - 2])
def test_a_file_without_footer_is_a_run_cut_short_and_a_torn_last_line_is_left_out(
    tmp_path: Path,
    cut: int,
) -> None:
    recorded_run = recorded([result(CASE)], complete=False)
    with (written(recorded_run, tmp_path) / "results.jsonl").open("ab") as file:
        file.write(encode(result(CASE))[:cut])
    assert read_written(tmp_path) == replace(recorded_run, torn=bool(cut))


TYPES: dict[str, Any] = {
    get_args(get_type_hints(type_)["type"])[0]: type_ for type_ in get_args(Record)
}


def test_each_key_of_a_result_except_those_that_are_never_in_a_file_has_a_default() -> None:
    """mypy checks that the defaults fit the types."""
    assert set(shape.RESULT) == set(TYPES["result"].__annotations__) - {"points_data"}


def test_repeated_values_take_no_room_in_a_large_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a run of more than _MANY cases, a repeated value counts once towards a reader's limit, also after a resume."""
    lines = [result(case, "FAIL", f"it was {case.id}") for case in numbered(40).cases]
    head = header(planned=[line["case"] for line in lines])
    most = values_in(encode(head)) + 10 * values_in(encode(lines[0]))
    monkeypatch.setattr(writer, "MOST_RESULTS_VALUES", most)
    monkeypatch.setattr(records, "MOST_VALUES", most)
    monkeypatch.setattr(writer, "_MANY", len(lines) - 1)
    path = tmp_path / "large" / "results.jsonl"
    records_here: list[Any] = []
    for part in (lines[:20], lines[20:]):
        if path.exists():
            earlier = read_written(path)
        else:
            earlier = None
        with closing(ResultsFile(path, carry_on=True)) as file:
            file.cut_back(earlier)
            if not earlier:
                file.append(head)
            for line in part:
                assert not file.lacks_room(line)
                records_here.append(file.append(line))
    assert [result["case"] for result in read_written(path).results] == head["planned"]
    assert records_here == lines
    shown = digest(Recorded(head, records_here).shown(), tmp_path).results
    for same in (records_here, shown):
        for key in ("kernel", "set_up"):  # one of each session
            assert len({id(record[key]) for record in same}) <= 2
    assert list(shown) == list(digest(Recorded(head, lines).shown(), tmp_path).results)
    for count, changes in (
        (len(lines), [{}] * 40),
        (0, [{"notes": ["", str(number)] * 9} for number in range(40)]),
    ):
        monkeypatch.setattr(writer, "_MANY", count)
        with closing(ResultsFile(tmp_path / str(count) / "results.jsonl")) as file:
            file.append(head)
            for line in itertools.takewhile(
                lambda line: not file.lacks_room(line),
                map(changed, lines, changes),
            ):
                file.append(line)
        assert len(read_written(file.path).results) < 20


def test_results_that_repeat_values_are_read_like_single_lines(tmp_path: Path) -> None:
    """The lines differ from earlier lines in nested keys of the same name, numbers, escapes and the order of keys."""
    before: list[dict[str, Any]] = [
        *(
            {"expected": {name: 1, "observed": two}, "observed": {"returned": two}}
            for name, two in ("a2", "b3", "a3")
        ),
        {"fault": {"kind": "refused", "call": 'a "call"'}, "verdict": "FAIL"},
        {"expected": {"x": [{"observed": 1}]}, "reason": 'a \\ "quoted"\n one'},
        {"observed": {"wc": ["SUCCESS"]}, "notes": ["a", "b"]},
        {"duration_us": 7},
        {"of_a_later_version": None},
        {"reason": "a\nb"},
        {"notes": ["é\t"], "kernel": {"log": ["é\x1b"]}},
    ]
    source = {"file": "cases/a.yaml", "line": 1}
    lines = [
        {**result(case, change.get("verdict", "PASS")), "source": source, **change}
        for case, change in zip(
            numbered(32).cases,
            [*before, *before, *reversed(before)],
            strict=False,
        )
    ]
    lines[0] = dict(reversed(lines[0].items()))
    path = tmp_path / "results.jsonl"
    for separators in ((",", ":"), (", ", ": ")):
        text = [json.dumps(line, separators=separators) for line in [header(planned=[]), *lines]]
        path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
        assert read_written(path).results == [decode(line) for line in text[1:]]
        shown = read_results(path).results
        assert shown == [plain(shape.completed(decode(line))) for line in text[1:]]
    first, _, rest = path.read_text(encoding="utf-8").rpartition('"duration_us": 7')
    path.write_text(f'{first}"duration_us": 07{rest}', encoding="utf-8")
    with pytest.raises(UserError, match="not a line of"):
        read_written(path)


def test_a_large_result_leaves_room_for_the_results_of_all_other_cases(
    stage: Stage,
    monkeypatch: Patch,
) -> None:
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
    assert stage.path.stat().st_size < 160_000


def test_a_run_whose_results_might_not_fit_into_a_file_is_refused_before_it_begins(
    tmp_path: Path,
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    monkeypatch.setattr("commands.cli.choice.MOST_CASES", 3)
    said = cli(2, "run", "--guest", "--out", tmp_path / "out").err
    assert "are more than the 3 that a results file can have; select fewer cases\n" in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
