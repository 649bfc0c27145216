"""Encodes the cases, sweeps and maps of report.html as compact data. The script of the page shows the details of a case
when the user opens the case, and draws the maps.

Each distinct value is stored once, in `texts`. A column has, for each case, the index of the value in `texts`; index 0
means that there is no value. In a text, HERE is a placeholder for the id of the case.
"""

from __future__ import annotations

import base64
import json
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import ceil, prod, sqrt
from typing import Any

from conformance.model.address import is_address
from conformance.model.point_index import encode_index
from conformance.model.record import Deviation, ResultRecord
from conformance.model.space import Axis, Space
from conformance.model.verdict import VERDICTS, VIOLATIONS, Verdict
from conformance.results.conclusions import format_points, verdict_on
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points
from reports import evidence
from reports.digest import Digest
from reports.evidence import read_points
from reports.expectations import sentence_of
from reports.kernel_log import divided
from reports.text import format_rules, format_value, kinds_of, spaced, without_packets

# Several shades for each verdict, so that different outcomes with the same verdict, such as accepted and refused calls,
# have different colours. The shades can be distinguished on white and on black. The legend has the verdicts as text.
SHADES: Mapping[str, Sequence[str]] = {
    Verdict.PASS: ("#2e9e63", "#9bd3b0", "#1f6f6a", "#c9e7cf"),
    Verdict.FAIL: ("#d4313d", "#f08a4b", "#a3123f", "#f5b7a0"),
    Verdict.CRASH: ("#5b1a8b",),
    Verdict.HANG: ("#008190",),
    Verdict.WAIVED: ("#c8a415", "#e3cf76"),
    Verdict.STACK: ("#b08a5b", "#d9c3a3"),
    Verdict.UNSUPPORTED: ("#7f93ad", "#b4c2d4"),
    Verdict.UNREACHABLE: ("#a9a9a9", "#cfcfcf"),
    Verdict.BROKEN: ("#e0559a",),
    Verdict.MISSED: ("#f2a6cc",),
}
_SIGNS: Mapping[str, str] = {
    Verdict.UNSUPPORTED: "○",
    **dict.fromkeys((*VIOLATIONS, Verdict.WAIVED, Verdict.STACK), "✗"),
}
_MATRIX_AXES = ("op", "place")
_WIDEST = 512  # the most pixels in a line of a map
_AT_ONCE = 1000  # the number of parts that are compressed at once


def map_of(points: Points) -> dict[str, Any]:
    """Returns the map of a space: point n of the space is pixel n, in lines of `width` pixels. `down` and `across` name
    the axes that vary in each direction, from the slowest to the fastest. `colours` has the colour of each outcome."""
    digits = _digits(points.space)
    size, width, split = len(points.index), 1, len(digits)
    while split and width * width < size and width * digits[split - 1][1] <= _WIDEST:
        split -= 1
        width *= digits[split][1]
    # a long axis prevents a wide map, so the points fill lines without regard to axes
    if width * width * 4 < size:
        width, split = min(_WIDEST, 1 << ceil(sqrt(size)).bit_length()), 0
    names = [name for name, _ in digits]
    return {
        "width": width,
        "down": names[:split],
        "across": names[split:],
        "colours": _colours(points),
    }


def _digits(space: Space) -> list[tuple[str, int]]:
    """Returns the digits of a point's number, the slowest first, each with its size. An axis is one digit, but in an
    axis of subsets each flag is a digit."""
    digits: list[tuple[str, int]] = []
    for axis in space.axes:
        digits += [(flag, 2) for flag in reversed(axis.flags)] or [(axis.name, axis.size)]
    return digits


def _colours(points: Points) -> tuple[str, ...]:
    used: Counter[str] = Counter()
    colours = []
    for outcome in points.outcomes:
        shades = SHADES[outcome.verdict]
        colours.append(shades[used[outcome.verdict] % len(shades)])
        used[outcome.verdict] += 1
    return tuple(colours)


def _labels(axis: Axis) -> list[str]:
    return [axis.label(value) for value in range(axis.size)]


def matrix(points: Points, most_blocks: int = 24) -> dict[str, Any]:
    """Returns the data path as tables of operations (lines) and positions (columns), with a table for each combination
    of the other axes. If there would be more than `most_blocks` tables, the longest of the other axes are left out."""
    space = points.space
    other_axes = [axis for axis in space.axes if axis.name not in _MATRIX_AXES]
    while prod(axis.size for axis in other_axes) > most_blocks:
        other_axes.remove(max(other_axes, key=lambda axis: axis.size))
    cells: dict[str, dict[tuple[str, str], Counter[int]]] = {}
    for point, outcome in enumerate(points.index):
        if outcome != OUTSIDE:
            labels = space.labels(point)
            block = ", ".join(f"{axis.name} {labels[axis.name]}" for axis in other_axes)
            cells.setdefault(block, {}).setdefault((labels["op"], labels["place"]), Counter())[
                outcome
            ] += 1
    operations, positions = (_labels(space.axis(name)) for name in _MATRIX_AXES)
    blocks = []
    for title, cell in cells.items():
        lines = []
        for operation in operations:
            keys = [(operation, position) for position in positions]
            lines.append([_cell(points, cell.get(key)) for key in keys])
        blocks.append([title, lines])
    return {"operations": operations, "positions": positions, "blocks": blocks}


