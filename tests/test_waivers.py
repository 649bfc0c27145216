"""Tests of waivers: the stacks and results to which they apply, their problems, and the reading of the file."""

import json
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from conformance.errors import UserError
from conformance.model.record import ResultRecord
from conformance.older_python import zip
from conformance.results.conclusions import exit_status, verdict_on
from conformance.results.new_records import footer_record
from conformance.results.waiver_file import LONGEST, read_waivers
from conformance.results.waivers import Waivers, WaiverScope
from conformance.tables.suite import ROOT
from samples import header, numbered, registry, result, suite, table

TODAY = date(2026, 11, 22)
SPACE = """
- id: space
  rules: [REG-01]
  sweep:
    axes: {access: [[LOCAL_WRITE], [ZERO_BASED]]}
    points: 2
    expect: [{then: success, rule: REG-01}]
  when: {access: $access}
"""
SUITE = suite([*numbered(4).tables, table("reg_mr/swept", SPACE)])
SCHEMA = json.loads((ROOT / "docs" / "waivers.schema.json").read_text())
WAIVER: dict[str, Any] = {
    "rule": "REG-01",
    "where": {"driver": "fake"},
    "observed": {"verdict": "FAIL", "errno": "EINVAL"},
    "issue": "https://bugs.example.org/1",
    "owner": "the rdma team",
    "expires": "2026-12-31",
}


def read_from(tmp_path: Path, *waivers: dict[str, Any]) -> Waivers:
    path = tmp_path / "waivers.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps({"waivers": waivers})), sort_keys=False))
    return read_waivers(path, SUITE, TODAY)


def mistakes(tmp_path: Path, *waivers: dict[str, Any]) -> list[str]:
    """Returns the mistakes in the file of these waivers, without the name of the file."""
    with pytest.raises(UserError) as caught:
        read_from(tmp_path, *waivers)
    return [
        line.removeprefix(f"{tmp_path}/waivers.yaml:") for line in str(caught.value).splitlines()
    ]


def failure(case: int = 0, errno: str = "EINVAL", **more: Any) -> ResultRecord:
    observed = {"returned": "NULL", "errno": errno}
    return result(SUITE.cases[case], "FAIL", f"failed with {errno}", observed=observed, **more)


def judged(waivers: Waivers, *lines: ResultRecord, **head: Any) -> tuple[list[str], list[str], int]:
    """Returns the effective verdicts, the problems and the exit status of a run with these results."""
    top = header(**head)
    applied = [waivers.applied(line, top) for line in lines]
    footer = footer_record([line["case"] for line in lines], applied, registry(), duration_s=1.0)
    footer["waivers"] = waivers.account(applied, top)
    return (
        [line["effective"] for line in applied],
        footer["waivers"]["problems"],
        exit_status(footer),
    )


@pytest.mark.parametrize(
    "where, applies",
    [
        (WaiverScope("fake"), True),
        (WaiverScope("rxe"), False),
        (WaiverScope("fake", firmware="1.2"), True),
        (WaiverScope("fake", firmware="1.20"), False),
        (WaiverScope("fake", "7.2"), True),
        (WaiverScope("fake", "7.2.13"), False),
        (WaiverScope("fake", "", "7.2"), True),
        (WaiverScope("fake", "", "7.2.11"), False),
        (WaiverScope("fake", "7.2.12", "7.2.12"), True),
        (WaiverScope("fake", "6.12", "7.1"), False),
        (WaiverScope("fake", "7.10"), False),
        (WaiverScope("fake", "", "8"), True),
        (WaiverScope("fake", "7.2", rdma_core_to="56"), True),
        (WaiverScope("fake", "7.10", rdma_core_to="56"), False),
        (WaiverScope("fake", rdma_core_from="56.1", rdma_core_to="56.1"), True),
        (WaiverScope("fake", rdma_core_from="57"), False),
        (WaiverScope("fake", rdma_core_to="55"), False),
    ],
)
def test_a_waiver_applies_to_its_driver_kernels_and_firmware(where, applies):
    top = header(
        device={"driver": "fake", "fw": "1.2"},
        env={"kernel": "7.2.12+deb14-amd64", "rdma_core": "56.1"},
    )
    assert where.holds(top) is applies


def test_a_waiver_of_other_kernels_is_named_if_its_rule_is_violated(tmp_path):
    where = {"driver": "fake", "kernel": {"from": "6.12", "to": "7.1"}}
    waivers = read_from(tmp_path, {**WAIVER, "where": where})
    assert judged(waivers, failure()) == (["FAIL"], [], 1)
    assert waivers.account([failure()], header())["out_of_range"] == ["REG-01 (from 6.12 to 7.1)"]
    assert waivers.account([], header())["out_of_range"] == []


def test_a_waiver_of_another_stack_is_ignored(tmp_path):
    waivers = read_from(tmp_path, {**WAIVER, "where": {"driver": "mlx5"}})
    assert judged(waivers, failure()) == (["FAIL"], [], 1)
    assert waivers.account([], header())["elsewhere"] == 1


def swept(*when: str, rules: str = "REG-01") -> ResultRecord:
    """Returns the result of a sweep that deviates at the points where these formulas are true."""
    verdicts = {"REG-01": "FAIL", "REG-15": "PASS"}
    line = "ibv_reg_mr should succeed, but returned NULL with errno EINVAL"
    fault = {"kind": "refused", "verb": "ibv_reg_mr", "returned": "NULL", "errno": "EINVAL"}
    deviations = [
        {"when": value, "rules": [rules], "count": 1, "observed": line, "fault": fault}
        for value in when
    ]
    return failure(rules=["REG-01", "REG-15"], deviations=deviations, rule_verdicts=verdicts)


