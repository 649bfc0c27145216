"""Runs the points of a covering array in one process, on objects that the points share."""

from array import array
from collections.abc import Callable

from conformance.bench.interface import Bench
from conformance.combinations.access import Access
from conformance.combinations.advice import Advice
from conformance.combinations.binds import Bind
from conformance.combinations.changes import Change
from conformance.combinations.objects import Objects
from conformance.combinations.registrations import Registration
from conformance.execution.connection import MOST_TRIES
from conformance.execution.runner import CaseRun, Progress, RunContext, run_observing
from conformance.model.case import Case
from conformance.model.combination_values import ENTRIES
from conformance.model.combinations import LACKING, Conditions, CoveringArray
from conformance.model.expected_errors import RELIABLE
from conformance.model.observation import AccessSeen, CombinationsSeen, Observation, PointClass
from conformance.model.point_index import encode_index
from conformance.older_python import zip

# By the table of the model.
_CARRIED_OUT = {
    "model": Access,
    "binds": Bind,
    "changes": Change,
    "advice": Advice,
    "registrations": Registration,
}
_PROGRESS = 100  # the number of points between two reports
# Faults before which a part of a list may be written.
_DIVIDED = (["range"], ["length"], ["use_range"])
_OF_PAGES = (["memory"], ["later_memory"])  # of pages, in the first packet or in a later one


def run_combinations(case: Case, run: RunContext, progress: Progress) -> CaseRun:
    """Runs the points of a case."""

    def declared(name: str, entry: str = case.entry) -> bool:
        capabilities = run.basis.capabilities
        return not (capabilities.undeclared([name], entry) or capabilities.unmet([name], entry))

    assert case.array is not None
    points = case.array
    return run_observing(
        case,
        run,
        lambda: observe(points, run.bench, declared, progress),
        progress,
    )


def observe(
    points: CoveringArray,
    bench: Bench,
    declared: Callable[..., bool],
    progress: Progress,
) -> Observation:
    """Carries out each point for which the device declares what the point needs: at the entry of the case or, for a
    point that has an entry of its own, at that entry."""
    conditions = Conditions(points.model)
    classes: dict[str, int] = {}
    found: list[PointClass] = []
    lacking: dict[str, int] = {}
    index = array("H")
    objects = Objects(bench, declared)
    try:
        for number, point in enumerate(points.points):
            if number % _PROGRESS == 0:
                progress(points.model.text(point), number)
            values = dict(zip(points.model.names, point, strict=True))
            entry = [ENTRIES[values["entry"]]] if "entry" in values else []
            missing = [need for need in conditions.needs(point) if not declared(need, *entry)]
            if missing:
                index.append(LACKING + lacking.setdefault(missing[0], len(lacking)))
                continue
            answer = points.answer(number)
            faults = conditions.faults(point)
            access = carried_out(points.model.name)(objects, values, faults)
            seen = _observed(access, answer)
            reliable = access.transport in RELIABLE
            divided = (access.side != "remote" and faults in _DIVIDED) or faults in _OF_PAGES
            key = repr((answer, seen, reliable, divided))
            if key not in classes:
                classes[key] = len(found)
                found.append(
                    {
                        "answer": answer,
                        "observed": seen,
                        "reliable": reliable,
                        "divided": divided,
                        "count": 0,
                        "example": points.model.text(point),
                    },
                )
            found[classes[key]]["count"] += 1
            index.append(classes[key])
    finally:
        objects.close()
    seen_here: CombinationsSeen = {
        "model": points.model.digest,
        "strength": points.strength,
        "iba": declared("iba_statuses"),
        "classes": found,
        "lacking": list(lacking),
        "index": encode_index(index),
    }
    observation: Observation = {
        "rc": 0,
        "returned": "0",
        "errno": "",
        "layer": "device",
        "combinations": seen_here,
    }
    if objects.left_behind:
        observation["left_behind"] = objects.left_behind
    return observation


def carried_out(model: str) -> type[Access]:
    """Returns what carries out the points of a model."""
    return _CARRIED_OUT[model.rpartition("/")[2]]


def _observed(access: Access, answer: AccessSeen) -> AccessSeen:
    """Carries out a point; again if an unreliable transport has lost a message that must arrive."""
    seen = access.observe()
    for _ in range(MOST_TRIES - 1):
        if access.transport in RELIABLE or not _is_lost(seen, answer):
            break
        seen = access.observe()
    return seen


def _is_lost(seen: AccessSeen, answer: AccessSeen) -> bool:
    arrives = "all" in (answer.get("tested"), answer.get("other"))
    memories = (seen.get("tested"), seen.get("other"))
    return arrives and "nothing" in memories and seen.get("posted") == "0"
