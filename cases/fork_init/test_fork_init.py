"""Runs each case of this folder's tables as one pytest item."""

from conformance.model.case import Case, RunCase


def test_fork_init(case: Case, run: RunCase) -> None:
    run(case)
