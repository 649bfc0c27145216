"""`rdma-cts findings`: writes a page about the defects in runs on several stacks, and C programs for the defects."""

import argparse
import re
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path

from commands.cli.output import is_own, refuse_among_others, refuse_foreign
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show_line
from commands.reproducer import FORMS
from conformance.errors import format_count
from conformance.older_python import zip
from conformance.regular_file import remove_below
from conformance.results.files import make_directory, new_or_nothing, write_together, writing
from conformance.tables.suite import Suite
from fixtures.guest.changes import FOLDER as CHANGES
from reports.causes import PLACES, load, places_in
from reports.digest import read_several
from reports.reproducers.by_hand import FOLDER as BY_HAND
from reports.reproducers.by_hand import with_included, written_by_hand
from reports.reproducers.findings import FOLDER, PAGE, Finding, Run, findings_of, page
from reports.reproducers.mail import mail_of
from reports.reproducers.of_runs import basis_of
from reports.reproducers.program import file_name

# how the files of this command begin, by suffix
_FORMS = {**FORMS, ".md": re.compile(rb"# [^\n]*\n\n[^\n]*This page is written by `")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "runs RUN...", "one run for each stack, the newest stack first")
    add(
        parser,
        "--title",
        "the title of the page (default: %(default)s)",
        default="Findings on Soft-RoCE",
    )
    add(
        parser,
        "--out DIR",
        f"the directory for {PAGE} and the folder {FOLDER}/",
        required=True,
    )
    add(
        parser,
        "--programs",
        f"write the C program of each defect, and the script of its peer, into {FOLDER}/; "
        "without this option, only update or remove existing ones",
    )
    add(
        parser,
        "--remote",
        "also the programs of defects that a remote peer can trigger, for a page that is not public",
    )
    add(
        parser,
        "--format",
        f"markdown: the page; mail: a text for each defect, in {FOLDER}/",
        choices=("markdown", "mail"),
        default="markdown",
    )
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    if not is_own(arguments.out / PAGE, _FORMS):
        refuse_among_others(arguments.out, (PAGE, FOLDER).__contains__, "findings")
    suite = suite_from(arguments)
    digests = read_several(arguments.runs)
    runs = [Run(run, basis_of(path)) for run, path in zip(digests, arguments.runs)]
    findings = findings_of(runs, suite)
    if arguments.format == "markdown":
        return _page(findings, runs, arguments)
    return _mails(findings, runs, suite, arguments.out)


def _mails(findings: Sequence[Finding], runs: Sequence[Run], suite: Suite, out: Path) -> int:
    texts: dict[Path, str] = {}
    for finding in findings:
        mail = mail_of(finding, runs, suite)
        texts[Path(FOLDER, finding.file).with_suffix(".txt")] = mail.text
        texts.update((Path(FOLDER, file), text) for file, text in mail.attached.items())
    _write(out, texts)
    show_line(f"{out / FOLDER}: {format_count(len(findings), 'text')}")
    return 0


def _write(out: Path, texts: Mapping[Path, str]) -> None:
    """Writes files below `out`, and makes FOLDER there, or, if one cannot be written, leaves no new file or directory.
    Raises UserError before it has written any, if one would replace a file that is not of this command."""
    for path in texts:
        refuse_foreign(out / path, _FORMS[path.suffix], "another directory to --out")
    with new_or_nothing(out), new_or_nothing(out / FOLDER):
        make_directory(out / FOLDER, within=out)
        write_together(out, {str(path): text.encode() for path, text in texts.items()})


def _page(findings: Sequence[Finding], runs: Sequence[Run], arguments: argparse.Namespace) -> int:
    folder = arguments.out / FOLDER
    places = places_in(folder / PLACES)
    found = (*folder.glob("*.c"), *folder.glob("*.py"))
    before = {path for path in found if is_own(path, _FORMS)}
    programs_written: dict[Path, str] = {}
    shown = [of for of in findings if arguments.remote or not of.defect.severity.advice]
    for program in chain.from_iterable(finding.programs for finding in shown):
        path = folder / file_name(program.case)
        if arguments.programs or path in before:
            programs_written[path] = program.text
            if program.script:
                programs_written[path.with_suffix(".py")] = program.script
    by_hand = {*folder.glob(f"{BY_HAND}/*.c")}
    if arguments.programs:
        without = [written_by_hand(of.defect) for of in shown if not of.program]
        for source, program_text in with_included([*chain.from_iterable(without)]).items():
            if (path := folder / BY_HAND / source.name) not in by_hand:
                programs_written[path] = program_text
    files = {path.relative_to(folder).as_posix() for path in (*programs_written, *by_hand)}
    text = page(findings, runs, places, _mended(), files, arguments.title)
    texts = {path.relative_to(arguments.out): code for path, code in programs_written.items()}
    _write(arguments.out, {**texts, Path(PAGE): text})
    with writing(folder):
        for old in before - programs_written.keys():
            remove_below(arguments.out, f"{FOLDER}/{old.name}")
    count = sum(path.suffix == ".c" for path in programs_written)
    show_line(
        f"{arguments.out / PAGE}: {format_count(len(findings), 'defect')}, {format_count(count, 'program')} in {folder}/",
    )
    return 0


def _mended() -> dict[str, str]:
    """Returns, by fingerprint, links to the changes of the mended stack that mend a defect."""
    source = f"../fixtures/guest/{CHANGES.name}"
    links = {}
    for fingerprint, mends in load().mends.items():
        links[fingerprint] = ", ".join(
            f"[{mend.name}]({source}/{mend.name}.yaml)" for mend in mends
        )
    return links
