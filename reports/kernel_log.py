"""Shortens the kernel's log of a result to the lines that say what went wrong, where, and in which task."""

import re
from collections.abc import Sequence

from conformance.judging.kernel_alarms import first_alarm

_FRAMES = 12
_DIED = "Fatal Python error: "
_STAMP = re.compile(r"^\[ *[0-9.]+\] ?")
_STAMPED = re.compile(r" \(\[.*\Z")  # the part of a symptom's line that quotes the kernel's log
# The lines of an oops that a maintainer needs besides the frames: what happened, where, and in which task.
_KEPT = re.compile(
    r"(BUG|WARNING|Oops|general protection|KASAN|CPU|Workqueue|RIP|Call Trace|pc |lr )\b",
)
_FRAME = re.compile(r"\s*[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+")
_END = ("---[ end trace", "Modules linked in:")
_OF_LIBRARIES = re.compile(
    r'Binary file "[^"]*/lib(?:ibverbs|[a-z0-9_]+-rdmav)[^"]*\.so|segfault at ',
)


def trimmed(log: Sequence[str]) -> list[str]:
    """Returns a report of the kernel without time stamps, registers, code, modules and uncertain frames."""
    lines: list[str] = []
    frames = 0
    for line in log[_start_of(log) :]:
        text = _STAMP.sub("", line[max(0, line.rfind("[ ")) :] if not lines else line).rstrip()
        if any(end in text for end in _END) and frames:
            break
        if _FRAME.match(text):
            frames += 1
            if frames <= _FRAMES:
                lines.append(text)
        elif _KEPT.match(text):
            lines.append(text)
    return lines


def _start_of(log: Sequence[str]) -> int:
    """Returns the number of the first line in which the kernel reports an error; that of all lines without one."""
    alarm = first_alarm(log)
    return next((number for number, line in enumerate(log) if alarm and alarm in line), len(log))


def divided(log: Sequence[str]) -> list[str]:
    """Returns the log from the first error of the kernel on, or else that of a died process, and the lines before it."""
    start = _start_of(log)
    if start == len(log):
        died = (number for number, line in enumerate(log) if line.startswith(_DIED))
        start = next(died, 0)
    return ["\n".join(log[start:]), "\n".join(log[:start])]


def without_log(line: str) -> str:
    """Returns the line of a symptom without the kernel's messages in it."""
    return _STAMPED.sub("", line)


def of_libraries(log: Sequence[str]) -> list[str]:
    """Returns the frames of a died process that are in an RDMA library, without those of the suite's own Python."""
    return [line.strip() for line in log if _OF_LIBRARIES.search(line)]


def decisive(log: Sequence[str]) -> Sequence[str]:
    """Returns the lines by which a reader finds the place of a death; the whole log if it tells none."""
    return trimmed(log) or of_libraries(log) or log
