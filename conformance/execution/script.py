"""Executes the script of a `wire` call, whatever the protocol of the peer is: fills the memory of the case, issues the calls
between the packets, posts the device's requests, and records what completes and which bytes change. packets.py and
segments.py send and receive; judging/wire.py judges the record."""

from __future__ import annotations

import ctypes
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast

from conformance.bench.interface import Memory, WirePair
from conformance.bench.memory_areas import changed_ranges, pattern
from conformance.bench.work_requests import SIGNALED, Completion, SendRequest
from conformance.execution.connection import SILENCE_S, state_of
from conformance.execution.context import CaseContext, told
from conformance.model.case import Step
from conformance.model.event_kinds import UNSIGNALED
from conformance.model.memory_kinds import SPARSE
from conformance.model.observation import EventSeen, Observation
from conformance.model.script import CALL, NOTHING, Event
from conformance.model.vocabulary import BEGIN_BIND, RESET_QP
from conformance.verbs import ENUMS
from conformance.wire.packet import Parsed

WORD = 8
_SEND_FLAGS = ENUMS["ibv_send_flags"]
_AT_ONCE_S = 0.001  # the wait for a completion of what has been processed already
_PERIOD = 127
_FILL = bytes(1 + (number * 5) % _PERIOD for number in range(_PERIOD))


