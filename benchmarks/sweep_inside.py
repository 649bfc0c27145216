"""The measurements of sweeps.py, inside of the guest: a line of JSON each on the results port."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

from conformance.bench import Bench
from conformance.capability import Capabilities
from conformance.case import Case
from conformance.device import Device
from conformance.probing import offered, reachable
from conformance.rules import read_registry
from conformance.suite import CASES, ROOT
from conformance.sweeps.execution import sweep
from conformance.sweeps.native import available
from conformance.tables import parse_table
from conformance.yamltext import read_bytes
from fixtures.bench import DeviceBench
from fixtures.limits import obey_locked_memory_limit

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
EFFECT = ("{access: {subsets of: [LOCAL_WRITE, REMOTE_READ, MW_BIND]}, more: {subsets of: [RELAXED_ORDERING]},"
          " op: [RDMA_WRITE, RDMA_READ, ATOMIC_CMP_AND_SWP, ATOMIC_FETCH_AND_ADD]}")  # fmt: skip


def table(rule: str, axes: str, points: int, when: str, call: str = "") -> Case:
    """A case with one sweep."""
    text = TABLE.format(rule=rule, axes=axes, points=points, when=when, call=call)
    registry, _ = read_registry([CASES], ROOT)
    made, mistakes = parse_table(read_bytes(text.encode(), "benchmark"), Path("reg_mr/benchmark.yaml"), registry)
    if made is None:
        raise SystemExit("\n".join(map(str, mistakes)))
    return made.cases[0]


def flags(points: int, accepted: bool) -> Case:
    """A sweep of 2^n points: all access flags and as many lengths as it takes, or combinations that all register."""
    if accepted:
        axes = "{access: {subsets of: [REMOTE_WRITE, REMOTE_READ, MW_BIND, RELAXED_ORDERING]}, LENGTHS}"
        rest = points // 16
    else:
        axes, rest = "{access: {subsets of: ibv_access_flags}, LENGTHS}", points // 2048
    lengths = f"length: [{', '.join(str(4096 * 4 - number) for number in range(rest))}]"
    access = "[LOCAL_WRITE, $access]" if accepted else "$access"
    return table("REG-17", axes.replace("LENGTHS", lengths), points, f"{{length: $length, access: {access}}}")


class Measuring:
    """One open device, and the port that results go to."""

    def __init__(self, repetitions: int) -> None:
        obey_locked_memory_limit()
        self.device = Device("rxe0")
        self.bench: Bench = DeviceBench(self.device)
        bench = self.bench
        assert isinstance(bench, DeviceBench)
        self.capabilities = Capabilities(
            self.device.capabilities, {name: offered(bench, name) for name in ("libibverbs", "uverbs")},
            reachable(bench.library, True),
        )  # fmt: skip
        self.repetitions = repetitions

    def tell(self, what: str) -> None:
        """A line of the table."""
        with PORT.open("w") as port:
            port.write(json.dumps({"type": "measured", "what": what}) + "\n")

    def microseconds(self, case: Case) -> float:
        """Time a point of a sweep, set-up, judging and all."""
        assert case.sweep is not None
        best = float("inf")
        for _ in range(self.repetitions):
            start = time.perf_counter()
            sweep(case, self.bench, self.capabilities)
            best = min(best, (time.perf_counter() - start) / case.sweep.size * 1e6)
        return best

    def floor(self, access: str, points: int) -> float:
        """The same of the C program."""
        runs = [subprocess.run(["./floor", access, str(points)], capture_output=True, text=True, check=True).stdout
                for _ in range(self.repetitions)]  # fmt: skip
        return min(map(float, runs))


def main() -> None:
    """All measurements."""
    measuring = Measuring(int(sys.argv[1]))
    if not available():
        raise SystemExit("no compiler")
    for what, access, case in (
        ("all 2,048 combinations, 16 lengths", "all", flags(32768, False)),
        ("combinations that all register", "1", flags(2048, True)),
    ):
        points = case.sweep.size if case.sweep else 0
        one, own = measuring.floor(access, points), measuring.microseconds(case)
        again = min(one, measuring.floor(access, points))
        measuring.tell(f"| {what} | {again:.1f} us | {own:.1f} us | {own / again:.2f} |")
    for bits in (11, 13, 15, 17):
        case = flags(1 << bits, False)
        own = measuring.microseconds(case)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        measuring.tell(f"| 2^{bits} | {own:.1f} us | {own * (1 << bits) / 1e6:.2f} s | {memory:.1f} MiB |")
    by_code = 1e6 / measuring.microseconds(flags(32768, False))
    effect = table("REG-06", EFFECT, 64, "{op: $op, rkey: mr.rkey}",
                   "given: {mrs: {mr: {access: [$access, $more]}}}\n    call: traffic")  # fmt: skip
    by_effect = 1e6 / measuring.microseconds(effect)
    measuring.tell(f"| points a second | {by_code:,.0f} by return code | {by_effect:,.0f} by effect |")


if __name__ == "__main__":
    main()
