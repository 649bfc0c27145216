"""`rdma-cts reproducer`: writes a C program for libibverbs that shows one case, or a text that reports the case."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from commands.cli.output import (
    STANDARD_OUTPUT,
    check_out,
    has_other_content,
    is_own,
    refuse_among_others,
    refuse_foreign,
    write_out,
)
from commands.cli.run_arguments import add, add_cases_argument, suite_from
from commands.cli.streams import show
from conformance.defects import Symptom
from conformance.errors import PROGRAM, UserError, format_count
from conformance.judging import Basis
from conformance.model.printable import one_line
from conformance.results.files import write_together
from conformance.results.folder import OUT, latest
from conformance.tables.suite import Suite, cases_below
from conformance.yamldoc.reader import suggestion
from reports.digest import Digest, read, read_several
from reports.earlier import run_about
from reports.explanations import FINGERPRINT, defect_of
from reports.reproducers.by_hand import listed, with_included, written_by_hand
from reports.reproducers.mail import mail
from reports.reproducers.of_runs import (
    Made,
    basis_of,
    first_program,
    programs_of,
    reproducer,
    unknown_device,
)
from reports.reproducers.program import Program, file_name
from reports.reproducers.writer import Inexpressible

_FILE = Path("repro.c")
# how the files of this command and of `findings` begin, by suffix
FORMS = {
    ".c": re.compile(rb"/\* [A-Z]+-[0-9]{2}"),
    ".py": re.compile(rb'"""The tested rule '),
    ".txt": re.compile(rb"Subject: "),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(
        parser,
        "id [ID]",
        "a case; a point of a sweep (CASE#axis=value,...); or the fingerprint of a defect",
    )
    add(
        parser,
        "--run RUN",
        f"the run in which the violation was observed (default: the latest in {OUT}/ that has the case or defect)",
    )
    add(parser, "--all", "write programs for all violations of a run, in a directory")
    add(parser, "--mail", "write a text for a mailing list, which includes the program")
    add(
        parser,
        "--others RUN...",
        "with --mail: runs of other stacks, with which the text compares RUN",
        default=[],
    )
    add(
        parser,
        "--out FILE",
        f"where to write; - is standard output (default: {_FILE}, which is not replaced; with --mail: -; "
        "with --all: reproducers/ in RUN)",
    )
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Writes the program or the text and returns exit status 0. Raises UserError if no case of the defect can be
    expressed in C."""
    _check(arguments)
    out = arguments.out or (STANDARD_OUTPUT if arguments.mail else _FILE)
    form = FORMS[".txt" if arguments.mail else ".c"]
    if arguments.out and not arguments.all:
        check_out(out, form)
    suite = suite_from(arguments)
    path = arguments.run or (run_about(arguments.id) if arguments.id else latest(OUT))
    if path:
        run = read(path)
    else:
        run = None
    if path:
        basis = basis_of(path)
    else:
        basis = unknown_device()
    if arguments.all:
        if run is None:
            raise UserError(
                "there is no run from which programs could be made",
                hint="give --run RUN",
            )
        programs = list(programs_of(run.results, suite, basis))
        written_all = _write_all(programs, arguments.out or run.directory / "reproducers")
        show(map(one_line, written_all))
        return 0
    symptoms = _symptoms(arguments.id, run, suite)
    name = symptoms[0].name if symptoms else arguments.id
    if not symptoms and suite.find(name) is None:
        raise _unknown(name, suite, None)
    if symptoms and not arguments.mail and not _has(suite, name):
        raise _unknown(name, suite, run)
    if arguments.mail:
        if run is None or not symptoms:
            raise UserError(
                f"no run has a violation of {name}",
                hint="give the run with --run RUN",
            )
        assert path is not None
        run, *others = read_several([path, *arguments.others])
        written = mail(symptoms, run, suite, basis, others)
        text, script, notes = written.text, "", written.notes
    else:
        name, program = _program(name, symptoms, run, suite, basis)
        text, script, notes = program.text, program.script, ()
    if arguments.out is None and has_other_content(out, text.encode()):
        raise UserError(
            f"{out} exists, and its content differs",
            hint=f"give --out FILE; --out {out} replaces it",
        )
    if script:
        check_out(out, form)
        _write_script(out, script)
    built = f"cc {shlex.quote(str(out))} -libverbs && {_started(out) if script else './a.out'}"
    what = f"show {name}" if symptoms else f"do what {name} does, without a recorded violation"
    summary = f"{out}: {text.count(chr(10))} lines that {what}; {built}"
    write_out(out, text.encode(), f"text: {out}" if arguments.mail else summary, form)
    show((f"note: {note}" for note in notes), sys.stderr)
    return 0


def _program(
    name: str, symptoms: Sequence[Symptom], run: Digest | None, suite: Suite, basis: Basis
) -> tuple[str, Program]:
    """Returns the program of the first symptom that has one, or of the case if no symptom is recorded, with the name of
    what it shows. Raises UserError if there is none."""
    if symptoms:
        shown = first_program(symptoms, suite, basis)
        if shown.program:
            return shown.symptom.name, shown.program
        reason, hint = shown.why_not, "--mail writes a report without a program"
        defects = run.violations.defects if run else ()
        defect = next((item for item in defects if shown.symptom in item.symptoms), None)
        if defect and (files := with_included(written_by_hand(defect))):
            hint = f"written by hand: {listed(files)}; --mail writes a report that attaches this"
    else:
        try:
            return name, reproducer(name, suite, basis)
        except Inexpressible as error:
            reason, hint = str(error), ""
    raise UserError(f"{name} cannot be expressed as a C program: {reason}", hint=hint)


def _write_script(out: Path, script: str) -> None:
    """Writes the script of the peer beside the C program, or after it to standard output."""
    if out == STANDARD_OUTPUT:
        write_out(out, script.encode(), "", FORMS[".py"])
        return
    path = out.with_suffix(".py")
    if has_other_content(path, script.encode()):
        raise UserError(
            f"{path}, for the script of the peer, exists, and its content differs",
            hint="give another name to --out, or remove the file",
        )
    usage = "the script of the peer, which starts the program; its first lines have the usage"
    write_out(path, script.encode(), f"{path}: {usage}", FORMS[".py"])


def _started(out: Path) -> str:
    """Returns the command at the peer that starts a program at the device."""
    script = shlex.quote(str(out.with_suffix(".py")))
    return f"python3 {script} OWN_ADDRESS ssh root@NODE ./a.out DEVICE OWN_ADDRESS"


def _check(arguments: argparse.Namespace) -> None:
    if not arguments.all and arguments.id is None:
        raise UserError("give a case, or --all for every violation of a run")
    if arguments.all and arguments.id is not None:
        raise UserError(f"{arguments.id} and --all exclude each other")
    if arguments.all and arguments.mail:
        raise UserError("--mail and --all exclude each other: a text is about one case")
    if arguments.others and not arguments.mail:
        raise UserError("--others is only for --mail")
    if arguments.all and arguments.out == STANDARD_OUTPUT:
        raise UserError(
            "--all writes files, and - is standard output, not a directory",
            hint="give --out DIR",
        )


def _unknown(name: str, suite: Suite, run: Digest | None) -> UserError:
    near = suggestion(name, [case.id for case in suite.cases])
    if run:
        said = (
            f"{run.path} was made with other tables; the present tables have no case {name!r}{near}"
        )
        return UserError(said, hint="give a run that was made with the present tables")
    if name in suite.registry:
        return UserError(
            f"{name} is a rule, but a program shows one case",
            hint=f"{PROGRAM} explain {name} lists its cases",
        )
    if option := cases_below(name, [case.id for case in suite.cases]):
        return UserError(
            f"{name} has several cases, but a program shows one",
            hint=f"{PROGRAM} list {option} lists them",
        )
    return UserError(f"there is no case {name!r}{near}", hint=f"{PROGRAM} list shows all cases")


def _symptoms(text: str, run: Digest | None, suite: Suite) -> Sequence[Symptom]:
    """Returns the recorded symptoms of a violated case. For a defect, returns those whose cases are still in the tables,
    else its first symptom."""
    if FINGERPRINT.fullmatch(text):
        defect = defect_of(text, run, "--run")[0]
        symptoms = [symptom for symptom in defect.symptoms if _has(suite, symptom.name)]
        return symptoms or [defect.first]
    if run is None:
        return []
    symptoms = [symptom for defect in run.violations.defects for symptom in defect.symptoms]
    return [symptom for symptom in symptoms if text in (symptom.name, symptom.case)]


def _has(suite: Suite, name: str) -> bool:
    try:
        return suite.find(name) is not None
    except UserError:
        return False


def _write_all(programs: Sequence[Made], out: Path) -> list[str]:
    """Writes the programs. Returns a line for each reason why programs are missing, and a line with the numbers. Raises
    UserError before it has written any, if a file has the name of one and is not of this command, or if the directory
    only has other files."""
    files: dict[str, bytes] = {}
    for entry in programs:
        if entry.program:
            name = entry.symptom.name
            files[file_name(name)] = entry.program.text.encode()
            if entry.program.script:
                files[file_name(name, ".py")] = entry.program.script.encode()
    for name in files:
        refuse_foreign(out / name, FORMS[Path(name).suffix], "another directory to --out")
    if not any(os.path.lexists(out / name) for name in files):
        refuse_among_others(out, lambda name: is_own(out / name, FORMS), "programs")
    replaced = sum(has_other_content(out / name, text) for name, text in files.items())
    write_together(out, files)
    reasons = Counter(program.why_not for program in programs if program.program is None)
    written = sum(program.program is not None for program in programs)
    lines = [f"{count} cannot be expressed: {reason}" for reason, count in reasons.most_common()]
    more = (
        f" (replaces {format_count(replaced, 'file')} of a different content)" if replaced else ""
    )
    return [*lines, f"{written} of {len(programs)} violations as C programs in {out}{more}"]
