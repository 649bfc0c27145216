"""Makes waivers of the defects in recorded runs, as the text of a file. Not for reading a file (waiver_file.py)."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from conformance.defects import Defect, defects_of, shorts_in
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.verdict import INCOMPLETE
from conformance.results.waivers import version

# The placeholder for the fingerprint in an issue's address.
FINGERPRINT = "{defect}"


@dataclass(frozen=True)
class Run:
    """The input for waivers: a run's header, and its results with every key of record_shape.RESULT."""

    name: str
    header: HeaderRecord
    results: Sequence[ResultRecord]

    @property
    def driver(self) -> str:
        """The kernel driver; empty if it is not known."""
        return str(self.header["device"].get("driver", ""))

    @property
    def kernel(self) -> str:
        """The first two numbers of the kernel's version: a waiver holds for every third number."""
        return ".".join(map(str, version(str(self.header["env"].get("kernel", "")))[:2]))


def waivers_text(runs: Sequence[Run], owner: str, issue: str, expires: date) -> str:
    """The file: a waiver for each defect of each driver, the most severe first."""
    lines = ["# Known defects, by their fingerprints; made by `rdma-cts waivers` from the runs of these stacks:"]
    lines += [f"#   {run.header['stack']}, {run.driver}, kernel {run.header['env'].get('kernel', '?')}" for run in runs]
    blocks = [
        block
        for driver in dict.fromkeys(run.driver for run in runs)
        for block in _of_driver([run for run in runs if run.driver == driver], owner, issue, expires)
    ]
    return "\n".join([*lines, "waivers:" if blocks else "waivers: []", *("\n".join(block) for block in blocks)]) + "\n"


def _of_driver(runs: Sequence[Run], owner: str, issue: str, expires: date) -> Iterator[list[str]]:
    found: list[list[tuple[Run, Defect]]] = []
    for run in runs:
        for defect in defects_of(run.results, shorts_in(run.header)):
            same = [seen for seen in found if any(_is_same(defect, other) for _, other in seen)]
            found = [seen for seen in found if seen not in same]
            found.append([pair for seen in same for pair in seen] + [(run, defect)])
    for seen in sorted(found, key=_rank):
        yield list(_waiver(runs, seen, owner, issue, expires))


def _is_same(one: Defect, other: Defect) -> bool:
    return bool(set(one.fingerprints) & set(other.fingerprints))


def _rank(seen: Sequence[tuple[Run, Defect]]) -> tuple[int, int]:
    return min(defect.severity.rank for _, defect in seen), -max(len(defect.cases) for _, defect in seen)


def _waiver(
    runs: Sequence[Run], seen: Sequence[tuple[Run, Defect]], owner: str, issue: str, expires: date
) -> Iterator[str]:
    worst = min((defect for _, defect in seen), key=lambda defect: defect.severity.rank)
    kernels = sorted({run.kernel for run, _ in seen if run.kernel}, key=version)
    cases = list(dict.fromkeys(case for _, defect in seen for case in defect.cases))
    yield f"  - defect: {quoted(worst.fingerprint)}"
    also = sorted({each for _, defect in seen for each in defect.fingerprints} - {worst.fingerprint})
    if also:
        yield f"    also: [{', '.join(map(quoted, also))}]"
    yield f"    title: {quoted(worst.title)}"
    span = f", kernel: {{from: {quoted(kernels[0])}, to: {quoted(kernels[-1])}}}" if kernels else ""
    yield f"    where: {{driver: {quoted(runs[0].driver)}{span}}}"
    yield f"    observed: {{severity: {worst.severity.label}}}"
    yield f"    issue: {quoted(issue.replace(FINGERPRINT, worst.fingerprint))}"
    yield f"    owner: {quoted(owner)}"
    yield f"    expires: {expires.isoformat()}"
    yield "    cases:"
    yield from (f"      - {quoted(case)}" for case in cases)
    unsteady = {case: text for case in cases if (text := _unsteady(case, runs))}
    if unsteady:
        yield "    unsteady:"
    yield from (f"      - {{case: {quoted(case)}, seen: {quoted(text)}}}" for case, text in unsteady.items())


def _unsteady(case: str, runs: Sequence[Run]) -> str:
    """How often the rarest verdict occurred on one kernel; empty if the verdict was always the same on each kernel."""
    count: Counter[str] = Counter()
    for kernel in {run.header["env"].get("kernel") for run in runs}:
        own = Counter(
            str(record["verdict"])
            for run in runs
            if run.header["env"].get("kernel") == kernel
            for record in run.results
            if record["case"] == case and record["verdict"] not in INCOMPLETE
        )
        count += own if len(own) > 1 else Counter()
    if not count:
        return ""
    *others, rarest = sorted(count, key=lambda verdict: -count[verdict])
    return f"{' or '.join(others)} or {rarest}, {rarest} seen {count[rarest]} of {count.total()}"


def quoted(text: str) -> str:
    """The text as a YAML scalar that every reader takes as text: a JSON string."""
    return json.dumps(text)
