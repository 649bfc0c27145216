"""Makes the site of a history: static pages for a web server, one for each rule, defect and night; and badges.
page.py provides the rules, defects and nights. The verdicts on cases are read from the latest readable results
of each cell. commands/site.py provides C programs and mails, and writes the files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from urllib.parse import quote

from conformance.defects import severity_of
from conformance.errors import format_count
from conformance.model.verdict import KEPT, VIOLATIONS
from conformance.older_python import zip
from conformance.results.conclusions import verdict_on
from reports import evidence
from reports.absence import NOT_DECIDED, NOT_SEEN, UNTRIED
from reports.causes import Mend
from reports.digest import Digest
from reports.html import rank_of
from reports.nights.facts import SEEN, WAIVED, Facts
from reports.nights.history import Cell, History, known_nights, since
from reports.nights.known_defect import KnownDefect
from reports.nights.outcome import BASELINE, FAILED, GOOD
from reports.nights.page import WORDS, HistoryPage
from reports.nights.tracks import Track
from reports.page_templates import TEMPLATES, environment
from reports.rule_verdicts import RuleFacts

INDEX, STYLE = "index.html", "style.css"
RULES, DEFECTS, NIGHTS, BADGES = "rules", "defects", "nights", "badges"
FOLDERS = (RULES, DEFECTS, NIGHTS, BADGES)
_STYLES = ("report.css", "history.css", "site.css")
# The words for the states of a rule, and of a defect, in one night; each word stands for several states.
_STATES = {
    RULES: (("kept", KEPT), ("violated", VIOLATIONS)),
    DEFECTS: tuple((state, (state,)) for state in (SEEN, WAIVED, NOT_SEEN, NOT_DECIDED, UNTRIED)),
}
# The colours of badges. White text is readable on each of them.
_GREEN, _RED, _GREY = "#17683f", "#a5141f", "#555b61"
_MOST_NAME = 100  # the most characters in the name of a file
# the width of a digit in a font of 11 px, and the margin of the text
_DIGIT_PX, _MARGIN_PX = (6.6, 12)


@dataclass(frozen=True)
class Papers:
    """Further texts for the page of a defect. A missing text is empty. `script` runs at a peer, which `program` needs then.
    `why_not` is the reason if `program` is missing. `place` is the place of the defect in the sources.
    `described` is the defect in the run that `program` and `letter` are made of, and `rules` are the rules that it violates
    there, those of the case that is shown first."""

    program: str = ""
    script: str = ""
    why_not: str = "the results with the defect were removed"
    letter: str = ""
    described: KnownDefect | None = None
    rules: tuple[str, ...] = ()
    place: str = ""
    mends: tuple[Mend, ...] = ()


@dataclass(frozen=True)
class CaseLine:
    """A case of a rule: the cells by the verdict of the case, and the first night of the violation in each cell."""

    id: str
    location: str
    by_verdict: Mapping[str, tuple[str, ...]]
    since: Mapping[str, str]


class Site(HistoryPage):
    """The pages of the site. `latest` has the latest results by cell, and `papers` has texts by fingerprint. Unless
    `remote`, of a defect that a remote peer can trigger they have only the title, the severity and the nights."""

    def __init__(
        self,
        history: History,
        latest: Mapping[str, Digest],
        papers: Mapping[str, Papers],
        remote: bool = False,
    ) -> None:
        super().__init__(history)
        self._remote = remote
        self.latest = latest
        self._papers = papers

    @cached_property
    def statements(self) -> Mapping[str, RuleFacts]:
        statements: dict[str, RuleFacts] = {}
        for run in sorted(
            self.latest.values(),
            key=lambda run: run.header["started"],
            reverse=True,
        ):
            statements |= {
                id_: facts for id_, facts in run.verdicts.rules.items() if id_ not in statements
            }
        return statements

    def statement(self, rule: str) -> RuleFacts:
        """Returns the texts of a rule; they are empty if no readable results describe the rule."""
        return self.statements.get(rule) or RuleFacts(rule)

    @cached_property
    def verbs(self) -> Mapping[str, list[Track]]:
        tracks: dict[str, list[Track]] = {}
        for track in self.all_rules:
            tracks.setdefault(self.statement(track.id).verb or "other rules", []).append(track)
        return tracks

    def standing(self, track: Track) -> Mapping[str, list[str]]:
        """Returns the cells by the latest state of a rule, the worst state first; the state "" means no results."""
        standings: dict[str, list[str]] = {}
        for lane in track.lanes:
            standings.setdefault(lane.now, []).append(lane.name)
        return dict(sorted(standings.items(), key=lambda pair: rank_of(pair[0])))

    @cached_property
    def defects(self) -> list[tuple[KnownDefect, Track]]:
        """The defects, each as described in the run that its papers are made of."""
        pairs = []
        for defect, track in super().defects:
            if shown := self.papers(track).described:
                defect = replace(
                    shown,
                    severity=defect.severity,
                    worst_on=defect.worst_on,
                    fingerprints=defect.fingerprints,
                )
            pairs.append((defect, track))
        return pairs

    def is_private(self, defect: KnownDefect) -> bool:
        return defect.is_remote and not self._remote

    def _private_cases(self, run: Digest) -> set[str]:
        """Returns the cases that show how a remote peer can trigger a defect, if the site must not have them."""
        symptoms = (symptom for defect in run.violations.defects for symptom in defect.symptoms)
        remote = {symptom.case for symptom in symptoms if severity_of(symptom).advice}
        return set() if self._remote else remote

    def papers(self, track: Track) -> Papers:
        return self._papers.get(track.id) or Papers()

    def defects_of(self, rule: str) -> list[tuple[KnownDefect, Track]]:
        return [pair for pair in self.defects if rule in pair[0].rules]

    def latest_facts(self, name: str) -> Facts | None:
        """Returns the facts of the latest night in which a cell has results; None without such a night."""
        if self._facts[name]:
            return self._facts[name][max(self._facts[name])]
        return None

    def under_test(self, cell: Cell) -> tuple[tuple[str, str, str], ...]:
        """Returns what changed under test since the cell's previous night: name, old value, new value."""
        return self._changes.get(cell.name, {}).get(cell.night, ())

    @cached_property
    def cases(self) -> Mapping[str, list[CaseLine]]:
        """The cases of each rule in the latest results. Cases that violate the rule come first."""
        verdicts: dict[str, dict[str, dict[str, list[str]]]] = {}
        places: dict[str, str] = {}
        private = set().union(*map(self._private_cases, self.latest.values()))
        for name, run in self.latest.items():
            for record in run.results:
                if record["case"] not in run.unrecorded and record["case"] not in private:
                    places.setdefault(record["case"], evidence.location(record))
                    for rule in record["rules"]:
                        by = verdicts.setdefault(rule, {}).setdefault(record["case"], {})
                        by.setdefault(verdict_on(rule, record), []).append(name)
        cases_here = {}
        for rule, cases in verdicts.items():
            lines = [self._case(id_, places[id_], by) for id_, by in cases.items()]
            cases_here[rule] = sorted(lines, key=lambda line: min(map(rank_of, line.by_verdict)))
        return cases_here

    def _case(self, id_: str, place: str, by: Mapping[str, list[str]]) -> CaseLine:
        names = [name for verdict in VIOLATIONS for name in by.get(verdict, ())]
        has = partial(Facts.has_violation, case=id_)
        nights = {
            name: since(known_nights(self.history.of(name), has), self.nights[-1]) for name in names
        }
        ordered = {verdict: tuple(by[verdict]) for verdict in sorted(by, key=rank_of)}
        return CaseLine(
            id_,
            place,
            ordered,
            {name: night for name, night in nights.items() if night},
        )

    @property
    def badges(self) -> Iterator[tuple[str, str, str, str]]:
        """Yields the name, subject, text and colour of each badge."""
        outcomes = {cell.outcome.outcome for cell in self.last}
        if not outcomes.isdisjoint(FAILED):
            colour = _RED
        elif outcomes and outcomes <= {GOOD, BASELINE}:
            colour = _GREEN
        else:
            colour = _GREY
        yield "latest-night", "rdma-cts, latest night", self.last_outcomes, colour
        for name in self._facts:
            if (facts := self.latest_facts(name)) is None:
                continue
            bad, kept_count = (
                len(facts.violated),
                sum(verdict in KEPT for verdict in facts.rules.values()),
            )
            if bad:
                text = f"{bad} of {format_count(bad + kept_count, 'rule')} violated"
            else:
                text = f"{format_count(kept_count, 'rule')} kept, none violated"
            yield (
                name,
                f"rdma-cts, {name}",
                text if facts.complete else f"{text} (incomplete)",
                _RED if bad else _GREEN if facts.complete and kept_count else _GREY,
            )


