"""The output of a command: the file or directory that `--out` names. The path is checked before the command does
anything. streams.py is about standard output and standard error."""

import argparse
import errno
import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from commands.cli.streams import show_line
from conformance.errors import UserError, reading
from conformance.option import given_path
from conformance.regular_file import beginning_of, is_partial, writable_status
from conformance.results import points, records
from conformance.results.files import not_written, write_named, writing
from conformance.results.folder import OUT, OUTCOME_FILE

# Files next to the results of a run or a night that bundles and resumed runs need.
_EVIDENCE = re.compile(
    r"(host-)?console(-[0-9]+)?\.(log|calls)|run\.log|lab\.json|summary\.json|junit\.xml|report\.html",
)

STANDARD_OUTPUT = Path("-")
_REPLACED = " (replaces a file with a different content)"


def out_path(text: str) -> Path:
    """Returns the path that `--out` names; this is the `type` of the option. Raises UserError (status 2) if the path
    cannot be written. The directory of the path must exist or be OUT, so that a mistyped path does not create
    directories."""
    path = given_path(text)
    if path == STANDARD_OUTPUT or (_is_there(path) and not _is_replaced(path)):
        return path
    folder = path.parent
    if folder.absolute() == OUT.absolute() and not os.path.lexists(folder):
        folder = folder.parent
    if not os.path.isdir(folder):
        reason = f"there is no directory {folder}"
        if os.path.lexists(folder):
            reason = f"{folder} is not a directory"
        raise UserError(f"{path} cannot be written: {reason}")
    if not os.access(folder, os.W_OK | os.X_OK):
        is_read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
        reason = os.strerror(errno.EROFS if is_read_only else errno.EACCES)
        raise UserError(f"{path} cannot be written: {reason}")
    return path


def out_directory(text: str) -> Path:
    """Like out_path, for an option that names a directory."""
    if text == str(STANDARD_OUTPUT):
        raise argparse.ArgumentTypeError(f"{text} is standard output, not a directory")
    path = out_path(text)
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UserError(f"{path} is not a directory")
    return path


def out_file(text: str) -> Path:
    """Like out_path, but refuses a directory; for an option whose file is written hours later."""
    path = out_path(text)
    if os.path.isdir(path):
        raise UserError(f"{path} cannot be written: {os.strerror(errno.EISDIR)}")
    return path


def _is_there(path: Path) -> bool:
    """Returns whether this path exists. Raises UserError if it is too long or a link to itself."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            os.stat(path)
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            raise not_written(path, error) from error
    return os.path.lexists(path)


def _is_replaced(path: Path) -> bool:
    """Whether a write to this path replaces a file, which needs the right to change its directory."""
    return os.path.isfile(path) and not os.path.islink(path)


def refuse_foreign(
    path: Path, own: re.Pattern[bytes], instead: str = "another file to --out"
) -> None:
    """Raises UserError (status 2) for a file with a content that does not begin as `own`, such as a source of the
    user. Of a file that xz has packed, the unpacked content is compared. `instead` is what the user may give."""
    if is_standard_output(path) or path.is_symlink() or not path.is_file():
        return  # a link is refused when it is written
    with reading(path):
        content = beginning_of(path)
    if content and not own.match(content):
        raise UserError(
            f"{path} is a file that this command has not written, and is not replaced",
            hint=f"give {instead}, or remove it",
        )


def is_own(path: Path, forms: Mapping[str, re.Pattern[bytes]]) -> bool:
    """Returns whether a file is empty, or begins as the files of its suffix in `forms`. A link is not own."""
    if path.suffix not in forms or path.is_symlink() or not path.is_file():
        return False
    with suppress(UserError):
        refuse_foreign(path, forms[path.suffix])
        return True
    return False


def refuse_among_others(folder: Path, is_own: Callable[[str], bool], what: str) -> None:
    """Raises UserError (status 2) if files would be written among others: the directory has a file of which `is_own` is
    false. `what` are the files of the command."""
    if not folder.is_dir():
        return
    with reading(folder):
        names = sorted(os.listdir(folder))
    foreign = [name for name in names if not (is_partial(name) or is_own(name))]
    if foreign:
        said = f"{folder} is not empty (it has {foreign[0]}), and is not a directory of {what}"
        raise UserError(said, hint="give --out a new or an empty directory")


def check_out(path: Path, own: re.Pattern[bytes], recorded_name: str = "") -> None:
    """Raises UserError (status 2) if the path is a directory or a link, has recorded data of a run, or is a file that
    does not begin as `own`. `recorded_name` is the name that every run gives to such data; a file of this name is
    written anew. Commands call this before their work, which can take long."""
    if is_standard_output(path):
        return
    if path.name != recorded_name:
        refuse_recorded(path)
    with writing(path):
        writable_status(path)
    refuse_foreign(path, own)


def write_out(
    path: Path,
    data: bytes,
    line: str,
    own: re.Pattern[bytes],
    recorded_name: str = "",
) -> None:
    """Writes the file that the user has named, and prints `line`, and whether a different file was replaced. A special
    file, such as a FIFO or /dev/stdout, is written and not replaced, and then `line` is not printed. `-` is standard
    output. Raises UserError (status 2) if the data cannot be written, or as `check_out` does."""
    check_out(path, own, recorded_name)
    if is_standard_output(path):
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        return
    if has_other_content(path, data):
        line += _REPLACED
    if write_named(path, data):
        show_line(line)


def has_other_content(path: Path, data: bytes) -> bool:
    """Returns whether the path is a file with a different content."""
    with suppress(OSError):
        return path.is_file() and (path.stat().st_size != len(data) or path.read_bytes() != data)
    return False


def refuse_recorded(path: Path) -> None:
    """Raises UserError (status 2) for a file in which a run or a night is recorded."""
    # Reports must not replace the data from which they are made.
    recorded = (records.FILE_NAME, records.PLAN_FILE, OUTCOME_FILE)
    place = Path(os.path.realpath(path))  # before 3.13, Path.resolve fails for a link to itself
    in_points = place.parent.name == points.FOLDER and os.path.exists(
        place.parent.parent / records.FILE_NAME,
    )
    of_run = _EVIDENCE.fullmatch(place.name) and any(
        os.path.lexists(place.parent / name) for name in (*recorded, records.LAB_FILE)
    )
    named = place.name in recorded or in_points or of_run
    if os.path.isfile(place) and (named or records.is_recording(place)):
        raise UserError(
            f"{path} is recorded data, which output must not replace",
            hint="give another file to --out",
        )


def is_standard_output(path: Path) -> bool:
    """Returns whether the path is `-`, or the file that is standard output, such as /dev/stdout. Opening this file
    again would discard the text that was written before."""
    return path == STANDARD_OUTPUT or (
        os.path.exists(path) and os.path.samestat(path.stat(), os.fstat(1))
    )
