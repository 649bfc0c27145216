"""Names the cases that take long while they run, so that a log shows which case a run waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

SLOW_S = 30.0  # a line comes after this time, and again after each doubling of it
_PERIOD_S = 5.0  # the time between two looks at the running cases


@dataclass
class _Running:
    begun: float
    told_s: float = 0.0
    point: str = ""


class SlowCases:
    """The running cases of all workers. Several threads may use an instance."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._running: dict[str, _Running] = {}
        self._lock = threading.Lock()

    def begin(self, case: str) -> None:
        with self._lock:
            self._running[case] = _Running(time.monotonic())

    def reach(self, case: str, point: str) -> None:
        """Notes the point of a sweep that a case has reached."""
        with self._lock:
            if running := self._running.get(case):
                running.point = point

    def end(self, case: str) -> None:
        with self._lock:
            self._running.pop(case, None)

    def tell(self) -> None:
        """Says for which cases a line is due."""
        now = time.monotonic()
        lines = []
        with self._lock:
            for case, running in self._running.items():
                took_s = now - running.begun
                if took_s >= (2 * running.told_s or SLOW_S):
                    running.told_s = took_s
                    at = f", now at {running.point}" if running.point else ""
                    lines.append(f"  {case} has been running for {took_s:.0f} s{at}")
        for line in lines:
            self._say(line)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Within the block, a thread looks at the running cases."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(_PERIOD_S):
                self.tell()

        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            ended.set()
