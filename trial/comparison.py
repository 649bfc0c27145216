"""Issues the same calls on the reference and on a device, as steps of the table language, and compares the results. The
device must return what the reference returns. sequences.py chooses the calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TypeVar

from conformance import judging
from conformance.bench.interface import Bench
from conformance.execution.context import CaseContext
from conformance.execution.procedure import set_up
from conformance.execution.steps import STEPS
from conformance.model.case import Case, Expectation, Given, Step
from conformance.model.fault import FaultData
from conformance.model.observation import Observation
from conformance.model.verdict import Verdict
from conformance.tables.arguments import Names, product, read_step
from conformance.tables.given import read_given
from conformance.verbs import ENUMS
from conformance.yamldoc.nodes import Location, Node
from conformance.yamldoc.parsing import read_bytes
from conformance.yamldoc.reader import Reader
from trial.nearest import ENDED, nearest_rule

_Read = TypeVar("_Read")
_NOWHERE = Location("sequence", 1, 1)
_ANY_CODE = ENUMS["ibv_rereg_mr_err_code"].short_names
_MEMORY = "memory: {buf: {kind: anonymous, size: 4 pages}}"

Text = Mapping[str, str]
Objects = Mapping[str, Text]  # sections of `given` with objects by name
TakenStep = tuple[str, Text, str]  # a call, its arguments, and the outcome on the reference


@dataclass(frozen=True)
class Divergence:
    """A difference between the results of the device and of the reference. `given` has the objects of the sequence.
    `taken` has its steps; only the results of the last step differ. Divergences with equal signatures probably have the
    same cause. `rule` is the nearest rule (nearest.py)."""

    entry: str
    given: Objects
    taken: tuple[TakenStep, ...]
    fault: str
    signature: str
    rule: str
    found: FaultData | None = None

    @property
    def row(self) -> str:
        return row_of(self.entry, self.given, self.taken, self.rule)


@dataclass
class Subject:
    """The two benches of a comparison, of a device and of the reference, at one entry.

    `has` is the set of the device's capabilities, and `known` the set of signatures of divergences that were reported.
    `begins` is called before each step, so that the step is known if the device dies during the step. The arguments are
    the steps up to this step as a row, and the nearest rule. `left_behind` has the objects that could not be released
    after sequences without a divergence."""

    reference: Bench
    device: Bench
    has: frozenset[str]
    entry: str = "libibverbs"
    known: set[str] = field(default_factory=set)
    begins: Callable[[str, str], None] = lambda row, rule: None
    left_behind: set[str] = field(default_factory=set)
    sequences: int = 0
    steps: int = 0


class Comparison:
    """One sequence in progress on both benches."""

    def __init__(self, subject: Subject, given: Objects) -> None:
        """Sets up the same objects on both benches. Raises SetupRefused."""
        self.subject, self.given = subject, given
        self.taken: list[TakenStep] = []
        self.divergence: Divergence | None = None
        self._cleanup = ExitStack()
        spec, self._names = _read_given(given_text(given))
        self._contexts: list[CaseContext] = []
        step = Step("ibv_dereg_mr", {}, Expectation("open"))
        try:
            for bench in (subject.reference, subject.device):
                context = CaseContext(_case(subject.entry, spec, step), bench)
                self._cleanup.callback(context.cleanup.close)
                set_up(context)
                self._contexts.append(context)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Releases all objects. Windows are released first, because they may be bound to regions."""
        for context in self._contexts:
            for name, window in list(context.windows.items()):
                if window.dealloc().value == 0:
                    del context.windows[name]
        self._cleanup.close()
        if self._contexts and self.divergence is None:
            self.subject.left_behind.update(self._contexts[-1].left_behind)

    def take(self, call: str, arguments: Text) -> str:
        """Executes one step on both benches. Returns the outcome on the reference. Sets `divergence` if the outcome on
        the device is different."""
        step = _read_step(call, arguments, self._names)
        self.subject.steps += 1
        taken = [*self.taken, (call, arguments, "open")]
        self.subject.begins(
            row_of(self.subject.entry, self.given, taken),
            nearest_rule(call, arguments),
        )
        expected, observed = (STEPS[call](context, step) for context in self._contexts)
        works = self._judged(step, "success", expected).verdict == Verdict.PASS
        if works:
            outcome = "success"
        else:
            outcome = "refused"
        self.taken.append((call, arguments, outcome))
        judgement = self._judged(step, outcome, observed)
        if judgement.verdict != Verdict.PASS:
            key = arguments.get("rkey", arguments.get("lkey", arguments.get("mw", "")))
            about = (arguments.get("op"), key, arguments.get("flags"), arguments.get("advice"))
            rule = nearest_rule(
                call,
                arguments,
                outcome,
                self._bound(arguments),
                self._ended(arguments),
            )
            signature = " ".join(filter(None, (call, *about, outcome)))
            if judgement.fault:
                fault = judgement.fault.as_data()
            else:
                fault = None
            where = (self.subject.entry, self.given, tuple(self.taken))
            self.divergence = Divergence(*where, judgement.reason, signature, rule, fault)
        elif works:
            self._names = {**self._names, **product(step)}
        return outcome

    def _bound(self, arguments: Text) -> str:
        """Returns the access flags of the window's latest bind if the step uses the rkey of a window; else an empty
        text."""
        window = arguments.get("rkey", "").partition(".")[0]
        binds = [
            text["access"]
            for call, text, _ in self.taken
            if "bind_mw" in call and text["mw"] == window
        ]
        if binds:
            return binds[-1]
        return ""

    def _ended(self, arguments: Text) -> str:
        """Returns the call that released the object whose rkey the step uses; an empty text if the object exists."""
        name = arguments.get("rkey", "").partition(".")[0]
        for call, text, outcome in reversed(self.taken):
            if call == "ibv_reg_mr" and name == "new":
                break
            if call in ENDED and name in text.values() and outcome == "success":
                return call
        return ""

    def _judged(self, step: Step, outcome: str, seen: Observation) -> judging.Judgement:
        refused = outcome == "refused"
        then = Expectation(
            outcome,
            errno=("any",) if refused else (),
            code=_ANY_CODE if refused else (),
        )
        return judging.judge(_case(self.subject.entry, Given(), replace(step, then=then)), [], seen)


