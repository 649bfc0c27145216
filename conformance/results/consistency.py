"""Checks that the records of a results file do not contradict each other; therefore commands can rely on the footer and
on the effective verdicts. The header and the results must have all keys (record_shape.completed). Keys that a file of
an older version lacks are not compared. rejudge.py checks that verdicts agree with observations."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from conformance.defects import is_of_stack
from conformance.model.record import ConfirmationRecord, FooterRecord, HeaderRecord, ResultRecord
from conformance.model.rules import Needs
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.recorded_command import is_reproduction
from conformance.results.rule_conclusions import conclude_rules
from conformance.tables.suite import VERSION

# The figures of a footer that a different version of the suite may count differently.
_OF_VERSION = ("rules", "rule_totals", "points")
_BAD = (*VIOLATIONS, *INCOMPLETE)
_MOST_TEXT = 3000  # characters of a text about the device or its software
_NAME_OF_DEVICE = re.compile(r"[^\s/]{0,63}")


def wrong_header(header: HeaderRecord) -> str:
    """Returns the contradiction in a header, as a clause; empty if there is none."""
    if len(set(map(str, header["planned"]))) < len(header["planned"]):
        return "a case is planned twice"
    try:
        if header["started"]:
            datetime.fromisoformat(header["started"])
    except ValueError:
        return f"{_short(header['started'])} is not the start time of a run"
    if wrong := _wrong_text(header):
        return wrong
    # In a guest, the subject is the whole stack, unless the arguments of the command name the subject.
    in_guest = header["stack"] not in ("", "host")
    if (
        in_guest
        and header.get("subject") == "device"
        and not any(word.startswith("--subject") for word in header["argv"])
    ):
        return "the run is in a guest and its subject is the device, although its arguments name no subject"
    return ""


def _wrong_text(header: HeaderRecord) -> str:
    """Returns why a text of a header cannot be shown or be a part of a command; empty if all texts can."""
    device = header["device"]
    for name in (device.get("name") or "", *(header.get("devices") or ())):
        if not _NAME_OF_DEVICE.fullmatch(name):
            return f"{_short(name)} is not the name of a device"
    about = {
        key: header.get(key) for key in ("env", "device", "stack", "tier", "subject", "isolated")
    }
    waiting: list[Any] = [about]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and len(value) > _MOST_TEXT:
            return f"it has a text of {len(value):,} characters, more than {_MOST_TEXT:,}"
    return ""


def _wrong_command(record: ResultRecord) -> str:
    commands = [
        record["repro"],
        *(deviation.get("repro", "") for deviation in record["deviations"]),
    ]
    for command in commands:
        if command and not is_reproduction(command):
            return f"{_short(command)} is not a command that runs the case"
    return ""


def wrong_result(record: ResultRecord, header: HeaderRecord) -> str:
    """Returns the contradiction within a result or with the run's header, as a clause; empty if there is none."""
    verdict, effective = record["verdict"], record["effective"]
    if wrong := _wrong_command(record):
        return wrong
    if verdict not in _BAD and (
        record["points"] or record["rule_verdicts"] or record["deviations"]
    ):
        counted = [
            *(name for name, count in record["points"].items() if count),
            *record["rule_verdicts"].values(),
            *(deviation.get("verdict") or Verdict.FAIL for deviation in record["deviations"]),
        ]
        if worse := next(filter(VIOLATIONS.__contains__, counted), ""):
            return f"its verdict is {verdict}, although a part of it has the verdict {worse}"
    if effective == verdict:
        if record["waiver"]:
            return "it is not waived, but has a waiver"
        return ""
    if verdict not in VIOLATIONS:
        return f"its verdict is {verdict}, which cannot count as {effective}"
    if effective == Verdict.STACK:
        if header.get("subject") != "device":
            return "it counts as STACK, but the run is not about a device"
        of_other_version = header["suite"].get("version") != VERSION
        is_known = of_other_version or is_of_stack(record)
        if is_known:
            return ""
        return "it counts as STACK, but the stack did not return this result"
    if effective != Verdict.WAIVED:
        return f"its verdict is {verdict}, which cannot count as {effective}"
    return _wrong_waiver(record, header)


