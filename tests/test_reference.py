"""Tests that every case of the tables passes on the reference, also with larger pages, and does not fail if
capabilities are undeclared."""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import cast

import pytest

from conformance import judging
from conformance.bench.work_requests import SendRequest
from conformance.model.case import Case, QpSpec
from conformance.model.operations import WR_POST
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import WIRE
from conformance.tables.suite import ROOT, Suite, load_suite
from conformance.tables.tiers import DEFAULT, EXHAUSTIVE, of_tier
from launched import ended
from recorded_reference import is_dear
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.held_queue import HeldQueue
from trial.reference.stack import DECLARABLE, OPTIONAL, without
from trial.running import on_reference, stack_for


@pytest.fixture(scope="module")
def suite() -> Suite:
    """Returns the suite without sweeps of more than 300 points and without the largest arrays."""
    suite_read = load_suite()
    chosen = [
        replace(table, cases=tuple(filter(is_small, table.cases))) for table in suite_read.tables
    ]
    return replace(suite_read, tables=tuple(chosen))


def is_small(case: Case) -> bool:
    """Whether a case has few points. Cases with a wire peer have their own tests."""
    return not (case.needs_wire_peer or is_triples(case)) and (
        case.sweep is None or case.sweep.size <= 300
    )


def is_triples(case: Case) -> bool:
    """Whether a case has the combinations of three values of a model: its slice and its pairs have fewer points."""
    return case.array is not None and case.array.strength > 2 and case.tier == EXHAUSTIVE


def faults(judged_cases: Iterator[tuple[Case, judging.Judgement]], *allowed: str) -> list[str]:
    return [
        f"{case.id}: {judgement.verdict} {judgement.reason}"
        for case, judgement in judged_cases
        if judgement.verdict not in allowed
    ]


def test_every_case_of_the_tables_passes_on_the_reference(suite):
    assert faults(on_reference(suite.cases), Verdict.PASS) == []


@pytest.mark.nightly
def test_no_point_of_the_triples_fails_without_on_demand_paging():
    """By day, the points of the slices and of the pairs are run; test_covering_arrays.py runs all on the whole reference."""
    triples = [case for case in load_suite().cases if is_triples(case)]
    assert len(triples) > 5
    judged_cases = on_reference(triples, only=without("odp"))
    assert faults(judged_cases, Verdict.PASS, Verdict.UNSUPPORTED, Verdict.UNREACHABLE) == []


def test_every_row_of_packets_passes_on_the_reference():
    rows = [case for case in load_suite().cases if case.when.call == WIRE]
    assert faults(on_reference(rows), Verdict.PASS) == []


def test_rows_pass_if_a_wire_peer_carries_them():
    copies = [case for case in load_suite().cases if case.id.endswith("@wire")]
    chosen = [case for case in copies if case.verb in ("ibv_bind_mw", "ibv_rereg_mr")]
    assert faults(on_reference(chosen[::3]), Verdict.PASS, Verdict.UNREACHABLE) == []


def test_every_point_of_the_larger_spaces_passes_on_the_reference():
    larger = [case for case in of_tier(load_suite().cases, DEFAULT) if case.sweep]
    larger = [case for case in larger if not is_small(case)]
    assert len(larger) > 5
    assert faults(on_reference(larger), Verdict.PASS) == []


def test_every_case_has_a_stack_that_reaches_it(suite):
    assert [case.id for case in suite.cases if stack_for(case) is None] == []


ODP_OPERATIONS = ("odp_send", "odp_recv", "odp_write", "odp_read", "odp_atomic")
# By capability, a rule that every device must follow: a device without the capability violates the rule, and the cases
# that depend on the capability are UNSUPPORTED.
OWN_RULES = {"iova_page_offset": "IOVA-02a"}
GROUPS = [*((name,) for name in OPTIONAL if name not in ODP_OPERATIONS), ODP_OPERATIONS, OPTIONAL]
BY_DAY = [("odp",), OPTIONAL]


