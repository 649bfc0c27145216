"""Reads the records of a results file, which has one JSON object per line. new_records.py creates the records.

The schema rdma-cts/1 has a header, results and a footer. A file without a footer belongs to a run that was cut short;
an incomplete last line is a record that was being written. Reports read only the results file. writer.py writes the
file, and conclusions.py draws conclusions from its records.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.errors import UserError, command, reading
from conformance.model import record_shape
from conformance.model.bounds import MOST_RECORDS, MOST_VALUES
from conformance.model.printable import plain
from conformance.model.record import (
    SCHEMA,
    ConfirmationRecord,
    Deviation,
    FooterRecord,
    HeaderRecord,
    OtherRecord,
    Record,
    ResultRecord,
)
from conformance.model.record_shape import check, printable, record_of
from conformance.older_python import zip
from conformance.recorded_command import (
    called_here,
    command_without_values,
    recorded_environment,
    without_values,
)
from conformance.regular_file import XZ, beginning_of, is_there, regular_lines
from conformance.results.checked_json import parse, values_in
from conformance.results.consistency import (
    wrong_confirmation,
    wrong_footer,
    wrong_header,
    wrong_result,
)
from conformance.results.shared import MANY, SharedValues, size_of

FILE_NAME = "results.jsonl"
PACKED = f"{FILE_NAME}.xz"  # the same, compressed by a user
LAB_FILE = "lab.json"  # the plan of a lab
PLAN_FILE = "plan.json"  # the plan of a run that can be resumed; the file is next to the results
_PRIVATE = "--guest-env"  # the only private option of a command that runs a case
# Characters without which all texts of a line of ASCII are printable: of escapes, of UTF-16 and UTF-32, and DEL.
_UNPRINTABLE = (b"\\", b"\0", b"\x7f")
_TAR = b"\0ustar"  # what the first block of a bundle has
_RESULTS = "a run is a directory, its results.jsonl, or this file as .jsonl.xz"
_HEADER = b'{"type":"header","schema":"rdma-cts/'
_ENCODER = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def encode(record: Mapping[str, object]) -> bytes:
    """Returns a record as a line of ASCII, which other programs can read with any encoding."""
    return _ENCODER.encode(record).encode() + b"\n"


def decode(data: bytes | str) -> Record:
    """Returns the record in a line. Raises ValueError if the line is invalid or the record lacks a required key."""
    return record_of(parse(data))


def _published_header(header: HeaderRecord) -> HeaderRecord:
    """Returns a valid header without values that may be secret: an older version, or a person, could have written
    them."""
    public = header.copy()
    public["argv"] = without_values(header.get("argv") or ())
    given = (header.get("under_test") or {}).get("given") or {}
    if isinstance(variables := given.get("environment"), dict):
        given = {**given, "environment": recorded_environment(variables)}
        public["under_test"] = {**header["under_test"], "given": given}
    return public


def _published_result(result: ResultRecord) -> ResultRecord:
    """Returns a valid result whose commands have no values that may be secret."""
    public = result.copy()
    if _PRIVATE in (result.get("repro") or ""):
        public["repro"] = command_without_values(result["repro"])
    if any(_PRIVATE in item.get("repro", "") for item in result.get("deviations") or ()):
        public["deviations"] = [_published_deviation(item) for item in result["deviations"]]
    return public


def _published_deviation(deviation: Deviation) -> Deviation:
    return {**deviation, "repro": command_without_values(deviation.get("repro", ""))}


def _called_here(result: ResultRecord) -> ResultRecord:
    """Returns a shown result whose commands call the program as it is called here. Those of a race run its whole case: an
    older version has recorded that of one try."""
    whole, of_race = called_here(result["repro"]), result["space"].get("tries")
    recorded = [item["repro"] for item in result["deviations"]]
    commands = [whole if of_race and text else called_here(text) for text in recorded]
    if [whole, *commands] == [result["repro"], *recorded]:
        return result
    deviations: list[Deviation] = [
        {**item, "repro": text} for item, text in zip(result["deviations"], commands, strict=True)
    ]
    return {**result, "repro": whole, "deviations": deviations}


def published_file(data: bytes) -> bytes:
    """Returns the content of a valid results file without values that may be secret. Lines without them are not
    changed."""
    lines = data.split(b"\n")
    first = next(number for number, line in enumerate(lines) if line)
    for number, line in enumerate(lines[:-1]):
        escaped = b"\\u00" in line  # any character can be written so
        if number == first or escaped or _PRIVATE.encode() in line:
            record = decode(line)
            public: Record = record
            if record["type"] == "header":
                public = _published_header(record)
            elif record["type"] == "result":
                public = _published_result(record)
            if public != record:
                lines[number] = encode(public)[:-1]
    return b"\n".join(lines)


@dataclass
class Recorded:
    """The contents of a results file, as written. `footer` is None if the run was cut short; `torn` is whether the last
    line is incomplete. `others` are the records of other types, in the order of the file."""

    header: HeaderRecord
    results: list[ResultRecord] = field(default_factory=list)
    footer: FooterRecord | None = None
    torn: bool = False
    others: list[OtherRecord] = field(default_factory=list)

    @property
    def confirmations(self) -> list[ConfirmationRecord]:
        return [record for record in self.others if record["type"] == "confirmation"]

    def shown(self) -> Shown:
        """Returns the records as a reader of the file gets them."""
        shared: dict[tuple[str, int], Any] = {}
        results = [_shown(record, shared) for record in self.results]
        others = [record_shape.shown(record) for record in self.others]
        if self.footer:
            footer = record_shape.shown(self.footer)
        else:
            footer = None
        return Shown(record_shape.shown(self.header), results, footer, self.torn, others)


@dataclass
class Shown(Recorded):
    """Completed, printable records: each has every key that the suite reads, and no text can control a terminal."""


def _shown(record: ResultRecord, shared: dict[tuple[str, int], Any]) -> ResultRecord:
    """Returns the shown form of a result. Values that several results share remain shared: `shared` has their shown
    forms, by key and identity."""
    shared_values: dict[str, Any] = {}
    rest: Any = {}
    for key, value in record.items():
        if (key, id(value)) in shared:
            shared_values[key] = shared[key, id(value)]
        else:
            rest[key] = value
    shown: Any = {**record_shape.shown(rest), **shared_values}
    for key, value in shown.items():
        # Absent values are shared, too: their defaults.
        if isinstance(value, (dict, list)) and not (key == "pairs" and key in record):
            shown[key] = shared.setdefault((key, id(record.get(key))), value)
    return shown  # type: ignore[no-any-return]


def is_recording(path: Path) -> bool:
    """Whether the first line of a file is the header of recorded results, whatever the file's name."""
    with suppress(OSError):
        return next(regular_lines(path), b"").startswith(_HEADER)
    return False


