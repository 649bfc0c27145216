"""Writes the quotes of recorded runs in the documentation, so that no figure of a run is written by hand.

    python3 docs/quotes.py              # each block between `<!-- quoted: NAME -->` and `<!-- end of quote -->`
    python3 docs/quotes.py RUN [STACK]  # the same, after RUN was copied as the recorded run of STACK (default: rxe)

`docs/runs/STACK.jsonl.xz` is the results file of a default run on a stack. The pages quote the run on rxe, and the
table of rules quotes the runs on all stacks. `rxe-ARCH` is the run on rxe in a guest of another architecture. The page
of findings is made from the runs of FOUND. The durations that divide a run into shards are those of the run on
rxe. A test compares pages and durations with these files.
"""

import functools
import io
import itertools
import json
import lzma
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from commands.__main__ import main as rdma_cts  # noqa: E402
from conformance.errors import UserError  # noqa: E402
from conformance.judging.answering_layer import CORE  # noqa: E402
from conformance.model.rules import VENDOR, Registry  # noqa: E402
from conformance.model.verdict import INCOMPLETE, NOT_TESTABLE, Verdict  # noqa: E402
from conformance.model.verdict import VIOLATIONS as OF_VIOLATIONS  # noqa: E402
from conformance.results.records import FILE_NAME, encode, read_written  # noqa: E402
from conformance.results.rule_conclusions import LEFT_OPEN, OFFERED  # noqa: E402
from conformance.tables.rules_file import read_registry  # noqa: E402
from conformance.tables.suite import CASES, load_suite  # noqa: E402
from conformance.tables.tiers import DURATIONS  # noqa: E402
from reports.compared import text as comparison_text  # noqa: E402
from reports.compared.comparison import compare  # noqa: E402
from reports.digest import Digest, read  # noqa: E402
from reports.terminal import summary  # noqa: E402
from trial.catalogue import BLIND_VIOLATIONS, UNTRIABLE, VIOLATIONS  # noqa: E402

RUNS = ROOT / "docs/runs"
OWN = "rxe"
FOREIGN = f"{OWN}-"
PAGES = (
    *(
        "docs/running.md",
        "docs/benchmarks.md",
        "docs/bundles.md",
        "docs/defects.md",
        "docs/mended-stack.md",
    ),
    *("docs/reports.md", "docs/results.md", "docs/seen.md", "docs/architectures.md"),
)
GREEN, RED, NOT_RUN = "green", "**red**", "not run"
_SEEN: Mapping[str, str] = {
    Verdict.PASS: GREEN,
    Verdict.PARTIAL: GREEN,
    OFFERED: GREEN,
    LEFT_OPEN: "left open",
    **dict.fromkeys((Verdict.FAIL, Verdict.CRASH, Verdict.HANG), RED),
    Verdict.UNSUPPORTED: "not offered",
    Verdict.UNREACHABLE: "unreachable",
    **dict.fromkeys(INCOMPLETE, "undecided"),
}
_COUNTED = (Verdict.PASS, *OF_VIOLATIONS, Verdict.BROKEN, *NOT_TESTABLE)
FINDINGS = ROOT / "docs/findings.md"
FOUND = (OWN, "mended", "trixie")  # the stacks of the page of findings
_LONG_S = 0.05  # all shorter cases count as equally long
_START_S = 1.0  # a guest from a template, for a case that needs its own guest, or that crashes the guest of others
_BLOCK = re.compile(r"(<!-- quoted: (?P<name>[a-z ]+) -->\n).*?(<!-- end of quote -->)", re.DOTALL)


def path_of(stack: str) -> Path:
    return RUNS / f"{stack}.jsonl.xz"


