"""Tests of the size of requests that are in flight during a call."""

from contextlib import closing

import pytest

from conformance.execution.context import CaseContext
from conformance.execution.in_flight import REQUESTS
from conformance.execution.pace import MOST_BYTES, RATIO, bytes_in_flight, size_for
from conformance.execution.procedure import set_up_base
from conformance.model.preflight import Findings
from samples import case
from trial.personas.persona import PERSONAS
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device

PAGE = 4096
RACING = """
- id: racing
  rules: [DEREG-04]
  given: {mrs: {mr: {access: [LOCAL_WRITE, REMOTE_WRITE]}}, qps: {qp: {type: RC}}}
  before: [{call: post_traffic, op: RDMA_WRITE, rkey: mr.rkey, addr: buf, length: LENGTH}]
  call: ibv_dereg_mr
  when: {mr: mr}
  then: success
"""


@pytest.mark.parametrize(
    "bits_per_s, call_s",
    [(0.5e9, 200e-6), (100e9, 20e-6), (400e9, 30e-6), (800e9, 5e-6)],
)
def test_a_burst_lasts_much_longer_than_the_call(bits_per_s, call_s):
    size = size_for(call_s, 8 / bits_per_s, PAGE)
    assert size % PAGE == 0
    lasts_s = REQUESTS * size * 8 / bits_per_s
    assert RATIO * call_s < lasts_s <= RATIO * call_s + REQUESTS * PAGE * 8 / bits_per_s


def test_the_size_is_bounded():
    assert size_for(1.0, 1e-12, PAGE) == MOST_BYTES


def test_the_measurement_leaves_nothing_behind():
    with closing(ReferenceBench(Device())) as bench:
        before = bench.resources()
        assert 0 < bytes_in_flight(bench) <= MOST_BYTES
        assert bench.resources() == before


def test_only_memory_that_requests_in_flight_use_is_enlarged():
    with closing(ReferenceBench(Device())) as bench:
        bench.adapt(Findings(in_flight_bytes=10 * PAGE))
        for length, pages in (("buf.size", 10), ("1 page", 4)):
            context = CaseContext(case(RACING.replace("LENGTH", length), "dereg_mr"), bench)
            with context.cleanup:
                set_up_base(context)
                assert context.memory["buf"].size == pages * PAGE


def test_a_device_without_connections_is_not_measured():
    (efa,) = (persona for persona in PERSONAS if persona.name == "efa")
    with closing(ReferenceBench(efa.kind()(efa.stack))) as bench:
        assert bytes_in_flight(bench) == 0
