"""Carries out one point of the model of an access: its request with all elements, and what both ends then show. The
observation has no address, key or number of a queue pair, so it can be compared with that of the reference."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from conformance.bench.calls import Sge, Window
from conformance.bench.memory_areas import BEFORE, EMPTY, pattern, repeated
from conformance.bench.work_requests import SIGNALED, SendRequest
from conformance.combinations import earlier
from conformance.combinations.contents import Contents, Range
from conformance.combinations.extent import Extent
from conformance.combinations.objects import FLUSH, LEAST, Link, LinkSpec, Objects, only
from conformance.combinations.posted import FILLS_LOCAL_MEMORY, IMMEDIATE, Message
from conformance.combinations.stored import NULL
from conformance.errors import HostLacks, SetupRefused
from conformance.kernel import paging
from conformance.model.case import SMALLEST_MTU_BYTES
from conformance.model.combinations import IN_FLIGHT
from conformance.model.expected_errors import DATAGRAM_HEADER
from conformance.model.observation import AccessSeen
from conformance.model.operations import ATOMICS, SENDS
from conformance.verbs import ENUMS

_FLAGS = ENUMS["ibv_send_flags"]
_SPACE = 1 << 64
_WORD = 8
_EXTRA = {"exact": 0, "longer": 64, "shorter": -1}  # bytes of a receive beyond its message
# The places whose bytes are not all in the range that the key opens.
_BEYOND = ("one_beyond", "one_before", "across_start", "across_end", "behind")
# With the bytes that are there before, the addition carries from each byte into the next.
_ADDED, _SWAPPED = 0x8182_8384_8586_8788, 0x9192_9394_9596_9798
WORDS = (*ATOMICS, "ATOMIC_WRITE")
_WINDOWS = ("window_1", "window_2", "rebound_1", "rebound_2", "window_2_zero")
# Memory whose part behind a page cannot be accessed, or not be written.
_PROTECTED = ("no_access", "read_only")


@dataclass(frozen=True)
class Element:
    """One element: its bytes in this process, and how the request names them."""

    place: Range
    sge: Sge


class Access:
    """One point: the values of its parameters, its faults, and the objects that carry it out."""

    def __init__(
        self, objects: Objects, values: Mapping[str, str], faults: Sequence[str] = ()
    ) -> None:
        self.objects, self.values, self.faults = objects, values, faults
        self.operation, self.transport = values["operation"], values["transport"]
        self.side = only(values["side"], "remote", "local", "receive")
        self.inline = values["flags"] == "inline"
        self._windows: list[Window] = []  # of this point alone

    # What is posted

    @property
    def packet(self) -> int:
        """The number of bytes in a packet."""
        if self.values["path_mtu"] == LEAST:
            return SMALLEST_MTU_BYTES
        return self.objects.packet

    @property
    def size(self) -> int:
        """The number of bytes of the message."""
        packet = self.packet
        sizes = {
            "no_bytes": 0,
            "byte": 1,
            "word": _WORD,
            "below_packet": packet - 1,
            "packet": packet,
            "above_packet": packet + 1,
            "several": 3 * packet + 5,
            "pages": 2 * self.objects.bench.page + 5,
        }
        return sizes[self.values["size"]]

    def lengths(self, size: int) -> list[int]:
        """Returns the number of bytes of each element of a list with `size` bytes."""
        elements, split = self.values["elements"], self.values["split"]
        if elements == "only":
            return [size]
        count = int(elements[-1])
        first = {"half": size // count, "packet": self.packet, "one": 1}[split]
        lengths = [first]
        while len(lengths) < count - 1:
            lengths.append((size - first) // 2 if split == "packet" else first)
        return [*lengths, size - sum(lengths)]

    @property
    def number(self) -> int:
        """The index of the element that is in the region."""
        order = {"only": 0, "first": 0, "middle": 1, "last": -1}
        return order[self.values["elements"].partition("_")[0]]

    def start(self, extent: Extent, length: int) -> tuple[int, int]:
        """Returns the address in the process, and in requests, of `length` bytes at the point's place."""
        if self.operation in WORDS and self.side == "remote":
            step = _WORD
        else:
            step = 1
        middle = extent.length // 2 & -_WORD
        boundary = self._boundary(extent)
        place = self.values["place"]
        if place == "wrap":
            return 0, _SPACE - max(_WORD if step == _WORD else 1, length // 2)
        half = length // 2
        offsets = {
            "first": 0,
            "inner": middle,
            "odd": middle + 1,
            "page": boundary - (_WORD if length <= _WORD else half & -_WORD),
            "last": extent.length - length,
            "one_beyond": extent.length - length + step,
            "one_before": -step,
            "across_start": -half,
            "across_end": extent.length - half,
            "behind": extent.length,
        }
        offset = offsets[place]
        return extent.addr + offset, (extent.base + offset) % _SPACE

    def _boundary(self, extent: Extent) -> int:
        """Returns the offset of the end of a page, around which the place `page` is."""
        page = self.objects.bench.page
        return -(-(extent.addr + page) // page) * page - extent.addr

    def extent(self, link: Link) -> Extent:
        """Returns the memory that the point's key opens or seems to open. Raises SetupRefused."""
        objects, values = self.objects, self.values
        key, how = values["key"], self._how()
        if key == "ended":
            return objects.ended(*how)
        if key == "other_process":
            return objects.elsewhere("reg_mr")
        if key == "other_domain":
            return objects.region(*how, pd="other").extent
        region = objects.region(*how)
        rights = values["window_rights"]
        if key in _WINDOWS:
            kind = 1 if key.endswith("_1") else 2
            again = key.startswith("rebound")
            return objects.window(link, region, kind, rights, key == "window_2_zero", again)
        if key == "other_queue":
            second = objects.link(self._link_spec()._replace(rights="all", second=True))
            objects.renew_if_stale(second)
            return objects.window(second, region, 2, rights, False)
        if key == "invented":
            return objects.invented(region.extent)
        if key in ("unbound", "earlier"):
            return self._useless(link, key)
        only(key, "region")
        return region.extent

    def _how(self) -> tuple[str, str, str, str]:
        values = self.values
        return values["region"], values["memory"], values["rights"], values["bounds"]

    def _link_spec(self) -> LinkSpec:
        values = self.values
        return LinkSpec(
            values["transport"],
            values["posting"],
            values["queue_rights"],
            values["polling"],
            values["path_mtu"],
            self.inline,
        )

    def _useless(self, link: Link, key: str) -> Extent:
        """Returns the extent of a region, with the key of a window that was never bound, or from before its bind."""
        objects = self.objects
        region = objects.region(*self._how())
        window = objects.allocated(1 if key == "earlier" else 2)
        self._windows.append(window)
        rkey = window.rkey
        if key == "earlier":
            objects.bound(link, window, region, 1, "all", False)
            rkey = window.rkey
            objects.bound(link, window, region, 1, "all", False)
        whole = region.extent
        return Extent(whole.addr, whole.length, whole.base, rkey, rkey)

    # Carrying out

    def observe(self) -> AccessSeen:
        """Carries out the point. The observation has the set-up's refusal if an object cannot be made."""
        try:
            return self._observed(self.objects.link(self._link_spec()))
        except SetupRefused as refusal:
            return {"setup_failed": str(refusal)}

    def _observed(self, link: Link) -> AccessSeen:
        """Carries out the point on a connection, which is renewed afterwards if it has failed. Raises SetupRefused."""
        try:
            before = self.values["before"]
            earlier.carry_out(self.objects, before, self.transport, self.packet, link)
            return self._exchange(link, self.extent(link))
        except HostLacks as lack:  # such as bindings that cannot read a field of a completion
            link.connection.stale = True
            raise SetupRefused(str(lack), "") from lack
        finally:
            self._end_point(link)

    def _end_point(self, link: Link) -> None:
        """Deallocates the windows of the point, before the queue pair is renewed over which they are bound."""
        for window in self._windows:
            self.objects.deallocate(window)
        self._windows.clear()
        self.objects.renew_if_stale(link)

    def _exchange(self, link: Link, extent: Extent) -> AccessSeen:
        objects, values = self.objects, self.values
        stored = objects.memories.of_region(values["region"], values["memory"])
        plain = objects.memories.of_kind("plain")
        opened = extent
        if values["memory"] in _PROTECTED:
            opened = replace(extent, length=self._boundary(extent))
        contents = Contents({True: stored, False: plain}, opened)
        local, remote, received = self._sides(extent)
        self._place_contents(contents, local, remote, received)
        contents.fill()
        if self.transport == "UD" and received:
            self._ignore_header(contents, received)
        self._expect(contents, local, remote, received)
        if values["memory"] == "dropped":
            paging.advise(stored.addr, stored.size, "DONTNEED")
        invalidated = self._window_to_invalidate(link)
        if values["before"] == IN_FLIGHT:
            earlier.send_on(objects, self.transport, link)
        request = self._request(local, remote, invalidated)
        before = values["before"]
        message = Message(objects, link, self.transport, self.size, values["flags"], before)
        behind = Range(extent.addr + opened.length, extent.length - opened.length, True)
        with self._protected(behind):
            seen = self._shown(lambda: message.post(request, [part.sge for part in received]))
        tested, other = contents.states()
        if values["capacity"] == "shorter" and tested == "all":
            tested = "within"  # the packets before the last may fill elements that the key opens
        return {**seen, "tested": tested, "other": other}

    def _shown(self, post: Callable[[], AccessSeen]) -> AccessSeen:
        """Posts the request. Returns what both ends show."""
        return post()

    @contextmanager
    def _protected(self, behind: Range) -> Iterator[None]:
        """Protects the pages of a range, which may be empty, and then restores the access to them."""
        if not behind.length:
            yield
            return
        paging.protect(behind.addr, behind.length, self.values["memory"] == "read_only")
        try:
            yield
        finally:
            paging.unprotect(behind.addr, behind.length)

    def _sides(self, extent: Extent) -> tuple[list[Element], Element | None, list[Element]]:
        """Returns the elements of the request, the memory that its rkey names, and the elements of the receive."""
        size, sends = self.size, self.operation in SENDS
        plain = self.objects.region("reg_mr", "plain", "all").extent
        extra = _EXTRA[self.values["capacity"]]
        if self.operation in ("ATOMIC_WRITE", FLUSH):
            lists = []
        else:
            lists = self.lengths(size)
        if self.side == "receive":
            if self.transport == "UD":
                header = DATAGRAM_HEADER
            else:
                header = 0
            received = self._list(self.lengths(size + header + extra), extent, plain.length // 2)
            return self._list([size], None, 0), None, received
        if self.side == "local":
            tested = extent
        else:
            tested = None
        local = self._list(lists, tested, 0)
        if sends:
            if self.transport == "UD":
                header = DATAGRAM_HEADER
            else:
                header = 0
            return local, None, self._list([size + header + extra], None, plain.length // 2)
        if self.side == "remote":
            addr, base = self.start(extent, size)
            named = Sge(base, size, 0, extent.rkey)
            return local, Element(Range(addr, size, True), named), []
        addr = plain.addr + plain.length // 2 & -_WORD
        return local, Element(Range(addr, size, False), Sge(addr, size, 0, plain.rkey)), []

    def _list(self, lengths: list[int], tested: Extent | None, start: int) -> list[Element]:
        """Returns elements of these lengths. The element `number` is in `tested`, if given, and the others are one
        after the other in the other memory, from the offset `start` on."""
        plain = self.objects.region("reg_mr", "plain", "all").extent
        at = plain.addr + start & -_WORD
        if lengths:
            which = self.number % len(lengths)
        else:
            which = 0
        elements = []
        for number, length in enumerate(lengths):
            if tested is not None and number == which:
                addr, base = self.start(tested, length)
                if self.inline and self.side == "local":
                    base = addr
                elements.append(Element(Range(addr, length, True), Sge(base, length, tested.lkey)))
                continue
            elements.append(Element(Range(at, length, False), Sge(at, length, plain.lkey)))
            at += length
        return elements

    def _place_contents(
        self,
        contents: Contents,
        local: list[Element],
        remote: Element | None,
        received: list[Element],
    ) -> None:
        """Puts the message into the memory from which it is read, and other known bytes where it is written."""
        reads, message = self.operation in FILLS_LOCAL_MEMORY, pattern(self.size)
        for element in local:
            part, message = message[: element.place.length], message[element.place.length :]
            if reads:
                content = repeated(EMPTY, element.place.length)
            else:
                content = part
            self._put(contents, element, content)
        for element in (*received, *([remote] if remote else [])):
            length = element.place.length
            if self.operation == "RDMA_READ":
                content = pattern(length)
            else:
                content = repeated(BEFORE, length)
            self._put(contents, element, content)

    def _put(self, contents: Contents, element: Element, content: bytes) -> None:
        if element.place.addr:  # else the place is beyond the end of the address space
            contents.put(element.place, content)

    def _expect(
        self,
        contents: Contents,
        local: list[Element],
        remote: Element | None,
        received: list[Element],
    ) -> None:
        """Expects what a complete operation writes."""
        if remote is None or self.operation.startswith("RDMA_WRITE"):
            self._scatter(
                contents, self._sources(contents, local), [remote] if remote else received
            )
            return
        secret = remote.place.tested
        if self.operation == "RDMA_READ":
            sent = self._divided(contents, remote.place, pattern(self.size), secret)
            self._scatter(contents, sent, local)
            return
        if self.operation == FLUSH:
            return
        before = int.from_bytes(repeated(BEFORE, _WORD), sys.byteorder)
        if self.operation == "ATOMIC_FETCH_AND_ADD":
            after = before + _ADDED
        else:
            after = _SWAPPED
        self._write(contents, remote, (after % _SPACE).to_bytes(_WORD, sys.byteorder), False)
        for element in local:
            self._write(contents, element, repeated(BEFORE, _WORD), secret)

    def _ignore_header(self, contents: Contents, received: list[Element]) -> None:
        missing = DATAGRAM_HEADER
        for element in received:
            place, taken = element.place, min(missing, element.place.length)
            if place.addr and taken:
                contents.ignore(Range(place.addr, taken, place.tested))
            missing -= taken

    def _sources(self, contents: Contents, local: list[Element]) -> list[tuple[bytes, bool]]:
        """Returns the parts of the message, each with whether a refused request must not send it: the bytes of the
        region under test. If only the range is wrong, the packets before may send what the key opens."""
        message, parts = pattern(self.size), list[tuple[bytes, bool]]()
        for element in local:
            place = element.place
            content, message = message[: place.length], message[place.length :]
            secret = place.tested and self.values["capacity"] != "shorter"
            if place.tested and self.values["region"] == NULL:
                content = bytes(len(content))
            if place.addr and self.values["place"] in _BEYOND:
                parts += self._opened(contents, place, content)
            else:
                parts += self._divided(contents, place, content, secret)
        return parts

    def _divided(
        self,
        contents: Contents,
        place: Range,
        content: bytes,
        secret: bool,
    ) -> list[tuple[bytes, bool]]:
        """Returns the parts of what is read at a place: the packets in front of protected memory may be sent."""
        if self.values["memory"] == "no_access":
            return self._opened(contents, place, content)
        return [(content, secret)]

    def _opened(self, contents: Contents, place: Range, content: bytes) -> list[tuple[bytes, bool]]:
        """Returns the bytes in front of what the key opens, those that it opens and those behind, each with whether
        they must not be sent."""
        if not place.tested:
            return [(content, False)]
        start, end = contents.extent.opened(place.addr, place.length)
        return [(content[:start], True), (content[start:end], False), (content[end:], True)]

    def _scatter(
        self,
        contents: Contents,
        parts: list[tuple[bytes, bool]],
        targets: list[Element],
    ) -> None:
        """Expects the parts of a message one after the other in the targets. A datagram follows its header."""
        if self.transport == "UD":
            at = -DATAGRAM_HEADER
        else:
            at = 0
        for element in targets:
            place, end = element.place, at + element.place.length
            start = 0
            for content, secret in parts:
                first, last = max(start, at), min(start + len(content), end)
                if first < last and not place.addr:
                    contents.nowhere.add(place.tested)
                elif first < last and not self._discards(place):
                    inside = Range(place.addr + first - at, last - first, place.tested)
                    taken = content[first - start : last - start]
                    contents.expect(inside, taken, secret and not place.tested)
                start += len(content)
            at = end

    def _discards(self, place: Range) -> bool:
        """Whether a null region takes the bytes. A peer has no key of it, and must be refused."""
        return place.tested and self.values["region"] == NULL and self.side != "remote"

    def _write(self, contents: Contents, element: Element, content: bytes, secret: bool) -> None:
        if self._discards(element.place):
            return
        if element.place.addr:
            contents.expect(element.place, content, secret and not element.place.tested)
        else:
            contents.nowhere.add(element.place.tested)

    def _window_to_invalidate(self, link: Link) -> int:
        if self.operation != "SEND_WITH_INV":
            return 0
        plain = self.objects.region("reg_mr", "plain", "all")
        window = self.objects.allocated(2)
        self._windows.append(window)
        return self.objects.bound(link, window, plain, 2, "all", False).rkey

    def _request(
        self,
        local: list[Element],
        remote: Element | None,
        invalidated: int,
    ) -> SendRequest:
        before = int.from_bytes(repeated(BEFORE, _WORD), sys.byteorder)
        adds = self.operation == "ATOMIC_FETCH_AND_ADD"
        named = {"unsignaled": 0, "signaled": SIGNALED}
        extra = self.values["flags"]
        if extra in named:
            flags = named[extra]
        else:
            flags = SIGNALED | _FLAGS.value_of(extra.upper())
        return SendRequest(
            self.operation,
            self.objects.wr_id(),
            tuple(element.sge for element in local),
            flags,
            remote.sge.addr if remote else 0,
            remote.sge.rkey if remote else 0,
            IMMEDIATE,
            invalidated,
            _ADDED if adds else before,
            _SWAPPED,
            self.size,
        )
