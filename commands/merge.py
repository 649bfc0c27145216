"""`rdma-cts merge`: merges shards, which several machines have executed, into one run."""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import date, datetime
from pathlib import Path

from commands import report
from commands.cli.judged import refuse_other_tables
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show
from conformance.errors import UserError, reading
from conformance.regular_file import read_regular, remove_below
from conformance.results.files import new_or_nothing, write_atomically
from conformance.results.folder import run_folder
from conformance.results.merging import Part, check, merged, missing, part_of
from conformance.results.points import points_path
from conformance.results.records import FILE_NAME, Recorded, read_written
from conformance.results.waiver_file import read_waivers
from conformance.results.waivers import Waivers
from conformance.results.writer import ResultsFile
from conformance.tables.suite import Suite
from reports.digest import read
from reports.terminal import summary


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "shards RUN...", "the directory of each shard")
    add(parser, "--out DIR", "where to write the merged run", required=True)
    add(parser, "--waivers FILE", "the shards' waivers, if their file was moved")
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the results and reports of the whole run, and prints its summary. Missing shards are reported on standard
    error."""
    parts = [part_of(folder, read_written(folder)) for folder in arguments.shards]
    check(parts)
    suite = suite_from(arguments)
    refuse_other_tables(parts[0].recorded.header, suite, "the shards were", "them")
    waivers = _waivers(parts, suite, arguments.waivers)
    show(missing(parts), sys.stderr)
    with new_or_nothing(arguments.out), run_folder(arguments.out) as out:
        _write(out, merged(parts, suite, waivers), parts)
        report.write_beside(out)
    merged_run = read(arguments.out)
    print(summary(merged_run, arguments.out))
    return merged_run.summary.status


def _waivers(parts: Sequence[Part], suite: Suite, given: Path | None) -> Waivers | None:
    """Returns the waivers of the run that were valid on the day of its shards."""
    header = parts[0].recorded.header
    waivers = header.get("waivers")
    if not waivers:
        if given:
            raise UserError("the shards had no waivers", hint="leave out --waivers")
        return None
    path = given or Path(waivers["file"])
    try:
        same = hashlib.sha256(read_regular(path)).hexdigest() == waivers["sha256"]
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}",
            hint="--waivers names the shards' file",
        ) from error
    if not same:
        raise UserError(
            f"{path} is not the file of waivers that the shards had",
            hint="name the shards' file with --waivers",
        )
    return read_waivers(path, suite, _day(header.get("started")))


def _day(started: str | None) -> date:
    try:
        return datetime.fromisoformat(started or "").date()
    except ValueError:
        return datetime.now().date()


def _write(out: Path, run: Recorded, parts: Sequence[Part]) -> None:
    """Writes the results and the points of their sweeps. If the disk is full, removes the written files."""
    copied: list[Path] = []
    with closing(ResultsFile(out / FILE_NAME)) as file:
        try:
            for part in parts:
                for result in part.recorded.results:
                    if result.get("points_file"):
                        copied.append(out / result["points_file"])
                        # The reports mention a missing file.
                        with (
                            reading(part.folder / result["points_file"]),
                            suppress(FileNotFoundError),
                        ):
                            data = read_regular(points_path(part.folder, result))
                            copy = out / result["points_file"]
                            write_atomically(copy, data, durable=False, within=out)
            for record in (
                run.header,
                *run.results,
                *run.others,
                *([run.footer] if run.footer else []),
            ):
                file.append(record)
        except UserError:
            file.empty()  # the caller removes a directory with empty results
            for path in copied:
                with suppress(OSError):
                    remove_below(out, str(path.relative_to(out)))
            for folder in {path.parent for path in copied}:
                with suppress(OSError):
                    folder.rmdir()
            raise
