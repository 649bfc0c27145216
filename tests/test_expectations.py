"""Tests of the sentences about what a call must do, and of the lines about an exchange of packets."""

import pytest

from conformance.tables.suite import ROOT
from reports import evidence
from reports.digest import read
from reports.expectations import sentence, sentence_of

RXE = ROOT / "docs/runs/rxe.jsonl.xz"
EITHER = "success or a refusal, because the documents permit both; what follows is judged"


@pytest.mark.parametrize(
    "expected, said",
    [
        ({"outcome": "success", "mr": "as_asked"}, "success; the region has the requested values"),
        ({"outcome": "refused", "errno": ["EFAULT", "ENOENT"]}, "refused with EFAULT or ENOENT"),
        ({"outcome": "refused", "errno": ["any"]}, "refused with any errno"),
        ({"outcome": "refused", "code": ["ERR_CMD"]}, "refused with the code ERR_CMD"),
        ({"outcome": "refused", "after": "success"}, "refused; if the judged call succeeds"),
        ({"outcome": "open", "judged": "either"}, EITHER),
        ({"outcome": "refused", "otherwise": "unreachable"}, "refused"),
        ({"outcome": "success", "of another version": "x"}, ""),
        ({"outcome": ["hostile"]}, ""),
        ({}, ""),
    ],
)
def test_an_expectation_is_a_sentence(expected, said):
    assert sentence(expected) == said


@pytest.mark.parametrize(
    "text, said",
    [
        ("open judged either", EITHER),
        ("refused errno EPERM|EFAULT", "refused with EPERM or EFAULT"),
        ("refused EFAULT or ENOENT", "refused with EFAULT or ENOENT"),
        ("success rkey changed", "success; the key of the window is changed"),
        ("granted invalidated", "granted invalidated"),
        ("", ""),
    ],
)
def test_the_expectation_of_a_clause_is_a_sentence(text, said):
    assert sentence_of(text) == said


def test_the_expectation_of_every_recorded_row_is_a_sentence():
    for record in read(RXE).results:
        expected = record["expected"]
        if "clauses" not in expected and "combinations" not in expected and expected:
            for data in (evidence.own(expected), *evidence.later(expected)):
                shown = evidence.fields(data)
                assert all(not name for name, _ in shown), (record["case"], data)


def test_an_exchange_of_packets_has_a_line_for_each_event():
    name = "wire/repeated/read-again-after-the-right-was-removed"
    (record,) = [record for record in read(RXE).results if record["case"] == name]
    first, second = evidence.exchanges(record["observed"])
    assert first.startswith("op RDMA_READ_REQUEST(length=8, rkey=mr.rkey, addr=mr.addr, ")
    assert first.endswith("answer RESPONSE with 8 bytes of the memory; expected RESPONSE")
    assert second.endswith(": answer RESPONSE with 8 bytes of the memory; expected refusal")
    assert "exchange" not in evidence.observed(record)
    assert evidence.exchanges({"exchange": ["of another version"]}) == []