def _fill(number: int, size: int) -> bytes:
    """Returns the contents of a case's memory before the script. No byte is one of `pattern`, and each memory differs."""
    start = number * 29 % _PERIOD
    rotated = _FILL[start:] + _FILL[:start]
    return (rotated * (size // _PERIOD + 1))[:size]


class _End(Protocol):
    def settle(self) -> None: ...


EndT = TypeVar("EndT", bound=_End)


class Connection(Generic[EndT]):
    """The state of a script on one queue pair. `end` is the peer's end."""

    def __init__(self, name: str, pair: WirePair) -> None:
        self.name, self.pair = name, pair
        self.end, self.queue = cast(EndT, pair.end), pair.responder
        self.message = 0  # the number of bytes of the message that earlier packets had
        self.requests: deque[Parsed] = deque()  # of the device, not answered yet
        self.posted: list[int] = []
        self.sent_completions: list[Completion] = []
        self.receive_completions: list[Completion] = []
        self.packets: list[Parsed] = []  # not awaited by an event
        self.is_in_error = False  # after this the device sends no request

    def poll(self, deadline_s: float) -> bool:
        """Sorts the next completion into sends and receives. Returns whether there was one."""
        completions = self.queue.completions(1, deadline_s)
        for completion in completions:
            if completion.wr_id in self.posted:
                self.sent_completions.append(completion)
            else:
                self.receive_completions.append(completion)
        return bool(completions)

    def data(self, size: int, continues: bool, offset: int | None = None) -> bytes:
        """Returns the next `size` bytes of a message, from `offset` on, or else where the packet before ended if the
        packet `continues` its message."""
        start = offset
        if start is None:
            start = self.message if continues else 0
        self.message = start + size
        return pattern(start + size)[start:]


def fields_of_headers(numbers: Mapping[str, int], names: Collection[str]) -> dict[str, int]:
    """Returns the numbers of an event that are fields of headers with these names; `addr` is the field `va`."""
    fields = {key: value for key, value in numbers.items() if key in names}
    if "addr" in numbers:
        fields["va"] = numbers["addr"]
    return fields


def _flags_of(event: Event) -> int:
    """Returns the send flags of a posted request."""
    names = event.names.get("flags", ())
    flags = _SEND_FLAGS.mask_of(*(name for name in names if name != UNSIGNALED))
    if UNSIGNALED in names:
        return flags
    return flags | SIGNALED


def _status(completion: Completion | None) -> str:
    if completion is None:
        return NOTHING
    return completion.status


class Script(ABC, Generic[EndT]):
    """A script that is being executed. `subject` is the last operation that the peer sent or the device posted. After
    `receive_s` seconds a receive that must complete is missing."""

    receive_s = SILENCE_S

    def __init__(self, context: CaseContext, step: Step) -> None:
        self._context = context
        self._default = str(step.arguments["qp"])
        self._connections: dict[str, Connection[EndT]] = {}
        self._expected: list[tuple[int, bytes]] = []  # addresses, and the bytes that they get
        self._free: list[tuple[int, int]] = []  # addresses and sizes of ranges that may change
        self._seen: list[EventSeen] = []
        self._malformed: list[str] = []
        self._before: dict[str, bytes] = {}
        self._subject = ""
        self._handlers = {
            "op": self._send,
            "answer": self._answer_device,
            "post": self._post,
            "sends": self._expect_request,
            "completes": self._completes,
            "receives": self._receives,
            "state": self._state,
            "changed": self._changed,
            "may_change": self._may_change,
        }

    def run(self, events: Sequence[Event]) -> Observation:
        self._fill()
        for event in events:
            connection = self._connection(event.qp or self._default)
            if event.kind == CALL:
                self._call(event)
            else:
                self._handlers[event.kind](connection, event)
        return self._observation()

    @abstractmethod
    def _send(self, connection: Connection[EndT], event: Event) -> None:
        """Lets the peer send a packet, and awaits what it gets."""

    @abstractmethod
    def _expect_request(self, connection: Connection[EndT], event: Event) -> None:
        """Awaits a request of the device."""

    @abstractmethod
    def _answer_device(self, connection: Connection[EndT], event: Event) -> None:
        """Lets the peer answer a request of the device."""

    @abstractmethod
    def _take_late(self, connection: Connection[EndT]) -> None:
        """Takes what has arrived and was not awaited by an event, when nothing more can arrive."""

    def _connection(self, name: str) -> Connection[EndT]:
        if name not in self._connections:
            pair = cast(WirePair, self._context.pairs[name])
            self._connections[name] = Connection(name, pair)
        return self._connections[name]

    def _memories(self) -> dict[str, Memory]:
        """Returns the memory that is filled and compared. Sparse memory may be longer than the machine's."""
        context, kinds = self._context, self._context.case.given.memory
        memories = {**context.memory, **context.dmabufs, **context.buffers}
        return {
            name: memory
            for name, memory in memories.items()
            if name not in kinds or kinds[name].kind != SPARSE
        }

    def _fill(self) -> None:
        for number, (name, memory) in enumerate(self._memories().items()):
            content = _fill(number, memory.size)
            ctypes.memmove(memory.addr, content, memory.size)
            self._before[name] = content

    def _numbers(self, event: Event) -> dict[str, int]:
        return {key: self._context.bytes(value) for key, value in event.numbers.items()}

    def _note(
        self,
        event: Event,
        what: str,
        seen: str,
        expected: Sequence[str],
        **more: Any,
    ) -> None:
        entry: EventSeen = {
            "event": str(event),
            "what": what,
            "operation": event.word if event.kind in ("op", "answer", "sends") else self._subject,
            "expected": list(expected),
            "seen": seen,
            **more,  # type: ignore[typeddict-item]
        }
        self._seen.append(entry)

    def _differences(self, request: Parsed, numbers: Mapping[str, int]) -> list[str]:
        """Returns in words the fields of a request of the device, and its number of bytes, that are not these numbers,
        and whether it has other bytes than those of the memory `from` an address on."""
        present = {**request.fields, "data": len(request.data)}
        wrong: list[str] = []
        for key, value in numbers.items():
            if key in ("from", "after"):
                continue
            field = "va" if key == "addr" else key
            if present.get(field) != value:
                wrong.append(f"{field} {present.get(field, 0):#x} instead of {value:#x}")
        if "from" in numbers and request.data != self._content(numbers["from"], len(request.data)):
            wrong.append("other bytes than those that were posted")
        return wrong

    def _call(self, event: Event) -> None:
        from conformance.execution.procedure import succeeded_step

        step = event.step
        assert step is not None
        before = self._context.next_wr_id()
        succeeded_step(self._context, step)
        if step.call == RESET_QP:
            self._begin_anew(str(step.arguments["qp"]))
        if step.call == BEGIN_BIND:
            connection = self._connection(str(step.arguments["qp"]))
            connection.posted += range(before + 1, self._context.next_wr_id())

    def _begin_anew(self, name: str) -> None:
        """Forgets the state of a connection whose queue pair was reset."""
        self._connections.pop(name, None)

    def _content(self, at: int, length: int) -> bytes:
        """Returns the bytes of a range that is in the case's memory; no bytes for any other range."""
        for memory in self._memories().values():
            if memory.addr <= at and at + length <= memory.addr + memory.size:
                return ctypes.string_at(at, length)
        return b""

    def _post(self, connection: Connection[EndT], event: Event) -> None:
        from conformance.bench.calls import Sge, errno_name
        from conformance.errors import SetupRefused

        numbers, wr_id = self._numbers(event), self._context.next_wr_id()
        sges: tuple[Sge, ...] = ()
        if event.word == "ATOMIC_WRITE":
            word = self._content(numbers["addr"], WORD)
            numbers["swap"] = int.from_bytes(word, sys.byteorder)
        elif "addr" in numbers:
            addr, length, lkey = (numbers.get(key, 0) for key in ("addr", "length", "lkey"))
            split = numbers.get("split", length)
            sges = (Sge(addr, split, lkey),)
            if split < length:
                sges += (Sge(addr + split, length - split, lkey),)
        request = SendRequest(
            event.word,
            wr_id,
            sges,
            remote_addr=numbers.get("to", 0),
            rkey=numbers.get("rkey", 0),
            imm=numbers.get("imm", 0),
            invalidate_rkey=numbers.get("inv", 0),
            compare_add=numbers.get("compare", 0),
            swap=numbers.get("swap", 0),
            length=numbers.get("length", 0),
            flags=_flags_of(event),
        )
        self._subject = event.word
        connection.posted.append(wr_id)
        returned = connection.queue.post_send(request)
        if returned.value:
            raise SetupRefused(f"posting {event.word}", errno_name(returned.value))

    def _completion(
        self, connection: Connection[EndT], event: Event, sends: bool
    ) -> Completion | None:
        if sends:
            queue = connection.sent_completions
        else:
            queue = connection.receive_completions
        deadline_s = SILENCE_S if sends else self.receive_s
        if NOTHING in event.words:
            connection.end.settle()
            deadline_s = _AT_ONCE_S
        while not queue and connection.poll(deadline_s):
            pass
        if queue:
            return queue.pop(0)
        return None

    def _completes(self, connection: Connection[EndT], event: Event) -> None:
        completion = self._completion(connection, event, sends=True)
        if completion and completion.status != "SUCCESS":
            connection.is_in_error = True
        self._note(event, "completion", _status(completion), event.words)

    def _receives(self, connection: Connection[EndT], event: Event) -> None:
        completion = self._completion(connection, event, sends=False)
        pairs: dict[str, list[int | None]] = {}
        if completion and completion.status == "SUCCESS":
            told_ = {
                "length": completion.byte_len,
                "imm": completion.imm,
                "inv": completion.invalidated_rkey,
            }
            for key, value in self._numbers(event).items():
                pairs[key] = [told_[key], value]
        more = {"fields": pairs} if pairs else {}
        self._note(event, "receive", _status(completion), event.words, **more)

    def _state(self, connection: Connection[EndT], event: Event) -> None:
        connection.end.settle()
        seen = state_of(connection.pair, connection.queue)
        if seen:
            self._note(event, "state", seen, event.words)

    def _changed(self, connection: Connection[EndT], event: Event) -> None:
        numbers = self._numbers(event)
        at = numbers["changed"]
        if "holds" in numbers or "add" in numbers:
            value = numbers.get("holds", 0)
            if "add" in numbers:
                old = int.from_bytes(self._original(at, WORD), sys.byteorder)
                value = (old + numbers["add"]) % (1 << 64)
            self._expected.append((at, value.to_bytes(WORD, sys.byteorder)))
            return
        start, length = numbers.get("offset", 0), numbers["length"]
        self._expected.append((at, pattern(start + length)[start:]))

    def _may_change(self, connection: Connection[EndT], event: Event) -> None:
        numbers = self._numbers(event)
        self._free.append((numbers["may_change"], numbers["length"]))

    def _original(self, at: int, length: int) -> bytes:
        for name, memory in self._memories().items():
            if memory.addr <= at and at + length <= memory.addr + memory.size:
                start = at - memory.addr
                return self._before[name][start : start + length]
        raise LookupError(f"{length} bytes at {at:#x} are outside the case's memory")

    def _observation(self) -> Observation:
        for connection in self._connections.values():
            self._drain(connection)
        observation = told()
        observation |= {"layer": "device", "exchange": self._seen}
        stray, missing = self._changes()
        if stray:
            observation["stray"] = stray
        if missing:
            observation["missing"] = missing
        if self._malformed:
            observation["wrong_packets"] = sorted(set(self._malformed))
        unasked = [
            f"{connection.name}: {packet.name}"
            for connection in self._connections.values()
            for packet in connection.packets
        ]
        if unasked:
            observation["unasked"] = unasked
        announced = [
            f"{connection.name}: {completion.opcode} of {completion.byte_len} bytes"
            for connection in self._connections.values()
            for completion in connection.receive_completions
            if completion.status == "SUCCESS"
        ]
        if announced:
            observation["announced"] = announced
        return observation

    def _drain(self, connection: Connection[EndT]) -> None:
        connection.end.settle()
        self._take_late(connection)
        before = -1
        while before != len(connection.sent_completions) + len(connection.receive_completions):
            before = len(connection.sent_completions) + len(connection.receive_completions)
            connection.poll(_AT_ONCE_S)

    def _changes(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """Returns the ranges that changed but should not, and those that have not the expected bytes, each as memory,
        offset and size."""
        stray: list[list[Any]] = []
        missing: list[list[Any]] = []
        for name, memory in self._memories().items():
            expected = bytearray(self._before[name])
            touched: list[tuple[int, int]] = []
            for at, content in self._expected:
                start = at - memory.addr
                if start >= 0 and start + len(content) <= memory.size:
                    expected[start : start + len(content)] = content
                    touched.append((start, start + len(content)))
            actual = ctypes.string_at(memory.addr, memory.size)
            for at, size in self._free:
                start = at - memory.addr
                if start >= 0 and start + size <= memory.size:
                    expected[start : start + size] = actual[start : start + size]
            for start, size in changed_ranges(actual, bytes(expected)):
                inside = any(begin <= start < end for begin, end in touched)
                (missing if inside else stray).append([name, start, size])
        return stray, missing
