"""`rdma-cts judge BUNDLE`: judges a bundled run again, and states in one sentence what the bundle supports. Verdicts, waivers
and conclusions are derived only from the bundled observations; recorded verdicts are only compared with the derived
verdicts. reports/bundles/archive.py reads and writes the file of a bundle."""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path

from commands.cli.judged import not_founded, refuse_other_tables, shortened, write_judged
from commands.cli.streams import show
from conformance.errors import UserError, format_count, reading
from conformance.model.printable import one_line
from conformance.model.record import HeaderRecord, ResultRecord
from conformance.model.vocabulary import TIERS
from conformance.regular_file import beginning_of, read_regular
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.records import Recorded, read_results, read_written
from conformance.results.rejudge import (
    DISPUTED,
    UNOBSERVED,
    Rejudged,
    rejudge,
    unfounded_repetitions,
)
from conformance.results.waiver_file import read_waivers
from conformance.tables.profile import read_profile
from conformance.tables.suite import Suite, load_suite
from conformance.tables.tiers import SMOKE
from reports.bundles import signature
from reports.bundles.archive import MOST_BYTES, PROFILE, WAIVERS, Manifest, unpack
from reports.bundles.claims import remark, wrong_claim
from reports.digest import Digest, digest
from reports.own_tables import wrong_by_tables

_COMPARED = ("verdict", "effective", "rules", "points", "rule_verdicts")
_PRINTED = ("kernel", "rdma-core", "stack", "started", "tier", "tables")
_SIZES = list(TIERS)
_NAMES_CASES = ("--on", "--rdma-only")  # the shortest forms of options that name cases
# The reasons why a recorded verdict is not derived again, each with its text in the report.
_NOT_JUDGED = {
    UNOBSERVED: "without an observation",
    DISPUTED: "whose verdict the supervisor did not accept",
}

# A header is the sender's word: nothing in a bundle proves on which machine or as which user the library ran.
_ON_A_HOST = "on a host: the library under test ran with the rights of the suite, and could have changed the recorded data"
_ISOLATED = (
    "on a host, according to its sender as the user {}: then the library under test could not change the recorded "
    "data; nothing in the bundle proves it"
)


def is_bundle(path: Path) -> bool:
    """Returns whether a path is a file other than the results of a run. A file of results begins with a record."""
    if path.is_dir() or path.name.endswith((".jsonl", ".jsonl.xz")):
        return False
    with reading(path):
        return not beginning_of(path).startswith(b"{")


def execute(arguments: argparse.Namespace) -> int:
    """Prints what the bundle supports. Raises UserError (status 2) for a file that is not a bundle, or was changed.
    Returns exit status 0 if no rule is violated in a run of the whole default tier, 1 if a rule is violated or verdicts
    do not follow from the observations, and 3 if the run is incomplete."""
    support = support_of(arguments.run, arguments.cases)
    show(support.lines(_signed(arguments.run, support, arguments.signers)))
    return support.status


def _signed(bundle: Path, support: Support, signers: Path | None) -> str:
    """Returns a line about the signer of the judged bundle. Raises UserError if nobody in `signers` has signed it."""
    if signers is None:
        there = signature.path_of(bundle).is_file()
        if there:
            return "signature: not checked; give --signers FILE"
        return "signature: none"
    data = read_regular(bundle, MOST_BYTES)
    if hashlib.sha256(data).hexdigest() != support.sha256:
        raise UserError(f"{bundle} was changed while it was read")
    return f"signature: of {one_line(signature.signer(bundle, data, signers))}"


@dataclass(frozen=True)
class Support:
    """The verdicts that a bundle supports."""

    manifest: Manifest
    sha256: str
    remark: str  # a line if a different version wrote the manifest, with different sentences; else empty
    run: Digest
    kept: Sequence[Rejudged]
    # a line for each recorded verdict that does not follow from the observations
    unfounded: Sequence[str]

    @property
    def sentence(self) -> str:
        """The statement that the bundle supports: the statement in every report of the run, unless a verdict is
        unfounded."""
        if self.unfounded:
            return not_founded(self.unfounded)
        return self.run.summary.conclusion

    @property
    def status(self) -> int:
        """The exit status. As for `run`, situations that the stack cannot reach do not make a run incomplete."""
        if self.unfounded:
            return 1
        return self.run.summary.status or 3 * self.run.summary.concluded.incomplete

    def _not_judged(self) -> Iterator[str]:
        for reason, text in _NOT_JUDGED.items():
            if counts := Counter(
                change.record["verdict"] for change in self.kept if change.kept == reason
            ):
                yield f"{sum(counts.values())} {text} ({', '.join(f'{count} {verdict}' for verdict, count in counts.items())})"
        if self.run.unrecorded:
            yield f"{format_count(len(self.run.unrecorded), 'planned case')} without a result"

    def lines(self, signed: str) -> Iterator[str]:
        """Yields the whole report: the subject of the bundle, its signer (`signed`), the results of the judgement, and
        the sentence."""
        facts, results = self.run.summary.facts, len(self.run.results) - len(self.run.unrecorded)
        yield from filter(None, [self.run.environment.changed_stack, signed])
        yield f"bundle: sha256 {self.sha256}; {format_count(len(self.manifest.files), 'file')}, all unchanged"
        under_test = ", ".join(f"{name} {facts[name]}" for name in _PRINTED if facts[name])
        yield f"run: {facts['device']} ({facts['driver']}), {under_test}"
        yield from filter(None, [self.remark])
        for key in ("waivers", "profile"):
            if file := self.run.header.get(key):
                yield f"{key}: {file['file']}, sha256 {file['sha256'][:12]}"  # type: ignore[index]
        if self.run.header["stack"] == "host":
            user = self.run.header.get("isolated")
            yield _ISOLATED.format(one_line(user)) if user else _ON_A_HOST
        yield "; ".join([f"{format_count(results, 'result')} judged again", *self._not_judged()])
        yield from shortened(self.unfounded)
        yield from (f"waiver: {problem}" for problem in self.run.summary.waiver_lines)
        yield self.run.summary.short_sentence
        yield f"{self.sentence} (exit status {self.status})"


