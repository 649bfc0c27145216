"""Runs the tests of other projects on mutants of the driver, in the guests of the trial, and finds the first test that
detects each mutant.

The tests are rdma-core's own tests, and Google's rdma-unit-test as built by build-rdma-unit-test.sh. A hundred tests
take minutes, so several mutants are first tried in one module. A test counts if it passes with the mended driver, fails
with this module, and then fails twice with only one mutant.
"""

import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from conformance.errors import UserError, reading
from conformance.tables.suite import ROOT
from fixtures.guest.exchange import DEVICE
from trial.kernel.guest import Lost
from trial.kernel.modules import Modules
from trial.kernel.mutant import Mutant
from trial.kernel.trying import Trial

# The test modules of rdma-core about regions, windows and requests on any provider.
_MODULES = (
    "atomic",
    "mr",
    "odp",
    "parent_domain",
    "pd",
    "qpex",
    "relaxed_ordering",
    "shared_pd",
    "srq",
)
# Patterns of the tests of rdma-unit-test about regions, windows and requests.
_PATTERNS = (
    "*Mr*Test.*:*Mw*Test.*:*Buffer*Test.*:*Access*Test.*:*Pd*Test.*:HugePage*",
    "*LoopbackRc*.*",
)
_PASSED, _SKIPPED = "passed", "skipped"


class Peers:
    """Runs the tests of another project in the guests of a trial. `program` is a packed program that runs the tests;
    `parts` are names or patterns that divide the tests."""

    def __init__(
        self,
        program: bytes,
        parts: Sequence[str],
        trial: Trial,
        modules: Modules,
    ) -> None:
        self._program, self._parts, self._trial, self._modules = program, parts, trial, modules
        self._unmutated: dict[str, bool] = {}

    def seen(self, mutants: Sequence[Mutant]) -> Iterator[tuple[str, str]]:
        """Yields each mutant that cannot harm its guest, and the first test that detects the mutant, or ""."""
        waiting = [mutant for mutant in mutants if not (mutant.kills or mutant.leaks)]
        while waiting:
            together, _ = self._trial.combined(waiting)
            waiting = [mutant for mutant in waiting if mutant not in together]
            for part in self._parts:
                detected = together
                # repeated without the detected mutants, which may have hidden others
                while together and detected:
                    suspected = self._passing(self._failing(together, [part])[0])
                    detected = []
                    for mutant in together:
                        if tests := self._alone(mutant, suspected):
                            suspected = [test for test in suspected if test not in tests]
                            detected.append(mutant)
                            yield mutant.name, tests[0]
                    together = [mutant for mutant in together if mutant not in detected]
            yield from ((mutant.name, "") for mutant in together)

    def _alone(self, mutant: Mutant, tests: Sequence[str]) -> list[str]:
        """Returns the tests that fail twice with only this mutant."""
        failing, _ = self._failing([mutant], tests) if tests else ([], True)
        again, _ = self._failing([mutant], failing) if failing else (failing, True)
        return [test for test in failing if test in again]

    def _passing(self, tests: Sequence[str]) -> list[str]:
        waiting, ended = [test for test in tests if test not in self._unmutated], False
        while waiting and not ended:
            failing, ended = self._failing([], waiting)
            waiting = [mutant for mutant in waiting if mutant not in failing]
            self._unmutated |= dict.fromkeys(failing, False)
            if ended or not failing:
                self._unmutated |= dict.fromkeys(waiting, ended)
                break
        return [test for test in tests if self._unmutated[test]]

    def _failing(self, mutants: Sequence[Mutant], tests: Sequence[str]) -> tuple[list[str], bool]:
        """Runs tests or parts with the mutants; returns the tests that fail, and whether all tests were run."""
        module, failing = self._modules.of(mutants), list[str]()
        try:
            # objects that earlier tests have left may keep the driver in use
            if self._trial.ready().load(module):
                self._trial.close()
                if self._trial.ready().load(module):
                    return failing, False
            for test, outcome in self._trial.ready().outcomes(self._program, [DEVICE, *tests]):
                if outcome not in (_PASSED, _SKIPPED):
                    failing.append(test)
        except Lost as lost:
            self._trial.close()
            return [*failing, lost.case] if lost.case else failing, False
        return failing, True


def rdma_core(tests: Path) -> tuple[bytes, Sequence[str]]:
    """Returns the program and the parts of the tests in a folder of rdma-core. Raises UserError (status 2)."""
    if not (tests / "test_mr.py").is_file():
        raise UserError(f"--rdma-core-tests {tests}: there is no test_mr.py", status=2)
    files = {f"tests/{file.name}": file.read_bytes() for file in sorted(tests.glob("[a-z]*.py"))}
    files["tests/__init__.py"] = b""  # makes the folder a package
    return _packed(ROOT / "ci/benchmarks/rdma_core_tests.py", files), [
        f"test_{module}" for module in _MODULES
    ]


def rdma_unit_test(program: Path) -> tuple[bytes, Sequence[str]]:
    """Returns the program and the parts of rdma-unit-test. Raises UserError (status 2)."""
    if not program.is_file():
        raise UserError(f"--rdma-unit-test {program}: there is no such program", status=2)
    with reading(program):
        content = program.read_bytes()
    if not content.startswith((b"\x7fELF", b"#!")):
        raise UserError(
            f"--rdma-unit-test {program} is not a program",
            hint="trial/kernel/build-rdma-unit-test.sh builds it",
        )
    return _packed(Path(__file__).with_name("unit_tests.py"), {"program": content}), _PATTERNS


def _packed(main: Path, files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.write(main, "__main__.py")
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()
