"""Counts the requests of a plan that a correct device refuses. Each of them is an error of the device on purpose, which
its driver may report in the kernel's log, and after some of them the suite may have to wait."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from conformance.model.case import Case, Flags, Step
from conformance.model.deadline import TAUGHT_S
from conformance.model.memory_kinds import NOT_WRITABLE
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import BINDS
from conformance.older_python import zip

_REFUSED = "refused"
_UNACKNOWLEDGED = ("UC", "UD")
# A device may report a page fault that cannot be resolved only after all retries: up to nine seconds.
_FAULT_S = 9
# Calls that remove pages from a region.
_REMOVING = ("unmap", "protect", "move")
# The calls that post a request. A refused registration is no request: it returns an errno.
_POSTING = frozenset(
    (
        "traffic",
        "local_traffic",
        "list_traffic",
        "send_to_receive",
        "post_local_inv",
        "post_send_with_inv",
        "bind_and_send",
        "bind_notified",
        "failures_in_turn",
        "message_notified",
        "request_notified",
        *BINDS,
    ),
)


@dataclass(frozen=True)
class Refusals:
    """The numbers of refused requests: all; those over a transport without acknowledgements, after which nothing may
    arrive; and those that cause a page fault of on-demand memory that cannot be resolved."""

    number: int = 0
    unacknowledged: int = 0
    faults: int = 0

    @property
    def longest_s(self) -> float:
        """The longest time that the suite has to wait after these requests, in seconds: each page fault until it fails,
        and after a few messages that did not arrive, a short wait for each further one."""
        return self.faults * _FAULT_S + self.unacknowledged * TAUGHT_S


def refused_requests(cases: Collection[Case]) -> Refusals:
    """Counts the requests that a device with all capabilities must refuse. A device without some of them is asked for
    fewer."""
    number = unacknowledged = faults = 0
    for case, step in _refused(cases):
        number += 1
        unacknowledged += step.arguments.get("qp_type") in _UNACKNOWLEDGED
        faults += _faults(case)
    for array in (case.array for case in cases if case.array is not None):
        refused = array.part("refused").points
        number += len(refused)
        if "transport" in array.model.names:  # else the points are over RC
            column = array.model.names.index("transport")
            unacknowledged += sum(point[column] in _UNACKNOWLEDGED for point in refused)
    return Refusals(number, unacknowledged, faults)


def _refused(cases: Iterable[Case]) -> Iterator[tuple[Case, Step]]:
    """Yields each refused request with its case, which for a sweep is the case of the point."""
    for case in cases:
        for step in case.afterwards:
            if _is_refused_request(step):
                yield case, step
        if case.sweep is None or case.point is not None:
            when = case.sweep.judged_row(case, _has).when if case.sweep else case.when
            if _is_refused_request(when):
                yield case, when
        elif case.when.call in _POSTING:
            for point in _refused_points(case.sweep):
                of_point = case.sweep.case_at(case, point)
                yield of_point, of_point.when


def _faults(case: Case) -> bool:
    """Whether a request of the case may cause a page fault that cannot be resolved."""
    accesses = (region.arguments.get("access") for region in case.given.mrs.values())
    if not any(isinstance(flags, Flags) and "ON_DEMAND" in flags.names for flags in accesses):
        return False
    kinds = {memory.kind for memory in case.given.memory.values()}
    return not kinds.isdisjoint(NOT_WRITABLE) or any(step.call in _REMOVING for step in case.before)


def _has(capability: str) -> bool:
    return True


def _is_refused_request(step: Step) -> bool:
    return step.call in _POSTING and step.then.outcome == _REFUSED


def _refused_points(sweep: Sweep) -> list[int]:
    """Returns the numbers of the points whose call is refused."""
    refused = [clause.then and clause.then.outcome == _REFUSED for clause in sweep.deciding]
    inside = sweep.space.bytes_of(sweep.inside)
    numbers = sweep.clause_numbers(_has)
    return [
        point
        for point, (number, flag) in enumerate(zip(numbers, inside, strict=True))
        if flag and refused[number]
    ]
