"""Runs in a guest that stands for a node in production: another process has a queue pair on its device while the tier
health runs. Prints one line of JSON for test_health_in_guest.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

USER = """
import sys
from pyverbs.device import Context
from pyverbs.pd import PD
from pyverbs.cq import CQ
from pyverbs.mr import MR
from pyverbs.qp import QP, QPCap, QPInitAttr
context = Context(name="rxe0")
pd, cq = PD(context), CQ(context, 4)
mr = MR(pd, 4096, 7)
qp = QP(pd, QPInitAttr(qp_type=2, scq=cq, rcq=cq, cap=QPCap(max_recv_wr=1)))
mr.write("in use", 6)
print("ready", flush=True)
sys.stdin.read()
print(mr.read(6, 0).decode(), flush=True)
"""


def kernel_log() -> list[str]:
    done = subprocess.run(["dmesg", "--notime"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", USER], stdin=pipe, stdout=pipe, text=True) as user:
        assert user.stdout is not None
        user.stdout.readline()
        before, began = kernel_log(), time.monotonic()
        command = ["./rdma-cts", "run", "--device", "rxe0", "--tier", "health", "--no-confirm"]
        done = subprocess.run(
            [*command, "--out", "health"],
            capture_output=True,
            text=True,
            check=False,
        )
        took_s = time.monotonic() - began
        after = kernel_log()
        said_by_user, _ = user.communicate("")
    lines = [json.loads(line) for line in Path("health/results.jsonl").read_text().splitlines()]
    found: dict[str, Any] = {
        "status": done.returncode,
        "said": done.stdout + done.stderr,
        "verdicts": {line["case"]: line["verdict"] for line in lines if line["type"] == "result"},
        "user": [said_by_user.strip(), user.returncode],
        "kernel": after[len(before) :],
        "took_s": round(took_s, 1),
    }
    print("RESULT", json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
