"""API-01: are the descriptions of the verbs those of the installed header and bindings?

    checks = check_api()                      # the header, then pyverbs
    checks = check_header(include_dirs=[...]) # another build of rdma-core

Everything is asked of a C compiler, so what counts is what a program compiled here would see. It
needs no device and loads no library. Not for what the verbs do: that is for the cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conformance.header.bindings import check_bindings
from conformance.header.check import FAIL, NOT_COVERED, PASS, UNREACHABLE, Check
from conformance.header.compare import compare
from conformance.header.program import HEADER, Toolchain, Unreachable


def check_header(
    *,
    compiler: str | None = None,
    include_dirs: Sequence[Path | str] = (),
    header: str = HEADER,
    timeout_s: float = 60.0,
) -> list[Check]:
    """One check for each described enumerator, field and prototype, and one for each thing not described.

    `compiler` is a command line, by default $CC, else the first of cc, gcc and clang on PATH;
    `include_dirs` are searched before the system's; `timeout_s` bounds each run of the compiler in
    seconds. What keeps the comparison from being made (no compiler, no header, a header that does
    not compile) is one UNREACHABLE check, never an exception and never PASS.
    """
    try:
        return compare(Toolchain.found(compiler, include_dirs, header, timeout_s))
    except Unreachable as reason:
        return [Check(f"<{header}>", UNREACHABLE, reason=str(reason))]


def check_api(*, compiler: str | None = None, include_dirs: Sequence[Path | str] = ()) -> list[Check]:
    """The checks of the header, then those of the bindings."""
    return [*check_header(compiler=compiler, include_dirs=include_dirs), *check_bindings()]


__all__ = [
    "FAIL",
    "NOT_COVERED",
    "PASS",
    "UNREACHABLE",
    "Check",
    "check_api",
    "check_bindings",
    "check_header",
]
