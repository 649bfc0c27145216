"""Random sequences on a bench at one of its entries, and what was observed of them, as a case records it.

Hypothesis is loaded here, when it is needed, and nowhere else outside of sequences.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from conformance.bench.interface import Bench
from conformance.errors import UserError
from conformance.execution.runner import Progress, no_progress
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.observation import DivergenceData, Observation
from reference.bench import ReferenceBench
from trial.comparison import Divergence, Subject

# Where sequences begin if no seed is given: those of a seed are the same again in every run.
FIRST_SEED = 1

Over = Callable[[Subject], bool]


def for_seconds(seconds: float) -> Over:
    """Over so many seconds after it is first asked; what has been found by then is still shrunk."""
    until: list[float] = []  # the clock runs once Hypothesis is loaded, which takes an emulated guest long

    def over(subject: Subject) -> bool:
        if not until:
            until.append(time.monotonic() + seconds)
        return time.monotonic() >= until[0]

    return over


def for_sequences(number: int) -> Over:
    """Over after so many sequences, however long they take."""
    return lambda subject: subject.sequences >= number


def subject_of(bench: Bench, capabilities: Capabilities, entry: str) -> Subject:
    """A device's bench beside a reference that keeps everything."""
    known = {**capabilities.declared, **capabilities.offered[entry]}
    return Subject(ReferenceBench(), bench, frozenset(name for name, there in known.items() if there), entry)


def divergences(subject: Subject, seed: int, over: Over) -> Iterator[Divergence]:
    """Each divergence once, shrunk. Raises UserError (status 3) where Hypothesis is missing."""
    try:
        from trial.sequences import search
    except ImportError as error:
        hint = "install python3-hypothesis"
        raise UserError(f"random sequences need Hypothesis ({error})", hint=hint, status=3) from error
    yield from search(subject, seed, lambda: over(subject))


def observe(
    case: Case, bench: Bench, capabilities: Capabilities, over: Over, seed: int, progress: Progress = no_progress,
) -> Observation:  # fmt: skip
    """What random sequences at a case's entry give: `differences` are judged like those of any other case.

    `progress` is told before each step, with the sequence so far as a row and the nearest rule.
    """
    subject = subject_of(bench, capabilities, case.entry)

    def begins(row: str, rule: str) -> None:
        progress(f"sequence {subject.sequences} from seed {seed}", subject.sequences, row=row, rule=rule)

    subject.begins = begins
    found = list(divergences(subject, seed, over))
    observation: Observation = {
        "rc": None, "returned": "differs" if found else "0", "errno": "", "layer": "device",
        "seed": seed, "sequences": subject.sequences, "steps": subject.steps,
    }  # fmt: skip
    if found:
        observation["differences"] = [divergence.fault for divergence in found]
        observation["divergences"] = [as_data(divergence) for divergence in found]
    if subject.left_behind:
        observation["left_behind"] = sorted(subject.left_behind)
    return observation


def as_data(divergence: Divergence) -> DivergenceData:
    """A divergence as a result has it; `row` can be put into a table."""
    return {"when": divergence.signature, "rule": divergence.rule, "fault": divergence.fault, "row": divergence.row}
