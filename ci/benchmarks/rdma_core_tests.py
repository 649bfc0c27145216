"""Runs some of rdma-core's own tests on a device in the guest, and measures the tests that ran.

    python3 rdma_core_tests.py DEVICE MODULE[.CLASS.METHOD] [MODULE...]

The tests are in `tests` next to this file. Prints JSON lines: the start and the outcome of each test, and at the
end the number of test methods that ran (without skipped methods), how many failed, and their duration with set-up.
"""

import contextlib
import io
import json
import sys
import time
import unittest
from pathlib import Path
from typing import TextIO

HERE = Path(__file__).resolve().parent


class Timed(unittest.TestResult):
    """Reports each test method to `lines`, counts the methods that ran, and measures their time in seconds."""

    def __init__(self, lines: TextIO) -> None:
        super().__init__()
        self.ran, self.seconds = 0, 0.0
        self._lines, self._skipped, self._wrong = lines, False, 0

    @property
    def wrong(self) -> int:
        return len(self.failures) + len(self.errors)

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._report(test)
        self._skipped, self._wrong, self._started = False, self.wrong, time.perf_counter()

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._skipped = True

    def stopTest(self, test: unittest.TestCase) -> None:
        super().stopTest(test)
        if not self._skipped:
            self.ran += 1
            self.seconds += time.perf_counter() - self._started
        self._report(
            test,
            "skipped" if self._skipped else "passed" if self.wrong == self._wrong else "failed",
        )

    def _report(self, test: unittest.TestCase, outcome: str = "") -> None:
        name = test.id().removeprefix("tests.")
        print(json.dumps({"test": name, "outcome": outcome}), file=self._lines, flush=True)


def main() -> None:
    device, *modules = sys.argv[1:] or [""]
    if not device or not modules or not (HERE / "tests").is_dir():
        sys.exit(__doc__)
    # As in rdma-core's run_tests.py, the options of the tests are parsed before any test is imported.
    sys.path[:0] = [str(HERE), str(HERE / "tests")]
    sys.argv[1:] = ["--dev", device]
    from args_parser import parser  # type: ignore[import-not-found]

    parser.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromNames([f"tests.{module}" for module in modules])
    result = Timed(sys.stdout)
    with contextlib.redirect_stdout(io.StringIO()):
        suite.run(result)
    print(json.dumps({"ran": result.ran, "wrong": result.wrong, "seconds": result.seconds}))


if __name__ == "__main__":
    main()
