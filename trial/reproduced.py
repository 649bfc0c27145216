"""Compiles and runs C programs in the guest, one after the other, for the trial of reproducers.

    python3 -m trial.reproduced DEVICE PORT FOLDER NAME…

For each NAME, the program FOLDER/NAME is run on the device. If the program does not exist, FOLDER/NAME.c is compiled
first. JSON lines on PORT report messages of the compiler, the start of the program, and its end with the exit status
(negative for a signal), the output, and the first line in which the kernel reported an error of its own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from conformance.judging.kernel_alarms import first_alarm
from conformance.kernel.log import KernelWatch
from conformance.results.files import write_all
from fixtures.guest.wire_namespace import ADDRESS, NAMESPACE, make_namespace

# A program waits at most 10 s for each completion; an emulated guest on a busy machine is slow.
_DEADLINE_S = 120.0
_SHOWN = 4000  # the most characters of the output that are reported
# Lets a kernel warn again of what it has warned once.
_ONCE = Path("/sys/kernel/debug/clear_warn_once")


def compile_program(folder: Path, name: str) -> tuple[int, str]:
    """Compiles a program. Returns the exit status and the messages of the compiler."""
    command = [
        "cc",
        "-O0",
        "-pipe",
        "-Wall",
        "-o",
        str(folder / name),
        str(folder / f"{name}.c"),
        "-libverbs",
    ]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def _command(program: Path, device: str) -> list[str]:
    """Returns the command of a program. The script of a wire peer starts its program in the namespace of the device."""
    script = program.with_suffix(".py")
    if not script.exists():
        return [str(program), device]
    make_namespace()
    started = ["nsenter", "--net=/proc/1/ns/net", str(program), device, ADDRESS]
    inside = ["ip", "netns", "exec", NAMESPACE, sys.executable]
    return [*inside, str(script), ADDRESS, *started]


def _run(program: Path, device: str) -> tuple[int, str]:
    try:
        done = subprocess.run(
            _command(program, device),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_DEADLINE_S,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return -9, f"the program did not exit within {_DEADLINE_S:g} s\n{error.output or ''}"
    return done.returncode, done.stdout


def main(device: str, port: str, folder: str, names: Sequence[str]) -> int:
    out = os.open(port, os.O_WRONLY)

    def send(message: dict[str, object]) -> None:
        write_all(out, json.dumps(message).encode() + b"\n")

    for name in names:
        started = time.monotonic()
        status, output = (
            (0, "") if (Path(folder) / name).exists() else compile_program(Path(folder), name)
        )
        compiled = time.monotonic()
        if status or output:
            send({"type": "compiled", "name": name, "status": status, "output": output[:_SHOWN]})
        if status:
            continue
        send({"type": "started", "name": name})
        if _ONCE.exists():
            _ONCE.write_text("1", encoding="ascii")
        with closing(KernelWatch()) as watch:
            status, output = _run(Path(folder) / name, device)
            alarm = first_alarm(watch.since_last().get("log", ()))
        seconds = [round(compiled - started, 3), round(time.monotonic() - compiled, 3)]
        send(
            {
                "type": "ended",
                "name": name,
                "status": status,
                "output": output[:_SHOWN],
                "alarm": alarm,
                "seconds": seconds,
            },
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
