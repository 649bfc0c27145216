"""Sketches what a request moved, and where, from the data of its fault: the range that its key grants, the range that
the request addressed, and the bytes that moved. Only faults of the data path have a sketch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance.model.fault import Effect, Fault

WIDTH = 100.0  # of a lane, in percent
_LEAST = 0.8  # the least width of a block, so that one byte can be seen
_PAGE = 4096
_LENGTH = re.compile(r"\blength=([^,)]*)")
_TERM = re.compile(r"(\d+)( pages?)?")
_STRETCH = re.compile(r"(\d+) at ([+-]\d+)")
GRANTED, ADDRESSED, RIGHT, WRONG = "granted", "addressed", "right", "wrong"


@dataclass(frozen=True)
class Block:
    """Bytes in a lane, with their position and width in the sketch."""

    kind: str
    left: float
    width: float
    text: str


@dataclass(frozen=True)
class Lane:
    name: str
    blocks: Sequence[Block]
    remark: str = ""

    @property
    def words(self) -> str:
        """The lane as text, also for readers who do not see it."""
        if self.blocks:
            return ", ".join(block.text for block in self.blocks)
        return self.remark


@dataclass(frozen=True)
class Sketch:
    lanes: Sequence[Lane]


def sketch_of(fault: Fault) -> Sketch | None:
    if not fault.operation:
        return None
    if fault.effect is Effect.MISPLACED and (stretches := list(_stretches(fault))):
        return _of_misplaced(fault, stretches)
    if fault.effect is Effect.MOVED:
        return _of_moved(fault)
    return None


def _stretches(fault: Fault) -> Iterator[tuple[int, int]]:
    """Yields the offset and the number of the bytes of each changed range, relative to the addressed range."""
    for text in fault.seen:
        if match := _STRETCH.fullmatch(text):
            yield int(match[2]), int(match[1])


def _length_of(call: str) -> int | None:
    """Returns the number of bytes that a request addresses; None if the call does not have it as a number."""
    match = _LENGTH.search(call)
    if match is None:
        return None
    total = 0
    for term in match[1].split(" + "):
        amount = _TERM.fullmatch(term)
        if amount is None:
            return None
        total += int(amount[1]) * (_PAGE if amount[2] else 1)
    return total


def _of_misplaced(fault: Fault, stretches: Sequence[tuple[int, int]]) -> Sketch:
    length = _length_of(fault.call) or max(offset + size for offset, size in stretches)
    start = min(0, *(offset for offset, _ in stretches))
    end = max(length, *(offset + size for offset, size in stretches))
    scale = WIDTH / max(end - start, 1)
    blocks = []
    for offset, size in stretches:
        inside = offset >= 0 and offset + size <= length
        kind = RIGHT if inside else WRONG
        text = f"{size:,} bytes at {offset:+,}"
        blocks.append(_block(kind, offset - start, size, scale, text))
    addressed = _block(ADDRESSED, -start, length, scale, f"{length:,} bytes at 0")
    return Sketch((Lane(f"{fault.operation} addresses", [addressed]), Lane("changed", blocks)))


def _block(kind: str, offset: int, size: int, scale: float, text: str) -> Block:
    width = max(size * scale, _LEAST)
    left = min(offset * scale, WIDTH - width)
    return Block(kind, round(left, 1), round(width, 1), text)


def _of_moved(fault: Fault) -> Sketch:
    length = _length_of(fault.call)
    if length is None:
        size = "the bytes"
    else:
        size = f"{length:,} bytes"
    key = fault.key or "object"
    half = WIDTH / 2
    if fault.dead:
        end = fault.ended or "an earlier call"
        granted = Lane(f"the {key}'s key grants", [], f"nothing: {end} has ended it")
        place = (0.0, half)
    elif fault.outside:
        granted = Lane(f"the {key} grants", [Block(GRANTED, 0.0, half, "its range")])
        place = (half, half / 2)
    else:
        right = f"its range, but not {fault.operation} by this request"
        granted = Lane(f"the {key} grants", [Block(GRANTED, 0.0, WIDTH, right)])
        place = (0.0, half)
    if "READ" in fault.operation:
        moved = "read nevertheless"
    else:
        moved = "moved nevertheless"
    where = f"{size} outside of the range" if fault.outside else size
    return Sketch((granted, Lane(moved, [Block(WRONG, *place, where)])))
