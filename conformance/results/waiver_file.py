"""Reads a YAML file of waivers, and reports the location of every mistake. Creates the text of such a file from the
defects in recorded runs. waivers.schema.json describes the file to editors. waivers.py applies waivers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from conformance import verbs
from conformance.bench.work_requests import WC_STATUS
from conformance.defects import Defect, Severity, defects_of, shorts_in
from conformance.defects.owner import LIBIBVERBS, PROVIDER
from conformance.errors import UserError, command
from conformance.kernel.netlink import DRIVERS
from conformance.model import predicate
from conformance.model.address import is_address
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.space import Axis, Space
from conformance.model.verdict import INCOMPLETE, VIOLATIONS, Verdict
from conformance.model.vocabulary import ERRNO_NAMES
from conformance.results.records import is_recording
from conformance.results.waivers import (
    DefectWaiver,
    KnownOutcome,
    Waiver,
    Waivers,
    WaiverScope,
    version,
)
from conformance.tables.suite import CASES, POINT, ROOT, Suite
from conformance.yamldoc.nodes import Location, Node, quoted
from conformance.yamldoc.reader import Reader, document, similar, suggestion

LONGEST = timedelta(days=180)
_KEYS = ("case", "rule", "defect", "where", "observed", "issue", "owner", "expires")
_OF_DEFECT = ("also", "title", "cases", "unsteady")
_REQUIRED = ("where", "observed", "issue", "owner", "expires")
_KERNEL = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")
_WHERE = ("driver", "kernel", "rdma_core", "firmware")
# of the outcomes that results have
_ERRNOS = [name for name in ERRNO_NAMES if name not in ("any", "ENOTSUP")]
_RETURNED = ("NULL", *_ERRNOS, *verbs.ENUMS["ibv_rereg_mr_err_code"].short_names)
_NUMBERED = re.compile("(errno|status) -?[0-9]+")
_CODE = re.compile("[A-Z][A-Z0-9_]{2,}")
_NO_FORMULA = ("always", "never", "by chance", "no short description", "not described")
_OBSERVED = ("verdict", "returned", "errno", "wc", "reason", "when")


def read_waivers(path: Path, suite: Suite, today: date) -> Waivers:
    """Returns the waivers in a file. Raises UserError with a line for each mistake."""
    if is_recording(path):
        raise UserError(
            f"{path} has results, and is not a file of waivers",
            hint=f"{command('waivers', '--run', str(path))} makes waivers of its defects",
        )
    with document(path) as (root, reader):
        if isinstance(root.value, dict) and "device" in root.value and "waivers" not in root.value:
            raise UserError(f"{path} is a profile, and not a file of waivers; give it as --profile")
        fields = reader.mapping(root, "a file of waivers", ("waivers",), ("waivers",))
        cases = {case.id: case.rules for case in suite.cases}
        nodes = reader.items(fields.get("waivers"), "waivers")
        read = [_waiver(node, reader, suite, today) for node in nodes if not _is_of_defect(node)]
        defects = [
            _defect_waiver(node, reader, cases, today) for node in nodes if _is_of_defect(node)
        ]
        met: dict[tuple[str, WaiverScope], Waiver | DefectWaiver] = {}
        every: list[Waiver | DefectWaiver] = [*filter(None, read), *filter(None, defects)]
        for waiver in every:
            first = met.setdefault((waiver.target, waiver.where), waiver)
            if first is not waiver:
                reader.note(
                    waiver.location,
                    f"{waiver.target} is waived twice (first at {first.location})",
                )
    exact_first = tuple(sorted(filter(None, read), key=lambda waiver: not waiver.case))
    return Waivers(str(path), reader.sha256, exact_first, today, tuple(filter(None, defects)))


def _is_of_defect(node: Node) -> bool:
    return isinstance(node.value, dict) and "defect" in node.value


def _defect_waiver(
    node: Node, reader: Reader, known: Mapping[str, Collection[str]], today: date
) -> DefectWaiver | None:
    before = len(reader.mistakes)
    fields = reader.mapping(node, "the waiver of a defect", (*_KEYS, *_OF_DEFECT), _REQUIRED)
    for other in ("case", "rule"):
        if other in fields:
            reader.note(
                fields[other].location,
                f"a waiver is for one defect or for one {other}, not for both",
            )
    defect = reader.text(fields.get("defect"), "defect") or ""
    fingerprints_read = [
        (item, reader.text(item, "a fingerprint") or "")
        for item in reader.items(fields.get("also"), "also")
    ]
    for place, text in (*([(fields["defect"], defect)] if defect else ()), *fingerprints_read):
        if text and not _FINGERPRINT.fullmatch(text):
            reader.note(
                place.location,
                f"{quoted(text)} is not a fingerprint, which has 12 hexadecimal digits",
            )
    observed = fields.get("observed")
    if observed:
        observed_fields = reader.mapping(observed, "observed", ("severity",), ("severity",))
    else:
        observed_fields = {}
    label = (
        reader.word(
            observed_fields.get("severity"),
            "severity",
            tuple(severity.label for severity in Severity),
        )
        or ""
    )
    cases = tuple(
        _case_of_defect(item, known, reader) for item in _some(fields.get("cases"), "cases", reader)
    )
    reader.text(fields.get("title"), "title")
    of_unsteady = ("case", "seen")
    unsteady = []
    for item in reader.items(fields.get("unsteady"), "unsteady"):
        keys = reader.mapping(item, "an unsteady case", of_unsteady, of_unsteady)
        reader.text(keys.get("seen"), "seen")
        unsteady.append(_case_of_defect(keys.get("case"), known, reader))
    terms = _terms(node, fields, reader, today)
    if len(reader.mistakes) > before or terms is None:
        return None
    severity = next(severity for severity in Severity if severity.label == label)
    also = tuple(text for _, text in fingerprints_read)
    listed = {case.partition(POINT)[0] for case in (*cases, *unsteady)}
    rules = frozenset(rule for case in listed for rule in known.get(case, ()))
    return DefectWaiver(*terms, defect, also, severity, cases, tuple(unsteady), rules)


def _waiver(
    node: Node,
    reader: Reader,
    suite: Suite,
    today: date,
) -> Waiver | None:
    before = len(reader.mistakes)
    fields = reader.mapping(node, "a waiver", _KEYS, _REQUIRED)
    targets = fields.keys() & {"case", "rule"}
    misspelt = not targets and _misspells(node, fields, ("case", "rule", "defect"), _KEYS)
    if isinstance(node.value, dict) and len(targets) != 1 and not misspelt:
        reader.note(
            node.location,
            "a waiver is for one case, rule or defect: write `case`, `rule` or `defect`",
        )
    case = _known_id(fields.get("case"), "case", [case.id for case in suite.cases], reader)
    rule = _known_id(fields.get("rule"), "rule", suite.registry, reader)
    observed_values = _observed(fields.get("observed"), reader, suite, case or rule)
    terms = _terms(node, fields, reader, today)
    if len(reader.mistakes) > before or terms is None:
        return None
    return Waiver(*terms, case, rule, observed_values)


def _misspells(
    node: Node, fields: Mapping[str, Node], meant: Iterable[str], known: Collection[str]
) -> bool:
    """Whether a key that is not in `fields`, and so a mistake already, is similar to one of these."""
    unknown = node.value.keys() - fields.keys() if isinstance(node.value, dict) else ()
    near = [similar(key, known) for key in unknown]
    return any([key] in near for key in meant)


def _terms(
    node: Node,
    fields: Mapping[str, Node],
    reader: Reader,
    today: date,
) -> tuple[WaiverScope, str, str, date, Location] | None:
    where, issue = _where(fields.get("where"), reader), _issue(fields.get("issue"), reader)
    owner, expires = (
        reader.text(fields.get("owner"), "owner") or "",
        _expires(fields.get("expires"), reader, today),
    )
    if expires:
        return (where, issue, owner, expires, node.location)
    return None


def _known_id(node: Node | None, what: str, known: Collection[str], reader: Reader) -> str:
    name = reader.text(node, what)
    if node and name and name not in known:
        reader.note(node.location, f"unknown {what} {quoted(name)}{suggestion(name, known)}")
    return name or ""


def _case_of_defect(node: Node | None, known: Collection[str], reader: Reader) -> str:
    """Returns a case that a defect had when the waiver was written. It can be retired, or of tables that this run does
    not have; only one that is similar to a case is a mistake."""
    name = reader.text(node, "a case") or ""
    if not node or not name or name.partition(POINT)[0] in known:
        return name
    near = suggestion(name, known)
    if "did you mean" in near:
        from conformance.tables.loader import retired_case  # imported late: only mistakes need it

        if not retired_case(name.partition(POINT)[0], [CASES], ROOT):
            reader.note(node.location, f"unknown case {quoted(name)}{near}")
    return name


def _where(node: Node | None, reader: Reader) -> WaiverScope:
    if node:
        fields = reader.mapping(node, "where", _WHERE, ("driver",))
    else:
        fields = {}
    first, last = _span(fields.get("kernel"), "kernel", "6.12", reader)
    of_rdma_core = _span(fields.get("rdma_core"), "rdma_core", "56", reader)
    driver = reader.text(fields.get("driver"), "driver") or ""
    if similar(driver, DRIVERS):  # others can be of later kernels
        _named(fields["driver"], "driver", DRIVERS, reader)
    firmware = reader.text(fields.get("firmware"), "firmware") or ""
    return WaiverScope(driver, first, last, firmware, *of_rdma_core)


def _span(node: Node | None, what: str, example: str, reader: Reader) -> tuple[str, str]:
    """Returns the first and the last version of a range; empty without a limit."""
    span = reader.mapping(node, what, ("from", "to")) if node else {}
    if node and isinstance(node.value, dict) and not node.value:
        reader.note(node.location, "a range has a `from`, a `to`, or both")
    ends = []
    for key in ("from", "to"):
        end, text = span.get(key), reader.text(span.get(key), key) or ""
        if end and text and not version(text):
            said = f'invalid {what} version {quoted(text)}; write e.g. "{example}"'
            reader.note(end.location, said)
        ends.append(text)
    first, last = ends
    if node and first and last and version(first)[: len(version(last))] > version(last):
        reader.note(node.location, f"no {what} is from {first} to {last}")
    return first, last


def _observed(node: Node | None, reader: Reader, suite: Suite, target: str) -> KnownOutcome:
    if node:
        fields = reader.mapping(node, "observed", _OBSERVED, ("verdict",))
    else:
        fields = {}
    verdict = reader.word(fields.get("verdict"), "verdict", VIOLATIONS) or ""
    returned = reader.text(fields.get("returned"), "returned") or ""
    if _CODE.fullmatch(returned) and similar(returned, _RETURNED):
        _named(fields["returned"], "returned", _RETURNED, reader)
    errno = _named(fields.get("errno"), "errno", _ERRNOS, reader)
    reason = reader.text(fields.get("reason"), "reason") or ""
    wc = tuple(
        _named(item, "wc", WC_STATUS, reader) for item in _some(fields.get("wc"), "wc", reader)
    )
    when_items = _some(fields.get("when"), "when", reader)
    known = list(_spaces(suite, target)) if when_items else []
    ids = {name for case in suite.cases for name in (case.id, *case.rules)} if when_items else ()
    if target in ids and not known:
        reader.note(fields["when"].location, f"`when` is for a sweep, and {target} has none")
    when = tuple(_formula(item, known, reader) for item in when_items)
    is_described = bool(fields.keys() - {"verdict"})
    if node and verdict == Verdict.FAIL and not is_described:
        is_described = _misspells(node, fields, _OBSERVED[1:], _OBSERVED)
    if node and verdict == Verdict.FAIL and not is_described:
        key_names = ", ".join(f"`{key}`" for key in _OBSERVED[1:])
        reader.note(node.location, f"describe the failure with at least one of {key_names}")
    return KnownOutcome(verdict, returned, errno, wc, reason, when)


def _some(node: Node | None, what: str, reader: Reader) -> tuple[Node, ...]:
    """Returns the items of a list. An empty list, which would allow every value, is a mistake."""
    if node and node.value == ():
        reader.note(node.location, f"{what} must not be empty")
    return reader.items(node, what)


def _named(node: Node | None, what: str, known: Collection[str], reader: Reader) -> str:
    """Returns a name that results have: a known one, or the number of one without a name, such as `errno 524`."""
    name = reader.text(node, what) or ""
    if node and name and name not in known and not _NUMBERED.fullmatch(name):
        reader.note(node.location, f"unknown {what} {quoted(name)}{suggestion(name, known)}")
    return name


def _formula(node: Node, spaces: Sequence[Space], reader: Reader) -> str:
    """Returns the formula of a deviation, which is one of the spaces unless these are unknown."""
    text = reader.text(node, "when") or ""
    if not text or text.startswith(_NO_FORMULA):
        return text
    mistakes = []
    for space in spaces:
        try:
            predicate.parse(text, space, {})
            return text
        except ValueError as error:
            mistakes.append(str(error))
    if mistakes:
        near = (mistake for mistake in mistakes if "did you mean" in mistake)
        reader.note(node.location, f"when: {next(near, mistakes[0])}")
    return text


def _spaces(suite: Suite, target: str) -> Iterator[Space]:
    """Yields the spaces of the sweeps and models of the case, or of the cases of the rule, with this id."""
    for case in suite.cases:
        if target not in (case.id, *case.rules):
            continue
        if case.sweep:
            yield case.sweep.space
        if case.array:
            model = case.array.model
            yield Space((*model.parameters, Axis("fault", ("none", *model.faults))))


def _issue(node: Node | None, reader: Reader) -> str:
    text = reader.text(node, "issue") or ""
    if node and text and not is_address(text):
        reader.note(
            node.location,
            f"issue must be a URL that begins with https:// or http://, not {quoted(text)}",
        )
    return text


def _expires(node: Node | None, reader: Reader, today: date) -> date | None:
    text = reader.text(node, "expires")
    if node is None or text is None:
        return None
    try:
        expires = date.fromisoformat(text)
    except ValueError:
        reader.note(
            node.location,
            f"expires must be a date such as {today + LONGEST}, not {quoted(text)}",
        )
        return None
    if expires > today + LONGEST:
        reader.note(
            node.location,
            f"expires is more than {LONGEST.days} days ahead; the latest is {today + LONGEST}",
        )
    return expires


# In the URL of an issue, the placeholder for the fingerprint of the defect.
FINGERPRINT = "{defect}"
# In place of the first or the last kernel of a range: no limit.
ANY = "any"


@dataclass(frozen=True)
class KernelRange:
    """The first kernel of new waivers for defects that the oldest run shows, and the last kernel for defects that the
    newest run shows: ANY, or empty for the kernel of this run. Other defects were introduced or fixed between the runs."""

    first: str = ""
    last: str = ""

    def __post_init__(self) -> None:
        for option, end in self._ends:
            if end not in ("", ANY) and not _KERNEL.fullmatch(end):
                raise UserError(f"{option} {end!r} is not a kernel version such as 6.12, nor {ANY}")

    def span(self, kernels: Sequence[str], tested: Sequence[str], what: str = "kernel") -> str:
        """Returns the range of a waiver for a defect of these kernels of all `tested` kernels, in YAML; empty if it has no
        limit. `what` is the key of the range."""
        if not kernels:
            return ""
        ends = {"from": kernels[0], "to": kernels[-1]}
        if self.first and kernels[0] == tested[0]:
            ends["from"] = self.first
        if self.last and kernels[-1] == tested[-1]:
            ends["to"] = self.last
        fields = [f"{key}: {as_yaml(end)}" for key, end in ends.items() if end != ANY]
        return f", {what}: {{{', '.join(fields)}}}" if fields else ""

    def span_of_rdma_core(self, versions: Sequence[str], tested: Sequence[str]) -> str:
        """Returns the same for rdma-core, to which only ANY applies."""
        ends = KernelRange(*(end if end == ANY else "" for end in (self.first, self.last)))
        return ends.span(versions, tested, "rdma_core")

    def check(self, run: Run) -> None:
        """Raises UserError if the range does not have the kernel of the run."""
        first, last = ("" if end == ANY else end for end in (self.first, self.last))
        if not WaiverScope("", first, last).has_kernel(run.header):
            kernel = run.header["env"].get("kernel", "?")
            options = " ".join(f"{option} {end}" for option, end in self._ends if end)
            raise UserError(f"kernel {kernel} of {run.name} is not in the range of {options}")

    @property
    def _ends(self) -> Sequence[tuple[str, str]]:
        return ("--from", self.first), ("--to", self.last)


@dataclass(frozen=True)
class Run:
    """A run from which waivers are created. The results have every key of record_shape.RESULT."""

    name: str
    header: HeaderRecord
    results: Sequence[ResultRecord]

    @property
    def driver(self) -> str:
        """The kernel driver; empty if unknown."""
        return str(self.header["device"].get("driver", ""))

    @property
    def kernel(self) -> str:
        """The first two numbers of the kernel's version; a waiver does not depend on the third number."""
        return ".".join(map(str, version(str(self.header["env"].get("kernel", "")))[:2]))

    @property
    def rdma_core(self) -> str:
        """The first number of the version of rdma-core: the others are those of corrected releases."""
        return ".".join(map(str, version(str(self.header["env"].get("rdma_core", "")))[:1]))


