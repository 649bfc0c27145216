"""Represents, in this process, a requester on another host: its device, protection domain, memory and queue pairs.

A channel sends all calls to a process on the peer's host. The local process has a copy of the requester's memory, at
the same addresses. Each end stores the contents of the last synchronization, and sends the pieces that have changed
since then. If both ends have changed a piece, the contents of the end that sends first remain. The process on the
peer's host is fixtures/hosts/requester.py; fixtures/hosts/peer.py connects to requester.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

from conformance.bench.calls import IbvMr, Mr, Pd, Return, Sge, Window
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.errors import HarnessFailure
from conformance.model.case import QpSpec
from conformance.model.transport import TRANSPORTS
from conformance.packed_text import packed, unpacked

_PIECE = 4096  # bytes
_NO_WINDOWS = "windows can be bound only at the responder, which is not on the peer's host"
Changes = list[tuple[int, str]]  # for each piece, its address, and its contents as text


class Mirror:
    """The memory at one end. Both ends must add a range while it has only zeros, which each end assumes at first."""

    def __init__(self) -> None:
        self._known: dict[int, bytearray] = {}

    def add(self, addr: int, size: int) -> None:
        """Adds the range of `size` bytes at `addr`."""
        self._known[addr] = bytearray(size)

    def drop(self, addr: int) -> None:
        """Removes the range at `addr`, unless an attempt that the device refused has removed it."""
        self._known.pop(addr, None)

    def changes(self) -> Changes:
        """Returns the pieces that have changed here since the last synchronization, and stores their contents."""
        pieces: Changes = []
        for addr, content in self._known.items():
            now = ctypes.string_at(addr, len(content))
            if now == content:
                continue
            for at in range(0, len(now), _PIECE):
                piece = now[at : at + _PIECE]
                if piece != content[at : at + _PIECE]:
                    pieces.append((addr + at, packed(piece)))
            content[:] = now
        return pieces

    def apply(self, changes: Iterable[tuple[int, str]]) -> None:
        """Writes pieces from the other end, which have changed there, to the memory of this end. Raises ValueError for
        a piece outside the added ranges."""
        for addr, text in changes:
            content = unpacked(text, _PIECE)
            for start, mirrored in self._known.items():
                first, end = addr - start, addr - start + len(content)
                if first >= 0 and end <= len(mirrored):
                    ctypes.memmove(addr, content, len(content))
                    mirrored[first:end] = content
                    break
            else:
                place = f"{len(content)} bytes at {addr:#x}"
                raise ValueError(f"{place} are outside the memory of both ends")


class Channel(Protocol):
    """Sends a call to the process on the peer's host, and returns the result. Raises PeerLost if no result is received,
    PeerRefused if the peer's device refuses, OSError with the same errno for an OSError on the peer's host, and
    HarnessFailure for any other failure on that host."""

    def call(self, name: str, **arguments: Any) -> Any: ...


class Destination(Protocol):
    """The device to which a queue pair sends its packets, with the properties that a path needs."""

    @property
    def gid(self) -> Any: ...
    @property
    def lid(self) -> int: ...
    @property
    def active_mtu(self) -> int: ...


@dataclass
class Endpoint:
    """A destination on another host: its GID as text, its LID, and the MTU of its port as a value of enum ibv_mtu."""

    address: str
    lid: int
    active_mtu: int

    @classmethod
    def of(cls, device: Destination) -> Endpoint:
        """Returns a device of this host as a destination for the other host."""
        return cls(str(device.gid), device.lid, device.active_mtu)

    @cached_property
    def gid(self) -> Any:
        from pyverbs.addr import GID

        return GID(self.address)


class RemoteDevice(Endpoint):
    """The device of the requesters, on another host."""

    def __init__(self, name: str, channel: Channel, facts: dict[str, Any]) -> None:
        """`facts` are the result of requester.Requesters.facts. `name` is the peer's name from the user."""
        super().__init__(**facts["endpoint"])
        self.name, self.channel = name, channel
        self.transport = TRANSPORTS[facts["transport"]]
        self.capabilities: dict[str, bool] = facts["capabilities"]
        self._mirror = Mirror()

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """Calls ibv_reg_mr on the peer's host, for memory at the same address. From then on, both memories are
        synchronized."""
        reported = self.channel.call("register", addr=addr, length=length, access=access)
        if reported["errno"]:
            return Return(0, reported["errno"])
        self._mirror.add(addr, length)
        struct = IbvMr(addr=addr, length=length, lkey=reported["lkey"], rkey=reported["rkey"])
        return Return(1, 0, Mr(struct))

    def dereg_mr(self, mr: Mr) -> Return:
        """Calls ibv_dereg_mr on the peer's host. From then on, the memory is not synchronized."""
        addr = int(mr.struct.addr)
        self._mirror.drop(addr)
        value = self.channel.call("deregister", addr=addr)
        return Return(value, value)

    def call(self, name: str, **arguments: Any) -> Any:
        """Sends a call, together with the changes of the memory that it may use. Returns the result. See Channel."""
        return self.channel.call(name, changes=self._mirror.changes(), **arguments)

    def push(self) -> None:
        if changes := self._mirror.changes():
            self.channel.call("write", changes=changes)

    def pull(self) -> None:
        self.apply(self.channel.call("changes"))

    def apply(self, changes: list[tuple[int, str]]) -> None:
        self._mirror.apply(changes)


