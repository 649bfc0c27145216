"""Tests of sweeps: runs and verdicts of all points, reports of deviating points, single points, and shuffled points."""

from __future__ import annotations

import ctypes
import itertools
import re
import subprocess
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

import samples
from actors import HEADER, Stage, ran, start
from conformance.bench.calls import Mr
from conformance.errors import UserError
from conformance.execution.runner import no_progress
from conformance.model.case import Case
from conformance.model.observation import KernelEvidence
from conformance.model.verdict import Verdict
from conformance.results.conclusions import headline
from conformance.results.points import deviations, read_points
from conformance.results.records import encode
from conformance.results.sweep_record import sweep_record
from conformance.results.writer import ResultsFile
from conformance.sweeps import native
from conformance.sweeps.judging import SweepResult
from conformance.sweeps.run import run_sweep
from conformance.verbs import ENUMS
from devices import device
from trial.reference.bench import HeldPair, ReferenceBench
from trial.reference.device import Device
from trial.reference.stack import WHOLE, without
from trial.running import on_the_reference

FLAGS = ENUMS["ibv_access_flags"]
ROW = """
- id: space
  rules: [REG-15, REG-17]
  sweep:
    axes:
      length: [1 page, 1 page + 1]
      access: {subsets of: [LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, MW_BIND]}
    where: "!MW_BIND | REMOTE_READ"
    points: 24
    expect:
      - {if: MW_BIND, needs: [mw_type_1]}
      - {if: remote_write_alone, then: refused, rule: REG-15}
      - {then: {outcome: success, mr: as_asked}, rule: REG-17}
  when: {length: $length, access: $access}
"""
TRIED = """
- id: tried
  rules: [REG-15]
  given: {memory: {buf: {kind: anonymous, size: $size}}}
  sweep:
    axes: {size: [1 page, 2 pages, 3 pages, 4 pages]}
    points: 4
    tries: TRIES
    expect: [{then: refused, rule: REG-15}]
  when: {access: [REMOTE_WRITE]}
"""
SUITE = samples.suite([samples.table("reg_mr/sample", ROW)])
SPACE = SUITE.cases[0]


def run_on(device: Device, case: Case, seed: int | None = None) -> SweepResult:
    with closing(ReferenceBench(device)) as bench:
        return run_sweep(case, replace(on_the_reference(bench), seed=seed), no_progress).result


@pytest.mark.parametrize("tries, failed", [(True, 1), (False, 4)])
def test_tries_end_at_the_first_violation(tries, failed):
    (case,) = samples.suite(
        [samples.table("reg_mr/sample", TRIED.replace("TRIES", str(tries).lower()))]
    ).cases
    wrong = device(write_alone=lambda was, access: False)
    assert run_on(Device(), case).points.by_verdict() == {"PASS": 4}
    assert run_on(wrong, case).points.by_verdict() == {"FAIL": failed}


def test_deviating_points_are_reported_by_a_formula_and_all_are_kept(tmp_path):
    both = FLAGS.mask_of("REMOTE_WRITE", "REMOTE_READ")
    wrong = device(write_alone=lambda was, access: access & both != both and was(access))
    line = sweep_record(SPACE, samples.registry(), run_on(wrong, SPACE), 1)
    line["repro"] = "./rdma-cts run --only a"
    with closing(ResultsFile(tmp_path / "results.jsonl")) as file:
        file.append(samples.header())
        file.append(line)
        recorded = file.recorded()
    assert recorded is not None
    (result,) = recorded.results
    (deviation,) = result["deviations"]
    # among the six points with REMOTE_WRITE and without LOCAL_WRITE
    assert deviation["when"] == "REMOTE_READ"
    assert (deviation["count"], deviation["of"], deviation["rules"]) == (4, 6, ["REG-15"])
    assert deviation["observed"] == "ibv_reg_mr should fail, but returned an MR"
    assert deviation["smallest"] == {"length": "1page", "access": "REMOTE_WRITE+REMOTE_READ"}
    assert deviation["repro"].endswith(" a#length=1page,access=REMOTE_WRITE+REMOTE_READ")
    assert "4 of 6 points where remote_write_alone: those with REMOTE_READ" in result["reason"]
    assert result["points"] == {"FAIL": 4, "PASS": 20}
    assert "points_data" not in result
    points = read_points(tmp_path, result)
    assert points.by_verdict() == result["points"]
    assert samples.rule_verdicts([result]) == {"REG-15": "FAIL", "REG-17": "PASS"}
    output = "ibv_reg_mr should fail, but returned an MR (4 of 6 points where remote_write_alone: those with REMOTE_READ)"
    assert headline("REG-15", result) == (output, deviation["repro"])
    assert headline("REG-17", result) == (result["reason"], result["repro"])