_OF_RUNS = KernelRange()


def waivers_text(
    runs: Sequence[Run],
    owner: str,
    issue: str,
    expires: date,
    fingerprints: Sequence[str] = (),
    kernels: KernelRange = _OF_RUNS,
) -> str:
    """Returns the text of a file of waivers: one for each defect of each driver, the most severe defect first. With
    `fingerprints`, or their first digits, only for these defects; raises UserError if no run has one of them."""
    wanted = tuple(digits.lower() for digits in fingerprints)
    missing = dict.fromkeys(wanted)
    by_driver: dict[str, list[tuple[Run, list[Defect]]]] = {}
    for run in runs:
        kernels.check(run)
        # so that waived symptoms count for the severity, too
        raw: list[ResultRecord] = [
            {**record, "effective": record["verdict"]} for record in run.results
        ]
        defects = defects_of(raw, shorts_in(run.header))
        if wanted:
            defects = [defect for digits in wanted for defect in _called(digits, defects)]
        for digits in wanted:
            if _called(digits, defects):
                missing.pop(digits, None)
        by_driver.setdefault(run.driver, []).append((run, defects))
    if missing:
        raise UserError(
            f"no run has the defect {next(iter(missing))}",
            hint=f"{command('report', runs[0].name)} shows its defects",
        )
    lines = ["# Known defects, by their fingerprints; made by `rdma-cts waivers` from these runs:"]
    tested = Counter(
        f"#   {run.header['stack']}, {run.driver}, kernel {run.header['env'].get('kernel', '?')}"
        for run in runs
    )
    lines += [f"{what} ({number} runs)" if number > 1 else what for what, number in tested.items()]
    lines += [
        "# A waiver covers the kernels from `from` to `to`, both included (7.2 includes every 7.2.x), and no other: on the next",
        "# release its violations count again, and the run names the waiver. Name a run of that release too, or give --to.",
    ]
    blocks: list[list[str]] = []
    for of_driver in by_driver.values():
        blocks += _of_driver(of_driver, owner, issue, expires, kernels)
    return (
        "\n".join(
            [
                *lines,
                "waivers:" if blocks else "waivers: []",
                *("\n".join(block) for block in blocks),
            ],
        )
        + "\n"
    )


