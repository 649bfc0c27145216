"""`rdma-cts report --history DIR --site DIR`: writes the static pages of a history, for any web server. All new files are
written before the first old file is replaced, so that a full disk does not damage the old site."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from commands.cli.streams import show, show_line
from conformance.errors import UserError
from conformance.judging import Basis
from conformance.regular_file import open_folder, read_regular, remove_below, write_whole
from conformance.results.checked_json import parse
from conformance.results.files import make_directory, not_written
from conformance.results.records import read_results
from conformance.results.rejudge import known_capabilities
from conformance.tables.suite import POINT, Suite
from reports import causes
from reports.digest import digest
from reports.nights import site
from reports.nights.history import Cell, History, read_history
from reports.nights.known_defect import described
from reports.nights.page import HistoryPage
from reports.reproducers.findings import Finding, Run, findings_of
from reports.reproducers.mail import mail_of

SCHEMA = "rdma-cts-site/1"
LIST = "site.json"  # the list of the files of a site
_NEW = ".rdma-cts-new"
_FILE = re.compile(rf"(?:index\.html|style\.css|(?:{'|'.join(site.FOLDERS)})/(?!\.)[^/\0]+)")


def write_site(
    history_folder: Path, folder: Path, read_suite: Callable[[], Suite], remote: bool
) -> None:
    """Writes the site of a history into an empty directory, or an earlier site, whose files are replaced or removed. The
    suite is read only if the history and the directory can be used. Unless `remote`, the site has only the title, the
    severity and the nights of a defect that a remote peer can trigger."""
    old = _earlier(folder)
    history = read_history(history_folder)
    if not history.nights:
        raise UserError(f"{history_folder} is not a history: it has no night")
    if history.problems and not any(cell.facts for cell in history.cells):
        raise UserError(
            f"{history_folder}: no night can be read; the first problem: {history.problems[0]}",
            status=3,
        )
    if Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(history_folder)):
        raise UserError(
            f"{folder} is within the history, where every directory is a night",
            hint="give another --site",
        )
    show(history.problems, sys.stderr)
    page = HistoryPage(history)
    runs = _runs(history, page)
    newest = sorted(runs, key=lambda path: path.parent.name, reverse=True)
    latest = {}
    for name in history.names:
        paths = [path for path in newest if path.name == name]
        if paths:
            latest[name] = runs[paths[0]].digest
    papers = _papers(page, [runs[path] for path in newest], read_suite())
    count = _write(folder, site.pages(site.Site(history, latest, papers, remote)), old)
    show_line(f"site: {folder / site.INDEX} ({count:,} files)")


def _runs(history: History, page: HistoryPage) -> dict[Path, Run]:
    """Returns the latest readable run of each cell, and more runs until each defect is in a returned run."""
    runs: dict[Path, Run] = {}
    for name in history.names:
        _read_first(reversed(history.ran(name)), runs)
    missing = {
        page.known_as(defect)
        for cell in history.cells
        if cell.facts
        for defect in cell.facts.defects
    }
    missing -= {
        page.known_as(defect) for run in runs.values() for defect in run.digest.violations.defects
    }
    having: dict[Path, tuple[Cell, set[str]]] = {
        cell.folder: (cell, missing & set(map(page.known_as, cell.facts.defects)))
        for cell in history.cells
        if cell.facts and cell.folder not in runs
    }
    while missing and having:
        folder = max(
            having,
            key=lambda folder: (len(having[folder][1] & missing), having[folder][0].night),
        )
        cell, defects = having.pop(folder)
        if not defects & missing:
            break
        if _read_first([cell], runs):
            missing -= defects
    return runs


def _read_first(cells: Iterable[Cell], runs: dict[Path, Run]) -> bool:
    """Reads the first readable run of these cells. Returns False if none is readable; nights may have been removed."""
    for cell in cells:
        with suppress(UserError):
            recorded = read_results(cell.folder)
            run = digest(recorded, cell.folder, str(cell.folder))
            runs[cell.folder] = Run(run, Basis(known_capabilities(recorded)))
            return True
    return False


def _papers(page: HistoryPage, runs: Sequence[Run], suite: Suite) -> dict[str, site.Papers]:
    places = causes.load().places
    papers: dict[str, site.Papers] = {}
    for defect, track in page.defects:
        names = list(dict.fromkeys((track.id, *defect.fingerprints)))
        place = next((places[name] for name in names if name in places), "")
        mends = causes.mends_of(names)
        if why := causes.unsure(names, defect.case.partition(POINT)[0]):
            place, mends = f"perhaps {place}{why}" if place else "", ()
        if defect.another:
            place, mends = "", ()
        papers[track.id] = site.Papers(place=place, mends=mends)
    by_id: dict[str, Finding] = {}
    for finding in findings_of(runs, suite):
        by_id.setdefault(page.known_as(finding.defect), finding)
    for id_, finding in by_id.items():
        if id_ in papers:
            papers[id_] = replace(
                papers[id_],
                described=described(finding.defect),
                rules=finding.defect.ordered_rules,
                program=finding.program.text if finding.program else "",
                script=finding.program.script if finding.program else "",
                why_not=finding.why_not,
                letter=mail_of(finding, runs, suite).text,
            )
    return papers


def _earlier(folder: Path) -> list[str]:
    """Returns the files of the site in a directory; none for a directory without files, such as what a full disk
    left behind. Raises UserError for other content."""
    try:
        if not folder.exists() or all(path.is_dir() for path in folder.rglob("*")):
            return []
        data = parse(read_regular(folder / LIST))
        if data["schema"] == SCHEMA:
            return [name for name in data["files"] if _FILE.fullmatch(name)]
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {error.strerror}") from error
    except (ValueError, LookupError, TypeError):
        pass
    raise UserError(
        f"{folder} is neither empty nor an earlier site of this version",
        hint="give another directory",
    )


def _write(folder: Path, pages: Iterable[tuple[str, str]], old: Sequence[str]) -> int:
    """Writes all files, removes the `old` files that are not part of the new site, and returns the number of files."""
    new = folder / _NEW
    make_directory(folder)
    names = []
    try:
        remove_below(folder, _NEW)  # left by a command that was killed
        for part in site.FOLDERS:
            make_directory(folder / part, within=folder)
        for name, text in pages:
            write_whole(new / name, text.encode(), within=folder)
            names.append(name)
        data = json.dumps({"schema": SCHEMA, "files": names}, indent=1) + "\n"
        write_whole(new / LIST, data.encode(), within=folder)
        for name in (*names, LIST):
            part, _, file = name.rpartition("/")
            with (
                open_folder(folder, [_NEW, *filter(None, [part])]) as source,
                open_folder(folder, [*filter(None, [part])]) as place,
            ):
                os.replace(file, file, src_dir_fd=source, dst_dir_fd=place)
        for name in set(old).difference(names):
            remove_below(folder, name)
    except OSError as error:
        raise not_written(folder, error) from error
    finally:
        with suppress(OSError):
            remove_below(folder, _NEW)
    return len(names) + 1
