"""Describes a fault in a sentence, for people. No other module makes these sentences, and no code parses them."""

from collections.abc import Callable, Mapping

from conformance.judging.answering_layer import CORE
from conformance.judging.faults import DONE, answer_of
from conformance.model.fault import Fault
from conformance.model.fault import FaultKind as Kind
from conformance.model.observation import Observation
from conformance.model.vocabulary import REGISTRATIONS, WIRE


def sentence(fault: Fault) -> str:
    if fault.verb == WIRE and fault.kind in _OF_WIRE:
        return f"{fault.call}{_OF_WIRE[fault.kind](fault)}"
    if fault.later:
        where = f"afterwards {fault.call}"
    else:
        where = fault.call
    reported = _CLAUSES[fault.kind](fault)
    if fault.layer == CORE:
        layer = "; the kernel's RDMA core returned this result, the same for every driver"
    else:
        layer = ""
    if where:
        return f"{where}{reported}{layer}"
    return f"{reported.lstrip(': ')}{layer}"


def format_answer(seen: Observation) -> str:
    """Returns the result of a step, as a clause."""
    return _answer(answer_of(Kind.OTHER, seen))


def _answer(fault: Fault) -> str:
    if fault.returned in DONE and fault.returned != "0":
        return f"returned {'an' if fault.returned[0] == 'M' else 'a'} {fault.returned}"
    clause = f"returned {fault.returned}"
    if fault.errno and fault.errno != fault.returned:
        clause += f" with errno {fault.errno}"
    if fault.statuses is not None:
        clause += (
            f", completed with {' '.join(fault.statuses)}"
            if fault.statuses
            else ", produced no completion"
        )
    if fault.nothing_arrived and fault.tries == 1:
        clause += ", and nothing arrived"
    if fault.tries > 1:
        clause += f" in attempt {fault.tries}" + (
            ", and nothing arrived in any attempt" if fault.nothing_arrived else ""
        )
    return clause


def _seen(fault: Fault) -> str:
    return " ".join(fault.seen) or "nothing"


def _where(fault: Fault) -> str:
    if fault.seen:
        return f"remote bytes changed: {', '.join(fault.seen)}"
    return "no remote byte changed"


def _not_there(fault: Fault) -> str:
    if fault.operation.startswith("RECV"):
        if fault.seen:
            changed = f"bytes changed: {', '.join(fault.seen)}"
        else:
            changed = "no byte changed"
        return f"its data are not in their place (misplaced or lost); {changed}"
    return f"its data did not arrive; {_where(fault)}"


def _allowed(fault: Fault) -> str:
    return " or ".join(fault.expected)


# For errnos of a refused registration: the usual causes outside of the driver, which the first look should exclude.
_USUAL_CAUSES: Mapping[str, str] = {
    "ENOMEM": "RLIMIT_MEMLOCK (ulimit -l), the device's max_mr_size and max_mr, or too little memory",
    "EFAULT": "memory that cannot be pinned: another device's memory without peer-memory or dma-buf support",
    "EPERM": "RLIMIT_MEMLOCK (ulimit -l), or a container without CAP_IPC_LOCK",
    "EAGAIN": "RLIMIT_MEMLOCK (ulimit -l)",
}


def usual_causes(errno: str) -> str:
    """Returns a clause with the usual causes of a refused valid registration; empty if there are none."""
    causes = _USUAL_CAUSES.get(errno)
    if causes:
        return f" (usual causes: {causes})"
    return ""


def _causes_of(fault: Fault) -> str:
    if fault.verb in REGISTRATIONS:
        return usual_causes(fault.errno)
    return ""


def _after_answer(text: str) -> Callable[[Fault], str]:
    return lambda fault: f" {_answer(fault)}, {text}"


def _wrong_state(fault: Fault) -> str:
    if fault.expected:
        return f" was refused, and the queue pair is in state {_seen(fault)} instead of {_allowed(fault)}"
    return f" {_answer(fault)}, and its queue pair is in state {_seen(fault)}"


