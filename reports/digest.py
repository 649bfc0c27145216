"""What a recorded run comes to: its rules with their verdicts, and the verdict in words.

Every report starts here. A results file may come from anywhere, so this is where its shape is checked
and where control characters end; each renderer escapes for its own syntax. Not for layout.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.model.verdict import VERDICTS, VIOLATIONS, Verdict
from conformance.results.records import Record, Recorded, exit_status, read_results, verdict_on

# What the verdicts mean for a rule, in the order in which the sentence tells them.
VERIFIED, VIOLATED, WAIVED = "verified", "violated", "waived"
UNSUPPORTED, UNREACHABLE, UNDECIDED, NOT_RUN = "unsupported", "unreachable", "undecided", "not run"
STANDING: Mapping[str, str] = {
    Verdict.PASS: VERIFIED, Verdict.FAIL: VIOLATED, Verdict.CRASH: VIOLATED, Verdict.HANG: VIOLATED,
    Verdict.WAIVED: WAIVED, Verdict.UNSUPPORTED: UNSUPPORTED, Verdict.UNREACHABLE: UNREACHABLE,
    Verdict.BROKEN: UNDECIDED, Verdict.MISSED: UNDECIDED,
}  # fmt: skip
STANDINGS = (VERIFIED, VIOLATED, WAIVED, UNSUPPORTED, UNREACHABLE, UNDECIDED, NOT_RUN)
_PHRASES: Mapping[str, str] = {
    VERIFIED: "verified", VIOLATED: "violated", WAIVED: "waived", UNSUPPORTED: "unsupported by this device",
    UNREACHABLE: "unreachable on this stack", UNDECIDED: "not decided", NOT_RUN: "without a case in this run",
}  # fmt: skip
_REASONS_TOLD = 4
_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,}\b")  # the beginning of a hash is enough for people

# The keys that reports rest on: what must be of which type, and what stands for one that is not there.
_HEADER: Mapping[str, Any] = {
    "suite": {}, "env": {}, "device": {}, "rules": {}, "planned": [], "argv": [], "stack": "", "started": "",
}  # fmt: skip
_RESULT: Mapping[str, Any] = {
    "case": "", "rules": [], "level": "", "entry": "", "layer": "", "verdict": "", "effective": "", "reason": "",
    "call": "", "expected": {}, "observed": {}, "source": {}, "kernel": {}, "repro": "", "notes": [],
    "duration_us": 0.0, "waiver": {}, "space": {}, "points": {}, "deviations": [], "points_file": "",
    "rule_verdicts": {},
}  # fmt: skip
_FOOTER: Mapping[str, Any] = {"complete": False, "verdicts": {}, "rules": {}, "duration_s": 0.0, "waivers": {}}
_DEVIATION: Mapping[str, Any] = {
    "when": "", "clause": "", "observed": "", "count": 0, "of": 0, "smallest": {}, "rules": [], "repro": "", "row": "",
}  # fmt: skip
_RULE = ("verb", "statement", "document", "section", "level", "layer", "failure_means")


@dataclass(frozen=True)
class RuleFacts:
    """What the results file says of a rule; texts are empty in one that was written before it said so."""

    id: str
    verb: str
    statement: str
    document: str
    section: str
    level: str
    layer: str
    failure_means: str


@dataclass(frozen=True)
class Part:
    """One part of the verdict in words: how many rules stand so, and why, where that needs saying."""

    standing: str
    count: int
    because: tuple[str, ...] = ()

    @property
    def phrase(self) -> str:
        """How it stands, in words."""
        return _PHRASES[self.standing]

    def __str__(self) -> str:
        why = f" (because {'; '.join(self.because)})" if self.because else ""
        return f"{self.count:,} {self.phrase}{why}"


@dataclass(frozen=True)
class Digest:
    """A run as reports see it. `results` has a line for each planned case, MISSED where none was recorded.

    `directory` is where the run's other files lie; `torn` says that the last line was being written.
    """

    directory: Path
    header: Record
    results: tuple[Record, ...]
    footer: Record | None
    torn: bool = False

    @cached_property
    def rules(self) -> Mapping[str, RuleFacts]:
        """The rules of the run's suite by id; of an old file, those that its results name."""
        told = self.header["rules"] or {rule: {} for line in self.results for rule in line["rules"]}
        return {id_: RuleFacts(id_, **{key: str(facts.get(key, "")) for key in _RULE}) for id_, facts in told.items()}

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """What was under test and how much of it, a text for each fact; empty where nothing is known."""
        header, footer = self.header, self.footer or {}
        facts: dict[str, object] = {
            "device": self.device, "driver": header["device"].get("driver"),
            "firmware": header["device"].get("fw") or "none",
            "kernel": header["env"].get("kernel"), "rdma-core": header["env"].get("rdma_core"),
            "stack": header["stack"], "transport": header["device"].get("transport"),
            "tier": header.get("tier"), "seed": header.get("seed"),
            "started": header["started"].replace("T", " "), "suite": header["suite"].get("version"),
            "tables": str(header["suite"].get("tables_sha256", ""))[:12], "cases": f"{len(self.results):,}",
            "calls judged": f"{self.points:,}", "seconds": footer.get("duration_s"), "exit status": self.status,
        }  # fmt: skip
        return {name: "" if value is None else said(value) for name, value in facts.items()}

    @cached_property
    def under_test(self) -> Mapping[str, str]:
        """What was under test by the beginning of its hash: kernel, modules, libraries, and what was given."""
        told = self.header.get("under_test")
        return {name: _DIGEST.sub(r"\1", text) for name, text in flat(told)} if isinstance(told, dict) else {}

    @cached_property
    def verdicts(self) -> Mapping[str, str]:
        """For each rule with a result the worst effective verdict."""
        worst: dict[str, str] = {}
        for line in self.results:
            for rule in line["rules"]:
                worst[rule] = min(worst.get(rule, Verdict.PASS), verdict_on(rule, line), key=VERDICTS.index)
        return worst

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The verdict in words, in parts: what is verified, and each other standing that a rule has."""
        count = Counter(STANDING[verdict] for verdict in self.verdicts.values())
        count[NOT_RUN] = sum(rule not in self.verdicts for rule in self.rules)
        because = {UNSUPPORTED: self._why_unsupported, UNREACHABLE: self._why_unreachable}
        return tuple(
            Part(each, count[each], because[each]() if each in because else ())
            for each in STANDINGS if count[each] or each == VERIFIED
        )  # fmt: skip

    @property
    def words(self) -> str:
        """The verdict in one sentence, with the reasons."""
        return ", ".join([self._verified(), *(str(part) for part in self.parts if part.standing != VERIFIED)]) + "."

    @property
    def short_words(self) -> str:
        """The verdict in one sentence, without the reasons."""
        rest = (f"{part.count:,} {part.phrase}" for part in self.parts if part.standing != VERIFIED)
        return ", ".join([self._verified(), *rest])

    def _verified(self) -> str:
        verified = next((part.count for part in self.parts if part.standing == VERIFIED), 0)
        return f"{verified:,} of {len(self.rules):,} documented rules verified"

    @property
    def conclusion(self) -> str:
        """What the run says of the device, in a few words."""
        if self.footer is None:
            return "The run was cut short"
        return {
            0: f"{self.device} keeps its documents",
            1: f"{self.device} departs from its documents",
            3: "The run is incomplete or broken and says nothing final",
        }[self.status]

    @property
    def status(self) -> int:
        """The exit status of the run by its contract."""
        return 3 if self.footer is None else exit_status(self.footer)

    @property
    def name(self) -> str:
        """What a column of this run is called."""
        env = self.header["env"]
        return f"{self.device}, {self.header['stack']}, kernel {env.get('kernel', '?')}"

    @property
    def device(self) -> str:
        """The device's name."""
        return str(self.header["device"].get("name", "?"))

    @property
    def counts(self) -> Mapping[str, int]:
        """How many cases have each effective verdict."""
        return Counter(line["effective"] for line in self.results)

    @property
    def points(self) -> int:
        """Calls or operations judged: the points of sweeps, and one for each other case."""
        sizes = (sum(line["points"].values()) for line in self.results if line["verdict"] != Verdict.MISSED)
        return sum(size or 1 for size in sizes)

    @property
    def waivers(self) -> Mapping[str, Any]:
        """What the footer says of waivers; empty for a run without."""
        told = (self.footer or {}).get("waivers")
        return told if isinstance(told, dict) else {}

    def violations(self) -> dict[str, list[Record]]:
        """The results that violate each violated rule, in the rules' order, the worst first."""
        found: dict[str, list[Record]] = {}
        for line in sorted(self.results, key=lambda line: VERDICTS.index(line["effective"])):
            for rule in line["rules"]:
                if verdict_on(rule, line) in VIOLATIONS:
                    found.setdefault(rule, []).append(line)
        order = list(self.rules)
        return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))

    def _of_rules(self, verdict: str) -> Iterator[tuple[str, Record]]:
        for line in self.results:
            if line["effective"] == verdict:
                yield from ((rule, line) for rule in line["rules"] if self.verdicts[rule] == verdict)

    def _why_unreachable(self) -> tuple[str, ...]:
        return _most({(line["reason"], rule) for rule, line in self._of_rules(Verdict.UNREACHABLE)})

    def _why_unsupported(self) -> tuple[str, ...]:
        undeclared = {
            (str(name), rule)
            for rule, line in self._of_rules(Verdict.UNSUPPORTED) for name in line["observed"].get("lacking", ())
        }  # fmt: skip
        names = [name for name, _ in Counter(name for name, _ in sorted(undeclared)).most_common()]
        return (f"it does not declare {', '.join(names)}",) if names else ()


