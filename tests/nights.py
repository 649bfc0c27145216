"""Nights of invented results, for the tests of `nightly`."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Union

import pytest

from commands import nightly_cell
from commands.__main__ import main
from commands.cli import run_arguments
from conformance.errors import UserError
from conformance.results.records import Recorded
from conformance.tables.suite import load_suite
from fixtures.guest.build import Progress
from fixtures.guest.recipe import Recipe
from kinds import Patch, Says
from launched import script
from made_history import SUITE, write_run
from reports.nights.history import History, read_history

WHOLE = load_suite()
Made = Union[Recorded, str, BaseException]


def option(command: Sequence[str], flag: str) -> str:
    if flag in command:
        return command[command.index(flag) + 1]
    return ""


class Nights:
    """Nights with simulated runs. For each stack, `cells` has the results of its run, the output of a run without
    results, or an exception that ends the night."""

    def __init__(self, folder: Path, says: Says, patch: Patch) -> None:
        self.folder = folder
        self.says = says
        self.patch = patch
        self.sent = folder.with_name("sent")
        self.cells: dict[str, Made] = {}
        self.commands: list[list[str]] = []
        self.ages: dict[str, float] = {}
        self.no_network = False

    def finished(self, command: list[str], environment: Mapping[str, str], output: int) -> int:
        """Replaces the process of a run."""
        self.commands.append(command)
        result = self.cells[option(command, "--stack") or "forky"]
        if isinstance(result, BaseException):
            (Path(option(command, "--out")) / "work-a" / "stage").mkdir(parents=True)
            raise result
        if isinstance(result, str):
            os.write(output, result.encode())
            return 3
        write_run(Path(option(command, "--out")), result)
        return 1

    def renewed(self, recipe: Recipe, cache: Path, days: float, progress: Progress) -> None:
        """Replaces the building of an image."""
        self.ages[recipe.stack] = days
        if self.no_network:
            raise UserError("the mirror cannot be reached", status=3)

    def sendmail(self, text: str) -> Path:
        """Puts a program `sendmail` with this text in front of all others; returns the path of its copy of messages."""
        program = script(self.folder.parent / "bin" / "sendmail", text.format(sent=self.sent))
        self.patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return self.sent

    def night(self, status: int, *arguments: str, **cells: Made) -> str:
        """Runs one night and checks its exit status; returns its output."""
        self.cells = {name.replace("_", "-"): result for name, result in cells.items()}
        ended = main(
            ["nightly", "--history", str(self.folder), "--stack", ",".join(self.cells), *arguments],
        )
        out, err = self.says.readouterr()
        assert "Traceback" not in err
        assert ended == status, out + err
        return out + err

    @property
    def history(self) -> History:
        return read_history(self.folder)

    def outcomes(self, name: str) -> list[str]:
        return [cell.outcome.outcome for cell in self.history.of(name)]


@pytest.fixture
def nights(tmp_path: Path, capsys: Says, monkeypatch: Patch) -> Nights:
    """Nights in an empty history."""
    empty = Nights(tmp_path / "history", capsys, monkeypatch)
    monkeypatch.setattr(nightly_cell, "_finished", empty.finished)
    monkeypatch.setattr(nightly_cell, "renew_image", empty.renewed)
    monkeypatch.setattr(run_arguments, "load_suite", lambda *_: WHOLE)
    return empty


CASE = SUITE.cases[2].id
