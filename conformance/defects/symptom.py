"""Finds the symptoms in a result: one for a row, and one for each deviation of a sweep. cause.py finds their causes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from conformance.judging.kernel_alarms import first_alarm, site_in
from conformance.model.fault import (
    Effect,
    Fault,
    FaultKind,
)
from conformance.model.record import Deviation, ResultRecord
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.verbs import VERBS


class KernelSite(NamedTuple):
    """The function in which the kernel died, its caller, and the module of each; see Fault.site."""

    function: str
    caller: str
    own_module: str
    callers_module: str

    @property
    def module(self) -> str:
        return self.own_module or self.callers_module

    @property
    def lasting(self) -> tuple[str, ...]:
        """The names that identify the site, without functions that are called from everywhere, such as memcpy."""
        generic = self.caller and self.module and not self.own_module
        if generic:
            return (self.caller,)
        return tuple(filter(None, (self.function, self.caller)))

    def __str__(self) -> str:
        if self.caller:
            text = f"{self.function}, called by {self.caller}"
        else:
            text = self.function
        if self.module:
            return f"{text} ({self.module})"
        return text


def site_of(fault: Fault) -> KernelSite | None:
    """Returns the location at which the kernel died or reported an error; None if unknown."""
    if fault.site:
        return KernelSite(*fault.site)
    return None


_UVERBS = "uverbs "
_SPECIAL = re.compile(r": memory, (?!anonymous)|: dma-buf|ON_DEMAND|ZERO_BASED|HUGETLB|\b[GT]iB\b")
# For each command of the kernel, the first verb that issues the command.
_OF_COMMAND: Mapping[str, str] = {
    verb.command: verb.name for verb in reversed(list(VERBS.values())) if verb.command
}


@dataclass(frozen=True)
class Symptom:
    """One violation in one result. `line` is the fault as a sentence, and `expected` is what the documents require
    instead. `deviation` is a group of points of a sweep, or a random sequence; None for other results."""

    record: ResultRecord
    rules: tuple[str, ...]
    verdict: str
    fault: Fault
    line: str
    expected: str
    repro: str
    deviation: Deviation | None = None

    @property
    def points(self) -> int:
        """The number of deviating points of a sweep; 1 for other results."""
        if self.deviation:
            return int(self.deviation.get("count") or 1)
        return 1

    @property
    def smallest(self) -> Mapping[str, str]:
        """The labels of the smallest deviating point of a sweep; empty for other results."""
        if self.deviation:
            point = self.deviation.get("smallest")
        else:
            point = None
        return {str(axis): str(label) for axis, label in (point or {}).items()}

    @property
    def case(self) -> str:
        return self.record["case"]

    @property
    def call(self) -> str:
        """The call that failed, with its arguments if they are known."""
        return self.fault.call or self.record["call"]

    @property
    def is_zero_based(self) -> bool:
        """Whether the set-up, the judged call or a deviating point has ZERO_BASED."""
        record = self.record
        return any(
            "ZERO_BASED" in str(part)
            for part in (self.repro, record["call"], record["set_up"], record["deviations"])
        )

    @property
    def special_objects(self) -> int:
        """The number of properties of the objects that most cases do not have: another memory than anonymous, regions on
        demand, addresses of their own, sizes of gibibytes."""
        set_up = (self.deviation or self.record).get("set_up", {})
        return len(_SPECIAL.findall(" ".join([*set_up.get("given", ()), self.call])))

    @property
    def verb(self) -> str:
        """The name of the called verb, which is the same at both entries."""
        return self.fault.verb

    @property
    def name(self) -> str:
        """The id of the case, with the smallest point of a sweep, in the form that `--only` accepts."""
        if self.point:
            return f"{self.case}#{self.point}"
        return self.case

    @property
    def point(self) -> str:
        """The smallest deviating point of a sweep, as a text; empty for other results."""
        return ",".join(f"{axis}={label}" for axis, label in self.smallest.items())


def symptoms_of(record: ResultRecord) -> Iterator[Symptom]:
    """Yields the symptoms of a result that has every key of record_shape.RESULT; none unless it is a violation."""
    if record["verdict"] not in VIOLATIONS:
        return
    deviations = [
        deviation
        for deviation in record.get("deviations", ())
        if deviation.get("verdict", Verdict.FAIL) in VIOLATIONS
    ]
    covered = {rule for deviation in deviations for rule in deviation["rules"]}
    yield from (_of_deviation(record, deviation) for deviation in deviations)
    if not deviations or record.get("alarms") or _is_of_whole(record, deviations):
        rules = tuple(rule for rule in violated_rules(record) if rule not in covered) or tuple(
            record["rules"],
        )
        fault = fault_of(record)
        expected = _expected(record, fault)
        yield Symptom(
            record,
            rules,
            record["verdict"],
            fault,
            record["reason"],
            expected,
            record["repro"],
        )


def later_steps(data: Mapping[str, object]) -> list[Mapping[str, Any]]:
    """Returns the steps after the judged call, from `expected` or `observed` of a result."""
    steps = data.get("afterwards")
    if isinstance(steps, list):
        return [step for step in steps if isinstance(step, Mapping)]
    return []


def violated_rules(record: ResultRecord) -> list[str]:
    """Returns the rules that a result, or a point of a sweep, violates. Waivers are ignored."""
    of_points = record.get("rule_verdicts", {})
    return [
        rule for rule in record["rules"] if of_points.get(rule, record["verdict"]) in VIOLATIONS
    ]


def _is_of_whole(record: ResultRecord, deviations: list[Deviation]) -> bool:
    """Whether a fault belongs to no deviation of a sweep: the kernel complained, or something was left behind; or the
    process or the kernel died or hung, and no deviation has this verdict."""
    kinds = {deviation.get("fault", {}).get("kind") for deviation in deviations}
    fault = fault_of(record)
    if fault.effect in (Effect.KERNEL_ALARM, Effect.KEPT) and fault.kind not in kinds:
        return True
    died = record["verdict"] in (Verdict.CRASH, Verdict.HANG)
    return died and not any(
        deviation.get("row") or deviation.get("verdict") == record["verdict"]
        for deviation in deviations
    )


def _of_deviation(record: ResultRecord, deviation: Deviation) -> Symptom:
    return Symptom(
        record,
        tuple(deviation["rules"]),
        _verdict(record, deviation),
        fault_of(record, deviation),
        deviation.get("observed") or record["reason"],
        str(deviation.get("expected", "")),
        deviation.get("repro") or record["repro"],
        deviation,
    )


def fault_of(record: ResultRecord, deviation: Deviation | None = None) -> Fault:
    """Returns the fault of a violation. If a result of an older version has no fault, the fault is derived from the
    verdict and the kernel's log."""
    data = (record if deviation is None else deviation).get("fault")
    if data:
        return Fault.of_data(data)
    log, call = record["kernel"].get("log", ()), record["call"]
    if deviation:
        line = deviation.get("observed")
    else:
        line = ""
    kinds = {Verdict.CRASH: FaultKind.KERNEL_DIED, Verdict.HANG: FaultKind.HUNG}
    kind = kinds.get(Verdict(_verdict(record, deviation)), FaultKind.OTHER)
    seen = (line or record["reason"], "", "", first_alarm(log), "")
    return Fault(
        kind,
        call=call,
        verb=verb_of(call),
        entry=record["entry"],
        seen=seen,
        site=site_in(log),
    )


def verb_of(call: str) -> str:
    """Returns the name of the called function; for a command of the kernel, the name of the verb that issues it."""
    title = call.partition("(")[0]
    if title.startswith(_UVERBS):
        return _OF_COMMAND.get(title.removeprefix(_UVERBS), title)
    return title


def _verdict(record: ResultRecord, deviation: Deviation | None) -> str:
    if deviation is None:
        return record["verdict"]
    # The deviation of a random sequence in which the guest died has no verdict.
    if deviation.get("row"):
        died = record["verdict"]
    else:
        died = Verdict.FAIL
    return str(deviation.get("verdict", died) or died)


def _expected(record: ResultRecord, fault: Fault) -> str:
    expected = record["expected"]
    if fault.later:
        expected = next(
            (step for step in later_steps(expected) if step.get("call") == fault.call),
            {},
        )
    codes = [
        item
        for key in ("errno", "code")
        if isinstance(expected.get(key), list)
        for item in expected[key]
    ]
    return " ".join(filter(None, (str(expected.get("outcome", "")), " or ".join(map(str, codes)))))
