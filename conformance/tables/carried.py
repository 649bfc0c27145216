"""Derives from a row with `traffic` the same row with another requester: a wire peer, which sends the packets of the
requests itself. The copy has the id of the row with `@wire`; it is further evidence of the row's rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conformance.model.case import Case, Given, Step
from conformance.model.kind import Kind
from conformance.model.operations import carries
from conformance.model.vocabulary import BINDS, NULL, WIRE

SUFFIX = f"@{WIRE}"
_TRAFFIC, EXHAUSTIVE = "traffic", "exhaustive"
# The rules whose copies are in the tier of their rows: of rights, of the range, of the domain, of keys, and of windows. Of
# all other rules only the exhaustive tier has the copies, for the time that they take.
_OF_EVERY_RUN = frozenset(
    (
        *"REG-05 REG-06 REG-07 REG-08 REG-09 REG-09a REG-28".split(),
        *"REG-20 BIND-10 REG-22 REG-21 DEREG-01".split(),
        *"BIND-15 BIND-19 BIND-19b".split(),
    ),
)
# Each of these takes as long as dozens of others.
_LONG = (
    "bind_mw/invalidation/unsignaled-over-qp-ends-the-key",
    "reg_mr/keys/regions-until-no-more-may-be-locked",
    "reg_mr/several_packets/write-of-more-than-16-mib",
)
# Calls on a queue pair of the case for which its peer need not be an RDMA device.
_ON_PAIRS = (
    *BINDS,
    "post_local_inv",
    "post_send_with_inv",
    "modify_access",
    "connect_qp",
    _TRAFFIC,
)
_PAIRS = ("qp", "second", "via")  # arguments that name a queue pair


def with_carried(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Returns the cases of a table, and then the copies of those that a wire peer can carry."""
    written = tuple(cases)
    copies: list[Case] = []
    for case in written:
        copy = carried(case)
        if copy:
            copies.append(copy)
    return (*written, *copies)


def is_of_packets(case: Case) -> bool:
    """Whether a wire peer, and no requester of a device, sends packets in this case."""
    return case.when.call == WIRE or case.id.endswith(SUFFIX)


def carried(case: Case) -> Case | None:
    """Returns the copy of a case, or None if no well-formed requester can send its traffic."""
    if case.kind is not Kind.ROW or case.entry != "libibverbs":
        return None
    if case.alone or case.needs_kept_memory:
        return None
    steps = case.steps
    traffic = [step for step in steps if step.call == _TRAFFIC]
    if not traffic or not all(_can_be_carried(case, step) for step in traffic):
        return None
    pairs = {str(step.arguments["via"]) for step in traffic} - {NULL}
    if not all(_needs_no_device(step, pairs) for step in steps):
        return None
    return replace(
        case,
        id=case.id + SUFFIX,
        tier=_tier(case),
        given=_with_peers(case.given, pairs),
        before=tuple(map(_by_wire, case.before)),
        when=_by_wire(case.when),
        afterwards=tuple(map(_by_wire, case.afterwards)),
    )


def _tier(case: Case) -> str:
    """Returns the smallest tier with the copy of a case."""
    if _OF_EVERY_RUN.isdisjoint(case.rules) or case.id in _LONG:
        return EXHAUSTIVE
    return case.tier


def _can_be_carried(case: Case, step: Step) -> bool:
    pair = case.given.qps.get(str(step.arguments["via"]))
    if pair:
        if pair.extended or pair.wire or pair.by_readers:
            return False
        kind = pair.kind
    else:
        kind = str(step.arguments["qp_type"])
    by_send = step.arguments["poster"] == "post_send"
    return by_send and carries(kind, str(step.arguments["op"]))


def _needs_no_device(step: Step, pairs: set[str]) -> bool:
    uses_pair = any(str(step.arguments.get(name)) in pairs for name in _PAIRS)
    return not uses_pair or step.call in _ON_PAIRS


def _with_peers(given: Given, pairs: set[str]) -> Given:
    qps = dict(given.qps)
    for name in pairs:
        qps[name] = replace(qps[name], extended=WIRE)
    return replace(given, qps=qps)


def _by_wire(step: Step) -> Step:
    if step.call != _TRAFFIC:
        return step
    return replace(step, arguments={**step.arguments, "poster": WIRE})