def test_a_missing_file_of_points_is_reported(tmp_path):
    with pytest.raises(UserError, match=re.escape(f"{tmp_path}/points/gone.json cannot be read")):
        read_points(tmp_path, samples.result(SPACE, points_file="points/gone.json"))


def test_a_single_point_is_judged_as_in_the_sweep():
    case_here = SUITE.find("reg_mr/sample/space#length=1page,access=REMOTE_WRITE")
    assert case_here is not None
    assert case_here.sweep is not None
    case = case_here.sweep.judged_row(case_here, lambda name: True)
    assert (case.when.then.outcome, case.rules) == ("refused", ("REG-15",))
    assert str(case.when) == "ibv_reg_mr(pd=pd, addr=buf.addr, length=1 page, access=REMOTE_WRITE)"
    needy = SUITE.find("reg_mr/sample/space#length=1page,access=REMOTE_READ+MW_BIND")
    assert needy is not None
    assert case_here.sweep.judged_row(needy, lambda name: False).needs == ("mw_type_1",)
    assert case_here.sweep.judged_row(needy, lambda name: True).needs == ()


def test_every_point_is_run_in_the_order_of_the_seed():
    orders = []
    for seed in (None, 1, 1, 2):
        counted: Any = Device()
        counted.access_fault = Mock(wraps=counted.access_fault)
        swept = run_on(counted, SPACE, seed)
        assert (swept.verdict, swept.points.by_verdict()) == (Verdict.PASS, {"PASS": 24})
        assert swept.points.by_rule() == {"REG-15": "PASS", "REG-17": "PASS"}
        observed = {outcome.observed for outcome in swept.points.outcomes}
        assert observed == {
            "ibv_reg_mr returned an MR",
            "ibv_reg_mr returned NULL with errno EINVAL",
        }
        orders.append([call.args for call in counted.access_fault.call_args_list])
    assert orders[1] == orders[2]
    assert len({tuple(order) for order in orders}) == 3
    assert sorted(orders[0]) == sorted(orders[1])


def test_a_sweep_whose_set_up_fails_at_each_point_is_broken():
    row = """
    - id: space
      rules: [REG-06]
      given:
        mrs: {mr: {access: $access}}
        windows: {mw: {type: 1, bound: {qp: qp, length: buf.size + 1 GiB, access: []}}}
        qps: {qp: {type: RC}}
      call: traffic
      sweep:
        axes: {access: {subsets of: [LOCAL_WRITE, REMOTE_READ]}}
        points: 4
        expect: [{then: success, rule: REG-06}]
      when: {op: RDMA_READ, rkey: mr.rkey}
    """
    swept = run_on(Device(), samples.case(row))
    assert swept.verdict == Verdict.BROKEN
    assert swept.points.by_verdict() == {"UNREACHABLE": 4}


@pytest.mark.parametrize(
    "given, released",
    [
        ("", "call: ibv_dereg_mr, mr: mr"),
        (", windows: {mw: {type: 1}}", "call: ibv_dealloc_mw, mw: mw"),
    ],
)
def test_objects_released_by_a_point_are_not_released_twice(given, released):
    row = f"""
    - id: space
      rules: [DEREG-01]
      given: {{mrs: {{mr: {{access: [LOCAL_WRITE, REMOTE_READ]}}}}{given}}}
      call: traffic
      sweep:
        axes: {{addr: [buf, buf + 64]}}
        points: 2
        expect: [{{then: success, rule: DEREG-01}}]
      when: {{op: RDMA_READ, rkey: mr.rkey, addr: $addr, length: 8}}
      afterwards: [{{{released}, then: success}}]
    """
    swept = run_on(Device(), samples.case(row))
    assert (swept.verdict, swept.points.by_verdict()) == (Verdict.PASS, {"PASS": 2})


WINDOWS = """
- id: windows
  rules: [BIND-05]
  needs: [mw_type_2]
  given:
    qps: {qp: {type: RC}}
    mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}
    windows: {mw: {type: TYPE, bound: {access: [REMOTE_WRITE, $access]}}}
  call: traffic
  sweep:
    axes: {access: [[], [REMOTE_READ]], place: [first, last, whole, empty]}
    points: 8
    expect: [{if: place=empty, then: open, rule: BIND-05}, {then: success, rule: BIND-05}]
  when: {op: RDMA_WRITE, rkey: mw.rkey, addr: buf, position: $place, via: VIA}
"""
BINDS = """
- id: binds
  rules: [BIND-09]
  needs: [mw_type_1]
  given:
    qps: {qp: {type: RC}}
    mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}
    windows: {mw: {type: 1}}
  call: ibv_bind_mw
  sweep:
    axes: {access: [[], [REMOTE_READ], [REMOTE_WRITE]]}
    points: 3
    expect: [{then: success, rule: BIND-09}]
  when: {access: $access}
"""


