"""Attacks on the judge, as a table: the attempt, and the message that reports it.

Each row tries to get the conclusion "conforms", or a better verdict, from a run that does not deserve it. A new attack
needs a row, and a function in TRIED if no existing function fits. Verdicts that follow from no observation are in
test_judge.py and test_bundle.py.
"""

import functools
import itertools
import json
import subprocess
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from actors import HEADER, IDS, SUITE, Stage, ran, start, verdicts
from bundles.archive import pack
from bundles.claims import claims
from commands import run, verify
from commands.__main__ import main
from conformance.errors import UserError
from conformance.model.bounds import MOST_DEVIATIONS, MOST_VALUES
from conformance.model.record import Record
from conformance.model.rules import Registry
from conformance.model.space import Space
from conformance.results.points import store_points
from conformance.results.records import encode
from conformance.results.writer import ResultsFile
from conformance.sweeps.outcome import Outcome, Points
from conformance.tables.suite import VERSION, Suite
from recorded_reference import record
from reports import digest
from samples import consistent, numbered, observed_result, written_records

Line = dict[str, Any]
Says = pytest.CaptureFixture[str]
STARTED = "2026-01-02T03:04:05+00:00"
WAIVER = {"for": "reg_mr/sample/c3", "issue": "x", "owner": "me", "expires": "2030-01-01"}


@dataclass(frozen=True)
class Attack:
    """An attack. `how` changes the lines of a run in which the case c3 fails, or ignores them; `by` is a key of TRIED.

    The function TRIED[by] makes the attempt and checks its outcome; `said` is a part of the message for the user.
    """

    by: str
    name: str
    said: str
    how: Callable[[list[Line]], Sequence[Line]] = list


def footer(**changes: Any) -> Callable[[list[Line]], list[Line]]:
    """Changes these keys of the footer."""
    return lambda lines: [*lines[:-1], {**lines[-1], **changes}]


def unconfirmed(**evidence: Any) -> Callable[[list[Line]], list[Line]]:
    """Adds a confirmation that says that the violation did not occur again."""
    tried = {"type": "confirmation", "case": "reg_mr/sample/c3", "confirmed": False, "by": "repetition", **evidence}
    return lambda lines: footer(confirmation={"confirmed": 0, "not_confirmed": 1, "not_tried": 0})(
        [*lines[:-1], tried, lines[-1]]
    )


def head(**changes: Any) -> Callable[[list[Line]], list[Line]]:
    """Changes these keys of the header, and makes the footer agree."""
    return lambda lines: consistent([{**lines[0], **changes}, *lines[1:]])


def failing(**changes: Any) -> Callable[[list[Line]], list[Line]]:
    """Changes these keys of the failing result, and makes the footer agree."""

    def changed(lines: list[Line]) -> list[Line]:
        return consistent([{**line, **changes} if line.get("case", "").endswith("c3") else line for line in lines])

    return changed


def passes(lines: list[Line]) -> list[Line]:
    """Replaces the verdict by one that does not follow from the observation."""
    changed = failing(verdict="PASS", effective="PASS", fault=None)(lines)
    return [*changed[:-1], {**changed[-1], "rules": {"REG-01": "PASS"}, "rule_totals": {"PASS": 1, "without_case": 0}}]


def without_waivers(lines: list[Line]) -> list[Line]:
    """Marks the violation as waived, in a run without waivers."""
    return failing(effective="WAIVED", waiver=WAIVER)(lines)


def of_waivers(**waiver: Any) -> Callable[[list[Line]], list[Line]]:
    """Marks the violation as waived, and changes the waiver."""
    file = {"file": "w.yaml", "sha256": "0" * 64}
    return lambda lines: failing(effective="WAIVED", waiver={**WAIVER, **waiver})(
        [{**lines[0], "waivers": file}, *lines[1:]]
    )


def given(**builds: Any) -> Callable[[list[Line]], list[Line]]:
    """Adds these builds under test to the header."""
    return head(under_test={"given": builds})


