"""`rdma-cts prepare`: what it makes and what it says, with guests that are none."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import prepare
from commands.__main__ import main
from conformance.errors import UserError
from conformance.run_options import RunOptions
from kinds import Patch, Says


class FakeGuests:
    """Stands in for targets.guests.Guests; `obstacle` is why no guest can be resumed."""

    obstacle = ""
    asked: Sequence[Any] = ()

    def __init__(self, options: RunOptions, out: Path, *_: Any) -> None:
        self.stack = options.stack or "forky"
        assert out.is_dir()
        type(self).asked = [options, out]

    def run_again(self, cases: Sequence[str]) -> FakeGuests:
        assert not cases
        if self.obstacle:
            raise UserError(self.obstacle, status=3)
        return self

    def close(self) -> None:
        """Ends it."""


@pytest.fixture(autouse=True)
def guests(monkeypatch: Patch) -> None:
    monkeypatch.setattr(prepare, "Guests", FakeGuests)
    monkeypatch.setattr(FakeGuests, "obstacle", "")
    monkeypatch.delenv("RDMA_CTS_TEMPLATES", raising=False)


def test_image_and_template_are_made_for_the_options_that_decide_them(capsys: Says) -> None:
    assert main(["prepare", "--stack", "trixie", "--guest-env", "A=1"]) == 0
    options, out = FakeGuests.asked
    assert (options.stack, options.guest_env) == ("trixie", ("A=1",))
    assert not out.exists()
    assert capsys.readouterr().out == "image and template of trixie are ready; ./rdma-cts run --guest uses them\n"


def test_a_template_that_cannot_be_made_is_status_3(capsys: Says, monkeypatch: Patch) -> None:
    monkeypatch.setattr(FakeGuests, "obstacle", "guests are booted here")
    assert main(["prepare"]) == 3
    assert "the image of forky is ready, but its template is not" in capsys.readouterr().err


def test_without_templates_the_image_is_all(capsys: Says, monkeypatch: Patch) -> None:
    monkeypatch.setattr(FakeGuests, "obstacle", "nobody may ask")
    monkeypatch.setenv("RDMA_CTS_TEMPLATES", "off")
    assert main(["prepare"]) == 0
    assert "RDMA_CTS_TEMPLATES is off" in capsys.readouterr().out


def test_an_unknown_stack_is_a_mistake(capsys: Says) -> None:
    assert main(["prepare", "--stack", "forkey"]) == 2
    assert capsys.readouterr().err == (
        "rdma-cts: prepare: --stack 'forkey' does not exist (did you mean forky?); see ./rdma-cts prepare --help\n"
    )
