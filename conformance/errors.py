"""Defines the exceptions of the suite. The message of a UserError names the location of the error and the remedy. A
failure of the device under test is a verdict, not an exception."""

import errno
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# The command that starts the suite, for hints. In packages of distributions, the started program sets the variable.
PROGRAM = os.environ.get("RDMA_CTS_PROGRAM", "./rdma-cts")
# The same command for results. It has no path of a machine; in a checkout, it is run in the project's directory.
if "/" in PROGRAM:
    RECORDED_PROGRAM = "./rdma-cts"
else:
    RECORDED_PROGRAM = PROGRAM


def command(*words: object) -> str:
    """Returns a command of the suite as it is typed into a shell."""
    return f"{PROGRAM} {shlex.join(map(str, words))}"


def format_count(number: float, singular: str) -> str:
    """Returns a number with its noun: `1 point`, `1,024 points`."""
    return f"{number:,} {singular}{'' if number == 1 else 's'}"


def format_list(words: Sequence[str]) -> str:
    """Returns the words as a list in a sentence: `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


_MOST = 20  # of the mistakes that are printed: a file of another origin can have any number


class UserError(Exception):
    """Invalid input or an incomplete environment. The command line prints the message and exits with `status`. `more`
    are the messages of further mistakes. `hint` says what to do, `log` names the file with the details. `screen` are
    lines to print below the message as they are. `status` is 2 for a usage or table error, 3 for a broken environment,
    4 if the host of --host has no device."""

    def __init__(
        self,
        message: str,
        *more: str,
        hint: str = "",
        log: str = "",
        screen: Sequence[str] = (),
        status: int = 2,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.more = more
        self.hint = hint
        self.log = log
        self.screen = screen
        self.status = status

    @property
    def lines(self) -> list[str]:
        """The lines to print, one element for each message. A message that quotes a path may contain line feeds."""
        more = self.more[: _MOST - 1]
        if len(self.more) > len(more):
            more += (f"and {len(self.more) - len(more):,} more mistakes",)
        *first, last = self.message, *more
        return [*first, "; ".join(filter(None, [last, self.hint, self.log and f"see {self.log}"]))]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Within the block, an OSError becomes a UserError that says that `path` cannot be read."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error


FULL_DISK = (errno.ENOSPC, errno.EDQUOT)
# Of the text of an OSError, without the file's name
_OF_FILE = re.compile(r"(?:\[Errno \d+\] )?(?P<reason>[^:]*)")


def reason_of(error: OSError) -> str:
    """Returns why files could not be used, in a few words. The error of a copied directory (shutil.Error) lists each of
    its files; returns why the first of them was not copied."""
    if error.strerror:
        return error.strerror
    text = str(error)
    if error.args and isinstance(error.args[0], list):
        _, _, text = error.args[0][0]
    reason = _OF_FILE.match(text)
    return reason["reason"] if reason else text


class HostLacks(UserError):
    """This host lacks something that a case needs, such as huge pages; `hint` says how to provide the missing thing.
    The case is UNREACHABLE. This verdict says nothing about the device, and the other cases can be run."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint, status=3)


class DeviceSilent(HostLacks):
    """The device does not execute or does not acknowledge the first packet of the wire peer, although nothing between
    them can lose it. Rows of packets fail; for all other cases, there is no wire peer."""


# The errnos of a call that creates an object whose type is not offered: the errnos for a call that the library, the
# kernel or the driver does not implement, EINVAL, which a driver returns for an unknown type, and none: the provider of
# bnxt_re refuses a type without setting errno.
_NOT_OFFERED = ("EOPNOTSUPP", "ENOSYS", "EPROTONOSUPPORT", "EINVAL", "")


class SetupRefused(Exception):
    """The device refused a call of the set-up, before the judged call. `code` is the name of the errno, or empty.
    `call` is the refused call if it is a call of the table language, else empty. `creates` is the capability for the
    object that could not be created, such as `rc`; empty for any other call."""

    def __init__(self, what: str, code: str, call: str = "", creates: str = "") -> None:
        super().__init__(f"{what} was refused{f' with {code}' if code else ''}")
        self.what = what
        self.code = code
        self.call = call
        # The capability that is not offered according to this refusal; empty for other refusals.
        self.not_offered = creates if code in _NOT_OFFERED else ""


class Coded(Exception):
    """A failure of a call. `error_code` is the errno, as in PyverbsRDMAError."""

    def __init__(self, error_code: int, what: str) -> None:
        super().__init__(what)
        self.error_code = error_code


class NotConnected(Coded):
    """Queue pairs were created but could not be connected. The reason is the path between the queue pairs, and not a
    missing capability."""


class PeerRefused(Coded):
    """The device of a peer on a different host refused a call of the harness."""


class HarnessFailure(Exception):
    """A failure of a call that the harness needs for an operation. Nothing is then known about the operation."""


class LoopbackLost(HarnessFailure):
    """A queue pair of the harness does not transfer a message that must arrive. Refusals on it show nothing."""


class PeerLost(LoopbackLost):
    """The host of the peer no longer responds."""
