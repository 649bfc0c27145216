"""rdma-core's own tests on mutants of the driver, in the guests of the trial: which test sees a mutant first?

A test counts that passes twice with the mended driver and fails twice with the mutant. Not for the cases (trying.py).
"""

import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from fixtures.guest.exchange import DEVICE
from trial.kernel.guest import Lost, MutantGuest

# Their modules on what a region, a window or a request can do, on any provider.
MODULES = ("atomic", "mr", "odp", "parent_domain", "pd", "qpex", "relaxed_ordering", "shared_pd", "srq")
_PASSED, _SKIPPED = "passed", "skipped"


class Peers:
    """The tests of a source tree of rdma-core. `ready` gives a guest, `lose` ends it, `plain` has no mutant."""

    def __init__(self, tests: Path, ready: Callable[[], MutantGuest], lose: Callable[[], None], plain: Path) -> None:
        if not (tests / "test_mr.py").is_file():
            raise UserError(f"--rdma-core-tests {tests}: there is no test_mr.py", status=2)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(ROOT / "benchmarks" / "rdma_core_tests.py", "__main__.py")
            archive.writestr("tests/__init__.py", "")  # theirs looks for a folder
            for file in sorted(tests.glob("[a-z]*.py")):
                archive.write(file, f"tests/{file.name}")
        self._program, self._ready, self._lose, self._plain = packed.getvalue(), ready, lose, plain
        self._passing: list[str] | None = None

    def first(self, module: Path) -> str:
        """The first test that sees the mutant of a module, or empty."""
        if self._passing is None:
            self._passing = self._passed(self._passed([f"test_{name}" for name in MODULES]))
            if not self._passing:
                raise UserError("no test of rdma-core passes with the mended driver", status=3)
        names = self._passing
        while names:
            test = self._failing(module, names)
            if not test or self._failing(module, [test]):
                return test
            names = names[names.index(test) + 1 :]
        return ""

    def _passed(self, names: Sequence[str]) -> list[str]:
        guest = self._ready()
        guest.load(self._plain)
        return [test for test, outcome in guest.outcomes(self._program, [DEVICE, *names]) if outcome == _PASSED]

    def _failing(self, module: Path, names: Sequence[str]) -> str:
        """The first of these tests that fails with a module, or empty; the guest is given up then."""
        try:
            guest = self._ready()
            if guest.load(module):
                return ""
            for test, outcome in guest.outcomes(self._program, [DEVICE, *names]):
                if outcome not in (_PASSED, _SKIPPED):
                    self._lose()
                    return test
        except Lost as lost:
            self._lose()
            return lost.case
        return ""
