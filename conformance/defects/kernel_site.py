"""Where a kernel died, by the names that stay the same from build to build. Not for finding it in a log (judging/)."""

from dataclasses import dataclass

from conformance.model.fault import Fault


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
        """The names that identify the site, without a function that everybody calls, such as memcpy."""
        generic = self.caller and self.module and not self.own_module
        return (self.caller,) if generic else tuple(filter(None, (self.function, self.caller)))

    own_module: str = ""  # the module of the function itself

    def __str__(self) -> str:
        text = f"{self.function}, called by {self.caller}" if self.caller else self.function
        return f"{text} ({self.module})" if self.module else text


def site_of(fault: Fault) -> KernelSite | None:
    """Where the kernel died or complained, as far as known."""
    if not fault.site:
        return None
    function, caller, own, callers = fault.site
    return KernelSite(function, caller, own or callers, own)
