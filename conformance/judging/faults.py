"""Compares the observation of a step with the expectation, and returns the fault without its location.
circumstances.py adds the location to a fault, and sentences.py describes the fault in a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conformance.judging.wire import wire_fault
from conformance.model.case import Step
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE, refusal
from conformance.model.fault import Fault, FaultKind
from conformance.model.observation import NOT_AWAITED, Observation, reports_arrival
from conformance.model.operations import FLUSHES
from conformance.model.vocabulary import BINDS, WIRE
from conformance.verbs import ENUMS, VERBS

# The values that a successful call returns, and the values of a failed call whose reason is in errno.
DONE = ("MR", "MW", "PD", "DM", "DMAH", "TD", "buffer", "descriptor", "0")
_REASON_IN_ERRNO = ("NULL", "no descriptor")
# The values that await_traffic returns if requests in flight accessed memory after their key had become invalid.
_AWAITED = ("changed", "leaked")


def fault_of(step: Step, seen: Observation, later: bool = False) -> Fault | None:
    """Returns the fault of one step, or None. `later` is whether the step follows the judged call."""
    then = step.then
    if "not_made" in seen:
        return None
    if step.call == WIRE:
        if then.outcome == "open":
            return None
        return wire_fault(seen)
    if _is_silent(step, seen):
        silent = _fault(FaultKind.NO_COMPLETION, seen)
    else:
        silent = None
    if silent and then.outcome == "success":
        return silent
    # If the row judges the status of a refusal, other rows judge the effect of the call.
    judges_effect = later or not then.because
    if judges_effect and (moved := data_fault(step, seen)):
        return moved
    if then.completion == "one" and seen["returned"] == "0" and len(seen["wc"]) != 1:
        return silent or _fault(FaultKind.SEVERAL_COMPLETIONS, seen)
    if then.outcome == "open":
        if then.errno and outcome_of(step, seen) == "refused":
            return _code_fault(step, seen)
        return _value_fault(step, seen)
    return silent or _result_fault(step, seen)


def _value_fault(step: Step, seen: Observation) -> Fault | None:
    """Returns the fault in what a failed bind returns, which the manual page of a bind defines, and in the key that it
    leaves in the window, whatever the row leaves open."""
    if step.call not in BINDS or seen["returned"] == "0":
        return None
    if str(seen["returned"]).startswith("-"):
        return _fault(FaultKind.NO_ERRNO, seen, came=[seen["returned"]])
    if step.then.rkey == "unchanged":
        return _rkey_fault(step.then.rkey, seen)
    return None


def _rkey_fault(required: str, seen: Observation) -> Fault | None:
    """Returns the fault in the key that a bind leaves in the window's structure, which must be `changed` or `unchanged`."""
    is_changed = seen["rkey"]["before"] != seen["rkey"]["after"]
    if is_changed == (required == "changed"):
        return None
    return _fault(FaultKind.WRONG_RKEY, seen, [required])


def _result_fault(step: Step, seen: Observation) -> Fault | None:
    """Returns the fault in what a call reported: its outcome, its structures, its completion or its code."""
    then, outcome = step.then, outcome_of(step, seen)
    if "fault" in seen:  # the call posted many requests, and one of the requests had this fault
        return Fault.of_data(seen["fault"])
    if "differences" in seen:
        return _fault(FaultKind.DIFFERENT, seen, came=seen["differences"])
    if outcome != then.outcome:
        return _outcome_fault(step, seen)
    if then.opcode and "opcode" in seen:
        reported, specified = seen["opcode"]
        return _fault(FaultKind.WRONG_OPCODE, seen, [specified], [reported])
    if then.rkey and (key_fault := _rkey_fault(then.rkey, seen)):
        return key_fault
    if seen.get("wr_id_matches") is False and seen["wc"]:
        return _fault(FaultKind.WRONG_WR_ID, seen)
    if outcome == "refused":
        return _refusal_fault(step, seen) or _code_fault(step, seen)
    if then.mr == "as_asked" and (wrong := wrong_fields(seen)):
        return _fault(FaultKind.WRONG_STRUCTURE, seen, came=wrong)
    return _completion_fault(step, seen)


