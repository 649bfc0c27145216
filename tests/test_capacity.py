"""How many guests run at the same time, by the processors and the memory that the host and its control groups give."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fixtures.guest import capacity
from samples import user_error

GUEST_MB = 2048
NEEDED_MB = 2304

Host = Callable[..., None]


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    """Makes a host with these processors, memory in MiB, and limits of control groups by the name of the file."""

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
    ("processors", "available_mb", "limits", "expected"),
    [
        (2, 100_000, {}, 2),
        (64, 10 * NEEDED_MB, {}, 10),
        (64, NEEDED_MB - 1, {}, 1),
        (64, 100_000, {"cpu_max": ["max 100000", "300000 100000"]}, 3),
        (64, 100_000, {"cpu_max": ["20000 100000"]}, 1),
        (64, 100_000, {"memory_max": ["max", str(5 * NEEDED_MB << 20)]}, 5),
    ],
)
def test_one_for_each_processor_as_far_as_memory_allows(
    host: Host, processors: int, available_mb: int, limits: dict[str, list[str]], expected: int
) -> None:
    host(processors, 200_000, available_mb, **limits)
    assert capacity.guests_at_once(None, GUEST_MB) == expected


def test_who_asks_for_more_than_is_free_gets_them(host: Host) -> None:
    host(2, 10 * NEEDED_MB, NEEDED_MB)
    assert capacity.guests_at_once(10, GUEST_MB) == 10


def test_more_than_the_host_could_ever_hold_are_refused(host: Host) -> None:
    host(2, 10 * NEEDED_MB, 10 * NEEDED_MB)
    with user_error(r"--guests 11: each guest needs 2,304 MiB, .*; give at most 10", status=2):
        capacity.guests_at_once(11, GUEST_MB)


def test_one_guest_can_always_be_tried(host: Host) -> None:
    host(2, 1024, 512)
    assert capacity.guests_at_once(1, GUEST_MB) == capacity.guests_at_once(None, GUEST_MB) == 1


def test_the_figures_of_this_host_are_sound() -> None:
    assert 1 <= capacity.guests_at_once(None, GUEST_MB) <= (os.cpu_count() or 1)
