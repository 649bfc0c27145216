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
        return f"{fault.call}{_clause(_OF_WIRE[fault.kind], fault)}"
    if fault.later:
        where = f"afterwards {fault.call}"
    else:
        where = fault.call
    reported = _clause(_CLAUSES[fault.kind], fault)
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


# The values of await_traffic if requests in flight have accessed memory that was filled after their key had ended.
IN_FLIGHT: Mapping[str, str] = {
    "changed": "found bytes of the memory changed after the key had ended",
    "leaked": "found that bytes were sent which were written after the key had ended",
}


def _answer(fault: Fault) -> str:
    if fault.returned in DONE and fault.returned != "0":
        return f"returned {'an' if fault.returned[0] == 'M' else 'a'} {fault.returned}"
    if fault.returned in IN_FLIGHT:
        return IN_FLIGHT[fault.returned]
    returned = fault.returned or fault.errno or "0"
    clause = f"returned {returned}"
    if fault.errno and fault.errno != returned:
        clause += f" with errno {fault.errno}"
    if fault.statuses is not None:
        clause += (
            f", completed with {' '.join(fault.statuses)}"
            if fault.statuses
            else ", produced no completion"
        )
    if fault.nothing_arrived and fault.tries == 1 and fault.kind is not Kind.NOT_ARRIVED:
        clause += ", and nothing arrived"
    if fault.tries > 1:
        clause += f" in attempt {fault.tries}" + (
            ", and nothing arrived in any attempt" if fault.nothing_arrived else ""
        )
    return clause


def _seen(fault: Fault) -> str:
    return " ".join(fault.seen) or "nothing"


# The words for the memories of a point of a model.
_MEMORIES: Mapping[str, str] = {"tested": "the memory of the region", "other": "the other memory"}


def _where(fault: Fault) -> str:
    partitions = (text.partition(": ") for text in fault.seen)
    unchanged = [
        _MEMORIES[memory]
        for memory, _, state in partitions
        if state == "nothing" and memory in _MEMORIES
    ]
    if unchanged and len(unchanged) == len(fault.seen):
        return f"no byte changed in {' or in '.join(unchanged)}"
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


def _wrong_state(fault: Fault) -> str:
    if fault.expected:
        return f" was refused, and the queue pair is in state {_seen(fault)} instead of {' or '.join(fault.expected)}"
    return f" {_answer(fault)}, and its queue pair is in state {_seen(fault)}"


def _complained(fault: Fault) -> str:
    what, *frames = fault.seen
    if fault.kind is Kind.LIBRARY_MEMORY:
        who = "the process under test"
    else:
        who = "the kernel"
    if not frames:
        return f": {who} reported: {what}"
    if frames[1:]:
        callers = f", called by {', '.join(frames[1:])}"
    else:
        callers = ""
    return f": {who} reports {what} in {frames[0]}{callers}"


def _ended(fault: Fault) -> str:
    what, _, at, *kernel = fault.seen
    if at:
        what += f", at the point {at} or at one of the next points" if "=" in at else f", in {at}"
    because = "; ".join(filter(None, kernel))
    if because:
        return f": {what} ({because})"
    return f": {what}"


# What a clause names in braces, besides the fields of its `fault`.
_PARTS: Mapping[str, Callable[[Fault], str]] = {
    "answer": _answer,
    "seen": _seen,
    "list": lambda fault: ", ".join(fault.seen),
    "items": lambda fault: "; ".join(fault.seen),
    "allowed": lambda fault: " or ".join(fault.expected),
    "declared": lambda fault: ", ".join(fault.expected),
    "where": _where,
    "absence": _not_there,
    "causes": _causes_of,
    "usual": lambda fault: usual_causes(fault.errno),
    "state": _wrong_state,
    "alarm": _complained,
    "death": _ended,
}


class _Parts(dict[str, Fault]):
    """The parts of a clause, each made when the clause names it."""

    def __missing__(self, name: str) -> str:
        return _PARTS[name](self["fault"])


def _clause(template: str, fault: Fault) -> str:
    return template.format_map(_Parts(fault=fault))


# The clauses of a script of packets, whose call itself returns nothing that was seen.
_OF_WIRE: Mapping[Kind, str] = {
    Kind.MOVED: ": bytes moved that must not move: {list}, after {fault.operation}",
    Kind.REFUSED: ": {fault.operation} should get {allowed}, but got {seen}",
    Kind.ACCEPTED: ": {fault.operation} should get {allowed}, but got {seen}",
    Kind.OTHER_ARRIVED: ": {fault.operation} should get {allowed}, but got {seen}",
    Kind.NOT_ARRIVED: ": what had to arrive did not: {list}",
    Kind.ANNOUNCED: ": a receive completed although nothing had to arrive: {list}",
    Kind.NO_COMPLETION: ": a request did not complete with {allowed}",
    Kind.WRONG_STATE: ": the queue pair is in state {seen} instead of {allowed}",
    Kind.WRONG_STATUS: ": a request should complete with {allowed}, but completed with {seen}",
    Kind.WRONG_LENGTH: ": the receive reports {seen} bytes, not {allowed}",
    Kind.WRONG_IMMEDIATE: ": the receive reports the immediate data {seen}, not {allowed}",
}