EXPIRED = {**WAIVER, "expires": "2026-11-20"}
OF_A_CASE = {key: value for key, value in WAIVER.items() if key != "rule"} | {
    "case": "reg_mr/sample/c1",
}
ENOMEM_OF_A_CASE = {**OF_A_CASE, "observed": {"verdict": "FAIL", "errno": "ENOMEM"}}
OF_A_FORMULA = {**WAIVER, "observed": {"verdict": "FAIL", "when": ["ZERO_BASED"]}}
DIFFERENT = "reg_mr/sample/c1 fails differently, errno is ENOMEM, not EINVAL"
IN_VAIN = "is no longer needed: reg_mr/sample/c0 is PASS"
PASSED, CRASHED, HUNG, BROKEN, MISSED = (
    result(SUITE.cases[0], verdict) for verdict in ("PASS", "CRASH", "HANG", "BROKEN", "MISSED")
)


@pytest.mark.parametrize(
    "waivers, lines, effective, problems, status",
    [
        ([WAIVER], [failure(), result(SUITE.cases[1])], ["WAIVED", "PASS"], [], 0),
        ([WAIVER], [failure(), failure(1, "ENOMEM")], ["WAIVED", "FAIL"], [DIFFERENT], 1),
        (
            [WAIVER],
            [failure(case, "ENOMEM") for case in range(4)],
            ["FAIL"] * 4,
            ["c0 fails differently, errno is ENOMEM, not EINVAL; and 3 more"],
            1,
        ),
        ([WAIVER], [CRASHED], ["CRASH"], ["verdict is CRASH, not FAIL"], 1),
        ([WAIVER], [HUNG], ["HANG"], ["verdict is HANG, not FAIL"], 1),
        ([EXPIRED], [failure()], ["FAIL"], ["expired on 2026-11-20"], 1),
        ([EXPIRED], [PASSED], ["PASS"], ["expired on 2026-11-20", IN_VAIN], 1),
        ([{**WAIVER, "expires": str(TODAY)}], [failure()], ["WAIVED"], [], 0),
        ([WAIVER], [PASSED], ["PASS"], [IN_VAIN], 1),
        ([WAIVER], [BROKEN], ["BROKEN"], [], 3),
        ([WAIVER], [MISSED], ["MISSED"], [], 3),
        ([OF_A_CASE], [failure(), failure(1)], ["FAIL", "WAIVED"], [], 1),
        (
            [WAIVER, ENOMEM_OF_A_CASE],
            [failure(), failure(1, "ENOMEM")],
            ["WAIVED", "WAIVED"],
            [],
            0,
        ),
        ([OF_A_FORMULA], [swept("ZERO_BASED")], ["WAIVED"], [], 0),
        ([OF_A_FORMULA], [failure()], ["FAIL"], ["c0 fails differently, it is no sweep"], 1),
        (
            [OF_A_FORMULA],
            [swept("ZERO_BASED", "HUGETLB")],
            ["FAIL"],
            ["it also deviates when HUGETLB"],
            1,
        ),
        ([WAIVER], [swept("ZERO_BASED", rules="REG-15")], ["FAIL"], ["it also violates REG-15"], 1),
    ],
)
def test_a_waiver_waives_only_what_it_describes_until_it_expires_and_its_problems_fail_the_run(
    tmp_path, waivers, lines, effective, problems, status
):
    verdicts, said, ended = judged(read_from(tmp_path, *waivers), *lines)
    assert (verdicts, ended) == (effective, status)
    for line, problem in zip(said, problems, strict=True):
        assert line.startswith(
            f"{tmp_path}/waivers.yaml:2:3: the waiver of REG-01 (the rdma team, https://bugs",
        )
        assert problem in line


def test_a_waived_violation_keeps_its_verdict_and_other_rules_of_its_sweep_are_not_waived(tmp_path):
    line = read_from(tmp_path, WAIVER).applied(swept("ZERO_BASED"), header())
    assert (line["verdict"], line["effective"]) == ("FAIL", "WAIVED")
    assert line["waiver"] is not None
    assert line["waiver"]["issue"] == WAIVER["issue"]
    assert (verdict_on("REG-01", line), verdict_on("REG-15", line)) == ("WAIVED", "PASS")


def test_the_published_schema_accepts_a_valid_waiver_and_refuses_malformed_waivers():
    validator = jsonschema.Draft202012Validator(SCHEMA)
    assert validator.is_valid({"waivers": [WAIVER]})
    for change in (
        {"rule": "reg 1"},
        {"case": "a"},
        {"expires": 3},
        {"issue": "4711"},
        {"more": 1},
    ):
        assert not validator.is_valid({"waivers": [{**WAIVER, **change}]})


LATEST = TODAY + LONGEST


@pytest.mark.parametrize(
    "expires, mistake",
    [
        ("soon", f"expires must be a date such as {LATEST}, not 'soon'"),
        (str(LATEST + timedelta(days=1)), f"more than 180 days ahead; the latest is {LATEST}"),
    ],
)
def test_a_waiver_expires_at_a_date_that_is_not_far_ahead(tmp_path, expires, mistake):
    """The other mistakes are in tests/refusals."""
    (only,) = mistakes(tmp_path, {**WAIVER, "expires": expires})
    assert mistake in only
