"""Finds the faults behind violations in results of older versions, which lack the key `fault`, by their sentences.

No other module reads sentences. This one knows what those versions wrote, and is not extended. Not for records that
have their fault (symptom.py).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from conformance.judging import crash_location, first_alarm
from conformance.judging.kernel_alarms import complaint_kind, lasting_site
from conformance.model.fault import HUGE, ON_DEMAND, OWN_ADDRESSES, PERSISTENT, REGION, WINDOW, Fault, FaultKind
from conformance.model.record import Deviation, ResultRecord
from conformance.model.verdict import Verdict
from conformance.model.vocabulary import CALLS, REGISTRATIONS
from conformance.verbs import VERBS

_UVERBS, _AFTERWARDS = "uverbs ", "afterwards "
# The first verb that the kernel's command implements stands for the command.
_OF_COMMAND: Mapping[str, str] = {verb.command: verb.name for verb in reversed(list(VERBS.values())) if verb.command}
_CALL = re.compile(r"(?P<title>(?:uverbs )?\w+)(?P<arguments>\()?")
# The first expression that is found in the line decides.
_KINDS = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"the kernel (became tainted|complained)", FaultKind.KERNEL_WARNED),
        (r"could not be released", FaultKind.LEAKED),
        (r"moved bytes that it should not", FaultKind.MOVED),
        (r"flushed memory that it may not", FaultKind.FLUSHED),
        (r"told the receiver that it had come", FaultKind.ANNOUNCED),
        (r"but something else has arrived", FaultKind.OTHER_ARRIVED),
        (r"has arrived", FaultKind.NOT_ARRIVED),
        (r"completed with SUCCESS.*nothing arrived", FaultKind.REFUSED),
        (r"before its data was there", FaultKind.LATE),
        (r"changed bytes beside", FaultKind.BESIDE_BUFFER),
        (r"remote bytes? changed", FaultKind.ELSEWHERE),
        (r"and at the other side with", FaultKind.PEER_STATUS),
        (r"should be refused with", FaultKind.WRONG_STATUS),
        (r"the receiver was told .* as the invalidated key", FaultKind.WRONG_INVALIDATED_KEY),
        (r"the receiver was told .* as immediate data", FaultKind.WRONG_IMMEDIATE),
        (r"the receiver was told .* bytes", FaultKind.WRONG_LENGTH),
        (r"should find nothing posted and got", FaultKind.CARRIED_OUT),
        (r"should fail with|gave no errno", FaultKind.WRONG_CODE),
        (r"no value of errno", FaultKind.NO_ERRNO),
        (r"the value of errno is", FaultKind.OTHER_ERRNO),
        (r"when it was called again", FaultKind.VARYING_CODE),
        (r"should fail\b", FaultKind.ACCEPTED),
        (r"must be present", FaultKind.NOT_PROVIDED),
        (r"(was done|succeeded) when the same set-up was made again", FaultKind.REFUSED_ONCE),
        (r"should succeed", FaultKind.REFUSED),
        (r"gave an MR that differs", FaultKind.WRONG_STRUCTURE),
        (r"the window's rkey should be", FaultKind.WRONG_RKEY),
        (r"completed with another wr_id", FaultKind.WRONG_WR_ID),
        (r"its completion has the opcode", FaultKind.WRONG_OPCODE),
        (r"queue pair is in state", FaultKind.WRONG_STATE),
        (r"asked for no completion and got", FaultKind.UNASKED_COMPLETION),
    )
)
_DEAD_PROCESS = re.compile(
    r"process( under test| that ran the case)? died|(process under test|command in the guest) ended with status"
)
_SIGNAL = re.compile(r"died of (SIG[A-Z]+)|\b(status \d+)")
# The clauses that name an answer. The last one counts: a code comes before the status of a completion.
_ANSWER = re.compile(r"(?:returned|failed with(?: errno)?|with errno|completed with|the other side with) ([A-Z]\w+)")
_RETURNED = re.compile(r"\breturned (?:an )?(\w+)")
_POINTERS = ("NULL", "MR", "MW")
_WANTED = re.compile(r"should be refused with ([A-Z_ or]+?),|should fail with ([A-Z_ or]+?),")
_CORE, _CORE_SAID = "kernel core", "the kernel's RDMA core answered"
_OPERATION = re.compile(r"\bop=(\w+)")
_FLAGS = re.compile(r"\baccess=([A-Z_|]+)")
_REGIONS = (
    (ON_DEMAND, re.compile(r"on[-_ ]demand", re.IGNORECASE)),
    (OWN_ADDRESSES, re.compile(r"zero[-_ ]based|\bhca_va=|^reg_mr_iova/", re.IGNORECASE)),
    (PERSISTENT, re.compile(r"^reg_mr/persistent_memory/")),
    (HUGE, re.compile(r"\bHUGETLB\b")),
)
_WINDOW_FOLDERS = ("bind_mw", "alloc_mw", "dealloc_mw")
_OUTSIDE = re.compile(
    r"outside|beyond|position=(before|after|across)|place=(before|after|across)|too[-_]long|byte[-_]before"
)
_DEAD_KEYS = re.compile(r"^dereg_mr/|\bdead|\bstale")
_USES = re.compile(r"(?:afterwards )?(?:\w*traffic|receives_in_order|\w+_in_order|send_to_receive)\(")
_STATUS = re.compile(r"SUCCESS|\w+_ERR")


def fault_of_old(record: ResultRecord, line: str, verdict: str, deviation: Deviation | None) -> Fault:
    """The fault behind a verdict and the line that explains it, which is that of `deviation` if there is one."""
    call = _call_in(line) or record["call"]
    of: Mapping[str, Any] = deviation or {}
    smallest = {str(axis): str(label) for axis, label in (of.get("smallest") or {}).items()}
    clause, when = of.get("clause", ""), of.get("when", "")
    of_case = (record["case"], record["call"], call, clause, when, *smallest.values())
    place = smallest.get("place") or smallest.get("position") or ""
    aimed = (record["case"], call, clause, f"place={place}")
    window = record["case"].partition("/")[0] in _WINDOW_FOLDERS or "window" in record["case"]
    kind, answer = kind_in(line, verdict, record["kernel"].get("log", ())), answer_in(line)
    later = record["expected"].get("afterwards")
    later = later if isinstance(later, list) else []
    steps = [str(each.get("call", "")) for each in later if isinstance(each, Mapping)]
    status = _STATUS.fullmatch(answer)
    returned = _RETURNED.search(line)
    operation, flags = _OPERATION.search(call), _FLAGS.search(call)
    seen = _step(record, line, call)
    core = _CORE_SAID in line or (
        call == record["call"] and record["layer"] == _CORE and kind in (FaultKind.REFUSED, FaultKind.WRONG_CODE)
    )
    return Fault(
        kind,
        call=call,
        verb=verb_of(call),
        entry=record["entry"],
        step=int(line.startswith(_AFTERWARDS)),
        operation=operation[1] if operation else smallest.get("op", ""),
        key=WINDOW if window else REGION,
        outside=any(map(_OUTSIDE.search, aimed)),
        dead=any(map(_DEAD_KEYS.search, (record["case"], call))),
        region=tuple(kind for kind, pattern in _REGIONS if any(map(pattern.search, of_case))),
        access=tuple(flags[1].split("|")) if flags else (),
        used=verb_of(call) in REGISTRATIONS and any(map(_USES.match, steps)),
        layer=_CORE if core else str(seen.get("layer", "")),
        errno=answer if answer.startswith("E") else "",
        returned=returned[1] if returned else "",
        statuses=(answer,) if status else tuple(map(str, seen["wc"])) if seen.get("wc") else None,
        expected=_wanted(line),
        seen=_seen(kind, line, call, answer, record["kernel"].get("log", ())),
        site=lasting_site(crash_location(record["kernel"].get("log", ()))) or lasting_site(record["reason"]),
    )


def kind_in(line: str, verdict: str = Verdict.FAIL, log: Sequence[str] = ()) -> FaultKind:
    """The kind of fault of a violation with this verdict, from its line and the kernel's log."""
    if verdict == Verdict.HANG:
        return FaultKind.HUNG
    if verdict == Verdict.CRASH:
        of_process = _DEAD_PROCESS.search(line) and "kernel" not in line
        return FaultKind.PROCESS_DIED if of_process else FaultKind.KERNEL_DIED
    found = next((kind for pattern, kind in _KINDS if pattern.search(line)), FaultKind.OTHER)
    return complaint_kind("\n".join([line, *log])) if found is FaultKind.KERNEL_WARNED else found


