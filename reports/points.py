"""Reads the points of a sweep for a report.

The points file is as untrusted as the results, so control characters in its texts are replaced. Not for the format of
points (conformance/sweeps/outcome.py).
"""

from collections.abc import Iterator
from pathlib import Path

from conformance.errors import UserError
from conformance.model.record import ResultRecord
from conformance.regular_file import read_regular
from conformance.results.checked_json import parse
from conformance.results.points import points_path
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points
from reports.text import one_line, plain


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
