"""Texts for all reports that say whether violations were confirmed.

conformance/supervision/ tries violations again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from conformance.model.record import ConfirmationRecord, Occurrence
from conformance.model.verdict import Verdict
from reports.digest import Digest
from reports.repetitions import name_of

_MOST = 5  # the most names in a list of cases after which a violation occurs, and in a list of unconfirmed violations

_BY = {"run": "it ran alone", "company": "the same when repeated together with others, in a different order"}


def of_case(run: Digest, case: str) -> str:
    """Returns a text that says whether the violations of a case were confirmed; empty if this is unknown."""
    found = run.repetitions.of_case.get(case, [])
    if not found:
        return ""
    bad = [record for record in found if not record["confirmed"]]
    if not bad:
        return _confirmed(found[0])
    return "; ".join(f"{_point(record)}{_unconfirmed(record)}" for record in bad[:_MOST])


def of_point(run: Digest, case: str, point: str) -> str:
    """Returns a text that says whether the violation at a point of a sweep was confirmed; empty if this is unknown."""
    found = next((each for each in run.repetitions.of_case.get(case, []) if each.get("point") == point), None)
    if found is None:
        return ""
    return _confirmed(found) if found["confirmed"] else _unconfirmed(found)


def summary(run: Digest) -> Iterator[str]:
    """Yields lines about all violations of a run: a line with the figures, and a line for each violation that was not
    confirmed."""
    figures = counts(run)
    if not any(figures.values()):
        return
    confirmed, untried = figures["confirmed"], figures.get("not_tried", 0)
    tried = confirmed + figures["not_confirmed"]
    rest = f", {untried:,} not tried" if untried else ""
    together = sum(record["by"] == "company" for record in run.confirmations)
    how = f"a fresh worker, {together:,} of them together with others" if together else "isolation"
    yield f"confirmation: {confirmed:,} of {tried:,} reproduced in {how}{rest}"
    bad = [record for record in run.confirmations if not record["confirmed"]]
    yield from (f"{name_of(record)}: {_unconfirmed(record)}" for record in bad[:_MOST])
    if len(bad) > _MOST:
        yield f"and {len(bad) - _MOST} more that were not confirmed"


def counts(run: Digest) -> dict[str, int]:
    """Returns how many violations were confirmed, were not confirmed, and were not tried again; empty for a run without
    violations."""
    return dict(run.footer.get("confirmation") or {}) if run.footer else {}


def as_data(run: Digest) -> dict[str, Any]:
    """Returns the figures, and the names of the violations that were not confirmed."""
    unconfirmed = [name_of(record) for record in run.confirmations if not record["confirmed"]]
    return {**counts(run), "unconfirmed": unconfirmed} if counts(run) else {}


def _point(record: ConfirmationRecord) -> str:
    return f"{record['point']}: " if record.get("point") else ""


def _confirmed(record: ConfirmationRecord) -> str:
    if times := record.get("repetitions"):
        return f"confirmed, and unsteady: seen in {times['seen']} of {times['of']} repetitions alone"
    alone = record.get("alone")
    if alone:
        return f"confirmed: {alone['verdict']} when tried again alone ({alone['reason']})"
    return f"confirmed: {_BY.get(record['by'], 'the same when tried again alone')}"


def _unconfirmed(record: ConfirmationRecord) -> str:
    unknown: Occurrence = {"verdict": Verdict.MISSED, "reason": "not recorded"}
    seen, alone = record.get("in_run") or unknown, record.get("alone") or unknown
    text = f"not confirmed: {seen['verdict']} in the run, but {alone['verdict']} alone ({alone['reason']})"
    after = record.get("after")
    if after is None:
        return f"{text}; the cases after which it occurs were not searched for"
    if after:
        return f"{text}; it occurs again after {_cases(after)}"
    times = record.get("repetitions")
    return f"{text}; it did not occur again" + (f" in {times['of']} repetitions" if times else "")


def _cases(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
