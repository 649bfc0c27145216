"""`rdma-cts bundle`: packs the data that others need to judge a run again, and checks that these data suffice."""

from __future__ import annotations

import argparse
import hashlib
import os
import pwd
import re
import shlex
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from commands import judge_bundle
from commands.cli.arguments import Parser
from commands.cli.output import check_out, has_other_content, is_standard_output, write_out
from commands.cli.run_arguments import add, add_cases_argument, add_options, options_from
from commands.cli.streams import show
from conformance.errors import UserError, format_count, reading
from conformance.model.printable import one_line
from conformance.regular_file import is_there, read_regular
from conformance.results.plan import FILE_NAME as PLAN
from conformance.results.plan import read_plan
from conformance.results.points import points_path
from conformance.results.records import FILE_NAME as RESULTS
from conformance.results.records import published_file
from reports.bundles import signature
from reports.bundles.archive import MOST_BYTES, PROFILE, SUFFIX, WAIVERS, pack
from reports.bundles.claims import claims
from reports.digest import Digest, read

# how an unpacked bundle and a signature begin
_OWN = re.compile(rb'manifest\.json\0(?s:.{498})\{\s*"schema": "rdma-cts-bundle/')
_SIGNATURE = re.compile(rb"-----BEGIN SSH SIGNATURE-----\n")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add(parser, "run RUN", "the directory of a run")
    add(parser, "--out FILE", f"where to write (default: RUN{SUFFIX})")
    add(parser, "--waivers FILE", "the run's waivers, if their file was moved")
    add(parser, "--profile FILE", "the run's profile, if its file was moved")
    add(
        parser,
        "--sign KEY",
        f"sign the bundle with a key of ssh-keygen(1); writes FILE{signature.SUFFIX}",
    )
    add_cases_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Packs and verifies a bundle, writes it, prints which verdicts it supports, and returns exit status 0. Raises
    UserError, with status 1 if recorded verdicts do not follow from the observations."""
    with reading(arguments.run / RESULTS):
        is_run = is_there(arguments.run / RESULTS)
    if not is_run:
        if not os.path.lexists(arguments.run):
            raise UserError(f"{arguments.run} does not exist")
        raise UserError(
            f"{arguments.run} is not the directory of a run",
            hint="give the directory that `run` has written, with the points of its sweeps",
        )
    out: Path = arguments.out or Path(f"{arguments.run.absolute()}{SUFFIX}")
    check_out(out, _OWN)
    if arguments.sign:  # a mistake is reported before the run is judged, which takes long
        if is_standard_output(out):
            raise UserError("--sign needs a file for the bundle: --out FILE")
        check_out(signature.path_of(out), _SIGNATURE)
        signature.check(arguments.sign)
    run = read(arguments.run)
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
        draft = Path(name, f"bundle{SUFFIX}")
        files = _files(run, arguments.waivers, arguments.profile)
        pack(draft, claims(run), files)
        support = judge_bundle.support_of(draft, arguments.cases, arguments.run)
        if support.unfounded:
            raise UserError(
                f"{arguments.run} supports {support.sentence}; the first: {support.unfounded[0]}",
                status=1,
            )
        data = draft.read_bytes()
        told = list(_private_parts(run, files.values()))
        if arguments.sign:
            signature.sign(data, arguments.sign, signature.path_of(out))
        stale = has_other_content(out, data) and not arguments.sign
        write_out(out, data, f"bundle: {out}", _OWN)
    if not is_standard_output(out):
        if arguments.sign:
            signed = [f"signature: {signature.path_of(out)}"]
        else:
            old = signature.path_of(out)
            remedy = f"{old} is not of this bundle: remove it, or sign the bundle with --sign KEY"
            signed = [remedy] if stale and old.exists() else []
        show(map(one_line, (f"sha256: {support.sha256}", *signed, *told)))
        show([f"the bundle supports: {support.sentence}"])
    return 0


def _private_parts(run: Digest, contents: Iterable[bytes]) -> Iterator[str]:
    """Yields a line for each private fact that the receiver of a bundle can read in it: the command line, and names of
    this user and machine that occur in a file of the bundle."""
    if run.header["argv"]:
        yield f"the bundle tells the command line of the run: {shlex.join(run.header['argv'])}"
    whole = b"\n".join(contents)
    names = {"your home directory": str(Path.home()), "this host's name": os.uname().nodename}
    with suppress(KeyError):
        names["your user name"] = pwd.getpwuid(os.geteuid()).pw_name
    for what, name in names.items():
        word = rb"(?<![\w.-])" + re.escape(name.encode()) + rb"(?![\w-])"
        if len(name) > 1 and (times := len(re.findall(word, whole))):
            yield f"the bundle tells {what}, {name}, in {format_count(times, 'place')}"


def _files(run: Digest, waivers: Path | None, profile: Path | None) -> Mapping[str, bytes]:
    folder = run.directory
    contents = {RESULTS: published_file(_content(folder / RESULTS))}
    for record in run.results:
        if record["points_file"]:
            points = points_path(folder, record)
            if not points.exists():
                raise UserError(
                    f"{folder} lacks {record['points_file']}, which its results name",
                    hint="give the whole directory that `run` has written, with its points/",
                )
            contents[record["points_file"]] = _content(points)
    for console in folder.glob("console*.log"):
        if console.is_file() and not console.is_symlink():
            contents[console.name] = _content(console)
    waivers_here = run.header.get("waivers")
    path = waivers or (_of_run(folder, waivers_here["file"], "--waivers") if waivers_here else None)
    if path:
        contents[WAIVERS] = _content(path)
        if not waivers_here:
            raise UserError(f"the run in {folder} had no waivers", hint="leave out --waivers")
        if hashlib.sha256(contents[WAIVERS]).hexdigest() != waivers_here["sha256"]:
            raise UserError(
                f"{path} is not the file of waivers that the run had",
                hint="name the run's file with --waivers",
            )
    named = run.header.get("profile")
    if file := named["file"] if named else _planned_profile(folder):
        path = profile or _of_run(folder, file, "--profile")
        contents[PROFILE] = _content(path)
        if named and hashlib.sha256(contents[PROFILE]).hexdigest() != named["sha256"]:
            raise UserError(
                f"{path} is not the profile that the run had",
                hint="name the run's file with --profile",
            )
    elif profile:
        raise UserError(f"the run in {folder} had no profile", hint="leave out --profile")
    return contents


def _planned_profile(folder: Path) -> str:
    """Returns the profile that the plan of a run names; empty if it names none. Older versions recorded the profile only
    in the plan."""
    if not (folder / PLAN).exists():
        return ""
    parser = Parser(prog="bundle")
    add_options(parser)
    return str(options_from(parser.parse_args(list(read_plan(folder).argv))).profile or "")


def _of_run(folder: Path, name: str, flag: str) -> Path:
    """Returns the path of a file that a run has read. `name` may be relative to the directory where the run started,
    which a run that `judge` has written does not tell. Raises UserError that says which option names the file."""
    path = Path(name)
    if (folder / PLAN).exists():
        path = Path(read_plan(folder).directory, name)
    if not path.exists():
        raise UserError(f"the run's file {path} is not there", hint=f"name it with {flag} FILE")
    return path


def _content(path: Path) -> bytes:
    with reading(path):
        return read_regular(path, MOST_BYTES)