def read_results(path: Path) -> Shown:
    """Reads the results file at `path`, or in the directory `path`. Raises UserError if the file cannot be read, has a
    line that is not a record of the schema, or contradicts itself."""
    return _read(path, keep_written=False).shown


def read_written(path: Path) -> Recorded:
    """Reads a results file like `read_results`, and returns the records as they are in the file, for a command that
    writes them to another file."""
    return read_both(path)[0]


def read_both(path: Path) -> tuple[Recorded, Shown]:
    """Reads a results file, and returns the records as they are in the file and as `read_results` does."""
    reader = _read(path, keep_written=True)
    return reader.written, reader.shown


def file_in(folder: Path) -> Path:
    """Returns the results file in a directory; the compressed one if that is the only one."""
    file, packed = folder / FILE_NAME, folder / PACKED
    return packed if os.path.lexists(packed) and not os.path.lexists(file) else file


def _read(path: Path, *, keep_written: bool) -> _Reader:
    if os.path.isdir(path):
        file = file_in(path)
        with reading(file):
            is_run = is_there(file)
        if not is_run:
            raise UserError(
                f"{path} is not the directory of a run: it has no {FILE_NAME}",
                hint="give a directory that `run` has written, or a results file",
            )
    else:
        file = path
    reader = _Reader(file, keep_written)
    with reading(file):
        reader.read(regular_lines(file))
    return reader


