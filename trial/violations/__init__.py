"""The seeded violations: every promise broken on its own, by the rule that it breaks."""

from __future__ import annotations

from trial.violation import Violation, violations_in
from trial.violations import advising, binding, changing, declaring, registration, rights, translation

VIOLATIONS: tuple[Violation, ...] = tuple(
    violations_in((registration, rights, translation, changing, advising, binding, declaring))
)
# Rules that no driver can break so that a case could tell, and why.
UNTRIABLE = {
    "REREG-15": "resources may be reused or not: the rule is observed and never failed",
}

__all__ = ["UNTRIABLE", "VIOLATIONS", "Violation"]