@pytest.mark.parametrize(
    "undeclared",
    [pytest.param(group, marks=() if group in BY_DAY else pytest.mark.nightly) for group in GROUPS],
    ids=lambda names: "+".join(names),
)
def test_cases_that_need_undeclared_capabilities_do_not_fail(undeclared, suite):
    capability_rules = {OWN_RULES.get(name) for name in undeclared}
    cases = [
        case for case in suite.cases if not capability_rules & set(case.rules) and not is_dear(case)
    ]
    # in all other cases, this device does not differ from the complete reference
    if undeclared == ("odp",):
        cases = [
            case for case in cases if set(case.needs) & set(undeclared) or "ON_DEMAND" in repr(case)
        ]
        assert len(cases) > 100
    judged_cases = list(on_reference(cases, only=without(*undeclared)))
    assert faults(iter(judged_cases), Verdict.PASS, Verdict.UNSUPPORTED, Verdict.UNREACHABLE) == []
    needed = [judgement for case, judgement in judged_cases if set(case.needs) & set(undeclared)]
    if needed:  # a call that is accepted passes, and its result mentions the undeclared capability
        said = any("does not declare" in name.reason for name in needed)
        assert said or Verdict.UNSUPPORTED in {judgement.verdict for _, judgement in judged_cases}


# What NICs lack, each alone at night.
ABSENT = ("atomics", "mw_type_1", "mw_type_2", "uc", "immediate_data", "send_immediate_data")


@pytest.mark.parametrize(
    "absent",
    [ABSENT, *(pytest.param((name,), marks=pytest.mark.nightly) for name in ABSENT)],
    ids="+".join,
)
def test_a_row_of_packets_passes_without_what_it_does_not_need(absent):
    cases = of_tier(load_suite().cases, DEFAULT)
    rows = [case for case in cases if case.when.call == WIRE and "iwarp" not in case.needs]
    unaffected = [case for case in rows if set(absent).isdisjoint(case.needs)]
    assert len(unaffected) > 500
    others = [case for case in rows if case not in unaffected]
    stack = without(*absent)
    assert faults(on_reference(unaffected, only=stack), Verdict.PASS) == []
    assert faults(on_reference(others, only=stack), Verdict.PASS, Verdict.UNSUPPORTED) == []


def test_a_row_that_needs_a_type_of_queue_pair_is_unsupported_without_it(suite):
    """Later steps of this row examine the effects of requests that the device cannot execute."""
    cases = [case for case in suite.cases if "peers-write-to-a-region" in case.id]
    assert all("rc" in case.needs for case in cases)
    verdicts = [judgement.verdict for _, judgement in on_reference(cases, only=without("rc"))]
    assert verdicts == [Verdict.UNSUPPORTED] * 2


def test_an_undeclared_capability_is_also_not_offered():
    for undeclared in OPTIONAL:
        with closing(ReferenceBench(Device(without(undeclared)))) as bench:
            capabilities = bench.capabilities()
            capabilities_known = {**capabilities.declared, **capabilities.offered["libibverbs"]}
            assert capabilities_known[undeclared] is False
            assert undeclared in DECLARABLE or capabilities.offered["uverbs"][undeclared] is False


def test_a_batch_with_a_wrong_request_executes_no_request():
    with closing(ReferenceBench()) as bench:
        pair = bench.pair(
            QpSpec("UC", "pd", extended=WR_POST),
            bench.alloc_pd(),
            bench.alloc_pd(),
        )
        queue = cast(HeldQueue, pair.requester)
        wrong = SendRequest("RDMA_READ", 2)  # UC has no RDMA READ
        assert queue.post_batch((SendRequest("RDMA_WRITE", 1), wrong)).value == errno.EINVAL
        assert queue.completions(2) == []


@pytest.mark.parametrize(
    "size, every",
    [(64 << 10, 4), *(pytest.param(size << 10, 1, marks=pytest.mark.nightly) for size in (16, 64))],
)
def test_cases_pass_with_larger_pages(size, every):
    """By day, every fourth case is run."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = ended(sys.executable, "tests/on_large_pages.py", size, every, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    facts = json.loads(done.stdout)
    assert facts["wrong"] == []
    assert facts["cases"] == facts["planned"] > 1000 // every
