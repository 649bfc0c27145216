"""rdma-core's own tests on mutants of the driver, in the guests of the trial: the first test that detects each of them.

A test counts if it passes with the mended driver, before and after, and fails twice with the mutant. Several mutants
share a module until a test fails, because a hundred tests take minutes. Not for the cases (trying.py).
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

# Their test modules about regions, windows and requests on any provider.
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

    def seen(self, mutants: Sequence[Mutant]) -> Iterator[tuple[str, str]]:
        """Each mutant's name, with the first test that sees it, or empty."""
        passing, waiting = self._passing(), list(mutants)
        while waiting:
            names, (together, _) = passing, self._trial.combined(waiting)
            waiting = [each for each in waiting if each not in together]
            while together and (test := self._failing(together, names)):
                found = [each for each in together if self._sees(test, each)]
                yield from ((each.name, test) for each in found)
                together = [each for each in together if each not in found]
                names = names[names.index(test) + (not found) :]
            yield from ((each.name, "") for each in together)

    def _passing(self) -> list[str]:
        guest = self._trial.ready()
        guest.load(self._modules.of([]))
        every = guest.outcomes(self._program, [DEVICE, *(f"test_{name}" for name in MODULES)])
        passing = [test for test, outcome in every if outcome == _PASSED]
        if not passing:
            raise UserError("no test of rdma-core passes with the mended driver", status=3)
        return passing

    def _sees(self, test: str, mutant: Mutant) -> bool:
        return all(self._failing([mutant], [test]) for _ in range(2)) and not self._failing([], [test])

    def _failing(self, mutants: Sequence[Mutant], names: Sequence[str]) -> str:
        """The first of these tests that fails with the mutants in one module, or empty."""
        harmed, module = True, self._modules.of([each.change for each in mutants])
        try:
            guest = self._trial.ready()
            if guest.load(module):
                return ""
            for test, outcome in guest.outcomes(self._program, [DEVICE, *names]):
                if outcome not in (_PASSED, _SKIPPED):
                    return test
            harmed = any(each.kills or each.leaks for each in mutants)
        except Lost as lost:
            return lost.case
        finally:
            if harmed:
                self._trial.close()
        return ""
