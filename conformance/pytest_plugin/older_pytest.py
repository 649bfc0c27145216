"""What the plugin needs of pytest 7, for pytest 6, which the oldest supported distributions have (docs/devices.md)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING or hasattr(pytest, "StashKey"):
    StashKey = pytest.StashKey

    _NAME = "stash"
else:
    from _pytest.store import StoreKey as StashKey

    _NAME = "_store"


def stash_of(part: pytest.Config | pytest.Session) -> pytest.Stash:
    """Returns the values that plugins keep with a session or its configuration."""
    stash: pytest.Stash = getattr(part, _NAME)
    return stash


def root_of(config: pytest.Config) -> Path:
    """Returns pytest's root directory."""
    return Path(getattr(config, "rootpath", None) or config.rootdir)  # type: ignore[attr-defined]


__all__ = ["StashKey", "root_of", "stash_of"]
