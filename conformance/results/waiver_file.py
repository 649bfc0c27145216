"""Reads the YAML file of waivers, with the location of every mistake; waivers.schema.json describes it to editors.

Not for applying waivers (waivers.py).
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from datetime import date, timedelta
from pathlib import Path
from urllib.parse import urlsplit

from conformance.defects import Severity
from conformance.errors import UserError
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.regular_file import read_regular
from conformance.results.waivers import DefectWaiver, KnownOutcome, Waiver, Waivers, WaiverScope, version
from conformance.tables.suite import Suite
from conformance.yamldoc.nodes import Location, Node, TextError, quoted, read_file
from conformance.yamldoc.reader import Reader, suggestion

LONGEST = timedelta(days=180)
_KEYS = ("case", "rule", "defect", "where", "observed", "issue", "owner", "expires")
_OF_DEFECT = ("also", "title", "cases", "unsteady")
_REQUIRED = ("where", "observed", "issue", "owner", "expires")
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")
_WHERE = ("driver", "kernel", "firmware")
_OBSERVED = ("verdict", "returned", "errno", "wc", "reason", "when")


def read_waivers(path: Path, suite: Suite, today: date) -> Waivers:
    """The waivers in a file. Raises UserError with a line for each mistake."""
    try:
        root = read_file(path, str(path))
    except TextError as error:
        raise UserError(*map(str, error.mistakes)) from error
    reader = Reader()
    fields = reader.mapping(root, "a file of waivers", ("waivers",), ("waivers",))
    cases = {case.id for case in suite.cases}
    nodes = reader.items(fields.get("waivers"), "waivers")
    read = [_waiver(node, reader, cases, suite.registry, today) for node in nodes if not _is_of_defect(node)]
    defects = [_defect_waiver(node, reader, today) for node in nodes if _is_of_defect(node)]
    met: dict[tuple[str, WaiverScope], Waiver | DefectWaiver] = {}
    every: list[Waiver | DefectWaiver] = [*filter(None, read), *filter(None, defects)]
    for waiver in every:
        first = met.setdefault((waiver.target, waiver.where), waiver)
        if first is not waiver:
            reader.note(waiver.location, f"{waiver.target} is waived twice (first at {first.location})")
    if reader.mistakes:
        raise UserError(*map(str, reader.mistakes))
    digest = hashlib.sha256(read_regular(path)).hexdigest()
    exact_first = tuple(sorted(filter(None, read), key=lambda waiver: not waiver.case))
    return Waivers(str(path), digest, exact_first, today, tuple(filter(None, defects)))


def _is_of_defect(node: Node) -> bool:
    return isinstance(node.value, dict) and "defect" in node.value


def _defect_waiver(node: Node, reader: Reader, today: date) -> DefectWaiver | None:
    before = len(reader.mistakes)
    fields = reader.mapping(node, "the waiver of a defect", (*_KEYS, *_OF_DEFECT), _REQUIRED)
    for other in ("case", "rule"):
        if other in fields:
            reader.note(fields[other].location, f"a waiver is for one defect or for one {other}, not for both")
    defect = reader.text(fields.get("defect"), "defect") or ""
    others = [(item, reader.text(item, "a fingerprint") or "") for item in reader.items(fields.get("also"), "also")]
    for place, text in (*([(fields["defect"], defect)] if defect else ()), *others):
        if text and not _FINGERPRINT.fullmatch(text):
            reader.note(place.location, f"{quoted(text)} is not a fingerprint, which has 12 hexadecimal digits")
    observed = fields.get("observed")
    known = reader.mapping(observed, "observed", ("severity",), ("severity",)) if observed else {}
    label = reader.word(known.get("severity"), "severity", tuple(each.label for each in Severity)) or ""
    cases = tuple(reader.text(item, "a case") or "" for item in reader.items(fields.get("cases"), "cases"))
    of_unsteady = ("case", "seen")
    unsteady = [
        reader.text(reader.mapping(item, "an unsteady case", of_unsteady, of_unsteady).get("case"), "case") or ""
        for item in reader.items(fields.get("unsteady"), "unsteady")
    ]
    terms = _terms(node, fields, reader, today)
    if len(reader.mistakes) > before or terms is None:
        return None
    severity = next(each for each in Severity if each.label == label)
    also = tuple(text for _, text in others)
    return DefectWaiver(*terms, defect, also, severity, cases, tuple(unsteady))


def _waiver(node: Node, reader: Reader, cases: Collection[str], rules: Collection[str], today: date) -> Waiver | None:
    before = len(reader.mistakes)
    fields = reader.mapping(node, "a waiver", _KEYS, _REQUIRED)
    if ("case" in fields) == ("rule" in fields):
        reader.note(node.location, "a waiver is for one case, rule or defect: write `case`, `rule` or `defect`")
    case = _known_id(fields.get("case"), "case", cases, reader)
    rule = _known_id(fields.get("rule"), "rule", rules, reader)
    known = _observed(fields.get("observed"), reader)
    terms = _terms(node, fields, reader, today)
    if len(reader.mistakes) > before or terms is None:
        return None
    return Waiver(*terms, case, rule, known)


def _terms(
    node: Node, fields: Mapping[str, Node], reader: Reader, today: date
) -> tuple[WaiverScope, str, str, date, Location] | None:
    """The values of waivers.Terms."""
    where, issue = _where(fields.get("where"), reader), _issue(fields.get("issue"), reader)
    owner, expires = reader.text(fields.get("owner"), "owner") or "", _expires(fields.get("expires"), reader, today)
    return (where, issue, owner, expires, node.location) if expires else None


def _known_id(node: Node | None, what: str, known: Collection[str], reader: Reader) -> str:
    name = reader.text(node, what)
    if node and name and name not in known:
        reader.note(node.location, f"unknown {what} {quoted(name)}{suggestion(name, known)}")
    return name or ""


def _where(node: Node | None, reader: Reader) -> WaiverScope:
    fields = reader.mapping(node, "where", _WHERE, ("driver",)) if node else {}
    kernel = fields.get("kernel")
    span = reader.mapping(kernel, "kernel", ("from", "to")) if kernel else {}
    if kernel and isinstance(kernel.value, dict) and not kernel.value:
        reader.note(kernel.location, "a range of kernels has a `from`, a `to`, or both")
    first, last = (_version(span.get(key), key, reader) for key in ("from", "to"))
    if kernel and first and last and version(first)[: len(version(last))] > version(last):
        reader.note(kernel.location, f"no kernel is from {first} to {last}")
    driver, firmware = (reader.text(fields.get(key), key) or "" for key in ("driver", "firmware"))
    return WaiverScope(driver, first, last, firmware)


def _version(node: Node | None, what: str, reader: Reader) -> str:
    text = reader.text(node, what) or ""
    if node and text and not version(text):
        reader.note(node.location, f'invalid kernel version {quoted(text)}; write e.g. "6.12"')
    return text


def _observed(node: Node | None, reader: Reader) -> KnownOutcome:
    fields = reader.mapping(node, "observed", _OBSERVED, ("verdict",)) if node else {}
    verdict = reader.word(fields.get("verdict"), "verdict", VIOLATIONS) or ""
    returned, errno, reason = (reader.text(fields.get(key), key) or "" for key in ("returned", "errno", "reason"))
    wc, when = (
        tuple(reader.text(item, key) or "" for item in reader.items(fields.get(key), key)) for key in ("wc", "when")
    )
    if node and verdict == Verdict.FAIL and not fields.keys() - {"verdict"}:
        known = ", ".join(f"`{key}`" for key in _OBSERVED[1:])
        reader.note(node.location, f"describe the failure with at least one of {known}")
    return KnownOutcome(verdict, returned, errno, wc, reason, when)


def _issue(node: Node | None, reader: Reader) -> str:
    text = reader.text(node, "issue") or ""
    if node and text and not is_address(text):
        reader.note(node.location, f"issue must be the address of one, beginning with https://, not {quoted(text)}")
    return text


def is_address(text: str) -> bool:
    """Whether the text is an address of http or https."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.netloc)


def _expires(node: Node | None, reader: Reader, today: date) -> date | None:
    text = reader.text(node, "expires")
    if node is None or text is None:
        return None
    try:
        expires = date.fromisoformat(text)
    except ValueError:
        reader.note(node.location, f"expires must be a date such as {today + LONGEST}, not {quoted(text)}")
        return None
    if expires > today + LONGEST:
        reader.note(node.location, f"expires is more than {LONGEST.days} days ahead; the latest is {today + LONGEST}")
    return expires
