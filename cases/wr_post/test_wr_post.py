"""Runs the rows of this folder's tables, each as one item."""

from conformance.model.case import Case, RunCase


def test_wr_post(case: Case, run: RunCase) -> None:
    run(case)
