"""The order of exchanges: what is to be looked at is not overtaken by the next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from conformance import lines
from conformance.calls import Return
from conformance.lines import Ask, Line, exchanges
from conformance.requests import Exchange, SendRequest

Made = list[int]


class Stub:
    """A line that says which requests have been made."""

    def __init__(self) -> None:
        self.made: Made = []

    def ask(self, ask: Ask) -> Exchange:
        """Makes one."""
        self.made.append(ask.request.wr_id)
        return Exchange(Return(0, 0))

    def quickly(self) -> None:
        """None: nothing is made in C."""


def asks(line: Stub, number: int) -> list[Ask]:
    """So many, numbered from 0."""
    areas = cast(Any, ())
    return [Ask(cast(Line, line), SendRequest("RDMA_WRITE", wr_id), areas) for wr_id in range(number)]


def test_in_steps_each_is_given_before_the_next_is_made() -> None:
    line = Stub()
    for number, _ in enumerate(exchanges(asks(line, 3))):
        assert line.made == list(range(number + 1))
    assert line.made == [0, 1, 2]


def test_where_c_has_stopped_all_that_it_made_is_given_before_the_next_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Stub()

    def two_at_a_time(some: Sequence[Ask]) -> list[Exchange]:
        return [line.ask(ask) for ask in some[:2]]

    monkeypatch.setattr(lines, "_in_c", two_at_a_time)
    seen = [list(line.made) for _ in exchanges(asks(line, 5))]
    assert seen == [[0, 1], [0, 1], [0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


def test_what_c_cannot_make_is_made_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    line = Stub()

    def not_the_odd_ones(some: Sequence[Ask]) -> list[Exchange]:
        return [line.ask(some[0])] if some[0].request.wr_id % 2 == 0 else []

    monkeypatch.setattr(lines, "_in_c", not_the_odd_ones)
    assert len(list(exchanges(asks(line, 4)))) == 4
    assert line.made == [0, 1, 2, 3]
