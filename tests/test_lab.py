"""Tests of a lab: located mistakes in its file, and runs on several hosts at once."""

import io
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from lxml import html

from commands import lab
from commands.__main__ import main
from commands.cli.choice import choose
from conformance.results.plan import Plan, write_plan
from conformance.run_options import RunOptions
from conformance.tables.suite import ROOT, load_suite
from fixtures.hosts import remote_host
from fixtures.hosts.lab_file import LabHost, read_lab
from kinds import Said, rows
from launched import script
from made_history import write_run
from patience import PATIENCE_S, await_true, is_running
from samples import laid, user_error
from test_compared_nodes import recorded

GOOD = """\
groups:
  cx7: {device: mlx5_0, gid_index: 3, profile: profiles/cx7.yaml, return_within: 600}
hosts:
  - {host: root@node1, group: cx7, power_cycle: ipmitool -H bmc1 chassis power cycle}
  - {host: "node2:2222", group: cx7, gid_index: 1, hazardous: true}
  - {name: odd, host: "[fd00::1]", device: bnxt_re0}
"""


def lab_file(folder: Path, text: str) -> Path:
    return laid(folder, {"lab.yaml": text}) / "lab.yaml"


# The file


def test_the_hosts_of_a_group_share_its_options(tmp_path):
    shared = {"device": "mlx5_0", "profile": tmp_path / "profiles/cx7.yaml", "return_within": 600.0}
    assert read_lab(lab_file(tmp_path, GOOD), {}) == [
        LabHost(
            "node1",
            "cx7",
            {
                **shared,
                "gid_index": 3,
                "power_cycle": "ipmitool -H bmc1 chassis power cycle",
                "host": "root@node1",
            },
        ),
        LabHost(
            "node2",
            "cx7",
            {**shared, "gid_index": 1, "hazardous": True, "host": "node2:2222"},
        ),
        LabHost("odd", "", {"device": "bnxt_re0", "host": "[fd00::1]"}),
    ]


MISTAKES = rows("mistakes_in_labs")


@pytest.mark.parametrize(
    "text, said",
    [row for row in MISTAKES if not row[0].startswith("run ")],
)
def test_a_mistake_in_the_file_has_its_place(tmp_path, text, said):
    path = lab_file(tmp_path, text.replace("\\n", "\n") + "\n")
    with user_error(f"^{re.escape(f'{path}{said}')}", status=2, one_line=False):
        read_lab(path, {})


@pytest.mark.parametrize("place", ["lab.yaml", "."])
def test_a_file_that_another_user_can_write_is_refused(tmp_path, place):
    path = lab_file(tmp_path, GOOD)
    (tmp_path / place).chmod(0o777)
    with user_error(f"^{re.escape(str(tmp_path / place))} can be written by other users", status=2):
        read_lab(path, {})


