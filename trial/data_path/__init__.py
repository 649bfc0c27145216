"""Violations of the data path on the real stack, written without sight of the cases (docs/trial.md)."""

from __future__ import annotations

from trial.data_path import (
    atomics,
    completing,
    granting,
    leaking,
    permitted,
    reaching,
    receiving,
    refusing,
    window_keys,
    windows,
    writing,
)
from trial.violation import Violation, violations_in

_TOPICS = (writing, receiving, atomics, completing, leaking, granting, reaching, refusing, windows, window_keys)
DATA_PATH_ALTERATIONS: tuple[Violation, ...] = tuple(violations_in(_TOPICS))
DATA_PATH_PERMITTED: tuple[Violation, ...] = tuple(violations_in([permitted]))

__all__ = ["DATA_PATH_ALTERATIONS", "DATA_PATH_PERMITTED"]
