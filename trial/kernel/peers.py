"""The tests of others on mutants of the driver, in the guests of the trial: the first test that detects each mutant.

They are rdma-core's own tests, and Google's rdma-unit-test as build-rdma-unit-test.sh makes it. A test counts if it
passes with the mended driver, and fails twice with the mutant. Several mutants share a module, because a hundred tests
take minutes; if a test fails, the mutants that cause the failure are found by trying halves. trying.py runs the cases.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from fixtures.guest.exchange import DEVICE
from trial.kernel.guest import Lost
from trial.kernel.modules import Modules
from trial.kernel.mutant import Mutant
from trial.kernel.trying import Trial

# The test modules of rdma-core about regions, windows and requests on any provider.
_MODULES = ("atomic", "mr", "odp", "parent_domain", "pd", "qpex", "relaxed_ordering", "shared_pd", "srq")
# Filters for the tests of rdma-unit-test about the same.
_FILTERS = ("*Access*", "*Buffer*", "*HugePage*", "*Mr*", "*Mw*", "*Pd*", "*LoopbackRc*", "*Srq*")
_PASSED, _SKIPPED = "passed", "skipped"


class Peers:
    """The tests of a peer in the guests of a trial: a packed program that runs them, and the parts that it runs them
    in."""

    def __init__(self, program: bytes, parts: Sequence[str], trial: Trial, modules: Modules) -> None:
        self._program, self._parts, self._trial, self._modules = program, parts, trial, modules
        self._unmutated: dict[str, bool] = {}

    def seen(self, mutants: Sequence[Mutant]) -> Iterator[tuple[str, str]]:
        """Each mutant's name with the first test that detects it, or an empty text. Mutants that may harm their guest
        are left out."""
        waiting = [each for each in mutants if not (each.kills or each.leaks)]
        while waiting:
            together, _ = self._trial.combined(waiting)
            waiting = [each for each in waiting if each not in together]
            for part in self._parts:
                ended = False
                while together and not ended:
                    failing, ended = self._failing(together, part)
                    several = len(together)
                    for test in failing:
                        blamed = self._blamed(test, together) if self._passes(test) else []
                        yield from ((each.name, test) for each in blamed)
                        together = [each for each in together if each not in blamed]
                    ended = ended or len(together) == several
            yield from ((each.name, "") for each in together)

    def _blamed(self, test: str, mutants: Sequence[Mutant]) -> list[Mutant]:
        """The mutants with which a test fails alone too, among mutants that together made it fail; found by trying
        halves."""
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
        """The tests of a part that fail with the mutants, and whether the guest has run all tests."""
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


def rdma_core(tests: Path) -> tuple[bytes, Sequence[str]]:
    """The program and the parts of the tests in a folder of rdma-core. Raises UserError (status 2)."""
    if not (tests / "test_mr.py").is_file():
        raise UserError(f"--rdma-core-tests {tests}: there is no test_mr.py", status=2)
    files = {f"tests/{file.name}": file.read_bytes() for file in sorted(tests.glob("[a-z]*.py"))}
    files["tests/__init__.py"] = b""  # their tests look for a folder
    return _packed(ROOT / "benchmarks" / "rdma_core_tests.py", files), [f"test_{module}" for module in _MODULES]


def rdma_unit_test(program: Path) -> tuple[bytes, Sequence[str]]:
    """The program and the parts of rdma-unit-test. Raises UserError (status 2)."""
    if not program.is_file():
        raise UserError(f"--rdma-unit-test {program}: there is no such program", status=2)
    return _packed(Path(__file__).with_name("unit_tests.py"), {"program": program.read_bytes()}), _FILTERS


def _packed(main: Path, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(main, "__main__.py")
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()
