"""Posts a point's request, and describes the completions of both ends in words that are the same in every run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.bench.calls import Sge, errno_name
from conformance.bench.interface import Queue
from conformance.bench.work_requests import (
    BEHIND,
    NO_BYTES,
    SIGNALED,
    Completion,
    SendRequest,
)
from conformance.combinations.objects import Link, Objects
from conformance.errors import SetupRefused
from conformance.execution.connection import SILENCE_S, post_receives
from conformance.model.combinations import LATE_RECEIVE, NOT_READY, RECEIVE
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE
from conformance.model.observation import AccessSeen
from conformance.model.operations import ATOMICS

IMMEDIATE = 0xC0FFEE01
FILLS_LOCAL_MEMORY = ("RDMA_READ", *ATOMICS)
_REFUSED_AT_PEER = ("REM_",)
# Flags of datagrams that some devices refuse when the request is posted; no document requires them of each device.
_NOT_EVERYWHERE = ("unsignaled", "solicited")


@dataclass(frozen=True)
class Message:
    """The request of a point over a connection: the number of its bytes, and the values of the parameters `flags` and
    `before`: the receives may be posted behind the request, so that the device sends it again."""

    objects: Objects
    link: Link
    transport: str
    size: int
    flags: str
    before: str

    def post(self, request: SendRequest, received: Sequence[Sge]) -> AccessSeen:
        """Posts the receive, if the request consumes one, the request and a SEND without data behind it. Waits for the
        completions of both ends. Raises SetupRefused."""
        connection, objects = self.link.connection, self.objects
        queue, peer = connection.pair.requester, connection.pair.responder
        consumes = bool(received) or request.opcode.endswith("_IMM")
        receive_id = objects.wr_id()
        receives = [(received or NO_BYTES, receive_id)] if consumes else []
        refused, ready = 0, True
        if self.before == NOT_READY:
            queue.post_send(SendRequest("SEND", objects.wr_id(), flags=0))
        elif self.before != LATE_RECEIVE:
            refused = self._post_receives(peer, receives)
        if refused:
            connection.stale = True
            return {"posted": RECEIVE + errno_name(refused)}
        returned = queue.post_send(request)
        if returned.value:
            connection.stale = True
            code = errno_name(returned.value)
            if self.transport == "UD" and self.flags in _NOT_EVERYWHERE:
                raise SetupRefused(f"posting a datagram ({self.flags})", code)
            return {"posted": code}
        if request.flags & SIGNALED:
            behind = SendRequest("SEND", request.wr_id | BEHIND, flags=0)
        else:  # its completion tells that the request is over
            behind = SendRequest("SEND", objects.wr_id())
        queue.post_send(behind)
        if self.before in (LATE_RECEIVE, NOT_READY):
            time.sleep(objects.bench.not_ready_s)
            if self.before == NOT_READY:
                post_receives(peer, [objects.wr_id()], connection.sink)
            ready = self._are_posted_late(peer, receives)
        if self.before == NOT_READY:
            first = objects.completions(peer, connection.pair)
            if not first or first[0].status != "SUCCESS":
                connection.stale = True
                raise SetupRefused("a SEND that finds no receive at first", "")
        completions, arrived = self._await(queue, peer, request, behind.wr_id, consumes, ready)
        failed = [
            completion for completion in (*completions, *arrived) if completion.status != "SUCCESS"
        ]
        if failed or len(arrived) < 1 + consumes:
            at_peer = any(
                completion.status.startswith(_REFUSED_AT_PEER) for completion in completions
            )
            ends = [queue, peer] if at_peer else [queue]
            if completions and completions[0].status != "SUCCESS":
                connection.mark_failed(request.opcode, completions, *ends)
            connection.stale = True
        ids = {request.wr_id: "request", receive_id: "receive"}
        if consumes:
            message = arrived[:1]
        else:
            message = []
        if request.opcode == "RDMA_WRITE_WITH_IMM":
            message = [completion for completion in message if completion.opcode != "RECV"]
        message = [completion for completion in message if completion.status != "WR_FLUSH_ERR"]
        return {
            "posted": "0",
            "requester": [
                self._shown(completion, ids, queue, request.opcode in FILLS_LOCAL_MEMORY)
                for completion in completions
            ],
            "receiver": [
                self._shown(completion, ids, peer, True)
                + self._immediate_and_key(completion, request.invalidate_rkey)
                for completion in message
            ],
        }

    def _post_receives(self, peer: Queue, receives: Sequence[tuple[Sequence[Sge], int]]) -> int:
        """Posts the receives of the request and of the SEND behind it. Returns 0, or the errno of a refusal."""
        for sges, wr_id in receives:
            if refused := peer.post_receive(sges, wr_id).value:
                return refused
        post_receives(peer, [self.objects.wr_id()], self.link.connection.sink)
        return 0

    def _are_posted_late(
        self,
        peer: Queue,
        receives: Sequence[tuple[Sequence[Sge], int]],
    ) -> bool:
        """Posts the receives behind the request. Returns whether all are posted: after a refused request, the queue
        pair is in the error state, in which a provider may refuse receives."""
        all_receives = (*receives, (self.link.connection.sink, self.objects.wr_id()))
        return not any(peer.post_receive(sges, wr_id).value for sges, wr_id in all_receives)

    def _await(
        self,
        queue: Queue,
        peer: Queue,
        request: SendRequest,
        behind_id: int,
        consumes: bool,
        ready: bool,
    ) -> tuple[list[Completion], list[Completion]]:
        """Returns the completions of the request, and those of the receives, of which the last is that of the SEND
        behind the request, whose wr_id is `behind_id`. Only receives that are posted (`ready`) are awaited."""
        arrived: list[Completion] = []

        def all_here() -> bool:
            """Whether the SEND behind the request has arrived, or a receive has failed."""
            if not arrived:
                return False
            last = arrived[-1]
            is_over = last.status != "SUCCESS" or self._is_behind(request, last)
            return len(arrived) > consumes or is_over

        completions = self.objects.completions(queue)
        is_missing = not completions
        if completions and completions[0].wr_id == behind_id and completions[0].status == "SUCCESS":
            completions = []
        if completions and completions[0].status != "SUCCESS":
            if consumes:
                # The device at the peer has completed its receive, if at all, before it refused the request.
                taken = completions[0].status == "REM_OP_ERR"
                arrived += peer.completions(1, SILENCE_S if taken else 0.0)
            return completions, arrived
        while ready and not all_here():
            if is_missing or self.transport not in RELIABLE:
                more = peer.completions(1, SILENCE_S)
            else:
                more = self.objects.completions(peer, self.link.connection.pair)
            arrived += more
            if not more:
                break
        return completions, arrived

    def _is_behind(self, request: SendRequest, seen: Completion) -> bool:
        """Whether a receive has taken the SEND behind the request, which has no bytes. Messages arrive in order, so a
        message of an unreliable transport in front of it is lost."""
        if request.opcode.startswith("RDMA_WRITE"):
            return seen.opcode == "RECV"
        is_empty = seen.byte_len == self._header
        return self.transport not in RELIABLE and self.size > 0 and is_empty

    def _shown(
        self,
        seen: Completion,
        ids: Mapping[int, str],
        queue: Queue,
        has_length: bool,
    ) -> list[str]:
        """Returns the fields of a completion as words, without numbers that differ between runs. If the status is an
        error, only it, the wr_id and the number of the queue pair are valid."""
        words = [seen.status, ids.get(seen.wr_id, "another wr_id")]
        if seen.qp_num not in (None, queue.number):
            words.append("another qp_num")
        if seen.status != "SUCCESS":
            return words
        words.append(seen.opcode)
        if has_length:
            words.append(self._length(seen.byte_len))
        return words

    def _immediate_and_key(self, seen: Completion, invalidated: int) -> list[str]:
        """Returns what a successful receive tells of the message: its immediate data, and the key that it invalidated."""
        if seen.status != "SUCCESS":
            return []
        if seen.imm is None:
            words = ["no imm"]
        elif seen.imm == IMMEDIATE:
            words = ["imm"]
        else:
            words = ["other imm"]
        if seen.invalidated_rkey == invalidated:
            words.append("invalidated")
        elif seen.invalidated_rkey is not None:
            words.append("another invalidated key")
        return words

    @property
    def _header(self) -> int:
        """The number of bytes in front of a message in its receive."""
        if self.transport == "UD":
            return DATAGRAM_HEADER
        return 0

    def _length(self, byte_len: int) -> str:
        if byte_len == self.size + self._header:
            return "whole length"
        return f"length {byte_len}"
