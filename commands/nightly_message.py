"""The message of a night: the mail, and the file for a webhook."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from commands.cli import sendmail
from commands.cli.output import refuse_foreign, write_out
from conformance.errors import FULL_DISK, UserError
from conformance.model.printable import one_line
from reports.nights.history import MESSAGE, format_night
from reports.nights.names import new_name

_WEBHOOK = re.compile(rb'\{"text": "')  # how a message for a webhook begins

ROOM = (
    "make room: directories of old nights may be removed, except the last good night of each cell; "
    "--keep N removes what is not needed after each night"
)


def check_message(arguments: argparse.Namespace) -> None:
    """Raises UserError if the message could not be sent or written."""
    if arguments.mail_to:
        sendmail.check()
    if arguments.webhook_file:
        refuse_foreign(arguments.webhook_file, _WEBHOOK, "another file to --webhook-file")


@contextmanager
def failure_told(arguments: argparse.Namespace) -> Iterator[None]:
    """Sends a message if the environment, such as a full disk, ends the night within the block."""
    try:
        yield
    except UserError as error:
        if error.status == 3:
            outcome = f"the night has not run: {error} (exit status 3)"
            text = [outcome]
            if is_full_disk(error):
                error.hint = ROOM
                text.append(ROOM)
            with suppress(UserError):  # the command ends with the first error
                tell(arguments, arguments.history / new_name(), text, error.status, outcome)
        raise


def is_full_disk(error: UserError) -> bool:
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL_DISK


def tell(
    arguments: argparse.Namespace,
    night: Path,
    text: Sequence[str],
    status: int,
    outcome: str = "",
) -> int:
    """Sends the message of a night, and writes it for a webhook, as far as the options say so. The subject has the
    outcome, by default the last line of the text. Returns the exit status of the night: `status`, or 3 instead of 0 if
    the message could not be sent."""
    text = list(map(one_line, text))
    if arguments.mail_to:
        subject = f"rdma-cts, night {format_night(night.name)}: {one_line(outcome) or text[-1]}"
        path = night.with_suffix(MESSAGE)
        status = sendmail.send(arguments.mail_to, subject, text, path, status)
    if arguments.webhook_file:
        data = json.dumps({"text": "\n".join(text)}, ensure_ascii=False)
        write_out(
            arguments.webhook_file,
            data.encode(),
            f"report for a webhook: {arguments.webhook_file}",
            _WEBHOOK,
        )
    return status