IN_FILE, IN_GOOD_FILE = (functools.partial(Attack, by) for by in ("file", "good file"))
FILE = {"file": "w.yaml", "sha256": "0" * 64}
ALL_PASS = {"PASS": 8}
CONTRADICTS = "the file contradicts itself: the footer's "
ATTACKS = (
    # A results file that contradicts itself
    IN_FILE("the footer counts no violation", f":10: {CONTRADICTS}`verdicts`", footer(verdicts=ALL_PASS)),
    IN_FILE("the footer verifies the rule", f"{CONTRADICTS}`rules.REG-01`", footer(rules={"REG-01": "PASS"})),
    IN_FILE("the footer counts other rules", f"{CONTRADICTS}`rule_totals.FAIL`", footer(rule_totals={"PASS": 1})),
    IN_FILE("the footer counts more calls", f"{CONTRADICTS}`points`", footer(points=99_999)),
    IN_FILE("an incomplete run is complete", f":9: {CONTRADICTS}`complete`", lambda lines: [*lines[:4], *lines[5:]]),
    IN_FILE(
        "the violation was not confirmed",
        f"{CONTRADICTS}`confirmation",
        footer(confirmation={"confirmed": 0, "not_confirmed": 1, "not_tried": 0}),
    ),
    IN_FILE(
        "a violation was not confirmed, as nobody has seen",
        "c3: it is not confirmed, but the result of a repetition is absent",
        unconfirmed(),
    ),
    IN_FILE(
        "a violation that was seen again is not confirmed",
        "c3: it is not confirmed, although a repetition showed a violation",
        unconfirmed(in_run={"verdict": "FAIL", "reason": "x"}, alone={"verdict": "CRASH", "reason": "x"}),
    ),
    IN_FILE(
        "two sweeps share their points",
        "its points_file points/a.json is that of another case",
        lambda lines: [
            {**line, "points_file": "points/a.json"} if line["type"] == "result" else line for line in lines
        ],
    ),
    IN_FILE(
        "a second result, which passes",
        ":10: case reg_mr/sample/c3: it has a result already",
        lambda lines: consistent([*lines[:-1], {**lines[1], "case": "reg_mr/sample/c3"}, lines[-1]]),
    ),
    IN_FILE("a result after the footer", ":11: a result after the footer", lambda lines: [*lines, lines[1]]),
    IN_FILE("a second footer", ":11: a footer after the footer", lambda lines: [*lines, lines[-1]]),
    IN_FILE("a result before the header", "no header of schema", lambda lines: [lines[1], lines[0], *lines[2:]]),
    IN_FILE(
        "a violation counts as PASS",
        ":5: case reg_mr/sample/c3: its verdict is FAIL, which cannot count as PASS",
        failing(effective="PASS"),
    ),
    IN_FILE(
        "a violation is waived, without waivers", "it counts as WAIVED, but the run had no waivers", without_waivers
    ),
    IN_FILE("waived, without its waiver", "it counts as WAIVED, but has no waiver", failing(effective="WAIVED")),
    IN_FILE(
        "the waiver of another case", "its waiver is for reg_mr/sample/c4", of_waivers(**{"for": "reg_mr/sample/c4"})
    ),
    IN_FILE("a waiver that had expired", "its waiver had expired on 2025-12-31", of_waivers(expires="2025-12-31")),
    IN_FILE("it is of the stack", "counts as STACK, but the run is not about a device", failing(effective="STACK")),
    IN_FILE(
        "it is not what the stack answers",
        "it counts as STACK, but is not an answer of the stack",
        lambda lines: failing(effective="STACK")(head(subject="device")(lines)),
    ),
    IN_FILE(
        "a guest is judged as a device",
        ":1: the run is in a guest and its subject is the device",
        head(subject="device", stack="forky"),
    ),
    IN_FILE(
        "a case passes, and a point of it fails",
        "its verdict is PASS, although a part of it has the verdict FAIL",
        lambda lines: failing(points={"PASS": 9, "FAIL": 1})(passes(lines)),
    ),
    IN_FILE(
        "a rule of a case that passes is violated",
        "its verdict is PASS, although a part of it has the verdict CRASH",
        lambda lines: failing(rule_verdicts={"REG-01": "CRASH"})(passes(lines)),
    ),
    IN_FILE(
        "a case planned twice",
        ":1: a case is planned twice",
        lambda lines: head(planned=[*lines[0]["planned"], "reg_mr/sample/c3"])(lines),
    ),
    IN_GOOD_FILE(
        "a case is no longer planned",
        "its header says 0",
        lambda lines: head(planned=lines[0]["planned"][1:])([lines[0], *lines[2:]]),
    ),
    IN_GOOD_FILE(
        "the rules of a header demand less",
        "the rules of its header are not those of the tables",
        lambda lines: head(rules={"REG-01": {**lines[0]["rules"]["REG-01"], "level": "may"}})(lines),
    ),
    IN_GOOD_FILE(
        "the controls of a header demand nothing",
        "the controls of its header are not those",
        head(controls={"refused X": "granted Y"}),
    ),
    # Workers that try to get another verdict, or to make the supervisor wait
    Attack("crash", "a crash names a sequence and another rule", "CRASH"),
    Attack("progress", "progress without end", "although it made progress"),
    Attack("large", "a record too large for the file", "a file of results has"),
    Attack("examples", "a sweep with megabytes of examples", "more than 4,194,304"),
    Attack(
        "changed",
        "a library on a host changes the results, in place or by another file",
        "results.jsonl was changed by another process while the run wrote it",
    ),
    Attack(
        "verified",
        "a run on a host pretends to be in a guest",
        "on a host: the library under test ran with the rights of the suite there",
        head(stack="host"),
    ),
    Attack(
        "verified",
        "a run on a host, as another user",
        "on a host: the library under test ran as the user nobody there, who could not write what was recorded",
        head(stack="host", isolated="nobody"),
    ),
    # Files that try to make a reader work forever, or fill the memory
    Attack("sweep", "a sweep whose points differ in 120 ways", "20"),
    Attack("bomb", "a bundle that expands without end", "more than 100 times its size"),
    Attack("records", "a file of too many small records", "lines, more than the"),
    Attack("values", "a file of millions of values", "values, more than the"),
    # Bundles with waivers or a profile that change a verdict
    Attack("waivers.yaml", "another file of waivers", "waivers.yaml is not the file that", head(waivers=FILE)),
    Attack("waivers.yaml", "waivers that the run did not have", "it has waivers.yaml, but its header names"),
    Attack("nothing", "the run's waivers are left out", "its header names waivers, but it", head(waivers=FILE)),
    Attack("profile.yaml", "another profile", "profile.yaml is not the file that", head(profile=FILE)),
    Attack("profile.yaml", "a profile that the run did not have", "but its header names no", head(profile=None)),
    Attack("nothing", "the run's profile is left out", "its header names profile, but", head(profile=FILE)),
    Attack(
        "told",
        "an overlay with a preloaded library",
        "the stack under test was changed: overlay 12345678 with a preload; ",
        given(overlay={"sha256": "12345678" * 8, "files": {"etc/ld.so.preload": "0"}}),
    ),
    Attack(
        "told",
        "a preload by a variable",
        "the stack under test was changed: environment LD_PRELOAD=/x.so; ",
        given(environment={"LD_PRELOAD": "/x.so"}),
    ),
    # Signatures of a bundle
    Attack("unsigned", "no signature", "bundle.sig cannot be read: No such file"),
    Attack("other", "a signature of another bundle", "bundle.sig is not a signature of"),
    Attack("stranger", "a stranger's signature", "bundle.sig is not a signature of"),
    Attack("namespace", "a signature for another purpose", "bundle.sig is not a signature of"),
    Attack("garbage", "a file without a signature", "bundle.sig is not a signature of"),
)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Suite:
    """Replaces the suite by eight cases of one rule."""
    eight = numbered(8)
    suite: Suite = Suite(Registry([eight.registry["REG-01"]]), eight.tables, eight.tables_sha256)
    monkeypatch.setattr(verify, "load_suite", lambda _: suite)
    monkeypatch.setattr("commands.cli.run_arguments.load_suite", lambda *_: suite)
    monkeypatch.setattr(digest, "load_suite", lambda: suite)
    monkeypatch.setattr(digest, "tables_digest", lambda _: suite.tables_sha256)
    return suite


