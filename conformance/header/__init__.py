"""Compares the descriptions of the verbs with the installed header and bindings (rule API-01). The C compiler computes
the header's values and types, because they may depend on the compiler. No device is used and no library is loaded."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from conformance.header.check import FAIL, NOT_COVERED, PASS, UNREACHABLE, Check, check_bindings
from conformance.header.compare import compare
from conformance.header.program import COMPILER_S, HEADER, Toolchain, Unreachable

__all__ = (
    "FAIL",
    "NOT_COVERED",
    "PASS",
    "UNREACHABLE",
    "Check",
    "check_bindings",
    "check_header",
    "installed_api",
)


def check_header(
    *,
    compiler: str | None = None,
    include_dirs: Sequence[Path | str] = (),
    timeout_s: float = COMPILER_S,
    release: int | None = None,
) -> list[Check]:
    """Returns a check for each described item, and for each enumerator and field that the suite does not describe.

    `compiler` is a command line, by default $CC or the first of cc, gcc and clang on PATH. `include_dirs` are searched
    before the directories of the system. `timeout_s` limits each run of the compiler, in seconds. `release` is the
    installed rdma-core release, or None if unknown; its header need not have items of later releases. If nothing can be
    compared (no compiler, no header, or a header that does not compile), the result is one UNREACHABLE check.
    """
    try:
        return compare(Toolchain.found(compiler, include_dirs, timeout_s), release)
    except Unreachable as reason:
        return [Check(f"<{HEADER}>", UNREACHABLE, reason=str(reason))]


@functools.cache
def installed_api(release: int | None) -> tuple[Check, ...]:
    """Returns the checks of the installed header and bindings of rdma-core `release`. The result is cached."""
    return (*check_header(release=release), *check_bindings())