def test_a_device_is_no_file_of_a_lab():
    with user_error("^/dev/null: cannot be read: not a regular file", status=2):
        read_lab(Path("/dev/null"), {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("place", ["lab.yaml", "."])
def test_a_file_of_another_user_is_refused_whatever_its_mode(tmp_path, place):
    path = lab_file(tmp_path, GOOD)
    os.chown(tmp_path / place, 65534, 65534)
    with user_error(f"^{re.escape(str(tmp_path / place))} belongs to another user", status=2):
        read_lab(path, {})


# The command


def client_of(folder: Path, does: str) -> Path:
    """Makes an ssh that writes its process id into the file `connecting`, and then runs these shell commands."""
    return script(
        folder / "bin" / "ssh",
        f"echo $$ >{folder}/pid && mv {folder}/pid {folder}/connecting\n{does}",
    )


def run(folder: Path, status: int, *arguments: str, first: str = "") -> Said:
    """Runs `rdma-cts run` here, with an ssh that prints the message for an unknown host, after the shell commands
    `first`; checks the exit status."""
    client_of(
        folder,
        f"{first}echo 'ssh: Could not resolve hostname: Name or service not known' >&2; exit 255",
    )
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setenv("PATH", str(folder / "bin"), prepend=os.pathsep)
        ended = main(["run", *arguments])
    assert ended == status, err.getvalue()
    return Said(out.getvalue(), err.getvalue())


def test_an_unreachable_host_affects_only_its_column(tmp_path):
    lab_file(tmp_path, "hosts: [{host: one, device: a}, {host: two, device: a}]\n")
    done = run(tmp_path, 3, "--lab", "lab.yaml", "--out", "out", "--verb", "dealloc_mw")
    for host in ("one", "two"):
        assert f"{host}: not run: {host} {REASON}" in done.out
    assert done.out.splitlines()[-1] == "report: out/lab.html"
    shown = html.parse(str(tmp_path / "out" / "lab.html"))
    assert "2 nodes, 0 groups, nothing was compared, 2 without a complete run" in shown.findtext(
        ".//h1",
    )
    assert REASON in shown.getroot().text_content()


@contextmanager
def open_files(most: int) -> Iterator[None]:
    """Limits the files that this process may have open; the limit can be raised again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.nightly
def test_a_lab_of_500_hosts_raises_the_limit_of_open_files(tmp_path, monkeypatch):
    """All 500 connections are open at the same time: no client ends before the last one has started."""
    hosts = ", ".join(f"{{host: node{number}, device: a}}" for number in range(500))
    lab_file(tmp_path, f"hosts: [{hosts}]\n")
    gate, connected = tmp_path / "gate", tmp_path / "connected"
    connected.touch()
    os.mkfifo(gate)
    monkeypatch.setattr(remote_host, "_HELLO_S", PATIENCE_S)

    def open_gate() -> None:
        await_true(lambda: connected.stat().st_size == 500)
        gate.write_text("")  # the end of the FIFO for each client that waits

    opener = threading.Thread(target=open_gate, daemon=True)
    opener.start()
    with open_files(256):
        done = run(
            *(tmp_path, 3, "--lab", "lab.yaml", "--out", "out", "--verb", "dealloc_mw"),
            first=f"printf . >>{connected}; read -r _ <{gate}; ",
        )
    opener.join(PATIENCE_S)
    assert "500 nodes, 0 groups, nothing was compared, 500 without a complete run" in done.out
    assert sum(f": not run: node{number} {REASON}" in done.out for number in range(500)) == 500
    assert done.err == ""


def test_a_lab_that_needs_more_open_files_than_are_permitted_is_refused(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    hosts = ", ".join(f"{{host: node{number}, device: a}}" for number in range(500))
    lab_file(tmp_path, f"hosts: [{hosts}]\n")
    with open_files(256):
        monkeypatch.setattr(resource, "setrlimit", refuse)
        done = run(tmp_path, 3, "--lab", "lab.yaml", "--out", "out", "--verb", "dealloc_mw")
        monkeypatch.undo()
    (line,) = done.err.splitlines()
    assert "a lab of 500 hosts needs 1600 open files, and this process may open" in line


def test_runs_of_a_lab_with_the_same_selection_share_the_chosen_cases():
    chosen = choose(RunOptions(verbs=("dealloc_mw",)))
    assert choose(RunOptions(verbs=("dealloc_mw",), host="one"), chosen).cases is chosen.cases
    other = choose(RunOptions(verbs=("alloc_mw",)), chosen)
    assert other.suite is chosen.suite
    assert {case.verb for case in other.cases} == {"ibv_alloc_mw"}


REASON = "cannot be reached: ssh: Could not resolve hostname: Name or service not known"


def unreached(folder: Path, hosts: str) -> Path:
    """Makes a run of a lab of which no host can be reached; returns the lab's file."""
    file = lab_file(folder, f"hosts: [{hosts}]\n")
    run(folder, 3, "--lab", "lab.yaml", "--out", "out", "--verb", "dealloc_mw")
    return file


def planned(folder: Path, *argv: str) -> None:
    """Writes the directory of a run with these arguments that has no result yet."""
    laid(folder, {})
    tables = load_suite().tables_sha256
    write_plan(Plan(argv, str(folder.parent), ("reg_mr/a",), tables, "host", {}), folder)


def complete(folder: Path, *argv: str, verdicts: str = "PASS PASS PASS") -> None:
    """Writes the directory of a run with these arguments and results; without arguments it has no plan."""
    write_run(folder, recorded(verdicts.split()))
    if argv:
        planned(folder, *argv)


ON_ONE = ("--host", "one", "--device", "a")


def test_a_resumed_lab_skips_hosts_with_a_complete_run(tmp_path):
    """The run of one host is complete, one was cut short, and one has not begun. No host can be reached now."""
    unreached(tmp_path, "{host: one, device: a}, {host: two, device: a}")
    complete(tmp_path / "out/one", *ON_ONE)
    work = laid(tmp_path / "out/one", {"work-1/file": "left by a run that was killed at its end"})
    planned(tmp_path / "out/two", "--host", "two", "--device", "a")
    lab_file(tmp_path, "hosts: [{host: one, device: a}, {host: two}, {host: three, device: a}]\n")
    done = run(tmp_path / "out", 3, "--resume", ".")
    assert f"one: the run in {tmp_path / 'out/one'} is complete" in done.out
    assert not list(work.glob("work-*"))
    # A run of other tables does not show how many cases of the default tier were left out.
    assert "one: partial: it is unknown how much of the default tier was run" in done.out
    assert f"two: not run: two {REASON}" in done.out
    assert f"three: not run: three {REASON}" in done.out
    assert f"rdma-cts run --resume {tmp_path / 'out'} runs the remaining cases" in done.out
    assert (
        "3 nodes, 1 group, no node differs, no rule is violated, 2 without a complete run"
        in done.out
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("--guest",),
        ("--host", "two", "--device", "a"),
        ("--host", "one", "--device", "b"),
        ("--device", "a"),
    ],
)
def test_the_run_of_another_host_device_or_target_is_not_taken_for_that_of_a_host(tmp_path, argv):
    unreached(tmp_path, "{host: root@one, name: one, device: a}")
    complete(tmp_path / "run", *argv, verdicts="FAIL PASS PASS")
    (tmp_path / "out/one").symlink_to(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    done = run(tmp_path, 3, "--resume", "out")
    assert (
        f"one: not run: {tmp_path / 'out/one'} is not the directory of the run of root@one, a"
        in done.out
    )
    assert (
        "is not the directory of the run of root@one, a" in (tmp_path / "out/lab.html").read_text()
    )
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}


def test_results_without_a_plan_are_not_taken_for_those_of_a_host(tmp_path):
    unreached(tmp_path, "{host: one, device: a}")
    complete(tmp_path / "out/one")
    done = run(tmp_path, 3, "--resume", "out")
    assert (
        f"one: not run: {tmp_path / 'out/one'} is possibly not the directory of the run of one, a: "
        in done.out
    )
    assert "there is no plan.json" in done.out


def test_a_lab_in_which_all_hosts_are_complete_is_reported_again(tmp_path):
    file = unreached(tmp_path, "{host: one, device: a}")
    complete(tmp_path / "out/one", *ON_ONE)
    file.rename(tmp_path / "other.yaml")
    done = run(tmp_path, 2, "--resume", "out")
    assert "lab.yaml" in done.err
    done = run(tmp_path, 0, "--lab", "other.yaml", "--resume", "out")
    assert "runs the remaining cases" not in done.out
    assert "left out" not in done.out


def test_a_run_whose_host_has_left_the_file_is_reported(tmp_path):
    unreached(tmp_path, "{host: one, device: a}")
    planned(tmp_path / "out/one", *ON_ONE)
    (tmp_path / "moved.yaml").write_text("hosts: [{host: two, device: a}]\n")
    done = run(tmp_path, 3, "--lab", "moved.yaml", "--resume", "out", "-q")
    file = tmp_path / "moved.yaml"
    assert (
        f"one: the run in {tmp_path / 'out/one'} is left out, because {file} has no host of this name"
        in done.out
    )


@pytest.mark.parametrize(
    "name, content, output",
    [
        ("waivers", None, "waivers: {}/x.yaml: cannot be read: No such file"),
        ("profile", None, "profile: {}/x.yaml: cannot be read: No such file"),
        ("waivers", "waivers: 5\n", "waivers: {}/x.yaml:1:10: waivers must be a list"),
        ("profile", "device: 5\n", "profile: {}/x.yaml:1:9: device must be text"),
        ("profile", "", "profile: {}/x.yaml"),
    ],
)
def test_a_mistake_in_a_file_that_the_lab_names_is_reported_before_a_host_is_connected(
    tmp_path, name, content, output
):
    if content is not None:
        (tmp_path / "x.yaml").write_text(content)
    option = f"{name}: x.yaml"
    lab_file(
        tmp_path,
        f"groups: {{g: {{{option}}}}}\nhosts: [{{host: one, group: g}}, {{host: two, {option}}}]\n",
    )
    done = run(tmp_path, 2, "--lab", str(tmp_path / "lab.yaml"), "--out", "out")
    places = (f"1:{16 + len(name)}", f"2:{46 + len(name)}")
    for place in places:
        assert f"{tmp_path / 'lab.yaml'}:{place}: {output.format(tmp_path)}" in done.err
    assert not (tmp_path / "connecting").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "text, place",
    [
        ("hosts:\n- {host: one}\n- {host: two, hazardous: true}\n", "3:3"),
        ("groups: {g: {hazardous: true}}\nhosts: [{host: one, group: g}]\n", "2:9"),
    ],
)
def test_options_of_a_host_that_exclude_those_of_the_command_have_a_place(tmp_path, text, place):
    lab_file(tmp_path, text)
    done = run(tmp_path, 2, "--lab", "lab.yaml", "--tier", "health", "--out", "out")
    mistake = "--tier health and --hazardous exclude each other"
    assert done.err.startswith(f"rdma-cts: lab.yaml:{place}: {mistake}")
    assert done.err.count("\n") == 1
    assert not (tmp_path / "connecting").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "arguments, there, why",
    [
        (
            ["--lab", "lab.yaml"],
            "results.jsonl",
            "out already has a run; choose another --out, or --resume the lab",
        ),
        (
            ["--lab", "lab.yaml"],
            "plan.json",
            "out already has a run; choose another --out, or --resume the lab",
        ),
        (["--lab", "lab.yaml"], "lab.html/", "out/lab.html cannot be written: it is a directory"),
        (
            ["--host", "one"],
            "lab.json",
            "out is the directory of a lab; choose another --out, or --resume the lab",
        ),
    ],
)
def test_no_run_starts_in_a_directory_that_has_something_else(tmp_path, arguments, there, why):
    lab_file(tmp_path, "hosts: [{host: one}]\n")
    path = tmp_path / "out" / there
    if there.endswith("/"):
        path.mkdir(parents=True)
    else:
        laid(tmp_path / "out", {there: "{}\n"})
    done = run(tmp_path, 2, *arguments, "--out", "out")
    assert done.err == f"rdma-cts: {why}\n"
    assert list((tmp_path / "out").iterdir()) == [path]
    assert not (tmp_path / "connecting").exists()


