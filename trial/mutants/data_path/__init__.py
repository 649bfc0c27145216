"""Violations and permitted variants of the data path, written without sight of the cases (docs/trial.md)."""

from __future__ import annotations

import sys

from trial.violation import Violation, modules_of, violations_in

_ALL = tuple(violations_in(modules_of(sys.modules[__name__])))
DATA_PATH_ALTERATIONS: tuple[Violation, ...] = tuple(each for each in _ALL if not each.permitted)
DATA_PATH_PERMITTED: tuple[Violation, ...] = tuple(each for each in _ALL if each.permitted)
