"""Runs the rows of this folder's tables, each as one item."""

from conformance.model.case import Case, RunCase


def test_advise_mr(case: Case, run: RunCase) -> None:
    run(case)
