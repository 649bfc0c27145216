"""The Jinja environment of all pages: the filters that templates use, and the stored bytecode of the templates."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
from jinja2 import BytecodeCache, Environment, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from conformance import cache
from conformance.defects import Defect, Severity, Symptom
from conformance.errors import command, format_count
from conformance.model.verdict import VIOLATIONS, Verdict
from conformance.results.conclusions import format_points
from reports import evidence
from reports.digest import Digest
from reports.expectations import sentence_of
from reports.own_tables import meanings_of
from reports.races import remarks_on
from reports.terminal import figures
from reports.text import format_rules, format_value, kinds_of, spaced, without_packets
from reports.upstream import titled, upstream, upstream_in_a_word

TEMPLATES = Path(__file__).with_name("templates")
# The signs of verdicts on the map, beside their colours.
SIGNS: Mapping[str, str] = {
    **dict.fromkeys(VIOLATIONS, "✗"),
    **dict.fromkeys((Verdict.WAIVED, Verdict.STACK), "w"),
    Verdict.UNSUPPORTED: "○",
    Verdict.UNREACHABLE: "-",
    **dict.fromkeys((Verdict.BROKEN, Verdict.MISSED), "?"),
}


class _Compiled(BytecodeCache):
    """Stores compiled templates for later processes. Jinja itself checks whether they are still valid."""

    def load_bytecode(self, bucket: Bucket) -> None:
        if path := cache.lookup(self._name(bucket)):
            with contextlib.suppress(OSError):
                bucket.bytecode_from_string(path.read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        cache.store(self._name(bucket), bucket.bytecode_to_string())

    @staticmethod
    def _name(bucket: Bucket) -> str:
        settings = Path(__file__).read_bytes()
        made_of = (bucket.key, bucket.checksum, jinja2.__version__, sys.version)
        return (
            f"template-{cache.digest_of([settings, *(part.encode() for part in made_of)])}.bytecode"
        )


_BETWEEN = re.compile(r"([|,])(?=\S)")
_MARKED = re.compile(r"`([^`]+)`")
# Where a further reason begins in the restriction of a rule.
_CLAUSE = re.compile(r"; (?=not offered|not reachable|not in this run|blocked|left open|refused, )")


def _told(symptom: Symptom) -> tuple[str, str]:
    """Returns what happened, and the call if it stands before what happened; else the whole line and no call."""
    call = symptom.record["call"]
    if call and symptom.line.startswith(f"{call}: "):
        return symptom.line[len(call) + 2 :], call
    return symptom.line, ""


def _causes(defect: Defect, run: Digest) -> Iterator[tuple[str, str]]:
    from reports.causes import causes  # imported late: the pages of a history have none

    return causes(defect, run)


def _sketch(symptom: Symptom) -> Any:
    from reports.sketch import sketch_of  # imported late: only the page of a run has sketches

    record, fault = symptom.record, symptom.fault
    set_up = record["set_up"]
    judged = [record["call"]] if fault.step == 1 and not symptom.deviation else []
    return sketch_of(fault, [*set_up["given"], *set_up["before"], *judged])


@functools.cache
def environment() -> Environment:
    """Returns the Jinja environment of all templates. It escapes all inserted texts."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(),
        auto_reload=False,
    )
    environment.globals["command"] = command
    environment.filters |= {
        "causes": _causes,
        "linked": linked,
        "marked": marked,
        "meanings": lambda symptom: list(meanings_of(symptom)),
        "broken": broken,
        "pointed": pointed,
        "fields": evidence.fields,
        "exchanges": evidence.exchanges,
        "expectation": sentence_of,
        "own": evidence.own,
        "later": evidence.later,
        "count": "{:,}".format,
        "format_value": format_value,
        "format_points": format_points,
        "format_rules": format_rules,
        "format_count": format_count,
        "slug": slug,
        "spaced": spaced,
        "told": _told,
        "asked": evidence.asked,
        "remarks_on": remarks_on,
        "preconditions": evidence.preconditions,
        "seen": evidence.seen,
        "without_packets": without_packets,
        "kinds_of": kinds_of,
        "clauses": _CLAUSE.split,
        "sketch": _sketch,
        "sign": lambda verdict: SIGNS.get(verdict, ""),
        "figures": figures,
        "upstream": upstream,
        "upstream_in_a_word": upstream_in_a_word,
        "titled": titled,
    }
    return environment


def linked(text: str) -> Markup:
    """Returns the text with each address as a link. Everything else is escaped."""
    parts = []
    for number, part in enumerate(_ADDRESS.split(text)):
        if number % 2:
            parts.append(Markup('<a href="{0}" rel="noreferrer">{0}</a>').format(part))
        else:
            parts.append(escape(part))
    return Markup("").join(parts)


_FINGERPRINT = re.compile(r"\b[0-9a-f]{12}\b")
_TO_DEFECT = '<a class="id" href="#defect%3A{0}">{0}</a>'
_ADDRESS = re.compile(r"(https?://[^\s;]+)")


def marked(text: str) -> Markup:
    """Returns the text with code instead of the backticks around it. Everything else is escaped."""
    return Markup(_MARKED.sub(r"<code>\1</code>", str(escape(text))))


def broken(text: str) -> Markup:
    """Returns the text with places to break a line after `|` and `,`, so that no word of a long text is broken."""
    return Markup(_BETWEEN.sub(r"\1<wbr>", str(escape(text))))


def pointed(text: str, defects: Collection[str]) -> Markup:
    """Returns the text with links from the fingerprints of these defects, which are on the page."""
    return Markup(
        _FINGERPRINT.sub(
            lambda found: _TO_DEFECT.format(found[0]) if found[0] in defects else found[0],
            str(escape(text)),
        )
    )


def slug(severity: Severity) -> str:
    """Returns the name of a severity's class in the style sheet."""
    return severity.label.replace(":", "").replace(" ", "-")
