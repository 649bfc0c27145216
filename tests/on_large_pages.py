"""Runs every Nth case on the reference as if pages had the given size; prints one line of JSON for test_reference.py.
Memory is mapped in multiples of the given size. mincore(2) still reports this machine's pages; this module converts its
result to larger pages."""

from __future__ import annotations

import ctypes
import json
import mmap
import sys

REAL = mmap.PAGESIZE
vars(mmap)["PAGESIZE"] = int(sys.argv[1])  # set before the modules that read it are imported

from conformance.device import memory as mapping  # noqa: E402
from conformance.kernel import paging  # noqa: E402
from conformance.model.verdict import Verdict  # noqa: E402
from conformance.tables.suite import load_suite  # noqa: E402
from conformance.tables.tiers import DEFAULT, of_tier  # noqa: E402
from trial.reference import memory  # noqa: E402
from trial.running import on_reference  # noqa: E402

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


def in_core(addr: int, size: int) -> tuple[int, int]:
    """Like paging.in_core; a larger page is in memory if any part of it is in memory."""
    count, in_one = -(-size // REAL), mmap.PAGESIZE // REAL
    vector = (ctypes.c_ubyte * count)()
    if _libc.mincore(addr, size, vector) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    larger = []
    for first in range(0, count, in_one):
        larger.append(any(page & 1 for page in vector[first : first + in_one]))
    return sum(larger), len(larger)


def map_file(fd: int, size: int) -> int:
    """Like memory.map_file, but aligns the mapping to a larger page."""
    addr, _ = mapping._reserve(size, mmap.PAGESIZE)
    return mapping._map(
        addr,
        size,
        mmap.PROT_READ | mmap.PROT_WRITE,
        mmap.MAP_SHARED | mapping._MAP_FIXED,
        fd,
    )


def main() -> None:
    assert memory.PAGE == mmap.PAGESIZE
    paging.in_core = in_core
    mapping.map_file = map_file
    every = of_tier(load_suite().cases, DEFAULT)[:: int(sys.argv[2])]
    cases = [case for case in every if not case.needs_wire_peer]  # the reference has none
    results = [(case.id, result) for case, result in on_reference(cases)]
    wrong = [
        f"{name}: {result.verdict} {result.reason}"
        for name, result in results
        if result.verdict != Verdict.PASS
    ]
    print(json.dumps({"cases": len(results), "planned": len(cases), "wrong": wrong}))


if __name__ == "__main__":
    main()
