"""Everything that a report says about one violation, as lines of text: the calls, the requirement, the observation, the
layer that answered, and the command that reproduces it; and the points of a sweep.

A file of points is as untrusted as the results, so control characters in its texts are replaced. Not for escaping and
layout, nor for the format of points (conformance/sweeps/outcome.py).
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from conformance.defects import Symptom, answering_of, severity_of
from conformance.defects.symptom import fault_of
from conformance.errors import UserError
from conformance.model.record import Deviation, ResultRecord, SetUp
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.regular_file import read_regular
from conformance.results.checked_json import parse
from conformance.results.conclusions import format_points
from conformance.results.points import points_path
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points
from reports import confirmation
from reports.digest import Digest
from reports.text import flat, one_line, plain

POINT = (
    "A point is one combination of arguments in a case that tries all combinations. Its name is CASE#axis=value,...,"
    " which `explain` and `run --only` accept."
)
_CALLED = {"layer": "answered by"}  # keys of observations, each with the words for it


def has_points(run: Digest) -> bool:
    """Whether any result has points, so that readers need the text POINT."""
    return any(record["space"] for record in run.results)


def lines(run: Digest, record: ResultRecord) -> Iterator[str]:
    """The lines about a result that is not a pass, in the order of the case's steps; none if there is no record."""
    if record["case"] in run.unrecorded:
        return
    for defect in run.defects_in(record["case"]):
        yield f"defect {defect.fingerprint}, {defect.severity.label}: {defect.title}"
    yield from set_up(record["set_up"])
    yield f"call: {record['call']}"
    yield f"expected: {format_fields(own(record['expected']))}"
    yield from (f"expected afterwards: {format_fields(step)}" for step in later(record["expected"]))
    yield from run.documented(record)
    yield f"observed: {observed(record)}"
    yield from (f"observed afterwards: {format_fields(step)}" for step in later(record["observed"]))
    for each in record["deviations"]:
        yield from deviation(each)
    if record["verdict"] in VIOLATIONS:
        yield f"answered by: {answered(run, record)}"
    yield f"table: {location(record)}"
    yield f"reproduce: {record['repro']}"
    yield from (f"kernel: {text}" for text in record["kernel"]["log"])
    if confirmed := confirmation.of_case(run, record["case"]):
        yield f"tried again: {confirmed}"


def observed(record: ResultRecord) -> str:
    """The outcome of the judged call; after a crash, the kernel's first line about it, or whether the kernel or the
    process ended."""
    if record["verdict"] in (Verdict.CRASH, Verdict.HANG) and not record["observed"]:
        what, _, _, alarm, *_ = (*fault_of(record).seen, "", "", "", "")
        return alarm or what
    return format_fields(own(record["observed"]))


def set_up(data: SetUp) -> Iterator[str]:
    """The objects and calls before the judged one."""
    yield from (f"given: {line}" for line in data["given"])
    yield from (f"before: {line}" for line in data["before"])


def deviation(each: Deviation) -> Iterator[str]:
    """A group of points of a sweep with what its smallest point does, or a random sequence as a row of a table."""
    if each["row"]:
        yield f"{each['when']}, as a row of a table:"
        yield from each["row"].rstrip().splitlines()
        return
    yield f"{format_points(each)}: {each['observed']}"
    if each["smallest"]:
        yield f"the smallest: {', '.join(f'{axis}={label}' for axis, label in each['smallest'].items())}"
    yield from (f"  {line}" for line in set_up(each["set_up"]))
    if each["call"]:
        yield f"  call: {each['call']}"
    if each["expected"]:
        yield f"  expected by {' '.join(each['rules'])}: {each['expected']}"
    yield from (f"  afterwards: {line}" for line in each["afterwards"])
    if each["repro"]:
        yield f"  reproduce: {each['repro']}"


def answered(run: Digest, record: ResultRecord) -> str:
    """The layer that answered, with the evidence, for the most severe symptom of a violation."""
    own_ones = run.symptoms.get(record["case"])
    return str(answering_of(min(own_ones, key=_rank))) if own_ones else record["layer"] or "not known"


def _rank(symptom: Symptom) -> int:
    return severity_of(symptom).rank


def location(record: ResultRecord) -> str:
    """The file and line of the case in its table; empty if they are not known."""
    source = record["source"]
    return f"{source.get('file', '')}:{source.get('line', '')}" if source.get("file") else ""


def own(data: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the judged call itself."""
    return {_CALLED.get(name, name): value for name, value in data.items() if name != "afterwards"}


def later(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The fields of each step after the judged call."""
    steps = data.get("afterwards")
    return [own(step) for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []


def format_fields(data: Mapping[str, Any]) -> str:
    """Data as one line; empty values are left out."""
    return "; ".join(f"{name} {text}" for name, text in flat(data) if text) or "nothing"


def read_points(directory: Path, record: ResultRecord) -> Points | None:
    """The points of a sweep's result; None if it has none, or their file is not next to the results.

    Raises UserError if the file is invalid or outside the directory of the results.
    """
    if not record["points_file"]:
        return None
    path = points_path(directory, record)
    try:
        return Points.of_data(plain(parse(read_regular(path))))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise UserError(f"{path}: not the points of a sweep ({one_line(str(error))})") from error


def inside(points: Points) -> Iterator[tuple[int, Outcome]]:
    """Each point that belongs to the space, with its outcome."""
    return ((point, points.outcomes[each]) for point, each in enumerate(points.index) if each != OUTSIDE)
