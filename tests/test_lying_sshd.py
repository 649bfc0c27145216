"""Tests of runs on a host whose sshd is real, and whose answers are false: no answer makes a PASS of a case that has
none, and a run that cannot continue ends with one line."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from conformance.results.records import read_written
from conformance.tables.suite import ROOT, load_suite
from far_host import HELLO
from fixtures.hosts import remote_host
from fixtures.system.packages import find_program
from kinds import Cli, Folders, Patch, Said
from launched import script
from patience import await_true
from samples import laid
from ssh_guest import free_port, keys_in
from test_hostile_host import CHECKED, CLOSED, ENDED

pytestmark = pytest.mark.nightly  # the package with sshd is only installed at night

# Six refused registrations, as a recorded run has them.
WORD = "reg_mr/access_flags/remote-write-without-local-write"
with lzma.open(ROOT / "docs/runs/rxe.jsonl.xz", "rt") as _run:
    HEADER, *_records = map(json.loads, _run)
RESULTS = [record for record in _records if record.get("case", "").startswith(WORD)]
DEVICE = HEADER["device"]["name"]
GRANTED = {"rc": None, "returned": "MR", "errno": "", "layer": "kernel"}
TRUTH: dict[str, Any] = {
    "hello": [HELLO],
    "check": [{**CHECKED, "device": DEVICE}],
    "close": [CLOSED],
}


def of_case(result: dict[str, Any], **changes: Any) -> list[dict[str, Any]]:
    """Returns the lines of a worker about a case."""
    return [{"type": "start", "case": result["case"]}, {**result, **changes}]


def worker(*cases: list[dict[str, Any]], header: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the host's messages about a worker that sends these lines and exits."""
    ended = {**ENDED, "what": "pytest has exited", "kind": "process-died"}
    return [{"line": line} for line in [header, *chain.from_iterable(cases)]] + [ended]


