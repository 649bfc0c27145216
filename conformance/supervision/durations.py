"""Stores the durations of cases in the latest runs, for each kind of guest, in the cache. The durations affect only the
distribution of cases to workers (conformance/supervision/schedule.py), and no verdict. A duration includes the time
between two cases of a worker, while results have only the time of the calls."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from conformance.errors import UserError
from conformance.model.case import Case
from conformance.regular_file import read_regular
from conformance.results.checked_json import parse
from conformance.results.files import write_atomically
from conformance.supervision.schedule import expected_s, needs_its_own_worker

SCHEMA = "rdma-cts-durations/2"
_RESUMED_S = 1.0  # a guest that is resumed from its template, with a short case


def expected_durations(cases: Iterable[Case], past: Mapping[str, float]) -> dict[str, float]:
    """Returns the expected duration of each case in seconds: the `past` duration, or an estimate. The estimate of a case
    that needs a separate worker includes the start of a guest from its template."""
    return {
        case.id: max(_RESUMED_S, expected_s(case, past))
        if needs_its_own_worker(case, past)
        else expected_s(case, past)
        for case in cases
    }


@dataclass(frozen=True)
class Durations:
    """A file of durations in seconds, by case id. A missing or damaged file counts as empty, because it is optional."""

    path: Path

    def read(self) -> dict[str, float]:
        try:
            data = parse(read_regular(self.path))
            if data["schema"] != SCHEMA:
                return {}
            return {
                str(case): float(seconds)
                for case, seconds in data["seconds"].items()
                if 0 <= seconds < 1e9
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}

    def update(self, took: Mapping[str, float]) -> None:
        """Stores these durations, in seconds by case id. The durations of other cases do not change."""
        new = {case: round(seconds, 3) for case, seconds in took.items()}
        data = {"schema": SCHEMA, "seconds": {**self.read(), **new}}
        try:
            write_atomically(self.path, json.dumps(data).encode("ascii") + b"\n", durable=False)
        except UserError:
            return  # if the cache is not writable, the next run is only slower
