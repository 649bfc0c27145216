"""`rdma-cts test`: some tests are left for the night, and the last line says how many."""

import subprocess
from collections.abc import Mapping, Sequence

import pytest

from commands import test as command
from commands.__main__ import main


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Sequence[str], Mapping[str, str]]]:
    """Replaces the start of pytest; returns the commands that would be started, with their environments."""
    found: list[tuple[Sequence[str], Mapping[str, str]]] = []

    def run(words: Sequence[str], *, env: Mapping[str, str], **_: object) -> subprocess.CompletedProcess[str]:
        found.append((words[3:], env))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr("commands.test.packages.ensure_tools", lambda *_, **__: "python3")
    monkeypatch.setattr("commands.test.subprocess.run", run)
    for name in command.MORE:
        monkeypatch.delenv(name, raising=False)
    return found


def test_nightly_tests_run_only_with_nightly(started: list[tuple[Sequence[str], Mapping[str, str]]]) -> None:
    assert [main(["test", *more]) for more in ([], ["--nightly"], ["--", "tests/test_kills.py"])] == [0, 0, 0]
    (by_day, usual), (at_night, larger), (own, _) = started
    assert by_day == [*command.ALL, "-m", "not nightly"]
    assert at_night == list(command.ALL)
    assert own == ["tests/test_kills.py"]
    assert {name: larger[name] for name in command.MORE} == command.MORE
    assert not command.MORE.keys() & usual.keys()
