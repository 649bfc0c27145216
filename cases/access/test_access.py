"""Runs each case of this folder's tables as one pytest item."""

from conformance.model.case import Case, RunCase


def test_access(case: Case, run: RunCase) -> None:
    run(case)
