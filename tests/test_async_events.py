"""Asynchronous events of a context that consists of a pipe, and of functions in place of the library's."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

import pytest

from conformance.device import async_events
from conformance.device.async_events import events_of

QP, OTHER = 0x1000, 0x2000


class Library:
    """ibv_get_async_event and ibv_ack_async_event on a struct ibv_context with the read end of a pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._context = ctypes.create_string_buffer(512)
        self.context = ctypes.addressof(self._context)
        # Behind the device and the 32 functions of the provider: cmd_fd, async_fd.
        (ctypes.c_int * 2).from_address(self.context + 33 * 8)[:] = [-1, self.reader]
        self.acknowledged: list[tuple[int, int]] = []

    def comes(self, qp: int, kind: int) -> None:
        os.write(self.writer, bytes([qp >> 8, kind]))

    def ibv_get_async_event(self, context: int, address: int) -> int:
        assert context == self.context
        high, kind = os.read(self.reader, 2)
        event = async_events._Event.from_address(address)
        event.element, event.type = high << 8, kind
        return 0

    def ibv_ack_async_event(self, address: int) -> None:
        event = async_events._Event.from_address(address)
        self.acknowledged.append((event.element, event.type))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    made = Library()
    monkeypatch.setattr(async_events, "_library", lambda: made)
    yield made
    os.close(made.reader)
    os.close(made.writer)


def test_nothing_is_waited_for(library: Library) -> None:
    assert events_of(QP, library.context) == []


def test_each_event_is_acknowledged_and_those_of_the_queue_pair_are_named(library: Library) -> None:
    for qp, kind in ((QP, 3), (OTHER, 1), (QP, 16), (QP, 99)):
        library.comes(qp, kind)
    assert events_of(QP, library.context) == ["QP_ACCESS_ERR", "QP_LAST_WQE_REACHED", "event 99"]
    assert library.acknowledged == [(QP, 3), (OTHER, 1), (QP, 16), (QP, 99)]
    assert events_of(QP, library.context) == [], "each is reported once"
