"""Makes docs/terminal.md: what a terminal shows of a run, captured from runs in the guest.

    python3 docs/captures.py [WIDTH …]

A run is started in tmux for each width; its bar is captured, then Ctrl-C is pressed, and the run is resumed to its end.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/terminal.md"
WIDTHS = (50, 80, 160)
HEIGHT = 24
# Cases with violations, with hazardous ones among them, and long enough for a bar with the remaining time.
RUN = ("run", "--guest", "--yes", "--guests", "1", "--rule", "BIND-15", "--rule", "REG-12", "--no-confirm")
PATIENCE_S = 900.0  # for what must come; it only bounds a hang
_BAR = re.compile(r"^ +[#.]* ?(\d+) of (\d+), .*left", re.MULTILINE)
HEAD = """\
# What a terminal shows

Captured by `docs/captures.py` from runs in the guest (`{command}`)
in tmux, at {widths} columns: the run in progress, what Ctrl-C leaves, and the end of the resumed run.

- A line above the bar is a result other than PASS or UNSUPPORTED, at the moment in which it is recorded, or says why
  another guest is started.
- The bar has the number of cases done, and the time left. That counts the durations of cases in earlier runs, and the
  guest of its own that each hazardous case gets. A narrow terminal loses the case first, then the speed, then the bar.
- Ctrl-C ends the guests, removes the bar and says what is kept. The report of it is there already.
- At the end each defect is one line of at most 100 columns, which a narrower terminal breaks.

"""


class Terminal:
    """A terminal of tmux in which a command runs; as a context manager it is closed at the end."""

    def __init__(self, words: Sequence[str], folder: Path, width: int) -> None:
        self._tmux = ("tmux", "-L", f"captures-{folder.name}", "-f", "/dev/null")
        self._do("new-session", "-d", "-x", str(width), "-y", str(HEIGHT), "-c", str(folder), "cat")
        self._do("set-option", "-g", "remain-on-exit", "on")
        self._do("set-option", "-g", "remain-on-exit-format", "")
        self._do("respawn-pane", "-k", "-c", str(folder), shlex.join(words))

    def _do(self, *words: str) -> str:
        done = subprocess.run([*self._tmux, *words], stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout

    def text(self) -> str:
        """The output: the lines as the terminal shows them."""
        return self._do("capture-pane", "-p", "-S", "-")

    def press(self, key: str) -> None:
        """Presses a key, by tmux' name."""
        self._do("send-keys", key)

    def await_text(self, condition: Callable[[str], bool]) -> str:
        """The text as soon as it meets the condition. Raises TimeoutError."""
        until = time.monotonic() + PATIENCE_S
        while not condition(text := self.text()):
            if time.monotonic() > until:
                raise TimeoutError(text)
            time.sleep(0.05)
        return text

    def ended(self, _: str = "") -> bool:
        """Whether the command has ended."""
        return self._do("display-message", "-p", "#{pane_dead}").strip() == "1"

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._do("kill-server")


def half_done(text: str) -> bool:
    """Whether the bar says that half of the cases are done."""
    found = _BAR.findall(text)
    return bool(found) and 2 * int(found[-1][0]) >= int(found[-1][1])


def captures(width: int) -> list[tuple[str, str]]:
    """The titles and the texts of the captures of a width."""
    program = str(ROOT / "rdma-cts")
    with tempfile.TemporaryDirectory(prefix="rdma-cts-") as name:
        folder = Path(name)
        with Terminal([program, *RUN, "--out", "out/nightly"], folder, width) as terminal:
            running = terminal.await_text(half_done)
            terminal.press("C-c")
            interrupted = terminal.await_text(terminal.ended)
        with Terminal([program, "run", "--resume", "out/nightly"], folder, width) as terminal:
            ended = terminal.await_text(terminal.ended)
    return [("in progress", running), ("after Ctrl-C", interrupted), ("the end of the resumed run", ended)]


def shown(text: str) -> str:
    """The last screenful of a text, as a block of Markdown."""
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return "".join(f"    {line}".rstrip() + "\n" for line in lines[-HEIGHT:])


def main() -> int:
    """Writes the page."""
    widths = [int(word) for word in sys.argv[1:]] or list(WIDTHS)
    command = shlex.join(["./rdma-cts", *RUN])
    page = HEAD.format(command=command, widths=", ".join(map(str, widths)))
    for width in widths:
        page += f"## {width} columns\n\n"
        for title, text in captures(width):
            page += f"{title.capitalize()}:\n\n{shown(text)}\n"
    PAGE.write_text(page.rstrip("\n") + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
