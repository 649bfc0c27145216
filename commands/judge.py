"""`rdma-cts judge`: judges a recorded run again by the current rules and tables, without a device."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from commands import judge_bundle, report
from commands.cli.judged import not_founded, shortened, write_judged
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show
from conformance.errors import UserError, format_count
from conformance.model.printable import one_line
from conformance.model.record import HeaderRecord
from conformance.model.verdict import Verdict
from conformance.recorded_command import with_profile
from conformance.results.combined import with_command
from conformance.results.equal_results import unequal_verdicts
from conformance.results.files import new_or_nothing
from conformance.results.folder import check_free
from conformance.results.records import FILE_NAME, read_both, read_results
from conformance.results.rejudge import WITHOUT_POINTS, Rejudged, rejudge
from conformance.results.rule_conclusions import OFFERED
from conformance.results.waiver_file import read_waivers
from conformance.results.writer import check_not_recorded
from conformance.run_options import RunOptions
from conformance.tables.profile import named_profile, read_profile
from reports.compared.changes import Change
from reports.compared.comparison import compare
from reports.digest import Digest, digest
from reports.terminal import REPORT

_MOST = 20  # the most changes that are shown without --verbose


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "run RUN", "the directory of a run, or a file that `bundle` has written")
    add(parser, "--out DIR", "where to write the new results, as a run")
    add(
        parser,
        "--profile FILE",
        "capabilities that the device must have, and capabilities that it lacks",
    )
    add(parser, "--waivers FILE", "a file of waivers, which replaces the waivers of the run")
    add(
        parser,
        "--signers FILE",
        "refuse a bundle that no signer in FILE has signed (the format is in ssh-keygen(1), ALLOWED SIGNERS)",
    )
    add(
        parser,
        "-v,--verbose",
        f"show each changed verdict, also of waived cases and beyond {_MOST}",
    )
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Prints what has changed, or what a bundle supports. Returns the exit status that `run` would have had. The status
    is also 1 if the tables are those of the run and a recorded verdict does not follow from the observations; a sweep whose
    points are not with the results has none that contradicts it. Raises UserError
    (status 2) for an option that applies to the other kind of results."""
    is_bundle = judge_bundle.is_bundle(arguments.run)
    _refuse_options(arguments, is_bundle)
    if is_bundle:
        return judge_bundle.execute(arguments)
    if arguments.out:
        check_free(arguments.out)
        check_not_recorded(arguments.out / FILE_NAME)
    suite = suite_from(arguments)
    recorded, shown = read_both(arguments.run)
    old = digest(
        shown,
        arguments.run if arguments.run.is_dir() else arguments.run.parent,
        str(arguments.run),
    )
    if arguments.profile:
        profile = read_profile(arguments.profile)
    else:
        profile = None
    if profile:
        profile.check(
            str(recorded.header["device"].get("name")),
            str(recorded.header["device"].get("driver")),
        )
    if arguments.waivers:
        waivers = read_waivers(arguments.waivers, suite, datetime.now().date())
    else:
        waivers = None
    again = list(rejudge(suite, recorded, old.directory, profile))
    if profile or recorded.header.get("profile"):
        again = [_with_profile(change, arguments.profile) for change in again]
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as scratch:
        out = arguments.out or Path(scratch)
        header: HeaderRecord = {**recorded.header, "profile": named_profile(arguments.profile)}
        with new_or_nothing(out):  # the disk could be full
            write_judged(out, suite, replace(recorded, header=header), again, waivers)
            judged = read_results(out)
            new = digest(judged, out, str(out), is_own=True)
            same = old.header["suite"].get("tables_sha256") == suite.tables_sha256
            unfounded = [
                change.unfounded
                for change in again
                if same and change.unfounded and change.kept != WITHOUT_POINTS
            ]
            unequal = unequal_verdicts(suite, judged, old.directory)
            lines = list(_summary(old, new, again, unfounded, unequal, arguments))
            status = 1 if unfounded else new.summary.status
            failure = _write_reports(out) if arguments.out else None
            if failure:  # such as a full disk, which does not prevent the conclusion
                status = failure.status
            show([*lines[:-1], f"{lines[-1]} (exit status {status})"])
            if failure:
                raise failure
    return status


def _with_profile(change: Rejudged, profile: Path | None) -> Rejudged:
    """Returns a result whose commands have the profile by which it was judged again."""
    path = RunOptions(profile=profile).seen_from_project(Path.cwd()).profile
    repeated = with_profile(change.record["repro"], path)
    return replace(change, record=with_command(change.record, repeated))


def _write_reports(out: Path) -> UserError | None:
    """Writes the reports beside the results. Returns the error if one cannot be written."""
    try:
        report.write_beside(out)
    except UserError as error:
        return error
    return None


