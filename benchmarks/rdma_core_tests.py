"""Runs some modules of rdma-core's own tests on a device, inside the guest, and measures the tests that ran.

    python3 rdma_core_tests.py DEVICE MODULE [MODULE...]

The tests are in `tests` next to this file. Prints one JSON line: how many test methods ran (without skipped ones), how
many of these did not pass, and how many seconds they took, including their set-up and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Timed(unittest.TestResult):
    """Counts the methods that ran, and measures their time in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.ran, self.seconds = 0, 0.0
        self._skipped = False

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._skipped, self._started = False, time.perf_counter()

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._skipped = True

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if not self._skipped:
            self.ran += 1
            self.seconds += time.perf_counter() - self._started


def main() -> None:
    device, *modules = sys.argv[1:]
    # As in their own run_tests.py: their options must be parsed before any test is imported.
    sys.path[:0] = [str(HERE), str(HERE / "tests")]
    sys.argv[1:] = ["--dev", device]
    from args_parser import parser  # type: ignore[import-not-found]

    parser.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"tests.{module}" for module in modules])
    result = Timed()
    with contextlib.redirect_stdout(io.StringIO()):
        suite.run(result)
    wrong = len(result.failures) + len(result.errors)
    print(json.dumps({"ran": result.ran, "wrong": wrong, "seconds": result.seconds}))


if __name__ == "__main__":
    main()
