"""What a person sees on the terminal: progress while a run goes, and the summary at its end.

The summary is made from recorded lines only, so that an old results file can be summed up again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from conformance import judging
from conformance.results import Line, Recorded, exit_status, verdict_on

_COLOURS = {
    judging.PASS: "32", judging.FAIL: "31", judging.CRASH: "31", judging.HANG: "31",
    judging.BROKEN: "35", judging.MISSED: "35", judging.UNSUPPORTED: "33", judging.UNREACHABLE: "33",
}  # fmt: skip
_EVERY = 50


class Progress:
    """Tells how a run goes: one line that moves on a terminal, plain lines elsewhere."""

    def __init__(self, stream: TextIO | None = None, quiet: bool = False) -> None:
        self.stream = stream or sys.stdout
        self.quiet = quiet
        self.moving = self.stream.isatty() and not quiet

    def say(self, text: str) -> None:
        """One line about what is going on."""
        if not self.quiet:
            self._clear()
            print(text, file=self.stream, flush=True)

    def began(self, header: Line, total: int) -> None:
        """The header of the run has come."""
        self.say(f"{total} cases on {device_line(header)}")

    def took(self, line: Line, done: int, total: int) -> None:
        """A result has come; what is no PASS and no UNSUPPORTED is shown at once."""
        if line["verdict"] not in (judging.PASS, judging.UNSUPPORTED):
            self.say(f"  {coloured(line['verdict'], self.stream)} {line['case']}: {plain(line['reason'])}")
        elif not self.moving and done % _EVERY == 0:
            self.say(f"  {done} of {total}")
        if self.moving:
            self._clear()
            print(f"  {done} of {total}  {line['case']}"[: _width() - 1], end="", file=self.stream, flush=True)

    def restarted(self, reason: str) -> None:
        """The worker is gone and another takes the rest."""
        self.say(f"  starting again: {reason}")

    def _clear(self) -> None:
        if self.moving:
            print("\r\x1b[K", end="", file=self.stream)


def summary(recorded: Recorded, out: Path, stream: TextIO | None = None) -> str:
    """The last lines of a run: each violated rule in one line, the figures, where to look."""
    stream = stream or sys.stdout
    lines = ["", *_violations(recorded.results, stream)]
    footer = recorded.footer
    if footer is None:
        return "\n".join([*lines, f"the run was cut short; what was recorded: {out}"])
    figures = ", ".join(
        f"{footer['verdicts'][verdict]} {coloured(verdict, stream)}"
        for verdict in reversed(judging.VERDICTS)
        if verdict in footer["verdicts"]
    )
    cases = sum(footer["verdicts"].values())
    lines += ["", f"{cases} cases in {footer['duration_s']:.1f} s: {figures}", _rules_line(footer)]
    remarks = sum(bool(line.get("notes")) for line in recorded.results)
    if remarks:
        lines.append(f"{remarks} results with remarks: what the documents leave open or contradict, as observed")
    lines += [f"{device_line(recorded.header)}", f"results: {out}", _conclusion(footer)]
    return "\n".join(lines)


def _violations(results: Sequence[Line], stream: TextIO) -> list[str]:
    """One line for each rule that is violated or could not be judged, with its first case."""
    first: dict[str, Line] = {}
    count: dict[str, int] = {}
    for line in results:
        if line["effective"] not in (*judging.VIOLATIONS, *judging.INCOMPLETE):
            continue
        for rule in line["rules"]:
            if verdict_on(rule, line) not in (*judging.VIOLATIONS, *judging.INCOMPLETE):
                continue
            first.setdefault(rule, line)
            count[rule] = count.get(rule, 0) + 1
    lines = []
    for rule, line in sorted(first.items()):
        more = f" (and {count[rule] - 1} more)" if count[rule] > 1 else ""
        source = line["source"]
        lines.append(
            f"{coloured(line['effective'], stream)} {rule} {plain(line['reason'])}{more}"
            f" · {source['file']}:{source['line']} · {line['repro']}"
        )
    return lines


def _rules_line(footer: Line) -> str:
    totals = footer["rule_totals"]
    without = totals.get("without_case", 0)
    parts = [f"{totals[verdict]} {verdict}" for verdict in reversed(judging.VERDICTS) if totals.get(verdict)]
    return f"{sum(totals.values())} documented rules: {', '.join(parts)}, {without} without a case in this run"


def _conclusion(footer: Line) -> str:
    status = exit_status(footer)
    if status == 1:
        return "the device departs from its documents: see the lines above (exit status 1)"
    if status == 3:
        return "the run is incomplete or broken and says nothing final (exit status 3)"
    return "no rule was violated (exit status 0)"


def device_line(header: Line) -> str:
    """The stack under test in one line."""
    device, env = header["device"], header["env"]
    return (
        f"{device['name']} ({device['driver']}), kernel {env['kernel']}, rdma-core {env['rdma_core']}"
        f", stack {header['stack']}"
    )


def plain(text: str) -> str:
    """The text as one line that commands no terminal, whatever a kernel or a library wrote."""
    return "".join(character if character.isprintable() else "?" for character in text)


def coloured(word: str, stream: TextIO) -> str:
    """The word in its verdict's colour, on terminals that want colours."""
    if not stream.isatty() or os.environ.get("NO_COLOR"):
        return word
    return f"\x1b[{_COLOURS.get(word, '0')}m{word}\x1b[0m"


def _width() -> int:
    try:
        return os.get_terminal_size().columns
    except OSError:
        return 80
