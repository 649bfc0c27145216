"""The mistakes that a person can mend: each is one line saying where and what to do.

Not for failures of the device under test; those are verdicts, never exceptions.
"""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a lacking environment; the command line prints it and exits with `status`.

    `hint` says what to do, `log` names the file with the details. Status: 2 usage or table
    error, 3 broken environment, 4 no device and no way to make one.
    """

    def __init__(self, message: str, *, hint: str = "", log: str = "", status: int = 2) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.log = log
        self.status = status

    def __str__(self) -> str:
        parts = [self.message]
        if self.hint:
            parts.append(self.hint)
        if self.log:
            parts.append(f"see {self.log}")
        return "; ".join(parts)


class SetupRefused(Exception):
    """The device refused what a case needs before its judged call; `code` is the errno's name, if there is one."""

    def __init__(self, what: str, code: str) -> None:
        super().__init__(f"{what} was refused{f' with {code}' if code else ''}")
        self.code = code
