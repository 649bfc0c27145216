"""The symptoms in a result: one for a row, one for each deviation of a sweep. Not for grouping them (cause.py)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.defects.fault import Fault, answer_in, fault_in
from conformance.model.record import Deviation, ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.model.vocabulary import CALLS
from conformance.verbs import VERBS

_UVERBS = "uverbs "
_AFTERWARDS = "afterwards "
# The first verb that the kernel's command implements stands for the command.
_OF_COMMAND: Mapping[str, str] = {verb.command: verb.name for verb in reversed(list(VERBS.values())) if verb.command}
_CALL = re.compile(r"(?P<title>(?:uverbs )?\w+)(?P<arguments>\()?")


@dataclass(frozen=True)
class Symptom:
    """One thing that went wrong in one result.

    `call` is the step that failed, with its arguments if they are known, and `verb` its name, which is the same at both
    entries; `judged` is the judged call of the case. `line` tells what came, `answer` is the errno, code or status in
    it.
    Of a sweep, `points` is the number of its points, `when` and `clause` are the formula and the clause, and `smallest`
    the labels of the smallest point, as in `deviation`; of other results `points` is 1 and these are empty.
    """

    record: ResultRecord
    rules: tuple[str, ...]
    verdict: str
    fault: Fault
    call: str
    verb: str
    line: str
    answer: str
    expected: str
    repro: str
    points: int = 1
    when: str = ""
    clause: str = ""
    smallest: Mapping[str, str] = field(default_factory=dict)
    deviation: Deviation | None = None

    @property
    def case(self) -> str:
        """The id of the case."""
        return self.record["case"]

    @property
    def judged(self) -> str:
        """The judged call of the case as text."""
        return self.record["call"]

    @property
    def name(self) -> str:
        """The case, with the smallest point of a sweep: what `--only` takes."""
        labels = ",".join(f"{axis}={label}" for axis, label in self.smallest.items())
        return f"{self.case}#{labels}" if labels else self.case


def symptoms_of(record: ResultRecord) -> Iterator[Symptom]:
    """The symptoms of a result that has every key of record_shape.RESULT; none unless it is a violation."""
    if record["verdict"] not in VIOLATIONS:
        return
    own = [each for each in record.get("deviations", ()) if each.get("verdict", Verdict.FAIL) in VIOLATIONS]
    covered = {rule for each in own for rule in each["rules"]}
    yield from (_of_deviation(record, each) for each in own)
    if not own or record.get("alarms") or _kernel_died(record, own):
        rules = tuple(rule for rule in violated_rules(record) if rule not in covered) or tuple(record["rules"])
        yield _symptom(record, rules, record["verdict"], record["reason"], _expected(record), record["repro"])


def later_steps(data: Mapping[str, object]) -> list[Mapping[str, Any]]:
    """The steps after the judged call, in `expected` or in `observed` of a result."""
    steps = data.get("afterwards")
    return [each for each in steps if isinstance(each, Mapping)] if isinstance(steps, list) else []


def violated_rules(record: ResultRecord) -> list[str]:
    """The rules of a result on which its raw verdict is a violation; of a sweep, those whose points violate them."""
    of_points = record.get("rule_verdicts", {})
    return [rule for rule in record["rules"] if of_points.get(rule, record["verdict"]) in VIOLATIONS]


def _kernel_died(record: ResultRecord, deviations: list[Deviation]) -> bool:
    """Whether a sweep ended with a death that none of its deviations is about."""
    died = record["verdict"] in (Verdict.CRASH, Verdict.HANG)
    return died and not any(each.get("row") for each in deviations)


def _of_deviation(record: ResultRecord, each: Deviation) -> Symptom:
    line = each.get("observed") or record["reason"]
    died = record["verdict"] if each.get("row") else Verdict.FAIL  # a random sequence in which the guest died
    smallest = {str(axis): str(label) for axis, label in (each.get("smallest") or {}).items()}
    return _symptom(
        record,
        tuple(each["rules"]),
        str(each.get("verdict", died) or died),
        line,
        str(each.get("expected", "")),
        each.get("repro") or record["repro"],
        int(each.get("count") or 1),
        "" if each.get("row") else each["when"],
        each.get("clause", ""),
        smallest,
        each,
    )


def _symptom(
    record: ResultRecord,
    rules: tuple[str, ...],
    verdict: str,
    line: str,
    expected: str,
    repro: str,
    points: int = 1,
    when: str = "",
    clause: str = "",
    smallest: Mapping[str, str] | None = None,
    deviation: Deviation | None = None,
) -> Symptom:
    call = _call_in(line) or record["call"]
    return Symptom(
        record,
        rules,
        verdict,
        fault_in(line, verdict),
        call,
        verb_of(call),
        line,
        answer_in(line),
        expected,
        repro,
        points,
        when,
        clause,
        smallest or {},
        deviation,
    )


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


def verb_of(call: str) -> str:
    """The name of what a call calls; of a command of the kernel, the verb that makes it."""
    title = call.partition("(")[0]
    return _OF_COMMAND.get(title.removeprefix(_UVERBS), title) if title.startswith(_UVERBS) else title


def _expected(record: ResultRecord) -> str:
    """What the documents require of the step that failed, in short; empty if it cannot be told."""
    expected = record["expected"]
    if record["reason"].startswith(_AFTERWARDS):
        call = _call_in(record["reason"])
        expected = next((each for each in later_steps(expected) if each.get("call") == call), {})
    codes = [each for key in ("errno", "code") if isinstance(expected.get(key), list) for each in expected[key]]
    return " ".join(filter(None, (str(expected.get("outcome", "")), " or ".join(map(str, codes)))))
