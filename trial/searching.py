"""Searches for divergences with random sequences on a bench, at one entry, and records them as a case's observation.
Besides sequences.py, only this module imports Hypothesis, and only when it is needed."""

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

# The first seed if none is given. The same seed makes the same sequences in every run.
FIRST_SEED = 1

Over = Callable[[Subject], bool]


def for_seconds(seconds: float) -> Over:
    """Ends a search some seconds after its first call. A divergence that was found by then is still shrunk."""
    until: list[float] = []  # set at the first call, because importing Hypothesis takes long in an emulated guest

    def over(subject: Subject) -> bool:
        if not until:
            until.append(time.monotonic() + seconds)
        return time.monotonic() >= until[0]

    return over


def for_sequences(number: int) -> Over:
    """Ends a search after a number of sequences, however long they take."""
    return lambda subject: subject.sequences >= number


def subject_of(bench: Bench, capabilities: Capabilities, entry: str) -> Subject:
    """Returns a device's bench together with an unbroken reference."""
    known = {**capabilities.declared, **capabilities.offered[entry]}
    return Subject(ReferenceBench(), bench, frozenset(name for name, present in known.items() if present), entry)


def divergences(subject: Subject, seed: int, over: Over) -> Iterator[Divergence]:
    """Yields each divergence once, shrunk. Raises UserError (status 3) if Hypothesis is missing."""
    try:
        from trial.sequences import search
    except ImportError as error:
        hint = "install python3-hypothesis"
        raise UserError(f"random sequences need Hypothesis ({error})", hint=hint, status=3) from error
    yield from search(subject, seed, lambda: over(subject))


def observe(
    case: Case, bench: Bench, capabilities: Capabilities, over: Over, seed: int, progress: Progress = no_progress
) -> Observation:
    """Returns the observation of random sequences at a case's entry. `progress` is called before each step, with the
    sequence so far as a row and the nearest rule."""
    subject = subject_of(bench, capabilities, case.entry)

    def begins(row: str, rule: str) -> None:
        progress(f"sequence {subject.sequences} from seed {seed}", subject.sequences, row=row, rule=rule)

    subject.begins = begins
    found = list(divergences(subject, seed, over))
    observation: Observation = {
        "rc": None,
        "returned": "differs" if found else "0",
        "errno": "",
        "layer": "device",
        "seed": seed,
        "sequences": subject.sequences,
        "steps": subject.steps,
    }
    if found:
        observation["differences"] = [divergence.fault for divergence in found]
        observation["divergences"] = [as_data(divergence) for divergence in found]
    if subject.left_behind:
        observation["left_behind"] = sorted(subject.left_behind)
    return observation


def as_data(divergence: Divergence) -> DivergenceData:
    """Returns a divergence in the form of a result; `row` can be copied into a table."""
    data: DivergenceData = {
        "when": divergence.signature,
        "rule": divergence.rule,
        "fault": divergence.fault,
        "row": divergence.row,
    }
    return {**data, "found": divergence.found} if divergence.found else data
