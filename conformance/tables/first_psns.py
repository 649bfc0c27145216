"""Lets the connections of a third of the cases with a wire peer begin near the wrap of the PSN, so that every kind of
message is tested across it."""

from __future__ import annotations

from dataclasses import replace

from conformance.model.case import Case, QpSpec
from conformance.wire.sequence import psn_near_the_wrap


def with_first_psns(case: Case) -> Case:
    """Returns the case with the first PSN that belongs to its id, in the queue pairs whose rows name none."""
    psn = psn_near_the_wrap(case.id)
    if psn is None or not case.needs_wire_peer:
        return case
    qps: dict[str, QpSpec] = {}
    for name, spec in case.given.qps.items():
        qps[name] = spec if spec.psn is not None else replace(spec, psn=psn)
    return replace(case, given=replace(case.given, qps=qps))
