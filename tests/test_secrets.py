"""Tests that results, which travel in reports, bundles and mails, have no value that may be secret. Only the plan of a
run has the values, and only its user can read the plan."""

import json
import shutil
import stat
from pathlib import Path

import pytest

from commands.__main__ import main
from commands.cli.run_arguments import recorded_options
from conformance.errors import UserError
from conformance.recorded_command import recorded_environment, without_values
from conformance.results.plan import Plan, read_plan, write_plan
from conformance.results.records import published_file, read_written
from conformance.run_options import RunOptions
from conformance.tables.suite import load_suite
from fixtures.guest.job import Job
from fixtures.targets.builds import environment_from

SECRET = "hunter2"
ARGUMENTS = {
    "a variable": (["--guest-env", f"TOKEN={SECRET}"], ["--guest-env", "TOKEN"]),
    "a variable in one word": ([f"--guest-env=TOKEN={SECRET}"], ["--guest-env=TOKEN"]),
    "a shortened option": (["--guest-e", f"TOKEN={SECRET}"], ["--guest-e", "TOKEN"]),
    "a value with a sign": (["--guest-env", f"A=b={SECRET}"], ["--guest-env", "A"]),
    "a variable after an option that begins its name": (
        ["--guest", "--guest-env", f"TOKEN={SECRET}"],
        ["--guest", "--guest-env", "TOKEN"],
    ),
    "a reset": (["--power-cycle", f"ipmi -P {SECRET}"], ["--power-cycle", "left out"]),
    "a reset in one word": ([f"--power-cycle=ipmi -P {SECRET}"], ["--power-cycle=left out"]),
    "a console": (["--cons", f"ssh {SECRET}@bmc"], ["--cons", "left out"]),
    "other options": (["--host", "root@a", "-k", "x"], ["--host", "root@a", "-k", "x"]),
    "an option without its value": (["--guest-env"], ["--guest-env"]),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_the_recorded_command_line_has_no_value_of_a_private_option(what):
    given, recorded = ARGUMENTS[what]
    assert without_values(["run", *given, "--tier", "smoke"]) == [
        "run",
        *recorded,
        "--tier",
        "smoke",
    ]


def test_the_command_that_repeats_a_case_names_variables_without_their_values():
    case = load_suite().cases[0]
    options = RunOptions(guest=True, guest_env=(f"TOKEN={SECRET}", "COLOUR"))
    repeated = options.reproduction(case)
    assert SECRET not in repeated
    assert "--guest-env TOKEN --guest-env COLOUR" in repeated


def test_only_values_that_select_code_are_recorded():
    variables = {"TOKEN": SECRET, "LD_PRELOAD": "/x.so", "RDMAV_DRIVERS": "/y", "XLD_Z": SECRET}
    assert recorded_environment(variables) == {
        "TOKEN": "left out",
        "LD_PRELOAD": "/x.so",
        "RDMAV_DRIVERS": "/y",
        "XLD_Z": "left out",
    }


def test_a_variable_without_a_value_has_the_value_of_the_environment(monkeypatch):
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.delenv("NOTHING", raising=False)
    options = RunOptions(guest=True, guest_env=("TOKEN", "EMPTY=", "COLOUR=blue"))
    assert environment_from(options) == {"TOKEN": SECRET, "EMPTY": "", "COLOUR": "blue"}
    with pytest.raises(UserError, match="the environment has no such variable"):
        environment_from(RunOptions(guest_env=("NOTHING",)))


@pytest.mark.parametrize(
    "text",
    [f"A\n={SECRET}", f"={SECRET}", f"A B={SECRET}", f"X=\x1b{SECRET}"],
)
def test_a_message_about_a_variable_does_not_show_its_value(text):
    with pytest.raises(UserError) as refused:
        environment_from(RunOptions(guest_env=(text,)))
    assert SECRET not in str(refused.value)


def test_only_the_user_of_a_run_can_read_its_plan(tmp_path):
    options = RunOptions(guest=True, guest_env=(f"TOKEN={SECRET}",))
    plan = Plan(tuple(options.arguments()), str(tmp_path), (), "", "forky", {})
    write_plan(plan, tmp_path)
    file = tmp_path / "plan.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    resumed = recorded_options(read_plan(tmp_path).argv, file)
    assert environment_from(resumed) == {"TOKEN": SECRET}


FORMATS = ["html", "junit", "ktap", "markdown", "summary", "tmt"]


@pytest.fixture
def written_by_hand(tmp_path: Path) -> Path:
    """A run whose results have the values: an older version, or a person, has written them."""
    folder = Path(shutil.copytree(Path(__file__).with_name("old_results"), tmp_path / "run"))
    header, *lines = (folder / "results.jsonl").read_text().splitlines()
    record = json.loads(header)
    record["argv"] = ["run", "--guest"]
    for words, _ in ARGUMENTS.values():
        record["argv"] += words if len(words) > 1 or "=" in words[0] else []
    given = {"environment": {"TOKEN": SECRET, "LD_PRELOAD": "/x.so"}}
    record["under_test"] = {**record.get("under_test", {}), "given": given}
    results: list[str] = []
    for line in lines:
        result = json.loads(line)
        if result["type"] == "result":
            command = f"./rdma-cts run --guest-env TOKEN={SECRET} --only {result['case']}"
            result["repro"] = command
            for deviation in result.get("deviations") or ():
                deviation["repro"] = command
        results.append(json.dumps(result).replace("--guest", r"\u002d-guest", len(results) % 2))
    (folder / "results.jsonl").write_text("\n".join([json.dumps(record), *results, ""]))
    assert SECRET in (folder / "results.jsonl").read_text()
    return folder


@pytest.mark.parametrize("form", FORMATS)
def test_no_reader_shows_a_value_that_somebody_has_written_by_hand(written_by_hand, form, cli):
    said = cli(0, "report", written_by_hand, "--format", form, "--out", "-")
    assert SECRET not in said.out + said.err
    assert "/x.so" in said.out or form != "html"


def test_no_file_made_from_such_results_has_the_values(written_by_hand, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["judge", str(written_by_hand), "--out", "again"])
    main(["findings", str(written_by_hand), "--programs", "--out", "findings"])
    main(["findings", str(written_by_hand), "--format", "mail", "--out", "mails"])
    main(["reproducer", "--all", "--run", str(written_by_hand), "--out", "programs"])
    main(["compare", "--nodes", str(written_by_hand), "--out", "nodes"])
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    texts = {path: path.read_text() for path in files if written_by_hand not in path.parents}
    assert len(texts) > 10
    assert not [path for path, text in texts.items() if SECRET in text]


def test_a_bundle_of_such_results_does_not_have_the_values(written_by_hand, tmp_path, cli):
    """Lines without a value are packed as they are."""
    data = (written_by_hand / "results.jsonl").read_bytes()
    packed = published_file(data)
    assert SECRET.encode() not in packed
    again = read_written(written_by_hand)
    (tmp_path / "results.jsonl").write_bytes(packed)
    assert read_written(tmp_path / "results.jsonl") == again
    clean = (Path(__file__).with_name("old_results") / "results.jsonl").read_bytes()
    assert published_file(clean) == clean


def test_the_guest_gets_the_value(tmp_path):
    """The value is not lost on the way that keeps it out of the results."""
    variables = environment_from(RunOptions(guest_env=(f"TOKEN={SECRET}",)))
    assert Job((), "true", variables).environment == {"TOKEN": SECRET}
    assert SECRET not in json.dumps(recorded_environment(variables))
