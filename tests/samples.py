"""Small made-up cases and results for the tests. The cases are read from YAML like tables, so that they follow changes
of the table language."""

from __future__ import annotations

import functools
import json
import textwrap
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from conformance.errors import UserError
from conformance.judging import Basis, Judgement, conclude
from conformance.model.case import Case, Table
from conformance.model.declared import Capabilities
from conformance.model.observation import Observation, PointExample
from conformance.model.record import Axes, FooterRecord, HeaderRecord, Record, ResultRecord
from conformance.model.rules import Registry
from conformance.model.space import Space
from conformance.results.new_records import footer_record, result_record
from conformance.results.records import Recorded, encode
from conformance.results.rule_conclusions import conclude_rules
from conformance.results.sweep_record import sweep_record
from conformance.sweeps.judging import rejudge_sweep
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points, overall
from conformance.tables.loader import parse_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import CASES, ROOT, Suite
from conformance.yamldoc.parsing import read_bytes

R = TypeVar("R", HeaderRecord, ResultRecord, FooterRecord)
# A row that passes on a correct device, and a sweep of two points that a correct device refuses.
ROW = "{rules: [REG-01], when: {access: [LOCAL_WRITE]}, then: {outcome: success, mr: as_asked}}"
SPACE = """
- id: space
  rules: [REG-15]
  sweep:
    axes: {access: [[REMOTE_WRITE], [REMOTE_ATOMIC]]}
    points: 2
    expect: [{then: refused, rule: REG-15}]
  when: {access: $access}
"""
# The axes and the outcomes of made-up sweeps.
FLAGS: Axes = {"access": {"subsets": ["LOCAL_WRITE", "REMOTE_WRITE", "MW_BIND"]}}
OUTCOMES = (
    Outcome("PASS", "success", "accepted", "REG-01"),
    Outcome("PASS", "refused", "refused with EINVAL", "REG-15"),
    Outcome("FAIL", "refused", "accepted", "REG-15"),
)