def _called(digits: str, defects: Sequence[Defect]) -> list[Defect]:
    """Returns the defect with this fingerprint, or with these first digits of it; an empty list without one."""
    called = Defect.called(digits, defects)
    if len(called) > 1:
        names = ", ".join(defect.fingerprint for defect in called)
        raise UserError(f"{digits} matches several defects: {names}")
    return called


def _of_driver(
    of_runs: Sequence[tuple[Run, Sequence[Defect]]],
    owner: str,
    issue: str,
    expires: date,
    kernels: KernelRange,
) -> Iterator[list[str]]:
    by_driver: list[list[tuple[Run, Defect]]] = []
    for run, defects in of_runs:
        for defect in defects:
            same = [seen for seen in by_driver if _is_among(defect, seen)]
            by_driver = [seen for seen in by_driver if seen not in same]
            by_driver.append([pair for seen in same for pair in seen] + [(run, defect)])
    for seen in sorted(by_driver, key=_rank):
        yield list(_lines_of([run for run, _ in of_runs], seen, owner, issue, expires, kernels))


def _is_among(defect: Defect, seen: Sequence[tuple[Run, Defect]]) -> bool:
    return defect.is_among(other for _, other in seen)


def _rank(seen: Sequence[tuple[Run, Defect]]) -> tuple[int, int]:
    return min(defect.severity.rank for _, defect in seen), -max(
        len(defect.cases) for _, defect in seen
    )


