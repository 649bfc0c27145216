"""Writes the evidence of one violation as lines of text, for all reports: the calls, the expected and the observed
outcome, the layer that returned the result, and the command that reproduces it. Also reads the points of a sweep.

A file of points may come from an untrusted source, so control characters in its texts are replaced.
conformance/sweeps/outcome.py describes the format of points.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.defects import Defect, Severity, Symptom, severity_of
from conformance.defects.symptom import fault_of, later_steps, verb_of
from conformance.errors import format_count
from conformance.judging.sentences import IN_FLIGHT
from conformance.model.printable import plain
from conformance.model.record import Deviation, ResultRecord, SetUp
from conformance.model.set_up import NUMBERS, RIGHTS
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import WIRE
from conformance.results import points
from conformance.results.conclusions import format_counts, format_points
from conformance.sweeps.outcome import OUTSIDE, Outcome, Points
from conformance.verbs import VERBS
from reports.digest import Digest
from reports.expectations import sentence, sentence_of
from reports.kernel_log import decisive
from reports.races import remarks_on
from reports.text import doubtful_row, flat, kinds_of, without_packets

POINT = (
    "A point is one combination of arguments in a case that tries all combinations. The commands explain and run --only"
    " accept the name of a point: CASE#axis=value,axis=value"
)
# What has lines of its own: the later steps, and the deviations among the combinations of a model.
_APART = ("afterwards", "combinations")
_RANGES = {"changed", "missing", "stray"}  # of bytes, in observations
_EXCHANGE = "exchange"  # the events of packets
_OF_EVENT = ("event", "what", "operation", "expected", "seen", "length")
_CALLED = {"layer": "reached"}  # words for keys of observations
# What a program does that posts the same requests on the machine.
_OF_PROGRAMS = (Severity.KERNEL_CRASH, Severity.MEMORY)
_RIGHT = re.compile(r"\bREMOTE_(?:READ|WRITE|ATOMIC)\b")
# What decides how a queue pair answers, in the line about it of a set-up.
_ATTRIBUTE = re.compile(
    rf", ((?:without )?{RIGHTS}(?: [\w|]+)?|(?:{'|'.join(NUMBERS.split())}) \d+)"
)
_VERB = re.compile(rf"\b(?:{'|'.join(name for name, verb in VERBS.items() if verb.command)})(?=\()")
_OF_PACKETS = "each packet has the effect and the answer that the call names"
OF_MODEL = "each point as the model's answer to it says"


def has_points(run: Digest) -> bool:
    """Returns whether any result has points. If so, the report explains points by the text POINT."""
    return any(record["space"] for record in run.results)


def lines(run: Digest, record: ResultRecord, whole_log: bool = True) -> Iterator[str]:
    """Yields lines about a recorded result that is not PASS. Calls are in the order in which the case issues them.
    Unless `whole_log`, of the kernel's log only the decisive lines follow."""
    if record["case"] in run.unrecorded:
        return
    for defect in run.violations.defects_in(record["case"]):
        yield f"defect {defect.fingerprint}, {defect.severity.label}: {defect.title}"
    yield from set_up(record["set_up"])
    yield from call(_at_entry(record["call"], record))
    if packets := asked(record):
        yield f"expected: {packets}"
    else:
        yield from run.once(_expected, record["expected"])
    yield from run.verdicts.quotes(record)
    yield f"observed: {observed(record)}"
    yield from exchange_lines(record)
    yield from (f"observed afterwards: {format_fields(step)}" for step in later(record["observed"]))
    yield from run.once(_deviations, record["deviations"])
    if record["verdict"] in VIOLATIONS:
        yield f"answered by: {answered(run, record)}"
    yield from row_lines(record)
    yield f"reproduce: {record['repro']}"
    yield from remarks_on(record)
    yield from kernel(record["kernel"]["log"], whole_log)
    if confirmed := run.violations.repetitions.text_of(record["case"]):
        yield f"repeated: {confirmed}"


def call(text: str) -> Iterator[str]:
    """Yields a line about a call, and then one for each event of its packets, and for each kind of event."""
    title, packets = without_packets(text)
    yield f"call: {title}"
    yield from (f"  {number}. {event}" for number, event in enumerate(packets, 1))
    yield from (f"  {kind}: {meaning}" for kind, meaning in kinds_of(packets))


def kernel(log: Sequence[str], whole_log: bool) -> Iterator[str]:
    """Yields the lines of the kernel's log, or only the decisive ones."""
    shown = log if whole_log else decisive(log)
    yield from (f"kernel: {text}" for text in shown)
    if more := len(log) - len(shown):
        yield f"kernel: ({format_count(more, 'more line')}; explain --all shows the whole log)"


def of_symptom(run: Digest, symptom: Symptom, whole_log: bool) -> Iterator[str]:
    """Yields lines about one violation: of a point of a sweep, without the other points of its case."""
    if not symptom.deviation:
        yield from lines(run, symptom.record, whole_log)
        return
    yield from run.once(_deviations, [symptom.deviation])
    yield from remarks_on(symptom.record)
    yield f"answered by: {run.violations.answering_of(symptom)}"
    yield from row_lines(symptom.record)
    if confirmed := run.violations.repetitions.text_about(symptom):
        yield f"repeated: {confirmed}"