def test_the_reason_of_a_host_names_it_once(tmp_path, monkeypatch):
    def ends(*arguments: Any) -> None:
        os.write(arguments[3], b"root@one: connected\nrdma-cts: root@one: there is no device\n")
        sys.exit(4)

    lab_file(tmp_path, "hosts: [{host: root@one, device: a}]\n")
    monkeypatch.setattr(lab, "_in_copy", ends)
    done = run(tmp_path, 3, "--lab", "lab.yaml", "--out", "out")
    assert {"one: connected", "one: not run: there is no device"} <= {*done.out.splitlines()}


def test_a_broken_rule_of_a_complete_run_has_its_reason(tmp_path, monkeypatch):
    """A resumed lab would not run its case again."""
    complete(tmp_path / "made", verdicts="BROKEN PASS PASS")

    def ends(*_: object) -> None:
        shutil.copytree(tmp_path / "made", tmp_path / "out/one", dirs_exist_ok=True)
        sys.exit(3)

    lab_file(tmp_path, "hosts: [{host: one, device: a}]\n")
    monkeypatch.setattr(lab, "_in_copy", ends)
    done = run(tmp_path, 3, "--lab", "lab.yaml", "--out", "out")
    case = "reg_mr/sample/c0"
    assert f"one: REG-01 is BROKEN: {case}: " in done.out
    assert "1 node, 1 group, no node differs, no rule is violated" in done.out
    again = "./rdma-cts run --lab lab.yaml --failed out/one runs the undecided cases again"
    assert again in done.out.splitlines()
    assert "runs the remaining cases" not in done.out


