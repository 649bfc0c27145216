"""Tests of what a run announces before its first case: the requests that are refused on purpose."""

import re

import pytest

from commands.cli import nics_page
from commands.cli.announcement import errors_on_purpose
from conformance.kernel.netlink import driver_name
from conformance.tables.refused_requests import Refusals, refused_requests
from conformance.tables.suite import load_suite
from conformance.tables.tiers import of_tier
from samples import case, table
from stand_in_netlink import StandInDevice, StandInKernel

REFUSED = (
    "{rules: [REG-05], given: {mrs: {mr: {access: [LOCAL_WRITE]}}}, call: traffic,"
    " when: {op: RDMA_WRITE, rkey: mr.rkey, addr: buf}, then: refused}"
)
GRANTED = REFUSED.replace("[LOCAL_WRITE]", "[LOCAL_WRITE, REMOTE_WRITE]").replace(
    "refused",
    "success",
)
NO_REQUEST = "{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: refused}"
SWEEP = """
- id: space
  rules: [REG-05]
  given: {mrs: {mr: {access: $access}}}
  call: traffic
  sweep:
    axes: {access: [[LOCAL_WRITE], [LOCAL_WRITE, REMOTE_READ], [LOCAL_WRITE, REMOTE_WRITE]]}
    points: 3
    expect: [{if: REMOTE_WRITE, then: success, rule: REG-05}, {then: refused, rule: REG-05}]
  when: {op: RDMA_WRITE, rkey: mr.rkey, addr: buf}
"""


def test_only_requests_count_and_of_a_sweep_only_points_that_are_refused():
    assert refused_requests([case(REFUSED), case(GRANTED), case(NO_REQUEST)]).number == 1
    assert refused_requests(table("reg_mr/sample", SWEEP).cases).number == 2


def test_the_longest_wait_is_that_of_requests_without_an_acknowledgement():
    over_uc = REFUSED.replace("addr: buf}", "addr: buf, qp_type: UC}")
    assert refused_requests([case(REFUSED), case(over_uc), case(GRANTED)]).unacknowledged == 1
    both = SWEEP.replace("axes: {", "axes: {type: [RC, UC], ").replace("points: 3", "points: 6")
    both = both.replace("addr: buf}", "addr: buf, qp_type: $type}")
    counted = refused_requests(table("reg_mr/sample", both).cases)
    assert (counted.number, counted.unacknowledged, counted.faults) == (4, 2, 0)


def test_page_faults_that_cannot_be_resolved_are_the_longest_waits():
    on_demand = REFUSED.replace("[LOCAL_WRITE]", "[LOCAL_WRITE, ON_DEMAND]")
    removed = on_demand.replace(" call:", " before: [{call: unmap, memory: buf}], call:", 1)
    assert refused_requests([case(REFUSED), case(on_demand)]) == Refusals(2)
    unresolved = refused_requests([case(removed)] * 2)
    assert (unresolved.faults, unresolved.longest_s) == (2, 18)
    _, wait = errors_on_purpose([case(removed)] * 2, [])
    assert "at worst: 18 s (0 over UC or UD, 2 page faults), and 20 s for each" in wait


def test_each_tier_announces_its_own_number():
    cases = load_suite().cases
    numbers = [
        refused_requests(of_tier(cases, tier)).number for tier in ("smoke", "default", "exhaustive")
    ]
    assert 0 < numbers[0] < numbers[1] <= numbers[2]


def test_the_driver_of_each_device_is_described(monkeypatch):
    devices = {name: StandInDevice(name[:4]) for name in ("mlx5_0", "mlx5_1", "mana_0")}
    StandInKernel(devices).installed(monkeypatch)
    first, _, *drivers = errors_on_purpose([case(REFUSED)] * 2, devices)
    assert first.startswith("up to 2 requests are refused on purpose: ")
    (mlx5,) = drivers
    assert mlx5.startswith("  mlx5: a line of level err for each access error of the responder ")
    assert mlx5.endswith("(the kernel's log; provider.log of the run)")


def test_a_plan_without_refusals_announces_nothing():
    assert not list(errors_on_purpose([case(GRANTED)], ["mlx5_0"]))


def test_the_page_about_nics_has_the_place_in_the_source_of_each_driver():
    text = nics_page.text_of_page()
    section = text.partition(nics_page.ERRORS)[2].partition("\n\n")[0].partition("\n")[2]
    drivers = re.findall(r"^\| ([a-z]\w+) \|", section, re.MULTILINE)
    assert set(drivers) <= {driver_name(number) for number in range(1, 30)}
    for driver in drivers:
        (row,) = nics_page.rows_about(driver, nics_page.ERRORS, text)
        assert re.fullmatch(r"(hw|providers)/[\w/.]+\.c: \w+.*", row[1][-1]), driver


@pytest.mark.parametrize("text", ["", "# another page"])
def test_without_the_page_only_the_number_is_announced(text, monkeypatch):
    monkeypatch.setattr(nics_page, "text_of_page", lambda: text)
    StandInKernel({"mlx5_0": StandInDevice("mlx5")}).installed(monkeypatch)
    assert len(list(errors_on_purpose([case(REFUSED)], ["mlx5_0"]))) == 2
