"""Damages the files that come from others, at random, and reads each of them. A night calls it (.ci/nightly):

    python3 tests/fuzz_readers.py SECONDS CORPUS

A file must be read, or be refused by a UserError of one line, within 20 s of processor time. Files with new messages are kept in
CORPUS, with a folder for each reader, and are damaged further, also in the next night. A file that a reader does not
survive is kept in CORPUS/culprits, and the exit status is 1.
"""

from __future__ import annotations

import hashlib
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from types import FrameType

from conformance.errors import UserError
from conformance.model.rules import Registry
from conformance.results.plan import (
    LabPlan,
    Plan,
    read_lab_plan,
    read_plan,
    write_plan,
)
from conformance.results.records import LAB_FILE
from conformance.results.waiver_file import read_waivers
from conformance.tables.loader import read_table
from conformance.tables.profile import read_profile
from conformance.tables.suite import ROOT, load_suite
from fixtures.hosts.lab_file import read_lab
from reports.bundles import archive
from reports.digest import read
from reports.nights.history import read_history
from reports.summary import FILE_NAME as SUMMARY
from reports.summary import render
from test_old_results import OLD, RAW, damaged, read_in_every_way, read_to_resume

_MOST_S = 20  # of processor time for one file
_MOST_MEMORY = 4 << 30
_MOST_KEPT = 200  # files of a reader
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|[0-9]+|/\S+")
_LAB = b"hosts:\n  - {host: node1, device: mlx5_0}\n  - {host: root@[::1]:22, group: a}\ngroups: {a: {device: rxe0}}\n"


@dataclass(frozen=True)
class FileReader:
    """`name` is the file's place in the folder that `read` gets, and `good` its undamaged content."""

    name: str
    good: bytes
    read: Callable[[Path], object]


class _Late(Exception):
    """A reader needs too long."""


def _late(number: int, frame: FrameType | None) -> None:
    raise _Late


def _written(write: Callable[[Path], object], name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return (Path(folder) / name).read_bytes()


def _results(folder: Path) -> None:
    read_in_every_way(folder)
    read_to_resume(folder)


def _unpacked(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as empty:
        archive.unpack(folder / "bundle", Path(empty))


def _table(folder: Path, registry: Registry) -> None:
    _, mistakes = read_table(folder / "table.yaml", "table.yaml", registry)
    for mistake in mistakes[:1]:
        raise UserError(str(mistake))


def readers() -> Mapping[str, FileReader]:
    """Returns the readers of files from others, by name."""
    suite, today = load_suite(), date(2026, 11, 28)
    summary = render([read(OLD)]).encode()
    plan = Plan(("--device", "rxe0"), "/", ("reg_mr/x",), "0" * 64, "host", {})
    lab_plan = LabPlan(("--lab", "lab.yaml"), "/", "/lab.yaml")
    members = {"results.jsonl": (OLD / "results.jsonl").read_bytes()}
    bundle = _written(
        lambda folder: archive.pack(folder / "bundle", {"tables": "x"}, members), "bundle"
    )
    table = (ROOT / "cases/reg_mr/access_flags.yaml").read_bytes()
    return {
        "results": FileReader("results.jsonl", members["results.jsonl"], _results),
        "summary": FileReader(
            f"nights/2026-11-01/{SUMMARY}", summary, lambda folder: read_history(folder / "nights")
        ),
        "plan": FileReader(
            "plan.json", _written(lambda folder: write_plan(plan, folder), "plan.json"), read_plan
        ),
        "lab plan": FileReader(
            LAB_FILE,
            _written(lambda folder: write_plan(lab_plan, folder), LAB_FILE),
            read_lab_plan,
        ),
        "bundle": FileReader("bundle", bundle, _unpacked),
        "table": FileReader("table.yaml", table, partial(_table, registry=suite.registry)),
        "lab": FileReader("lab.yaml", _LAB, lambda folder: read_lab(folder / "lab.yaml", {})),
        "profile": FileReader(
            "profile.yaml",
            (ROOT / "ci/rxe/profile.yaml").read_bytes(),
            lambda folder: read_profile(folder / "profile.yaml"),
        ),
        "waivers": FileReader(
            "waivers.yaml",
            (ROOT / "ci/rxe/waivers.yaml").read_bytes(),
            lambda folder: read_waivers(folder / "waivers.yaml", suite, today),
        ),
    }


def damaged_bytes(data: bytes, dice: random.Random) -> bytes:
    """Returns data with damage: by lines, or by bytes, pieces and lengths."""
    if dice.random() < 0.6:
        with suppress(IndexError, ValueError):
            return damaged(data.splitlines(keepends=True), dice)
    content = bytearray(data or b" ")
    for _ in range(dice.randrange(1, 5)):
        start = dice.randrange(len(content))
        end = min(len(content), start + dice.randrange(1, 40))
        kind = dice.randrange(4)
        if kind == 0:
            content[start:end] = b""
        elif kind == 1:
            content[start:start] = content[start:end] * dice.randrange(1, 9)
        elif kind == 2:
            content[start:end] = dice.choice(RAW)
        else:
            content[start] ^= 1 << dice.randrange(8)
        content = content or bytearray(b" ")
    return bytes(content)


def outcome_of(reader: FileReader, folder: Path) -> tuple[str, str]:
    """Returns what a reader says about its file, without what varies, and why this is wrong; empty if it is right."""
    signal.setitimer(signal.ITIMER_PROF, _MOST_S)
    try:
        reader.read(folder)
        return "read", ""
    except UserError as error:
        said = str(error)
        wrong = "" if len(said.splitlines()) <= 1 + len(error.more) else f"several lines: {said!r}"
        return _VARYING.sub("…", error.message), wrong
    except _Late:
        return "late", f"it needs more than {_MOST_S} s"
    except Exception as error:
        return repr(error), repr(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def fuzz(seconds: float, corpus: Path, seed: int) -> int:
    """Reads damaged files for some seconds. Returns the number of files that a reader did not survive."""
    signal.signal(signal.SIGPROF, _late)
    dice, until = random.Random(seed), time.monotonic() + seconds
    tried, said, culprits = Counter[str](), set[tuple[str, str]](), 0
    all_readers = readers()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(shutil.copytree(OLD, Path(place) / "run"))
        folder.chmod(0o700)
        while time.monotonic() < until:
            name = dice.choice(list(all_readers))
            reader = all_readers[name]
            kept = sorted((corpus / name).glob("*"))
            good = reader.good
            if kept and dice.random() < 0.5:
                good = dice.choice(kept).read_bytes()
            data = damaged_bytes(good, dice)
            path = folder / reader.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(0o600)
            message, wrong = outcome_of(reader, folder)
            tried[name] += 1
            if wrong:
                culprits += 1
                print(f"{name}, {keep(corpus / 'culprits', data)}: {wrong}", flush=True)
            elif (name, message) not in said and len(kept) < _MOST_KEPT:
                keep(corpus / name, data)
            said.add((name, message))
            path.unlink()
            if name == "results":
                path.write_bytes(reader.good)
    counts = ", ".join(f"{number} of {name}" for name, number in sorted(tried.items()))
    print(
        f"seed {seed}: {tried.total()} files ({counts}); {len(said)} messages, {culprits} culprits"
    )
    return culprits


def keep(folder: Path, data: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / hashlib.sha256(data).hexdigest()[:16]
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    sys.exit(
        bool(fuzz(float(sys.argv[1]), Path(sys.argv[2]), random.SystemRandom().randrange(1 << 32)))
    )
