"""A made-up project for tests, in which the engine runs on the device of fake_bench.py."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.results.records import Recorded, read_results
from launched import ended

TABLE = """\
verb: ibv_reg_mr
cases: 6
given:
  memory: {buf: {kind: anonymous, size: 4 pages}}
rows:
  - id: works
    rules: [REG-01]
    when: {access: [LOCAL_WRITE]}
    then: {outcome: success, mr: as_asked}
  - id: wrongly-accepted
    rules: [REG-15]
    when: {access: [REMOTE_WRITE]}
    then: refused
  - id: not-supported
    rules: [REG-17]
    needs: [odp]
    when: {access: [ON_DEMAND]}
    then: success
  - id: harness-trouble
    rules: [REG-23]
    given: {memory: {buf: {kind: huge, size: 1 hugepage}}}
    when: {access: []}
    then: success
  - id: dies
    rules: [REG-23]
    given: {memory: {buf: {kind: no_access, size: 1 page}}}
    when: {access: []}
    then: success
  - id: hangs
    rules: [REG-23]
    given: {memory: {buf: {kind: hole, size: 3 pages}}}
    when: {access: []}
    then: success
"""
QUIET_VERDICTS = {
    "works": "PASS",
    "wrongly-accepted": "FAIL",
    "not-supported": "UNSUPPORTED",
    "harness-trouble": "BROKEN",
}


@dataclass(frozen=True)
class Project:
    """A folder in which `pytest cases` runs the engine on the device of fake_bench.py."""

    root: Path
    environment: dict[str, str]

    @property
    def tables(self) -> Path:
        """The folder for --rdma-cases."""
        return self.root / "tables"

    def only(self, *rows: str) -> str:
        """A file for --rdma-only with these rows of the project's table."""
        path = self.root / "only"
        path.write_text("".join(f"reg_mr/fake/{row}\n" for row in rows))
        return str(path)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return ended(*command, cwd=self.root, env=self.environment)

    def run(self, *arguments: str, rows: Iterable[str] = QUIET_VERDICTS) -> subprocess.CompletedProcess[str]:
        """Runs these rows of the table and records them in `out`."""
        chosen = ["--rdma-cases", str(self.tables), "--rdma-only", self.only(*rows)]
        return self.pytest("cases", *chosen, "--rdma-out", "out", *arguments)

    def results(self) -> Recorded:
        return read_results(self.root / "out")
