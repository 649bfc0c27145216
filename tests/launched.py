"""Helpers of tests: run programs to their end, and run `./rdma-cts` as a user does, with the Python of the tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from commands.__main__ import main
from conformance.tables.suite import ROOT
from fixtures.guest import build
from patience import PATIENCE_S


def ended(*command: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """Runs a program until it exits; returns its exit status and its output."""
    how = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "check": False, **how}
    return subprocess.run([*map(str, command)], **how)


def built_by(
    stand_in: Callable[[Sequence[str], Path], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Replaces the programs that build guests by a stand-in, which takes no time and needs no tools. The stand-in gets
    a command and the path of its log; `root_of` returns the directory that a command of mmdebstrap has to make."""
    monkeypatch.setattr(build, "run_logged", lambda command, log, *_: stand_in(command, log))
    monkeypatch.setattr(build, "check_tools", lambda *_: None)
    monkeypatch.setattr(build, "find_tool", lambda name: name)


def root_of(command: Sequence[str]) -> Path:
    return Path(command[-1] if command[-1].startswith("/") else command[-2])


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def launched(
    *arguments: str | Path,
    said: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs `./rdma-cts` with these arguments in the project's directory; `said` is the text on its standard input."""
    environment_of_child = {**os.environ, "RDMA_CTS_PYTHON": sys.executable, **environment}
    return ended(ROOT / "rdma-cts", *arguments, cwd=ROOT, env=environment_of_child, input=said)


@cache
def prepare() -> None:
    """Makes the template that most guests need, and the files that it derives from the suite. A guest with another
    build gets copies of these files, and therefore starts in a third of the processor time."""
    assert main(["prepare", "--yes"]) == 0


def run_in_guest(
    out: Path,
    *arguments: str | Path,
    only: Iterable[str] = (),
    said: str = "",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs the suite in the guest and records the results in `out`; with `only`, runs only these cases."""
    if {"--overlay", "--modules"}.intersection(arguments):
        prepare()
    chosen = [word for case in only for word in ("--only", case)]
    return launched(
        "run",
        "--guest",
        "--yes",
        "--out",
        out,
        *chosen,
        *arguments,
        said=said,
        **environment,
    )


def git(tree: Path, *arguments: str, given: bytes = b"") -> str:
    who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org"]
    done = subprocess.run(
        ["git", "-C", str(tree), *who, *arguments],
        input=given,
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


@contextlib.contextmanager
def killed_after(line: bytes, program: str) -> Iterator[None]:
    """Runs a Python program until it prints the line, and kills it at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-uc", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == line
        yield
        process.kill()