def answer_of(kind: FaultKind, seen: Observation) -> Fault:
    """Returns a fault of this kind that has only the results of the call."""
    if "wc" in seen and seen["returned"] == "0":
        statuses = tuple(seen["wc"])
    else:
        statuses = None
    only_sent = bool(seen.get("unacknowledged")) and seen["wc"] == ["SUCCESS"]
    only_sent = (only_sent or "tries" in seen) and not reports_arrival(seen)
    return Fault(
        kind,
        layer=seen.get("layer", ""),
        returned=seen["returned"],
        errno=seen["errno"],
        statuses=statuses,
        tries=seen.get("tries", 1),
        nothing_arrived=only_sent and seen["moved"] == "nothing",
    )


def _fault(
    kind: FaultKind,
    seen: Observation,
    expected: Sequence[object] = (),
    came: Sequence[object] = (),
) -> Fault:
    return replace(
        answer_of(kind, seen),
        expected=tuple(map(str, expected)),
        seen=tuple(map(str, came)),
    )


def _outcome_fault(step: Step, seen: Observation) -> Fault:
    if step.then.outcome == "refused":
        return _fault(FaultKind.ACCEPTED, seen)
    if seen["returned"] in _AWAITED:
        return _fault(FaultKind.MOVED, seen)
    # If SUCCESS means only that a message was sent, a message that does not arrive counts as refused.
    return _fault(FaultKind.REFUSED, seen)


def _is_silent(step: Step, seen: Observation) -> bool:
    """Whether a request that has to complete did not complete by the deadline.

    Every send request completes: on RC and XRC with the peer's response or in error, on UC and UD when it has been
    sent. A receive request may remain posted if its message was lost, or if the message was refused before it consumed
    the request; a reliable sender must then get an error. On iWARP, a peer does not respond to a SEND or WRITE: after a
    refusal, the stream ends, and the device decides how the request completes.
    """
    if seen["returned"] != "0" or "wc" not in seen or step.then.completion == "none":
        return False
    if seen.get("side") == "receive" or str(step.arguments.get("op", "")).startswith("RECV"):
        reliable = seen.get("qp_type") in RELIABLE
        return (
            step.call == "local_traffic"
            and reliable
            and seen["wc"] != ["SUCCESS"]
            and seen.get("peer_wc") == []
        )
    return not seen["wc"] and not (seen.get("unacknowledged") and step.then.outcome == "refused")


# Operations that leave the range unchanged.
_READERS = (
    *"RDMA_READ UNEQUAL_CMP_AND_SWP UPPER_UNEQUAL_CMP_AND_SWP ZERO_FETCH_AND_ADD SEND WRITE".split(),
    *FLUSHES,
)


def _of_bytes_that_matter(step: Step, seen: Observation) -> Observation:
    """Returns the observation. If the operation must not move bytes, `moved` is replaced: by `all` (as required) if no
    byte was moved, else by `part`."""
    if step.then.moved != "nothing" or "moved" not in seen:
        return seen
    return {**seen, "moved": "all" if seen["moved"] == "nothing" else "part"}


def data_fault(step: Step, seen: Observation) -> Fault | None:
    """Returns the fault in the data of an operation (moved although refused, missing, late or misplaced) or in the
    reception of a message (status of the peer, length, immediate data); None if there is no fault."""
    if "moved" not in seen:
        return None
    seen = _of_bytes_that_matter(step, seen)
    arrived_before = _arrived_before_refusal(step, seen)
    arrived = seen["moved"] not in ("nothing", "other") and not arrived_before
    if step.then.outcome == "refused" and (arrived or (seen["changed"] and not arrived_before)):
        if step.arguments.get("op") in FLUSHES and not seen["changed"]:
            return _fault(FaultKind.FLUSHED, seen)
        if arrived:
            return _fault(FaultKind.MOVED, seen)
        return _changed(FaultKind.CHANGED, seen)
    if (
        step.then.outcome == "refused"
        and seen.get("imm", (None,))[0] is not None
        and seen["side"] == "remote"
    ):
        return _fault(FaultKind.ANNOUNCED, seen)
    done = seen["wc"] == ["SUCCESS"]
    dropped = _success_means_sent(seen) and (seen["moved"] == "nothing" or arrived_before)
    if done and not dropped and set(seen.get("peer_wc", ())) - {"SUCCESS"}:
        return _fault(FaultKind.PEER_STATUS, seen, came=seen["peer_wc"])
    if done and not dropped and seen["moved"] != "all":
        nothing = seen["moved"] == "nothing"
        return _changed(FaultKind.NOT_ARRIVED if nothing else FaultKind.OTHER_ARRIVED, seen)
    if seen.get("late"):
        return _fault(FaultKind.LATE, seen)
    if seen.get("guards"):
        return _fault(FaultKind.BESIDE_BUFFER, seen)
    if (done or arrived_before) and step.arguments.get("op") not in _READERS:
        expected = 1
    else:
        expected = 0
    if len(_stretches(seen)) > expected or any(start < 0 for start, _ in seen["changed"]):
        return _changed(FaultKind.ELSEWHERE, seen)
    if done and seen["moved"] == "all":
        return _reception_fault(seen)
    return None


