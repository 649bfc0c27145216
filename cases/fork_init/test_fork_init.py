"""Runs the rows of this folder's tables, each as one item."""

from conformance.model.case import Case, RunCase


def test_fork_init(case: Case, run: RunCase) -> None:
    run(case)
