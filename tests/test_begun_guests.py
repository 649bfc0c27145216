"""Tests that a run resumes its first guest while it reads the tables, and that a run that is then refused leaves neither this
guest nor a file."""

from pathlib import Path
from unittest.mock import Mock

import pytest

from commands import run
from conformance.errors import UserError
from fixtures.targets import target
from kinds import Patch

UNKNOWN = ("run", "--guest", "--only", "reg_mr/no_table/no-case")


@pytest.fixture
def guests(tmp_path: Path, monkeypatch: Patch) -> Mock:
    """Stands in for targets.guests.Guests, of which nothing has to be made."""
    monkeypatch.chdir(tmp_path)
    starter = Mock()
    monkeypatch.setattr(run, "Guests", starter)
    monkeypatch.setattr(run, "is_prepared", lambda _: True)
    return starter


@pytest.mark.parametrize("out", [(), ("--out", "new/run")])
def test_a_run_that_is_refused_ends_the_guest_that_was_begun(cli, guests, tmp_path, out):
    (tmp_path / "new").mkdir()
    said = cli(2, *UNKNOWN, *out)
    assert "unknown case" in said.err
    assert [call[0] for call in guests.return_value.method_calls] == ["begin", "close"]
    assert [path.name for path in tmp_path.rglob("*")] == ["new"]


def test_a_run_that_is_interrupted_ends_the_guest_that_was_begun(cli, guests, monkeypatch):
    monkeypatch.setattr(run, "choose", Mock(side_effect=KeyboardInterrupt))
    cli(130, *UNKNOWN)
    assert [call[0] for call in guests.return_value.method_calls] == ["begin", "close"]


def test_options_that_exclude_each_other_are_refused_before_a_guest_is_begun(cli, guests):
    cli(2, *UNKNOWN, "--port", 3)
    assert not guests.called


@pytest.mark.parametrize("more", [(), ("--guest",)])
def test_if_something_has_to_be_made_the_tables_are_read_before(cli, guests, monkeypatch, more):
    monkeypatch.setattr(run, "is_prepared", lambda _: False)
    monkeypatch.setattr(target, "prepare", Mock(side_effect=UserError("not to be reached")))
    assert "unknown case" in cli(2, "run", *UNKNOWN[2:], *more).err
    assert not guests.called
