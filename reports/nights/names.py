"""The names of the directories of nights in a history."""

import re
from datetime import datetime

from conformance.older_python import UTC

NIGHT = re.compile(r"([0-9]{4})([0-9]{2})([0-9]{2})T([0-9]{2})([0-9]{2})([0-9]{2})Z(-[0-9]+)?")


def is_night(name: str) -> bool:
    """Returns whether a directory's name is a time in UTC, as `nightly` writes it."""
    match = NIGHT.fullmatch(name)
    if not match:
        return False
    try:
        datetime(*map(int, match.groups()[:6]))  # type: ignore[arg-type]
    except ValueError:
        return False
    return True


def new_name() -> str:
    """Returns the name of a night that begins now."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
