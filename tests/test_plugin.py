"""Tests of the engine as a pytest plugin; pytest runs in a separate process on a device in Python."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from conformance import cache
from conformance.results.conclusions import exit_status
from conformance.tables.suite import CASES, ROOT
from launched import ended
from project import QUIET_VERDICTS, Project
from samples import footer_of, laid

EXPECTED = {f"reg_mr/fake/{row}": verdict for row, verdict in QUIET_VERDICTS.items()}
KEPT = os.environ[cache.DIRECTORY]  # the cache of this session has the parsed tables of the suite


def verdicts(project: Project) -> Mapping[str, str]:
    verdicts_by_case = {line["case"]: line["verdict"] for line in project.results().results}
    assert len(verdicts_by_case) == len(project.results().results)
    return verdicts_by_case


def extend(project: Project, text: str) -> None:
    with (project.root / "conftest.py").open("a") as file:
        file.write(text)


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Returns the lines of pytest's usage errors."""
    return [line.removeprefix("ERROR: ") for line in done.stderr.splitlines() if line]


def test_each_case_is_recorded_with_its_verdict(project):
    done = project.run("-rs")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert verdicts(project) == EXPECTED
    recorded = project.results()
    assert sorted(recorded.header["planned"]) == sorted(EXPECTED)
    assert recorded.header["device"]["name"] == "fake0"
    assert recorded.footer is not None
    assert recorded.footer["complete"] is True
    assert recorded.footer["verdicts"] == {"PASS": 1, "FAIL": 1, "UNSUPPORTED": 1, "BROKEN": 1}
    assert exit_status(recorded.footer) == 1
    by_row = {line["case"].rpartition("/")[2]: line for line in recorded.results}
    passed, broken = by_row["works"], by_row["harness-trouble"]
    assert (passed["observed"]["returned"], passed["observed"]["mr"]["lkey"] > 0) == ("MR", True)
    counted, pinned = dict.fromkeys(("pd", "mr", "cq", "qp"), 0), {"kB pinned": 0}
    assert passed["kernel"] == {
        "taint": 0,
        "log": [],
        "resources": {"before": counted, "after": counted},
        "memory": {"before": pinned, "after": pinned},
    }
    assert (passed["duration_us"] or 0) > 0
    assert broken["reason"] == "the harness could not run the case: RuntimeError: no such memory"
    (skip,) = re.findall(r"^SKIPPED .*", done.stdout, re.MULTILINE)
    assert "UNSUPPORTED REG-17" in skip
    assert "refused with EOPNOTSUPP; the device does not declare odp" in skip
    (line,) = re.findall(r"^FAIL .*", done.stdout, re.MULTILINE)
    assert line.startswith(
        "FAIL REG-15 ibv_reg_mr(pd=pd, addr=buf.addr, length=buf.size, access=REMOTE_WRITE)",
    )
    assert "should fail, but returned an MR" in line
    assert line.endswith("fake.yaml:10")
    assert "Traceback" not in done.stdout


def test_the_command_that_reproduces_a_case_names_the_sessions_device_and_tables(project):
    tables = project.tables.relative_to(project.root)
    only = project.only("works")
    project.pytest(
        "cases",
        "--rdma-cases",
        str(tables),
        "--rdma-only",
        only,
        "--rdma-out",
        "out",
        "--rdma-seed",
        "7",
    )
    (line,) = project.results().results
    options = f"--device fake0 --cases {project.root / tables} --seed 7"
    assert line["repro"] == f"./rdma-cts run {options} --only reg_mr/fake/works"


# Runs the cases as the session that waits in a guest does.
DIRECTLY = """
from conformance.pytest_plugin.options import cases_of
from conformance.pytest_plugin.plugin import run_directly

@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session):
    session.config.hook.pytest_runtest_setup(item=session.items[0])
    run_directly(session, cases_of(session), session.items[0].funcargs["run"])
    return True

"""


@pytest.mark.parametrize("more", ["", DIRECTLY], ids=["by pytest", "directly"])
def test_a_lost_connection_is_broken_once_and_ends_the_session(project, more):
    lost = "from conformance.errors import LoopbackLost\nfrom unittest.mock import Mock\n"
    extend(
        project,
        f"{more}{lost}FakeBench.allocate = Mock(side_effect=LoopbackLost('a pair is lost'))\n",
    )
    done = project.run(rows=("works", "wrongly-accepted"))
    (line,) = project.results().results
    assert (line["verdict"], line["reason"]) == (
        "BROKEN",
        "the harness could not run the case: a pair is lost",
    )
    footer = footer_of(project.results())
    assert footer["complete"] is False
    assert "LoopbackLost: a pair is lost" in done.stdout + done.stderr