@pytest.mark.parametrize(
    "window, stack, verdict, renewals",
    [
        ("{type: 1}", WHOLE, "PASS", 3),
        ("{type: 1}", without("mw_type_1"), "UNSUPPORTED", 0),
        ("{type: 1, bound: {access: [REMOTE_READ]}}", WHOLE, "PASS", 3),
        ("{type: 1, bound: {access: [REMOTE_READ]}}", without("mw_type_1"), "UNSUPPORTED", 0),
    ],
)
def test_shared_queue_pairs_are_renewed_after_each_point_that_has_used_them(
    window, stack, verdict, renewals
):
    case = samples.case(BINDS.replace("{type: 1}", window), "bind_mw")
    with patch.object(HeldPair, "renew", autospec=True, side_effect=HeldPair.renew) as renew:
        assert run_on(Device(stack), case).points.by_verdict() == {verdict: 3}
    assert renew.call_count == renewals


def failing_binds(before: int = 0) -> Device:
    """Returns a reference on which every third valid bind fails; `before` counts earlier binds."""
    binds = itertools.count(before + 1)
    return device(bind_refused=lambda was, *messages: next(binds) % 3 == 0 or was(*messages))


@pytest.mark.parametrize(
    "kind, via, rule, refused",
    [
        (
            2,
            "qp",
            "BIND-14",
            3,
        ),  # each point has a set-up, and a refused set-up is repeated: 3 of 11 binds fail
        (1, "qp", "BIND-01", 3),
        (1, '"NULL"', "BIND-01", 0),  # there are only two set-ups for all points
    ],
)
def test_a_set_up_that_is_refused_only_at_some_points_is_a_violation(kind, via, rule, refused):
    row = WINDOWS.replace("TYPE", str(kind)).replace("VIA", via)
    case = samples.case(row, "bind_mw")
    swept = run_on(failing_binds(), case)
    assert swept.points.by_verdict() == (
        {"PASS": 8 - refused, "FAIL": refused} if refused else {"PASS": 8}
    )
    if refused:
        record = sweep_record(case, samples.registry(), swept, 1)
        assert record["rules"] == ["BIND-05", rule]
        assert record["rule_verdicts"] == {"BIND-05": "PASS", rule: "FAIL"}
        (deviation,) = deviations(swept.points, "")
        assert (deviation["count"], deviation["rules"]) == (refused, [rule])
        assert (
            "binding the window 'mw' was refused with MW_BIND_ERR; the call succeeded"
            in deviation["observed"]
        )


def test_the_points_after_a_set_up_that_was_refused_once_are_run():
    row = WINDOWS.replace("TYPE", "1").replace("VIA", '"NULL"')
    case = samples.case(row, "bind_mw")
    assert run_on(failing_binds(2), case).points.by_verdict() == {"PASS": 7, "FAIL": 1}


@pytest.mark.parametrize(
    "via, seconds, reported",
    [
        ("qp", 0.0, [*range(9)]),
        ('"NULL"', 0.0, [*range(9)]),
        ("qp", 1e9, [0]),
        ('"NULL"', 1e9, [0]),
    ],
)
def test_progress_is_reported_by_time(monkeypatch, via, seconds, reported):
    """After PROGRESS_S, progress is reported before 512 points are done, because a point can last until a time-out."""
    monkeypatch.setattr("conformance.sweeps.run.PROGRESS_S", seconds)
    case = samples.case(WINDOWS.replace("TYPE", "1").replace("VIA", via), "bind_mw")
    seen: list[int] = []
    with closing(ReferenceBench()) as bench:
        run_sweep(case, on_the_reference(bench), lambda point, done, **more: seen.append(done))
    assert sorted(set(seen)) == reported


GROUND = """
- id: ground
  rules: [REG-05]
  given:
    memory: {MEMORY}
    mrs: {mr: {access: [LOCAL_WRITE, $access]}}
  call: traffic
  sweep:
    axes: {access: {subsets of: [REMOTE_WRITE, REMOTE_READ]}, AXES}
    points: 8
    expect: [{if: REMOTE_WRITE, then: success, rule: REG-05}, {then: refused, rule: REG-05}]
  when: {op: RDMA_WRITE, rkey: mr.rkey, addr: WHERE}
"""


