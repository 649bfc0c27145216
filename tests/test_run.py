"""Tests from the command line to the results, with a real guest and kernel driver. No test is skipped: if the guest
does not boot, these tests fail. By day, the run has an eighth of the rows and small sweeps of each table, at least one
case of each rule, and one hazardous case of each verb. All other cases run at night; `.ci/run` has a run of them all."""

import itertools
import json
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import jsonschema
import pytest

from conformance.model.kind import Kind
from conformance.model.record import FooterRecord, ResultRecord
from conformance.results.new_records import footer_record
from conformance.results.records import Recorded, read_written
from conformance.tables.suite import ROOT, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from kinds import Folders
from launched import launched, run_in_guest, script

pytestmark = pytest.mark.guest
RULES = ("REG-02", "REG-15", "REG-16", "REG-18", "REG-23", "DEREG-03")
MOST_POINTS = 16  # of a sweep that runs by day
# cases whose results are tested below
NAMED = (
    "reg_mr/huge_lengths/on-demand-of-",
    "reg_mr/registration/last-byte",
    "reg_mr_iova/far_addresses/addresses-that-are-not-the-regions",
)
# Rules that pass only in part because rxe does not offer some of their evidence (docs/results.md, Evidence).
NOT_OFFERED = {
    "REG-01": {"odp_implicit at libibverbs"},
    "DEREG-01": {
        "odp_implicit at libibverbs",
        "rereg_mr at libibverbs",
        "reg_dmabuf_mr at libibverbs",
        "reg_dmabuf_mr at uverbs",
    },
}
# Rules that pass only in part because other defects of rxe hide combinations of a model.
HIDDEN = {"REG-03": "access/model/slice"}


@dataclass(frozen=True)
class Run:
    """A finished run in the guest, and its files."""

    out: Path
    done: subprocess.CompletedProcess[str]
    recorded: Recorded

    @property
    def footer(self) -> FooterRecord:
        assert self.recorded.footer is not None, self.done.stdout + self.done.stderr
        return self.recorded.footer


def by_day() -> list[str]:
    """Returns the part of the default tier that runs by day."""
    every = of_tier(load_suite().cases, DEFAULT)
    small = [
        case
        for case in every
        if case.kind is not Kind.COMBINATIONS
        and (case.sweep is None or case.sweep.size <= MOST_POINTS)
        and not case.hazardous
    ]
    chosen = [case.id for case in every if case.id.startswith(NAMED)]
    chosen += {case.verb: case.id for case in every if case.hazardous}.values()
    chosen += {rule: case.id for case in reversed(small) for rule in case.rules}.values()
    for _, of_table in itertools.groupby(small, lambda case: case.id.rpartition("/")[0]):
        chosen += [case.id for case in of_table][::8]
    return sorted(set(chosen))


def run_of(out: Path, chosen: Sequence[str]) -> Run:
    """Runs these cases without the confirmation, which takes as long as the cases and has a separate test."""
    done = run_in_guest(out, "--no-confirm", only=chosen)
    assert (out / "results.jsonl").exists(), done.stdout + done.stderr
    recorded = read_written(out)
    assert sorted(recorded.header["planned"]) == sorted(chosen)
    return Run(out, done, recorded)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: Folders) -> Run:
    return run_of(tmp_path_factory.mktemp("run") / "out", by_day())


@pytest.fixture(scope="module")
def results(whole_run: Run, tmp_path_factory: Folders) -> list[ResultRecord]:
    other_cases = {case.id for case in of_tier(load_suite().cases, DEFAULT)}.difference(by_day())
    night = run_of(tmp_path_factory.mktemp("night") / "out", sorted(other_cases))
    assert not {"BROKEN", "MISSED"} & set(night.footer["verdicts"])
    return [*whole_run.recorded.results, *night.recorded.results]


@pytest.fixture(scope="module")
def footer(results: list[ResultRecord]) -> FooterRecord:
    return footer_record(
        [line["case"] for line in results],
        results,
        load_suite().registry,
        duration_s=1,
    )