def _complained(fault: Fault) -> str:
    what, *frames = fault.seen
    if not frames:
        return f": the kernel reported: {what}"
    if frames[1:]:
        callers = f", called by {', '.join(frames[1:])}"
    else:
        callers = ""
    return f": the kernel reports {what} in {frames[0]}{callers}"


def _ended(fault: Fault) -> str:
    what, _, at, *kernel = fault.seen
    if at:
        what += f", at the point {at} or at one of the next points" if "=" in at else f", in {at}"
    because = "; ".join(filter(None, kernel))
    if because:
        return f": {what} ({because})"
    return f": {what}"


# The clauses of a script of packets, whose call itself returns nothing that was seen.
_OF_WIRE: Mapping[Kind, Callable[[Fault], str]] = {
    Kind.MOVED: lambda fault: (
        f": bytes moved that must not move: {', '.join(fault.seen)}, after {fault.operation}"
    ),
    Kind.REFUSED: lambda fault: (
        f": {fault.operation} should get {_allowed(fault)}, but got {_seen(fault)}"
    ),
    Kind.ACCEPTED: lambda fault: (
        f": {fault.operation} should get {_allowed(fault)}, but got {_seen(fault)}"
    ),
    Kind.OTHER_ARRIVED: lambda fault: (
        f": {fault.operation} should get {_allowed(fault)}, but got {_seen(fault)}"
    ),
    Kind.NOT_ARRIVED: lambda fault: f": what had to arrive did not: {', '.join(fault.seen)}",
    Kind.ANNOUNCED: lambda fault: (
        f": a receive completed although nothing had to arrive: {', '.join(fault.seen)}"
    ),
    Kind.NO_COMPLETION: lambda fault: f": a request did not complete with {_allowed(fault)}",
    Kind.WRONG_STATE: lambda fault: (
        f": the queue pair is in state {_seen(fault)} instead of {_allowed(fault)}"
    ),
    Kind.WRONG_STATUS: lambda fault: (
        f": a request should complete with {_allowed(fault)}, but completed with {_seen(fault)}"
    ),
    Kind.WRONG_LENGTH: lambda fault: (
        f": the receive reports {_seen(fault)} bytes, not {_allowed(fault)}"
    ),
    Kind.WRONG_IMMEDIATE: lambda fault: (
        f": the receive reports the immediate data {_seen(fault)}, not {_allowed(fault)}"
    ),
}

