"""Checks that data have the shape of a record.

Every reader of results uses it, because a results file may come from anywhere.

Unknown keys are kept unchanged; null counts as an absent key. Not for reading files (results/records.py) and not for
the meaning of values.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

from conformance.errors import UserError
from conformance.model.fault import FaultData, FaultKind, verdict_of
from conformance.model.record import (
    SCHEMA,
    ConfirmationRecord,
    Deviation,
    FooterRecord,
    GuestRecord,
    HeaderRecord,
    OfferedRecord,
    ProgressRecord,
    Record,
    ResultRecord,
    ResumedRecord,
    SetUp,
    SpaceFacts,
    StartRecord,
    WorkerRecord,
)
from conformance.model.typed import mismatch
from conformance.model.verdict import VERDICTS, Verdict

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
    "result": {"case": str, "rules": list, "verdict": str, "effective": str, "reason": str},
    "footer": {"complete": bool, "verdicts": dict, "rules": dict},
}

# The type that describes each type of record.
TYPES: Mapping[str, Any] = {
    "header": HeaderRecord,
    "start": StartRecord,
    "worker": WorkerRecord,
    "resumed": ResumedRecord,
    "progress": ProgressRecord,
    "offered": OfferedRecord,
    "confirmation": ConfirmationRecord,
    "result": ResultRecord,
    "footer": FooterRecord,
    "guest": GuestRecord,
}


def _absent(type_: Any) -> Any:
    """The value for an absent key of a type: an empty text, list or object, or zero; the first value of a choice."""
    origin, arguments = get_origin(type_) or type_, get_args(type_)
    if is_typeddict(type_):
        return _defaults(type_)
    if origin in (Union, UnionType):
        return _absent(arguments[0])
    if origin in (Literal, Mapping):
        return arguments[0] if origin is Literal else {}
    return Verdict.MISSED if origin is Verdict else origin()


def _defaults(record: Any, optional: Iterable[str] = ()) -> Any:
    """The values for absent keys: of the keys that the type of the record requires, and of these optional ones."""
    kept = {*record.__required_keys__, *optional}
    return {name: _absent(type_) for name, type_ in get_type_hints(record).items() if name in kept}


# The values of absent keys. A present key must have the same type; the type of a key with None is not checked.
HEADER: HeaderRecord = _defaults(HeaderRecord, ("rules", "controls")) | {"schema": SCHEMA, "seed": None}
RESULT: ResultRecord = _defaults(ResultRecord, ResultRecord.__optional_keys__ - {"points_data"})
FOOTER: FooterRecord = _defaults(FooterRecord, ("waivers",))
DEVIATION: Deviation = _defaults(Deviation, Deviation.__optional_keys__ - {"minimal", "verdict"})
CONFIRMATION: ConfirmationRecord = _defaults(ConfirmationRecord, ConfirmationRecord.__optional_keys__)
SET_UP: SetUp = _defaults(SetUp)
SPACE: SpaceFacts = _defaults(SpaceFacts, SpaceFacts.__optional_keys__)
# The name of a default's type in messages.
_WHAT: Mapping[type, str] = {
    str: "a text",
    Verdict: "a verdict",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "an object",
}


def record_of(data: object) -> Record:
    """The data as a record that has the keys of REQUIRED; other keys are not checked.

    Records of unknown types are accepted. Raises ValueError if the data are not a record.
    """
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise ValueError("no object with a type")
    missing = [key for key, type_ in REQUIRED.get(data["type"], {}).items() if not isinstance(data.get(key), type_)]
    if missing:
        raise ValueError(f"a {data['type']} without {missing[0]}")
    if data["type"] == "result":
        if not {data["verdict"], data["effective"]} <= set(VERDICTS):
            raise ValueError("an unknown verdict")
        if data["verdict"] in (Verdict.WAIVED, Verdict.STACK):
            raise ValueError("an effective verdict in place of a verdict")
        data |= {key: Verdict(data[key]) for key in ("verdict", "effective")}
    return cast(Record, data)


def mismatch_of(record: Record) -> str:
    """The part of a record that does not fit its type, with its path; empty if all fits, or if the type is unknown."""
    described = TYPES.get(record["type"])
    return mismatch(record, described) if described else ""


def check(record: _Record, where: str) -> _Record:
    """The record from `completed`, all of whose values have the types of the contract. Raises UserError as that
    does."""
    complete = completed(record, where)
    if wrong := mismatch_of(record):
        raise UserError(f"{where}: {wrong}")
    return complete


def completed(record: _Record, where: str) -> _Record:
    """The record with all keys that readers need; records of other types are returned unchanged.

    Raises UserError, which begins with `where`, for a value of another type than that of its default.
    """
    complete = _COMPLETED.get(record["type"])
    return cast(_Record, complete(record, where)) if complete else record


def _completed_header(header: HeaderRecord, where: str) -> HeaderRecord:
    """The header with each key of HEADER. Raises UserError for a value of another type."""
    where = f"{where}: the header"
    shaped = _completed(header, HEADER, where)
    for id_, texts in shaped["rules"].items():
        if not isinstance(texts, dict):
            raise UserError(f"{where}: rule {printable(id_)} is not an object")
    if not isinstance(shaped["device"].get("caps") or {}, dict):
        raise UserError(f"{where}: `device.caps` is not an object")
    return cast(HeaderRecord, shaped)


def _completed_result(result: ResultRecord, where: str) -> ResultRecord:
    """The result with each key of RESULT, and with the keys of its parts that readers need. Raises UserError."""
    where = f"{where}: case {printable(result['case'])}"
    shaped = _completed(result, RESULT, where)
    _check_texts(shaped["rules"], f"{where}: `rules`")
    _check_texts(shaped["notes"], f"{where}: `notes`")
    shaped["set_up"] = _set_up(shaped["set_up"], where)
    shaped["kernel"] = {"log": [], **shaped["kernel"]}
    shaped["source"] = {"file": "", "line": "", **shaped["source"]}
    if shaped["waiver"]:
        shaped["waiver"] = {"owner": "", "issue": "", "expires": "", **shaped["waiver"]}
    _check_texts(shaped["kernel"]["log"], f"{where}: `kernel.log`")
    space = _completed(shaped["space"], SPACE, f"{where}: `space`")
    shaped["space"] = shaped["space"] and space
    for name, labels in space["axes"].items():
        _check_texts(
            labels["subsets"] if isinstance(labels, dict) and "subsets" in labels else labels,
            f"{where}: axis {printable(name)}",
        )
    if any(not isinstance(count, int) for count in shaped["points"].values()):
        raise UserError(f"{where}: a count of points is not a number")
    if not set(map(str, shaped["rule_verdicts"].values())) <= set(VERDICTS):
        raise UserError(f"{where}: an unknown verdict in `rule_verdicts`")
    _check_fault(shaped["fault"], shaped["verdict"], where)
    shaped["deviations"] = [_deviation(each, f"{where}: a deviation") for each in shaped["deviations"]]
    _check_texts(shaped["observed"].get("lacking", []), f"{where}: `observed.lacking`")
    return cast(ResultRecord, shaped)


def _completed_footer(footer: FooterRecord, where: str) -> FooterRecord:
    """The footer with each key of FOOTER. Raises UserError for a value of another type."""
    where = f"{where}: the footer"
    shaped = _completed(footer, FOOTER, where)
    if any(not isinstance(count, int) for count in shaped["verdicts"].values()):
        raise UserError(f"{where}: a count of verdicts is not a number")
    _check_texts(shaped["waivers"].get("problems", []), f"{where}: `waivers.problems`")
    return cast(FooterRecord, shaped)


def _checked_confirmation(record: ConfirmationRecord, where: str) -> ConfirmationRecord:
    """The confirmation, unchanged. Raises UserError for a value of another type than the contract's."""
    where = f"{where}: the confirmation of {printable(record['case'])}"
    shaped = _completed(record, CONFIRMATION, where)
    _check_texts(shaped["after"], f"{where}: `after`")
    for name in ("in_run", "alone"):
        outcome = {"verdict": "", "reason": "", **shaped[name]}
        _check_texts([outcome["verdict"], outcome["reason"]], f"{where}: `{name}`")
        if name in record and not outcome["verdict"]:
            raise UserError(f"{where}: `{name}` has no verdict")
    return record