def test_the_run_is_complete_and_its_exit_status_says_that_the_driver_does_not_conform(whole_run):
    assert whole_run.footer["complete"] is True
    assert not {"BROKEN", "MISSED"} & set(whole_run.footer["verdicts"])
    assert whole_run.done.returncode == 1
    assert sorted(line["case"] for line in whole_run.recorded.results) == sorted(
        whole_run.recorded.header["planned"],
    )


def test_the_header_names_the_kernel_driver_and_library_under_test(whole_run):
    header = whole_run.recorded.header
    assert header["env"]["kernel"].startswith("7.")
    assert header["device"]["driver"] == "rxe"
    assert header["device"]["caps"]["odp"] is True
    assert header["env"]["rdma_core"].startswith("65")
    assert header["stack"] == "forky"


@pytest.mark.parametrize("rule", [*RULES, *NOT_OFFERED, *HIDDEN])
def test_the_rule_passes_at_least_in_part_on_soft_roce(whole_run, rule):
    assert whole_run.footer["rules"][rule] in ("PASS", "PARTIAL")


@pytest.mark.nightly
def test_rules_pass_or_lack_only_what_soft_roce_does_not_offer_or_defects_hide(footer):
    assert {rule: footer["rules"][rule] for rule in RULES} == dict.fromkeys(RULES, "PASS")
    for rule, not_offered in NOT_OFFERED.items():
        assert footer["rules"][rule] == "PARTIAL"
        assert set(footer["not_offered"][rule]) == not_offered
        assert {
            missing["why"] for missing in footer["rule_evidence"][rule]["missing"].values()
        } == {"not offered"}
    for rule, model in HIDDEN.items():
        assert footer["rules"][rule] == "PARTIAL"
        missing = footer["rule_evidence"][rule]["missing"]
        assert {case: lack["why"] for case, lack in missing.items()} == {
            model: "blocked by a defect",
        }


@pytest.mark.parametrize("length", ["2-gib", "4-gib"])
def test_the_known_violations_of_soft_roce_are_reported(whole_run, length):
    (line,) = [
        line
        for line in whole_run.recorded.results
        if line["case"] == f"reg_mr/huge_lengths/on-demand-of-{length}"
    ]
    assert line["verdict"] == "FAIL"
    assert line["rules"] == ["REG-25"]
    assert line["observed"]["errno"] == "EINVAL"
    assert whole_run.footer["rules"]["REG-25"] == "FAIL"


def test_the_last_lines_name_each_defect_and_explain_describes_it(whole_run, cli):
    defect = r"^valid refused +([0-9a-f]{12}) .* \(REG-25\) x\d+$"
    (fingerprint,) = re.findall(defect, whole_run.done.stdout, re.MULTILINE)
    said = cli(0, "explain", fingerprint, "--run", whole_run.out).out
    assert "given: buf: memory, " in said
    assert re.search(r"^  reproduce: \./rdma-cts run --guest --only reg_mr/", said, re.MULTILINE)


def test_the_run_writes_a_page_and_a_summary_with_the_verdict_in_words(whole_run):
    summary = json.loads((whole_run.out / "summary.json").read_text())
    jsonschema.validate(summary, json.loads((ROOT / "docs" / "summary.schema.json").read_text()))
    assert summary["exit_status"] == 1
    verified = summary["standings"]["verified"]
    sentence = rf"{verified} of {summary['documented_rules']} documented rules verified( \(\d+ of them only in part\))?, "
    assert re.match(sentence, summary["words"])
    assert "because" in summary["words"]
    page = (whole_run.out / "report.html").read_text()
    assert "rxe0 does not conform to its documents" in page
    assert all(f'id="{rule}"' in page for rule in whole_run.footer["rules"])
    assert f"report: {whole_run.out}/report.html" in whole_run.done.stdout