class Sshd:
    """A real sshd. For each connection it executes hostile_ssh.py, whose answers are in `script`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port, self.script = folder, free_port(), folder / "script.json"
        for keys in (folder, folder / "others"):
            keys.mkdir(exist_ok=True)
            keys_in(keys)
        program = find_program("sshd")
        assert program, "the nightly tests need the package openssh-server"
        # an empty directory, which sshd's service makes, and which only root needs
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        options = {
            "ListenAddress": f"127.0.0.1:{self.port}",
            "HostKey": folder / "host_key",
            "AuthorizedKeysFile": folder / "user_key.pub",
            "ForceCommand": f"HOSTILE={self.script} exec {sys.executable} {ROOT / 'tests/hostile_ssh.py'}",
            "PidFile": "none",
            "StrictModes": "no",
            "UsePAM": "no",
        }
        words = [f"-o{name}={value}" for name, value in options.items()]
        log = folder / "log"
        with log.open("wb") as output:
            self.process = subprocess.Popen([program, "-f/dev/null", "-De", *words], stderr=output)
        await_true(lambda: b"Server listening" in log.read_bytes())
        config = f"IdentitiesOnly yes\nIdentityFile {folder / 'user_key'}\n"
        laid(folder, {"config": f"{config}UserKnownHostsFile {folder / 'known_hosts'}\n"})
        script(folder / "bin/ssh", f'exec {find_program("ssh")} -F {folder / "config"} "$@"')

    def known_as(self, key: Path) -> None:
        kind, text, *_ = key.read_text().split()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {kind} {text}\n")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: Folders) -> Iterator[Sshd]:
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.process.terminate()
    server.process.wait()


class Run:
    """Runs the six cases on the host."""

    def __init__(self, sshd: Sshd, out: Path, cli: Cli) -> None:
        self.sshd, self.out, self._cli = sshd, out, cli

    def told(self, status: int, **answers: Any) -> Said:
        """The host answers as given here, else truthfully. The command must have this exit status."""
        self.sshd.script.write_text(json.dumps({**TRUTH, **answers}))
        host = ("--host", f"127.0.0.1:{self.sshd.port}", "--device", DEVICE, "--return-within", "1")
        return self._cli(status, "run", *host, "-k", WORD, "--no-confirm", "--out", self.out)


@pytest.fixture
def run(sshd: Sshd, tmp_path: Path, cli: Cli, monkeypatch: Patch) -> Run:
    monkeypatch.setenv("PATH", str(sshd.folder / "bin"), prepend=os.pathsep)
    sshd.known_as(sshd.folder / "host_key.pub")
    return Run(sshd, tmp_path / "out", cli)


NOISE = bytes(range(256)).decode("latin-1") * 200
# What the host does, the exit status of the run, and what its only line says.
ENDED_RUNS: dict[str, tuple[dict[str, Any], str]] = {
    "exits with 0": ({"first": [{"exit": 0}]}, "the connection ended with status 0"),
    "exits with 1": ({"check": [{"exit": 1}]}, "the connection ended with status 1"),
    "exits like ssh": ({"first": [{"exit": 255}]}, "cannot be reached: ssh gives no reason"),
    "exits like a shell without Python": ({"first": [{"exit": 127}]}, "there is no python3"),
    "exits like a full disk": (
        {"first": [{"exit": 73}]},
        "no temporary directory can be created there",
    ),
    "is another Python": (
        {"first": [{"raw": "Python 2.7.18\n>>> "}, {"exit": 0}]},
        "the connection ended with status 0",
    ),
    "sends noise": ({"first": [{"raw": NOISE}, {"exit": 0}]}, "the connection ended with status 0"),
    "sends noise as an answer": ({"check": [{"raw": NOISE}, {"exit": 2}]}, "ended with status 2"),
    "sends nothing": ({"first": [{"event": "silence"}]}, "did not respond in time"),
    "sends lines forever": (
        {"first": [{"raw": "x" * 60_000 + "\n", "flood": True}]},
        "did not respond in time",
    ),
    "sends a line forever": ({"hello": [{"raw": "x" * 60_000, "flood": True}]}, "did not respond"),
    "has a processor with an endless name": (
        {"hello": [{**HELLO, "machine": "x" * 60_000}]},
        "sent a message that no agent sends",
    ),
    "has a Python that controls the terminal": (
        {"hello": [{**HELLO, "python": "3.13\x1b[31m"}]},
        "sent a message that no agent sends",
    ),
    "has an unsupported processor": (
        {"hello": [{"event": "error", "message": "i686\x1b[31m", "hint": "", "status": 0}]},
        "i686?[31m",
    ),
    "has another device": (
        {"check": [{**CHECKED, "device": "other0"}]},
        f"reports the device 'other0', not {DEVICE}",
    ),
    "ends each worker at once": ({"start": [{"exit": 0}]}, "no case was begun: the connection to"),
    "tests another device": (
        {"start": worker(header={**HEADER, "device": {**HEADER["device"], "name": "other0"}})},
        "other0",
    ),
    "has other tables": (
        {"start": worker(header={**HEADER, "suite": {"version": "1", "tables_sha256": "1" * 64}})},
        "a worker has other tables than this process",
    ),
}


@pytest.mark.parametrize("what", ENDED_RUNS)
def test_a_host_that_lies_ends_the_run_with_one_line(run, what, monkeypatch):
    answers, why = ENDED_RUNS[what]
    if why.startswith("did not respond"):
        monkeypatch.setattr(remote_host, "_HELLO_S", 1.0)
    said = run.told(3, **answers)
    (line,) = said.err.splitlines()
    assert why in line
    assert line.isprintable()
    assert len(line) < 1000
    assert not (run.out / "results.jsonl").exists()


def test_a_host_with_another_key_is_not_asked(run):
    run.sshd.known_as(run.sshd.folder / "others/host_key.pub")
    (line,) = run.told(3).err.splitlines()
    assert "its host key is not the known key" in line
    assert re.search(r"ssh-keygen -R '\[[^]]+\]:\d+'", line)


FIRST, SECOND, *_ = RESULTS
OTHERS = [line for result in RESULTS[1:] for line in of_case(result)]
# The lines of a worker, in place of the first case, and the verdict on this case.
LIED: dict[str, tuple[list[dict[str, Any]], str]] = {
    "nothing else": (of_case(FIRST), "PASS"),
    "another case": ([of_case(FIRST)[0], SECOND], "BROKEN"),
    "a case that does not exist": ([of_case(FIRST)[0], {**FIRST, "case": "x/y/z"}], "BROKEN"),
    "no result": (of_case(FIRST)[:1], "BROKEN"),
    "a PASS that it has not observed": (of_case(FIRST, observed=GRANTED), "BROKEN"),
    "a PASS without an observation": (of_case(FIRST, observed={}), "BROKEN"),
    "a violation, and then a PASS": ([*of_case(FIRST, observed=GRANTED), FIRST], "BROKEN"),
    "other rules": (of_case(FIRST, rules=["REG-01"]), "PASS"),
}


@pytest.mark.parametrize("what", LIED)
def test_a_host_that_lies_about_a_case_gets_no_pass_for_it(run, what):
    lines, verdict = LIED[what]
    header = {**HEADER, "suite": {**HEADER["suite"], "tables_sha256": load_suite().tables_sha256}}
    run.told(3 if verdict == "BROKEN" else 0, start=worker(lines, OTHERS, header=header))
    recorded = read_written(run.out)
    assert [line["verdict"] for line in recorded.results] == [verdict] + ["PASS"] * 5
    assert recorded.results[0]["rules"] == FIRST["rules"]