def _most(pairs: set[tuple[str, str]]) -> tuple[str, ...]:
    """The reasons that most rules have, each with their number."""
    count = Counter(reason for reason, _ in sorted(pairs))
    told = [f"{reason} ({number:,})" for reason, number in count.most_common(_REASONS_TOLD)]
    rest = len(count) - len(told)
    return (*told, *([f"{rest} more"] if rest else []))


def read(path: Path) -> Digest:
    """The digest of the results file at `path` or in that directory. Raises UserError for what is none."""
    return digest(read_results(path), path if path.is_dir() else path.parent, str(path))


def digest(recorded: Recorded, directory: Path, name: str = "") -> Digest:
    """The digest of a run that was recorded. Raises UserError where a line has not the shape that it must have."""
    where = name or str(directory)
    header = _shaped(plain(recorded.header), _HEADER, f"{where}: the header")
    for id_, facts in header["rules"].items():
        if not isinstance(facts, dict):
            raise UserError(f"{where}: the header: rule {id_} is no object")
    by_case: dict[str, Record] = {}
    for line in recorded.results:
        shaped = _result(plain(line), where)
        by_case[shaped["case"]] = shaped
    planned = [str(case) for case in header["planned"]]
    for case in planned:
        if case not in by_case:
            by_case[case] = _never_recorded(case)
    footer = _footer(plain(recorded.footer), f"{where}: the footer") if recorded.footer else None
    return Digest(directory, header, tuple(by_case.values()), footer, recorded.torn)