def _arrived_before_refusal(step: Step, seen: Observation) -> bool:
    """Whether only the first segments of a message arrived, because a later segment was refused. With InfiniBand, the
    first packet of an RDMA WRITE has the length of the message: the responder can refuse the message before it places
    bytes. iWARP checks and places each segment separately (RFC 5041, DDP); therefore segments before the first refused
    segment may have arrived. Messages at positions other than `whole` have only one segment."""
    segments = (
        seen.get("unacknowledged")
        and seen["moved"] == "part"
        and step.arguments.get("position") == "whole"
    )
    return bool(segments) and len(seen["changed"]) == 1 and seen["changed"][0][0] == 0


def _stretches(seen: Observation) -> list[list[int]]:
    """Returns the changed ranges. All ranges that begin in the header of a datagram, or directly after it, count as one
    range: a byte of the header, such as one of the field that counts packets, can by chance have the value that was
    there before, and one change then looks like several ranges."""
    stretches = seen["changed"]
    if (seen.get("qp_type"), seen.get("side")) != ("UD", "receive"):
        return stretches
    header = [stretch for stretch in stretches if stretch[0] <= DATAGRAM_HEADER]
    return [*header[:1], *stretches[len(header) :]]


def _success_means_sent(seen: Observation) -> bool:
    """Whether SUCCESS means only that a request was sent, because the transport does not acknowledge the request."""
    if reports_arrival(seen):
        return False
    return seen.get("qp_type", "RC") not in RELIABLE or seen.get("unacknowledged", False)


def _reception_fault(seen: Observation) -> Fault | None:
    for kind, pair in (
        (FaultKind.WRONG_LENGTH, seen.get("byte_len")),
        (FaultKind.WRONG_IMMEDIATE, seen.get("imm")),
    ):
        came, sent = pair or (None, None)
        if came != sent:
            return _fault(kind, seen, [sent], [came])
    return None


def without_status(step: Step, seen: Observation) -> str:
    """Returns the reason why the status of a refusal is missing; empty if the status is present, or if the row does not
    judge it. Other rows judge whether the operation is refused."""
    if not step.then.because:
        return ""
    if seen["returned"] != "0":
        return "was refused when it was posted, so that no completion has a status"
    if seen["wc"] == ["SUCCESS"]:
        return "was not refused, so that there is no status of a refusal"
    return ""


def not_refused(step: Step, seen: Observation) -> bool:
    """Whether a call succeeded although its row presupposes a refusal. The row then shows nothing about the device."""
    return (
        bool(step.then.otherwise) and "not_made" not in seen and outcome_of(step, seen) == "success"
    )


def _refusal_fault(step: Step, seen: Observation) -> Fault | None:
    if step.call in BINDS:
        side = "bind"
    else:
        side = seen.get("side", "")
    expected = refusal(side, step.then.because, seen.get("qp_type", ""))
    if expected is None:
        return None
    statuses = [(FaultKind.WRONG_STATUS, seen["wc"], expected.wc)]
    if expected.peer:
        statuses.append((FaultKind.WRONG_PEER_STATUS, seen["peer_wc"], expected.peer))
    for kind, statuses_seen, allowed in statuses:
        if allowed and (len(statuses_seen) != 1 or statuses_seen[0] not in allowed):
            return _fault(kind, seen, allowed, statuses_seen)
    if expected.state and seen.get("state", expected.state) != expected.state:
        return _fault(FaultKind.WRONG_STATE, seen, [expected.state], [seen["state"]])
    if step.then.event and step.then.event not in seen.get("events", ()):
        return _fault(FaultKind.NO_EVENT, seen, [step.then.event], seen.get("events", ()))
    return None


