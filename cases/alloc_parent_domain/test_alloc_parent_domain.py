"""Runs the rows of this folder's tables, each as one item."""

from collections.abc import Callable

from conformance.model.case import Case


def test_alloc_parent_domain(case: Case, run: Callable[[Case], None]) -> None:
    run(case)
