"""The types of records, the checks of what is read, and the page about them name the same keys."""

import re
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest

from conformance.errors import UserError
from conformance.model import record as records
from conformance.model import record_shape as shape
from conformance.model.fault import FaultData
from conformance.model.observation import Alarm
from conformance.model.record import Record
from conformance.model.verdict import Verdict
from conformance.results.records import encode, read_results
from conformance.tables.suite import ROOT
from samples import case, changed, result

PAGE = (ROOT / "docs" / "results.md").read_text()
TYPES: dict[str, Any] = {get_args(get_type_hints(type_)["type"])[0]: type_ for type_ in get_args(Record)}
PARTS = (records.Deviation, Alarm, FaultData, records.WaiverFacts, records.WaiversAccount, records.SpaceFacts)
# In a worker's stream and never in the file.
STREAM_ONLY = {"points_data"} | {
    key for type_ in ("progress", "offered", "guest") for key in TYPES[type_].__annotations__
}


def test_each_key_of_a_result_has_a_default_but_those_that_are_never_in_a_file() -> None:
    """That the defaults fit the types, mypy checks."""
    assert set(shape.RESULT) == set(TYPES["result"].__annotations__) - {"points_data"}


@pytest.mark.parametrize("type_", shape.REQUIRED)
def test_what_a_record_must_have_is_a_key_of_its_type(type_: str) -> None:
    assert set(shape.REQUIRED[type_]) <= set(TYPES[type_].__annotations__)


@pytest.mark.parametrize("type_", [*TYPES.values(), *PARTS], ids=lambda type_: type_.__name__)
def test_the_page_names_every_key_of_the_file(type_: Any) -> None:
    named = set(re.findall(r"`([a-z0-9_]+)`", PAGE))
    assert set(type_.__annotations__) - STREAM_ONLY - named == set()


def test_a_name_that_commands_a_terminal_is_shown_harmless() -> None:
    of = result(case("{rules: [REG-01], when: {access: []}, then: success}"))
    bad = changed(of, {"case": "a\x1b[31m\nb", "rules": [1]})
    with pytest.raises(UserError) as caught:
        shape.check(bad, "here")
    assert str(caught.value) == "here: case 'a\\x1b[31m\\nb': `rules` is not a list of texts"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"type":', "no JSON: Expecting value, at character 9"),
        (b"\xfd7zXZ", "no UTF-8 text"),
        (b"{}", "no object with a type"),
        (b'{"type":"start"}', "a start without case"),
    ],
)
def test_a_message_says_why_a_line_is_no_record(line: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_bytes(line + b"\n")
    with pytest.raises(UserError) as caught:
        read_results(tmp_path)
    assert str(caught.value) == f"{tmp_path / 'results.jsonl'}:1: not a line of rdma-cts/1: {said}"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tier": 5}, "tier is 5, not a text or null"),
        ({"device": {"fw": []}}, "device.fw is a list, not a text"),
        ({"env": {"tainted": "no"}}, 'env.tainted is "no", not an integer'),
        ({"planned": ["a", 1]}, "planned[1] is 1, not a text"),
        ({"argv": {"a": 1}}, "`argv` is not a list"),
    ],
)
def test_a_message_says_what_a_value_may_be(change: dict[str, Any], said: str) -> None:
    header: Any = {**shape.HEADER, **change}
    with pytest.raises(UserError) as caught:
        shape.check(header, "here")
    assert str(caught.value).endswith(f": {said}")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"kind": "hung"}, "its fault, hung, gives HANG and not FAIL"),
        ({"kind": "no such"}, '`fault`: kind is "no such", not one of'),
        ({"call": "x"}, "`fault` has no `kind`"),
        ({"kind": "moved", "seen": 1}, "`fault`: seen is 1, not a list"),
        ({"kind": "moved", "site": ["f"]}, "`fault.site` has 1 names, not 4"),
    ],
)
def test_a_fault_that_does_not_fit_is_refused_with_its_line(tmp_path: Path, fault: object, said: str) -> None:
    of = result(case("{rules: [REG-01], when: {access: []}, then: success}"), Verdict.FAIL)
    file = tmp_path / "results.jsonl"
    header = {"type": "header", "schema": "rdma-cts/1", "env": {}, "device": {}, "planned": []}
    file.write_bytes(encode(header) + encode(of))
    read_results(file)
    for bad in (
        changed(of, {"fault": fault}),
        changed(of, {"deviations": [{"when": "", "rules": [], "fault": fault}]}),
    ):
        file.write_bytes(encode(header) + encode(bad))
        with pytest.raises(UserError, match=f"{re.escape(f'{file}:2: case')}.*{re.escape(said)}"):
            read_results(file)
