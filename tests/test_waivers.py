"""Tests of waivers: the stacks and results to which they apply, their problems, and the reading of the file. Waivers of
defects are made from recorded runs, read again, and applied to the same run, to another run and to a worse run."""

import json
import re
from collections.abc import Sequence
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from conformance.defects import Severity
from conformance.errors import UserError
from conformance.model.record import ResultRecord
from conformance.model.verdict import VIOLATIONS
from conformance.older_python import zip
from conformance.results.conclusions import exit_status, verdict_on
from conformance.results.records import footer_record
from conformance.results.waiver_file import LONGEST, Run, read_waivers, waivers_text
from conformance.results.waivers import Waivers, WaiverScope
from conformance.tables.suite import ROOT, Suite
from kinds import Cli
from reports.digest import Digest, read
from samples import changed, header, numbered, registry, result

TODAY = date(2026, 11, 22)
SUITE = numbered(4)
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
    ("where", "applies"),
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
    ],
)
def test_a_waiver_applies_to_its_driver_kernels_and_firmware(
    where: WaiverScope,
    applies: bool,
) -> None:
    top = header(device={"driver": "fake", "fw": "1.2"}, env={"kernel": "7.2.12+deb14-amd64"})
    assert where.holds(top) is applies


def test_a_waiver_of_another_stack_is_ignored(tmp_path: Path) -> None:
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
    ("waivers", "lines", "effective", "problems", "status"),
    [
        ([WAIVER], [failure(), result(SUITE.cases[1])], ["WAIVED", "PASS"], [], 0),
        ([WAIVER], [failure(), failure(1, "ENOMEM")], ["WAIVED", "FAIL"], [DIFFERENT], 1),
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
    tmp_path: Path,
    waivers: list[dict[str, Any]],
    lines: list[ResultRecord],
    effective: list[str],
    problems: list[str],
    status: int,
) -> None:
    verdicts, said, ended = judged(read_from(tmp_path, *waivers), *lines)
    assert (verdicts, ended) == (effective, status)
    for line, problem in zip(said, problems, strict=True):
        assert line.startswith(
            f"{tmp_path}/waivers.yaml:2:3: the waiver of REG-01 (the rdma team, https://bugs",
        )
        assert problem in line


def test_a_waived_violation_keeps_its_verdict_and_other_rules_of_its_sweep_are_not_waived(
    tmp_path: Path,
) -> None:
    line = read_from(tmp_path, WAIVER).applied(swept("ZERO_BASED"), header())
    assert (line["verdict"], line["effective"]) == ("FAIL", "WAIVED")
    assert line["waiver"] is not None
    assert line["waiver"]["issue"] == WAIVER["issue"]
    assert (verdict_on("REG-01", line), verdict_on("REG-15", line)) == ("WAIVED", "PASS")


def test_the_published_schema_accepts_a_valid_waiver_and_refuses_malformed_waivers() -> None:
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
    ("expires", "mistake"),
    [
        ("soon", f"expires must be a date such as {LATEST}, not 'soon'"),
        (str(LATEST + timedelta(days=1)), f"more than 180 days ahead; the latest is {LATEST}"),
    ],
)
def test_a_waiver_expires_at_a_date_that_is_not_far_ahead(
    tmp_path: Path,
    expires: str,
    mistake: str,
) -> None:
    """The other mistakes are in tests/refusals."""
    (only,) = mistakes(tmp_path, {**WAIVER, "expires": expires})
    assert mistake in only


# Waivers of defects


RUNS = Path(__file__).with_name("recorded_violations")
EXPIRES = date(2027, 3, 1)
NO_SUITE = Suite(registry(), (), "0" * 64)
ISSUE = "https://bugs.example.org/{defect}"


@cache
def recorded(name: str) -> Digest:
    return read(RUNS / f"{name}.jsonl")


@cache
def text_of(*names: str) -> str:
    """Returns the text of the waiver file that is made from these runs."""
    runs = [Run(name, recorded(name).header, recorded(name).results) for name in names]
    text = waivers_text(runs, "the rdma team", ISSUE, EXPIRES)
    jsonschema.validate(json.loads(json.dumps(yaml.safe_load(text), default=str)), SCHEMA)
    return text


def made(tmp_path: Path, *names: str) -> Waivers:
    """Makes a waiver file from these runs, and returns its waivers."""
    path = tmp_path / "waivers.yaml"
    path.write_text(text_of(*names))
    return read_waivers(path, NO_SUITE, TODAY)


@pytest.fixture
def waivers(tmp_path: Path) -> Waivers:
    return made(tmp_path, "forky")


def left(
    waivers: Waivers,
    results: Sequence[ResultRecord] = (),
    run: str = "forky",
) -> tuple[list[str], list[str]]:
    """Returns the violations of a run, or of some of its results, that are not waived, and the waivers' problems."""
    header, results = recorded(run).header, results or recorded(run).results
    applied = [waivers.applied(record, header) for record in results]
    open_ = [record["case"] for record in applied if record["effective"] in VIOLATIONS]
    return open_, list(waivers.account(applied, header)["problems"])


