"""Carries out one point of the model of an access: its request with all elements, and what both ends then show. The
observation has no address, key or number of a queue pair, so it can be compared with that of the reference."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from conformance.bench.calls import Sge, Window, errno_name
from conformance.bench.interface import Queue
from conformance.bench.memory_areas import BEFORE, EMPTY, pattern, repeated
from conformance.bench.work_requests import (
    BEHIND,
    NO_BYTES,
    SIGNALED,
    Completion,
    SendRequest,
)
from conformance.combinations.contents import Contents, Range
from conformance.combinations.extent import Extent
from conformance.combinations.objects import PATIENCE_S, Link, Objects
from conformance.errors import SetupRefused
from conformance.execution.connection import SILENCE_S, post_receives
from conformance.kernel import paging
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE
from conformance.model.observation import AccessSeen
from conformance.verbs import ENUMS

_FLAGS = ENUMS["ibv_send_flags"]
_IMMEDIATE = 0xC0FFEE01
_SPACE = 1 << 64
_WORD = 8
# The places whose bytes are not all in the range that the key opens.
_BEYOND = ("one_beyond", "one_before", "across_start", "across_end", "behind")
_ADDED, _SWAPPED = 0x0101_0101_0101_0101, 0x9192_9394_9596_9798
WORDS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "ATOMIC_WRITE")
SENDS = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV")
READS = ("RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
_REFUSED_AT_PEER = ("REM_",)


@dataclass(frozen=True)
class Element:
    """One element: its bytes in this process, and how the request names them."""

    place: Range
    sge: Sge


class Access:
    """One point: the values of its parameters, and the objects that carry it out."""

    def __init__(self, objects: Objects, values: Mapping[str, str]) -> None:
        self.objects, self.values = objects, values
        self.operation, self.transport = values["operation"], values["transport"]
        self.side, self.inline = values["side"], values["flags"] == "inline"
        self.reliable = self.transport in RELIABLE
        self._windows: list[Window] = []  # of this point alone

    # What is posted

    @property
    def size(self) -> int:
        """The number of bytes of the message."""
        packet = self.objects.packet
        sizes = {
            "no_bytes": 0,
            "byte": 1,
            "word": _WORD,
            "below_packet": packet - 1,
            "packet": packet,
            "above_packet": packet + 1,
            "several": 3 * packet + 5,
        }
        return sizes[self.values["size"]]

    def lengths(self, size: int) -> list[int]:
        """Returns the number of bytes of each element of a list with `size` bytes."""
        elements, split = self.values["elements"], self.values["split"]
        if elements == "only":
            return [size]
        count = int(elements[-1])
        first = {"half": size // count, "packet": self.objects.packet, "one": 1}[split]
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
        page = self.objects.bench.page
        boundary = -(-(extent.addr + page) // page) * page - extent.addr
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

    def extent(self, link: Link) -> Extent:
        """Returns the memory that the point's key opens or seems to open. Raises SetupRefused."""
        objects, values = self.objects, self.values
        key, how = values["key"], (values["region"], values["memory"], values["rights"])
        if key == "ended":
            return objects.ended(*how)
        if key == "other_process":
            return objects.elsewhere()
        if key == "other_domain":
            return objects.region(*how, "other").extent
        region = objects.region(*how)
        rights = values["window_rights"]
        if key in ("window_1", "window_2", "window_2_zero"):
            if key == "window_1":
                kind = 1
            else:
                kind = 2
            return objects.window(link, region, kind, rights, key == "window_2_zero")
        if key == "other_queue":
            again = (values["transport"], values["posting"], "all", self.inline)
            second = objects.link(*again, second=True)
            objects.renew_if_stale(second)
            return objects.window(second, region, 2, rights, False)
        if key == "invented":
            return objects.invented(region.extent)
        if key in ("unbound", "earlier"):
            return self._useless(link, key)
        return region.extent

    def _useless(self, link: Link, key: str) -> Extent:
        """Returns the extent of a region, with the key of a window that was never bound, or from before its bind."""
        objects, values = self.objects, self.values
        region = objects.region(values["region"], values["memory"], values["rights"])
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
        values = self.values
        try:
            link = self.objects.link(
                self.transport,
                values["posting"],
                values["queue_rights"],
                self.inline,
            )
            return self._observed(link)
        except SetupRefused as refusal:
            return {"setup_failed": str(refusal)}

    def _observed(self, link: Link) -> AccessSeen:
        """Carries out the point on a connection, which is renewed afterwards if it has failed. Raises SetupRefused."""
        try:
            self._before(link)
            return self._exchange(link, self.extent(link))
        finally:
            # Before a queue pair is destroyed over which they are bound.
            for window in self._windows:
                self.objects.deallocate(window)
            self.objects.renew_if_stale(link)

    def _exchange(self, link: Link, extent: Extent) -> AccessSeen:
        objects, values = self.objects, self.values
        stored = objects.memories.of_region(values["region"], values["memory"])
        plain = objects.memories.of_kind("plain")
        contents = Contents({True: stored, False: plain}, extent)
        local, remote, received = self._sides(extent)
        self._place_contents(contents, local, remote, received)
        contents.fill()
        if self.transport == "UD" and received:
            self._ignore_header(contents, received)
        self._expect(contents, local, remote, received)
        if values["memory"] == "dropped":
            paging.advise(stored.addr, stored.size, "DONTNEED")
        invalidated = self._window_to_invalidate(link)
        request = self._request(local, remote, invalidated)
        seen = self._post(link, request, received)
        tested, other = contents.states()
        return {**seen, "tested": tested, "other": other}

    def _sides(self, extent: Extent) -> tuple[list[Element], Element | None, list[Element]]:
        """Returns the elements of the request, the memory that its rkey names, and the elements of the receive."""
        size, sends = self.size, self.operation in SENDS
        plain = self.objects.region("reg_mr", "plain", "all").extent
        if self.operation == "ATOMIC_WRITE":
            lists = []
        else:
            lists = self.lengths(size)
        if self.side == "receive":
            if self.transport == "UD":
                header = DATAGRAM_HEADER
            else:
                header = 0
            received = self._list(self.lengths(size + header), extent, plain.length // 2)
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
            return local, None, self._list([size + header], None, plain.length // 2)
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
        reads, message = self.operation in READS, pattern(self.size)
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
            self._scatter(contents, [(pattern(self.size), secret)], local)
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
            if place.tested and place.addr and self.values["place"] in _BEYOND:
                start, end = contents.extent.opened(place.addr, place.length)
                pieces = (content[:start], True), (content[start:end], False), (content[end:], True)
                parts += pieces
            else:
                parts.append((content, place.tested))
        return parts

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
                elif first < last:
                    inside = Range(place.addr + first - at, last - first, place.tested)
                    taken = content[first - start : last - start]
                    contents.expect(inside, taken, secret and not place.tested)
                start += len(content)
            at = end

    def _write(self, contents: Contents, element: Element, content: bytes, secret: bool) -> None:
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
            _IMMEDIATE,
            invalidated,
            _ADDED if adds else before,
            _SWAPPED,
        )

    def _post(self, link: Link, request: SendRequest, received: list[Element]) -> AccessSeen:
        """Posts the receives, the request and a SEND without data behind it. Waits for the completions of both."""
        connection, objects = link.connection, self.objects
        queue, peer = connection.pair.requester, connection.pair.responder
        consumes = bool(received) or request.opcode.endswith("_IMM")
        receive_id = objects.wr_id()
        if consumes:
            refused = peer.post_receive([each.sge for each in received] or NO_BYTES, receive_id)
            if refused.value:
                connection.stale = True
                return {"posted": f"receive: {errno_name(refused.value)}"}
        post_receives(peer, [objects.wr_id()], connection.sink)
        returned = queue.post_send(request)
        if returned.value:
            connection.stale = True
            return {"posted": errno_name(returned.value)}
        if request.flags & SIGNALED:
            behind = SendRequest("SEND", request.wr_id | BEHIND, flags=0)
        else:  # its completion tells that the request is over
            behind = SendRequest("SEND", objects.wr_id())
        queue.post_send(behind)
        found, arrived = self._await(queue, peer, request, behind.wr_id, consumes)
        failed = [each for each in (*found, *arrived) if each.status != "SUCCESS"]
        if failed or len(arrived) < 1 + consumes:
            at_peer = any(each.status.startswith(_REFUSED_AT_PEER) for each in found)
            ends = [queue, peer] if at_peer else [queue]
            if found and found[0].status != "SUCCESS":
                connection.mark_failed(request.opcode, found, *ends)
            connection.stale = True
        ids = {request.wr_id: "request", receive_id: "receive"}
        if consumes:
            message = arrived[:1]
        else:
            message = []
        if request.opcode == "RDMA_WRITE_WITH_IMM":
            message = [each for each in message if each.opcode != "RECV"]
        message = [each for each in message if each.status != "WR_FLUSH_ERR"]
        return {
            "posted": "0",
            "requester": [self._shown(each, ids, queue, False) for each in found],
            "receiver": [self._shown(each, ids, peer, True) for each in message],
        }

    def _await(
        self,
        queue: Queue,
        peer: Queue,
        request: SendRequest,
        behind: int,
        consumes: bool,
    ) -> tuple[list[Completion], list[Completion]]:
        """Returns the completions of the request, and those of the receives, of which the last is that of the SEND
        behind the request, whose wr_id is `behind`."""
        arrived: list[Completion] = []

        def all_here() -> bool:
            """Whether the SEND behind the request has arrived, or a receive has failed."""
            if not arrived:
                return False
            last = arrived[-1]
            only_behind = request.opcode.startswith("RDMA_WRITE") and last.opcode == "RECV"
            return len(arrived) > consumes or only_behind or last.status != "SUCCESS"

        found = queue.completions(1, self.objects.patience_s)
        if not found:
            self.objects.patience_s = PATIENCE_S
        elif found[0].wr_id == behind and found[0].status == "SUCCESS":
            found = []
        if found and found[0].status != "SUCCESS":
            taken = consumes and found[0].status == "REM_OP_ERR"
            arrived += peer.completions(1, SILENCE_S) if taken and not arrived else []
            return found, arrived
        while not all_here():
            more = peer.completions(1, self.objects.patience_s if self.reliable else SILENCE_S)
            arrived += more
            if not more:
                break
        return found, arrived

    def _shown(
        self,
        seen: Completion,
        ids: Mapping[int, str],
        queue: Queue,
        receives: bool,
    ) -> list[str]:
        """Returns the fields of a completion as words, without numbers that differ between runs. If the status is an
        error, only it, the wr_id and the number of the queue pair are valid."""
        words = [seen.status, ids.get(seen.wr_id, "another wr_id")]
        if seen.qp_num not in (None, queue.number):
            words.append("another qp_num")
        if seen.status != "SUCCESS":
            return words
        words.append(seen.opcode)
        if receives or self.operation in READS:
            words.append(self._length(seen.byte_len))
        if receives:
            if seen.imm is None:
                imm = "no imm"
            else:
                if seen.imm == _IMMEDIATE:
                    imm = "imm"
                else:
                    imm = "other imm"
            words.append(imm)
            words += ["invalidated"] if seen.invalidated_rkey is not None else []
        return words

    def _length(self, byte_len: int) -> str:
        if self.transport == "UD":
            header = DATAGRAM_HEADER
        else:
            header = 0
        if byte_len == self.size + header:
            return "whole length"
        return f"length {byte_len}"

    def _before(self, link: Link) -> None:
        """Posts what comes before the request on the queue pair. Raises SetupRefused if it does not succeed."""
        before = self.values["before"]
        if before == "nothing":
            return
        plain = self.objects.region("reg_mr", "plain", "all")
        extent = plain.extent
        if before == "zero_window":
            extent = self.objects.window(link, plain, 2, "all", True)
        local, size = plain.extent, _WORD
        if before == "long_message" and self.transport != "UD":
            size = 2 * self.objects.packet + 3
        opcode = {"UD": "SEND"}.get(
            self.transport,
            "RDMA_READ" if before == "read" else "RDMA_WRITE",
        )
        if before in ("refused", "expired"):
            rkey = self.objects.invented(extent).rkey
        else:
            rkey = extent.rkey
        sge = Sge(local.addr, size, local.lkey)
        request = SendRequest(opcode, self.objects.wr_id(), (sge,), SIGNALED, extent.base, rkey)
        pair = link.connection.pair
        # Only what the responder has received no longer changes its memory.
        awaited = not self.reliable
        if self.transport == "UD":
            into = Sge(local.addr + local.length // 2, size + DATAGRAM_HEADER, local.lkey)
            post_receives(pair.responder, [self.objects.wr_id()], (into,))
        elif awaited:
            post_receives(pair.responder, [self.objects.wr_id()])
        returned = pair.requester.post_send(request)
        if not returned.value:
            found = pair.requester.completions(1)
        else:
            found = []
        if found and awaited and self.transport != "UD":
            pair.requester.post_send(SendRequest("SEND", request.wr_id | BEHIND, flags=0))
        if found and awaited and not pair.responder.completions(1, SILENCE_S):
            link.connection.stale = True  # the message was lost, and its receive is still posted
            self.objects.renew_if_stale(link)
        if found:
            status = found[0].status
        else:
            status = errno_name(returned.value)
        if before in ("refused", "expired"):
            link.connection.mark_failed(opcode, found, pair.requester, pair.responder)
            if before == "expired":
                time.sleep(self.objects.bench.ack_timeout_s)
            self.objects.renew_if_stale(link)
        elif status != "SUCCESS":
            link.connection.stale = True
            raise SetupRefused(f"a request before the point ({before})", status)