@pytest.mark.parametrize(
    "memory, axes, where, domains",
    [
        ("{buf: {kind: anonymous, size: 4 pages}}", "addr: [buf, buf + 64]", "$addr", 1),
        ("{buf: {kind: anonymous, size: $size}}", "size: [1 page, 2 pages]", "buf", 8),
    ],
    ids=["the same", "another size"],
)
def test_points_share_domains_and_memory_unless_an_axis_changes_them(memory, axes, where, domains):
    row = GROUND.replace("{MEMORY}", memory).replace("AXES", axes).replace("WHERE", where)
    case = samples.case(row)
    counted: Any = Device()
    with closing(ReferenceBench(counted)) as bench:
        context, before = on_the_reference(bench), bench.resources()
        counted.alloc_pd = Mock(wraps=counted.alloc_pd)
        assert run_sweep(case, context, no_progress).result.points.by_verdict() == {"PASS": 8}
        assert counted.alloc_pd.call_count == domains
        assert bench.resources() == before


RACE = """
- id: race
  rules: [DEREG-04]
  given:
    qps: {qp: {type: RC}}
    mrs: {mr: {access: [LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ]}}
  call: ibv_dereg_mr
  sweep:
    axes: {op: [RDMA_WRITE, RDMA_READ], length: [1 page, 2 pages]}
    points: 4
    tries: true
    expect: [{then: success, rule: DEREG-04}]
  before: [{call: post_traffic, op: $op, rkey: mr.rkey, addr: buf, length: $length}]
  when: {mr: mr}
  afterwards: [{call: await_traffic, memory: buf, then: success}]
"""


def test_tries_share_domains_and_memory_which_is_cleared_before_each():
    """The bytes that one try writes behind its call would be a leak in the next."""
    machine: Any = Device()
    bench: Any = ReferenceBench(machine)
    with closing(bench):
        context, case = on_the_reference(bench), samples.case(RACE, "dereg_mr")
        machine.alloc_pd = Mock(wraps=machine.alloc_pd)
        bench.allocate = Mock(wraps=bench.allocate)
        bench.pair = Mock(wraps=bench.pair)
        swept = run_sweep(case, context, no_progress).result
        sizes = [call.args[1] for call in bench.allocate.call_args_list]
    assert swept.points.by_verdict() == {"PASS": 4}
    assert (machine.alloc_pd.call_count, bench.pair.call_count) == (1, 4)
    assert len(sizes) == 3  # the memory of the row, and of the other end for each length


def test_a_warning_of_the_kernel_fails_the_sweep_and_has_the_point_at_which_it_was_seen():
    said: Iterator[KernelEvidence] = iter([{}, {"taint": 0, "log": ["[ 1.0] WARNING: something"]}])
    with closing(ReferenceBench()) as bench:
        watch = SimpleNamespace(since_last=lambda: next(said, {}))
        swept = run_sweep(SPACE, replace(on_the_reference(bench), watch=watch), no_progress).result
    assert swept.verdict == Verdict.FAIL
    assert swept.alarms[0]["from"] == "length=1page,access=none"
    assert "WARNING: something" in swept.reason
    assert set(sweep_record(SPACE, samples.registry(), swept, 1)["rule_verdicts"].values()) == {
        "FAIL",
    }


def test_a_worker_that_dies_in_a_sweep_is_reported_with_its_last_reported_point(tmp_path):
    progress = {
        "type": "progress",
        "case": "reg_mr/sample/c1",
        "point": "access=REMOTE_WRITE",
        "done": 512,
    }
    recorded = Stage(tmp_path).play([HEADER, start(1), encode(progress)], ran(0, 2, 3))
    crash = next(line for line in recorded.results if line["verdict"] == "CRASH")
    assert "at the point access=REMOTE_WRITE or at one of the next points" in crash["reason"]


def test_the_loop_in_c_stops_at_an_unexpected_region_and_at_a_region_that_remains(tmp_path):
    source = Path(__file__).with_name("stand_in_loop.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "stand_in.so", source], check=True)
    library = ctypes.CDLL(str(tmp_path / "stand_in.so"))
    access, length = array("Q", [1, 2, 5, 4, 1]), array("Q", [8, 8, 8, 99, 8])
    codes = array("H", [9]) * 5
    call = library["make"], (3, 4096, length, access)
    loop = native.Loop(
        codes,
        call,
        call,
        0,
        library["release"],
        7,
        pd=3,
        access=access,
        addr=4096,
        length=length,
    )
    stops = loop.stops()
    odd, region, _ = next(stops)
    assert (odd, Mr.at(region).fields()["addr"]) == (2, 4097)
    assert list(stops) == [(3, 0, 16)]
    assert codes.tolist() == [0, 23, 9, 0, 0]