def test_the_waivers_of_a_run_cover_all_its_violations_in_rows_and_sweeps(waivers: Waivers) -> None:
    run = recorded("forky")
    assert len(waivers.defects) == 23
    assert left(waivers) == ([], [])
    waived = waivers.applied(
        next(record for record in run.results if record["deviations"]),
        run.header,
    )["waiver"]
    assert waived is not None
    assert waived["for"].startswith("defect ")
    assert waived["issue"] == f"https://bugs.example.org/{waived['for'].removeprefix('defect ')}"


def test_waivers_of_several_runs_name_unsteady_defects_and_cover_each_run(tmp_path: Path) -> None:
    """In the second run, a different case has the verdict CRASH."""
    waivers = made(tmp_path, "forky", "forky-again", "trixie")
    assert left(waivers, run="forky-again") == ([], [])
    data = yaml.safe_load((tmp_path / "waivers.yaml").read_text())
    unsteady = {
        entry["case"]: entry["seen"]
        for waiver in data["waivers"]
        for entry in waiver.get("unsteady", ())
    }
    assert unsteady == {
        "reg_mr_iova/on_demand/every-byte-at-buf-+-7-pages-+-104": "CRASH or FAIL, FAIL seen 1 of 2",
        "reg_mr_iova/on_demand/every-byte-at-9223372036854775912": "FAIL or CRASH, CRASH seen 1 of 2",
    }


def test_a_waiver_applies_to_the_kernels_of_the_runs_that_showed_the_defect(tmp_path: Path) -> None:
    kernels = {
        waiver.defect: (waiver.where.kernel_from, waiver.where.kernel_to)
        for waiver in made(tmp_path, "forky", "trixie").defects
    }
    assert kernels["85c569cb8aca"] == ("6.12", "7.2")
    assert kernels["251ad0de44ec"] == ("7.2", "7.2")
    open_, _ = left(made(tmp_path, "forky"), run="trixie")
    assert len(open_) == 108


def test_the_waiver_of_a_defect_that_no_longer_occurs_is_reported(waivers: Waivers) -> None:
    mended: list[ResultRecord] = [
        {**record, "verdict": record["verdict"].PASS, "deviations": []}
        if record["rules"] == ["REG-25"]
        else record
        for record in recorded("forky").results
    ]
    open_, (problem,) = left(waivers, mended)
    assert open_ == []
    assert "the waiver of defect 885a6ada681b (the rdma team, " in problem
    assert problem.endswith("is no longer needed: none of its cases shows the defect")
    only_one_case = [record for record in mended if record["case"].endswith("on-demand-of-2-gib")]
    assert left(waivers, only_one_case) == ([], [])


def test_a_defect_that_has_become_worse_is_not_waived(waivers: Waivers) -> None:
    served = next(
        record
        for record in recorded("forky").results
        if record["rules"] == ["REG-12"] and not record["deviations"]
    )
    died: Any = {
        "log": [
            "RIP: 0010:__rxe_put+0x12/0x60 [rdma_rxe]",
            "Call Trace:",
            " rxe_invalidate_mw+0x9d/0x110 [rdma_rxe]",
        ],
    }
    died_in = {
        **served["fault"],
        "kind": "kernel-died",
        "step": 0,
        "verb": "ibv_reg_mr",
        "used": True,
    }
    died_in |= {
        "call": "ibv_reg_mr(access=ON_DEMAND)",
        "seen": ["the kernel under test died", *[""] * 4],
    }
    died_in["site"] = ["__rxe_put", "rxe_invalidate_mw", "rdma_rxe", "rdma_rxe"]
    same = changed(served, {"fault": {**served["fault"], "kind": "moved"}})
    worse = changed(served, {"verdict": served["verdict"].CRASH, "fault": died_in, "kernel": died})
    assert left(waivers, [same])[0] == []
    open_, problems = left(waivers, [worse])
    assert open_ == [served["case"]]
    assert problems[0].endswith(f"does not fit: {served['case']} is worse, kernel crash")


def test_a_result_with_a_second_defect_is_not_waived_for_the_first(waivers: Waivers) -> None:
    sweep = next(
        record
        for record in recorded("forky").results
        if record["case"] == "bind_mw/data_path/several-packets"
    )
    (deviation,) = sweep["deviations"]
    new: Any = {
        **deviation,
        "observed": "ibv_dereg_mr should succeed, but returned EBUSY",
        "fault": {"kind": "refused", "verb": "ibv_dereg_mr", "errno": "EBUSY"},
        "rules": ["DEREG-01"],
    }
    assert left(waivers, [changed(sweep, {"deviations": [deviation, new]})])[0] == [sweep["case"]]


