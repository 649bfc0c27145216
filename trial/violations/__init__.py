"""The seeded violations: every promise broken on its own, by the rule that it breaks."""

from __future__ import annotations

from trial.violation import Violation, violations_in
from trial.violations import (
    advising,
    binding,
    changing,
    codes,
    declaring,
    dmabufs,
    extent,
    kinds,
    memory,
    registration,
    revoking,
    rights,
    statuses,
    translation,
    windows,
)

_THEMES = (
    registration, memory, rights, extent, kinds, translation, dmabufs, changing, revoking, codes, advising,
    binding, windows, declaring, statuses,
)  # fmt: skip
VIOLATIONS: tuple[Violation, ...] = tuple(violations_in(_THEMES))
# Rules that no driver can break so that a case could tell, and why.
UNTRIABLE = {
    "REREG-15": "resources may be reused or not: the rule is observed and never failed",
}

__all__ = ["UNTRIABLE", "VIOLATIONS", "Violation"]
