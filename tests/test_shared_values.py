"""Tests of results that repeat values: they are read like single lines, and a repeated value counts once."""

import cProfile
import itertools
import json
import re
from contextlib import closing
from typing import Any

import pytest

from conformance.errors import UserError
from conformance.model import record_shape as shape
from conformance.model.printable import plain
from conformance.older_python import zip
from conformance.results import records, writer
from conformance.results.checked_json import MOST_LEVELS, values_in
from conformance.results.records import (
    Recorded,
    decode,
    encode,
    read_results,
    read_written,
)
from conformance.results.shared import SharedValues
from conformance.results.writer import ResultsFile
from reports.digest import digest
from samples import (
    changed,
    header,
    numbered,
    recorded,
    result,
    written,
)


@pytest.mark.parametrize("room", [1 << 20, 1])
def test_results_that_are_read_share_equal_values(room, tmp_path, monkeypatch):
    """When the room for stored values is used up, results still share the values that are already stored."""
    monkeypatch.setattr(records, "MANY", 1)
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


@pytest.mark.parametrize(
    "before, after",
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
def test_a_line_after_similar_lines_is_accepted_or_refused_like_a_single_line(before, after):
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
    assert shared.accept(single)[2] == [], "a value of an earlier line counts again"


def test_repeated_values_take_no_room_in_a_large_run(tmp_path, monkeypatch):
    """In a run of more than MANY cases, a repeated value counts once towards a reader's limit, also after a resume."""
    lines = [result(case, "FAIL", f"it was {case.id}") for case in numbered(40).cases]
    head = header(planned=[line["case"] for line in lines])
    most = values_in(encode(head)) + 10 * values_in(encode(lines[0]))
    monkeypatch.setattr(writer, "MOST_RESULTS_VALUES", most)
    monkeypatch.setattr(records, "MOST_VALUES", most)
    monkeypatch.setattr(writer, "MANY", len(lines) - 1)
    path = tmp_path / "large" / "results.jsonl"
    appended: list[Any] = []
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
                appended.append(file.append(line))
    assert [result["case"] for result in read_written(path).results] == head["planned"]
    assert appended == lines
    shown = digest(Recorded(head, appended).shown(), tmp_path).results
    for same in (appended, shown):
        for key in ("kernel", "set_up"):  # one of each session
            assert len({id(record[key]) for record in same}) <= 2
    assert list(shown) == list(digest(Recorded(head, lines).shown(), tmp_path).results)
    for count, changes in (
        (len(lines), [{}] * 40),
        (0, [{"notes": ["", str(number)] * 9} for number in range(40)]),
    ):
        monkeypatch.setattr(writer, "MANY", count)
        with closing(ResultsFile(tmp_path / str(count) / "results.jsonl")) as file:
            file.append(head)
            for line in itertools.takewhile(
                lambda line: not file.lacks_room(line),
                map(changed, lines, changes),
            ):
                file.append(line)
        assert len(read_written(file.path).results) < 20


def test_results_that_repeat_values_are_read_like_single_lines(tmp_path):
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


@pytest.mark.parametrize("encoding", ["ascii", "utf-8", "utf-16-le"])
@pytest.mark.parametrize("text", ["\x1b[2J", "a\tb", "\x7f", "‮", "é", 'a"b\\n', "plain"])
def test_each_text_that_is_read_is_printable(tmp_path, text, encoding):
    """Also in a line that has only bytes of ASCII: in UTF-16, two of them are one character."""
    kernel = {"log": [text, "‮ "]} if encoding == "utf-16-le" else {"log": [text]}
    lines = [result(case, "FAIL", text, kernel=kernel) for case in numbered(1).cases]
    path = written(recorded(lines, complete=False), tmp_path) / "results.jsonl"
    *before, last = path.read_bytes().splitlines()
    if encoding != "ascii":
        last = json.dumps(json.loads(last), ensure_ascii=False).encode(encoding)
    if b"\n" in last:
        return  # a line feed within a character ends the line
    path.write_bytes(b"\n".join([*before, last, b""]))
    (read,) = read_results(path).results
    assert read["reason"] == plain(text)
    assert read["kernel"]["log"] == [plain(line) for line in kernel["log"]]


@pytest.mark.parametrize("name", ["read_results", "digest"])
def test_the_work_for_a_result_does_not_grow_with_the_number_of_results(name, tmp_path):
    """Calls are counted, and not seconds: the test does not depend on the machine. A run of MOST_CASES is read like
    this one; a larger one is refused before it begins."""

    def calls(count: int) -> int:
        lines = [
            result(case, "FAIL", f"it was {case.id}", observed={"rc": number})
            for number, case in enumerate(numbered(count).cases)
        ]
        path = written(recorded(lines, complete=False), tmp_path / f"{count}")
        profile = cProfile.Profile()
        with profile:
            run = read_results(path)
            if name == "digest":
                assert digest(run, path).summary
        return sum(entry.callcount for entry in profile.getstats())

    calls(10)  # fills the caches
    few, some, most = (calls(count) for count in (200, 400, 800))
    assert (most - some) / 400 < 1.1 * (some - few) / 200