def file_name(text: str) -> str:
    """Returns the name of a file, without suffix, for a text from results. The text may contain any characters."""
    name = quote(text, safe=" +,=@~") or "none"
    if len(name) <= _MOST_NAME:
        return name
    return f"{name[:_MOST_NAME]}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def pages(site: Site) -> Iterator[tuple[str, str]]:
    """Yields every file: its path in the site, and its content."""
    yield STYLE, "\n".join((TEMPLATES / name).read_text(encoding="utf-8") for name in _STYLES)
    yield INDEX, _page(site, "index", "")
    for track in site.all_rules:
        yield (
            f"{RULES}/{file_name(track.id)}.html",
            _page(site, "rule", track=track, facts=site.statement(track.id)),
        )
    for defect, track in site.defects:
        name, papers = file_name(track.id), site.papers(track)
        if site.is_private(defect):
            papers = Papers()
        yield (
            f"{DEFECTS}/{name}.html",
            _page(site, "defect", track=track, defect=defect, papers=papers),
        )
        if papers.program:
            yield f"{DEFECTS}/{name}.c", papers.program
        if papers.script:
            yield f"{DEFECTS}/{name}.py", papers.script
        if papers.letter:
            yield f"{DEFECTS}/{name}.txt", papers.letter
    for before, night, after in zip(
        ("", *site.nights),
        site.nights,
        (*site.nights[1:], ""),
        strict=False,
    ):
        page = _page(site, "night", night=night, before=before, after=after)
        yield f"{NIGHTS}/{file_name(night)}.html", page
    for name, about, text, colour in site.badges:
        yield f"{BADGES}/{file_name(name)}.svg", _badge(about, text, colour)


def _page(site: Site, template: str, root: str = "../", **of: object) -> str:
    def address(folder: str, name: str, ending: str = ".html", part: str = "") -> str:
        return f"{root}{folder}/{quote(file_name(name))}{ending}{f'#{quote(part)}' if part else ''}"

    def under(night: str, name: str) -> str:
        return address(NIGHTS, night, part=f"cell:{name}")

    template_here = environment().get_template(f"site/{template}.html")
    return template_here.render(
        page=site,
        root=root,
        address=address,
        under=under,
        states=_STATES,
        **WORDS,
        **of,
    )


def _badge(about: str, text: str, colour: str) -> str:
    left_width, right = (
        round(len(text_part) * _DIGIT_PX + _MARGIN_PX) for text_part in (about, text)
    )
    template = environment().get_template("site/badge.svg")
    return template.render(about=about, text=text, colour=colour, left=left_width, right=right)
