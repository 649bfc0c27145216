"""What is wrong with one step, by what was observed of it and what its page expects. Not for verdicts on a case."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.model.case import Step
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE, refusal
from conformance.model.observation import NOT_AWAITED, Observation
from conformance.model.vocabulary import BINDS, FLUSHES
from conformance.verbs import ENUMS, VERBS

# What a call returns that has done what it is for; what it returns where errno alone has the reason.
DONE = ("MR", "MW", "buffer", "descriptor", "0")
_ERRNO_TELLS = ("NULL", "no descriptor")


def fault_of(step: Step, seen: Observation, when: str = "") -> str:
    """What is wrong with one step, as a line for people; empty if nothing is."""
    then = step.then
    if "not_made" in seen:
        return ""
    outcome = outcome_of(step, seen)
    # The effect of a judged call whose row asks for the status of its refusal is the subject of other rows.
    moved = "" if then.because and not when else data_fault(step, seen)
    if moved:
        return f"{when}{step} {format_answer(seen)}, {moved}"
    if then.completion == "one" and seen["returned"] == "0" and len(seen["wc"]) != 1:
        return f"{when}{step} was posted and should have one completion, {format_answer(seen)}"
    if then.outcome == "open":
        return ""
    if "differences" in seen:
        return f"{step}: {'; '.join(seen['differences'])}"
    if outcome != then.outcome:
        should = "succeed" if then.outcome == "success" else "fail"
        return f"{when}{step} should {should}, {format_answer(seen)}"
    if then.opcode and "opcode" in seen:
        reported, specified = seen["opcode"]
        return f"{when}{step} {format_answer(seen)}, and its completion has the opcode {reported}, not {specified}"
    if then.rkey and (seen["rkey"]["before"] != seen["rkey"]["after"]) != (then.rkey == "changed"):
        return f"{when}{step}: the window's rkey should be {then.rkey}"
    if seen.get("wr_id_matches") is False and seen["wc"]:
        return f"{when}{step} completed with another wr_id than was posted"
    if outcome == "refused":
        return _refusal_fault(step, seen, when) or _code_fault(step, seen, when)
    wrong = wrong_fields(seen) if then.mr == "as_asked" else []
    if wrong:
        return f"{when}{step} gave an MR that differs from what was asked: {', '.join(wrong)}"
    return _completion_fault(step, seen, when)


# Positions of a whole message.
_FROM_START = ("whole",)
# Operations that leave the range as it is.
_READERS = (
    "RDMA_READ",
    "UNEQUAL_CMP_AND_SWP",
    "UPPER_UNEQUAL_CMP_AND_SWP",
    "ZERO_FETCH_AND_ADD",
    "SEND",
    "WRITE",
    *FLUSHES,
)


def data_fault(step: Step, seen: Observation) -> str:
    """Bytes that are where they should not be, whatever the completion says."""
    if "moved" not in seen:
        return ""
    arrived = seen["moved"] not in ("nothing", "other") and not _came_before_refusal(step, seen)
    if step.then.outcome == "refused" and (arrived or (seen["changed"] and not _came_before_refusal(step, seen))):
        if step.arguments.get("op") in FLUSHES and not seen["changed"]:
            return "and flushed memory that it may not: a FLUSH moves no bytes"
        return "and moved bytes that it should not" if arrived else _where(seen)
    if step.then.outcome == "refused" and seen.get("imm", (None,))[0] is not None and seen["side"] == "remote":
        return "and told the receiver that it had come"
    done = seen["wc"] == ["SUCCESS"]
    dropped = _success_means_sent(seen) and (seen["moved"] == "nothing" or _came_before_refusal(step, seen))
    if done and not dropped and set(seen.get("peer_wc", ())) - {"SUCCESS"}:
        return f"and at the other side with {' '.join(seen['peer_wc'])}"
    if done and not dropped and seen["moved"] != "all":
        return f"but {'nothing' if seen['moved'] == 'nothing' else 'something else'} has arrived; {_where(seen)}"
    if seen.get("late"):
        return "before its data was there"
    if seen.get("guards"):
        return "and changed bytes beside the buffer of the other side"
    expected = 1 if (done or _came_before_refusal(step, seen)) and step.arguments.get("op") not in _READERS else 0
    if len(_stretches(seen)) > expected or any(start < 0 for start, _ in seen["changed"]):
        return _where(seen)
    return _reception_fault(seen) if done and seen["moved"] == "all" else ""


def _came_before_refusal(step: Step, seen: Observation) -> bool:
    """Whether only the first segments of a message are there, whose last ones were refused.

    InfiniBand announces the length of a message in its first packet; iWARP checks each segment for itself and places it
    (RFC 5041, DDP), so that those before the first refused one may be there.
    """
    segments = seen.get("unacknowledged") and seen["moved"] == "part" and step.arguments.get("position") in _FROM_START
    return bool(segments) and len(seen["changed"]) == 1 and seen["changed"][0][0] == 0


def _stretches(seen: Observation) -> list[list[int]]:
    """The stretches that have changed. In the header of a datagram, bytes may keep their value by chance.

    The header counts packets, among other things, so that such a byte depends on what was sent before.
    """
    found = seen["changed"]
    if (seen.get("qp_type"), seen.get("side")) != ("UD", "receive"):
        return found
    header = [each for each in found if each[0] <= DATAGRAM_HEADER]
    return [*header[:1], *found[len(header) :]]


def _success_means_sent(seen: Observation) -> bool:
    """Whether SUCCESS of a request does not say that the peer has taken it, since nobody tells the sender."""
    return seen.get("qp_type", "RC") not in RELIABLE or seen.get("unacknowledged", False)


def _reception_fault(seen: Observation) -> str:
    """A receiver that was told another length or immediate datum than was sent."""
    for pair, what in ((seen.get("byte_len"), "bytes"), (seen.get("imm"), "as immediate data")):
        came, sent = pair or (None, None)
        if came != sent:
            return f"but the receiver was told {came} {what}, not {sent}"
    return ""


def without_status(step: Step, seen: Observation) -> str:
    """Why there is no status of a refusal to judge where a row asks for one; empty if there is one.

    Whether the operation is refused at all is the subject of other rows.
    """
    if not step.then.because:
        return ""
    if seen["returned"] != "0":
        return "was refused when it was posted, so that no completion has a status"
    return "was not refused, so that there is no status of a refusal" if seen["wc"] == ["SUCCESS"] else ""


def _refusal_fault(step: Step, seen: Observation, when: str) -> str:
    """A refusal by the wrong status, or one after which the queue pair goes on."""
    side = "bind" if step.call in BINDS else seen.get("side", "")
    wanted = refusal(side, step.then.because, seen.get("qp_type", ""))
    if wanted is None:
        return ""
    statuses = [(seen["wc"], wanted.wc, "")]
    if wanted.peer:
        statuses.append((seen["peer_wc"], wanted.peer, " at the sender"))
    for found, allowed, who in statuses:
        if allowed and (len(found) != 1 or found[0] not in allowed):
            came = " ".join(found) or "nothing"
            return f"{when}{step} should be refused with {' or '.join(allowed)}{who}, completed with {came}"
    if wanted.state and seen.get("state", wanted.state) != wanted.state:
        return f"{when}{step} was refused, and the queue pair is in state {seen['state']} instead of {wanted.state}"
    return ""


def _where(seen: Observation) -> str:
    """Which remote bytes changed, relative to where they should have."""
    places = [f"{size} at {start:+d}" for start, size in seen["changed"][:4]]
    return f"remote bytes changed: {', '.join(places)}" if places else "no remote byte changed"


def _code_fault(step: Step, seen: Observation, when: str) -> str:
    """A refusal with another code than the page has for it."""
    then = step.then
    code = str(seen["errno"] if seen["returned"] in _ERRNO_TELLS else seen["returned"])
    if code == "0":  # posted, and refused by its completion
        return ""
    allowed: Sequence[str]
    if seen.get("enumerated"):
        allowed = then.code or ENUMS["ibv_rereg_mr_err_code"].short_names
    elif code.startswith("-"):
        return f"{when}{step} returned {code}, which is no value of errno"
    elif step.call == "ibv_dereg_mr" and seen["errno"] not in ("", code):
        return f"{when}{step} returned {code}, and the value of errno is {seen['errno']}"
    else:
        allowed = then.errno or _documented(step)
    if not allowed:
        return ""
    if not code:
        return f"{when}{step} failed as it should but gave no errno"
    if code.startswith("errno -"):
        return f"{when}{step} failed as it should, with {code}, which is no value of errno"
    if "any" in allowed or code in _spellings(allowed):
        return ""
    return f"{when}{step} should fail with {' or '.join(allowed)}, failed with {code}"


def _documented(step: Step) -> tuple[str, ...]:
    verb = VERBS.get(step.call)
    return tuple(verb.codes) if verb and verb.codes and step.call != "ibv_rereg_mr" else ()


def _spellings(names: Sequence[str]) -> set[str]:
    """The names with both of the two that Linux gives to one number."""
    return {*names, *(("EOPNOTSUPP",) if "ENOTSUP" in names else ())}


def _completion_fault(step: Step, seen: Observation, when: str) -> str:
    if step.then.completion == "none" and seen["wc"]:
        what = "asked for no completion" if step.call in BINDS else "should find nothing posted"
        return f"{when}{step} {what} and got {' '.join(seen['wc'])}"
    if step.call in BINDS and "state" in seen:
        return f"{when}{step} {format_answer(seen)}, and its queue pair is in state {seen['state']}"
    told, sent = seen.get("invalidated", (None, None))
    if step.then.invalidated and told != sent:
        came = "nothing" if told is None else f"{told:#x}"
        return f"{when}{step}: the receiver was told {came} as the invalidated key, not {sent:#x}"
    return ""


def outcome_of(step: Step, seen: Observation) -> str:
    """Whether the call did what it is for, by the page's own convention."""
    if seen["returned"] not in DONE:
        return "refused"
    if seen.get("wc") == [NOT_AWAITED]:
        return "success"
    if "wc" not in seen or (step.then.completion == "none" and not seen["wc"]):
        return "success"
    done = seen["wc"] == ["SUCCESS"] and seen.get("moved", "all") == "all"
    # The receiver of a SEND with invalidation may be the only one who learns that a key could not be invalidated.
    done = done and seen.get("responder_wc", ["SUCCESS"]) == ["SUCCESS"]
    return "success" if done else "refused"


