"""Violations and permitted variants that were written blind: without sight of the cases or the engine.

Their author knew the rules, the documents and the reference. What they showed at first is in docs/trial.md. They are
not changed to be detected.
"""

from __future__ import annotations

from trial.blind import advice, dereg, dmabuf, iova, permitted, registration, rereg, rights, windows
from trial.violation import Violation, violations_in

_THEMES = (registration, rights, iova, dmabuf, dereg, rereg, advice, windows)
BLIND_VIOLATIONS: tuple[Violation, ...] = tuple(violations_in(_THEMES))
BLIND_PERMITTED_VARIANTS: tuple[Violation, ...] = tuple(violations_in([permitted]))

__all__ = ["BLIND_PERMITTED_VARIANTS", "BLIND_VIOLATIONS"]
