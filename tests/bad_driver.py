"""A misbehaving driver in the guest: a preloaded library, and the tables that trigger it. A helper of tests."""

import subprocess
from pathlib import Path

from conformance.tables.suite import ROOT

# The sizes of memory, in pages, at which tests/preload.c misbehaves.
PAGES = {
    "works": 4,
    "panics": 101,
    "hangs": 102,
    "leaks": 103,
    "dies": 104,
    "taints": 105,
    "loses": 106,
    "works-too": 4,
}
# The rows in which a peer writes to the region, so that a completion is needed.
_WRITTEN_TO = ("loses",)


def tables(folder: Path, *rows: str) -> Path:
    """Makes a folder for --cases with these rows; each row is a valid registration of memory of the row's size."""
    text = f"verb: ibv_reg_mr\ncases: {len(rows)}\nrows:\n"
    for row in rows:
        text += f"  - id: {row}\n    rules: [REG-01]\n"
        text += f"    given: {{memory: {{buf: {{kind: anonymous, size: {PAGES[row]} pages}}}}}}\n"
        access = "LOCAL_WRITE, REMOTE_WRITE" if row in _WRITTEN_TO else "LOCAL_WRITE"
        text += f"    when: {{access: [{access}]}}\n    then: success\n"
        if row in _WRITTEN_TO:
            text += "    afterwards: [{call: traffic, op: RDMA_WRITE, rkey: new.rkey, addr: buf, then: success}]\n"
    (folder / "reg_mr").mkdir(parents=True)
    (folder / "reg_mr" / "bad.yaml").write_text(text)
    return folder


def overlay(folder: Path, source: str = "preload.c") -> Path:
    """Makes a folder for --overlay that preloads the library into every program of the guest."""
    (folder / "usr/local/lib").mkdir(parents=True)
    (folder / "etc").mkdir()
    library(folder / "usr/local/lib/preload.so", source)
    (folder / "etc/ld.so.preload").write_text("/usr/local/lib/preload.so\n")
    return folder


def library(target: Path, source: str = "preload.c") -> Path:
    """Compiles the library from a file of the tests to `target`."""
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", str(target), str(ROOT / "tests" / source)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)
    return target
