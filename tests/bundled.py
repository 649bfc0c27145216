"""A run on the reference and its bundle, for the tests of bundles."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from commands import judge_bundle
from conformance.errors import UserError
from conformance.model.kind import Kind
from conformance.older_python import UTC
from conformance.tables.suite import Selection, Suite, load_suite
from kinds import Cli, Folders, Patch
from recorded_reference import record
from reports import own_tables
from reports.bundles.archive import pack
from reports.bundles.claims import claims
from reports.digest import read
from samples import consistent, written_records
from trial.reference.device import Device
from trial.reference.stack import without

SUITE = load_suite()
DEFAULT = Selection(tier="default").apply(SUITE)
DEFAULT_IDS = [case.id for case in DEFAULT]
SOME = [case for case in DEFAULT if case.kind is Kind.ROW and not case.hazardous][::60]
SWEEPS = [case for case in DEFAULT if case.sweep and case.sweep.size <= 16][:2]
NOW = datetime.now(UTC)
Line = dict[str, Any]
Verified = Callable[[int, Path], str]
Forged = Callable[..., str]


@pytest.fixture(scope="session")
def run(tmp_path_factory: Folders) -> Path:
    """A run of some cases and two sweeps."""
    cases = [*SOME, *SWEEPS]
    return record(
        tmp_path_factory.mktemp("some") / "run",
        SUITE,
        cases,
        Device(without("odp")),
        started=NOW.isoformat(),
    )


@pytest.fixture
def bundle(run: Path, tmp_path: Path, cli: Cli) -> Path:
    cli(0, "bundle", run, "--out", tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def verified(cli: Cli) -> Verified:
    """Runs `judge`, checks its exit status and that a refusal (status 2) is one line, and returns its whole output."""

    def verify(status: int, bundle: Path) -> str:
        out, err = cli(status, "judge", bundle)
        assert "Traceback" not in err
        assert "error of the suite" not in err
        assert status != 2 or len(err.splitlines()) == 1
        return out + err

    return verify


@pytest.fixture
def forged(run: Path, tmp_path: Path, verified: Verified) -> Forged:
    """Packs these records with a consistent footer and a correct manifest, as a careful forger does; runs `judge` and
    returns its output."""

    def verify(status: int, lines: list[Line], **more: bytes) -> str:
        folder = written_records(consistent(lines), tmp_path / "forged")
        files = {name.replace("_", "."): data for name, data in more.items()}
        for name in ("results.jsonl", *(line.get("points_file") or "" for line in lines)):
            path = (run if name.startswith("points/") else folder) / name
            files |= {name: path.read_bytes()} if path.is_file() else {}
        try:
            said = claims(read(folder))
        except UserError:  # results that cannot be read
            said = {}
        pack(tmp_path / "forged.xz", said, files)
        return verified(status, tmp_path / "forged.xz")

    return verify


@pytest.fixture(autouse=True)
def loaded(monkeypatch: Patch) -> None:
    """Reads the tables once for all tests."""
    monkeypatch.setattr(judge_bundle, "load_suite", lambda _: SUITE)
    monkeypatch.setattr(own_tables, "tables_digest", lambda _: SUITE.tables_sha256)


@pytest.fixture
def eight(eight_cases: Suite, tmp_path: Path) -> Path:
    return record(tmp_path / "eight", eight_cases, eight_cases.cases, started=NOW.isoformat())


NOT_FOUNDED = "nothing: 1 recorded verdict not supported by the observations (exit status 1)"
# How to find the line that a test changes.
LINES: dict[str, Callable[[Line], object]] = {
    "head": lambda line: line["type"] == "header",
    "passed": lambda line: line.get("verdict") == "PASS" and line["observed"],
    "unsupported": lambda line: line.get("verdict") == "UNSUPPORTED",
    "swept": lambda line: line.get("points"),
}
