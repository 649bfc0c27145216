"""Helpers of tests: a preloaded library that makes a driver in the guest misbehave, and tables that trigger it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.results.records import Recorded, read_written
from conformance.tables.suite import ROOT
from launched import run_in_guest
from samples import footer_of, laid

# The sizes of memory, in pages, at which tests/preload.c misbehaves.
_MISBEHAVES = enumerate("panics hangs leaks dies taints loses".split(), 101)
PAGES = {"works": 4, "works-too": 4, **{row: size for size, row in _MISBEHAVES}}
_WRITE = {
    "call": "traffic",
    "op": "RDMA_WRITE",
    "rkey": "new.rkey",
    "addr": "buf",
    "then": "success",
}
# Fields in which some rows differ. In `loses` a peer writes to the region, and the library drops the completion.
_OTHER: Mapping[str, dict[str, Any]] = {
    "loses": {"when": {"access": ["LOCAL_WRITE", "REMOTE_WRITE"]}, "afterwards": [_WRITE]},
    "alter": {"then": "refused"},
}


def tables(folder: Path, pages: Mapping[str, int]) -> Path:
    """Makes a folder for --cases with these rows; each row makes a valid registration of `pages[row]` pages."""
    rows = [
        {
            "id": row,
            "rules": ["REG-01"],
            "given": {"memory": {"buf": {"kind": "anonymous", "size": f"{size} pages"}}},
            "when": {"access": ["LOCAL_WRITE"]},
            "then": "success",
            **_OTHER.get(row, {}),
        }
        for row, size in pages.items()
    ]
    table = {"verb": "ibv_reg_mr", "cases": len(rows), "rows": rows}
    return laid(folder, {"reg_mr/bad.yaml": json.dumps(table)})  # JSON is YAML


def overlay(folder: Path, source: str = "preload.c") -> Path:
    """Makes a folder for --overlay that preloads the library into every program of the guest."""
    laid(
        folder,
        {"etc/ld.so.preload": "/usr/local/lib/preload.so\n", "usr/local/lib/preload.so": ""},
    )
    library(folder / "usr/local/lib/preload.so", source)
    return folder


def library(target: Path, source: str = "preload.c") -> Path:
    command = [
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Werror",
        "-o",
        str(target),
        str(ROOT / "tests" / source),
    ]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return target


def run_with(place: Path, source: str, *options: str | Path, only: Iterable[str] = ()) -> Recorded:
    """Runs cases in a guest with the preloaded library; checks that the run is complete and that a case fails."""
    how = ("--guests", "1", "--overlay", overlay(place / "overlay", source), *options)
    done = run_in_guest(place / "out", *how, only=only)
    assert done.returncode == 1, done.stdout + done.stderr
    print(done.stdout)
    recorded = read_written(place / "out")
    assert footer_of(recorded)["complete"] is True
    return recorded
