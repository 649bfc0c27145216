"""The cases for tests that run all of them many times on the reference. No test itself."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.model.case import Case
from conformance.model.kind import Kind

# It faults in 2 GiB of memory, page by page.
_DEAR = "reg_mr/huge_lengths/pinned-of-2-gib"


def repeatable(cases: Iterable[Case]) -> list[Case]:
    """Those that take no longer than a few hundred others; the rest is run once, by test_reference.py."""
    return [case for case in cases if case.kind is not Kind.SEQUENCES and case.id != _DEAR]