_CLAUSES: Mapping[Kind, Callable[[Fault], str]] = {
    Kind.KERNEL_DIED: _ended,
    Kind.PROCESS_DIED: _ended,
    Kind.HUNG: _ended,
    Kind.NO_COMPLETION: _after_answer("but every request must complete, successfully or in error"),
    Kind.SEVERAL_COMPLETIONS: lambda fault: (
        f" was posted and should have one completion, but {_answer(fault)}"
    ),
    Kind.MOVED: _after_answer("and moved bytes that it should not move"),
    Kind.FLUSHED: _after_answer("and was carried out, although it must be refused"),
    Kind.ANNOUNCED: _after_answer("and the receiver was notified of its arrival"),
    Kind.CHANGED: lambda fault: f" {_answer(fault)}, {_where(fault)}",
    Kind.ELSEWHERE: lambda fault: f" {_answer(fault)}, {_where(fault)}",
    Kind.NOT_ARRIVED: lambda fault: f" {_answer(fault)}, but {_not_there(fault)}",
    Kind.OTHER_ARRIVED: lambda fault: f" {_answer(fault)}, but other data arrived; {_where(fault)}",
    Kind.BESIDE_BUFFER: _after_answer("and changed bytes outside of the requester's buffer"),
    Kind.LATE: _after_answer("before its data had arrived"),
    Kind.ACCEPTED: lambda fault: f" should fail, but {_answer(fault)}",
    Kind.CARRIED_OUT: lambda fault: (
        f": a request was executed although its posting had failed: {_seen(fault)}"
    ),
    Kind.REFUSED: lambda fault: f" should succeed, but {_answer(fault)}{_causes_of(fault)}",
    Kind.REFUSED_ONCE: lambda fault: (
        f"{_seen(fault)}; the call succeeded when the set-up was repeated"
    ),
    Kind.SET_UP_REFUSED: lambda fault: (
        f"the set-up should succeed, but {_seen(fault)}{usual_causes(fault.errno)}"
    ),
    Kind.NOT_PROVIDED: lambda fault: (
        f"the device declares {', '.join(fault.expected)}, but {_seen(fault)}"
    ),
    Kind.LEAKED: lambda fault: f"could not be released: {'; '.join(fault.seen)}",
    Kind.MEMORY_LEAKED: lambda fault: (
        f": after the case, and after each repetition, the kernel had not freed some memory: {'; '.join(fault.seen)}"
    ),
    Kind.WRONG_CODE: lambda fault: (
        f" should fail with {_allowed(fault)}, but failed with {_seen(fault)}"
    ),
    Kind.NO_CODE: lambda fault: " failed as it should but set no errno",
    Kind.NO_ERRNO: lambda fault: f" returned {_seen(fault)}, which is not a value of errno",
    Kind.OTHER_ERRNO: lambda fault: (
        f" returned {fault.seen[0]}, but the value of errno is {fault.seen[1]}"
    ),
    Kind.VARYING_CODE: lambda fault: (
        f" failed with errno {fault.errno}, and with {_seen(fault)} when the call was repeated"
    ),
    Kind.WRONG_STATUS: lambda fault: (
        f" should be refused with {_allowed(fault)}, but completed with {_seen(fault)}"
    ),
    Kind.WRONG_PEER_STATUS: lambda fault: (
        f" should be refused with {_allowed(fault)} at the sender, but completed with {_seen(fault)}"
    ),
    Kind.PEER_STATUS: lambda fault: (
        f" {_answer(fault)}, but the peer completed with {_seen(fault)}"
    ),
    Kind.WRONG_ANSWER: lambda fault: (
        f": {fault.operation} should get {_allowed(fault)}, but got {_seen(fault)}"
    ),
    Kind.WRONG_PACKET: lambda fault: f": packets of the device are wrong: {'; '.join(fault.seen)}",
    Kind.NO_PACKET: lambda fault: f": the device did not send {_allowed(fault)}",
    Kind.WRONG_STATE: _wrong_state,
    Kind.NO_EVENT: lambda fault: (
        f" {_answer(fault)}, and the event {_allowed(fault)} did not arrive"
    ),
    Kind.UNASKED_COMPLETION: lambda fault: f" requested no completion, but got {_seen(fault)}",
    Kind.WRONG_OPCODE: lambda fault: (
        f" {_answer(fault)}, and its completion has the opcode {_seen(fault)}, not {_allowed(fault)}"
    ),
    Kind.WRONG_WR_ID: lambda fault: " completed with a wr_id that is not the request's",
    Kind.WRONG_RKEY: lambda fault: f": the window's rkey should be {_allowed(fault)}",
    Kind.WRONG_LENGTH: lambda fault: (
        f" {_answer(fault)}, but the receiver's completion reports {_seen(fault)} bytes, not {_allowed(fault)}"
    ),
    Kind.WRONG_IMMEDIATE: lambda fault: (
        f" {_answer(fault)}, but the receiver's completion reports the immediate data {_seen(fault)},"
        f" not {_allowed(fault)}"
    ),
    Kind.WRONG_INVALIDATED_KEY: lambda fault: (
        f": the receiver's completion reports {_seen(fault)} as the invalidated key, not {_allowed(fault)}"
    ),
    Kind.WRONG_STRUCTURE: lambda fault: (
        f" returned an MR that differs from the arguments: {', '.join(fault.seen)}"
    ),
    Kind.DIFFERENT: lambda fault: f": {'; '.join(fault.seen)}",
    Kind.KERNEL_MEMORY: _complained,
    Kind.KERNEL_OOPSED: _complained,
    Kind.KERNEL_WARNED: _complained,
    Kind.KERNEL_TAINTED: lambda fault: (
        f": the kernel became tainted ({fault.expected[0]} to {_seen(fault)})"
    ),
    Kind.OTHER: lambda fault: f": {_seen(fault)}",
}
