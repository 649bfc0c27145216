"""The workflows and the scripts in ci/, which a CI system copies or calls."""

from __future__ import annotations

import configparser
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml
from tap.parser import Parser

from commands import test as command
from commands.__main__ import main
from conformance.older_python import zip
from conformance.results.records import Recorded, read_written
from conformance.tables.suite import ROOT
from fixtures.guest.recipe import STACKS
from fixtures.system import packages
from fixtures.system.architecture import AMD64
from kinds import Patch, rows
from launched import ended, script
from patience import PATIENCE_S
from samples import numbered, recorded, result, written

CI = ROOT / "ci"
GITHUB = yaml.safe_load((CI / "github.yml").read_text())["jobs"]["conformance"]
GITLAB = yaml.safe_load((CI / "gitlab.yml").read_text())["rdma-cts"]
SUITE = numbered(10)
SCRIPTS = sorted(CI.glob("**/*.sh"))
# The workflows


def test_the_stacks_of_the_matrices_exist():
    (matrix,) = GITLAB["parallel"]["matrix"]
    assert set(GITHUB["strategy"]["matrix"]["stack"]) <= set(STACKS)
    assert set(matrix["STACK"]) <= set(STACKS)


def test_a_job_that_fails_stores_the_image_but_not_the_last_good_run():
    caches = [
        (step["with"]["path"], step["uses"].split("@")[0], step.get("if", "").partition(" && ")[0])
        for step in GITHUB["steps"]
        if "cache" in step.get("uses", "")
    ]
    assert caches == [
        ("/var/cache/rdma-cts", "actions/cache/restore", ""),
        ("kept", "actions/cache", ""),
        ("/var/cache/rdma-cts", "actions/cache/save", "always()"),
    ]
    image, kept = GITLAB["cache"]
    assert (image["when"], kept.get("when")) == ("always", None)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(CI)))
def test_the_scripts_are_shell_scripts_that_can_be_started(script):
    assert script.stat().st_mode & 0o111
    subprocess.run(["sh", "-n", str(script)], check=True)


def test_two_checkouts_that_lint_at_once_install_the_tools_once(tmp_path):
    python = script(
        tmp_path / "python",
        f"""case $2 in
            *version_info*) echo 3.11; echo begun >>{tmp_path}/begun ;;
            venv) until [ "$(wc -l <{tmp_path}/begun)" = 2 ]; do sleep 0.1; done
                echo made >>{tmp_path}/made
                mkdir -p "$3/bin"
                for tool in pip ruff mypy codespell; do
                    echo '#!/bin/sh' >"$3/bin/$tool"
                    chmod +x "$3/bin/$tool"
                done ;;
        esac""",
    )
    environment = {
        **os.environ,
        "RDMA_CTS_PYTHON": str(python),
        "RDMA_CTS_CACHE": str(tmp_path / "cache"),
    }
    begun = [
        subprocess.Popen([CI / "lint.sh"], env=environment, stdout=subprocess.DEVNULL)
        for _ in range(2)
    ]
    assert [line.wait(PATIENCE_S) for line in begun] == [0, 0]
    assert (tmp_path / "made").read_text() == "made\n"


