"""The texts for each change of a series: its message, and below it the C program that shows the defect."""

from collections.abc import Iterable, Mapping, Sequence

from conformance.judging import Basis
from conformance.tables.suite import Suite
from fixtures.guest.changes import Change
from patches.message import WIDTH, Seen, message
from patches.series import Letter
from patches.tree import Tree
from reports.digest import Digest
from reproducers.of_runs import reproducer
from reproducers.writer import Inexpressible

_HOW = "cc repro.c -libverbs && ./a.out DEVICE (0: the document is kept, 1: it is violated)"


def letters_of(
    tree: Tree, changes: Sequence[Change], suite: Suite, basis: Basis, signed: str, seen: Mapping[str, Seen]
) -> dict[str, Letter]:
    origins = tree.origins({change.blame for change in changes if not change.feature})
    made = {}
    for change in changes:
        fixes = "" if change.feature else origins.get(change.blame, "")
        text = message(change, tree.project.prefix, suite.registry, fixes, signed, seen.get(change.name))
        made[change.name] = Letter(text, _program(change, suite, basis, seen.get(change.name)))
    return made


def seen_in(changes: Iterable[Change], run: Digest | None) -> dict[str, Seen]:
    """By the names of changes: the observations of their cases in a run."""
    symptoms = {each.name: each for defect in (run.defects if run else ()) for each in defect.symptoms}
    return {
        change.name: Seen(symptoms[change.case], run)
        for change in changes
        if run is not None and change.case in symptoms
    }


def _program(change: Change, suite: Suite, basis: Basis, seen: Seen | None) -> str:
    try:
        program = reproducer(change.case, suite, basis, seen.symptom if seen else None, WIDTH)
    except Inexpressible:
        return ""
    return f"{_HOW}\n\n{program.text}"
