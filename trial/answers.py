"""Makes the stored arrays of the models anew: the points, and for each point what the reference requires. `run` needs
neither the reference nor the generator, because both results are stored with the table."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from conformance.combinations.objects import Objects
from conformance.combinations.run import carried_out
from conformance.errors import UserError
from conformance.judging.combinations import is_granted
from conformance.model.combination_values import VALUES
from conformance.model.combinations import ANY, Conditions, CoveringArray, Model, Point
from conformance.model.observation import AccessSeen
from conformance.older_python import zip
from conformance.results.files import write_atomically
from conformance.tables.model_reader import (
    ARRAYS,
    SLICE,
    array_path,
    format_array,
    points_in,
    read_model,
)
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import CASES, ROOT
from conformance.yamldoc.parsing import read_file
from conformance.yamldoc.reader import Reader, suggestion
from trial.arrays import covering_array
from trial.reference.bench import ReferenceBench
from trial.slices import dense_points

# The points that a short run carries out, by the table of the model.
SLICE_SIZES = {"model": 1500, "binds": 800, "changes": 500, "registrations": 300}
TABLES = [CASES / "access" / f"{name}.yaml" for name in VALUES]
TABLE = TABLES[0]


def execute(arguments: argparse.Namespace, *unused: object) -> int:
    """Makes the arrays of the models. Returns the exit status."""
    for name in arguments.array:
        if name not in (*ARRAYS, *VALUES):
            raise UserError(f"unknown array {name!r}{suggestion(name, (*ARRAYS, *VALUES))}")
    chosen = {table: _chosen(table, arguments.array) for table in TABLES}
    models = {table: current_model(table) for table, names in chosen.items() if names}
    for table, model in models.items():
        for name in chosen[table]:
            _make(table, model, name, arguments.anew)
    return 0


def _chosen(table: Path, asked: Sequence[str]) -> list[str]:
    """Returns the names of a table's arrays that are asked for by their own name or by the table's."""
    text = table.read_text()
    named = [name for name in ARRAYS if f"array: {name}" in text]
    if not asked or table.stem in asked:
        return named
    return [name for name in named if name in asked]


def _make(table: Path, model: Model, name: str, anew: bool) -> None:
    """Makes an array of the model of a table. Raises UserError."""
    path = array_path(table, name)
    _report(f"{path.name}: combinations of {ARRAYS[name]} values")
    if name == SLICE:
        points = dense_points(
            model, stored_points(model, table, "triples"), SLICE_SIZES[table.stem]
        )
    else:
        points = _covering(model, table, name, anew)
    write_atomically(path, format_array(answered(model, ARRAYS[name], points)).encode())
    _report(f"{path.name}: {len(points):,} points")


def _covering(model: Model, table: Path, name: str, anew: bool) -> list[Point]:
    """Returns the points of an array, first those of the stored one unless it is made `anew`. Raises UserError."""
    if anew:
        stored = []
    else:
        stored = stored_points(model, table, name)
    points = covering_array(model, ARRAYS[name], stored, _progress)
    refuse_unused(model, points, table)
    return points


def _report(text: str) -> None:
    print(text, file=sys.stderr)


def _progress(count: int) -> None:
    if count % 100 == 0:
        _report(f"{count:,} points")


def stored_points(model: Model, table: Path, name: str) -> list[Point]:
    """Returns the points of the stored array that still have a value of each parameter; none if there is no array or
    the parameters are others."""
    try:
        lines = array_path(table, name).read_text("ascii").splitlines()
        return points_in(model, lines[1:])
    except (FileNotFoundError, IndexError, ValueError):
        return []


def current_model(table: Path = TABLE) -> Model:
    """Returns the model of a table, without its stored arrays. Raises UserError."""
    registry, mistakes = read_registry([CASES], ROOT)
    if mistakes:
        raise UserError(*map(str, mistakes))
    reader = Reader()
    root = read_file(table, _named(table))
    assert isinstance(root.value, dict)
    node = root.value["model"]
    model = read_model(reader, node, f"access/{table.stem}", registry)
    if model is None:
        raise UserError(*map(str, reader.mistakes))
    return model


def _named(table: Path) -> str:
    """Returns the name of a table of models in mistakes."""
    return str((TABLE.parent / table.name).relative_to(ROOT))


def refuse_unused(model: Model, points: Sequence[Point], table: Path = TABLE) -> None:
    """Raises UserError with the location of each value in `table` that no valid point has."""
    root = read_file(table, _named(table))
    assert isinstance(root.value, dict)
    reader, mistakes = Reader(), list[str]()
    named = reader.named(root.value["model"], "a model")
    parameters = reader.named(named["parameters"], "parameters")
    for number, axis in enumerate(model.parameters):
        used = {point[number] for point in points}
        for label, meaning in reader.named(parameters[axis.name], "values").items():
            if label not in used:
                what = f"no valid point has {axis.name}={label}: see `excluded` and `faults`"
                mistakes.append(f"{meaning.location}: {what}")
    if mistakes:
        raise UserError(*mistakes[:20])


def _disagreement(faults: Sequence[str], codes: Sequence[str], seen: AccessSeen) -> str:
    if "setup_failed" in seen:
        return f"the reference cannot set the point up: {seen['setup_failed']}"
    if not faults and not is_granted(seen):
        return f"the model grants this point, the reference refuses it: add a line to `excluded` or `faults`; {seen}"
    if faults and is_granted(seen):
        return (
            f"the model refuses this point ({', '.join(faults)}), the reference grants it; {seen}"
        )
    return f"the model names the codes {' '.join(codes)}, the reference gives {seen.get('called')}"


def answered(model: Model, strength: int, points: list[Point]) -> CoveringArray:
    """Returns an array with the reference's answer at each point. Raises UserError if the reference and the model's
    faults disagree about a point."""
    conditions = Conditions(model)
    answers: dict[str, int] = {}
    observations: list[AccessSeen] = []
    numbers: list[int] = []
    wrong: list[str] = []
    with closing(Objects(ReferenceBench(), lambda name: True)) as objects:
        for point in points:
            faults = conditions.faults(point)
            values = dict(zip(model.names, point, strict=True))
            seen = carried_out(model.name)(objects, values, faults).observe()
            codes = model.codes.get("".join(faults), ("0",))
            named = ANY in codes or seen.get("called", codes[0]) in codes
            if "setup_failed" in seen or is_granted(seen) is bool(faults) or not named:
                wrong.append(f"{model.text(point)}: {_disagreement(faults, codes, seen)}")
            elif "called" in seen:
                seen["called"] = " ".join(codes)
            key = repr(seen)
            if key not in answers:
                answers[key] = len(observations)
                observations.append(seen)
            numbers.append(answers[key])
    if wrong:
        raise UserError(*wrong[:20])
    return CoveringArray(model, strength, tuple(points), tuple(observations), tuple(numbers))
