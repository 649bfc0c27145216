"""The result of comparing one described fact with what is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["PASS", "FAIL", "NOT_COVERED", "UNREACHABLE"]

PASS: Outcome = "PASS"
FAIL: Outcome = "FAIL"
NOT_COVERED: Outcome = "NOT_COVERED"
UNREACHABLE: Outcome = "UNREACHABLE"

MISSING = "missing in this header"


@dataclass(frozen=True)
class Check:
    """One fact: `item` names it, `expected` is the description's, `found` what is installed.

    NOT_COVERED is something installed that the suite does not describe; UNREACHABLE something that
    could not be compared here, and `reason` says why. `reason` is empty only for PASS.
    """

    item: str
    outcome: Outcome
    expected: str = ""
    found: str = ""
    reason: str = ""


def missing(item: str, expected: str, since: str = "") -> Check:
    """A described thing that the header lacks; `since` is the rdma-core that brought it, if known."""
    reason = f"{MISSING}; rdma-core has it since {since}" if since else MISSING
    return Check(item, FAIL, expected, "", reason)


def same(item: str, expected: object, found: object, reason: str) -> Check:
    """PASS if both are equal, else FAIL with the reason."""
    agree = expected == found
    return Check(item, PASS if agree else FAIL, str(expected), str(found), "" if agree else reason)