@pytest.mark.parametrize(
    "resumed, instead",
    [
        ("out/one", "--resume out resumes the lab, and starts the run of each host of its file"),
        ("runs", "--resume runs/last resumes the latest run in it"),
        ("empty", "; give the directory that `run` has written"),
        ("runs/last --lab lab.yaml", "--resume runs/last, without --lab, resumes the run in it"),
    ],
)
def test_a_directory_without_a_plan_is_refused_with_what_can_be_resumed(tmp_path, resumed, instead):
    unreached(tmp_path, "{host: one, device: a}")
    complete(tmp_path / "runs/last", *ON_ONE)
    (tmp_path / "empty").mkdir()
    done = run(tmp_path, 2, "--resume", *resumed.split())
    assert re.match(
        "rdma-cts: no (run|lab) to resume in .*: there is no (plan|lab).json; ", done.err
    )
    assert instead in done.err


def test_a_mistake_of_the_hosts_or_of_the_file_is_to_be_corrected(tmp_path, monkeypatch):
    lab_file(tmp_path, "hosts: [{host: one, device: a}]\n")
    monkeypatch.setattr(lab, "_in_copy", lambda *_: sys.exit(2))
    done = run(tmp_path, 3, "--lab", "lab.yaml", "--out", "out")
    assert "correct the hosts, or lab.yaml, first; then ./rdma-cts run --resume out" in done.out