def _ordered(versions: Iterable[str]) -> list[str]:
    return sorted({*filter(None, versions)}, key=version)


def _lines_of(
    runs: Sequence[Run],
    seen: Sequence[tuple[Run, Defect]],
    owner: str,
    issue: str,
    expires: date,
    kernel_range: KernelRange,
) -> Iterator[str]:
    worst = min((defect for _, defect in seen), key=lambda defect: defect.severity.rank)
    where = f"driver: {as_yaml(runs[0].driver)}"
    kernels = _ordered(run.kernel for run, _ in seen)
    where += kernel_range.span(kernels, _ordered(run.kernel for run in runs))
    if any(defect.answering.layer in (PROVIDER, LIBIBVERBS) for _, defect in seen):
        of_rdma_core = _ordered(run.rdma_core for run, _ in seen)
        tested = _ordered(run.rdma_core for run in runs)
        where += kernel_range.span_of_rdma_core(of_rdma_core, tested)
    cases = list(dict.fromkeys(case for _, defect in seen for case in defect.cases))
    yield f"  - defect: {as_yaml(worst.fingerprint)}"
    also = sorted(
        {fingerprint for _, defect in seen for fingerprint in defect.fingerprints}
        - {worst.fingerprint},
    )
    if also:
        yield f"    also: [{', '.join(map(as_yaml, also))}]"
    yield f"    title: {as_yaml(worst.title)}"
    yield f"    where: {{{where}}}"
    yield f"    observed: {{severity: {as_yaml(worst.severity.label)}}}"
    yield f"    issue: {as_yaml(issue.replace(FINGERPRINT, worst.fingerprint))}"
    yield f"    owner: {as_yaml(owner)}"
    yield f"    expires: {expires.isoformat()}"
    yield "    cases:"
    yield from (f"      - {as_yaml(case)}" for case in cases)
    unsteady = {case: text for case in cases if (text := _unsteady(case, runs))}
    if unsteady:
        yield "    unsteady:"
    yield from (
        f"      - {{case: {as_yaml(case)}, seen: {as_yaml(text)}}}"
        for case, text in unsteady.items()
    )


def _unsteady(case: str, runs: Sequence[Run]) -> str:
    """Returns how often the rarest verdict of a case was observed; empty if the runs of each kernel agree."""
    count: Counter[str] = Counter()
    for kernel in {run.header["env"].get("kernel") for run in runs}:
        counts = Counter(
            str(record["verdict"])
            for run in runs
            if run.header["env"].get("kernel") == kernel
            for record in run.results
            if record["case"] == case and record["verdict"] not in INCOMPLETE
        )
        count += counts if len(counts) > 1 else Counter()
    if not count:
        return ""
    *frequent, rarest = sorted(count, key=lambda verdict: -count[verdict])
    return f"{' or '.join(frequent)} or {rarest}, {rarest} seen {count[rarest]} of {sum(count.values())}"


def as_yaml(text: str) -> str:
    """Returns the text as a JSON string, which is a YAML scalar that is always read as text."""
    return json.dumps(text)
