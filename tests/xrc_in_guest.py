"""Runs in a guest whose libibverbs offers XRC over RC (xrc_over_rc.c): runs the cases that are named in its arguments on
the guest's device. Prints one line of JSON for test_xrc_in_guest.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def main() -> None:
    only = [word for case in sys.argv[1:] for word in ("--only", case)]
    command = ["./rdma-cts", "run", "--device", "rxe0", "--no-confirm", "--out", "xrc", *only]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in Path("xrc/results.jsonl").read_text().splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    seen = {
        "status": done.returncode,
        "said": done.stdout + done.stderr,
        "verdicts": {line["case"]: line["verdict"] for line in results},
        "reasons": {line["case"]: line["reason"] for line in results},
        "deviations": {line["case"]: line.get("deviations", []) for line in results},
    }
    print("RESULT", json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