def _wrong_waiver(record: ResultRecord, header: HeaderRecord) -> str:
    if not (waiver := record["waiver"]):
        return "it counts as WAIVED, but has no waiver"
    if not header.get("waivers"):
        return "it counts as WAIVED, but the run had no waivers"
    target = waiver.get("for", "")
    if target not in (record["case"], *record["rules"]) and not target.startswith("defect "):
        return f"its waiver is for {target or 'nothing'}"
    expires, started = _day(waiver.get("expires")), _day(header.get("started"))
    # The start of a run is in UTC, but a waiver expires by the local calendar of its user.
    if expires and started and expires < started - timedelta(days=1):
        return f"its waiver had expired on {expires}, before the run"
    return ""


def wrong_confirmation(record: ConfirmationRecord, result: ResultRecord | None) -> str:
    """Returns the contradiction between a confirmation and the result of its case, as a clause; empty if there is none.
    A violation can be unconfirmed only if a repetition without a violation is recorded."""
    if not result or result["verdict"] not in VIOLATIONS:
        return "there is no violation of this case"
    if record["confirmed"]:
        return ""
    if (
        (alone := record.get("alone")) is None
        or "in_run" not in record
        or record["by"] != "repetition"
    ):
        return "it is not confirmed, but the result of a repetition is absent"
    if alone["verdict"] in VIOLATIONS or record.get("repetitions", {"seen": 0})["seen"]:
        return "it is not confirmed, although a repetition showed a violation"
    return ""


def _day(text: str | None) -> date | None:
    try:
        return datetime.fromisoformat(text or "").date()
    except ValueError:
        return None


def wrong_footer(
    footer: FooterRecord,
    header: HeaderRecord,
    results: Sequence[ResultRecord],
    confirmations: Sequence[ConfirmationRecord],
) -> str:
    """Returns the figure of the footer that disagrees with the results, as a clause; empty if all figures agree."""
    if not 0 <= (footer.get("duration_s") or 0) < math.inf:
        return f"`duration_s` is {_short(footer['duration_s'])}, which is not a duration"
    for key, said, actual in _compared(footer, header, results, confirmations):
        if said != actual:
            return f"`{key}` is {_short(said)}, but its results give {_short(actual)}"
    return ""


def _compared(
    footer: FooterRecord,
    header: HeaderRecord,
    results: Sequence[ResultRecord],
    confirmations: Sequence[ConfirmationRecord],
) -> Iterator[tuple[str, Any, Any]]:
    """Yields each figure of the footer: its name, the value in the footer, and the value computed from the results."""
    judged = {record["case"] for record in results if record["verdict"] != Verdict.MISSED}
    yield "complete", footer["complete"], judged.issuperset(header["planned"])
    yield (
        "verdicts",
        _without_zeros(footer["verdicts"]),
        dict(Counter(record["effective"] for record in results)),
    )
    waived = sum(record["effective"] == Verdict.WAIVED for record in results)
    if "waivers" in header:
        yield "waivers", bool(footer.get("waivers")), bool(header["waivers"])
    if "waived" in (account := footer.get("waivers") or {}):
        yield "waivers.waived", account["waived"], waived
    if tried := footer.get("confirmation"):
        confirmed = sum(record["confirmed"] for record in confirmations)
        yield "confirmation.confirmed", tried.get("confirmed"), confirmed
        yield (
            "confirmation.not_confirmed",
            tried.get("not_confirmed"),
            len(confirmations) - confirmed,
        )
    elif confirmations:
        yield "confirmation", "absent", f"{len(confirmations)} confirmations"
    if "left_out" not in header or header["suite"].get("version") != VERSION:
        return
    concluded = conclude_rules(results, Needs.of_header(header))
    rules = {rule: concluded[rule].verdict for rule in header["rules"] if rule in concluded}
    without = len(header["rules"]) - len(rules)
    pairs: dict[str, Any] = {
        "rules": rules,
        "rule_totals": {**dict(Counter(rules.values())), "without_case": without},
        "points": sum(sum(record["points"].values()) or 1 for record in results),
    }
    for key in _OF_VERSION:
        if key in footer:
            yield from _parts(key, footer[key], pairs[key])  # type: ignore[literal-required]


def _parts(key: str, said: Any, parts: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(said, Mapping) and isinstance(parts, Mapping):
        said, parts = _without_zeros(said), _without_zeros(parts)
        for name in sorted({*said, *parts}):
            yield f"{key}.{name}", said.get(name), parts.get(name)
    else:
        yield key, said, parts


def _without_zeros(counts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: count for name, count in counts.items() if count != 0}


def _short(value: Any) -> str:
    if value is None:
        text = "absent"
    else:
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 200:
        return text
    return f"{text[:200]}…"