def test_judging_a_real_run_again_changes_nothing(whole_run, tmp_path, cli):
    again = tmp_path / "again"
    assert (
        "results judged again: 0 verdicts changed"
        in cli(1, "judge", whole_run.out, "--out", again).out
    )
    assert "cases compared: nothing has changed" in cli(0, "compare", whole_run.out, again).out
    cli(0, "bundle", whole_run.out, "--out", tmp_path / "bundle")


def without_keys(line: ResultRecord, names: Sequence[str]) -> str:
    """Returns these parts of a result without the keys of regions and windows, which differ in each run."""
    return re.sub(
        "0x[0-9a-f]+",
        "0x…",
        json.dumps({name: line.get(name) for name in names}, ensure_ascii=False),
    )


@pytest.mark.nightly
def test_a_case_has_the_same_result_in_one_guest_and_in_several(results, tmp_path):
    """Only the kernel's counters and messages differ from run to run."""
    out = tmp_path / "out"
    chosen = ("--rule", "BIND-15", "--rule", "BIND-17", "--no-confirm")
    launched("run", "--guest", "--guests", "1", *chosen, "--out", str(out))
    other_results = {line["case"]: line for line in results}
    alone = read_written(out).results
    assert len(alone) > 20
    for line in alone:
        if "/in_flight/" in line["case"]:
            continue  # the outcome of a race with requests in flight can differ
        assert line["verdict"] == other_results[line["case"]]["verdict"]
        if line["verdict"] != "CRASH":  # the log of a crashed kernel has times that differ
            keys = ("reason", "layer", "points", "deviations", "rule_verdicts")
            assert without_keys(line, keys) == without_keys(other_results[line["case"]], keys)


def test_observations_are_recorded_raw(whole_run):
    (line,) = [
        line
        for line in whole_run.recorded.results
        if line["case"] == "reg_mr/registration/last-byte"
    ]
    mr = line["observed"]["mr"]
    assert mr["length"] == 1
    assert mr["lkey"] != 0
    assert "log" in line["kernel"]


def test_the_printed_command_repeats_a_violation_which_is_confirmed_and_can_be_waived(
    whole_run, tmp_path
):
    """A second violation with the same cause is confirmed too."""
    cases = [f"reg_mr/huge_lengths/on-demand-of-{length}-gib" for length in (2, 6)]
    (line,) = [line for line in whole_run.recorded.results if line["case"] == cases[0]]
    waiver = {
        "rule": "REG-25",
        "where": {"driver": "rxe", "kernel": {"from": "7.0"}},
        "issue": "https://bugs.example.org/1",
        "observed": {"verdict": "FAIL", "errno": "EINVAL"},
        "owner": "us",
        "expires": str(date.today()),
    }
    (tmp_path / "waivers.yaml").write_text(json.dumps({"waivers": [waiver]}))  # JSON is YAML
    program, *command = line["repro"].split()
    assert program == "./rdma-cts"
    out = tmp_path / "out"
    done = launched(
        *command,
        "--only",
        cases[1],
        "--waivers",
        tmp_path / "waivers.yaml",
        "--out",
        out,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    recorded = read_written(out)
    assert sorted(record["case"] for record in recorded.results) == cases
    assert {(record["verdict"], record["effective"]) for record in recorded.results} == {
        ("FAIL", "WAIVED"),
    }
    assert f"WAIVED {cases[0]}" in done.stdout
    assert recorded.footer is not None
    assert recorded.footer["confirmation"] == {"confirmed": 2, "not_confirmed": 0, "not_tried": 0}
    assert [record for record in recorded.confirmations if not record["confirmed"]] == []


def test_a_guest_that_cannot_boot_is_reported_in_one_line_with_status_3(tmp_path):
    script(tmp_path / "qemu-system-x86_64", "echo no such machine >&2\nexit 1")
    done = launched(
        "run",
        "--guest",
        "--out",
        tmp_path / "out",
        PATH=f"{tmp_path}:{os.environ['PATH']}",
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert "no such machine" in line
    assert "see " not in line  # its console has no message to refer to