# The function that completes a record, by its type.
_COMPLETED: Mapping[str, Callable[[Any, str], Any]] = {
    "header": _completed_header,
    "result": _completed_result,
    "footer": _completed_footer,
    "confirmation": _checked_confirmation,
}


def _deviation(data: Any, where: str) -> dict[str, Any]:
    shaped = _completed(data, DEVIATION, where)
    _check_texts(shaped["rules"], f"{where}: `rules`")
    _check_texts(shaped["afterwards"], f"{where}: `afterwards`")
    _check_fault(shaped["fault"], data.get("verdict") or Verdict.FAIL, where)
    shaped["set_up"] = _set_up(shaped["set_up"], where)
    return shaped


def _check_fault(data: Any, verdict: str, where: str) -> None:
    """Raises UserError for a fault that does not give this verdict; a record without one is of an older version."""
    if not data:
        return
    if wrong := mismatch(data, FaultData):
        raise UserError(f"{where}: `fault`: {wrong}")
    if "kind" not in data:
        raise UserError(f"{where}: `fault` has no `kind`")
    if len(data.get("site") or ()) not in (0, 4):
        raise UserError(f"{where}: `fault.site` has {len(data['site'])} names, not 4")
    gives = verdict_of(FaultKind(data["kind"]))
    if gives != verdict:
        raise UserError(f"{where}: its fault, {data['kind']}, gives {gives} and not {verdict}")


def _set_up(data: Any, where: str) -> dict[str, Any]:
    shaped = _completed(data, SET_UP, f"{where}: `set_up`")
    for name in SET_UP:
        _check_texts(shaped[name], f"{where}: `set_up.{name}`")
    return shaped


def _completed(data: Any, defaults: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The data with `defaults` for absent keys; null counts as absent."""
    if not isinstance(data, dict):
        raise UserError(f"{where} is not an object")
    found = {key: value for key, value in data.items() if value is not None}
    for key, default in defaults.items():
        if not _is_like(found.setdefault(key, default if default is None else type(default)(default)), default):
            raise UserError(f"{where}: `{key}` is not {_WHAT[type(default)]}")
    return found


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value has the type of its default. A number may be an integer, and must be finite."""
    if default is None:
        return True
    if isinstance(default, int | float) and not isinstance(default, bool):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, str if isinstance(default, str) else type(default))


def _check_texts(value: Any, where: str) -> None:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UserError(f"{where} is not a list of texts")


def printable(name: str) -> str:
    """The name in a form that is safe for a message of one line."""
    return name if name.isprintable() else ascii(name)
