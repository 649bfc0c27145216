"""Tests how many guests run at the same time, given the processors, the memory and the control groups of the host, and
what `prepare` makes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest

from commands import prepare
from conformance.errors import UserError
from fixtures.guest import capacity
from kinds import Patch
from samples import user_error

GUEST_MB = 2048
NEEDED_MB = 2304

Host = Callable[..., None]


@pytest.fixture
def host(monkeypatch: Patch) -> Host:
    """Returns a function that simulates a host with this number of processors, this memory in MiB, and these limits of
    control groups (by file name)."""

    def make(processors: int, total_mb: int, available_mb: int, **limits: list[str]) -> None:
        def meminfo(_path: Path, **_: str) -> str:
            return f"MemTotal: {total_mb << 10} kB\nMemFree: 0 kB\nMemAvailable: {available_mb << 10} kB\n"

        def limits_of(name: str) -> Iterator[str]:
            yield from limits.get(name.replace(".", "_"), [])

        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
        monkeypatch.setattr(Path, "read_text", meminfo)
        monkeypatch.setattr(capacity, "_limits", limits_of)

    return make


@pytest.mark.parametrize(
    "processors, total_mb, available_mb, limits, asked, expected",
    [
        (2, 200_000, 100_000, {}, None, 2),
        (64, 200_000, 10 * NEEDED_MB, {}, None, 10),
        (64, 200_000, NEEDED_MB - 1, {}, None, 1),
        (64, 200_000, 100_000, {"cpu_max": ["max 100000", "300000 100000"]}, None, 3),
        (64, 200_000, 100_000, {"cpu_max": ["20000 100000"]}, None, 1),
        (64, 200_000, 100_000, {"memory_max": ["max", str(5 * NEEDED_MB << 20)]}, None, 5),
        (2, 10 * NEEDED_MB, NEEDED_MB, {}, 10, 10),  # a given number may exceed free memory
        *(
            (2, 1024, 512, {}, requested, 1) for requested in (1, None)
        ),  # one guest is always permitted
    ],
)
def test_one_guest_for_each_processor_as_far_as_memory_allows(
    host, processors, total_mb, available_mb, limits, asked, expected
):
    host(processors, total_mb, available_mb, **limits)
    assert capacity.guests_at_once(asked, GUEST_MB) == expected


def test_more_guests_than_fit_into_the_memory_of_the_host_are_refused(host):
    host(2, 10 * NEEDED_MB, 10 * NEEDED_MB)
    with user_error(r"--guests 11: each guest needs 2,304 MiB, .*; give at most 10", status=2):
        capacity.guests_at_once(11, GUEST_MB)


def test_the_figures_of_this_host_are_sound():
    assert 1 <= capacity.guests_at_once(None, GUEST_MB) <= (os.cpu_count() or 1)


@pytest.fixture
def guests(monkeypatch: Patch) -> Mock:
    """Stands in for targets.guests.Guests."""
    starter = Mock(side_effect=lambda options, out, *_: DEFAULT if out.is_dir() else None)
    starter.return_value.stack = "forky"
    monkeypatch.setattr(prepare, "Guests", starter)
    monkeypatch.delenv("RDMA_CTS_TEMPLATES", raising=False)
    return starter


def test_image_and_template_are_made_for_the_options_that_decide_them(cli, guests):
    guests.return_value.stack = "trixie"
    said = cli(0, "prepare", "--stack", "trixie", "--guest-env", "A=1")
    options, out, *_ = guests.call_args.args
    assert (options.stack, options.guest_env) == ("trixie", ("A=1",))
    assert not out.exists()
    guests.return_value.run_again.assert_called_once_with(())
    guests.return_value.run_again.return_value.close.assert_called_once_with()
    assert said.out == "image and template of trixie are ready; ./rdma-cts run --guest uses them\n"


def test_if_a_template_cannot_be_made_the_status_is_3(cli, guests):
    guests.return_value.run_again.side_effect = UserError("guests are booted here", status=3)
    assert "the image of forky is ready, but its template is not" in cli(3, "prepare").err


def test_a_mistake_is_told_as_it_is(cli, guests):
    guests.return_value.run_again.side_effect = UserError("X is 'y'", hint="give one of z")
    assert cli(2, "prepare").err == "rdma-cts: X is 'y'; give one of z\n"


def test_without_templates_only_the_image_is_made(cli, guests, monkeypatch):
    guests.return_value.run_again.side_effect = UserError("must not be called", status=3)
    monkeypatch.setenv("RDMA_CTS_TEMPLATES", "off")
    assert "RDMA_CTS_TEMPLATES is off" in cli(0, "prepare").out
