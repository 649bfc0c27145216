"""The hook that checks the form of commit messages."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT

HOOK = ROOT / "ci" / "hooks" / "commit-msg"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        ("rxe: check the rkey's low byte\n\nA stale key opened the region.\n", ""),
        ("# a comment\nrxe: check the rkey\n# another\n\nWhy.\n", ""),
        ("x" * 72 + "\n\nWhy.\n", ""),
        ("Merge branch 'other'\n", ""),
        ("x" * 73 + "\n\nWhy.\n", "the subject has 73 characters"),
        ("\n\nWhy.\n", "the subject has 0 characters"),
        ("rxe: check the rkey\n", "a body that says why"),
        ("rxe: check the rkey\nWhy.\n", "a blank line"),
    ],
)
def test_a_subject_a_blank_line_and_a_body(message: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "message"
    path.write_text(message)
    done = subprocess.run([HOOK, path], capture_output=True, text=True, check=False)
    assert done.returncode == bool(complaint)
    assert complaint in done.stderr