def test_a_failing_fixture_makes_its_cases_broken(project):
    extend(project, "@pytest.fixture\ndef bench():\n    raise OSError('the bench fell over')\n")
    done = project.run(rows=("works", "wrongly-accepted"))
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert set(verdicts(project).values()) == {"BROKEN"}
    assert "the bench fell over" in project.results().results[0]["reason"]


def without_times(project: Project) -> dict[str, dict[str, Any]]:
    """Returns the results by case, without values that differ from run to run."""
    results: dict[str, dict[str, Any]] = {}
    for line in project.results().results:
        observed = {
            key: value for key, value in line["observed"].items() if key not in ("mr", "asked")
        }
        results[line["case"]] = {**line, "duration_us": 0, "observed": observed}
    return results


def test_two_workers_and_a_session_without_pytests_protocol_have_the_results_of_one_worker(project):
    project.run()
    alone, planned = without_times(project), project.results().header["planned"]
    (project.root / "out").rename(project.root / "alone")
    done = project.run("-n2", rows=(*QUIET_VERDICTS, "dies"))
    assert re.search(r"\[gw[01]\]", done.stdout)
    lines_seen = without_times(project)
    assert lines_seen.pop("reg_mr/fake/dies")["verdict"] == "CRASH"
    assert lines_seen == alone
    assert project.results().header["planned"] == [*planned, "reg_mr/fake/dies"]
    assert footer_of(project.results())["complete"] is True
    (project.root / "out").rename(project.root / "several")
    extend(project, DIRECTLY)
    assert "passed" not in project.run().stdout
    assert without_times(project) == alone


def test_only_the_named_cases_of_their_folder_run_and_no_run_is_overwritten(project):
    name = "dereg_mr/test_dereg_mr.py"
    laid(project.root / "cases", {name: (CASES / name).read_bytes()})
    done = project.run(rows=("works",))
    assert done.returncode == pytest.ExitCode.OK
    assert "1 passed" in done.stdout
    assert "skipped" not in done.stdout
    assert project.results().header["planned"] == ["reg_mr/fake/works"]
    assert footer_of(project.results())["complete"] is True
    before = (project.root / "out/results.jsonl").read_bytes()
    again = project.run(rows=("works",))
    assert again.returncode == pytest.ExitCode.USAGE_ERROR
    assert "out/results.jsonl exists" in errors(again)[-1]
    assert (project.root / "out/results.jsonl").read_bytes() == before


def test_only_with_an_unknown_case_is_a_usage_error_with_a_suggestion(project):
    done = project.run(rows=("workz",))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (error,) = errors(done)
    assert "unknown case 'reg_mr/fake/workz' (did you mean reg_mr/fake/works?)" in error


def test_mistakes_in_a_table_are_usage_errors_of_one_line_each(project):
    table = project.tables / "reg_mr" / "fake.yaml"
    table.write_text(
        "verb: ibv_reg_mr\ncases: 1\nrows:\n  - {id: a, rules: [REG-99], then: succes}\n",
    )
    done = project.run("-n2", rows=())
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "Traceback" not in done.stdout + done.stderr
    messages = errors(done)
    assert all(line.startswith(f"{table}:4:") for line in messages)
    assert any("unknown rule 'REG-99'" in line for line in messages)
    assert any("did you mean success?" in line for line in messages)


def test_an_unknown_device_is_a_usage_error_of_one_line(project):
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        str(ROOT / "tox.ini"),
    ]
    arguments = [
        f"--rootdir={ROOT}",
        str(CASES / "dereg_mr"),
        "--rdma-device",
        "nosuch0",
        "--rdma-out",
        "out",
    ]
    environment = {**project.environment, cache.DIRECTORY: KEPT}
    done = ended(*command, *arguments, cwd=project.root, env=environment)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (error,) = errors(done)
    assert error.startswith("no RDMA device 'nosuch0'; ")
    assert not (project.root / "out").exists()


def test_collect_only_records_nothing(project):
    done = project.run("--collect-only", "-q")
    assert done.returncode == pytest.ExitCode.OK
    assert "test_reg_mr[reg_mr/fake/works]" in done.stdout
    assert not (project.root / "out").exists()
