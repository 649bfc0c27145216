"""Finds the latest run with a defect, a case or a rule, and the cases of an earlier run that should run again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from conformance.defects import Defect
from conformance.errors import UserError, command, format_count
from conformance.model.printable import one_line
from conformance.model.verdict import INCOMPLETE, VIOLATIONS
from conformance.regular_file import read_regular
from conformance.results.folder import OUT, latest, latest_first
from conformance.results.records import FILE_NAME as RESULTS
from conformance.run_options import RunOptions
from conformance.tables.suite import POINT, Suite
from reports import summary
from reports.digest import Digest, read
from reports.explanations import FINGERPRINT, defect_of

Say = Callable[[str], None]
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
        return text in read_regular(file)
    except OSError:
        return False


def with_earlier(
    options: RunOptions,
    failed: Path | None,
    suite: Suite,
    say: Say,
) -> RunOptions:
    """Returns the options with the cases of defects in place of fingerprints. Adds the cases that failed in the run
    `failed`, or in the latest run in the directory `failed`. Defects are searched in this run, in the run of --against,
    and then in OUT. Raises UserError if no run has the defect, or if no case failed. Cases that `suite` does not have
    are left out, as `named` does."""
    path = _run_in(failed) if failed else None
    only = [*named(options.only, suite, say, [*filter(None, (path, options.against))])]
    if path:
        run = read(path)
        only += _present(_failed(run), run, suite, say)
    return replace(options, only=tuple(dict.fromkeys(only)))


def _run_in(path: Path) -> Path:
    if path.is_file() or (path / RESULTS).exists():
        return path
    if folder := latest(path):
        return folder
    raise UserError(f"there is no run in {path}", hint="give --failed RUN")


def named(only: Iterable[str], suite: Suite, say: Say, first: Sequence[Path] = ()) -> Iterable[str]:
    """Returns the cases, with the cases of a defect in place of its fingerprint. A defect is searched in the runs `first`,
    and then in OUT. `say` prints how many of its cases are left out because `suite` does not have them. Raises UserError if
    none remains, or if no run has the defect."""
    return dict.fromkeys(case for name in only for case in _cases(name, suite, say, first))


def _cases(text: str, suite: Suite, say: Say, first: Sequence[Path]) -> Iterable[str]:
    if not FINGERPRINT.fullmatch(text):
        return [text]
    for path in filter(None, (*first, run_about(text))):
        run = read(path)
        if Defect.called(text.lower(), run.violations.defects):
            break
    else:
        searched = " or ".join([f"in {OUT}", *(one_line(str(path)) for path in first)])
        raise UserError(
            f"no run {searched} has the defect {text}",
            hint=f"only these runs are searched; {command('explain', text, '--run', 'RUN')} lists its cases in another",
        )
    return _present(defect_of(text, run, "--failed")[0].cases, run, suite, say)


def _failed(run: Digest) -> Sequence[str]:
    cases = [
        record["case"]
        for record in run.results
        if record["effective"] in (*VIOLATIONS, *INCOMPLETE)
    ]
    if not cases:
        raise UserError(f"no case of {run.path} has failed")
    return cases


def _present(cases: Sequence[str], run: Digest, suite: Suite, say: Say) -> list[str]:
    gone = [case for case in cases if suite.find(case.partition(POINT)[0]) is None]
    if gone:
        version = (run.header.get("suite") or {}).get("version", "")
        by = one_line(f", of rdma-cts {version}," if version else "")
        count = f"{format_count(len(gone), 'case')} of {run.shown_path}{by} no longer exist"
        left_out = f"{count}{'s' * (len(gone) == 1)}: {one_line(gone[0])}{', …' * (len(gone) > 1)}"
        if len(gone) == len(cases):
            raise UserError(left_out, hint="use the version of rdma-cts that made the run")
        say(f"left out: {left_out}")
    return [case for case in cases if case not in gone]