def answer_in(line: str) -> str:
    """The errno, code or status that was the answer; empty if the line names none."""
    found = [answer for answer in _ANSWER.findall(line) if answer not in _POINTERS]
    return found[-1] if found else ""


def verb_of(call: str) -> str:
    """The name of the function that a call calls; for a command of the kernel, of the verb that issues it."""
    title = call.partition("(")[0]
    return _OF_COMMAND.get(title.removeprefix(_UVERBS), title) if title.startswith(_UVERBS) else title


def _seen(kind: FaultKind, line: str, call: str, answer: str, log: Sequence[str]) -> tuple[str, ...]:
    if kind in (FaultKind.PROCESS_DIED, FaultKind.KERNEL_DIED, FaultKind.HUNG):
        ended = _SIGNAL.search(line)
        by = (ended[1] or ended[2]) if ended else ""
        return (line.replace(call, "", 1).lstrip(": "), by, "", first_alarm(log), "")
    if kind is FaultKind.OTHER:
        return (re.sub(r"0x[0-9a-f]+|\d+", "#", line.replace(call, "", 1)),)
    return (answer,) if answer else ()


def _wanted(line: str) -> tuple[str, ...]:
    found = _WANTED.search(line)
    return tuple((found[1] or found[2]).split(" or ")) if found else ()


def _step(record: ResultRecord, line: str, call: str) -> Mapping[str, Any]:
    """The observation of the step that failed; empty if the result does not have it."""
    if line.startswith(_AFTERWARDS):
        steps = zip(record["expected"].get("afterwards", ()), record["observed"].get("afterwards", ()), strict=False)
        return next((found for step, found in steps if isinstance(step, dict) and step.get("call") == call), {})
    return record["observed"]


def _call_in(line: str) -> str:
    """The call with which the line begins: with its arguments, or of a sweep without them."""
    text = line.removeprefix(_AFTERWARDS)
    found = _CALL.match(text)
    if not found or (found["title"] not in CALLS and not found["title"].startswith(_UVERBS)):
        return ""
    if not found["arguments"]:
        return found["title"]
    depth = 0
    for end, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and not depth:
            return text[: end + 1]
    return found["title"]
