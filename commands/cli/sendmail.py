"""Sends the message of a night with sendmail, which another mail server's package can also have installed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from email.message import EmailMessage
from pathlib import Path

from commands.cli.streams import show
from conformance.errors import UserError
from conformance.results.files import write_atomically
from fixtures.system.packages import find_program

_LONGEST_S = 300.0


def check() -> None:
    """Raises UserError if no sendmail is installed."""
    if not find_program("sendmail"):
        raise UserError(
            "--mail-to needs sendmail, which is not installed",
            hint="install a mail server, or a program such as msmtp-mta, or give --webhook-file FILE instead",
        )


def send(to: str, subject: str, text: Sequence[str], path: Path, status: int) -> int:
    """Writes the message to a file, and sends it; prints a line about both. Returns the exit status of the command:
    `status`, or 3 instead of 0, with a line on standard error, if the message could not be sent."""
    message = EmailMessage()
    message["To"], message["Subject"] = to, subject
    message.set_content("\n".join(text), cte="8bit")
    try:
        write_atomically(path, message.as_bytes())
        written = f"message: {path}"
    except UserError as error:  # a full disk does not keep the message from its reader
        written = f"{error}; message"
    if failure := _failure(message.as_bytes()):
        status = status or 3
        show([f"{written}, not sent to {to}: {failure} (exit status {status})"], sys.stderr)
        return status
    show([f"{written}, sent to {to}"])
    return status


def _failure(message: bytes) -> str:
    """Sends a message. Returns why it could not be sent; empty if it was sent."""
    program = find_program("sendmail")
    if not program:
        return "sendmail is no longer installed"
    try:
        done = subprocess.run(
            [program, "-t"],
            input=message,
            capture_output=True,
            check=False,
            timeout=_LONGEST_S,
        )
    except subprocess.TimeoutExpired:
        return f"{program} has not ended after {_LONGEST_S:g} s"
    except OSError as error:
        return f"{program} cannot be run: {error.strerror}"
    if not done.returncode:
        return ""
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return ": ".join([f"{program} exited with {done.returncode}", *lines[-1:]])
