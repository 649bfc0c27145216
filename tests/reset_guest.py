"""Resets the guest whose QEMU listens on a socket; tests use this as the power command of a host that is a guest."""

from __future__ import annotations

import json
import socket
import sys


def main() -> None:
    with socket.socket(socket.AF_UNIX) as control:
        control.connect(sys.argv[1])
        lines = control.makefile("rw", encoding="utf-8")
        lines.readline()
        for command in ("qmp_capabilities", "system_reset"):
            lines.write(json.dumps({"execute": command}) + "\n")
            lines.flush()
            while "return" not in (answer := json.loads(lines.readline())):
                if "error" in answer:
                    raise SystemExit(str(answer["error"]))


if __name__ == "__main__":
    main()
