"""A made-up project for tests, in which the engine runs on the device of fake_bench.py."""

import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.results.records import Recorded, read_written
from launched import ended

TABLE = Path(__file__).with_name("project.yaml").read_text()
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
        """Writes a file for --rdma-only with these rows of the project's table."""
        path = self.root / "only"
        path.write_text("".join(f"reg_mr/fake/{row}\n" for row in rows))
        return str(path)

    def pytest(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
        return ended(*command, cwd=self.root, env=self.environment)

    def run(
        self,
        *arguments: str,
        rows: Iterable[str] = QUIET_VERDICTS,
    ) -> subprocess.CompletedProcess[str]:
        """Runs these rows of the table and records them in `out`."""
        chosen = ["--rdma-cases", str(self.tables), "--rdma-only", self.only(*rows)]
        return self.pytest("cases", *chosen, "--rdma-out", "out", *arguments)

    def results(self) -> Recorded:
        return read_written(self.root / "out")
