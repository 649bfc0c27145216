"""Where a window begins and ends."""

_WORD_LENGTH = 8