@pytest.fixture
def good(small: Suite, tmp_path: Path) -> list[Line]:
    """The lines of a run in which no rule is violated."""
    data = record(tmp_path / "good", small, small.cases, started=STARTED)
    lines = [json.loads(line) for line in (data / "results.jsonl").read_bytes().splitlines()]
    lines[0]["suite"]["version"] = VERSION
    return lines


def failed(good: list[Line]) -> list[Line]:
    """The lines of a run in which one case fails."""
    observed = {"returned": "NULL", "errno": "EINVAL", "layer": "kernel"}
    lines = failing(verdict="FAIL", effective="FAIL", observed=observed, fault={"kind": "refused"})(good)
    return [*lines[:-1], {**lines[-1], "rules": {"REG-01": "FAIL"}, "rule_totals": {"FAIL": 1, "without_case": 0}}]


def said_by(capsys: Says, *arguments: object) -> tuple[int, str]:
    """The exit status and the whole output of a command."""
    capsys.readouterr()
    status = main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "defect of the suite" not in err
    return status, out + err


def by_file(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """Checks that every command refuses the file."""
    run = written_records(lines, folder / "run")
    for reader in (["report", "--format", "summary"], ["judge"], ["bundle"], ["compare", run], ["coverage", "--run"]):
        if reader[0] in ("report", "judge", "bundle") or attack.by == "file":
            status, said = said_by(capsys, *reader, run)
            assert (status, attack.said in said) == (2, True), (reader, said)


def by_crash(_: Sequence[Line], attack: Attack, folder: Path, __: Says) -> None:
    """A worker dies after progress that named an invented row and rule for a case of the tables."""
    row = {"type": "progress", "case": IDS[0], "point": "p", "row": "- {}", "rule": "REG-15"}
    stage = Stage(folder)
    recorded = stage.play([HEADER, start(0), encode(row)], ran(1, 2, 3))
    found = recorded.results[0]
    assert (found["verdict"], found["rules"]) == (attack.said, ["REG-01"])
    assert not {"deviations", "rule_verdicts"} & set(found)


def by_progress(_: Sequence[Line], attack: Attack, folder: Path, __: Says) -> None:
    """A worker reports progress forever, with a clock that the test controls."""
    clock = itertools.count(0.0, 60.0)
    points = ({"type": "progress", "case": IDS[0], "point": "p", "done": done} for done in itertools.count())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.supervision.session.time.monotonic", lambda: next(clock))
        recorded = Stage(folder).play(itertools.chain([HEADER, start(0)], map(encode, points)), ran(1, 2, 3))
    assert verdicts(recorded) == ["BROKEN", "PASS", "PASS", "PASS"]
    assert attack.said in recorded.results[0]["reason"]


def by_large(_: Sequence[Line], attack: Attack, folder: Path, __: Says) -> None:
    """The results file has nearly reached its limit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.results.writer.MOST_RESULTS_BYTES", 3500)
        recorded = Stage(folder).play(ran(0, 1, 2, 3))
    assert "BROKEN" in verdicts(recorded)
    assert any(attack.said in line["reason"] for line in recorded.results)


def by_examples(_: Sequence[Line], attack: Attack, folder: Path, __: Says) -> None:
    """A worker sends more than 4 MiB of observations of a sweep."""
    example = {"point": "a=b", "reason": "x" * (5 << 20), "observed": {}}
    data = {"case": IDS[0], "axes": {"a": ["b"]}, "outcomes": [], "examples": [example], "index": ""}
    line = observed_result(SUITE.cases[0], points_data=data)
    found = Stage(folder).play([HEADER, start(0), encode(line)], ran(1, 2, 3)).results[0]
    assert (found["verdict"], attack.said in found["reason"]) == ("BROKEN", True), found["reason"]


def by_changed(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
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
            with pytest.raises(UserError) as told:
                run._reported(judged, path.parent, 0, "", file.changed())
        assert (told.value.status, attack.said in told.value.message) == (1, True)


def by_verified(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """Checks that `verify` reports the assumptions."""
    assert attack.said in said_by(capsys, "verify", bundled(lines, folder))[1]


def by_sweep(_: Sequence[Line], attack: Attack, folder: Path, __: Says) -> None:
    """A sweep has 120 outcomes; each outcome that a record keeps is explained."""
    space = Space.of_data({"a": {"subsets": [f"F{bit}" for bit in range(8)]}})
    outcomes = [Outcome("FAIL", "success", f"it returned {number}", "REG-01") for number in range(120)]
    index = array("H", (point * 7919 % 120 for point in range(space.size)))
    record = observed_result(SUITE.cases[0]) | {"points_data": Points(space, outcomes, index).as_data(IDS[0])}
    began = time.process_time()
    found = store_points(record, folder)
    assert time.process_time() - began < 60
    assert len(found["deviations"]) == MOST_DEVIATIONS
    assert f"{found['deviations_left_out']:,}" == attack.said


def by_bomb(_: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """A small bundle that is much larger when unpacked."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_ALWAYS_UNPACKED", "_SLACK"):
            patch.setattr(f"bundles.archive.{name}", 1 << 20)
        with pytest.raises(UserError, match="compresses too well"):
            pack(folder / "bundle", {}, {"results.jsonl": bytes(4 << 20)})
        patch.setattr("bundles.archive._most_unpacked", lambda _: 1 << 30)
        pack(folder / "bundle", {}, {"results.jsonl": bytes(4 << 20)})
        patch.setattr("bundles.archive._most_unpacked", lambda packed: (1 << 20) + 100 * packed)
        status, said = said_by(capsys, "verify", folder / "bundle")
    assert (status, attack.said in said) == (2, True), said


