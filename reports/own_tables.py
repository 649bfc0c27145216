"""This suite's own tables, with which a run is compared."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache

from conformance.defects import Symptom
from conformance.errors import UserError, format_count
from conformance.model.printable import plain
from conformance.model.record import HeaderRecord
from conformance.tables.suite import CASES, POINT, Suite, load_suite, tables_digest


def wrong_by_tables(header: HeaderRecord, suite: Suite) -> str:
    """Returns the contradiction between the header and the tables of `suite`; empty if there is none. In a header of
    a different version, a rule may have more or fewer fields, but the common fields must have the same values."""
    registry = suite.registry
    registry_data, controls = plain([registry.as_data(), dict(registry.needs.controls)])
    recorded = header["rules"]
    if recorded.keys() != registry_data.keys() or any(
        recorded[rule].get(name, text) != text
        for rule, texts in registry_data.items()
        for name, text in texts.items()
    ):
        return "the rules of its header are not those of the tables"
    if header["controls"] != controls:
        return "the controls of its header are not those of the tables"
    if (claimed := header.get("left_out")) is not None:
        count = len(suite.left_out(header["planned"]))
        if claimed != count:
            missing = f"{format_count(count, 'case')} of the default tier {'is' if count == 1 else 'are'} not in the plan"
            return f"{missing}, but the number in its header is {claimed:,}"
    return ""


def meanings_of(symptom: Symptom, suite: Suite | None = None) -> Iterator[str]:
    """Yields the meanings of the values of a point of a model in the tables of `suite`, or of this suite."""
    if not symptom.smallest or not symptom.record["pairs"]["parameters"]:
        return
    suite = suite or suite_of_header(None)
    case = suite.find(symptom.case) if suite else None
    if case and case.array:
        for name, label in symptom.smallest.items():
            if meaning := case.array.model.meanings.get(name, {}).get(label):
                yield f"{name}={label}: {meaning}"


_loaded = ""  # the hash of the tables that `load` has read


def load() -> None:
    """Reads the tables. From now on, a change of their files has no effect on this process, which unpickles no case of
    them either."""
    global _loaded
    _loaded = tables_digest([CASES])
    for table in suite_of(_loaded).tables:
        len(table.cases)  # unpickles the cases


def suite_of_header(header: HeaderRecord | None) -> Suite | None:
    """Returns this suite; None if the run of `header` was made with other tables."""
    try:
        tables = _loaded or tables_digest([CASES])
        if header is None or header["suite"].get("tables_sha256") == tables:
            return suite_of(tables)
        return None
    except (OSError, UserError):  # mistakes in the tables do not prevent a report
        return None


@lru_cache(maxsize=1)
def suite_of(tables_sha256: str) -> Suite:
    """Returns this suite, whose tables have the hash `tables_sha256`. A command reads it only once."""
    return load_suite()


def rules_of(cases: Collection[str]) -> frozenset[str]:
    """Returns the rules of cases by this suite's tables. Ids are permanent, so the run may be of other tables."""
    if cases:
        suite = suite_of_header(None)
    else:
        suite = None
    ids = {case.partition(POINT)[0] for case in cases}
    if suite:
        return frozenset(rule for case in suite.named(ids) for rule in case.rules)
    return frozenset()
