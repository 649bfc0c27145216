"""Tests of the tier health: what its cases may do on a node in production, and what they detect."""

from functools import cache

import pytest

from conformance.model.case import Case
from conformance.model.quantity import PAGES
from conformance.model.verdict import Verdict
from conformance.run_options import RunOptions
from conformance.tables.health import CASES, HEALTH
from conformance.tables.refused_requests import refused_requests
from conformance.tables.suite import Selection, load_suite
from conformance.tables.tiers import of_tier
from fixtures.targets.target import with_target
from samples import user_error
from stand_in_hosts import HOSTS, StandInHost
from trial.catalogue import VIOLATIONS
from trial.personas.persona import PERSONAS
from trial.personas.trying import outcome, run_clean
from trial.trying import KILLED, try_violation

# The calls of the tier. None of them forges a handle, forks, kills a process or removes pages.
CALLS = {
    "ibv_reg_mr",
    "ibv_dereg_mr",
    "ibv_bind_mw",
    "traffic",
    "local_traffic",
    "post_bind_mw",
    "post_local_inv",
}
MOST_REFUSED, MOST_PAGES = 30, 64
MOST_S = 10  # with the latencies of a NIC
# The rules that a healthy node needs: rights, range, domain, dead keys, windows.
ESSENTIAL = ("REG-04", "REG-05", "REG-06", "REG-07", "REG-20", "REG-22", "DEREG-01", "BIND-10")


@cache
def cases() -> list[Case]:
    return Selection(tier=HEALTH).apply(load_suite())


def test_the_tier_has_exactly_its_cases():
    assert {case.id for case in cases()} == set(CASES)
    rows = [case for case in cases() if case.point is None]
    assert of_tier(load_suite().cases, HEALTH) == rows


def test_only_a_few_requests_are_refused():
    assert 10 < refused_requests(cases()).number <= MOST_REFUSED


@pytest.mark.parametrize("name", CASES)
def test_no_case_can_harm_a_node(name):
    (case,) = (case for case in cases() if case.id == name)
    steps = case.steps
    assert {step.call for step in steps} <= CALLS
    assert not case.alone
    assert not case.needs_kept_memory
    assert case.given.memlock is None
    assert not case.given.dmabufs
    for memory in case.given.memory.values():
        assert memory.kind == "anonymous"
        (size,) = memory.size.terms
        assert size.unit in PAGES
        assert size.number <= MOST_PAGES


@pytest.mark.parametrize("persona", PERSONAS, ids=lambda persona: persona.name)
def test_a_device_of_each_driver_is_healthy(persona):
    ran = run_clean(persona, cases())
    assert ran.nic_s < MOST_S
    found = outcome(persona, ran)
    wrong = [line for line in found.wrong if " no case " not in line]
    about = {"IOVA-02a", *persona.violates}
    for line in wrong:
        assert any(rule in line for rule in about), line
    assert not found.broken
    assert found.verdicts[Verdict.PASS] > 0


def test_the_other_criteria_select_among_the_cases_and_points():
    suite = load_suite()
    for case in Selection(tier=HEALTH, rules=["REG-22"]).apply(suite):
        assert "REG-22" in case.rules
    for case in Selection(tier=HEALTH, verbs=["dereg_mr"]).apply(suite):
        assert case.verb == "ibv_dereg_mr"


@pytest.mark.parametrize("rule", ESSENTIAL)
def test_a_device_that_violates_an_essential_rule_is_not_healthy(rule):
    of_rule = [violation for violation in VIOLATIONS if violation.rule == rule]
    assert any(try_violation(violation, cases()).outcome == KILLED for violation in of_rule)


@pytest.mark.parametrize("name", HOSTS)
def test_the_tier_runs_beside_other_users(name, tmp_path, monkeypatch):
    host: StandInHost = HOSTS[name]()
    host.installed(tmp_path, monkeypatch)
    for device, ports in host.ports.items():
        options = RunOptions(device=device, port=len(ports), tier=HEALTH)
        assert with_target(options).device == device


def test_hazardous_cases_are_refused_in_one_line():
    with user_error("--tier health and --hazardous exclude each other", status=2):
        with_target(RunOptions(device="mlx5_0", tier=HEALTH, hazardous=True))
