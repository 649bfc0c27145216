"""Random sequences on a bench at each of its entries, as lines for whoever listens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from conformance import language
from conformance.bench import Bench
from conformance.capability import Capabilities
from conformance.errors import UserError
from reference.bench import ReferenceBench

Line = dict[str, Any]


def try_sequences(
    bench: Bench, capabilities: Capabilities, seconds: float, seed: int, say: Callable[[Line], None]
) -> Iterator[Line]:
    """A line for each divergence, and at last one that counts; `say` takes each sequence before its next step."""
    try:
        from trial.comparison import Subject
        from trial.sequences import search
    except ImportError as error:
        hint = "install python3-hypothesis"
        raise UserError(f"random sequences need Hypothesis ({error})", hint=hint, status=3) from error
    sequences = steps = 0
    for entry in language.ENTRIES:
        known = {**capabilities.declared, **capabilities.offered[entry]}
        has = frozenset(name for name, there in known.items() if there)
        subject = Subject(ReferenceBench(), bench, has, entry, begins=lambda row: say({"type": "begins", "row": row}))
        for divergence in search(subject, seconds / len(language.ENTRIES), seed):
            yield {"type": "divergence", "row": divergence.row, "fault": divergence.fault,
                   "signature": divergence.signature}  # fmt: skip
        sequences, steps = sequences + subject.sequences, steps + subject.steps
    yield {"type": "searched", "sequences": sequences, "steps": steps}
