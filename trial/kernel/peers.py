"""Runs rdma-core's own tests on mutants of the driver, in the guests of the trial, to find the first test that detects
each mutant.

A test detects a mutant if it passes with the mended driver, and fails twice with the mutant. Several mutants share a
module, because a hundred tests take minutes. If a test fails, trying halves finds the mutants that cause the failure.
trying.py runs the cases.
"""

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from fixtures.guest.exchange import DEVICE
from trial.kernel.guest import Lost
from trial.kernel.modules import Modules
from trial.kernel.mutant import Mutant
from trial.kernel.trying import Trial

# The test modules of rdma-core about regions, windows and requests on any provider.
MODULES = ("atomic", "mr", "odp", "parent_domain", "pd", "qpex", "relaxed_ordering", "shared_pd", "srq")
_PASSED, _SKIPPED = "passed", "skipped"


class Peers:
    """The tests of a source tree of rdma-core, in the guests of a trial."""

    def __init__(self, tests: Path, trial: Trial, modules: Modules) -> None:
        if not (tests / "test_mr.py").is_file():
            raise UserError(f"--rdma-core-tests {tests}: there is no test_mr.py", status=2)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.write(ROOT / "benchmarks" / "rdma_core_tests.py", "__main__.py")
            archive.writestr("tests/__init__.py", "")  # their tests look for a folder
            for file in sorted(tests.glob("[a-z]*.py")):
                archive.write(file, f"tests/{file.name}")
        self._program, self._trial, self._modules = packed.getvalue(), trial, modules
        self._unmutated: dict[str, bool] = {}

    def seen(self, mutants: Sequence[Mutant]) -> Iterator[tuple[str, str]]:
        """Yields each mutant's name with the first test that detects the mutant, or an empty text. Mutants that may
        harm their guest are left out."""
        waiting = [each for each in mutants if not (each.kills or each.leaks)]
        while waiting:
            together, _ = self._trial.combined(waiting)
            waiting = [each for each in waiting if each not in together]
            for module in MODULES:
                ended = False
                while together and not ended:
                    failing, ended = self._failing(together, f"test_{module}")
                    several = len(together)
                    for test in failing:
                        blamed = self._blamed(test, together) if self._passes(test) else []
                        yield from ((each.name, test) for each in blamed)
                        together = [each for each in together if each not in blamed]
                    ended = ended or len(together) == several
            yield from ((each.name, "") for each in together)

    def _blamed(self, test: str, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Returns the mutants that each make a test fail, among mutants that together make it fail; finds them by
        trying halves."""
        half = len(mutants) // 2
        parts = (mutants[:half], mutants[half:]) if half else (mutants,)
        failing = [part for part in parts if part and self._failing(part, test)[0]]
        return [each for part in failing for each in (self._blamed(test, part) if half else part)]

    def _passes(self, test: str) -> bool:
        """Whether a test passes with the mended driver."""
        if test not in self._unmutated:
            self._unmutated[test] = not self._failing([], test)[0]
        return self._unmutated[test]

    def _failing(self, mutants: Sequence[Mutant], tests: str) -> tuple[list[str], bool]:
        """Returns the tests of a module that fail with the mutants, and whether the guest has run all tests."""
        module, failing = self._modules.of([each.change for each in mutants]), list[str]()
        try:
            if self._trial.ready().load(module):  # objects that earlier tests have left may keep the driver in use
                self._trial.close()
                if self._trial.ready().load(module):
                    return failing, True
            for test, outcome in self._trial.ready().outcomes(self._program, [DEVICE, tests]):
                if outcome not in (_PASSED, _SKIPPED):
                    failing.append(test)
        except Lost as lost:
            self._trial.close()
            return [*failing, lost.case] if lost.case else failing, False
        return failing, True