# The clauses of all other faults.
_CLAUSES: Mapping[Kind, str] = {
    Kind.KERNEL_DIED: "{death}",
    Kind.PROCESS_DIED: "{death}",
    Kind.HUNG: "{death}",
    Kind.NO_COMPLETION: " {answer}, but every request must complete, successfully or in error",
    Kind.SEVERAL_COMPLETIONS: " was posted and should have one completion, but {answer}",
    Kind.MOVED: " {answer}, and moved bytes that it should not move",
    Kind.FLUSHED: " {answer}, and was carried out, although it must be refused",
    Kind.ANNOUNCED: " {answer}, and the receiver was notified of its arrival",
    Kind.CHANGED: " {answer}, {where}",
    Kind.ELSEWHERE: " {answer}, {where}",
    Kind.NOT_ARRIVED: " {answer}, but {absence}",
    Kind.OTHER_ARRIVED: " {answer}, but other data arrived; {where}",
    Kind.BESIDE_BUFFER: " {answer}, and changed bytes outside of the requester's buffer",
    Kind.LATE: " {answer}, before its data had arrived",
    Kind.ACCEPTED: " should fail, but {answer}",
    Kind.CARRIED_OUT: ": a request was executed although its posting had failed: {seen}",
    Kind.REFUSED: " should succeed, but {answer}{causes}",
    Kind.REFUSED_ONCE: "{seen}; the call succeeded when the set-up was repeated",
    Kind.SET_UP_REFUSED: "the set-up should succeed, but {seen}{usual}",
    Kind.NOT_PROVIDED: "the device declares {declared}, but {seen}",
    Kind.LEAKED: "could not be released: {items}",
    Kind.MEMORY_LEAKED: (
        ": after the case, and after each repetition, the kernel had not freed some memory: {items}"
    ),
    Kind.WRONG_CODE: " should fail with {allowed}, but failed with {seen}",
    Kind.NO_CODE: " failed as it should but set no errno",
    Kind.NO_ERRNO: " returned {seen}, which is not a value of errno",
    Kind.OTHER_ERRNO: " returned {fault.seen[0]}, but the value of errno is {fault.seen[1]}",
    Kind.VARYING_CODE: " failed with errno {fault.errno}, and with {seen} when the call was repeated",
    Kind.WRONG_STATUS: " should be refused with {allowed}, but completed with {seen}",
    Kind.WRONG_PEER_STATUS: " should be refused with {allowed} at the sender, but completed with {seen}",
    Kind.PEER_STATUS: " {answer}, but the peer completed with {seen}",
    Kind.WRONG_ANSWER: ": {fault.operation} should get {allowed}, but got {seen}",
    Kind.WRONG_PACKET: ": packets of the device are wrong: {items}",
    Kind.NO_PACKET: ": the device did not send {allowed}",
    Kind.WRONG_STATE: "{state}",
    Kind.NO_EVENT: " {answer}, and the event {allowed} did not arrive",
    Kind.UNASKED_COMPLETION: " requested no completion, but got {seen}",
    Kind.WRONG_OPCODE: " {answer}, and its completion has the opcode {seen}, not {allowed}",
    Kind.WRONG_WR_ID: " completed with a wr_id that is not the request's",
    Kind.WRONG_RKEY: ": the window's rkey should be {allowed}",
    Kind.WRONG_LENGTH: " {answer}, but the receiver's completion reports {seen} bytes, not {allowed}",
    Kind.WRONG_IMMEDIATE: (
        " {answer}, but the receiver's completion reports the immediate data {seen}, not {allowed}"
    ),
    Kind.WRONG_INVALIDATED_KEY: ": the receiver's completion reports {seen} as the invalidated key, not {allowed}",
    Kind.WRONG_STRUCTURE: " returned an MR that differs from the arguments: {list}",
    Kind.DIFFERENT: ": {items}",
    Kind.KERNEL_MEMORY: "{alarm}",
    Kind.LIBRARY_MEMORY: "{alarm}",
    Kind.KERNEL_OOPSED: "{alarm}",
    Kind.KERNEL_WARNED: "{alarm}",
    Kind.KERNEL_TAINTED: ": the kernel became tainted ({fault.expected[0]} to {seen})",
    Kind.OTHER: ": {seen}",
}