def _changed(kind: FaultKind, seen: Observation) -> Fault:
    """Returns a fault with the first ranges of changed remote bytes; offsets are relative to the addressed range."""
    return _fault(
        kind,
        seen,
        came=[f"{size} at {start:+d}" for start, size in seen["changed"][:_MOST_STRETCHES]],
    )


_MOST_STRETCHES = 4


def _code_fault(step: Step, seen: Observation) -> Fault | None:
    then = step.then
    code = str(seen["errno"] if seen["returned"] in _REASON_IN_ERRNO else seen["returned"])
    if code == "0":  # the request was posted; the status of its completion shows the refusal
        return None
    allowed: Sequence[str]
    if seen.get("enumerated"):
        allowed = then.code or ENUMS["ibv_rereg_mr_err_code"].short_names
    elif code.startswith("-"):
        return _fault(FaultKind.NO_ERRNO, seen, came=[code])
    elif step.call == "ibv_dereg_mr" and seen["errno"] not in ("", code):
        return _fault(FaultKind.OTHER_ERRNO, seen, came=[code, seen["errno"]])
    else:
        allowed = then.errno or documented(step)
    if not allowed:
        return None
    if not code:
        return _fault(FaultKind.NO_CODE, seen)
    if code.startswith("errno "):  # a number without a name in errno(3)
        return _fault(FaultKind.NO_ERRNO, seen, came=[code])
    # EOPNOTSUPP is another name of ENOTSUP on Linux.
    if "any" in allowed or code in allowed or (code == "EOPNOTSUPP" and "ENOTSUP" in allowed):
        return None
    return _fault(FaultKind.WRONG_CODE, seen, allowed, [code])


def documented(step: Step) -> tuple[str, ...]:
    """Returns the values of errno that the manual page of a verb lists for a failure."""
    verb = VERBS.get(step.call)
    if verb and verb.codes and step.call != "ibv_rereg_mr":
        return tuple(verb.codes)
    return ()


def _completion_fault(step: Step, seen: Observation) -> Fault | None:
    if step.then.completion == "none" and seen["wc"]:
        if step.call in BINDS:
            kind = FaultKind.UNASKED_COMPLETION
        else:
            kind = FaultKind.CARRIED_OUT
        return _fault(kind, seen, came=seen["wc"])
    if step.call in BINDS and "state" in seen:
        return _fault(FaultKind.WRONG_STATE, seen, came=[seen["state"]])
    text, sent = seen.get("invalidated", (None, None))
    if step.then.invalidated and text != sent:
        return _fault(
            FaultKind.WRONG_INVALIDATED_KEY,
            seen,
            [f"{sent:#x}"],
            [] if text is None else [f"{text:#x}"],
        )
    return None


def outcome_of(step: Step, seen: Observation) -> str:
    """Returns the outcome of a call, `success` or `refused`. The outcome follows from the returned value, by the
    convention of the manual page, and for posted requests also from the completions and the moved bytes."""
    if seen["returned"] not in DONE:
        return "refused"
    if seen.get("wc") == [NOT_AWAITED]:
        return "success"
    if "wc" not in seen or (step.then.completion == "none" and not seen["wc"]):
        return "success"
    moved = _of_bytes_that_matter(step, seen).get("moved", "all")
    done = seen["wc"] == ["SUCCESS"] and moved == "all"
    # A failed invalidation by SEND may be reported only to the receiver.
    done = done and seen.get("responder_wc", ["SUCCESS"]) == ["SUCCESS"]
    if done:
        return "success"
    return "refused"


def wrong_fields(seen: Observation) -> list[str]:
    mr, requested = seen["mr"], seen["asked"]
    ranges = (
        ("addr", mr["addr"], requested["addr"]),
        ("length", mr["length"], requested["length"]),
    )
    wrong = [
        f"{name} {came:#x} instead of {expected:#x}"
        for name, came, expected in ranges
        if came != expected
    ]
    if not mr["pd_is_the_asked"]:
        wrong.append("pd is not the requested one")
    if not mr["context_is_the_pds"]:
        wrong.append("context is not that of the PD")
    if mr["lkey"] == mr["rkey"] == mr["handle"] == 0:
        wrong.append("lkey, rkey and handle are all 0")
    return wrong
