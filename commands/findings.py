"""`rdma-cts findings`: a page of the defects that runs on several stacks have found, with a C program for each."""

from __future__ import annotations

import argparse
from pathlib import Path

import yaml

from commands import case_options
from commands.reproducer import basis_of
from commands.written import out_directory
from conformance.errors import UserError
from conformance.results.files import write_atomically
from fixtures.softroce.changes import FOLDER as CHANGES
from fixtures.softroce.changes import read_changes
from reports.digest import read
from reproducers.findings import FOLDER, PAGE, Run, findings_of, page

NAME = "findings"
HELP = "Write a page of the defects in several runs, one for each stack, with C programs that show them."
# By fingerprint, where in the driver's source a defect lies; only what is certain.
PLACES = "places.yaml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument("runs", nargs="+", type=Path, metavar="DIR", help="runs, those of the newest stack first")
    parser.add_argument("--title", default="Findings on Soft-RoCE", help="the title of the page (default: %(default)s)")
    parser.add_argument("--out", type=out_directory, default=Path("docs"), metavar="DIR",
                        help=f"write {PAGE} and the folder {FOLDER}/ there (default: docs)")  # fmt: skip
    case_options.add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the page and the programs; exit status 0."""
    suite = case_options.suite_from(arguments)
    runs = [Run(read(path), basis_of(path)) for path in arguments.runs]
    found = findings_of(runs, suite)
    folder = arguments.out / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        places = _places(folder / PLACES)
        for old in folder.glob("*.c"):
            old.unlink()
        for each in found:
            if each.program:
                (folder / each.file).write_text(each.program.text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{folder} cannot be written: {error.strerror}") from error
    write_atomically(arguments.out / PAGE, page(found, runs, places, _mended(), arguments.title).encode())
    programs = sum(each.program is not None for each in found)
    print(f"{arguments.out / PAGE}: {len(found)} defects, {programs} with a program in {folder}/")
    return 0


def _mended() -> dict[str, str]:
    """By fingerprint, the changes of the mended stack that mend a defect, as links, with texts for a mailing list."""
    found: dict[str, list[str]] = {}
    for change in read_changes():
        source = f"../fixtures/softroce/{CHANGES.name}/{change.name}.yaml"
        for fingerprint in change.defects:
            link = f"[{change.name}]({source}) ([text]({FOLDER}/{change.name}.txt))"
            found.setdefault(fingerprint, []).append(link)
    return {fingerprint: ", ".join(links) for fingerprint, links in found.items()}


def _places(path: Path) -> dict[str, str]:
    """What the file says of fingerprints; nothing without the file."""
    if not path.exists():
        return {}
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not YAML ({str(error).splitlines()[0]})") from error
    if not isinstance(found, dict) or not all(isinstance(each, str) for item in found.items() for each in item):
        raise UserError(f"{path}: fingerprints with texts are expected")
    return found