def by_values(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """A results file with a line of millions of empty lists."""
    run = written_records(lines, folder / "run")
    with (run / "results.jsonl").open("ab") as file:
        file.write(b'{"type":"x","y":[' + b"[]," * (MOST_VALUES // 2) + b"[]]}\n")
    status, said = said_by(capsys, "report", "--format", "summary", run)
    assert (status, attack.said in said) == (2, True), said


def by_records(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """A results file with too many records of workers, and without a footer."""
    run = written_records([line for line in lines if line["type"] != "footer"], folder / "run")
    with (run / "results.jsonl").open("ab") as file:
        file.write(encode({"type": "worker", "boot_id": ""}) * 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conformance.results.records.MOST_RECORDS", 1000)
        status, said = said_by(capsys, "report", "--format", "summary", run)
    assert (status, attack.said in said) == (2, True), said


def by_file_in_bundle(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """A bundle contains the file, and is refused."""
    more = {attack.by: b"x: 1\n"} if attack.by != "nothing" else {}
    status, said = said_by(capsys, "verify", bundled(lines, folder, **more))
    assert (status, attack.said in said) == (2, True), said


def bundled(lines: Sequence[Line], folder: Path, **more: bytes) -> Path:
    """A bundle of these lines with a correct manifest."""
    run = written_records(lines, folder / "run")
    files = {"results.jsonl": (run / "results.jsonl").read_bytes(), **more}
    pack(folder / "bundle", claims(digest.read(run)), files)
    return folder / "bundle"


def by_told(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """Checks that the builds under test are in the first line of `verify` and of reports."""
    bundle = bundled(lines, folder)
    told = attack.said.removesuffix("; ")
    assert told in said_by(capsys, "verify", bundle)[1].splitlines()[0]
    for form in ("summary", "junit", "ktap", "markdown", "html"):
        assert told in said_by(capsys, "report", "--format", form, folder / "run", "--out", "-")[1].replace("\\", ""), (
            form
        )


def by_signature(lines: Sequence[Line], attack: Attack, folder: Path, capsys: Says) -> None:
    """A bundle has a signature that no allowed signer has made for it."""
    for name in ("own", "strange"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", folder / name], check=True)
    (folder / "signers").write_text(f"me@lab {(folder / 'own.pub').read_text()}")
    check = ["verify", "--signers", folder / "signers"]
    run, bundle, signature = written_records(lines, folder / "run"), folder / "bundle", folder / "bundle.sig"
    assert said_by(capsys, "bundle", run, "--out", bundle, "--sign", folder / "own")[0] == 0
    status, said = said_by(capsys, *check, bundle)
    assert (status, said.splitlines()[0]) == (1, "signature: of me@lab"), said
    assert "signature: not checked" in said_by(capsys, "verify", bundle)[1]
    if attack.by == "stranger":
        said_by(capsys, "bundle", run, "--out", bundle, "--sign", folder / "strange")
    elif attack.by == "other":
        kept = signature.read_bytes()
        said_by(
            capsys, "bundle", written_records([*lines[:-1]], folder / "2"), "--out", bundle, "--sign", folder / "own"
        )
        signature.write_bytes(kept)
    else:
        signature.unlink()
        if attack.by == "namespace":
            subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", folder / "own", "-n", "file", bundle], check=True)
        elif attack.by == "garbage":
            signature.write_bytes(b"x")
    status, said = said_by(capsys, *check, bundle)
    assert (status, attack.said in said) == (2, True), said


TRIED: dict[str, Callable[[Sequence[Line], Attack, Path, Says], None]] = {
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


def test_the_runs_to_be_attacked_are_judged_correctly(good: list[Line], tmp_path: Path, capsys: Says) -> None:
    assert said_by(capsys, "judge", written_records(good, tmp_path / "1"))[0] == 0
    status, said = said_by(capsys, "judge", written_records(failed(good), tmp_path / "2"))
    assert (status, "0 verdicts changed" in said) == (1, True), said


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_is_reported_and_gains_nothing(
    attack: Attack, good: list[Line], tmp_path: Path, capsys: Says
) -> None:
    before = good if attack.by.startswith("good") else failed(good)
    TRIED[attack.by](list(attack.how([dict(line) for line in before])), attack, tmp_path, capsys)