def expected(symptom: Symptom) -> str:
    """Returns what a violation should have been, in words; empty if it is not recorded."""
    return asked(symptom.record) or sentence_of(symptom.expected)


def calls(symptom: Symptom) -> list[str]:
    """Returns the judged call, and those after it up to the violation; all of them if something died at one of them."""
    point, step = symptom.deviation, symptom.fault.step
    if point:
        judged, later = point["call"], point["afterwards"]
    else:
        judged = symptom.record["call"]
        later = [str(later_step["call"]) for later_step in later_steps(symptom.record["expected"])]
    is_known = step or symptom.verdict == Verdict.FAIL
    shown = [judged or symptom.call, *(later[:step] if is_known else later)]
    return [_at_entry(text, symptom.record) for text in shown]


def _at_entry(text: str, record: ResultRecord) -> str:
    """Names the calls between packets as the entry of the case has issued them."""
    if record["entry"] != "uverbs":
        return text
    return _VERB.sub(lambda verb: f"uverbs {VERBS[verb[0]].command}", text)


def preconditions(defect: Defect, symptom: Symptom) -> str:
    """Returns a sentence about what a remote peer needs to trigger a defect; empty if no peer can trigger it."""
    if not severity_of(symptom).advice:
        return ""
    objects = "\n".join((symptom.deviation or symptom.record)["set_up"]["given"])
    rights = ", ".join(dict.fromkeys(_RIGHT.findall(objects)))
    if ": queue pair, UD" in objects:
        who = "sends to the queue pair"
    else:
        who = "is the connected peer of the queue pair"
    granted = f"; in this case the program had granted {rights}" if rights else ""
    if attributes := dict.fromkeys(_ATTRIBUTE.findall(objects)):
        granted += f"; its queue pair has {', '.join(attributes)}"
    local = (
        violation.name for violation in defect.symptoms if severity_of(violation) in _OF_PROGRAMS
    )
    also = ""
    if case := next(local, ""):
        also = f"; a program without privileges on the machine triggers it, too ({case})"
    return f"the peer {who}{granted}{also}"


def _expected(expected: Mapping[str, Any]) -> list[str]:
    afterwards = (f"expected afterwards: {format_fields(step)}" for step in later(expected))
    return [f"expected: {format_fields(own(expected))}", *afterwards]


def _deviations(deviations: Sequence[Deviation]) -> list[str]:
    return [line for item in deviations for line in deviation(item)]


def observed(record: ResultRecord) -> str:
    """Returns the outcome of the judged call, or what stands in its place."""
    return seen(record) or format_fields(own(record["observed"]))


def seen(record: ResultRecord) -> str:
    """Returns what happened instead of an outcome or, of a model, the numbers of its points by verdict; else empty."""
    if _is_of_model(record):
        return format_counts(record["pairs"].get("points", {}))
    return died(record)


def _is_of_model(record: ResultRecord) -> bool:
    """Whether the points of a model were judged: the outcome of the call that tries them says nothing about them."""
    return bool(record["pairs"]["parameters"] and record["observed"])


def died(record: ResultRecord) -> str:
    """Returns what happened instead of an outcome: what died or hung, the kernel's first message, and the place. Empty if
    an outcome was observed."""
    if record["verdict"] not in (Verdict.CRASH, Verdict.HANG) or record["observed"]:
        return ""
    what, *_, alarm, place = (*fault_of(record).seen, "", "", "", "")[:5]
    return f"{what}: {'; '.join(filter(None, (alarm, place)))}".removesuffix(": ")


def asked(record: ResultRecord) -> str:
    """Returns what the documents ask of an exchange of packets, or of the points of a model; empty for other calls."""
    if _is_of_model(record):
        return OF_MODEL
    if verb_of(record["call"]) != WIRE:
        return ""
    return f"{'the kernel goes on, and ' if died(record) else ''}{_OF_PACKETS}"


def set_up(data: SetUp) -> Iterator[str]:
    """Yields lines about the objects and about the calls before the judged call."""
    yield from (f"given: {line}" for line in data["given"])
    yield from (f"before: {line}" for line in data["before"])


def deviation(deviation: Deviation) -> Iterator[str]:
    """Yields lines about a group of points and its smallest point; or the row of a random sequence."""
    if deviation["row"]:
        yield f"{deviation['when']}, as a row of a table:"
        yield from deviation["row"].rstrip().splitlines()
        return
    yield f"{format_points(deviation)}: {deviation['observed']}"
    if deviation["smallest"]:
        yield f"the smallest: {', '.join(f'{axis}={label}' for axis, label in deviation['smallest'].items())}"
    yield from (f"  {line}" for line in set_up(deviation["set_up"]))
    if deviation["call"]:
        yield f"  call: {deviation['call']}"
    if deviation["expected"]:
        yield f"  expected by {' '.join(deviation['rules'])}: {sentence_of(deviation['expected'])}"
    yield from (f"  afterwards: {line}" for line in deviation["afterwards"])
    if deviation["repro"]:
        yield f"  reproduce: {deviation['repro']}"


