"""Tests that every attack in attacks.yaml on the judge is reported.

An attack tries to get the conclusion "conforms", or a better verdict, for a run that does not conform. A new attack
needs a line in attacks.yaml, and a function in TRIED or CHANGES if no existing function fits. Verdicts without a
supporting observation are tested in test_judge.py and test_forged_bundles.py.
"""

import itertools
import subprocess
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import yaml

from actors import HEADER, IDS, SUITE, Stage, ran, start, verdicts
from commands import run
from conformance.errors import UserError
from conformance.model.bounds import MOST_DEVIATIONS, MOST_VALUES
from conformance.model.record import Record
from conformance.model.space import Space
from conformance.results.points import store_points
from conformance.results.records import encode
from conformance.results.writer import ResultsFile
from conformance.sweeps.outcome import Outcome, Points
from conformance.tables.suite import VERSION, Suite
from kinds import Cli
from recorded_reference import record
from reports import digest
from reports.bundles.archive import pack
from reports.bundles.claims import claims
from samples import consistent, lines_of, observed_result, written_records

Line = dict[str, Any]
STARTED = "2026-01-02T03:04:05+00:00"


class Attack(NamedTuple):
    """An attack of attacks.yaml. The function TRIED[by] carries out the attack and checks the message `said`."""

    attack: str
    by: str
    said: str
    changes: Mapping[str, Any]


ATTACKS = [
    Attack(row.pop("attack"), row.pop("by"), row.pop("said"), changes=row)
    for row in yaml.safe_load(Path(__file__).with_name("attacks.yaml").read_text())
]


def head(lines: list[Line], changes: Line) -> list[Line]:
    return consistent([{**lines[0], **changes}, *lines[1:]])


def failing(lines: list[Line], changes: Line) -> list[Line]:
    return consistent(
        [{**line, **changes} if line.get("case", "").endswith("c3") else line for line in lines],
    )


def repetition(lines: list[Line], evidence: Line) -> list[Line]:
    """Adds a confirmation record: the violation did not occur again."""
    tried = {
        "type": "confirmation",
        "case": "reg_mr/sample/c3",
        "confirmed": False,
        "by": "repetition",
        **evidence,
    }
    return [*lines[:-1], tried, lines[-1]]


def passes(lines: list[Line], of_rules: Line) -> list[Line]:
    """Makes the verdict of the failing case PASS, but leaves its observation."""
    changed = failing(lines, {"verdict": "PASS", "effective": "PASS", "fault": None})
    return [*changed[:-1], {**changed[-1], **of_rules}]


def demanded(lines: list[Line], of_rule: Line) -> list[Line]:
    return head(lines, {"rules": {"REG-01": {**lines[0]["rules"]["REG-01"], **of_rule}}})


# Functions that change the lines of a run. Some of them adapt the footer, so that it agrees with the results.
CHANGES: dict[str, Callable[[list[Line], Any], list[Line]]] = {
    "head": head,
    "failing": failing,
    "repetition": repetition,
    "passes": passes,
    "rule": demanded,
    "footer": lambda lines, changes: [*lines[:-1], {**lines[-1], **changes}],
    "results": lambda lines, changes: [
        {**line, **changes} if line["type"] == "result" else line for line in lines
    ],
    "removed": lambda lines, at: [*lines[:at], *lines[at + 1 :]],
    "second": lambda lines, case: consistent([*lines[:-1], {**lines[1], "case": case}, lines[-1]]),
    "appended": lambda lines, at: [*lines, lines[at]],
    "first": lambda lines, at: [lines[at], *lines[:at], *lines[at + 1 :]],
    "planned": lambda lines, case: head(lines, {"planned": [*lines[0]["planned"], case]}),
    "unplanned": lambda lines, at: head(
        [lines[0], *lines[at + 1 :]],
        {"planned": lines[0]["planned"][at:]},
    ),
}


@pytest.fixture
def good(eight_cases: Suite, tmp_path: Path) -> list[Line]:
    """The lines of a run in which no rule is violated."""
    lines = lines_of(record(tmp_path / "good", eight_cases, eight_cases.cases, started=STARTED))
    lines[0]["suite"]["version"] = VERSION
    return lines


def failed(good: list[Line]) -> list[Line]:
    """Returns the lines of a run in which one case fails."""
    observed = {"returned": "NULL", "errno": "EINVAL", "layer": "kernel"}
    lines = failing(
        good,
        {
            "verdict": "FAIL",
            "effective": "FAIL",
            "observed": observed,
            "fault": {"kind": "refused"},
        },
    )
    return [
        *lines[:-1],
        {**lines[-1], "rules": {"REG-01": "FAIL"}, "rule_totals": {"FAIL": 1, "without_case": 0}},
    ]