def _cell(points: Points, counts: Counter[int] | None) -> list[str] | None:
    """Returns the worst verdict, its sign (with numbers if the verdicts differ), and a line for each outcome."""
    if counts is None:
        return None
    outcomes = points.outcomes
    verdict = min((outcomes[count].verdict for count in counts), key=VERDICTS.index)
    worst = [count for count in counts if outcomes[count].verdict == verdict]
    sign = _SIGNS.get(verdict, "?")
    if verdict == Verdict.PASS:
        refused = {outcomes[number].expected.startswith("refused") for number in worst}
        if len(refused) > 1:
            sign = "✓⊘"
        elif True in refused:
            sign = "⊘"
        else:
            sign = "✓"
    number, total = sum(counts[verdict] for verdict in worst), sum(counts.values())
    lines = (
        f"{count:,} {outcomes[verdict].verdict}: {outcome_text(outcomes[verdict])}"
        for verdict, count in counts.items()
    )
    return [
        verdict,
        sign if number == total else f"{sign} {number}/{total}",
        "\n".join(lines),
    ]


def outcome_text(outcome: Outcome) -> str:
    """Returns in one line what the rule expects and what was observed."""
    return f"{outcome.rule} expects {outcome.expected}, {outcome.observed}"


HERE = "\0"  # no text of a results file contains this character
_ENTRIES = {"libibverbs": "libibverbs, the library", "uverbs": "uverbs, the commands of the kernel"}


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    steps = [
        [str(step.get("call", "")), evidence.fields({**step, "call": ""})]
        for step in evidence.later(data)
    ]
    own, exchanges = evidence.fields(evidence.own(data)), evidence.exchanges(data)
    return {"own": own, "later": steps, **({"exchange": exchanges} if exchanges else {})}


def _waiver(data: Mapping[str, Any]) -> list[str]:
    issue = str(data.get("issue"))
    if data:
        return [
            f"{data.get('owner')}, until {data.get('expires')}: ",
            issue,
            issue if is_address(issue) else "",
        ]
    return []


def _deviation(deviation: Deviation) -> dict[str, Any]:
    return {
        "points": spaced(format_points(deviation)),
        "smallest": spaced(format_value(deviation["smallest"])) if deviation["smallest"] else "",
        "given": deviation["set_up"]["given"],
        "before": deviation["set_up"]["before"],
        "call": deviation["call"],
        "afterwards": deviation["afterwards"],
        "expected": sentence_of(deviation["expected"])
        + (f" by {format_rules(deviation['rules'])}" if deviation["rules"] else ""),
        "observed": format_value(deviation["observed"]),
        "reproduce": deviation["repro"],
        "rules": deviation["rules"],
    }


# Columns that depend on one key of a result: the name, the key, and the function that returns the shown text.
_SHARED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "given": ("set_up", lambda set_up: set_up["given"]),
    "before": ("set_up", lambda set_up: set_up["before"]),
    "expected": ("expected", _fields),
    "observed": ("observed", _fields),
    "waiver": ("waiver", _waiver),
    "remarks": ("notes", "; ".join),
    "kernel": ("kernel", lambda kernel: divided(kernel["log"]) if kernel["log"] else ""),
    "points": ("points", lambda points: list(points.items())),
    "deviations": ("deviations", lambda deviations: list(map(_deviation, deviations))),
}
# Columns with unchanged texts of the result.
_TEXTS = ("effective", "verdict", "reason", "call")


def _layer(run: Digest, record: ResultRecord) -> str:
    entry = _ENTRIES.get(record["entry"], record["entry"] or "?")
    return f"answered by {evidence.answered(run, record)}, called at {entry}"


# What replaces the fields of an outcome: of packets, what the documents ask; after a death, what happened.
_TOLD: Mapping[str, Callable[[ResultRecord], str]] = {
    "expected": evidence.asked,
    "observed": evidence.seen,
}
# Columns that depend on more than one key.
_OWN: Mapping[str, Callable[[Digest, ResultRecord], Any]] = {
    "layer": _layer,
    "evidence": lambda run, record: run.verdicts.unproven.get(record["case"], ""),
    "table": lambda run, record: evidence.location(record),
    "packets": lambda run, record: _packets(record["call"]),
    "reproduce": lambda run, record: record["repro"].replace(record["case"], HERE),
    # the verdicts on the rules of the case, if they are not all that of the case
    "on_rules": lambda run, record: _on_rules(record),
    "map": lambda run, record: _map(run, record) if record["space"] else "",
}