@pytest.mark.parametrize("place", ["lint", "lint/{}", "lint/{}/bin/ruff"])
def test_tools_that_other_users_can_write_are_not_executed(tmp_path, place):
    python = script(
        tmp_path / "python",
        f"""case $1$2 in
            -P*) exec {sys.executable} "$@" ;;
            *version_info*) echo 3.11 ;;
        esac""",
    )
    digest = hashlib.sha256((CI / "lint-tools.txt").read_bytes()).hexdigest()[:16]
    tools = tmp_path / "cache" / "lint" / f"{digest}-3.11"
    (tools / "bin").mkdir(parents=True)
    for tool in ("ruff", "mypy", "codespell"):
        script(tools / "bin" / tool, f"echo {tool} >>{tmp_path}/executed")
    (tools / "complete").touch()
    (tmp_path / "cache" / place.format(tools.name)).chmod(0o777)
    environment = {
        **os.environ,
        "RDMA_CTS_PYTHON": str(python),
        "RDMA_CTS_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run([CI / "lint.sh"], env=environment, capture_output=True, text=True)
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1
    assert "other users can write" in done.stderr
    assert not (tmp_path / "executed").exists()


# The scripts, with a stand-in for the program


class Scripts:
    """A copy of ci/ next to a stand-in for the program. The stand-in's `run` only copies results that a test has made;
    all other commands are real."""

    def __init__(self, root: Path) -> None:
        self.root = root
        shutil.copytree(CI, root / "suite" / "ci")
        program = root / "suite" / "rdma-cts"
        program.write_text(f"""#!/bin/sh
            echo "$*" >>{root}/asked
            [ "$1" = run ] || exec {ROOT}/rdma-cts "$@"
            until [ "$1" = --out ]; do shift; done
            [ ! -d {root}/made ] || {{ mkdir -p "$2" && cp {root}/made/* "$2"; }}
            exit "$(cat {root}/status)" """)
        program.chmod(0o755)

    def will(self, status: int, run: Recorded | None = None) -> None:
        shutil.rmtree(self.root / "made", ignore_errors=True)
        (self.root / "status").write_text(str(status))
        if run:
            written(run, self.root / "made")

    def call(
        self,
        script: str,
        *arguments: str,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        settings = [f"{name}={value}" for name, value in environment.items()]
        command = ["env", *settings, str(self.root / "suite" / "ci" / script), *arguments]
        return ended(*command, cwd=self.root, stdin=subprocess.DEVNULL)

    def asked(self) -> list[str]:
        return (self.root / "asked").read_text().splitlines()


@pytest.fixture
def scripts(tmp_path: Path) -> Scripts:
    return Scripts(tmp_path)


def verdicts(*path: str) -> Recorded:
    return recorded(
        [result(case, verdict) for case, verdict in zip(SUITE.cases, path, strict=False)],
    )


def test_a_cell_fails_on_regressions_only(scripts):
    nights = ((1, "PASS", "FAIL", 0), (1, "FAIL", "FAIL", 1), (0, "PASS", "PASS", 0))
    for status, first, second, expected in nights:
        scripts.will(status, verdicts(first, second))
        summary = scripts.root / "step-summary"
        summary.write_text("")
        done = scripts.call(
            "stack.sh",
            "forky",
            "kept",
            "--tier",
            "smoke",
            GITHUB_STEP_SUMMARY=str(summary),
        )
        assert done.returncode == expected, done.stdout + done.stderr
        assert "## Since the last good run" in summary.read_text()
        shutil.rmtree(scripts.root / "out")
        results = read_written(scripts.root / "kept" / "forky").results
        # the regression is not stored
        assert [result["verdict"] for result in results] == [
            "PASS",
            "PASS" if status == 0 else "FAIL",
        ]
    assert (
        scripts.asked()[0] == "run --guest --stack forky --yes --quiet --out out/forky --tier smoke"
    )


def test_a_cell_whose_run_is_incomplete_or_does_not_begin_has_its_status_and_is_not_kept(scripts):
    scripts.will(3, recorded([result(SUITE.cases[0])], complete=False))
    assert scripts.call("stack.sh", "forky", "kept").returncode == 3
    assert (scripts.root / "out/forky/summary.md").exists()
    scripts.will(4)
    assert scripts.call("stack.sh", "forky", "kept").returncode == 4
    assert not (scripts.root / "kept").exists()
    mistaken = scripts.call("stack.sh", "forky")
    assert mistaken.returncode == 2
    assert "\nUsage: sh ci/stack.sh STACK " in mistaken.stderr


@pytest.mark.parametrize("status", [2, 3, 4])
def test_a_run_that_does_not_begin_says_nothing_about_the_results_of_an_earlier_run(
    scripts, status
):
    scripts.will(0, verdicts("PASS"))
    assert scripts.call("stack.sh", "forky", "kept").returncode == 0
    results = (scripts.root / "out/forky/results.jsonl").read_bytes()
    scripts.will(status)
    summary = scripts.root / "step-summary"
    done = scripts.call("stack.sh", "forky", "kept", GITHUB_STEP_SUMMARY=str(summary))
    assert (done.returncode, done.stdout) == (status, "")
    assert not summary.exists()
    assert (scripts.root / "out/forky/results.jsonl").read_bytes() == results
    for name in ("comparison.txt", "summary.md"):
        assert not (scripts.root / "out/forky" / name).exists()


def test_a_run_that_cannot_be_kept_leaves_the_last_good_run(scripts):
    scripts.will(0, verdicts("PASS"))
    assert scripts.call("stack.sh", "forky", "kept").returncode == 0
    good = (scripts.root / "kept/forky/results.jsonl").read_bytes()
    copying = scripts.root / "full"
    script(copying / "cp", 'mkdir "$3"; exit 1')
    path = f"{copying}:{os.environ['PATH']}"
    assert scripts.call("stack.sh", "forky", "kept", PATH=path).returncode == 3
    assert (scripts.root / "kept/forky/results.jsonl").read_bytes() == good
    assert [entry.name for entry in (scripts.root / "kept").iterdir()] == ["forky"]


@pytest.mark.parametrize("variables, shard", rows("shards_of_engines"))
def test_the_variables_of_each_engine_select_the_shard(scripts, variables, shard):
    environment = dict(variable.split("=") for variable in variables.split())
    scripts.will(1, verdicts("FAIL"))
    out = f"{environment.get('OUT', 'out')}/shard-{shard[0]}"
    assert scripts.call("shard.sh", "--guest", **environment).returncode == 0
    (scripts.root / out / "plan.json").write_text("")
    scripts.call("shard.sh", "--guest", **environment)
    assert scripts.asked() == [
        f"run --out {out} --yes --quiet --shard {shard} --guest",
        f"run --resume {out} --yes --quiet",
    ]


def test_a_shard_that_is_incomplete_or_not_known_fails(scripts):
    scripts.will(3, verdicts("PASS"))
    assert scripts.call("shard.sh", SHARD="1/2").returncode == 3
    assert "set SHARD=K/N" in scripts.call("shard.sh").stderr


def test_a_kselftest_prints_ktap_and_nothing_else(scripts):
    scripts.will(1, verdicts("PASS", "FAIL"))
    done = scripts.call("kselftest.sh", "--tier", "smoke", RDMA_CTS_DEVICE="mlx5_0")
    assert done.returncode == 1
    lines = list(Parser().parse(io.StringIO(done.stdout)))
    assert sorted(line.ok for line in lines if line.category == "test") == [False, True]
    assert re.fullmatch(r"run --device mlx5_0 --out \S+ --tier smoke", scripts.asked()[0])
    scripts.will(0, verdicts("PASS"))
    assert scripts.call("kselftest.sh", RDMA_CTS_DEVICE="mlx5_0").returncode == 0
    scripts.will(2)
    done = scripts.call("kselftest.sh", RDMA_CTS_DEVICE="none")
    assert (done.returncode, "not ok 1 rdma-cts # ERROR" in done.stdout) == (1, True)


@pytest.mark.skipif(
    any(Path("/sys/class/infiniband").glob("*")),
    reason="this host has an RDMA device",
)
def test_a_kselftest_without_a_device_is_skipped(scripts):
    done = scripts.call("kselftest.sh")
    skipped = "TAP version 13\n1..1\nok 1 rdma-cts # SKIP this host has no RDMA device\n"
    assert (done.returncode, done.stdout) == (4, skipped)


def test_a_tmt_test_leaves_its_results(scripts):
    scripts.will(1, verdicts("PASS", "FAIL"))
    data = scripts.root / "data"
    data.mkdir()
    done = scripts.call("tmt/test.sh", TMT_TEST_DATA=str(data), RDMA_CTS_TARGET="--guest")
    assert done.returncode == 0, done.stderr
    assert [result["result"] for result in yaml.safe_load((data / "results.yaml").read_text())] == [
        "pass",
        "fail",
    ]
    assert read_written(data / "run").footer


def test_the_tasks_of_tmt_and_restraint_require_the_packages_that_the_suite_needs():
    tasks = yaml.safe_load((CI / "tmt" / "main.fmf").read_text())
    for name, uses in (("/guest", packages.guest(AMD64)), ("/device", packages.HOST)):
        needs = {
            need.package: packages.native(need.package, "dnf")
            for need in packages.needs(("suite", *uses))
        }
        assert set(tasks[name]["require"]) == set(needs.values())
        assert set(tasks[name]["adjust"]["require"]) == set(needs)
    task = configparser.ConfigParser()
    task.read(CI / "restraint" / "metadata")
    hard, soft = (
        set(task["restraint"][key].split(";")) for key in ("dependencies", "softDependencies")
    )
    assert hard == set(tasks["/device"]["require"])
    assert hard | soft == hard | set(tasks["/guest"]["require"])


def test_restraint_gets_failures_and_an_overall_result(scripts):
    scripts.will(1, verdicts("PASS", "FAIL"))
    for name in ("rstrnt-report-result", "rstrnt-report-log"):
        script(scripts.root / name, f'echo "$*" >>{scripts.root}/{name}.calls')
    path = f"{scripts.root}:/usr/bin:/bin:/usr/sbin:/sbin"
    done = scripts.call("restraint/runtest.sh", PATH=path, RDMA_CTS_OPTIONS="--guest")
    assert done.returncode == 0, done.stderr
    calls = [
        call.split()[2:]
        for call in (scripts.root / "rstrnt-report-result.calls").read_text().splitlines()
    ]
    assert calls == [[SUITE.cases[1].id, "FAIL"], ["rdma-cts", "FAIL", "1"]]
    assert "results.jsonl" in (scripts.root / "rstrnt-report-log.calls").read_text()


# `rdma-cts test`, which a CI system of the project calls


@pytest.fixture
def begun(monkeypatch: Patch) -> Mock:
    """Replaces the start of pytest."""
    run = Mock(return_value=subprocess.CompletedProcess((), 0))
    monkeypatch.setattr("commands.test.packages.ensure_tools", lambda *_, **__: "python3")
    monkeypatch.setattr("commands.test.subprocess.run", run)
    for name in command.MORE:
        monkeypatch.delenv(name, raising=False)
    return run


def test_nightly_tests_run_only_with_nightly(begun):
    assert [
        main(["test", *more]) for more in ([], ["--nightly"], ["--", "tests/test_kills.py"])
    ] == [0, 0, 0]
    (by_day, usual), (at_night, larger), (own_call, _) = (
        (call.args[0][3:], call.kwargs["env"]) for call in begun.mock_calls
    )
    assert by_day == [*command.ALL, "-m", "not nightly"]
    assert at_night == list(command.ALL)
    assert own_call == ["tests/test_kills.py"]
    assert {name: larger[name] for name in command.MORE} == command.MORE
    assert not command.MORE.keys() & usual.keys()


def test_quick_also_chooses_among_the_tests_that_arguments_name(begun):
    assert main(["test", "--quick", "--", "tests/test_kills.py"]) == 0
    (call,) = begun.mock_calls
    assert call.args[0][3:] == [*command.FAST, "tests/test_kills.py"]


@pytest.mark.parametrize(
    "words", [["foo"], ["-q", "foo"], ["--dist=load", "foo"], ["-k", "x", "foo"]]
)
def test_a_test_file_that_does_not_exist_is_refused_before_anything_is_installed(
    words, begun, cli, monkeypatch
):
    install = Mock()
    monkeypatch.setattr("commands.test.packages.ensure_tools", install)
    said = "rdma-cts: there is no test file foo; the test files are in tests/\n"
    assert cli(2, "test", "--", *words).err == said
    assert not install.called
    assert not begun.called


def test_a_value_of_an_option_is_no_test_file(begun):
    assert main(["test", "--", "-k", "foo", "-m", "not guest", "-x", "tests"]) == 0


@pytest.mark.parametrize("of_pytest, status", [(0, 0), (1, 1), (4, 2), (5, 2)])
def test_a_mistake_in_arguments_of_pytest_has_the_status_and_the_last_line_of_a_mistake(
    begun, of_pytest, status, capsys
):
    begun.return_value = subprocess.CompletedProcess((), of_pytest)
    assert main(["test", "--", "-k", "nothing"]) == status
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (status == 2)
    assert all("these arguments: -k nothing" in line for line in lines)