def test_an_expired_waiver_of_a_defect_waives_nothing_and_is_reported(tmp_path: Path) -> None:
    made(tmp_path, "forky")
    open_, problems = left(read_waivers(tmp_path / "waivers.yaml", NO_SUITE, date(2027, 3, 2)))
    assert len(open_) == 189
    assert len(problems) == 23
    assert problems[0].endswith("expired on 2027-03-01")


WRONG = {
    "no-fingerprint": (
        '"885a6ada681b"',
        "REG-25",
        "'REG-25' is not a fingerprint, which has 12 hexadecimal digits",
    ),
    "no-severity": ("severity: kernel crash", "severity: bad", "unknown severity 'bad'"),
    "both": (
        "title:",
        "rule: REG-25\n    about:",
        "a waiver is for one defect or for one rule, not for both",
    ),
    "twice": ('"85c569cb8aca"', '"6c8e18b350a5"', "defect 6c8e18b350a5 is waived twice"),
    "unsteady": (
        "    cases:",
        "    unsteady: [{case: x}]\n    cases:",
        "an unsteady case lacks the key 'seen'",
    ),
}


@pytest.mark.parametrize(("old", "new", "message"), WRONG.values(), ids=WRONG)
def test_a_mistake_in_the_file_is_reported_with_its_location(
    tmp_path: Path,
    old: str,
    new: str,
    message: str,
) -> None:
    made(tmp_path, "forky")
    path = tmp_path / "waivers.yaml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_waivers(path, NO_SUITE, TODAY)
    assert any(
        message in line and line.startswith(f"{path}:") for line in str(caught.value).splitlines()
    )


def command(
    *more: str,
    run: str = "forky",
    expires: str = "",
    issue: str = ISSUE,
) -> tuple[str, ...]:
    # Tomorrow, because midnight may pass before the waiver is used.
    latest = expires or (date.today() + timedelta(days=1)).isoformat()
    of_file = ("--owner", "me", "--issue", issue, "--expires", latest)
    return ("waivers", "--run", str(RUNS / f"{run}.jsonl"), *of_file, *more)


@pytest.mark.parametrize("character", ["\x85", "\u2028", "\udcff", "\n"])
def test_an_owner_that_no_file_could_have_is_refused(character: str, cli: Cli) -> None:
    said = cli(2, *command("--owner", f"the{character}team")).err
    assert said == "rdma-cts: --owner has a character that cannot be printed\n"


def test_one_defect_alone_can_be_waived(tmp_path: Path, cli: Cli) -> None:
    every = re.findall(r'defect: "([0-9a-f]{12})"', cli(0, *command()).out)
    text = cli(0, *command("--defect", every[3])).out
    assert re.findall(r'defect: "([0-9a-f]{12})"', text) == [every[3]]
    said = cli(2, *command("--defect", "000000000000")).err
    assert said == "rdma-cts: no run has the defect 000000000000\n"


def test_the_command_writes_a_file_that_run_and_judge_accept(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "made.yaml"
    assert cli(0, *command("--out", str(path))).out == f"waivers: {path}\n"
    assert cli(0, *command()).out == path.read_text()
    assert len(read_waivers(path, NO_SUITE, date.today()).defects) == 23


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (command(expires="soon"), "--expires 'soon' is not a date such as 20"),
        (command(expires="2020-01-01"), "--expires 2020-01-01 is not between today and 20"),
        (command(expires="2999-01-01"), "180 days ahead"),
        (command(issue=""), "--issue '' is not an address; "),
        ([*command(), "--expires", ""], "--expires '' is not a date such as 20"),
        (command(issue="4711"), "--issue '4711' is not an address; it begins with https://"),
        (command(run="none"), "none.jsonl cannot be read: No such file or directory"),
    ],
    ids=["no-date", "past", "far", "no-issue", "empty-date", "issue", "no-run"],
)
def test_a_wrong_argument_is_reported_in_one_line(
    arguments: tuple[str, ...],
    message: str,
    cli: Cli,
) -> None:
    (line,) = cli(2, *arguments).err.splitlines()
    assert message in line


def test_the_shipped_waivers_of_soft_roce_cover_the_severe_defects_of_its_recorded_runs() -> None:
    path = ROOT / "ci/rxe/waivers.yaml"
    data = yaml.safe_load(path.read_text())
    jsonschema.validate(json.loads(json.dumps(data, default=str)), SCHEMA)
    waivers = read_waivers(path, NO_SUITE, TODAY)
    waived = {
        fingerprint for waiver in waivers.defects for fingerprint in (waiver.defect, *waiver.also)
    }
    assert {waiver.where.driver for waiver in waivers.defects} == {"rxe"}
    severe = {
        defect.fingerprint
        for name in ("forky", "trixie")
        for defect in recorded(name).violations.defects
        if defect.severity in (Severity.KERNEL_CRASH, Severity.MEMORY, Severity.PROCESS_CRASH)
    }
    assert len(severe) == 5
    assert severe <= waived
