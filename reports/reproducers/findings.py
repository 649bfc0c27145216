"""Makes the page of findings: each defect of a driver, the stacks with the defect, and the program that shows it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from conformance.defects import Defect, Symptom
from conformance.errors import format_count
from conformance.judging import Basis
from conformance.tables.suite import Suite
from reports.absence import NOT_DECIDED, NOT_SEEN, UNTRIED
from reports.compared.comparison import Comparisons
from reports.digest import Digest
from reports.reproducers import by_hand
from reports.reproducers.of_runs import first_program, without_peer
from reports.reproducers.program import Program, file_name
from reports.rule_verdicts import RuleFacts
from reports.upstream import upstream, upstream_in_short

PAGE, FOLDER = "findings.md", "findings"
SEEN, ABSENT = "seen", "not"
# The states of a defect on a stack: the word of the run that tells most counts.
_STATES = (SEEN, ABSENT, NOT_DECIDED, UNTRIED)
_TAG = re.compile(r"<(?=[A-Za-z/!?])")  # the texts of received results may contain HTML


@dataclass(frozen=True)
class Run:
    """A recorded run and the known facts about its device."""

    digest: Digest
    basis: Basis

    @property
    def stack(self) -> str:
        """The stack under test, in a few words."""
        header = self.digest.header
        env = header["env"]
        versions = f"kernel {env.get('kernel', '?')}, rdma-core {env.get('rdma_core', '?')}"
        if header["stack"]:
            return f"{header['stack']}: {versions}"
        return versions

    @property
    def name(self) -> str:
        return self.digest.header["stack"] or str(self.digest.header["env"].get("kernel", "?"))

    @property
    def by_fingerprint(self) -> Mapping[str, Defect]:
        return {
            defect.fingerprint: defect
            for defect in self.digest.violations.defects
            if not defect.unconfirmed
        }


@dataclass(frozen=True)
class Finding:
    """A defect, the runs with the defect, and a program for one of its symptoms. `defect` is from the first run. `alone` is
    a program without a peer, if `program` needs one."""

    defect: Defect
    runs: tuple[Run, ...]
    symptom: Symptom
    program: Program | None
    why_not: str = ""
    alone: Program | None = None

    @property
    def file(self) -> str:
        return file_name(self.symptom.name)

    @property
    def programs(self) -> list[Program]:
        return [program for program in (self.program, self.alone) if program]


def findings_of(runs: Sequence[Run], suite: Suite) -> list[Finding]:
    """Returns the confirmed defects of all runs, the most severe first, then the most frequent first."""
    having: dict[str, list[Run]] = {}
    for run in runs:
        for fingerprint in run.by_fingerprint:
            having.setdefault(fingerprint, []).append(run)
    findings = [_finding(fingerprint, tuple(of), suite) for fingerprint, of in having.items()]
    return sorted(
        findings,
        key=lambda fingerprint_entry: (
            fingerprint_entry.defect.severity.rank,
            -len(fingerprint_entry.defect.cases),
            fingerprint_entry.defect.title,
        ),
    )


def _finding(fingerprint: str, runs: tuple[Run, ...], suite: Suite) -> Finding:
    defect = runs[0].by_fingerprint[fingerprint]
    shown = first_program(defect.symptoms, suite, runs[0].basis)
    alone = None
    if shown.program and shown.program.script:
        alone = without_peer(defect.symptoms, suite, runs[0].basis).program
    return Finding(defect, runs, shown.symptom, shown.program, shown.why_not, alone)


def page(
    findings: Sequence[Finding],
    runs: Sequence[Run],
    where: Mapping[str, str],
    mended: Mapping[str, str],
    files: Collection[str],
    title: str,
) -> str:
    """Returns the page as Markdown. `where` has the places of defects in the source by fingerprint, and `mended` the
    changes that fix defects. `files` has the names of the programs in the page's directory; handwritten programs are
    by-hand/FINGERPRINT.c. For a defect without a file, the page has the case, or why there is no program."""
    drivers = ", ".join(
        dict.fromkeys(str(run.digest.header["device"].get("driver", "?")) for run in runs),
    )
    stacks = dict.fromkeys(run.stack for run in runs)
    lines = [
        f"# {title}",
        "",
        f"{format_count(len(findings), 'defect')} of {drivers}, the most severe first. This page is "
        "written by `./rdma-cts findings RUN [RUN …] --out DIR` from runs on:",
        "",
        *(f"- {stack}" for stack in stacks),
        "",
        "`./rdma-cts reproducer CASE --run RUN` writes the program that shows a defect. It needs only libibverbs:",
        "`cc FILE -libverbs && ./a.out [DEVICE]`. It prints the requirement of the document and the observation.",
        "Its exit status is 0 (no violation), 1 (violation), 77 (not supported) or 2 (the set-up failed).",
        *(["The linked programs are next to this page."] if files else []),
        "",
        "| severity | defect | stacks | upstream | shown by |",
        "|---|---|---|---|---|",
    ]
    for finding in findings:
        names = ", ".join(dict.fromkeys(run.name for run in finding.runs))
        lines.append(
            f"| {finding.defect.severity.label} | {_cell(finding.defect.title)} | {names} "
            f"| {upstream_in_short(finding.defect)} | {_link(finding, files)} |",
        )
    comparisons = Comparisons([run.digest for run in reversed(runs)])
    for finding in findings:
        lines += ["", *_section(finding, runs, where, mended, files, comparisons)]
    return _TAG.sub("&lt;", "\n".join(lines)) + "\n"


def _section(
    finding: Finding,
    runs: Sequence[Run],
    where: Mapping[str, str],
    mended: Mapping[str, str],
    files: Collection[str],
    comparisons: Comparisons,
) -> list[str]:
    defect, symptom = finding.defect, finding.symptom
    facts = finding.runs[0].digest.verdicts.rules
    stacks = stacks_of(finding, runs, comparisons)
    count: dict[str, int] = {}
    for run in finding.runs:
        count[run.stack] = max(
            count.get(run.stack, 0),
            len(run.by_fingerprint[defect.fingerprint].cases),
        )
    names = {run.stack: run.name for run in runs}
    seen = [f"{names[stack]} ({format_count(number, 'result')})" for stack, number in count.items()]
    lists: dict[str, list[str]] = {state: [] for state in _STATES if state != SEEN}
    for stack, state in stacks.items():
        if state != SEEN:
            lists[state].append(names[stack])
    absent = "".join(f"; {state} on: {', '.join(of)}" for state, of in lists.items() if of)
    lines = [
        ("severity", defect.severity.label),
        ("fingerprint", f"`{defect.fingerprint}`"),
        ("seen on", f"{', '.join(seen)}{absent}"),
        ("rules", ", ".join(defect.rules)),
        *(("the document", words_of(facts[id_])) for id_ in symptom.rules[:2] if id_ in facts),
        *(("argument against", argument) for argument in arguments_of(facts, defect.rules)),
        ("observed", f"{symptom.line.removeprefix('afterwards ')} (`{symptom.name}`)"),
        ("answered by", defect.answering),
        ("where", _of(where, defect)),
        ("upstream", upstream(defect)),
        ("mended by", _of(mended, defect)),
        ("shown by", _link(finding, files)),
    ]
    return [
        f"## {_cell(defect.title)}",
        "",
        *(f"- {label}: {text}" for label, text in lines if text),
    ]


def _of(texts: Mapping[str, str], defect: Defect) -> str:
    """Returns the text of a defect, which may have one of its earlier fingerprints; empty without one."""
    names = () if defect.another else defect.fingerprints
    return next((texts[name] for name in names if name in texts), "")


def stacks_of(finding: Finding, runs: Sequence[Run], comparisons: Comparisons) -> Mapping[str, str]:
    """Returns, for each stack, whether its runs show a defect: one of _STATES. `comparisons` are those of all runs, the
    last one first."""
    last = len(runs) - 1
    shows = last - runs.index(finding.runs[0])
    stacks: dict[str, str] = {}
    for number, run in enumerate(runs):
        if run in finding.runs:
            state = SEEN
        else:
            state = comparisons.absence(finding.defect, shows, last - number)
            if state == NOT_SEEN:
                state = ABSENT
        stacks[run.stack] = min(stacks.get(run.stack, UNTRIED), state, key=_STATES.index)
    return stacks


def arguments_of(facts: Mapping[str, RuleFacts], rules: Iterable[str]) -> list[str]:
    """Returns what a maintainer may answer to the violations of these rules."""
    arguments = (facts[rule].argument_against for rule in rules if rule in facts)
    return [argument for argument in arguments if argument]


def words_of(rule: RuleFacts) -> str:
    """Returns the quote of a rule's document and the source or, without a quote, the source and the tested rule."""
    if rule.quote:
        return f'"{rule.quote}" ({rule.source})'
    return f"{rule.documented}; the tested rule: {rule.statement}"


def _link(finding: Finding, files: Collection[str]) -> str:
    if not finding.program:
        if linked := [name for name in by_hand.names_of(finding.defect) if name in files]:
            return ", ".join(f"[{name}]({FOLDER}/{name})" for name in linked)
        if programs := by_hand.written_by_hand(finding.defect):
            return f"written by hand: `{by_hand.listed(programs)}`"
        return f"no program: {finding.why_not}"
    links = []
    for program in finding.programs:
        file = file_name(program.case)
        links.append(f"[{file}]({FOLDER}/{file})" if file in files else f"`{program.case}`")
    return ", without a peer: ".join(links)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
