"""The measurements of sweeps.py, inside the guest: writes a JSON line for each to the results port."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.device.bench import DeviceBench
from conformance.device.device import Device
from conformance.device.limits import obey_locked_memory_limit
from conformance.device.native_exchange import COMPILE_THRESHOLD
from conformance.execution.capabilities import capabilities_of
from conformance.execution.runner import RunContext, Unwatched, no_progress
from conformance.judging import Basis
from conformance.model.case import Case
from conformance.sweeps.native import available
from conformance.sweeps.run import run_sweep
from conformance.tables.loader import parse_table
from conformance.tables.rules_file import read_registry
from conformance.tables.suite import CASES, ROOT
from conformance.verbs import ENUMS
from conformance.yamldoc.nodes import read_bytes

THEIRS = ("test_mr", "test_odp")
PORT = Path("/dev/virtio-ports/rdma-cts.results")
TABLE = """\
verb: ibv_reg_mr
cases: 1
given: {{memory: {{buf: {{kind: anonymous, size: 4 pages}}}}}}
rows:
  - id: space
    rules: [{rule}]
    {call}
    sweep:
      axes: {axes}
      points: {points}
      expect: [{{then: open, rule: {rule}}}]
    when: {when}
"""
EFFECT = (
    "{access: {subsets of: [LOCAL_WRITE, REMOTE_READ, MW_BIND, RELAXED_ORDERING, FLUSH_GLOBAL]},"
    " op: [RDMA_WRITE, RDMA_READ, ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD]}"
)


def table(rule: str, axes: str, points: int, when: str, call: str = "") -> Case:
    text = TABLE.format(rule=rule, axes=axes, points=points, when=when, call=call)
    registry, _ = read_registry([CASES], ROOT)
    made, mistakes = parse_table(read_bytes(text.encode(), "benchmark"), Path("reg_mr/benchmark.yaml"), registry)
    if made is None:
        raise SystemExit("\n".join(map(str, mistakes)))
    return made.cases[0]


def flags(points: int, accepted: bool) -> tuple[Case, list[str]]:
    """A sweep of `points` points, a power of 2, and the C program's arguments for the same calls.

    The sweep has all access flags or, if `accepted`, only flags that can always be registered; and as many lengths and
    addresses as needed for the number of points.
    """
    access = ENUMS["ibv_access_flags"]
    names = ["REMOTE_WRITE", "REMOTE_READ", "MW_BIND", "RELAXED_ORDERING"] if accepted else access.short_names
    rest = points >> len(names)
    lengths, offsets = min(rest, 128), max(1, rest // 128)
    listed = ", ".join(f"3 pages - {number}" for number in range(lengths))
    axes = f"{{access: {{subsets of: [{', '.join(names)}]}}, length: [{listed}]}}"
    always, addr = ["LOCAL_WRITE"] if accepted else [], "buf"
    if offsets > 1:
        addr = "$addr"
        axes = f"{axes[:-1]}, addr: [{', '.join(f'buf + {number}' for number in range(offsets))}]}}"
    when = f"{{addr: {addr}, length: $length, access: [{', '.join([*always, '$access'])}]}}"
    masks = [str(access.value_of(name)) for name in names]
    return table("REG-17", axes, points, when), [str(access.mask_of(*always)), str(lengths), str(offsets), *masks]


class Measuring:
    """One open device, and the port to which results are written."""

    def __init__(self, repetitions: int) -> None:
        obey_locked_memory_limit()
        self.device = Device("rxe0")
        bench = DeviceBench(self.device)
        # The measurements include neither the watch on the kernel's log nor random sequences.
        self.run = RunContext(bench, Basis(capabilities_of(bench)), Unwatched(), {})
        self.repetitions = repetitions

    def write(self, what: str) -> None:
        """Writes a line of the table."""
        with PORT.open("w") as port:
            port.write(json.dumps({"type": "measured", "what": what}) + "\n")

    def microseconds(self, case: Case) -> float:
        """Microseconds per point of a sweep, including set-up and judging."""
        assert case.sweep is not None
        start = time.perf_counter()
        run_sweep(case, self.run, no_progress)
        return (time.perf_counter() - start) / case.sweep.size * 1e6

    def best(self, measured: Callable[[], float]) -> float:
        """The minimum of the repetitions, because other work of the machine can only add time."""
        return min(measured() for _ in range(self.repetitions))

    def compared(self, case: Case, arguments: Sequence[str]) -> tuple[float, float]:
        """Microseconds per point of the C program and of a sweep, measured in turn."""
        pairs = [(self.floor(arguments), self.microseconds(case)) for _ in range(self.repetitions)]
        return min(floor for floor, _ in pairs), min(own for _, own in pairs)

    def floor(self, arguments: Sequence[str]) -> float:
        """Microseconds per point of the C program."""
        return float(subprocess.run(["./floor", *arguments], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    measuring = Measuring(int(sys.argv[1]))
    if not available():
        raise SystemExit("no compiler")
    for what, accepted in (("all combinations, 240 register", False), ("all that register", True)):
        for bits in (11, 15):
            case, arguments = flags(1 << bits, accepted)
            floor, own = measuring.compared(case, arguments)
            measuring.write(f"| {what}: 2^{bits} points | {floor:.1f} us | {own:.1f} us | {own / floor:.2f} |")
    for bits in (11, 13, 15, 17):
        case, _ = flags(1 << bits, False)
        own = measuring.best(lambda case=case: measuring.microseconds(case))  # type: ignore[misc]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        measuring.write(f"| 2^{bits} | {own:.1f} us | {own * (1 << bits) / 1e6:.2f} s | {memory:.1f} MiB |")
    by_code = 1e6 / own
    effect = table(
        "REG-06", EFFECT, 128, "{op: $op, rkey: mr.rkey}", "given: {mrs: {mr: {access: $access}}}\n    call: traffic"
    )
    for _ in range(1 + COMPILE_THRESHOLD // 128):
        measuring.microseconds(effect)  # until the C code is compiled and used, as in a long run
    by_effect = 1e6 / measuring.best(lambda: measuring.microseconds(effect))
    measuring.write(f"| points a second | {by_code:,.0f} by return code | {by_effect:,.0f} by effect |")
    if Path("tests").is_dir():
        measuring.write(compared_with_rdma_core(by_code, by_effect))


def compared_with_rdma_core(by_code: float, by_effect: float) -> str:
    """How many of rdma-core's own test methods in `tests` run per second, and how many times as many points do."""
    command = [sys.executable, "rdma_core_tests.py", "rxe0", *THEIRS]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    theirs = json.loads(output.splitlines()[-1])
    rate = theirs["ran"] / theirs["seconds"]
    return (
        f"| rdma-core's own tests | {theirs['ran']} methods, {theirs['wrong']} failed, {rate:.2f} a second |"
        f" {by_code / rate:,.0f} times by return code, {by_effect / rate:,.0f} times by effect |"
    )


if __name__ == "__main__":
    main()
