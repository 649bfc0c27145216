"""Runs in the guest: exchanges the driver's module, and runs cases on the device in a child process.

    python3 -m trial.kernel.inside PORT

The program waits until the guest is frozen as a template (fixtures/guest/warm.py), and then reads orders from PORT, a
serial port to the host, as lines of JSON: `cases` to receive, a `module` and a `provider` to load, ids to `run`, or a
`program` with tests of another project. trying.py judges the outcomes.
"""

import gc
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.device.bench import DeviceBench
from conformance.device.device import Device
from conformance.device.limits import obey_locked_memory_limit
from conformance.errors import UserError
from conformance.execution.offered import capabilities_of
from conformance.execution.preflight import preflight
from conformance.kernel.log import KernelWatch
from conformance.model.case import Case
from conformance.packed_text import unpacked
from conformance.results.files import write_all
from fixtures.guest import warm
from fixtures.guest.exchange import DEVICE, MODULE, exchange
from fixtures.guest.request import decode
from fixtures.guest.wire_namespace import guest_sockets
from trial.single_cases import run_context, violations_by

_FILE, _PROGRAM = Path("/tmp/mutant.ko"), Path("/tmp/tests.pyz")
_PROVIDERS = Path("/usr/lib/x86_64-linux-gnu/libibverbs")
# After a write to this file, the kernel repeats the warnings that it reports only once.
_ONCE = Path("/sys/kernel/debug/clear_warn_once")
# KFENCE watches every object that the kernel allocates during a case, as long as KFENCE has room.
_FENCE, _EVERY_OBJECT = Path("/sys/module/kfence/parameters"), "1000000"
_FENCED, _FRAME = Path("/sys/kernel/debug/kfence"), re.compile(r"^ ([\w.]+)\+", re.MULTILINE)
# an object may be freed only after an RCU grace period
_TICK_S, _FREED_S, _POLL_S = (0.004, 3.0, 0.1)
_CHUNK = 1 << 20
_PROGRESS_S = 2.0


class Orders:
    """Reads orders from the port and writes answers to it, as lines. `seed` shuffles the points of sweeps. If `watched`
    is true, KFENCE watches the kernel's allocations during each case."""

    def __init__(self, port: str) -> None:
        self._port = os.open(port, os.O_RDWR | os.O_CLOEXEC)
        self.seed: int | None = None
        self.watched = True

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        rest = b""
        while True:
            while b"\n" not in rest:
                rest += os.read(self._port, _CHUNK)
            line, _, rest = rest.partition(b"\n")
            yield json.loads(line)

    def answer(self, event: str, **more: object) -> None:
        write_all(
            self._port,
            json.dumps({"event": event, **more}, separators=(",", ":")).encode() + b"\n",
        )


def run(cases: Sequence[Case], orders: Orders, all_of_them: bool) -> bool:
    """Runs the cases in this process until one reports a violation, or all with `all_of_them`, and writes the outcome
    of each. Returns whether a case reported a violation, or no session could begin."""
    obey_locked_memory_limit()
    try:
        device = Device(DEVICE)
        bench = DeviceBench(device, alone=True)
        preflight(bench)
        if any(case.needs_wire_peer for case in cases):
            bench.open_wire(guest_sockets)
        context = run_context(bench, capabilities_of(bench), KernelWatch(), orders.seed)
    except UserError as error:
        orders.answer("no-session", reason=str(error))
        return True
    orders.answer("session")
    violated = False
    for case in cases:
        if violated and not all_of_them:
            break
        watch(orders.watched)
        violated |= _violates(case, context, orders)
        watch(False)
    return violated


def _violates(case: Case, context: Any, orders: Orders) -> bool:
    # preflight or an earlier case may have caused the same warning as this case
    _ONCE.write_text("1")
    orders.answer("begins", case=case.id)
    last, began = time.monotonic(), time.monotonic()

    def progress(point: str, done: int, **more: str) -> None:
        nonlocal last
        if time.monotonic() - last > _PROGRESS_S:
            last = time.monotonic()
            orders.answer("progress")

    rules, judgement = violations_by(case, context, progress)
    facts: dict[str, object] = {"verdict": judgement.verdict, "rules": sorted(rules)}
    facts |= {"reason": judgement.reason, "fault": judgement.fault and judgement.fault.as_data()}
    orders.answer("judged", case=case.id, seconds=round(time.monotonic() - began, 3), **facts)
    return bool(rules)


