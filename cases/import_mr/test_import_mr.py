"""Runs the rows of this folder's tables, each as one item."""

from collections.abc import Callable

from conformance.model.case import Case


def test_import_mr(case: Case, run: Callable[[Case], None]) -> None:
    run(case)