def wrong_fields(seen: Observation) -> list[str]:
    mr, asked = seen["mr"], seen["asked"]
    ranges = (("addr", mr["addr"], asked["addr"]), ("length", mr["length"], asked["length"]))
    wrong = [f"{name} {came:#x} instead of {wanted:#x}" for name, came, wanted in ranges if came != wanted]
    if not mr["pd_is_the_asked"]:
        wrong.append("pd is another one")
    if not mr["context_is_the_pds"]:
        wrong.append("context is not the PD's")
    if mr["lkey"] == mr["rkey"] == mr["handle"] == 0:
        wrong.append("lkey, rkey and handle are all 0")
    return wrong


def format_answer(seen: Observation) -> str:
    """What a step gave, as a clause for people."""
    if seen["returned"] in DONE and seen["returned"] != "0":
        return f"returned {'an' if seen['returned'].isupper() else 'a'} {seen['returned']}"
    clause = f"returned {seen['returned']}"
    if seen["errno"] and seen["errno"] != seen["returned"]:
        clause += f" with errno {seen['errno']}"
    if "wc" in seen and seen["returned"] == "0":
        clause += f", completed with {' '.join(seen['wc'])}" if seen["wc"] else ", gave no completion"
    if seen.get("unacknowledged") and seen["wc"] == ["SUCCESS"] and seen["moved"] == "nothing":
        clause += ", and nothing arrived"
    if "tries" in seen:
        clause += f" at try {seen['tries']}" + (", and nothing arrived at any" if seen["moved"] == "nothing" else "")
    return clause
