"""Statements of which the reference has no decision that a violation could replace: gaps of the reference."""

from __future__ import annotations

NO_DECISION = {
    "REG-08, REG-09": "a flush moves nothing: whether data is visible or persistent behind it is not modelled",
    "REG-12": "a page never moves: page_out of the bench does nothing, and no translation is kept that could be stale",
    "REG-14": "requests are carried out at once and whole: order and visibility can only be broken around put()",
    "REREG-15": "may, never failed: reuse of resources is neither modelled nor observable",
    "XREREG-04": "ALLOCATE_MR has no number, and no memory is ever allocated by the library; the other rights have one",
    "XREREG-05": "no region is shared: Region has no such attribute and nothing makes one",
    "ADV-04, ADV-14": "advice only touches pages: no translation of the device is kept that could be there or not",
    "BIND-04": "the order that FENCE asks for: nothing is ever outstanding; only its acceptance can be broken",
    "BIND-13": "order of bind and send: both are carried out when they are posted; a late bind has to be simulated",
    "DEREG-04": "no operation is in flight but posted receives; bounded time and the kernel's log are not modelled",
}
