"""Runs in a guest that stands for a host with a device and a wire peer: cases with a peer whose port is taken, that goes
away in the middle, and behind a firewall that drops UDP. Prints one line of JSON for test_wire_in_guest.py."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from conformance.device.wire_sockets import namespace
from conformance.wire.icrc import UDP_PORT
from fixtures.guest.wire_namespace import ADDRESS, INTERFACE, NAMESPACE, OTHER_END, make_namespace
from patience import await_true

BEFORE_THE_LOSS = 3  # results
INSIDE = ("ip", "netns", "exec", NAMESPACE)
DEVICE = ("10.77.0.1", "02:00:00:00:00:00")  # of init.sh


def started(name: str, cases: list[str]) -> subprocess.Popen[str]:
    only = [word for case in cases for word in ("--only", case)]
    command = ["./rdma-cts", "run", "--device", "rxe0", "--no-confirm", "--out", name, *only]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True)


def results(name: str) -> list[dict[str, Any]]:
    file = Path(name, "results.jsonl")
    if not file.exists():
        return []
    complete = [text for text in file.read_text().splitlines(keepends=True) if text.endswith("\n")]
    return [line for line in map(json.loads, complete) if line["type"] == "result"]


def ended(name: str, run: subprocess.Popen[str]) -> dict[str, Any]:
    said, _ = run.communicate()
    seen = {line["case"]: [line["verdict"], line["reason"]] for line in results(name)}
    return {"status": run.returncode, "said": said, "seen": seen}


def outcome(name: str, cases: list[str]) -> dict[str, Any]:
    return ended(name, started(name, cases))


def drops(*of: str) -> None:
    """Drops everything that a network interface sends; `of` are the words before those of the interface."""
    *inside, interface = of
    command = [*inside, "tc", "qdisc", "add", "dev", interface, "root", "netem", "loss", "100%"]
    subprocess.run(command, check=True)


def main() -> None:
    few, many = sys.argv[1].split(","), sys.argv[2].split(",")
    make_namespace()
    subprocess.run(["modprobe", "sch_netem"], check=True)
    # The peer can send although no ARP arrives.
    address, ethernet = DEVICE
    neighbour = [address, "lladdr", ethernet, "dev", INTERFACE]
    subprocess.run([*INSIDE, "ip", "neighbour", "replace", *neighbour], check=True)
    found = {}
    with namespace(NAMESPACE), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((ADDRESS, UDP_PORT))
        found["taken"] = outcome("taken", few)
    run = started("lost", many)
    await_true(lambda: run.poll() is not None or len(results("lost")) >= BEFORE_THE_LOSS)
    drops(*INSIDE, INTERFACE)
    found["lost"] = ended("lost", run)
    found["dropped"] = outcome("dropped", few)
    # From now on only the device's answers are dropped.
    drops(OTHER_END)
    subprocess.run([*INSIDE, "tc", "qdisc", "delete", "dev", INTERFACE, "root"], check=True)
    found["unanswered"] = outcome("unanswered", few)
    print("RESULT", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
