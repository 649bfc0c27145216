"""Writes the message of a patch, in 72 columns: the defect and the change, the quote of the document, the observation,
and the case. Below the message is the C program that shows the defect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.defects import Symptom
from conformance.judging import Basis
from conformance.model.rules import Rule, not_quoted
from conformance.tables.suite import Suite
from fixtures.guest.changes import Change
from reports.digest import Digest
from reports.kernel_log import trimmed, without_log
from reports.patches.series import Letter, Tree
from reports.reproducers.of_runs import reproducer
from reports.reproducers.writer import Inexpressible
from reports.text import wrapped

WIDTH = 72
_BEGINS_PATCH = re.compile(
    r"^(?=diff -|Index: |---)", re.MULTILINE
)  # for git am, which ends the message there


@dataclass(frozen=True)
class Seen:
    """A symptom of a defect, and the run that shows it."""

    symptom: Symptom
    run: Digest


def message(
    change: Change,
    prefix: str,
    rules: Mapping[str, Rule],
    fixes: str,
    signed: str,
    seen: Seen | None,
) -> str:
    """Returns the whole message; the first line is the subject."""
    parts = [[f"{prefix}: {change.subject}"], _wrapped(change.about), *_documented(change, rules)]
    if seen:
        parts += _observed(seen)
    parts.append(_wrapped(f"Shown by the case {change.case} of rdma-cts."))
    parts.append(
        [
            f"{name}: {value}"
            for name, value in (("Fixes", fixes), ("Signed-off-by", signed))
            if value
        ],
    )
    text = "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"
    return _BEGINS_PATCH.sub(" ", text)


def _documented(change: Change, rules: Mapping[str, Rule]) -> Iterator[list[str]]:
    rule = rules[change.rules[0]]
    source = ", ".join(filter(None, (rule.document, rule.section)))
    if rule.quote:
        requirement = f'"{rule.quote}"'
    else:
        source += f" {not_quoted(rule.second_hand)}; the tested rule"
        requirement = rule.statement
    yield [*_wrapped(f"{source} ({rule.id} of rdma-cts):"), "", *_wrapped(requirement, "  ")]


def _observed(seen: Seen) -> Iterator[list[str]]:
    env = seen.run.header["env"]
    versions = f"Linux {env.get('kernel', '?')}, rdma-core {env.get('rdma_core', '?')}"
    log = trimmed(seen.symptom.record["kernel"].get("log", ()))
    line = seen.symptom.line.removeprefix("afterwards ")
    yield _wrapped(f"Seen on {versions}: {without_log(line) if log else line}.")
    if log:
        yield [f"  {line}" for line in log]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return wrapped(text, WIDTH, indent, indent)


_HOW = "cc repro.c -libverbs && ./a.out DEVICE (0: no violation, 1: violation)"


def letters_of(
    tree: Tree,
    changes: Sequence[Change],
    suite: Suite,
    basis: Basis,
    signed: str,
    seen: Mapping[str, Seen],
) -> dict[str, Letter]:
    origins = tree.origins({change.blame for change in changes if not change.feature})
    letters = {}
    for change in changes:
        if change.feature:
            fixes = ""
        else:
            fixes = origins.get(change.blame, "")
        text = message(
            change,
            tree.project.prefix,
            suite.registry,
            fixes,
            signed,
            seen.get(change.name),
        )
        letters[change.name] = Letter(text, _program(change, suite, basis, seen.get(change.name)))
    return letters


def seen_in(changes: Iterable[Change], run: Digest | None) -> dict[str, Seen]:
    """Returns, by the name of each change, the observation of its case in a run."""
    symptoms = {
        symptom.name: symptom
        for defect in (run.violations.defects if run else ())
        for symptom in defect.symptoms
    }
    return {
        change.name: Seen(symptoms[change.case], run)
        for change in changes
        if run and change.case in symptoms
    }


def _program(change: Change, suite: Suite, basis: Basis, seen: Seen | None) -> str:
    try:
        program = reproducer(change.case, suite, basis, seen.symptom if seen else None, WIDTH)
    except Inexpressible:
        return ""
    return f"{_HOW}\n\n{program.text}"
