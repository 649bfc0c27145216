"""Where a kernel died, by the names that stay the same from build to build. Not for finding it in a log (judging/)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from conformance.judging import crash_location
from conformance.model.record import ResultRecord

_SITE = re.compile(
    r"\bin (?P<function>\w+)[\w.]*\+\w+/\w+(?: \[(?P<module>\w+)\])?"
    r"(?:, called by (?P<caller>\w+)[\w.]*\+\w+/\w+(?: \[(?P<callers>\w+)\])?)?"
)


@dataclass(frozen=True)
class KernelSite:
    """The function in which the kernel died, the one that called it, and the module of the first that has one.

    Names are without offsets and without the suffixes of a compiler; what is not known is empty.
    """

    function: str
    caller: str
    module: str

    @property
    def lasting(self) -> tuple[str, ...]:
        """The names by which the site is found again: without a function that everybody calls, such as memcpy."""
        generic = self.caller and self.module and not self.own_module
        return (self.caller,) if generic else tuple(filter(None, (self.function, self.caller)))

    own_module: str = ""  # the module of the function itself

    def __str__(self) -> str:
        text = f"{self.function}, called by {self.caller}" if self.caller else self.function
        return f"{text} ({self.module})" if self.module else text


def site_of(record: ResultRecord) -> KernelSite | None:
    """Where the kernel died or complained in a case, as far as the result says so."""
    found = _SITE.search(crash_location(record["kernel"].get("log", ()))) or _SITE.search(record["reason"])
    if found is None:
        return None
    own, callers = found["module"] or "", found["callers"] or ""
    return KernelSite(found["function"], found["caller"] or "", own or callers, own)