class _Reader:
    """Reads the lines of one file, and refuses the first line that contradicts an earlier line. `written` has the
    records as they are in the file, but for the results unless `keep_written`; `shown` has their shown forms."""

    written: Recorded
    shown: Shown
    _shared: SharedValues

    def __init__(self, file: Path, keep_written: bool) -> None:
        self._file = file
        self._keeps_written = keep_written
        self._begun = False
        self._results: dict[str, ResultRecord] = {}  # the shown results, by case
        self._tried: set[tuple[str, str]] = set()
        self._side_files: set[str] = set()
        self._bytes = 0
        self._values = 0  # the number of values in the lines so far, without those of `_uncounted`
        self._uncounted: list[Any] = []

    def read(self, lines: Iterable[bytes]) -> None:
        """Reads these lines of the file. Raises UserError, and any error of iterating over `lines`."""
        line = b""
        for number, line in enumerate(lines, 1):
            if number > MOST_RECORDS:
                raise UserError(
                    f"{self._file} has at least {number:,} lines, more than the {MOST_RECORDS:,} that a run can have",
                )
            if line.endswith(b"\n") and (stripped := line[:-1]):
                self._read(stripped, f"{self._file}:{number}")
        if not self._begun:
            if line.startswith(b"{"):
                raise UserError(
                    f"{self._file} ends within its header: no case was recorded",
                    hint="if the disk was full, make room and run again",
                )
            self._refuse_other_file(line)
            if line:
                what = f"{self._file} is not a results file: it has no header of schema {SCHEMA}"
                raise UserError(what, hint=_RESULTS)
            raise UserError(
                f"{self._file}: nothing was recorded, no header of schema {SCHEMA}",
                hint="if a run was ended before its first case, run again",
            )
        # A line without an end is ignored even if it is valid JSON.
        torn = bool(line) and not line.endswith(b"\n")
        self.written.torn = self.shown.torn = torn

    def _read(self, line: bytes, where: str) -> None:
        self._refuse_too_many(line)
        record = self._decoded(line, where)
        if record["type"] == "header":
            self._begin(record, where)
        elif not self._begun:
            raise UserError(f"{self._file}: no header of schema {SCHEMA}")
        elif record["type"] == "result":
            self._refuse_after_footer(record, where)
            is_plain = line.isascii() and not any(text in line for text in _UNPRINTABLE)
            self._add_result(record, where, is_plain)
            return
        else:
            self._add_other(record, where)
        self._values += values_in(line)

    def _decoded(self, line: bytes, where: str) -> Record:
        try:
            return decode(line)
        except ValueError as error:
            if self._begun or line.startswith(b"{"):
                hint = ""
            else:
                self._refuse_other_file(line)
                hint = _RESULTS
            raise UserError(f"{where}: not a line of {SCHEMA}: {error}", hint=hint) from error

    def _refuse_other_file(self, line: bytes) -> None:
        """Raises UserError if the file, of which this is the first line, is a bundle or has results that are packed."""
        file = self._file
        if not (line.startswith(XZ) or _TAR in line):
            return
        if beginning_of(file).startswith(_HEADER):
            packed = file.name.removesuffix(".jsonl") + ".jsonl.xz"
            raise UserError(f"{file} has compressed results", hint=f"name it {packed}")
        raise UserError(
            f"{file} is a bundle, not a run",
            hint=f"{command('judge', file)} judges it; to read its run, unpack it with "
            f"`mkdir RUN && tar xf {shlex.quote(str(file))} -C RUN`, and give RUN",
        )

    def _refuse_too_many(self, line: bytes) -> None:
        """Raises UserError if the values so far and those of the line are too many."""
        self._bytes += len(line)
        if (
            2 * self._bytes <= 3 * MOST_VALUES
        ):  # `[],` has two values, and no text has more of its length
            return
        self._values += size_of(self._uncounted)
        self._uncounted.clear()
        if self._values + len(line) <= MOST_VALUES:
            return
        values = self._values + values_in(line)
        if values > MOST_VALUES:
            raise UserError(
                f"{self._file} has at least {values:,} values, more than the {MOST_VALUES:,} that a run can have",
            )

    def _begin(self, record: HeaderRecord, where: str) -> None:
        if record["schema"] != SCHEMA:
            raise UserError(
                f"{self._file} has the schema {printable(str(record['schema']))}, and this version reads {SCHEMA}",
                hint="use the version of rdma-cts that wrote this file",
            )
        if self._begun:
            raise UserError(f"{where}: a second header")
        header = check(record, where)
        if wrong := wrong_header(header):
            raise UserError(f"{where}: {wrong}")
        self._shared = SharedValues(len(header["planned"]) > MANY)
        self.written, self.shown = (
            Recorded(_published_header(record)),
            Shown(plain(_published_header(header))),
        )
        self._begun = True

    def _refuse_after_footer(self, record: Record, where: str) -> None:
        if self.written.footer:
            raise UserError(
                f"{where}: a {record['type']} after the footer, which is the last line of a run",
            )

    def _add_other(self, record: FooterRecord | OtherRecord, where: str) -> None:
        shown = plain(check(record, where))
        self._refuse_after_footer(record, where)
        if record["type"] == "footer":
            results, confirmations = self.shown.results, self.shown.confirmations
            if wrong := wrong_footer(shown, self.shown.header, results, confirmations):
                raise UserError(f"{where}: the file contradicts itself: the footer's {wrong}")
            self.written.footer, self.shown.footer = record, shown
            return
        if record["type"] == "confirmation":
            self._check_confirmation(shown, where)
        self.written.others.append(record)
        self.shown.others.append(shown)

    def _add_result(self, record: ResultRecord, where: str, is_plain: bool) -> None:
        try:
            written, shown, values = self._shared.accept(record, is_plain)
        except ValueError as error:
            raise UserError(f"{where}: case {printable(record['case'])}: {error}") from error
        self._uncounted += values
        wrong = wrong_result(shown, self.shown.header)
        side_file = shown.get("points_file")
        if side_file in self._side_files:
            wrong = f"its points_file {side_file} is that of another case"
        if shown["case"] in self._results:
            wrong = "it has a result already"
        if wrong:
            raise UserError(f"{where}: case {printable(record['case'])}: {wrong}")
        if side_file:
            self._side_files.add(side_file)
        shown = record_shape.with_counts(_called_here(_published_result(shown)))
        if self._keeps_written:
            self.written.results.append(_published_result(written))
        self.shown.results.append(shown)
        self._results[shown["case"]] = shown

    def _check_confirmation(self, record: ConfirmationRecord, where: str) -> None:
        tried = (record["case"], record.get("point", ""))
        if tried in self._tried:
            wrong = "it has a confirmation already"
        else:
            wrong = wrong_confirmation(record, self._results.get(record["case"]))
        if wrong:
            raise UserError(f"{where}: the confirmation of {record['case']}: {wrong}")
        self._tried.add(tried)
