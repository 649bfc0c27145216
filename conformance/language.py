"""The words of the table language: which calls a table can make, with what, and what it can expect.

Data only. `tables.py` reads tables with it, `schema.py` publishes it for editors; what a word does
on a device stands in `execution.py`. Flag and code names come from `verbs.py`, never from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ENTRIES = ("libibverbs", "uverbs")
OUTCOMES = {
    "success": "the call succeeds by the page's own convention",
    "refused": "the call fails by the page's own convention",
    "open": "the documents leave the outcome open: it is recorded, never failed",
}
MEMORY_KINDS = {
    "anonymous": "private anonymous memory, readable and writable",
    "read_only": "private anonymous memory mapped without write permission",
    "no_access": "address range mapped without any permission",
    "unmapped": "address range with nothing mapped",
    "hole": "readable and writable memory whose second page is unmapped",
    "shared": "shared memory of an anonymous file, readable and writable",
    "huge": "memory of huge pages of the system's default size",
}


@dataclass(frozen=True)
class Parameter:
    """One argument of a call: `kind` says how it is written, `of` what it names.

    Kinds: object (the name of a `pd`, `mr`, …), quantity (see quantity.py), flags (a list of names
    of the enum `of`), word (one of `words`). `default` is what stands when a table leaves it out; None: it must be given.
    """

    kind: str
    of: str = ""
    default: str | None = None
    words: tuple[str, ...] = ()


_PD = Parameter("object", "pd", "pd")
_ADDR = Parameter("quantity", default="buf.addr")
_LENGTH = Parameter("quantity", default="buf.size")
_ACCESS = Parameter("flags", "ibv_access_flags")

CALLS: Mapping[str, Mapping[str, Parameter]] = {
    "ibv_reg_mr": {"pd": _PD, "addr": _ADDR, "length": _LENGTH, "access": _ACCESS},
    "ibv_dereg_mr": {
        "mr": Parameter("object", "mr", "mr"),
        # What the structure names when the call is made: its own handle, one that was never given
        # out, or that of a region which is gone.
        "handle": Parameter("word", "handle", "own", words=("own", "invented", "stale")),
    },
}
# The name under which a later step finds what a call has made.
PRODUCTS: Mapping[str, tuple[str, str]] = {
    "ibv_reg_mr": ("mr", "new"),
}