def shortest(subject: Subject, divergence: Divergence) -> Divergence:
    """Returns the divergence without the steps and objects that it does not need."""
    number = 0
    while number < len(divergence.taken) - 1:
        fewer = [*divergence.taken[:number], *divergence.taken[number + 1 :]]
        replayed = _replayed(subject, divergence.given, fewer)
        if replayed and replayed.signature == divergence.signature:
            divergence = replayed
        else:
            number += 1
    needed = _needed(divergence.given, divergence.taken)
    return _replayed(subject, needed, divergence.taken) or divergence


def _replayed(subject: Subject, sections: Objects, taken: Sequence[TakenStep]) -> Divergence | None:
    """Repeats the calls, and returns the divergence; None if there is no divergence or a call cannot be issued."""
    comparison = Comparison(subject, sections)
    try:
        for call, arguments, _ in taken:
            comparison.take(call, arguments)
            if comparison.divergence:
                break
    except (LookupError, ValueError):  # the step needs an object that an omitted step would create
        return None
    finally:
        comparison.close()
    return comparison.divergence


def row_of(entry: str, sections: Objects, taken: Sequence[TakenStep], rule: str = "") -> str:
    """Returns a sequence as a row of a table, with only the objects that it needs. `rule` is the rule of the last
    step."""
    first, *later = taken
    rule = rule or nearest_rule(*taken[-1][:2])
    lines = [
        "- id: found-by-random-sequences",
        f"  rules: [{rule}]  # the nearest rule; another rule may be violated",
    ]
    lines += [f"  entries: [{entry}]"] if entry != "libibverbs" else []
    lines += [
        "  given:",
        *("    " + line for line in given_text(_needed(sections, taken)).splitlines()),
    ]
    lines += [f"  call: {first[0]}", f"  when: {flow(first[1])}", f"  then: {first[2]}"]
    lines += ["  afterwards:"] if later else []
    lines += [
        f"    - {flow({'call': call, **arguments, 'then': outcome})}"
        for call, arguments, outcome in later
    ]
    return "\n".join(lines) + "\n"


def _needed(sections: Objects, taken: Sequence[TakenStep]) -> Objects:
    written = " ".join(text for _, arguments, _ in taken for text in arguments.values())
    named = set(written.replace(".", " ").replace(",", " ").replace("}", " ").split())
    needed = {}
    for section, objects in sections.items():
        needed[section] = {name: text for name, text in objects.items() if name in named}
    return needed


def given_text(sections: Objects) -> str:
    """Returns the objects in the form of a row's `given`."""
    lines = [_MEMORY]
    for section, objects in sections.items():
        if objects:
            lines.append(
                f"{section}: [{', '.join(objects)}]"
                if section == "pds"
                else f"{section}: {flow(objects)}",
            )
    return "\n".join(lines) + "\n"


def flow(fields: Text) -> str:
    """Returns a mapping of YAML on one line."""
    return f"{{{', '.join(f'{key}: {text}' for key, text in fields.items())}}}"


def _case(entry: str, given: Given, step: Step) -> Case:
    return Case("sequence", step.call, ("REG-01",), (), entry, given, step, (), _NOWHERE)


def _read_given(text: str) -> tuple[Given, Names]:
    return _read(text, "given", lambda reader, node: read_given(reader, (node,)))


def _read_step(call: str, arguments: Text, names: Names) -> Step:
    return _read(
        flow(arguments),
        "step",
        lambda reader, node: read_step(reader, call, node, None, node, names),
    )


def _read(text: str, of: str, read: Callable[[Reader, Node], _Read]) -> _Read:
    reader = Reader()
    value = read(reader, read_bytes(text.encode(), of))
    if reader.mistakes:
        raise ValueError("; ".join(map(str, reader.mistakes)))
    return value