def told_deviation(deviation: Record) -> str:
    """A deviation in words: of a sweep its points, of random sequences the row that shows it."""
    if deviation["row"]:
        return f"{deviation['when']}, as a row of a table:\n{deviation['row'].rstrip()}"
    return f"{deviation['count']:,} points whenever {deviation['when']}"


def _footer(line: Record, where: str) -> Record:
    shaped = _shaped(line, _FOOTER, where)
    if any(not isinstance(count, int) for count in shaped["verdicts"].values()):
        raise UserError(f"{where}: a count of verdicts is no number")
    _texts(shaped["waivers"].get("problems", []), f"{where}: `waivers.problems`")
    return shaped


def _result(line: Record, where: str) -> Record:
    where = f"{where}: case {line.get('case')}"
    shaped = _shaped(line, _RESULT, where)
    _texts(shaped["rules"], f"{where}: `rules`")
    _texts(shaped["notes"], f"{where}: `notes`")
    shaped["kernel"] = {"log": [], **shaped["kernel"]}
    shaped["source"] = {"file": "", "line": "", **shaped["source"]}
    if shaped["waiver"]:
        shaped["waiver"] = {"owner": "", "issue": "", "expires": "", **shaped["waiver"]}
    _texts(shaped["kernel"]["log"], f"{where}: `kernel.log`")
    for name, labels in _shaped(shaped["space"], {"axes": {}, "size": 0}, f"{where}: `space`")["axes"].items():
        _texts(labels["subsets"] if isinstance(labels, dict) and "subsets" in labels else labels,
               f"{where}: axis {name}")  # fmt: skip
    if any(not isinstance(count, int) for count in shaped["points"].values()):
        raise UserError(f"{where}: a count of points is no number")
    if not set(map(str, shaped["rule_verdicts"].values())) <= set(VERDICTS):
        raise UserError(f"{where}: an unknown verdict in `rule_verdicts`")
    shaped["deviations"] = [_shaped(each, _DEVIATION, f"{where}: a deviation") for each in shaped["deviations"]]
    undeclared = shaped["observed"].get("lacking", [])
    _texts(undeclared, f"{where}: `observed.lacking`")
    return shaped


def _shaped(line: Any, shape: Mapping[str, Any], where: str) -> Record:
    """The line with each key that it lacks; null stands for none."""
    if not isinstance(line, dict):
        raise UserError(f"{where} is no object")
    told = {key: value for key, value in line.items() if value is not None}
    for key, default in shape.items():
        if not _is_like(told.setdefault(key, type(default)(default)), default):
            raise UserError(f"{where}: `{key}` is of another type than a result has")
    return told


def _is_like(value: Any, default: Any) -> bool:
    """Whether a value is of its default's type; a number may be whole, but must be one to count with."""
    if isinstance(default, int | float) and not isinstance(default, bool):
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, type(default))


def _texts(value: Any, where: str) -> None:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise UserError(f"{where} is no list of texts")


def _never_recorded(case: str) -> Record:
    line = {"type": "result", "case": case, "verdict": Verdict.MISSED, "effective": Verdict.MISSED}
    return _result({**line, "reason": "planned and never recorded"}, "")


def one_line(text: str) -> str:
    """The text as one line that commands no terminal and misleads no reader.

    A tab becomes a space; what is not printable (control codes, marks that reverse the direction of
    writing, half characters) becomes `?`.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else " " if each == "\t" else "?" for each in text)


def plain(value: Any) -> Any:
    """The same data with `one_line` done to every text of it."""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    return value


def flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested data as lines for people: a dotted name and a text."""
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from flat(value, f"{name}.")
        elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
            for number, each in enumerate(value, 1):
                yield from flat(each if isinstance(each, Mapping) else {"": each}, f"{name} {number}: ")
        else:
            yield name, _shown(value)


def said(data: Any) -> str:
    """Data as one line for people."""
    if isinstance(data, Mapping):
        return ", ".join(f"{name} {text}" for name, text in flat(data) if text)
    return "nothing" if data is None else str(data)


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(_shown(each) for each in value) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    return str(value)