@functools.cache
def recorded(stack: str = OWN) -> Digest:
    """Returns the recorded run of a stack."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE_NAME).write_bytes(
            lzma.decompress(path_of(stack).read_bytes()),
        )
        return read(Path(folder))


def _summary(run: Digest) -> Iterator[str]:
    folder = Path(
        "out",
        re.sub("[^0-9T]", "", run.header["started"].partition("+")[0])
        + f"-{run.environment.device}",
    )
    yield from (
        f"    {line}".rstrip()
        for line in summary(run, folder, io.StringIO()).lstrip("\n").splitlines()
    )


def _calls(run: Digest) -> Iterator[str]:
    assert run.footer
    repeated = sum(run.footer.get("confirmation", {}).values())
    cases = len(run.results)
    yield f"A default run had {run.summary.points:,} judged calls in {cases:,} cases and repeated {repeated:,} violations."


def _comparison(run: Digest) -> Iterator[str]:
    """Yields the comparison of the run with that of trixie; of each group of lines only the first three."""
    old = recorded("trixie")
    lines = comparison_text.text(compare(old, run), 1)
    named = [
        line.replace(str(old.path), "out/trixie").replace(str(run.path), "out/forky")
        for line in lines
    ]
    yield "    $ ./rdma-cts compare out/trixie out/forky"
    for is_item, group in itertools.groupby(named, lambda line: line.startswith("  ")):
        items = list(group)
        shown = items[:3] if is_item else items
        yield from (f"    {line}".rstrip() for line in shown)
        if len(items) > len(shown):
            yield "    [...]"


@functools.cache
def _all_runs() -> Mapping[str, Digest]:
    """The recorded runs by stack, rxe first."""
    names = sorted(
        (path.name.partition(".")[0] for path in RUNS.iterdir()),
        key=lambda name: (name != OWN, name),
    )
    return {name: recorded(name) for name in names}


def _runs() -> Mapping[str, Digest]:
    """The recorded runs on amd64."""
    return {name: run for name, run in _all_runs().items() if not name.startswith(FOREIGN)}


def _by_architecture() -> Mapping[str, Digest]:
    """The recorded runs on rxe by architecture, amd64 first."""
    others = {name: run for name, run in _all_runs().items() if name.startswith(FOREIGN)}
    return {"amd64": recorded(), **{name[len(FOREIGN) :]: run for name, run in others.items()}}


def _of_shared_cases() -> Mapping[str, Digest]:
    """The same runs, each with only the cases that all of them have: the runs can be of different tables."""
    runs = _by_architecture()
    counts = Counter(result["case"] for run in runs.values() for result in run.results)
    of_shared = {}
    for name, run in runs.items():
        results = (result for result in run.results if counts[result["case"]] == len(runs))
        of_shared[name] = replace(run, results=tuple(results))
    return of_shared


@functools.cache
def _rules() -> Registry:
    rules, mistakes = read_registry([CASES], ROOT)
    assert not mistakes
    return rules


def _in_part_by_stack(_: Digest) -> Iterator[str]:
    yield f"| rule | {' | '.join(_runs())} |"
    yield f"|---|{'---|' * len(_runs())}"
    for rule in _rules():
        cells = [_part(run, rule) for run in _runs().values()]
        if any(cells):
            yield f"| {rule} | {' | '.join(cells)} |"


def _part(run: Digest, rule: str) -> str:
    """Returns how much evidence a run has seen for a rule, and why the rest is missing; empty if nothing is missing."""
    assert run.footer
    evidence = run.footer.get("rule_evidence", {}).get(rule)
    if evidence is None:
        return ""
    reasons = sorted({missing["why"] for missing in evidence["missing"].values()})
    return f"{run.verdicts.labels[rule]}, {evidence['seen']} of {evidence['needed']}: {'; '.join(reasons)}"


def _defects_by_stack(_: Digest) -> Iterator[str]:
    of_rxe = _runs()[OWN].violations.defects
    yield "| run | violations | defects | defects in the kernel's core | defects that rxe has too |"
    yield "|---|---:|---:|---:|---:|"
    for name, run in _runs().items():
        core = sum(defect.answering.layer == CORE for defect in run.violations.defects)
        violations = len(
            {record["case"] for records in run.violations.by_rule().values() for record in records},
        )
        shared = sum(defect.is_among(of_rxe) for defect in run.violations.defects)
        yield f"| {name} | {violations} | {len(run.violations.defects)} | {core} | {shared} |"


def _seen(_: Digest) -> Iterator[str]:
    stacks = {}
    for name, run in _runs().items():
        stacks[name] = {rule: _SEEN[label] for rule, label in run.verdicts.labels.items()}
    rules = {rule: texts for rule, texts in _rules().items() if texts.since != VENDOR}
    violations = Counter(violation.rule for violation in (*VIOLATIONS, *BLIND_VIOLATIONS))
    seen = {}
    for rule in rules:
        seen[rule] = {by_rule.get(rule, "") for by_rule in stacks.values()}
    green = sum(GREEN in verdicts for verdicts in seen.values())
    red = sum(RED in verdicts for verdicts in seen.values())
    neither = [rule for rule, verdicts in seen.items() if not verdicts & {GREEN, RED}]
    yield f"Of {len(rules)} rules, {green} were seen green on a stack, {red} red, and {len(neither)} neither:"
    yield f"{', '.join(neither)}."
    yield f"{len(_rules()) - len(rules)} more are of a vendor's dialect, whose library is no longer released."
    yield ""
    yield f"| rule | what it is about | {' | '.join(stacks)} | violations of the reference |"
    yield f"|---|---|{'---|' * len(stacks)}---|"
    for rule in rules:
        cells = " | ".join(by_rule.get(rule, NOT_RUN) for by_rule in stacks.values())
        yield f"| {rule} | {rules[rule].short} | {cells} | {violations[rule] or UNTRIABLE.get(rule, '')} |"


def _tables_by_architecture(_: Digest) -> Iterator[str]:
    runs = _of_shared_cases()
    of_tables: dict[str, list[str]] = {}
    for name, run in runs.items():
        of_tables.setdefault(run.environment.tables_sha256[:12], []).append(f"`{name}`")
    if len(of_tables) == 1:
        tables = "the same tables"
    else:
        named = (f"{digest} on {', '.join(names)}" for digest, names in of_tables.items())
        tables = f"different tables ({'; '.join(named)})"
    cases = len(runs["amd64"].results)
    yield f"The runs are of {tables}. Counted are the {cases:,} cases that all of them have."


def _verdicts_by_architecture(_: Digest) -> Iterator[str]:
    runs = _of_shared_cases()
    own = {result["case"]: result["verdict"] for result in runs["amd64"].results}
    of_amd64 = runs["amd64"].violations.defects
    yield f"| `--arch` | {' | '.join(_COUNTED)} | verdicts that differ | defects | with a fingerprint of amd64 |"
    yield f"|---|{'---:|' * (len(_COUNTED) + 3)}"
    for name, run in runs.items():
        verdicts = {result["case"]: result["verdict"] for result in run.results}
        counts = Counter(verdicts.values())
        differ = sum(own[case] != verdict for case, verdict in verdicts.items())
        defects = run.violations.defects
        shared = sum(defect.is_among(of_amd64) for defect in defects)
        cells = *(counts[verdict] for verdict in _COUNTED), differ, len(defects), shared
        yield f"| `{name}` | {' | '.join(map(str, cells))} |"


def _rules_by_architecture(_: Digest) -> Iterator[str]:
    runs = _of_shared_cases()
    yield f"| rule | what it is about | {' | '.join(runs)} |"
    yield f"|---|---|{'---|' * len(runs)}"
    for rule, texts in _rules().items():
        labels = [run.verdicts.labels.get(rule) for run in runs.values()]
        cells = [_SEEN[label] if label else NOT_RUN for label in labels]
        if len(set(cells)) > 1:
            yield f"| {rule} | {texts.short} | {' | '.join(cells)} |"


QUOTES: Mapping[str, Callable[[Digest], Iterable[str]]] = {
    "summary": _summary,
    "conclusion": lambda run: [
        f"    {run.summary.short_sentence}",
        f"    {run.summary.conclusion} (exit status {run.summary.status})",
    ],
    "headline": lambda run: [f"    {run.summary.headline}"],
    "comparison": _comparison,
    "rules in part": lambda run: [
        f"- {rule} {restriction}" for rule, restriction in run.verdicts.restrictions.items()
    ],
    "calls": _calls,
    "in part by stack": _in_part_by_stack,
    "defects by stack": _defects_by_stack,
    "rules by stack": _seen,
    "rules by architecture": _rules_by_architecture,
    "tables by architecture": _tables_by_architecture,
    "verdicts by architecture": _verdicts_by_architecture,
}


def quoted(text: str, run: Digest) -> str:
    """Returns the page with the quotes of this run."""

    def block(block: re.Match[str]) -> str:
        name, _, stack = block["name"].partition(" of ")
        lines = "\n".join(QUOTES[name](recorded(stack) if stack else run))
        return f"{block[1]}\n{lines}\n\n{block[3]}"

    return _BLOCK.sub(block, text)


def durations(run: Digest) -> str:
    """Returns the text of the file of durations, in seconds, with the long cases of this run, and with 0 for cases whose
    row it could only run at another entry."""
    alone = {case.id for case in load_suite().cases if case.alone}
    took: dict[str, float] = {}
    tested, untested = set(), set()
    for result in run.results:
        seconds = (result["duration_us"] or 0) / 1e6  # a case that crashes a kernel has no duration
        if result["case"] in alone or result["verdict"] == "CRASH":
            seconds += _START_S
        if seconds >= _LONG_S:
            took[result["case"]] = round(seconds, 2)
        if result["verdict"] not in NOT_TESTABLE:
            tested.add(_row_of(result["case"]))
        elif result["case"].endswith(f"@{result['entry']}"):
            untested.add(result["case"])
    took |= {case: 0.0 for case in untested if _row_of(case) in tested}
    return json.dumps(took, indent=0, sort_keys=True) + "\n"


def _row_of(case: str) -> str:
    return case.partition("@")[0]


def main() -> None:
    """Stores the given run, if there is one, and rewrites the pages."""
    if len(sys.argv) > 1:
        recorded_here = read_written(Path(sys.argv[1]))
        header = {**recorded_here.header, "argv": ["run"]}  # without local paths
        lines = [
            header,
            *recorded_here.results,
            *recorded_here.others,
            *([recorded_here.footer] if recorded_here.footer else []),
        ]
        path = path_of(sys.argv[2] if len(sys.argv) > 2 else OWN)
        path.write_bytes(lzma.compress(b"".join(map(encode, lines)), preset=9))
    run = recorded()
    for name in PAGES:
        page = ROOT / name
        page.write_text(quoted(page.read_text(encoding="utf-8"), run), encoding="utf-8")
    rdma_cts(["findings", *map(str, map(path_of, FOUND)), "--out", str(FINDINGS.parent)])
    DURATIONS.write_text(durations(run), encoding="ascii")


if __name__ == "__main__":
    if any(word.startswith("-") for word in sys.argv[1:]):
        sys.exit(__doc__)
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