def _packets(call: str) -> list[Any]:
    """Returns a call without its packets, these, and the meanings of their kinds; empty if it sends none."""
    title, events = without_packets(call)
    return [title, events, list(kinds_of(events))] if events else []


def _on_rules(record: ResultRecord) -> dict[str, str]:
    if not record.get("rule_verdicts"):
        return {}
    verdicts: dict[str, str] = {rule: verdict_on(rule, record) for rule in record["rules"]}
    if {*verdicts.values()} <= {record["effective"]}:
        return {}
    return verdicts


class PageData:
    """The data of one page. `cases` has, for the id of each case, a record or None for each run."""

    def __init__(
        self,
        runs: Sequence[Digest],
        cases: Mapping[str, Sequence[ResultRecord | None]],
    ) -> None:
        self._deflating = zlib.compressobj()
        self._packed: list[bytes] = []
        self._waiting = ['{"texts":[null']  # parts of the JSON that are not compressed yet
        # The index in `texts` by value. The key for a value that is not a text is the digest of its JSON.
        self._numbers: dict[str | bytes, int] = {}
        self._rules = self._column([first_of(records) for records in cases.values()], "rules")
        self._runs = []
        for number, run in enumerate(runs):
            of_run = [records[number] for records in cases.values()]
            self._runs.append(self._columns(run, of_run))

    def packed(self, **more: Any) -> str:
        """Returns all data together with `more`, as base64 of deflated JSON."""
        self._write(f'],"rules":{self._rules.tolist()},"runs":[')
        for number, columns in enumerate(self._runs):
            for at, (name, column) in enumerate(columns.items()):
                self._write(f'{"," if at else ",{" if number else "{"}"{name}":{column.tolist()}')
                self._compress()
            self._write("}")
        self._write("]")
        for name, value in more.items():
            self._write(f',"{name}":{_encoded(value)}')
        self._write("}")
        self._compress()
        return base64.b64encode(b"".join([*self._packed, self._deflating.flush()])).decode()

    def _write(self, part: str) -> None:
        self._waiting.append(part)
        if len(self._waiting) >= _AT_ONCE:
            self._compress()

    def _compress(self) -> None:
        self._packed.append(self._deflating.compress("".join(self._waiting).encode()))
        self._waiting.clear()

    def _number(self, value: Any) -> int:
        """Returns the index of a value in `texts`."""
        if not value:
            return 0
        if isinstance(value, str):
            encoded = ""
        else:
            encoded = _encoded(value)
        if encoded:
            key = blake2b(encoded.encode(), digest_size=16).digest()
        else:
            key = value
        if (number := self._numbers.get(key)) is None:
            number = self._numbers[key] = len(self._numbers) + 1
            self._write(f",{encoded or _encoded(value)}")
        return number

    def _columns(
        self,
        run: Digest,
        records: Sequence[ResultRecord | None],
    ) -> dict[str, array[int]]:
        columns = {name: self._column(records, name) for name in _TEXTS}
        columns |= {
            name: self._column(records, key, shown) for name, (key, shown) in _SHARED.items()
        }
        for name, text_of in _TOLD.items():
            texts = [text_of(record) if record else "" for record in records]
            for at, text in enumerate(texts):
                columns[name][at] = self._number(text) or columns[name][at]
        for name, column in _OWN.items():
            columns[name] = array(
                "I",
                (self._number(column(run, record)) if record else 0 for record in records),
            )
        return columns

    def _column(
        self,
        records: Iterable[ResultRecord | None],
        key: str,
        shown: Callable[[Any], Any] | None = None,
    ) -> array[int]:
        """Returns the indices of the values of one key. `shown` is applied once to each distinct value."""
        column = array("I")
        # by id(), which stays valid because the digests refer to the values
        columns: dict[int, int] = {}
        for record in records:
            value: Any = record[key] if record else None  # type: ignore[literal-required]
            if value:
                number = columns.get(id(value))
            else:
                number = 0
            if number is None:
                number = columns[id(value)] = self._number(shown(value) if shown else value)
            column.append(number)
        return column


def first_of(records: Sequence[ResultRecord | None]) -> ResultRecord:
    return next(record for record in records if record)


_encoded = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def _map(run: Digest, record: ResultRecord) -> dict[str, Any] | str:
    """Returns the data from which the script draws the map of a sweep, or a text if there is no map. Raises UserError
    for invalid points."""
    points = read_points(run.directory, record)
    if points is None:
        file = record["points_file"]
        if file:
            return f"No map: the file {file} is not next to the results."
        return ""
    return {
        **map_of(points),
        "counts": points.counts(),
        "outcomes": [[outcome.verdict, outcome_text(outcome)] for outcome in points.outcomes],
        "axes": [
            {"name": axis.name, "labels": axis.labels, "flags": axis.flags}
            for axis in points.space.axes
        ],
        "outside": OUTSIDE,
        "index": encode_index(points.index),
        "matrix": matrix(points) if {*_MATRIX_AXES} <= {*record["space"]["axes"]} else None,
    }
