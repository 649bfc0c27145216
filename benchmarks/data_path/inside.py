"""Runs in the guest: makes data-path probes as in a sweep, and the same with floor.c; prints probes per second."""

from __future__ import annotations

import subprocess
import sys
import time
from array import array
from pathlib import Path

sys.path.insert(0, str(Path.cwd()))

from conformance.device.bench import DeviceBench
from conformance.device.device import Device
from conformance.device.native_exchange import COMPILE_THRESHOLD
from conformance.execution.context import CaseContext
from conformance.execution.procedure import set_up
from conformance.model.case import Case
from conformance.model.sweep import Sweep
from conformance.sweeps.point_observations import PointObservations
from conformance.sweeps.point_template import PointTemplate
from conformance.sweeps.run import call_all
from conformance.tables.suite import load_suite

SWEEP = "reg_mr/data_path/operation-by-access-by-place"
POINTS = {
    kind: f"op=RDMA_WRITE,qp_type=RC,access={access},place=whole"
    for kind, access in (("allowed", "write"), ("refused", "local"))
}
MOVED = {"allowed": "all", "refused": "nothing"}


def probes_a_second(case: Case, swept: Sweep, bench: DeviceBench, kind: str, probes: int) -> float:
    """Probes per second: makes one point repeatedly on one set-up, with all that a sweep does for each point."""
    point = swept.space.parse(POINTS[kind])
    template, record = PointTemplate(case, swept), PointObservations(swept.space.size)
    context = CaseContext(template.case(point), bench)
    with context.cleanup:
        set_up(context)
        call_all(context, template, array("I", [point]), record)
        began = time.perf_counter()
        call_all(context, template, array("I", [point] * probes), record)
        spent = time.perf_counter() - began
    assert [seen["moved"] for seen in record.observations] == [MOVED[kind]], record.observations
    return probes / spent


def main() -> None:
    """`inside.py DEVICE PROBES ROUNDS`: measures both sides in turn."""
    device_name, probes, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    subprocess.run(["gcc", "-O2", "-Wall", "-o", "/tmp/floor", "floor.c", "-libverbs"], check=True)
    suite = load_suite()
    swept = next(case for case in suite.cases if case.id == SWEEP)
    assert swept.sweep is not None
    with Device(device_name) as device:
        bench = DeviceBench(device)
        floor = ["/tmp/floor", device_name, str(device.source_gid_index), str(probes)]
        probes_a_second(
            swept, swept.sweep, bench, "allowed", COMPILE_THRESHOLD + 1
        )  # until the C code is compiled and used, as in a long run
        for number in range(rounds):
            done = subprocess.run(floor, check=True, capture_output=True, text=True)
            print(done.stdout.replace("floor", f"{number} floor"), end="")
            for kind in POINTS:
                rate = probes_a_second(swept, swept.sweep, bench, kind, probes)
                print(f"{number} suite {kind} {rate:.1f}", flush=True)


if __name__ == "__main__":
    main()
