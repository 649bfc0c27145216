"""Finds the latest run with a defect, a case or a rule, and the cases of an earlier run that should run again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from conformance.errors import UserError
from conformance.model.verdict import INCOMPLETE, VIOLATIONS
from conformance.results.folder import OUT, latest, latest_first
from conformance.results.records import FILE_NAME as RESULTS
from conformance.run_options import RunOptions
from conformance.tables.suite import POINT
from reports import summary
from reports.digest import Digest, read
from reports.explanations import FINGERPRINT, defect_of

_RULE = re.compile(r"[A-Z]+-[0-9]{2}[a-z]?")


def run_about(text_here: str) -> Path | None:
    """Returns the latest run in OUT with the `text_here` defect, or with a result of the `text_here` case or rule. Without
    such a run, returns the latest run in OUT."""
    if "/" in text_here:
        file = RESULTS
    else:
        file = summary.FILE_NAME
    if "/" in text_here:
        text = f'"case":"{text_here.partition(POINT)[0]}"'
    elif _RULE.fullmatch(text_here.upper()):
        text = f'"{text_here.upper()}": "'
    else:
        text = f'"{text_here.lower()}'
    folder_here = (folder for folder in latest_first(OUT) if _has(folder / file, text.encode()))
    return next(folder_here, latest(OUT))


def _has(file: Path, text: bytes) -> bool:
    try:
        return text in file.read_bytes()
    except OSError:
        return False


def with_earlier(options: RunOptions, failed: Path | None) -> RunOptions:
    """Returns the options with the cases of defects in place of fingerprints. Adds the cases that failed in the run
    `failed`, or in the latest run in the directory `failed`. Raises UserError if no run has the defect, or if no case
    failed."""
    only = [*named(options.only)]
    if failed:
        folder = failed if (failed / RESULTS).exists() else latest(failed)
        if folder is None:
            raise UserError(f"there is no run in {failed}", hint="give --failed RUN")
        only += _failed(read(folder))
    return replace(options, only=tuple(dict.fromkeys(only)))


def named(only: Iterable[str]) -> Iterable[str]:
    """Returns the cases, with the cases of a defect in place of its fingerprint. Raises UserError if no run has the
    defect."""
    return dict.fromkeys(case for name in only for case in _cases(name))


def _cases(text: str) -> Iterable[str]:
    if not FINGERPRINT.fullmatch(text):
        return [text]
    if (folder := run_about(text)) is None:
        raise UserError(f"no run in {OUT} has the defect {text}", hint="--only CASE names a case")
    return defect_of(text, read(folder), "--failed")[0].cases


def _failed(run: Digest) -> Iterator[str]:
    cases = [
        record["case"]
        for record in run.results
        if record["effective"] in (*VIOLATIONS, *INCOMPLETE)
    ]
    if not cases:
        raise UserError(f"no case of {run.path} has failed")
    yield from cases
