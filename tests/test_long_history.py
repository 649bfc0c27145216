"""Tests that a long history needs little memory and time: summaries that differ only in start and duration are parsed
once, and equal parts of all summaries are stored once. benchmarks/readers.py measures 2,000 nights on 4 stacks."""

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.results.checked_json import parse
from made_history import run_of, write_run
from reports.nights.facts import Facts, FactsReader


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    """The summary of a run with a violation."""
    write_run(tmp_path, run_of({3: "FAIL"}))
    return dict(json.loads((tmp_path / "summary.json").read_bytes()))


def content(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=1) + "\n").encode()


def night(data: dict[str, Any], number: int) -> dict[str, Any]:
    started = f"2026-01-{number:02}T03:17:00+00:00"
    stack = {**data["stack"], "started": started}
    return {**data, "started": started, "duration_s": number / 8, "stack": stack}


def test_nights_that_differ_in_start_and_duration_are_parsed_once(data, monkeypatch):
    parsed: list[int] = []

    def counted(text: bytes) -> Any:
        parsed.append(len(text))
        return parse(text)

    monkeypatch.setattr("reports.nights.facts.parse", counted)
    reader = FactsReader()
    nights = [content(night(data, number)) for number in range(1, 29)]
    facts = [reader.of_summary(text) for text in nights]
    assert facts == [Facts.of(parse(text)) for text in nights]
    assert sum(size > 100 for size in parsed) == 1
    for part in ("rules", "hashes", "violating", "defects", "capabilities"):
        assert len({id(getattr(summary, part)) for summary in facts}) == 1


# Changes after which a summary is not like an earlier one.
DIFFERENT: dict[str, dict[str, Any]] = {
    "a verdict": {"rules": {"REG-01": "PASS"}},
    "incomplete": {"complete": False},
    "resumed": {"resumed": 1},
    "another kernel": {"stack": {"kernel": "9.9"}},
    "no duration": {"duration_s": None},
    "no defect": {"defects": []},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_a_night_that_differs_in_more_has_its_own_facts(data, what):
    reader = FactsReader()
    reader.of_summary(content(night(data, 1)))
    changed = content({**night(data, 2), **DIFFERENT[what]})
    assert reader.of_summary(changed) == Facts.of(parse(changed))


def test_equal_parts_of_different_summaries_are_stored_once(data):
    reader = FactsReader()
    first = reader.of_summary(content(data))
    second = reader.of_summary(content({**data, "headline": "another"}))
    assert second.rules is first.rules
    assert second.defects is first.defects


@pytest.mark.parametrize("value", ["[]", "{}", '"\\ud800', "nan", "1e999", '"x" "y"', ""])
@pytest.mark.parametrize("name", ["started", "duration_s"])
def test_a_damaged_line_after_a_good_summary_is_refused(data, name, value):
    reader = FactsReader()
    good = content(night(data, 1))
    reader.of_summary(good)
    line = json.dumps({name: night(data, 1)[name]}, indent=1)[3:-2]
    damaged = good.replace(line.encode(), f'"{name}": {value}'.encode())
    assert damaged != good
    with pytest.raises((ValueError, TypeError, OverflowError)):
        reader.of_summary(damaged)