def support_of(path: Path, cases: Sequence[Path], shown: Path | None = None) -> Support:
    """Returns the verdicts that a bundle supports, by the present tables. Raises UserError if the file is not a bundle,
    or if its run was made with other tables. Messages name the bundle as `shown` (default: its path)."""
    shown = shown or path
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
        folder = Path(name, "bundle")
        folder.mkdir()
        manifest, sha256 = unpack(path, folder)
        with _named_as(shown, folder):
            recorded = read_written(folder)
            run = digest(recorded.shown(), folder)
            suite = load_suite(cases)
            refuse_other_tables(run.header, suite, "the run was", "it")
            if wrong := _wrong_in_header(run.header, suite) or _wrong_inputs(
                recorded.header,
                folder,
            ):
                raise UserError(f"{shown} is not a run of these tables, or was changed: {wrong}")
            if wrong := wrong_claim(manifest, run):
                raise UserError(f"{shown} is not a bundle, or was changed: {wrong}")
            return _judged(suite, recorded, folder, manifest, sha256, remark(manifest, run))


@contextmanager
def _named_as(shown: Path, folder: Path) -> Iterator[None]:
    """Within the block, errors name the bundle and its member instead of a path in the temporary directory."""
    try:
        yield
    except UserError as error:
        message, *more = (
            line.replace(f"{folder}/", f"{shown}: ").replace(str(folder), str(shown))
            for line in (error.message, *error.more)
        )
        raise UserError(
            message,
            *more,
            hint=error.hint,
            log=error.log,
            status=error.status,
        ) from error


def _wrong_in_header(header: HeaderRecord, suite: Suite) -> str:
    if wrong := wrong_by_tables(header, suite):
        return wrong
    planned = set(header["planned"])
    cases = [case for case in suite.cases if case.id in planned]
    # a tier does not apply to named cases
    named = any(word.startswith(_NAMES_CASES) for word in header["argv"])
    if not named and (tier := header.get("tier")) in TIERS:
        larger = sum(_SIZES.index(case.tier) > _SIZES.index(tier) for case in cases)
        # A run of the smallest tier also has cases of larger tiers: for each rule at most two, a granted and a refused
        # case. Runs of the other tiers have no cases of larger tiers.
        if larger > (2 * len(suite.registry) if tier == SMOKE else 0):
            return f"{larger:,} planned cases are not of the tier {tier}"
    return ""


def _wrong_inputs(header: HeaderRecord, folder: Path) -> str:
    """Returns why the bundled waivers or profile are not the files that the header names; empty if they are. If the
    header is of an older version, it does not name the profile. Then any profile is accepted here, because the verdicts
    are derived with it and compared with the recorded verdicts."""
    for key, name in (("waivers", WAIVERS), ("profile", PROFILE)):
        path, said = folder / name, header.get(key)
        if key == "profile" and key not in header:
            continue
        if not said:
            if path.exists():
                return f"it has {name}, but its header names no such file"
        elif not path.exists():
            return f"its header names {key}, but it has no {name}"
        elif hashlib.sha256(path.read_bytes()).hexdigest() != said.get("sha256"):  # type: ignore[attr-defined]
            return f"its {name} is not the file that the header names"
    return ""


def _judged(
    suite: Suite,
    recorded: Recorded,
    folder: Path,
    manifest: Manifest,
    sha256: str,
    said: str,
) -> Support:
    if (folder / PROFILE).exists():
        profile = read_profile(folder / PROFILE)
    else:
        profile = None
    waivers = None
    if (folder / WAIVERS).exists():
        waivers = read_waivers(
            folder / WAIVERS,
            suite,
            _day(recorded.header.get("started"), folder / RESULTS),
        )
        if waivers_here := recorded.header.get("waivers"):
            waivers = replace(waivers, file=waivers_here["file"])
    by_case = {record["case"]: record for record in recorded.results}
    raw: list[ResultRecord] = [
        {**record, "effective": record["verdict"], "waiver": None} for record in by_case.values()
    ]
    bare = Recorded(recorded.header, raw, recorded.footer, recorded.torn, recorded.others)
    again = list(rejudge(suite, bare, folder, profile))
    out = folder.with_name("judged")
    write_judged(out, suite, bare, again, waivers)
    judged = read_results(out)
    run = digest(judged, out, is_own=True)
    now = {record["case"]: record for record in judged.results}
    unjudged = [change for change in again if change.kept]
    without = {change.record["case"]: change.unfounded for change in unjudged if change.unfounded}
    unfounded = [*without.values(), *unfounded_repetitions(suite, recorded, folder, profile)]
    for case, record in by_case.items():
        if case not in without and (line := _difference(record, now[case])):
            unfounded.append(line)
    return Support(manifest, sha256, said, run, unjudged, unfounded)


def _difference(recorded: ResultRecord, now: ResultRecord) -> str:
    for key in _COMPARED:
        before, after = recorded.get(key), now.get(key)
        if (before or None) != (after or None):
            return f"{recorded['case']}: {key} is recorded as {before}, but should be {after}"
    return ""


def _day(started: str | None, file: Path) -> date:
    try:
        return datetime.fromisoformat(started or "").date()
    except ValueError as error:
        raise UserError(f"{file}: the run has no valid start time: {started}") from error