def laid(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Makes a folder with files of these names and contents; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def flip(path: Path) -> None:
    """Inverts a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@functools.cache
def registry() -> Registry:
    rules, mistakes = read_registry([CASES], ROOT)
    assert not mistakes, "\n".join(map(str, mistakes))
    return rules


def rule_verdicts(lines: Sequence[ResultRecord]) -> dict[str, str]:
    return {
        rule: conclusion.verdict
        for rule, conclusion in conclude_rules(lines, registry().needs).items()
    }


def table(name: str, rows: str, cases: int = 1) -> Table:
    """Returns the table `<verb>/<stem>` with these rows and 4 pages of memory named `buf`."""
    folder = name.partition("/")[0]
    text = f"verb: ibv_{folder}\ncases: {cases}\n"
    text += "given: {memory: {buf: {kind: anonymous, size: 4 pages}}}\nrows:\n"
    text += textwrap.indent(textwrap.dedent(rows).strip() + "\n", "  ")
    table_read, mistakes = parse_table(
        read_bytes(text.encode(), f"cases/{name}.yaml"),
        Path(f"{name}.yaml"),
        registry(),
    )
    assert table_read is not None, mistakes
    return table_read


def case(row: str, verb: str = "reg_mr") -> Case:
    """Returns the case of a row; the text is a list of one row, or the row's fields in braces without an id. The copy
    of the row that a wire peer carries is left out."""
    row = textwrap.dedent(row).strip()
    cases = table(
        f"{verb}/sample",
        row if row.startswith("-") else f"- {{id: sample, {row[1:]}",
    ).cases
    (only,) = (case for case in cases if not case.id.endswith("@wire"))
    return only


def suite(tables: Sequence[Table]) -> Suite:
    return Suite(registry(), tuple(tables), "0" * 64)


def numbered(count: int, verb: str = "reg_mr") -> Suite:
    """Returns a suite of `count` cases `<verb>/sample/c0`, c1, …, all of rule REG-01."""
    rows = "\n".join(
        f"- {{id: c{number}, rules: [REG-01], when: {{access: []}}, then: success}}"
        for number in range(count)
    )
    return suite([table(f"{verb}/sample", rows, count)])


def header(**changes: Any) -> HeaderRecord:
    data = {
        "type": "header",
        "schema": "rdma-cts/1",
        "suite": {"version": "0", "tables_sha256": "0" * 64},
        "stack": "host",
        "env": {
            "kernel": "7.2.0",
            "rdma_core": "65.0",
            "pyverbs": "65.0",
            "python": "3.14",
            "tainted": 0,
        },
        "device": {
            "name": "fake0",
            "driver": "fake",
            "fw": "",
            "vendor_id": 1,
            "vendor_part_id": 2,
            "transport": "Ethernet",
            "caps": {},
        },
        "seed": None,
        "planned": [],
        "left_out": 0,
        "argv": [],
        "started": "2026-01-02T03:04:05+00:00",
        **changes,
    }
    return cast(HeaderRecord, data)


def changed(record: R, changes: Mapping[str, object]) -> R:
    """Returns the record with these changes, even if they do not fit its type."""
    data: dict[str, object] = {**record}
    return cast(R, data | dict(changes))


def consistent(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Makes the footer of changed records agree with the results, as a careful forger does."""
    results = [line for line in lines if line["type"] == "result"]
    judged = {line["case"] for line in results if line["verdict"] != "MISSED"}
    footer_fields: dict[str, Any] = {
        "complete": judged.issuperset(lines[0]["planned"]),
        "verdicts": dict(Counter(line["effective"] for line in results)),
        "points": sum(sum((line.get("points") or {}).values()) or 1 for line in results),
    }
    if lines[0].get("waivers"):
        footer_fields["waivers"] = {
            "waived": footer_fields["verdicts"].get("WAIVED", 0),
            "problems": [],
        }
    return [{**line, **footer_fields} if line["type"] == "footer" else line for line in lines]


# An observation of a registration that should succeed, by verdict.
_OBSERVED: Mapping[str, Observation] = {
    "PASS": {"rc": None, "returned": "MR", "errno": "", "layer": "kernel"},
    "FAIL": {"rc": None, "returned": "NULL", "errno": "EINVAL", "layer": "kernel"},
    "EOPNOTSUPP": {"rc": None, "returned": "NULL", "errno": "EOPNOTSUPP", "layer": "kernel"},
}


def observed_result(of: Case, verdict: str = "PASS", **more: Any) -> ResultRecord:
    """Returns a worker's line for a case of `numbered`. `verdict` is PASS, FAIL, or EOPNOTSUPP, which results in a
    FAIL with another cause."""
    basis = Basis(Capabilities({}, {}, {}))
    row = basis.resolved(of)
    concluded = conclude(row, basis, _OBSERVED[verdict], {"taint": 0, "log": []})
    record = result_record(row, registry(), *concluded, kernel={"taint": 0, "log": []})
    assert record["verdict"] == ("PASS" if verdict == "PASS" else "FAIL")
    return changed(record, more)


def observed_sweep(of: Case, failing: Sequence[str] = ()) -> ResultRecord:
    """Returns a worker's line for a sweep of registrations that should succeed; the points `failing` fail."""
    assert of.sweep is not None
    space = of.sweep.space
    bad = {space.parse(point) for point in failing}
    index = array("H", (int(point in bad) for point in range(space.size)))
    examples: list[PointExample] = [
        {"point": "", "reason": "", "observed": _OBSERVED[verdict]} for verdict in ("PASS", "FAIL")
    ]
    outcomes = [Outcome(verdict, "", "", "") for verdict in ("PASS", "FAIL")]
    record = rejudge_sweep(
        of,
        Points(space, outcomes, index, examples),
        Basis(Capabilities({}, {}, {})),
        [],
        [],
    )
    return sweep_record(of, registry(), record, 0)


def sweep(
    directory: Path,
    of: Case,
    axes: Axes,
    outcome: Callable[[dict[str, str]], int],
    outcomes: Sequence[Outcome] = OUTCOMES,
) -> ResultRecord:
    """Makes a sweep over these axes: returns its record, and writes its points file to `directory`. `outcome` gets the
    labels of a point, and returns the number of the point's outcome, or -1 if the point is not in the space."""
    space = Space.of_data(axes)
    index = array(
        "H",
        (outcome(space.labels(point)) % (OUTSIDE + 1) for point in range(space.size)),
    )
    used = set(index)
    outcomes = [outcome for number, outcome in enumerate(outcomes) if number in used]
    renumbered = {number: at for at, number in enumerate(sorted(used - {OUTSIDE}))}
    points = Points(
        space,
        outcomes,
        array("H", (renumbered.get(number, OUTSIDE) for number in index)),
    )
    verdicts = points.by_verdict()
    name = f"points/{of.id.replace('/', '.')}.json"
    laid(directory, {name: json.dumps(points.as_data(of.id))})
    deviations = [
        {
            "when": "MW_BIND",
            "expected": outcome.expected,
            "observed": outcome.observed,
            "count": points.counts()[number],
            "smallest": {"access": "MW_BIND"},
            "rules": [outcome.rule],
            "repro": f"./rdma-cts run --only '{of.id}#…'",
        }
        for number, outcome in enumerate(outcomes)
        if outcome.verdict == "FAIL" and points.counts()[number]
    ]
    return result(
        of,
        overall(set(verdicts)),
        f"{verdicts.get('FAIL', 0)} points depart",
        rules=["REG-01", "REG-15"],
        space={"axes": space.as_data(), "size": space.size},
        points=verdicts,
        rule_verdicts=points.by_rule(),
        deviations=deviations,
        points_file=name,
    )


def result(
    of: Case,
    verdict: str = "PASS",
    reason: str = "as it should be",
    **more: Any,
) -> ResultRecord:
    """Returns a result of a case with a given verdict and further changes."""
    return changed(result_record(of, registry(), Judgement(verdict, reason), {"rc": None}), more)


def recorded(results: Sequence[ResultRecord], *, complete: bool = True, **head: Any) -> Recorded:
    """Returns a run with these results and these changes of its header; without a footer if it is not `complete`."""
    ids = [line["case"] for line in results]
    if complete:
        footer = footer_record(ids, results, registry(), duration_s=2.5)
    else:
        footer = None
    return Recorded(header(**{"planned": ids, **head}), list(results), footer)


def written(run: Recorded, folder: Path) -> Path:
    """Writes the results file of a run into this folder; returns the folder."""
    return written_records(
        [run.header, *run.results, *([run.footer] if run.footer else [])],
        folder,
    )


def written_records(records: Iterable[Mapping[str, Any]], folder: Path) -> Path:
    """Writes these records as a results file into this folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.jsonl").write_bytes(
        b"".join(encode(cast(Record, record)) for record in records)
    )
    return folder


def lines_of(run: Path) -> list[dict[str, Any]]:
    """Returns the records of the results file in a folder."""
    return [json.loads(line) for line in (run / "results.jsonl").read_bytes().splitlines()]


def footer_of(recorded: Recorded) -> FooterRecord:
    assert recorded.footer is not None
    return recorded.footer


@contextmanager
def user_error(
    match: str,
    status: int,
    one_line: bool = True,
) -> Iterator[pytest.ExceptionInfo[UserError]]:
    """Checks that a UserError with this message and exit status is raised. Its message has one line, or, without
    `one_line`, may have more lines."""
    with pytest.raises(UserError, match=match) as caught:
        yield caught
    assert caught.value.status == status
    assert not one_line or "\n" not in str(caught.value)
