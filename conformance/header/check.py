"""The result of comparing one item of the descriptions with what is installed. Not for comparing (compare.py)."""

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
    """The result for one item. `expected` is from the description, `found` is installed.

    NOT_COVERED means that the item is installed and the suite does not describe it. UNREACHABLE means
    that the item could not be compared here. `reason` is empty only for PASS.
    """

    item: str
    outcome: Outcome
    expected: str = ""
    found: str = ""
    reason: str = ""


def missing(item: str, expected: str, since: str = "", release: int | None = None) -> Check:
    """Returns FAIL for an item that the header does not have. `since` is the first rdma-core with it, if known.

    An item that is newer than `release`, the installed rdma-core, is UNREACHABLE: this header need not have it.
    """
    if since and release is not None and release < int(since):
        return Check(item, UNREACHABLE, expected, "", f"rdma-core has it since {since}, and this is {release}")
    reason = f"{MISSING}; rdma-core has it since {since}" if since else MISSING
    return Check(item, FAIL, expected, "", reason)


def same(item: str, expected: object, found: object, reason: str) -> Check:
    """Returns PASS if both are equal, else FAIL with the reason."""
    agree = expected == found
    return Check(item, PASS if agree else FAIL, str(expected), str(found), "" if agree else reason)
