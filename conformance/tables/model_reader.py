"""Reads the model of a table, and the covering arrays that are stored beside the table. An array belongs to one model:
it has a digest of the parameters, of what is excluded and of the faults."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.model import capability
from conformance.model.combination_values import FILE, VALUES
from conformance.model.combinations import (
    ALWAYS,
    ANY,
    ASPECTS,
    Conditions,
    CoveringArray,
    Evidence,
    Model,
    Point,
)
from conformance.model.predicate import parse
from conformance.model.rules import Registry
from conformance.model.space import Axis, Space
from conformance.model.vocabulary import ERRNO_NAMES
from conformance.older_python import zip
from conformance.regular_file import read_regular
from conformance.yamldoc.nodes import Node, quoted
from conformance.yamldoc.reader import Reader, suggestion

SLICE = "slice"  # points of the triples for a short run
ARRAYS = {"pairs": 2, "triples": 3, "fours": 4, SLICE: 3}
_KEYS = ("parameters", "excluded", "faults", "needs", "rare", "slow", "evidence", "codes", "verb")
_OPTIONAL = ("slow", "codes", "verb")
_OF_EVIDENCE = ("rule", "of", "when", "fault")
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_ADD = f"if it does, add it to {FILE}"
_REMAKE = "make it anew: ./rdma-cts trial arrays --array"


def read_model(reader: Reader, node: Node, name: str, registry: Registry) -> Model | None:
    """Returns the model of the table `name`, or None after mistakes."""
    before = len(reader.mistakes)
    carried_out = VALUES.get(name.rpartition("/")[2])
    if carried_out is None:
        reader.note(
            node.location,
            f"no code carries out this model; {FILE} has those of {', '.join(VALUES)}",
        )
        return None
    fields = reader.mapping(node, "a model", _KEYS, [key for key in _KEYS if key not in _OPTIONAL])
    meanings: dict[str, Mapping[str, str]] = {}
    axes: list[Axis] = []
    for parameter, values in reader.named(fields.get("parameters"), "parameters").items():
        read = {
            label: reader.text(meaning, "meaning") or ""
            for label, meaning in reader.named(values, "values").items()
        }
        if len(read) > len(_DIGITS) or len(read) < 2:
            reader.note(values.location, f"a parameter has 2 to {len(_DIGITS)} values")
        _note_unknown_values(reader, values, parameter, carried_out)
        meanings[parameter] = read
        axes.append(Axis(parameter, tuple(read), tuple((label,) for label in read)))
    space = Space(tuple(axes))
    texts = {key: _expressions(reader, fields.get(key), key, space) for key in _KEYS[1:4]}
    for need, written in _named(reader, fields.get("needs"), "needs").items():
        if need not in capability.NAMES:
            reader.note(
                written.location, f"unknown capability {need!r}{suggestion(need, capability.NAMES)}"
            )
    evidence = [
        _evidence(reader, item, space, registry, texts["faults"])
        for item in reader.items(fields.get("evidence"), "evidence")
    ]
    # A misspelt capability is one mistake: `rare` may have its right name.
    is_known = "needs" in fields and texts["needs"].keys() <= {*capability.NAMES}
    rare = reader.words(
        fields.get("rare"), "need", texts["needs"] if is_known else capability.NAMES
    )
    slow = reader.text(fields.get("slow"), "slow") or ""
    if slow:
        _check(reader, fields["slow"], slow, space)
    codes = _codes(reader, fields.get("codes"), texts["faults"])
    verb = reader.text(fields["verb"], "verb") or "" if "verb" in fields else ""
    if len(reader.mistakes) > before:
        return None
    named = tuple(item for item in evidence if item)
    labels = {axis.name: axis.labels for axis in axes}
    of_points = [labels, texts["excluded"], texts["faults"], *([codes] if codes else [])]
    digest = hashlib.sha256(json.dumps(of_points).encode()).hexdigest()[:16]
    return Model(
        name,
        tuple(axes),
        meanings,
        **texts,
        rare=rare,
        slow=slow,
        evidence=named,
        codes=codes,
        verb=verb,
        digest=digest,
    )


def _note_unknown_values(
    reader: Reader,
    values: Node,
    parameter: str,
    carried_out: Mapping[str, str],
) -> None:
    """Notes a parameter, or values of it, that no code carries out."""
    if parameter not in carried_out:
        message = f"no code carries out the parameter {parameter!r}; {_ADD}"
        reader.note(values.location, message + suggestion(parameter, carried_out))
        return
    known = carried_out[parameter].split()
    for label, location in (values.keys or {}).items():
        if label not in known:
            message = f"no code carries out {parameter}={label}; {_ADD}"
            reader.note(location, message + suggestion(label, known))


def _codes(
    reader: Reader,
    node: Node | None,
    faults: Mapping[str, str],
) -> Mapping[str, tuple[str, ...]]:
    codes = {}
    for fault, written in _named(reader, node, "codes").items():
        codes[fault] = reader.words(written, "errno", (ANY, *ERRNO_NAMES))
        if fault not in faults:
            reader.note(written.location, f"{fault!r} is no fault of the model")
    return codes


def _expressions(reader: Reader, node: Node | None, key: str, space: Space) -> Mapping[str, str]:
    texts = {}
    for name, written in _named(reader, node, key).items():
        texts[name] = reader.text(written, "an expression") or ""
        _check(reader, written, texts[name], space)
    return texts


def _named(reader: Reader, node: Node | None, key: str) -> Mapping[str, Node]:
    if node is None or not isinstance(node.value, dict):
        if node is not None:
            reader.note(node.location, f"{key} must be a mapping of names to expressions")
        return {}
    return node.value


def _check(reader: Reader, node: Node, text: str, space: Space) -> None:
    try:
        parse(text, space, {})
    except ValueError as error:
        reader.note(node.location, str(error))


def _evidence(
    reader: Reader,
    node: Node,
    space: Space,
    registry: Registry,
    faults: Mapping[str, str],
) -> Evidence | None:
    fields = reader.mapping(node, "evidence", _OF_EVIDENCE, ("rule", "of"))
    rule = reader.word(fields.get("rule"), "rule", registry)
    aspect = reader.word(fields.get("of"), "aspect", ASPECTS)
    if "fault" in fields:
        fault = reader.word(fields["fault"], "fault", faults)
    else:
        fault = ""
    when = ALWAYS
    if "when" in fields:
        when = reader.text(fields["when"], "when") or ""
        _check(reader, fields["when"], when, space)
    if rule and aspect:
        return Evidence(rule, aspect, when, fault or "")
    return None


def array_path(table: Path, name: str) -> Path:
    return table.with_name(f"{table.stem}-{name}.array")


def read_array(
    reader: Reader,
    node: Node,
    model: Model,
    table: Path,
    name: str,
) -> CoveringArray | None:
    """Returns a stored array of a model, or None after a mistake at `node`."""
    path = array_path(table, name)
    try:
        lines = read_regular(path).decode("ascii").splitlines()
        return _array(model, ARRAYS[name], lines)
    except OSError as error:
        reader.note(node.location, f"{path.name}: {error.strerror}; {_REMAKE} {table.stem}")
    except (ValueError, IndexError, KeyError) as error:
        reader.note(node.location, f"{path.name}: {quoted(str(error))}; {_REMAKE} {table.stem}")
    return None


def _array(model: Model, strength: int, lines: Sequence[str]) -> CoveringArray:
    head = json.loads(lines[0])
    if head["model"] != model.digest:
        raise ValueError("made of another version of the model")
    if head["strength"] != strength:
        raise ValueError(f"its strength is {head['strength']} and not {strength}")
    points = points_in(model, lines[1:])
    numbers = [int(line.split()[1]) for line in lines[1:]]
    answers = tuple(head["answers"])
    if max(numbers) >= len(answers):
        raise ValueError("a point without an answer")
    conditions = Conditions(model)
    for point in points:
        if not conditions.valid(point):
            raise ValueError(f"the model excludes {model.text(point)}")
    return CoveringArray(model, strength, tuple(points), answers, tuple(numbers))


def points_in(model: Model, lines: Sequence[str]) -> list[Point]:
    """Returns the points of an array's lines. Raises ValueError or IndexError if they do not fit the parameters."""
    points = []
    for line in lines:
        pairs = zip(model.parameters, line.split()[0], strict=True)
        points.append(tuple(axis.labels[_DIGITS.index(digit)] for axis, digit in pairs))
    return points


def format_array(array: CoveringArray) -> str:
    """Returns the text of a stored array: a line of JSON with the answers, and a line for each point with a digit for
    each value and the number of the point's answer."""
    head = {
        "model": array.model.digest,
        "strength": array.strength,
        "answers": list(array.answers),
    }
    lines = [json.dumps(head)]
    for point, number in zip(array.points, array.numbers, strict=True):
        pairs = zip(array.model.parameters, point, strict=True)
        digits = "".join(_DIGITS[axis.labels.index(label)] for axis, label in pairs)
        lines.append(f"{digits} {number}")
    return "\n".join(lines) + "\n"
