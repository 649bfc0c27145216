"""Searches for divergences with random sequences on a bench, at one entry, and records the divergences as a case's
observation. Only sequences.py imports Hypothesis, and this module imports sequences.py only when it is needed."""

import time
from collections.abc import Callable, Iterator

from conformance.bench.interface import Bench
from conformance.errors import UserError
from conformance.execution.runner import Progress, no_progress
from conformance.model.capability import Capabilities
from conformance.model.case import Case
from conformance.model.observation import DivergenceData, Observation
from trial.comparison import Divergence, Subject
from trial.reference.bench import ReferenceBench

# The default of the first seed. A seed determines the sequences.
FIRST_SEED = 1

Over = Callable[[Subject], bool]


def for_seconds(seconds: float) -> Over:
    """Returns the condition that ends a search `seconds` after the condition's first call. A divergence that was found
    before the end is still shrunk."""
    # set in the first call, because the import of Hypothesis takes long in an emulated guest
    until: list[float] = []

    def over(subject: Subject) -> bool:
        if not until:
            until.append(time.monotonic() + seconds)
        return time.monotonic() >= until[0]

    return over


def for_sequences(number: int) -> Over:
    """Returns the condition that ends a search after a number of sequences."""
    return lambda subject: subject.sequences >= number


def subject_of(bench: Bench, capabilities: Capabilities, entry: str) -> Subject:
    """Returns a device's bench and a reference without a violation as the two benches of a comparison."""
    capabilities_known = {**capabilities.declared, **capabilities.offered[entry]}
    return Subject(
        ReferenceBench(),
        bench,
        frozenset(name for name, present in capabilities_known.items() if present),
        entry,
    )


def divergences(subject: Subject, seed: int, over: Over) -> Iterator[Divergence]:
    """Yields each divergence once, in its shrunk form. Raises UserError (status 3) if Hypothesis is missing."""
    try:
        from trial.sequences import search
    except ImportError as error:
        hint = "install python3-hypothesis"
        raise UserError(
            f"random sequences need Hypothesis ({error})",
            hint=hint,
            status=3,
        ) from error
    yield from search(subject, seed, lambda: over(subject))


def observe(
    case: Case,
    bench: Bench,
    capabilities: Capabilities,
    over: Over,
    seed: int,
    progress: Progress = no_progress,
) -> Observation:
    """Returns the observation of random sequences at a case's entry. `progress` is called before each step, with the
    previous steps and this step as a row, and with the nearest rule."""
    subject = subject_of(bench, capabilities, case.entry)

    def begins(row: str, rule: str) -> None:
        progress(
            f"sequence {subject.sequences} from seed {seed}",
            subject.sequences,
            row=row,
            rule=rule,
        )

    subject.begins = begins
    divergences_seen = list(divergences(subject, seed, over))
    observation: Observation = {
        "rc": None,
        "returned": "differs" if divergences_seen else "0",
        "errno": "",
        "layer": "device",
        "seed": seed,
        "sequences": subject.sequences,
        "steps": subject.steps,
    }
    if divergences_seen:
        observation["differences"] = [divergence.fault for divergence in divergences_seen]
        observation["divergences"] = [as_data(divergence) for divergence in divergences_seen]
    if subject.left_behind:
        observation["left_behind"] = sorted(subject.left_behind)
    return observation


def as_data(divergence: Divergence) -> DivergenceData:
    """Returns a divergence as data of a result. Its `row` can be copied into a table."""
    data: DivergenceData = {
        "when": divergence.signature,
        "rule": divergence.rule,
        "fault": divergence.fault,
        "row": divergence.row,
    }
    if divergence.found:
        return {**data, "found": divergence.found}
    return data
