"""All seeded violations of the reference: each breaks one rule."""

from __future__ import annotations

from trial.violation import Violation, violations_in
from trial.violations import (
    address_space_end,
    advising,
    binding,
    changed_below_windows,
    changing,
    claiming,
    codes,
    completing,
    declaring,
    device_pages,
    dmabufs,
    extent,
    foreign_windows,
    kinds,
    lists_and_lengths,
    memory,
    misalignment,
    registration,
    revoking,
    rights,
    special_regions,
    statuses,
    translation,
    window_requests,
    windows,
)

_THEMES = (
    registration,
    memory,
    device_pages,
    rights,
    extent,
    kinds,
    translation,
    dmabufs,
    changing,
    changed_below_windows,
    revoking,
    codes,
    advising,
    binding,
    windows,
    window_requests,
    foreign_windows,
    address_space_end,
    special_regions,
    lists_and_lengths,
    misalignment,
    declaring,
    statuses,
    completing,
    claiming,
)
VIOLATIONS: tuple[Violation, ...] = tuple(violations_in(_THEMES))
# Rules that no driver can break in a way that a case could detect, and why.
UNTRIABLE = {"REREG-15": "a driver may reuse resources or not: the behaviour is recorded and never fails"}

__all__ = ["UNTRIABLE", "VIOLATIONS", "Violation"]
