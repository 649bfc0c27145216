"""Sketches what a request moved, and where, from the data of its fault: the range that its key grants, the range that
the request addressed, and the bytes that moved. Only faults of the data path have a sketch. It is to scale, and without
numbers it is text alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.defects import AWAITED
from conformance.errors import format_count
from conformance.model.fault import Effect, Fault
from conformance.model.positions import locate

WIDTH = 100.0  # of a lane, in percent
_LEAST = 0.8  # the least width of a block, so that one byte can be seen
_PAGE = 4096
_LENGTH = re.compile(r"\blength=([^,)]*)")
_POSITION = re.compile(r"\bposition=([^,)]*)")
_PLACES: Mapping[str, str] = {  # of the bytes of a request, before the number of bytes of its range
    "first": "the first of",
    "last": "the last of",
    "before": "before the",
    "after": "after the",
    "across-start": "across the start of the",
    "across-end": "across the end of the",
}
_ADDRESS = re.compile(r"\baddr=([^,)]*)")
_KEY = re.compile(r"\b[rl]key=(\w+)\.[rl]key\b")
_SIGNED = re.compile(r"([+-]) (\d+)( pages?)?")
_TERM = re.compile(r"(\d+)( pages?)?")
_CHANGED = "changed"  # the name of a lane
_STRETCH = re.compile(r"(\d+) at ([+-]\d+)")
GRANTED, ADDRESSED, WITHIN, WRONG = "granted", "addressed", "within", "wrong"
UNCHANGED = "unchanged"  # the gaps between the blocks of a lane
_MEANINGS: Mapping[str, str] = {
    GRANTED: "granted",
    ADDRESSED: "addressed by the request",
    WITHIN: "inside the addressed range",
    WRONG: "must not move",
    UNCHANGED: "not changed",
}


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

    @property
    def key(self) -> Mapping[str, str]:
        """What the colours mean, by kind of block."""
        kinds = {block.kind for lane in self.lanes for block in lane.blocks}
        changed = self.lanes[-1]
        covered = sum(block.width for block in changed.blocks)
        if changed.name == _CHANGED and covered < WIDTH - 0.2:  # widths are rounded
            kinds.add(UNCHANGED)
        return {kind: meaning for kind, meaning in _MEANINGS.items() if kind in kinds}


def sketch_of(fault: Fault, given: Sequence[str] = ()) -> Sketch | None:
    """`given` describes the objects of the case, one in a line, and then has the calls before the request."""
    if not fault.operation:
        return None
    if fault.effect is Effect.MISPLACED and (stretches := list(_stretches(fault))):
        return _of_misplaced(fault, stretches)
    if fault.effect is Effect.MOVED:
        return _of_moved(fault, given)
    return None


def _stretches(fault: Fault) -> Iterator[tuple[int, int]]:
    """Yields the offset and the number of the bytes of each changed range, relative to the addressed range."""
    for text in fault.seen:
        if match := _STRETCH.fullmatch(text):
            yield int(match[2]), int(match[1])


def _length_of(call: str) -> int | None:
    """Returns the number of bytes that a request addresses; None if the call does not have it as a number."""
    lengths = {*_LENGTH.findall(call)}
    if len(lengths) != 1:  # none, or several requests
        return None
    total = 0
    for term in lengths.pop().split(" + "):
        amount = _TERM.fullmatch(term)
        if amount is None:
            return None
        total += int(amount[1]) * (_PAGE if amount[2] else 1)
    return total


def _placed(fault: Fault) -> tuple[int, int, str] | None:
    """Returns the offset of a request from the address of its call, the number of its bytes, and these bytes in words.
    A position is a part of the range of `length` bytes. None if the call does not have them as numbers."""
    length, positions = _length_of(fault.call), {*_POSITION.findall(fault.call)} or {"whole"}
    if length is None or len(positions) > 1:
        return None
    position = "exact" if fault.call.startswith("wire(") else positions.pop()
    _, address = _address_of(fault.call) or ("", 0)
    try:
        offset, size = locate(position, fault.operation, address, length)
    except LookupError:
        return None
    words = format_count(size, "byte")
    if (offset, size) != (0, length):
        words += f", {_PLACES.get(position, 'of the')} {length:,}"
    return offset, size, words


def _of_misplaced(fault: Fault, stretches: Sequence[tuple[int, int]]) -> Sketch:
    _, size, _ = _placed(fault) or (0, 0, "")
    length = size or max(offset + size for offset, size in stretches)
    start = min(0, *(offset for offset, _ in stretches))
    end = max(length, *(offset + size for offset, size in stretches))
    scale = WIDTH / max(end - start, 1)
    blocks = []
    for offset, size in stretches:
        inside = offset >= 0 and offset + size <= length
        kind = WITHIN if inside else WRONG
        text = f"{format_count(size, 'byte')} at {offset:+,}"
        blocks.append(_block(kind, offset - start, size, scale, text))
    addressed = _block(ADDRESSED, -start, length, scale, f"{format_count(length, 'byte')} at 0")
    return Sketch((Lane(f"{fault.operation} addresses", [addressed]), Lane(_CHANGED, blocks)))


def _block(kind: str, offset: int, size: int, scale: float, text: str) -> Block:
    width = max(size * scale, _LEAST)
    left = min(offset * scale, WIDTH - width)
    return Block(kind, round(left, 1), round(width, 1), text)


def _address_of(text: str) -> tuple[str, int] | None:
    """Returns the memory and the offset of the only address in a call; None if the call has none, or several."""
    addresses = {*_ADDRESS.findall(text)}
    if len(addresses) != 1:
        return None
    memory, _, rest = addresses.pop().partition(" ")
    offset = 0
    for sign, number, pages in _SIGNED.findall(rest):
        offset += int(sign + number) * (_PAGE if pages else 1)
    return memory.removesuffix(".addr"), offset


def _range_of(fault: Fault, given: Sequence[str]) -> tuple[int, int, int] | None:
    """Returns the size of the range of the object whose key a request uses, the offset of the request in the range,
    and the size of the request; None if the calls do not have them as numbers."""
    keys = {*_KEY.findall(fault.call)}
    lines = [line for line in given for key in keys if line.startswith(f"{key}: ")]
    if lines and not _ADDRESS.search(lines[0]):  # a window that is bound later
        binds = [line for line in given if "bind_mw(" in line]
        lines = [line for line in binds for key in keys if f"mw={key}, " in line]
    if len(lines) != 1:
        return None
    own, length = _address_of(lines[0]), _length_of(lines[0])
    at, placed = _address_of(fault.call), _placed(fault)
    if not own or not at or not length or not placed or not placed[1] or own[0] != at[0]:
        return None
    return length, at[1] + placed[0] - own[1], placed[1]


def _across(fault: Fault, length: int, offset: int, size: int) -> Sketch:
    start, end = min(0, offset), max(length, offset + size)
    scale = WIDTH / (end - start)
    inside = max(0, min(length, offset + size) - max(0, offset))
    granted = _block(GRANTED, -start, length, scale, f"{format_count(length, 'byte')} at 0")
    text = f"{format_count(size, 'byte')} at {offset:+,}: {inside:,} inside and {size - inside:,} outside of the range"
    moved = _block(WRONG, offset - start, size, scale, text)
    return Sketch((Lane(f"the {fault.key} grants", [granted]), Lane(_moved(fault), [moved])))


def _moved(fault: Fault) -> str:
    return f"{'read' if 'READ' in fault.operation else 'moved'} nevertheless"


def _of_race(fault: Fault, key: str) -> Sketch:
    """Sketches a request that was in flight when its key ended, or when what it needs was replaced."""
    end = f"the end of its {fault.decides or 'key'}"
    granted = Lane(f"the {key} grants", [], f"its range, until {end}")
    return Sketch((granted, Lane(_moved(fault), [], f"bytes after {end}")))


def _of_moved(fault: Fault, given: Sequence[str]) -> Sketch:
    _, _, size = _placed(fault) or (0, 0, "the bytes")
    key = fault.key or "object"
    if fault.outside and not fault.dead and (known := _range_of(fault, given)):
        return _across(fault, *known)
    # What the calls do not have as numbers is not drawn, because a bar would look measured.
    if fault.verb == AWAITED and not fault.dead:
        return _of_race(fault, key)
    if fault.dead:
        end = fault.ended or "an earlier call"
        remark = f"nothing: {end} has ended it"
        # a re-registration may keep the key
        if fault.decides and "rereg" in end:
            remark = f"no {fault.operation} by this request: {end} has replaced the {fault.decides}"
        granted = Lane(f"the {key}'s key grants", [], remark)
    elif fault.outside:
        granted = Lane(f"the {key} grants", [], "its range")
        size += ", not all of them in the range"
    else:
        granted = Lane(
            f"the {key} grants", [], f"its range, but not {fault.operation} by this request"
        )
    return Sketch((granted, Lane(_moved(fault), [], size)))
