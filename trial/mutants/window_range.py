"""Where a window begins and ends."""

from __future__ import annotations

_WORD_LENGTH = 8
