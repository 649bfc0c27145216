"""Counts the requests of a plan that a correct device refuses. Each of them is an error of the device on purpose, which
its driver may report in the kernel's log."""

from collections.abc import Iterable

from conformance.model.case import Case, Step
from conformance.model.sweep import Sweep
from conformance.model.vocabulary import BINDS

_REFUSED = "refused"
_UNACKNOWLEDGED = ("UC", "UD")
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
        *BINDS,
    ),
)


def refused_requests(cases: Iterable[Case]) -> int:
    """Returns the number of requests that a device with all capabilities must refuse. A device without some of them is
    asked for fewer."""
    number = 0
    for case in cases:
        number += sum(map(_is_refused_request, case.afterwards))
        if case.sweep is None:
            number += _is_refused_request(case.when)
        elif case.point is not None:
            number += _is_refused_request(case.sweep.judged_row(case, _has).when)
        elif case.when.call in _POSTING:
            number += len(_refused_points(case.sweep))
    return number


def unacknowledged_requests(cases: Iterable[Case]) -> int:
    """Returns how many of the refused requests use a transport without acknowledgements. The suite may have to wait
    after such a request, because nothing shows that nothing will arrive."""
    number = 0
    for case in cases:
        number += sum(map(_is_unacknowledged, case.afterwards))
        if case.sweep is None:
            number += _is_unacknowledged(case.when)
        elif case.point is not None:
            number += _is_unacknowledged(case.sweep.judged_row(case, _has).when)
        elif case.when.call in _POSTING:
            steps = (case.sweep.case_at(case, point).when for point in _refused_points(case.sweep))
            number += sum(_uses_datagrams(step) for step in steps)
    return number


def _is_unacknowledged(step: Step) -> bool:
    return _is_refused_request(step) and _uses_datagrams(step)


def _uses_datagrams(step: Step) -> bool:
    return step.arguments.get("qp_type") in _UNACKNOWLEDGED


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
