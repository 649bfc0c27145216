"""Tests that a result of a row at the entry uverbs counts only if the kernel's own trace of the calls supports it. The
library under test can change what its process reports, for instance by replacing the code that encodes a record."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Literal

import pytest

from actors import SUITE, Actor, ran, verdicts
from conformance.model.observation import Observation
from conformance.supervision.calls import Call, contradiction
from conformance.tables.suite import ROOT
from fixtures.guest import call_trace
from fixtures.guest.call_trace import BEGIN, CallTrace, calls_file
from fixtures.system.architecture import ARCHITECTURES
from kinds import Patch
from patience import await_true
from samples import case, laid

ROW = "{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: EINVAL}}"
CASE = replace(case(ROW), entry="uverbs")
REFUSED: Observation = {"rc": None, "returned": "NULL", "errno": "EINVAL", "layer": "kernel"}
GRANTED: Observation = {**REFUSED, "returned": "MR", "errno": ""}
MARK = "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "observed, calls",
    [
        (REFUSED, [Call(9, -22)]),
        (REFUSED, [Call(3, 24), Call(9, -22), Call(4, 16)]),
        (GRANTED, [Call(9, 56)]),
        ({**REFUSED, "layer": "libibverbs"}, []),
        ({"unreachable": "no device memory"}, []),
    ],
)
def test_a_result_that_the_kernel_has_returned_is_supported(observed, calls):
    assert contradiction(CASE, observed, calls) == ""


@pytest.mark.parametrize(
    "observed, calls, said",
    [
        (REFUSED, [Call(9, 56)], "reports the errno EINVAL, but none of its 1 calls"),
        (REFUSED, [], "reports the errno EINVAL, but none of its 0 calls"),
        (REFUSED, [Call(3, -22), Call(9, 56)], "but none of its 2 calls"),  # another command
        (REFUSED, [Call(None, -22)], "but none of its 1 calls"),  # an ioctl
        (REFUSED, [Call(9, -12)], "but none of its 1 calls"),
        ({**REFUSED, "errno": "ENOSUCH"}, [Call(9, -22)], "the errno ENOSUCH"),
        (GRANTED, [Call(9, -22)], "reports success, but none of its 1 calls"),
        (REFUSED, None, "the kernel's trace of the calls of this case is missing"),
    ],
)
def test_a_result_that_no_call_had_is_a_contradiction(observed, calls, said):
    assert said in contradiction(CASE, observed, calls)


def test_libibverbs_issues_a_command_in_either_form_and_can_refuse_it_itself():
    through_library = replace(CASE, entry="libibverbs")
    assert contradiction(through_library, GRANTED, [Call(None, 0)]) == ""
    assert contradiction(through_library, GRANTED, [Call(9, 0)]) == ""
    assert contradiction(through_library, GRANTED, [Call(13, 0)])
    assert contradiction(through_library, GRANTED, [])
    assert contradiction(through_library, REFUSED, []) == ""


# The trace of a guest


def line(
    kind: str, process: int = 7, mark: str = MARK, order: Literal["little", "big"] = "little"
) -> str:
    begin = int.from_bytes(mark.encode()[:8], order)
    number = int.from_bytes(kind.encode()[:2], order)
    event = f"uv_line: (port_fops_write+0x4/0x1b0) mark={begin:#x} type={number}"
    return f"         python3-{process}     [000] .....   299.358249: {event}\n"


def wrote(command: int, result: int, process: int = 7) -> str:
    head = f"         python3-{process}     [000] "
    return (
        f"{head}.....   1.1: uv_write: (ib_uverbs_write+0x4/0x600 [ib_uverbs]) command={command}\n"
        f"{head}.l...   1.2: uv_write_end: (vfs_write+0xf1/0x450 <- ib_uverbs_write) result={result}\n"
    )


def asked(result: int, process: int = 7) -> str:
    end = f"uv_ioctl_end: (__x64_sys_ioctl+0xb9/0x100 <- ib_uverbs_ioctl) result={result}"
    return f"         python3-{process}     [000] .....   1.2: {end}\n"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setattr(call_trace, "_WAIT_S", 0.05)
    return calls_file(tmp_path / "console-2.log")


@pytest.mark.parametrize("begin", ["", line("start")])
def test_the_trace_has_the_calls_of_each_case(path, begin):
    """The line that begins a case is a separate write, or in one write with the result before it."""
    # the header, the capabilities, preflight
    before = line("header") + line("offered") + wrote(3, 16)
    first = line("start") + asked(0) + wrote(9, -22) + line("observed")
    second = begin + line("progress") + wrote(9, 56) + line("result")
    path.write_text(before + first + second + begin + wrote(13, 12))
    trace = CallTrace(path, MARK)
    assert trace.before(1) == [Call(None, 0), Call(9, -22)]
    assert trace.before(2) == [Call(9, 56)]
    assert trace.before(3) is None


@pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=lambda one: one.name)
def test_the_trace_is_that_of_every_architecture(architecture, path):
    """The probes name arguments, and no register of a processor; marks and types are numbers in its byte order."""
    probes = [text for text in BEGIN.splitlines() if "kprobe_events" in text]
    assert len(probes) == 4
    assert not any("%" in text for text in probes)
    assert sum("+u0($arg2)" in text for text in probes) == 2
    order: Literal["little", "big"] = "big" if architecture.big_endian else "little"
    begin, end = line("start", order=order), line("observed", order=order)
    path.write_text(begin + wrote(9, -22) + end)
    assert CallTrace(path, MARK).before(1) == [Call(9, -22)]


def test_the_trace_is_copied_after_each_line_of_the_harness(tmp_path):
    laid(tmp_path / "instances/lines/per_cpu/cpu0", {})
    lines, calls = (
        tmp_path / name for name in ("instances/lines/per_cpu/cpu0/trace_pipe_raw", "trace_pipe")
    )
    for fifo in (lines, calls):
        os.mkfifo(fifo)
    port = tmp_path / "port"
    port.touch()
    program = [ROOT / "fixtures/guest/copy_trace.py", tmp_path, port, "copy_trace"]
    with (
        subprocess.Popen([sys.executable, "-IS", *map(str, program)]) as process,
        lines.open("wb", buffering=0) as woken,
        calls.open("wb", buffering=0) as traced,
    ):
        traced.write(b"first\n")
        assert not port.read_bytes()
        woken.write(b"a page")
        await_true(lambda: port.read_bytes() == b"first\n")
        traced.write(b"second\n" * 1000)
        woken.write(b"a page")
        await_true(lambda: port.read_bytes() == b"first\n" + b"second\n" * 1000)
        assert Path(f"/proc/{process.pid}/comm").read_text() == "copy_trace\n"
        woken.close()
        assert process.wait() == 0


def test_the_session_that_follows_the_rows_of_the_kernel_begins_anew(path):
    """Its header, its capabilities and its preflight belong to no case."""
    first = line("start") + asked(0) + line("observed")
    second = line("header") + line("offered") + wrote(9, -22) + line("start") + wrote(9, 56)
    path.write_text(first + second + line("observed"))
    trace = CallTrace(path, MARK)
    assert trace.before(1) == [Call(None, 0)]
    assert trace.before(2) == [Call(9, 56)]


def test_calls_of_several_processes_are_not_confused(path):
    first, other = wrote(9, -22, 7).splitlines(True), wrote(3, 16, 8).splitlines(True)
    path.write_text(line("start") + first[0] + other[0] + first[1] + other[1] + line("observed"))
    assert CallTrace(path, MARK).before(1) == [Call(9, -22), Call(3, 16)]


def test_lines_without_the_mark_begin_and_end_no_case(path):
    foreign = line("start", mark="f" * 32) + line("observed", mark="f" * 32)
    path.write_text(line("start") + foreign + wrote(9, -22) + line("observed"))
    assert CallTrace(path, MARK).before(1) == [Call(9, -22)]


def test_a_trace_that_ends_is_missing(path):
    trace = CallTrace(path, MARK)
    assert trace.before(1) is None  # there is no file
    path.write_text(line("start") + wrote(9, -22))
    assert trace.before(1) is None
    path.write_text(path.read_text() + line("observed") + "CPU:0 [LOST 5 EVENTS]\n")
    assert trace.before(1) == [Call(9, -22)]


def test_a_trace_without_end_fills_neither_memory_nor_disk(path, monkeypatch):
    monkeypatch.setattr(call_trace, "_CHUNK", 1 << 14)
    monkeypatch.setattr(call_trace, "_KEPT_BYTES", 1 << 16)
    monkeypatch.setattr(call_trace, "_MOST_CALLS", 10)
    path.write_text(line("start") + wrote(9, -22) + wrote(9, 56) * 5000 + line("observed"))
    size = path.stat().st_size
    trace = CallTrace(path, MARK)
    assert trace.before(1) == [Call(9, -22), *[Call(9, 56)] * 9]
    status = path.stat()
    assert status.st_size == size > 1 << 19
    assert status.st_blocks * 512 <= 1 << 17
    with path.open("a") as file:
        file.write(line("start") + wrote(13, 12) + line("observed"))
    assert trace.before(2) == [Call(13, 12)]


def test_a_trace_is_awaited(path, monkeypatch):
    monkeypatch.setattr(call_trace, "_WAIT_S", 60.0)
    text = line("start") + wrote(9, -22) + line("observed")
    path.write_text(text[:150])

    def go_on() -> None:
        with path.open("a") as file:
            file.write(text[150:])

    later = Timer(0.05, go_on)
    later.start()
    assert CallTrace(path, MARK).before(1) == [Call(9, -22)]
    later.join()


# A run


def test_a_worker_whose_report_the_kernel_contradicts_gets_no_pass(stage):
    sample = SUITE.tables[0]
    rows = tuple(replace(row, entry="uverbs") for row in sample.cases)
    traced = replace(SUITE, tables=(replace(sample, cases=rows),))
    worker = Actor(iter(ran(0, 1, 2, 3)), is_traced=True)
    worker.traced = {1: [Call(9, 56)], 2: [Call(9, -22)], 3: None, 4: [Call(9, 56)]}
    recorded = stage.play(worker, suite=traced)
    assert verdicts(recorded) == ["PASS", "BROKEN", "BROKEN", "PASS"]
    assert "the worker reports success" in recorded.results[1]["reason"]
    assert "trace of the calls of this case is missing" in recorded.results[2]["reason"]
