"""Ids of rules in short: `ADV-01, 03, BIND-10`."""

from __future__ import annotations

from collections.abc import Iterable


def format_rules(ids: Iterable[str], most: int | None = None) -> str:
    """The ids, each prefix once; at most `most` of them, and how many more there are."""
    every = list(ids)
    parts, last = [], ""
    for id_ in every[:most]:
        prefix, dash, number = id_.rpartition("-")
        parts.append(number if dash and prefix == last else id_)
        last = prefix
    rest = len(every) - len(parts)
    return ", ".join(parts) + (f" +{rest}" if rest else "")