def answered(run: Digest, record: ResultRecord) -> str:
    """Returns the layer that returned the violating result, and how this is known; of several, the most severe
    counts."""
    own_ones = run.violations.symptoms.get(record["case"])
    if own_ones:
        return str(run.violations.answering_of(min(own_ones, key=_rank)))
    return record["layer"] or "not known"


def _rank(symptom: Symptom) -> int:
    return severity_of(symptom).rank


def location(record: ResultRecord) -> str:
    """Returns the file and the line of the case's row; empty if they are not known."""
    source = record["source"]
    if source.get("file"):
        return f"{source.get('file', '')}:{source.get('line', '')}"
    return ""


def row_lines(record: ResultRecord) -> Iterator[str]:
    yield f"table: {location(record)}"
    if doubt := doubtful_row(record):
        yield f"note: {doubt}"


def own(data: Mapping[str, Any]) -> dict[str, Any]:
    apart = (*_APART, _EXCHANGE) if _has_exchange(data) else _APART
    return {_CALLED.get(name, name): value for name, value in data.items() if name not in apart}


def later(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns the fields of each step after the judged call."""
    steps = data.get("afterwards")
    if isinstance(steps, list):
        return [own(step) for step in steps if isinstance(step, Mapping)]
    return []


def format_fields(data: Mapping[str, Any]) -> str:
    """Returns the data as one line, without empty values."""
    return "; ".join(f"{name} {text}".strip() for name, text in fields(data)) or "nothing"


def fields(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Returns the names and texts of an outcome; what is expected is one sentence without a name."""
    if text := sentence({name: value for name, value in data.items() if name != "call"}):
        called = [("", str(data["call"]))] if data.get("call") else []
        return [*called, ("", text)]
    return [(name, text) for name, text in flat(_in_words(data)) if text]


def _in_words(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an observation with words for ranges of bytes and for what was found of requests in flight; without a layer
    if none was reached."""
    worded = {name: value for name, value in data.items() if (name, value) != ("reached", "none")}
    for name in _RANGES & worded.keys():
        if (
            isinstance(worded[name], list)
            and (found := list(map(_range, worded[name])))
            and all(found)
        ):
            worded[name] = "; ".join(found)
    returned = worded.get("returned")
    if isinstance(returned, str) and returned in IN_FLIGHT:
        worded["returned"] = f"{returned}: {IN_FLIGHT[returned]}"
    return worded


def _range(value: Any) -> str:
    """Returns a range of bytes in words: `[offset, size]` or `[memory, offset, size]`; empty for another value."""
    if not isinstance(value, list) or len(value) not in (2, 3) or not isinstance(value[-1], int):
        return ""
    *memory, offset, size = value
    where = f"{memory[0]} + {offset}" if memory else f"offset {offset}"
    return f"{format_count(size, 'byte')} at {where}"


def exchange_lines(record: ResultRecord) -> Iterator[str]:
    yield from (
        f"  {number}. {text}" for number, text in enumerate(exchanges(record["observed"]), 1)
    )


def exchanges(observed: Mapping[str, Any]) -> list[str]:
    """Returns a line for each event of an exchange of packets: what was awaited and what came."""
    return list(map(_exchange, observed[_EXCHANGE])) if _has_exchange(observed) else []


def _has_exchange(data: Mapping[str, Any]) -> bool:
    events = data.get(_EXCHANGE)
    return isinstance(events, list) and all(
        isinstance(event, Mapping) and isinstance(event.get("expected"), list) for event in events
    )


def _exchange(event: Mapping[str, Any]) -> str:
    came, awaited = event.get("seen", ""), " or ".join(map(str, event["expected"]))
    rest = {name: value for name, value in event.items() if name not in _OF_EVENT and value}
    amount = rest.pop("data", "")
    of_memory = f" with {amount} bytes of the memory" if amount else ""
    further = f" ({format_fields(rest)})" if rest else ""
    return f"{event.get('event', '')}: {event.get('what', '')} {came}{of_memory}; expected {awaited}{further}"


def read_points(directory: Path, record: ResultRecord) -> Points | None:
    """Returns the points of a sweep's result; None if the result has no points, or if their file is not next to the
    results. Raises UserError if the file is invalid or outside the directory of the results."""
    if not record["points_file"] or not points.points_path(directory, record).exists():
        return None
    return points.read_points(directory, record, plain)


def inside(swept: Points) -> Iterator[tuple[int, Outcome]]:
    """Yields each point that belongs to the space, with its outcome."""
    return (
        (point, swept.outcomes[outcome_number])
        for point, outcome_number in enumerate(swept.index)
        if outcome_number != OUTSIDE
    )
