"""Checks that data have the shape of a record. Each command that reads results runs this check, because a results file
may be from any source. Unknown keys are not changed. A key with the value null counts as absent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from conformance.errors import UserError
from conformance.model.capability import OF_TEST_KERNELS
from conformance.model.fault import FaultData, FaultKind, verdict_of
from conformance.model.observation import Observation
from conformance.model.printable import plain
from conformance.model.record import (
    SCHEMA,
    Deviation,
    FooterRecord,
    HeaderRecord,
    Record,
    ResultRecord,
    SetUp,
    Shows,
    SpaceFacts,
)
from conformance.model.typed import mismatch
from conformance.model.verdict import VERDICTS, Verdict
from conformance.older_python import (
    NotRequired,
    UnionType,
    is_typeddict,
    optional_keys,
    required_keys,
)

_Record = TypeVar("_Record", bound=Record)

# The keys that a record must have, by its type.
REQUIRED: Mapping[str, Mapping[str, type | tuple[type, ...]]] = {
    "header": {"schema": str, "env": dict, "device": dict, "planned": list},
    "start": {"case": str},
    "worker": {"boot_id": str},
    "resumed": {"started": str, "earlier_s": (int, float)},
    "progress": {"case": str, "point": str},
    "offered": {"offered": dict, "absent": dict},
    "confirmation": {"case": str, "confirmed": bool, "by": str},
    "observed": {"case": str},
    "result": {"case": str, "rules": list, "verdict": str, "effective": str, "reason": str},
    "footer": {"complete": bool, "verdicts": dict, "rules": dict},
}

# The type that describes each type of record.
TYPES: Mapping[str, Any] = {
    get_args(get_type_hints(arg)["type"])[0]: arg for arg in get_args(Record)
}


def _absent(type_: Any) -> Any:
    """Returns the value of an absent key: an empty text, list or object, zero, or the first value of a choice."""
    origin, arguments = get_origin(type_) or type_, get_args(type_)
    if is_typeddict(type_):
        return _defaults(type_)
    if origin in (Union, UnionType):
        return _absent(arguments[0])
    if origin is NotRequired:  # before Python 3.11, the hint of a key has the mark
        return _absent(arguments[0])
    if origin in (Literal, Mapping):
        if origin is Literal:
            return arguments[0]
        return {}
    if origin is Verdict:
        return Verdict.MISSED
    return origin()


def _defaults(record: Any, optional: Iterable[str] = ()) -> Any:
    """Returns default values for the keys that the type of the record requires, and for the keys in `optional`."""
    keys = {*required_keys(record), *optional}
    return {name: _absent(type_) for name, type_ in get_type_hints(record).items() if name in keys}


# The values of absent keys.
HEADER: HeaderRecord = _defaults(HeaderRecord, ("rules", "controls")) | {
    "schema": SCHEMA,
    "seed": None,
}
RESULT: ResultRecord = _defaults(ResultRecord, optional_keys(ResultRecord) - {"points_data"})
FOOTER: FooterRecord = _defaults(FooterRecord, ("waivers",))
DEVIATION: Deviation = _defaults(Deviation, optional_keys(Deviation) - {"minimal", "verdict"})
SET_UP: SetUp = _defaults(SetUp)
SHOWS: Shows = _defaults(Shows)
SPACE: SpaceFacts = _defaults(SpaceFacts, optional_keys(SpaceFacts))

# Versions that did not record `precondition` identified this precondition by its text in `unreachable`. The text stays
# as it is, whatever the present version says.
_OF_OLD_RECORDS: Mapping[str, Sequence[str]] = {
    "this kernel cannot be told to fail an allocation of memory: --stack forky-instrumented can": [
        OF_TEST_KERNELS,
    ],
}


def record_of(data: object) -> Record:
    """Returns the data as a record that has the keys of REQUIRED; other keys are not checked. Records of unknown types
    are accepted. Raises ValueError if the data are not a record."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError("not an object with a type")
    for key, type_ in REQUIRED.get(data["type"], {}).items():
        if not isinstance(value := data.get(key), type_):
            wrong = mismatch({key: value}, TYPES[data["type"]])
            raise ValueError(wrong or f"a {data['type']} without {key}")
    if data["type"] == "result":
        if not {data["verdict"], data["effective"]} <= set(VERDICTS):
            raise ValueError("an unknown verdict")
        if data["verdict"] in (Verdict.WAIVED, Verdict.STACK):
            raise ValueError("an effective verdict in place of a verdict")
        duration_us = data.get("duration_us")
        if isinstance(duration_us, int) and duration_us < 0:
            raise ValueError(f"duration_us is {duration_us}, less than 0")
        data |= {key: Verdict(data[key]) for key in ("verdict", "effective")}
    return cast(Record, data)


def mismatch_of(record: Record) -> str:
    """Describes the first value that does not fit the type of the record; empty if every value fits, or the type is
    unknown."""
    described = TYPES.get(record["type"])
    if described:
        return mismatch(record, described)
    return ""


def mistake_in(record: Record) -> str:
    """Describes the first error in the keys of the record; empty if there is no error."""
    return mismatch_of(record) or _contradiction(record)


