"""Tests of the time that a run would take on a NIC: calls with a NIC's latencies, and a device on which nothing follows
refusals, so that the suite waits in vain."""

from contextlib import closing
from dataclasses import replace

import pytest

from conformance.execution.connection import SILENCE_S
from conformance.model.case import QpSpec
from conformance.model.deadline import COMPLETION_DEADLINE_S, TAUGHT_S
from conformance.tables.refused_requests import refused_requests
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from recorded_reference import is_dear
from trial.personas.persona import PERSONAS, Persona
from trial.personas.time_on_a_nic import LATENCIES_S, on_a_nic
from trial.personas.trying import run_clean
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device

# A device on which the suite waits: nothing arrives after a refusal over UC, and no receive is flushed.
SILENT = ("silent-after-a-refusal-over-uc", "receives-are-not-flushed")
# docs/devices.md states these times, in seconds.
FAST_S, SILENT_S = 30, 150


def mlx5(*more: str) -> Persona:
    (persona,) = (persona for persona in PERSONAS if persona.name == "mlx5")
    return replace(persona, behaves={**persona.behaves, **dict.fromkeys(more, "")})


def test_each_call_and_each_wait_take_time():
    device = on_a_nic(Device)()
    with closing(ReferenceBench(device)) as bench:
        pd = bench.alloc_pd()
        assert device.spent_s == LATENCIES_S["alloc_pd"]
        pair = bench.pair(QpSpec("RC", "pd"), pd, pd)
        before = device.spent_s
        assert before > 2 * LATENCIES_S["create_qp"]
        assert pair.requester.completions(1) == []
        assert (device.spent_s - before, device.waited_s) == (COMPLETION_DEADLINE_S,) * 2
        assert pair.requester.completions(1, 0.5) == []
        assert device.waited_s == COMPLETION_DEADLINE_S + 0.5


def test_a_space_over_uc_costs_a_silent_device_a_few_seconds():
    """Each of its points that are refused over UC could cost a second."""
    (space,) = (
        case
        for case in load_suite().cases
        if case.id == "reg_mr/data_path/unreliable-operation-by-access-by-place"
    )
    refused = refused_requests([space]).unacknowledged
    assert refused > 50
    usual, silent = run_clean(mlx5(), [space]), run_clean(mlx5(*SILENT), [space])
    assert (usual.waited_s, silent.failed, silent.broken) == (0.0, usual.failed, ())
    assert 0 < silent.waited_s < 10 * SILENCE_S + refused * TAUGHT_S


def test_a_bind_that_was_not_posted_is_not_awaited():
    """mana allocates windows, but binds none: eight rows would wait for 20 s each."""
    (mana,) = (persona for persona in PERSONAS if persona.name == "mana")
    rows = [case for case in load_suite().cases if case.id.startswith("bind_mw/keys_of_others/")]
    assert len(rows) > 8
    assert run_clean(mana, rows).waited_s == 0.0


def test_a_write_that_iwarp_does_not_acknowledge_is_awaited_briefly():
    """A refused write completes with SUCCESS, and a shared receive queue flushes no receive."""
    (cxgb4,) = (persona for persona in PERSONAS if persona.name == "cxgb4")
    rows = [case for case in load_suite().cases if case.id.startswith("reg_mr/shared_receives/")]
    ran = run_clean(cxgb4, rows)
    assert "reg_mr/shared_receives/immediate-data-with-local-write" in ran.passed
    assert 0 < ran.waited_s <= 2 * SILENCE_S


@pytest.mark.nightly
@pytest.mark.parametrize("more, most_s", [((), FAST_S), (SILENT, SILENT_S)])
def test_the_default_tier_takes_the_stated_time_on_a_nic(more, most_s):
    cases = [case for case in of_tier(load_suite().cases, DEFAULT) if not is_dear(case)]
    ran = run_clean(mlx5(*more), cases)
    assert 5 < ran.nic_s < most_s
    if more:
        assert ran.waited_s > 5
    else:  # after a packet that has no answer, the wire peer listens for a millisecond
        assert ran.waited_s == pytest.approx(0, abs=1)
    assert ran.broken == ()