def _refuse_options(arguments: argparse.Namespace, is_bundle: bool) -> None:
    options: tuple[str, ...]
    if is_bundle:
        text, options = "a bundle, which has its own inputs", ("out", "profile", "waivers")
    else:
        text, options = "a run, and only bundles are signed", ("signers",)
    for option in options:
        if getattr(arguments, option) is not None:
            raise UserError(f"{arguments.run} is {text}", hint=f"leave out --{option}")


def _summary(
    old: Digest,
    new: Digest,
    again: list[Rejudged],
    unfounded: list[str],
    unequal: list[str],
    arguments: argparse.Namespace,
) -> Iterator[str]:
    """Yields the lines to print. The last one is the conclusion, without the exit status."""
    comparison = compare(old, new)
    reasons = {record["case"]: record["reason"] for record in old.results}
    number = f"{sum(not change.kept for change in again)} of {len(again)}"
    yield f"{number} results judged again: {_counts(comparison.changes, arguments.verbose)}"
    listed = [
        change for change in comparison.changes if arguments.verbose or change.new != Verdict.WAIVED
    ]
    shown = listed[: None if arguments.verbose else _MOST]
    for change in shown:
        yield from _format_change(change, reasons.get(change.case, ""))
    if len(shown) < len(listed):
        yield f"and {len(listed) - len(shown)} more changes (-v shows them)"
    for reason, count in Counter(change.kept for change in again if change.kept).items():
        if reason == WITHOUT_POINTS:
            yield f"{format_count(count, 'sweep')} not judged again: their points are not with the results"
        else:
            yield f"{format_count(count, 'result')} kept unchanged: {reason}"
    yield from (f"waiver: {problem}" for problem in new.summary.waiver_lines)
    yield from (f"equal results, unequal verdicts: {line}" for line in unequal)
    yield f"{format_count(len(unequal), 'result')} with unequal verdicts in equal cases"
    yield f"before: {old.summary.short_sentence}"
    yield f"now:    {new.summary.short_sentence}"
    yield from _restricted(old, new, comparison.has_other_tables)
    if arguments.out:
        yield one_line(f"report: {arguments.out / REPORT} (results: {arguments.out})")
    if elsewhere := new.summary.waivers.get("elsewhere"):
        yield f"waivers: {elsewhere} of the file are for other stacks, by their `where`"
    if new.header.get("waivers") and not arguments.waivers:
        yield "waivers: as recorded in the run; --waivers FILE uses the waivers in FILE"
    if unfounded:
        yield from shortened(unfounded)
        yield not_founded(unfounded)
    else:
        yield new.summary.conclusion


def _restricted(old: Digest, new: Digest, has_other_tables: bool) -> Iterator[str]:
    """Yields a line about the rules that were verified and now pass only in part, though no verdict of a case changed."""
    before, after = old.verdicts.concluded, new.verdicts.concluded
    rules = [
        rule
        for rule, label in new.verdicts.labels.items()
        if label == Verdict.PARTIAL and old.verdicts.labels.get(rule) in (Verdict.PASS, OFFERED)
    ]
    if not rules:
        return
    reasons = Counter[str]()
    for rule in rules:
        gained = after[rule].missing.keys() - before[rule].missing.keys()
        reasons.update({after[rule].missing[name]["why"] for name in gained})
    counts = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
    tables = "judged by other tables" if has_other_tables else "judged again"
    verb = "passes" if len(rules) == 1 else "pass"
    yield f"{format_count(len(rules), 'rule')} {verb} only in part now, {tables}: {counts}"


def _counts(changes: Sequence[Change], verbose: bool) -> str:
    """Returns the numbers of changed cases, and of those that are waived now."""
    cases = [change for change in changes if not change.points]
    waived = sum(change.new == Verdict.WAIVED for change in cases)
    counts = [f"{format_count(len(cases) - waived, 'verdict')} changed"]
    if waived:
        more = "" if verbose else " (-v lists them)"
        counts.append(f"{format_count(waived, 'verdict')} waived{more}")
    return ", ".join(counts)


def _format_change(change: Change, before: str) -> Iterator[str]:
    arrow = f"{change.old} -> {change.new}"
    if change.points:
        yield f"{arrow}  {format_count(change.points, 'point')} of {change.case}, such as {'; '.join(change.examples)}"
        return
    yield f"{arrow}  {change.case}"
    if one_line(before) == change.record["reason"]:
        yield f"    as before: {change.record['reason']}"
        return
    yield f"    was: {one_line(before)}"
    yield f"    is:  {change.record['reason']}"
