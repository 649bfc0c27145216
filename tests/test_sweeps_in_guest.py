"""Tests of sweeps on Soft-RoCE: the results of one device are also those of two, and those without loops in C."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from conformance.tables.suite import ROOT
from fixtures.targets.guests import SUITE_PARTS
from own_guest import boot_own
from patience import PATIENCE_S

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
PORT = "/dev/virtio-ports/rdma-cts.results"
CHOSEN = (
    "access_space and huge-pages or change_space and rights and libibverbs or dealloc_mw or data_path and unreliable"
    " or reg_mr and rights_space and (remote or local) and not every and not huge"
)
# Records whether the loops in C were used, because the comparison proves nothing if they were not.
SMALL = """
from conformance.sweeps import run
from conformance.sweeps import registration_loop
registration_loop.MIN_POINTS = 1
original_loop_for = run.loop_for
def loop_for(case, swept, entry):
    loop = original_loop_for(case, swept, entry)
    with open("loops", "a") as file:
        file.write(f"{case.id} {type(loop).__name__}\\n")
    return loop
run.loop_for = loop_for

from conformance.device import native_exchange
native_exchange.COMPILE_THRESHOLD = 0
original_exchanges = native_exchange.exchanges
def exchanges(requests):
    done = original_exchanges(requests)
    if len(done) > 1:
        with open("loops", "a") as file:
            file.write("exchanges together\\n")
    return done
native_exchange.exchanges = exchanges
"""
TELL = f"""
import json, pathlib, sys
with open("{PORT}", "w") as port:
    for path in (pathlib.Path(sys.argv[1]) / "results.jsonl", *sorted(pathlib.Path(sys.argv[1]).glob("points/*"))):
        for line in path.read_text().splitlines():
            port.write(json.dumps({{"run": sys.argv[1], "file": path.name, "line": json.loads(line)}}) + "\\n")
    loops = sorted(set(pathlib.Path("loops").read_text().splitlines()))
    port.write(json.dumps({{"run": sys.argv[1], "file": "loops", "line": loops}}) + "\\n")
"""
# `without`: PATH has no directory, so that no compiler is found. Libraries that were compiled earlier are removed.
RUNS = {
    "one": "--rdma-device rxe0",
    "two": "-n 2 --rdma-device rxe0,rxe1",
    "without": "--rdma-device rxe0",
}
KEPT = ("verdict", "rules", "expected", "space", "points", "rule_verdicts", "deviations")


def without_commands(result: dict[str, Any]) -> dict[str, Any]:
    """Returns the result without the commands that reproduce its deviations, because these commands name the device
    only in a run on one device."""
    if "deviations" not in result:
        return result
    deviations = [dict(deviation) for deviation in result["deviations"]]
    for deviation in deviations:
        deviation.pop("repro", None)
    return {**result, "deviations": deviations}


def part(line: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: line[key] for key in keys if key in line}


class RunFiles:
    """The files of one of the runs, without values that differ in each run."""

    def __init__(self, lines: list[dict[str, Any]]) -> None:
        results = [line["line"] for line in lines if line["file"] == "results.jsonl"]
        self.header, self.footer = results[0], results[-1]
        self.results = {
            line["case"]: without_commands(part(line, KEPT))
            for line in results
            if line["type"] == "result"
        }
        self.points = {
            line["line"]["case"]: part(line["line"], ("axes", "outcomes", "index"))
            for line in lines
            if line["file"].endswith(".json")
        }
        self.loops = dict(
            line.split() for item in lines if item["file"] == "loops" for line in item["line"]
        )


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunFiles]:
    folder = tmp_path_factory.mktemp("guest")
    for name, text in (("small.py", SMALL), ("tell.py", TELL)):
        (folder / name).write_text(text)
    scripts = ((folder / name, name) for name in ("small.py", "tell.py"))
    tree = (*((ROOT / part, part) for part in SUITE_PARTS), *scripts)
    python = "/usr/bin/python3 -m pytest -p no:cacheprovider -p small -q cases -k"
    commands = []
    for name, options in RUNS.items():
        if name == "without":
            path = "/none"
        else:
            path = "$PATH"
        run = f"PATH={path} {python} '{CHOSEN}' {options} --rdma-out {name}"
        if name == "without":
            compiled = "derived/*.so"
        else:
            compiled = ""
        commands.append(f"rm -f loops {compiled}; {run}; python3 tell.py {name}")
    command = "export PYTHONPATH=.; " + "; ".join(commands)
    lines: dict[str, list[dict[str, Any]]] = {name: [] for name in RUNS}
    with boot_own(tree, command, folder / "console", {"RDMA_CTS_DEVICES": "2"}) as guest:
        while data := guest.next_line(PATIENCE_S):
            output = json.loads(data)
            if "run" in output:
                lines[output["run"]].append(output)
    assert all(lines.values()), (folder / "console").read_text(errors="replace")[-3000:]
    return {name: RunFiles(output) for name, output in lines.items()}


def test_two_devices_have_the_cases_results_and_points_of_one_device(runs):
    one_device, two = runs["one"], runs["two"]
    assert one_device.header["device"]["name"] == "rxe0"
    assert two.header["devices"] == ["rxe0", "rxe1"]
    assert sorted(two.header["planned"]) == sorted(one_device.header["planned"])
    assert two.results == one_device.results
    assert two.points == one_device.points
    assert {key: two.footer[key] for key in ("complete", "verdicts", "rules", "points")} == {
        key: one_device.footer[key] for key in ("complete", "verdicts", "rules", "points")
    }


def test_loops_in_c_have_the_results_of_single_calls(runs):
    loops, without = runs["one"], runs["without"]
    assert {"RegistrationLoop", "ReregLoop"} <= set(loops.loops.values())
    assert loops.loops["exchanges"] == "together"
    assert set(without.loops.values()) == {"NoneType"}
    assert without.results == loops.results
    assert without.points == loops.points
    assert (
        sum(
            verdict == "FAIL"
            for line in loops.results.values()
            for verdict in line.get("points", ())
        )
        > 0
    )