def in_child(cases: Sequence[Case], orders: Orders, all_of_them: bool) -> int:
    """Runs the cases in a child, whose exit releases their objects; returns its status: 0 without a violation."""
    child = os.fork()
    if child == 0:
        try:
            if run(cases, orders, all_of_them):
                status = 2
            else:
                status = 0
        except BaseException as error:
            orders.answer("no-session", reason=f"{type(error).__name__}: {error}")
            status = 1
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def watch(on: bool) -> None:
    """Makes KFENCE watch the kernel's allocations, or stop watching them."""
    (_FENCE / "burst").write_text(_EVERY_OBJECT)
    (_FENCE / "sample_interval").write_text("1" if on else "0")
    stats = (_FENCED / "stats").read_text()
    while on and (_FENCED / "stats").read_text() == stats:  # waits until KFENCE's timer has run
        time.sleep(_TICK_S)


def run_watched(cases: Sequence[Case], orders: Orders, all_of_them: bool) -> int:
    """Runs the cases in a child; returns its status. Without `all_of_them`, if no case reports a violation, but the
    driver keeps memory, each case is run again in isolation; the first case after which memory is kept fails."""
    watch(True)
    watch(False)
    before = _kept()
    status = in_child(cases, orders, all_of_them)
    if status == 0 and not all_of_them and _kept_since(before):
        for case in cases:
            before = _kept()
            if in_child([case], Orders(os.devnull), False) == 0 and (
                holding := _kept_since(before)
            ):
                orders.answer("begins", case=case.id)
                reason = f"the driver keeps memory after the process has exited: {', '.join(sorted(holding))}"
                orders.answer(
                    "judged",
                    case=case.id,
                    verdict="FAIL",
                    rules=case.rules,
                    reason=reason,
                    seconds=0,
                )
                break
    return status


def _kept() -> Counter[str]:
    """Counts the objects watched by KFENCE that the driver has allocated and not freed, by the functions that led to
    the allocation. Only allocations by modules count, because the kernel keeps some of its own objects for later."""
    counts = Counter[str]()
    for text in (_FENCED / "objects").read_text().split("---\n"):
        stack, _, freed = text.partition("allocated by")[2].partition("\n")[2].partition("\n\n")
        if (
            f"[{MODULE}]" in stack
            and stack.partition("\n")[0].endswith("]")
            and not freed.strip(" -\n")
        ):
            counts[" < ".join(_FRAME.findall(stack)[:3])] += 1
    return counts


def _kept_since(before: Counter[str]) -> Counter[str]:
    # frees objects that wait to be freed in a batch
    for cache in Path("/sys/kernel/slab").glob("kmalloc-*/shrink"):
        cache.write_text("1")
    until = time.monotonic() + _FREED_S
    while (more := _kept() - before) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return more


def run_program(program: str, arguments: Sequence[str], orders: Orders) -> int:
    """Runs a Python program that is packed in one file, and forwards its lines of JSON; returns its status."""
    _PROGRAM.write_bytes(unpacked(program))
    command = [sys.executable, str(_PROGRAM), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for line in process.stdout:
            orders.answer("line", **json.loads(line))
    return process.returncode


def exchange_provider(provider: str) -> None:
    """Replaces or restores the guest's provider. A process that has already loaded a provider keeps it."""
    (file,) = _PROVIDERS.glob("librxe-rdmav*.so")
    stored = file.with_suffix(".kept")
    if stored.exists():
        stored.replace(file)
    if provider:
        file.rename(stored)
        file.write_bytes(unpacked(provider))


def main(port: str) -> int:
    """Reads orders and executes them."""
    warm.load_code(providers=False)  # each child loads the provider of its mutant
    gc.freeze()
    _, time_ns = decode(warm.wait(port))
    time.clock_settime_ns(time.CLOCK_REALTIME, time_ns)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    orders, cases_by_id = Orders(port), dict[str, Case]()
    orders.answer("open")
    for order in orders:
        if "cases" in order:
            cases_by_id |= {case.id: case for case in pickle.loads(unpacked(order["cases"]))}
            orders.seed = order["seed"]
        if "module" in order:
            exchange_provider(order["provider"])
            try:
                _FILE.write_bytes(unpacked(order["module"]))
                reason = exchange(_FILE)
            except subprocess.TimeoutExpired as error:
                orders.answer("stuck", reason=f"{' '.join(error.cmd)} hangs")
                continue
            orders.answer("exchanged", reason=reason)
        if "run" in order:
            orders.watched = order["watched"]
            status = run_watched([cases_by_id[name] for name in order["run"]], orders, order["all"])
            orders.answer("done", status=status)
        if "program" in order:
            orders.answer("done", status=run_program(order["program"], order["arguments"], orders))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