class RemoteDomain:
    pointer = handle = context_pointer = 0  # this process has no struct ibv_pd of the peer

    def __init__(self, device: RemoteDevice) -> None:
        self.device = device

    def close(self) -> None:
        """Does nothing: the peer's PD exists as long as the connection to the host."""


class RemoteQueue:
    """A requester's queue pair. See bench.interface.Queue and qp_states.End. With XRC, `shared` and `receiver` are the
    numbers of the shared receive queue and of the receiving queue pair; they are 0 for other types."""

    def __init__(
        self,
        pd: RemoteDomain,
        spec: QpSpec,
        deadline_s: float,
        destination: Destination,
    ) -> None:
        """`destination` is the device of the responder. `deadline_s` is the deadline for a completion. Raises
        PeerRefused if the device refuses the queue pair."""
        self.pd, self.kind, self.sq_sig_all, self.state = pd, spec.kind, spec.sq_sig_all, "RESET"
        self._deadline_s = deadline_s
        reported = pd.device.channel.call(
            "create",
            spec=asdict(spec),
            deadline_s=deadline_s,
            destination=asdict(Endpoint.of(destination)),
        )
        self._id, self.handle = int(reported["queue"]), 0
        self.number, self.receiver, self.shared = (
            int(reported[name]) for name in ("number", "receiver", "shared")
        )

    def _call(self, name: str, **arguments: Any) -> Any:
        return self.pd.device.channel.call(name, queue=self._id, **arguments)

    def move_to(self, state: str, peer: int) -> None:
        self._call("move_to", state=state, peer=peer)
        if state != "RESET":
            self.state = state

    def connect(self, number: int, receiver: int, shared: int) -> None:
        self._call("connect", number=number, receiver=receiver, shared=shared)
        self.state = "RTS"

    def fail(self) -> None:
        self._call("fail")
        self.state = "ERR"

    def reset(self) -> None:
        self._call("reset")
        self.state = "RESET"

    def query_state(self) -> str:
        return str(self._call("query_state"))

    def events(self, deadline_s: float = 0) -> list[str]:
        return list(self._call("events"))

    def post_send(self, request: SendRequest) -> Return:
        """Calls ibv_post_send, or the ibv_wr_* functions. Returns 0, or the value of errno."""
        if request.window or request.bind:
            raise HarnessFailure(_NO_WINDOWS)
        fields = request._asdict()
        del fields["window"], fields["bind"]
        return Return(*self.pd.device.call("post_send", queue=self._id, request=fields))

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        arguments = {"queue": self._id, "sges": list(sges), "wr_id": wr_id}
        return Return(*self.pd.device.call("post_receive", **arguments))

    def bind_mw(self, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        """Raises HarnessFailure: windows are bound at the responder."""
        raise HarnessFailure(_NO_WINDOWS)

    def completions(self, count: int = 1, deadline_s: float | None = None) -> list[Completion]:
        """Returns the next `count` completions, or fewer at the deadline. Afterwards, this host's memory has the
        contents of the peer's memory."""
        if deadline_s is None:
            deadline_s = self._deadline_s
        reported = self._call("completions", count=count, deadline_s=deadline_s)
        self.pd.device.apply(reported["changes"])
        return [Completion(*completion) for completion in reported["found"]]

    def close(self) -> None:
        self._call("close")