def check(record: _Record, where: str) -> _Record:
    """Returns the completed record. Raises UserError for a record with an error. The message begins with `where`."""
    if wrong := mistake_in(record):
        if case := dict(record).get("case"):
            of = f"case {printable(str(case))}: "
        else:
            of = ""
        raise UserError(f"{where}: {of}{wrong}")
    return completed(record)


def completed(record: _Record) -> _Record:
    """Returns the record with all keys that the suite reads. A key with the value null counts as absent."""
    complete: Any = record
    if record["type"] == "header":
        complete = _filled(record, HEADER)
    elif record["type"] == "footer":
        complete = _filled(record, FOOTER)
    elif record["type"] == "result":
        complete = {
            key: completed_value(key, value) for key, value in _filled(record, RESULT).items()
        }
        complete = with_counts(cast(ResultRecord, complete))
    return cast(_Record, complete)


def shown(record: _Record) -> _Record:
    """Returns the completed record with texts that are safe to print."""
    complete = completed(record)
    return cast(_Record, plain(complete))


def completed_value(key: str, value: Any) -> Any:
    """Returns the value of a key of a result, with all keys that the suite reads."""
    if key == "set_up":
        return _filled(value, SET_UP)
    if key == "kernel":
        return {"log": [], **value}
    if key == "source":
        return {"file": "", "line": "", **value}
    if key == "waiver" and value:
        return {"owner": "", "issue": "", "expires": "", **value}
    if key == "evidence":
        return [_filled(item, SHOWS) for item in value]
    if key == "space" and value:
        return _filled(value, SPACE)
    if key == "deviations":
        filled = [_filled(item, DEVIATION) for item in value]
        return [{**item, "set_up": _filled(item["set_up"], SET_UP)} for item in filled]
    return value


def precondition_of(observed: Observation) -> Sequence[str]:
    """Returns the names of the preconditions that were not met, also for a record of an older version."""
    if "precondition" in observed:
        return observed["precondition"]
    return _OF_OLD_RECORDS.get(observed.get("unreachable", ""), ())


def with_counts(record: ResultRecord) -> ResultRecord:
    """Returns the completed result with the counts of a model's points, which are in the reason of older versions."""
    pairs = record["pairs"]
    if not pairs["parameters"] or "points" in pairs:
        return record
    return {**record, "pairs": {**pairs, **_counts_in(record["reason"])}}  # type: ignore[typeddict-item]


def _counts_in(reason: str) -> dict[str, Any]:
    """Returns the counts of a model's points and combinations, of which older versions recorded only a sentence."""
    points, _, _ = reason.partition(";")
    counts = {verdict: _number(count) for count, verdict in _OF_VERDICT.findall(points)}
    counted: dict[str, Any] = {"points": counts}
    if told := _NOT_REACHED.search(reason):
        lacking = {cause: _number(count) for count, cause in _OF_CAUSE.findall(told[2])}
        counted |= {"combinations": _number(told[1]), "lacking": lacking}
    return counted


def _number(text: str) -> int:
    return int(text.replace(",", ""))


# `1,800 points: 298 PASS, 1,394 UNSUPPORTED; …; 4,533 of 16,256 combinations were not reached: 4,033 zero_based, 500 …`
_OF_VERDICT = re.compile(rf"(\d[\d,]*) ({'|'.join(VERDICTS)})\b")
_NOT_REACHED = re.compile(r"\d[\d,]* of (\d[\d,]*) combinations were not reached: (.+)", re.DOTALL)
_OF_CAUSE = re.compile(r"(\d[\d,]*) (.+?)(?=, \d[\d,]* |$)", re.DOTALL)


def _filled(data: Any, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the data with copies of `defaults` for absent keys."""
    filled = {key: value for key, value in data.items() if value is not None}
    for key, default in defaults.items():
        filled.setdefault(key, default if default is None else type(default)(default))
    return filled


def _contradiction(record: Record) -> str:
    """Describes a contradiction in a record whose types are correct; empty if there is no contradiction."""
    if record["type"] == "confirmation":
        unknown = (
            name
            for name in ("in_run", "alone")
            if name in record and "verdict" not in (record[name] or {})
        )
        return next((f"`{name}` has no verdict" for name in unknown), "")
    if record["type"] != "result":
        return ""
    for number, deviation in enumerate(record.get("deviations") or ()):
        if deviation.get("count", 0) < 0:
            return f"deviations[{number}].count is {deviation['count']}, less than 0"
    faults = [(record.get("fault"), record["verdict"])]
    faults += [
        (deviation.get("fault"), deviation.get("verdict") or Verdict.FAIL)
        for deviation in record.get("deviations") or ()
    ]
    return next(
        filter(None, (_wrong_fault(fault, verdict) for fault, verdict in faults if fault)),
        "",
    )


def _wrong_fault(data: FaultData, verdict: str) -> str:
    """Describes the error in a fault that was recorded with this verdict; empty if there is no error."""
    if "kind" not in data:
        return "`fault` has no `kind`"
    if len(data.get("site") or ()) not in (0, 4):
        return f"`fault.site` has {len(data['site'])} names, not 4"
    gives = verdict_of(FaultKind(data["kind"]))
    if gives != verdict:
        return f"its fault, {data['kind']}, requires the verdict {gives}, not {verdict}"
    return ""


def printable(name: str) -> str:
    """Returns the name in a form that is safe for a message of one line."""
    if name.isprintable():
        return name
    return ascii(name)