def begun(folder: Path, hosts: str, does: str) -> subprocess.Popen[str]:
    """Begins a run of a lab with an ssh that runs these shell commands; returns when it connects to a host."""
    lab_file(folder, f"hosts: [{hosts}]\n")
    client_of(folder, does)
    command = [sys.executable, "-m", "commands", "run", "--lab", "lab.yaml", "--out", "out"]
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    streams: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # a shell starts a process in the background with SIGINT ignored
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    lab_run = subprocess.Popen(command, cwd=folder, env=environment, preexec_fn=heeding, **streams)
    await_true(lambda: (folder / "connecting").exists())
    return lab_run


def test_a_group_without_a_host_is_noted(tmp_path):
    lab_file(tmp_path, "groups: {old: {device: a}}\nhosts: [{host: one, device: a}]\n")
    said: list[str] = []
    read_lab(tmp_path / "lab.yaml", {}, say=said.append)
    assert said == [f"{tmp_path / 'lab.yaml'}: no host is in the group old"]


def test_an_unreachable_host_is_named_while_the_other_hosts_run(tmp_path):
    unknown = "echo 'ssh: Could not resolve hostname: Name or service not known' >&2; exit 255"
    slow = f'case "$*" in *slow*) while ! [ -e {tmp_path}/read ]; do sleep 0.1; done ;; esac'
    hosts = "{host: slow, device: a}, {host: two, device: a}"
    lab_run = begun(tmp_path, hosts, f"{slow}\n{unknown}")
    assert lab_run.stdout is not None
    line = f"two: not run: two {REASON}\n"
    before = [*takewhile(line.__ne__, lab_run.stdout)]
    assert not [text for text in before if text.startswith("slow: not run")]
    (tmp_path / "read").touch()
    output, errors = lab_run.communicate(timeout=PATIENCE_S)
    assert (lab_run.returncode, errors) == (3, "")
    assert line in output


@pytest.mark.parametrize(
    "arguments, hint",
    [
        ("--resume out", ""),
        ("--lab lab.yaml --out out", "choose another --out, or "),
    ],
)
def test_a_second_run_of_a_running_lab_is_refused(tmp_path, arguments, hint):
    lab_run = begun(tmp_path, "{host: one, device: a}", "exec sleep 36000")
    first = (tmp_path / "connecting").read_text()
    plan = (tmp_path / "out/lab.json").stat().st_ino
    done = run(tmp_path, 2, *arguments.split())
    assert done.out == ""
    message = f"rdma-cts: a run is in progress in .*out; {hint}wait until the run ends\n"
    assert re.fullmatch(message, done.err)
    assert (tmp_path / "connecting").read_text() == first
    assert (tmp_path / "out/lab.json").stat().st_ino == plan
    assert not (tmp_path / "out/lab.html").exists()
    lab_run.terminate()
    lab_run.communicate(timeout=PATIENCE_S)
    assert f"one: not run: one {REASON}" in run(tmp_path, 3, "--resume", "out").out


@pytest.mark.parametrize(
    "number, ended", [(signal.SIGTERM, "ended by SIGTERM"), (signal.SIGINT, "interrupted")]
)
def test_a_lab_that_a_signal_ends_prints_how_to_resume_it(tmp_path, number, ended):
    lab_run = begun(tmp_path, "{host: one, device: a}", "exec sleep 36000")
    lab_run.send_signal(number)
    said, output = lab_run.communicate(timeout=PATIENCE_S)
    assert lab_run.returncode == 128 + number
    assert output == f"rdma-cts: {ended}: ./rdma-cts run --resume out runs the remaining cases\n"
    assert said.startswith(f"one: not run: {ended}\n")
    assert said.endswith("\nreport: out/lab.html\n")
    pid = int((tmp_path / "connecting").read_text())
    await_true(lambda: not is_running(pid))  # no connection is left
    assert ended in (tmp_path / "out/lab.html").read_text().partition('id="missing"')[2]


@pytest.mark.parametrize(
    "command, output",
    [row for row in MISTAKES if row[0].startswith("run ")],
)
def test_a_mistake_in_a_command_is_one_line_and_connects_to_no_host(tmp_path, command, output):
    lab_file(tmp_path, "hosts: [{host: one}, {host: two}]\n")
    laid(tmp_path, {"bad/lab.json": '{"schema": "rdma-cts-lab/1", "argv": 5}'})
    done = run(tmp_path, 2, *shlex.split(command)[1:])
    assert (done.out, done.err.count("\n")) == ("", 1)
    assert output in done.err
    assert not (tmp_path / "connecting").exists()
    assert not (tmp_path / "out").exists()
