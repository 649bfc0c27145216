"""`rdma-cts test`: which tests are left for the night, and that the last line says so."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from commands import test as command
from commands.__main__ import main
from conformance.tables.suite import ROOT
from launched import ended

TESTS = ROOT / "tests"
PAGE = (ROOT / "docs" / "testing.md").read_text()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], Mapping[str, str]]]:
    """The commands that are started in place of pytest, with their environments."""
    found: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def run(words: Sequence[str], *, env: Mapping[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        found.append((words[3:], env))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr("commands.test.packages.ensure_tools", lambda *_, **__: "python3")
    monkeypatch.setattr("commands.test.subprocess.run", run)
    for name in command.MORE:
        monkeypatch.delenv(name, raising=False)
    return found


def test_what_is_left_for_the_night_is_run_with_nightly_alone(
    started: list[tuple[Sequence[str], Mapping[str, str]]],
) -> None:
    assert [main(["test", *more]) for more in ([], ["--nightly"], ["--", "tests/test_kills.py"])] == [0, 0, 0]
    (by_day, usual), (at_night, larger), (own, _) = started
    assert by_day == [*command.ALL, "-m", "not nightly"]
    assert at_night == list(command.ALL)
    assert own == ["tests/test_kills.py"]
    assert {name: larger[name] for name in command.MORE} == command.MORE
    assert not command.MORE.keys() & usual.keys()


@pytest.mark.slow
@pytest.mark.parametrize(("words", "left"), [(command.LEFT, 3), (["-n", "2", *command.LEFT], 3), (["-k", "by_day"], 0)])
def test_the_last_line_says_how_many_tests_are_left(words: Sequence[str], left: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "tox.ini").write_text("[pytest]\nmarkers =\n    nightly: x\n")
    (tmp_path / "test_some.py").write_text(
        "import pytest\n\n@pytest.mark.nightly\n@pytest.mark.parametrize('n', range(3))\ndef test_at_night(n): pass\n\n"
        "def test_by_day(): pass\n"
    )
    done = ended(
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-q",
        *words,
        tmp_path,
        cwd=tmp_path,
        env={"PYTHONPATH": f"{ROOT}:{TESTS}"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n1 passed" in done.stdout
    last = f"left for the night: {left} tests (./rdma-cts test --nightly)"
    assert (done.stdout.splitlines()[-1] == last) if left else ("left for" not in done.stdout)


def test_the_page_names_each_file_with_tests_for_the_night() -> None:
    marked = {path.name for path in TESTS.glob("test_*.py") if "mark.nightly" in path.read_text()} - {
        Path(__file__).name
    }
    left = {
        name for row in re.findall(r"^\| (.+?) \|", PAGE, re.MULTILINE) for name in re.findall(r"`(test_\w+\.py)`", row)
    }
    assert marked == left


def test_the_page_has_the_numbers_of_the_night() -> None:
    assert f"at night {command.MORE['RDMA_CTS_FUZZED']})" in PAGE
    assert f"at night {command.MORE['RDMA_CTS_MOMENTS']})" in PAGE