def by_file(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """Checks that the commands that read a run refuse the file."""
    run = written_records(lines, folder / "run")
    other = written_records(lines, folder / "other")
    for reader in (
        ["report", "--format", "summary"],
        ["judge"],
        ["bundle"],
        ["compare", other],
        ["list", "coverage", "--run"],
    ):
        if reader[0] in ("report", "judge", "bundle") or attack.by == "file":
            assert attack.said in cli(2, *reader, run).err


def by_crash(_: Sequence[Line], attack: Attack, folder: Path, __: Cli) -> None:
    """A worker reports progress in a case with an invented row and rule, and then exits."""
    row = {"type": "progress", "case": IDS[0], "point": "p", "row": "- {}", "rule": "REG-15"}
    stage = Stage(folder)
    recorded = stage.play([HEADER, start(0), encode(row)], ran(1, 2, 3))
    result = recorded.results[0]
    assert (result["verdict"], result["rules"]) == (attack.said, ["REG-01"])
    assert not {"deviations", "rule_verdicts"} & set(result)


def by_progress(_: Sequence[Line], attack: Attack, folder: Path, __: Cli) -> None:
    """A worker reports progress forever; the test controls the clock."""
    clock = itertools.count(0.0, 60.0)
    points = (
        {"type": "progress", "case": IDS[0], "point": "p", "done": done}
        for done in itertools.count()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.supervision.session.time.monotonic", lambda: next(clock))
        recorded = Stage(folder).play(
            itertools.chain([HEADER, start(0)], map(encode, points)),
            ran(1, 2, 3),
        )
    assert verdicts(recorded) == ["BROKEN", "PASS", "PASS", "PASS"]
    assert attack.said in recorded.results[0]["reason"]


def by_large(_: Sequence[Line], attack: Attack, folder: Path, __: Cli) -> None:
    """The results file would become larger than its limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.results.writer.MOST_RESULTS_BYTES", 3500)
        patch.setattr("conformance.results.writer.RESERVED_BYTES", 0)
        recorded = Stage(folder).play(ran(0, 1, 2, 3))
    assert "BROKEN" in verdicts(recorded)
    assert any(attack.said in line["reason"] for line in recorded.results)


def by_examples(_: Sequence[Line], attack: Attack, folder: Path, __: Cli) -> None:
    """A worker sends more than 4 MiB of observations of a sweep."""
    example = {"point": "a=b", "reason": "x" * (5 << 20), "observed": {}}
    data = {
        "case": IDS[0],
        "axes": {"a": ["b"]},
        "outcomes": [],
        "examples": [example],
        "index": "",
    }
    line = observed_result(SUITE.cases[0], points_data=data)
    result = Stage(folder).play([HEADER, start(0), encode(line)], ran(1, 2, 3)).results[0]
    assert (result["verdict"], attack.said in result["reason"]) == ("BROKEN", True), result[
        "reason"
    ]


def by_changed(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """Another process writes to the results file, or replaces it."""
    for name in ("appended", "replaced"):
        path = folder / name / "results.jsonl"
        with closing(ResultsFile(path)) as file:
            for line in lines:
                file.append(cast(Record, line))
            judged = digest.read(path.parent)
            assert file.changed() == ""
            if name == "replaced":
                path.rename(folder / "kept")
            with path.open("ab") as other:
                other.write(b"x")
            with pytest.raises(UserError) as error:
                run._reported(judged, path.parent, 0, "", file.changed())
        assert (error.value.status, attack.said in error.value.message) == (1, True)


def by_verified(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """Checks that `judge` reports where, and with which rights, the library under test ran."""
    assert attack.said in cli(1, "judge", bundled(lines, folder)).out


def by_sweep(_: Sequence[Line], attack: Attack, folder: Path, __: Cli) -> None:
    """A sweep has 120 failing outcomes; its record explains MOST_DEVIATIONS of them, and has the number of the rest."""
    space = Space.of_data({"a": {"subsets": [f"F{bit}" for bit in range(8)]}})
    outcomes = [
        Outcome("FAIL", "success", f"it returned {number}", "REG-01") for number in range(120)
    ]
    index = array("H", (point * 7919 % 120 for point in range(space.size)))
    record = observed_result(SUITE.cases[0]) | {
        "points_data": Points(space, outcomes, index).as_data(IDS[0]),
    }
    began = time.process_time()
    deviations = store_points(record, folder)
    assert time.process_time() - began < 60
    assert len(deviations["deviations"]) == MOST_DEVIATIONS
    assert f"{deviations['deviations_left_out']:,}" == attack.said


def by_bomb(_: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """A small bundle that is much larger when unpacked."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_ALWAYS_UNPACKED", "_SLACK"):
            patch.setattr(f"reports.bundles.archive.{name}", 1 << 20)
        with pytest.raises(UserError, match="compression ratio"):
            pack(folder / "bundle", {}, {"results.jsonl": bytes(4 << 20)})
        patch.setattr("reports.bundles.archive._most_unpacked", lambda _: 1 << 30)
        pack(folder / "bundle", {}, {"results.jsonl": bytes(4 << 20)})
        patch.setattr(
            "reports.bundles.archive._most_unpacked",
            lambda packed: (1 << 20) + 100 * packed,
        )
        assert attack.said in cli(2, "judge", folder / "bundle").err


def by_values(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """A results file with a line of millions of empty lists."""
    run = written_records(lines, folder / "run")
    with (run / "results.jsonl").open("ab") as file:
        file.write(b'{"type":"x","y":[' + b"[]," * (MOST_VALUES // 2) + b"[]]}\n")
    assert attack.said in cli(2, "report", "--format", "summary", run).err


def by_records(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """A results file with too many records of workers, and without a footer."""
    run = written_records([line for line in lines if line["type"] != "footer"], folder / "run")
    with (run / "results.jsonl").open("ab") as file:
        file.write(encode({"type": "worker", "boot_id": ""}) * 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.results.records.MOST_RECORDS", 1000)
        assert attack.said in cli(2, "report", "--format", "summary", run).err


def by_file_in_bundle(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """Checks that `judge` refuses a bundle with this file, or, for `nothing`, without a file."""
    if attack.by != "nothing":
        more = {attack.by: b"x: 1\n"}
    else:
        more = {}
    assert attack.said in cli(2, "judge", bundled(lines, folder, **more)).err


def bundled(lines: Sequence[Line], folder: Path, **more: bytes) -> Path:
    """Packs these lines into a bundle with a correct manifest; returns the bundle."""
    run = written_records(lines, folder / "run")
    files = {"results.jsonl": (run / "results.jsonl").read_bytes(), **more}
    pack(folder / "bundle", claims(digest.read(run)), files)
    return folder / "bundle"


def by_told(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """Checks that the first line of `judge` and every report describe the builds under test."""
    assert attack.said in cli(1, "judge", bundled(lines, folder)).out.splitlines()[0]
    for form in ("summary", "junit", "ktap", "markdown", "html"):
        report = cli(0, "report", "--format", form, folder / "run", "--out", "-").out
        assert attack.said in report.replace("\\", ""), form


def by_signature(lines: Sequence[Line], attack: Attack, folder: Path, cli: Cli) -> None:
    """Checks that `judge` refuses a bundle if no allowed signer has signed it."""
    for name in ("own", "strange"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", folder / name],
            check=True,
        )
    (folder / "signers").write_text(f"me@lab {(folder / 'own.pub').read_text()}")
    check = ["judge", "--signers", folder / "signers"]
    run, bundle, signature = (
        written_records(lines, folder / "run"),
        folder / "bundle",
        folder / "bundle.sig",
    )
    cli(0, "bundle", run, "--out", bundle, "--sign", folder / "own")
    assert cli(1, *check, bundle).out.startswith("signature: of me@lab\n")
    assert "signature: not checked" in cli(1, "judge", bundle).out
    if attack.by == "stranger":
        cli(0, "bundle", run, "--out", bundle, "--sign", folder / "strange")
    elif attack.by == "other":
        signature_before = signature.read_bytes()
        cli(
            0,
            "bundle",
            written_records(lines[:-1], folder / "2"),
            "--out",
            bundle,
            "--sign",
            folder / "own",
        )
        signature.write_bytes(signature_before)
    else:
        signature.unlink()
        if attack.by == "namespace":
            subprocess.run(
                ["ssh-keygen", "-q", "-Y", "sign", "-f", folder / "own", "-n", "file", bundle],
                check=True,
            )
        elif attack.by == "garbage":
            signature.write_bytes(b"x")
    assert attack.said in cli(2, *check, bundle).err


TRIED: dict[str, Callable[[Sequence[Line], Attack, Path, Cli], None]] = {
    "file": by_file,
    "good file": by_file,
    "crash": by_crash,
    "progress": by_progress,
    "large": by_large,
    "examples": by_examples,
    "changed": by_changed,
    "verified": by_verified,
    "sweep": by_sweep,
    "bomb": by_bomb,
    "values": by_values,
    "records": by_records,
    **dict.fromkeys(("waivers.yaml", "profile.yaml", "nothing"), by_file_in_bundle),
    "told": by_told,
    **dict.fromkeys(("unsigned", "other", "stranger", "namespace", "garbage"), by_signature),
}


def test_the_runs_to_be_attacked_are_judged_correctly(good, tmp_path, cli):
    cli(0, "judge", written_records(good, tmp_path / "1"))
    assert (
        "0 verdicts changed" in cli(1, "judge", written_records(failed(good), tmp_path / "2")).out
    )


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.attack)
def test_an_attack_is_reported(attack, good, tmp_path, cli):
    if attack.by.startswith("good"):
        lines = good
    else:
        lines = failed(good)
    for name, change in attack.changes.items():
        lines = CHANGES[name](lines, change)
    TRIED[attack.by](lines, attack, tmp_path, cli)
