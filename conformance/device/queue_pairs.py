"""Creates and connects queue pairs on the device under test, in loopback or with a peer's queue pairs. Also allocates
memory windows, which requests bind and invalidate. pyverbs creates the queue pairs and changes their states; posting.py
posts the requests."""

from __future__ import annotations

import errno
import select
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from conformance.bench.calls import IbvMw, KeyInStruct, Pd, Return, Sge, Window
from conformance.bench.lingering import Lingering
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.device.completion_readers import read_completions, readable_queue
from conformance.device.device import Device, ProtectionDomain
from conformance.device.libibverbs import clear_errno, exact
from conformance.device.posting import IbvQp, Poster
from conformance.device.qp_states import (
    Attr,
    ByManager,
    ByStates,
    events_of,
    modify_to,
    renewed_psn,
)
from conformance.device.remote_peer import Destination, RemoteDevice, RemoteDomain, RemoteQueue
from conformance.errors import NotConnected
from conformance.model.case import QpSpec
from conformance.model.deadline import Wait
from conformance.model.operations import WINDOWS_POSTER
from conformance.model.transport import IWARP
from conformance.verbs import ENUMS

QUEUE_DEPTH, _CQ_DEPTH = 16, 64
_TURN_S = 0.001  # for which a wait for an event yields the processor, again and again
# The number of SGEs for which queues are created if the device supports this number.
ELEMENTS = 3
# Attributes of the connection: local ACK timeout 4.096 us * 2^17 = 537 ms, three retries. On a busy host, an emulated
# processor may stop for more than 67 ms (timeout 14), so a timeout of 14 or less would cause needless retries. With
# seven retries, Soft-RoCE retries without limit.
_TIMEOUT, _RETRIES, _RNR_RETRIES, _MIN_RNR_TIMER = 17, 3, 7, 12
# The InfiniBand specification allows four times the timeout; a tenth more is enough for timers in software.
ACK_TIMEOUT_S = 1.1 * 4.096e-6 * (1 << _TIMEOUT)
# The queue key of datagrams: an attribute of the receiving queue pair, and a field of each send request. Values with
# the highest bit set are reserved for privileged users.
DATAGRAM_QKEY = 0x11111111
_ACCESS = ENUMS["ibv_access_flags"]
_REMOTE, _ATOMIC = _ACCESS.mask_of("REMOTE_WRITE", "REMOTE_READ"), _ACCESS.value_of("REMOTE_ATOMIC")
_FLUSHES = _ACCESS.mask_of("FLUSH_GLOBAL", "FLUSH_PERSISTENT")
_CAPACITY = 1 << 19  # IBV_QP_CAP of enum ibv_qp_attr_mask
_STATES = ENUMS["ibv_qp_state"]
_QP_TYPES = ENUMS["ibv_qp_type"]
# Types of queue pairs without a receive queue. A request for a receive queue might change how a provider lays out
# queues.
_SEND_ONLY = ("XRC_SEND",)


def elements_on(device: Device) -> int:
    """Returns the maximum number of SGEs for which queues are created on a device."""
    return min(ELEMENTS, device.max_elements or ELEMENTS)


class DeviceWindow(KeyInStruct):
    """A memory window. `old_rkey` is the key before the latest request to bind the window."""

    def __init__(self, pd: Pd, kind: int) -> None:
        """Calls ibv_alloc_mw for a window of type `kind`. Raises PyverbsRDMAError with the errno."""
        from pyverbs.mr import MW

        domain = cast(ProtectionDomain, pd)
        self.pyverbs: Any = MW(domain.pyverbs, kind)
        self.pointer = domain.device.pointers.of(self.pyverbs)
        self._struct = IbvMw.from_address(self.pointer)
        self.old_rkey = self.rkey

    @property
    def handle(self) -> int:
        return int(self._struct.handle)

    @property
    def pd(self) -> int:
        """The pointer to the window's domain."""
        return int(self._struct.pd)

    def dealloc(self) -> Return:
        return exact(self.pyverbs.close)


def alloc_mw(pd: Pd, kind: int) -> tuple[DeviceWindow | None, Return]:
    """Allocates a window of type `kind`. Returns the window or None, and a result whose `value` is 1, or 0 for NULL."""
    allocated: list[DeviceWindow] = []
    returned = exact(lambda: allocated.append(DeviceWindow(pd, kind)))
    if allocated:
        return (allocated[0], Return(1, 0))
    return (None, Return(0, returned.errno))


class DeviceQueue:
    """A queue pair with its own completion queue."""

    shared: Any = None  # the pyverbs SRQ for its receives, if any; for XRC the number of the SRQ
    # the peer's device (in loopback the same device); None without a peer
    remote: Destination | None = None
    # a peer on another host, if requests may use the peer's memory
    _memory: RemoteDevice | None = None

    def __init__(
        self,
        device: Device,
        pd: Pd,
        spec: QpSpec,
        deadline_s: float,
        cq: Any = None,
    ) -> None:
        """`deadline_s` is the deadline for a completion. `cq` is the completion queue of the peer, if both ends share
        one. Raises PyverbsRDMAError if the device refuses the queue pair."""
        from pyverbs.cq import CQ, CompChannel

        self.device, self.pd, self.spec, self.deadline_s = device, pd, spec, deadline_s
        self.kind, self.sq_sig_all = spec.kind, spec.sq_sig_all
        self._channel = CompChannel(device.context) if spec.notifies else None
        self._owns_cq = cq is None
        if cq is not None:
            self.cq = cq
        elif spec.by_readers:
            self.cq = readable_queue(device.context, _CQ_DEPTH)
        else:
            self.cq = CQ(device.context, _CQ_DEPTH, None, self._channel)
        clear_errno()
        try:
            self.qp = self._create()
        except BaseException:
            self._close_completions()
            raise
        self.number = int(self.qp.qp_num)
        device.queue_pairs.created(self.number)
        self.poster = Poster(device.pointers.of(self.qp))
        # the attributes of the last state transition, as a pyverbs QPAttr
        self.attributes: Any = None
        self._address_handle: Any = None
        self._destination: tuple[int, int, int] | None = None
        self.state = "RESET"

    def _create(self) -> Any:
        from pyverbs.qp import QP, QPInitAttr

        self._created = QPInitAttr(
            qp_type=_QP_TYPES.value_of(self.kind),
            scq=self.cq,
            rcq=self.cq,
            cap=self._capacity(),
            sq_sig_all=int(self.sq_sig_all),
            srq=self.shared,
        )
        return QP(self.pyverbs_pd, self._created)

    def _capacity(self) -> Any:
        from pyverbs.qp import QPCap

        most = elements_on(self.device)
        depth, elements = (0, 0) if self.spec.kind in _SEND_ONLY else (QUEUE_DEPTH, most)
        return QPCap(
            max_send_wr=QUEUE_DEPTH,
            max_recv_wr=depth,
            max_send_sge=most,
            max_recv_sge=elements,
            max_inline_data=self.spec.inline,
        )

    @property
    def pyverbs_pd(self) -> Any:
        return cast(ProtectionDomain, self.pd).pyverbs

    def move_to(self, state: str, peer: int) -> None:
        """Moves the queue pair to INIT, RTR, RTS or ERR. `peer` is the number of the peer's queue pair."""
        if state == "RESET":
            return
        if self.attributes is None:
            self.attributes = self.connection_attributes(peer)
            self._create_address_handle(peer)
        if self.device.transport is IWARP:
            kind = "iWARP"
        else:
            kind = self.spec.kind
        modify_to(self.qp, kind, self.attributes, state, self.state)
        self.state = state

    def fail(self) -> None:
        self._enter("ERR")

    def _enter(self, state: str) -> None:
        self.attributes.qp_state = _STATES.value_of(state)
        self.qp.modify(self.attributes, Attr.STATE)
        self.state = state

    def reset(self) -> None:
        """Moves the queue pair to RESET, and removes all completions from its completion queue."""
        if self.state == "RESET":
            return
        self._enter("RESET")
        while self.poster.completions(1, 0.0):
            pass

    def connection_attributes(self, peer: int) -> Any:
        """Returns the attributes that connect the queue pair to the queue pair number `peer`, as a pyverbs QPAttr."""
        from pyverbs.qp import QPAttr

        device = self.device
        attributes = QPAttr(port_num=device.port)
        attributes.pkey_index = device.pkey_index
        attributes.qp_access_flags = self._access()
        active = min(device.active_mtu, (self.remote or self.device).active_mtu)
        attributes.path_mtu = self.spec.mtu(active)
        attributes.dest_qp_num = peer
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.timeout, attributes.retry_cnt, attributes.rnr_retry = (
            _TIMEOUT,
            _RETRIES,
            _RNR_RETRIES,
        )
        attributes.min_rnr_timer = _MIN_RNR_TIMER
        attributes.qkey = DATAGRAM_QKEY
        if device.transport is not IWARP:  # on iWARP, the TCP connection determines the path
            attributes.ah_attr = self._path()
        return attributes

    def _path(self) -> Any:
        from pyverbs.addr import AHAttr, GlobalRoute

        peer = self.remote or self.device
        if not self.device.uses_grh:
            return AHAttr(is_global=0, port_num=self.device.port, dlid=peer.lid)
        route = GlobalRoute(dgid=peer.gid, sgid_index=self.device.source_gid_index)
        return AHAttr(gr=route, is_global=1, port_num=self.device.port, dlid=peer.lid)

    def _create_address_handle(self, peer: int) -> None:
        """Creates the address handle for datagrams. A queue pair of a connected type needs no address handle."""
        from pyverbs.addr import AH

        if self.kind == "UD":
            self._address_handle = AH(self.pyverbs_pd, attr=self._path())
            pointer = self.device.pointers.of(self._address_handle, pd=self.pd.pointer)
            self._destination = (pointer, peer, DATAGRAM_QKEY)

    def _access(self) -> int:
        if self.kind == "UD":
            return 0
        available = _REMOTE | (_ATOMIC if self.device.capabilities["atomics"] else 0)
        flushed = self.spec.extended == WINDOWS_POSTER and self.device.capabilities["flush_global"]
        available |= _FLUSHES if flushed or self.spec.extended == "FLUSH" else 0
        if self.spec.access is None:
            return available
        return self.spec.access & available

    def set_access(self, access: int) -> Return:
        """Calls ibv_modify_qp with `access` in the state RTS, until the next reset. Returns 0, or the value of errno."""
        initial = self.attributes.qp_access_flags
        self.attributes.qp_access_flags = access
        self.attributes.qp_state = _STATES.value_of("RTS")
        returned = exact(lambda: self.qp.modify(self.attributes, Attr.STATE | Attr.ACCESS_FLAGS))
        self.attributes.qp_access_flags = initial
        return returned

    def query_state(self) -> str:
        return _STATES.name_of(self.poster.state())

    @property
    def handle(self) -> int:
        return int(IbvQp.from_address(self.poster.qp).handle)

    def events(self, deadline_s: float = 0) -> list[str]:
        """Returns the names of this queue pair's asynchronous events. Drops the events of other queue pairs."""
        return events_of(self.poster.qp, self.poster.context, deadline_s)

    def request_event(self, solicited_only: int) -> None:
        """Calls ibv_req_notify_cq. Raises PyverbsRDMAError."""
        self.cq.req_notify(bool(solicited_only))

    def took_event(self, deadline_s: float) -> bool:
        """Receives and acknowledges an event. Returns False if there is no event by the deadline."""
        assert self._channel is not None
        wait = Wait(deadline_s)
        while not select.select([self.poster.channel], [], [], min(deadline_s, _TURN_S))[0]:
            if wait.over():
                return False
        self._channel.get_cq_event(self.cq)
        self.cq.ack_events(1)
        return True

    def post_send(self, request: SendRequest) -> Return:
        self._share_memory()
        return self.poster.send(request, self._destination)

    def _share_memory(self) -> None:
        """If the peer is on another host, sends it the changed contents of the memory that requests may use."""
        if isinstance(self.remote, RemoteDevice):
            self.remote.push()
            self._memory = self.remote

    def post_receive(self, sges: Sequence[Sge], wr_id: int) -> Return:
        return self.poster.receive(sges, wr_id)

    @property
    def sends_limit(self) -> tuple[int, int]:
        return self._most("max_send_wr"), self._most("max_send_sge")

    @property
    def receives_limit(self) -> tuple[int, int]:
        return self._most("max_recv_wr"), self._most("max_recv_sge")

    @property
    def inline_limit(self) -> int:
        return self._most("max_inline_data")

    def _most(self, capacity: str) -> int:
        """Returns the larger of the capacities that ibv_create_qp and ibv_query_qp have returned."""
        returned: tuple[int, int] = getattr(self._created, capacity), getattr(self._cap(), capacity)
        return max(returned)

    def resize_receives(self, count: int) -> Return:
        raise NotImplementedError("only a shared receive queue can be resized")

    def _cap(self) -> Any:
        """Returns the capacities, or those that were asked for if the device does not have ibv_query_qp: the actual ones
        are not less."""
        from pyverbs.pyverbs_error import PyverbsRDMAError

        try:
            _, attributes = self.qp.query(_CAPACITY)
        except PyverbsRDMAError:
            return self._capacity()
        return attributes.cap

    def post_sends(self, requests: Sequence[SendRequest]) -> tuple[Return, int]:
        return self.poster.sends(requests)

    def post_receives(
        self,
        receives: Sequence[tuple[Sequence[Sge], int]],
    ) -> tuple[Return, int]:
        return self.poster.receives(receives)

    def bind_mw(self, window: Window, info: BindInfo, flags: int, wr_id: int) -> Return:
        """Calls ibv_bind_mw with the checks of the inline function. Returns 0, or the value of errno."""
        from pyverbs.mr import MWBind, MWBindInfo

        bound = cast(DeviceWindow, window)
        with self.device.pointers.mr(info.mr.pointer if info.mr else 0, self.pyverbs_pd) as wrapper:
            request = MWBind(MWBindInfo(wrapper, info.addr, info.length, info.access), flags, wr_id)
        returned = exact(lambda: self.qp.bind_mw(bound.pyverbs, request))
        if returned.value == errno.EPERM and info.mr and info.mr.struct.pd != bound.pd:
            return replace(returned, layer="header")  # the inline function compares the pointers
        return returned

    def completions(self, count: int = 1, deadline_s: float | None = None) -> list[Completion]:
        """Returns the next `count` completions, or fewer at the deadline. The default deadline is the queue pair's
        deadline."""
        if deadline_s is None:
            limit = self.deadline_s
        else:
            limit = deadline_s
        if self.spec.by_readers:
            completions = read_completions(self.cq, count, limit)
        else:
            completions = self.poster.completions(count, limit)
        if self._memory:
            self._memory.pull()
        return completions

    def close(self) -> None:
        self.qp.close()
        if self._address_handle is not None:
            self._address_handle.close()
        self._close_completions()

    def _close_completions(self) -> None:
        if self._owns_cq:
            self.cq.close()
        if self._channel is not None:
            self._channel.close()


class DevicePair:
    """A requester and a responder of the same type, which are peers. `kind` is the class of each end. If
    `keeps_receives`, a reset does not remove the receives that an end has posted."""

    kind: type[DeviceQueue] = DeviceQueue
    keeps_receives = False

    def __init__(
        self,
        device: Device,
        spec: QpSpec,
        requester_pd: Pd,
        responder_pd: Pd,
        deadline_s: float,
    ) -> None:
        """`responder_pd` is the PD of the regions that are accessed remotely. `spec` and `device` describe the
        responder. The requester is on the device of `requester_pd`, which may be a different device. `deadline_s` is
        the deadline for a completion."""
        self._spec = device, spec, requester_pd, responder_pd, deadline_s
        self.transport = device.transport
        manager = device.connection_manager
        self._strategy = ByManager(manager) if manager else ByStates()
        self._create(*self._spec)

    def _create(
        self,
        device: Device,
        spec: QpSpec,
        requester_pd: Pd,
        responder_pd: Pd,
        deadline_s: float,
    ) -> None:
        self._state = spec.state
        self.responder = self.kind(device, responder_pd, spec, deadline_s)
        # On a queue pair of type XRC_SEND, cases post only binds, which need no peer.
        self.requester: DeviceQueue | RemoteQueue = self.responder
        try:
            if spec.kind != "XRC_SEND":
                self.responder.remote = cast("ProtectionDomain | RemoteDomain", requester_pd).device
                self.requester = self._create_requester(device, spec, requester_pd, deadline_s)
            self._connect_new()
        except BaseException:
            self.close()
            raise

    def _create_requester(
        self,
        device: Device,
        spec: QpSpec,
        pd: Pd,
        deadline_s: float,
    ) -> DeviceQueue | RemoteQueue:
        """Creates the requester, which sends to `device`. The requester, with its PD `pd`, may be on another host.
        `spec` describes the responder."""
        if isinstance(pd, RemoteDomain):
            return RemoteQueue(pd, spec.peer, deadline_s, device)
        more = {"cq": self.responder.cq} if spec.one_queue else {}
        queue = self.kind(cast(ProtectionDomain, pd).device, pd, spec.peer, deadline_s, **more)
        queue.remote = device
        return queue

    @property
    def tells_state(self) -> bool:
        return self._spec[0].findings.tells_state

    @property
    def lingering(self) -> Lingering:
        """See interface.Pair. All pairs of a device share this object."""
        return self._spec[0].lingering

    def _connect_new(self) -> None:
        try:
            self._connect()
        except Exception as error:  # PyverbsRDMAError or CmError
            code = getattr(error, "error_code", None)
            if code is None:
                raise
            raise NotConnected(code, str(error)) from error

    @property
    def renews_by_reset(self) -> bool:
        """Whether `renew` moves the queue pairs through RESET, instead of creating new queue pairs."""
        return (
            self._strategy.by_reset
            and not self.keeps_receives
            and self._spec[0].findings.renews_by_reset
        )

    def _connect(self) -> None:
        self._strategy.connect(self.requester, self.responder, self._state)

    def connect(self) -> None:
        self._strategy.connect(self.requester, self.responder, "RTS")

    def renew(self) -> None:
        """Restores the initial states of the pair: moves both queue pairs through RESET, or creates new queue pairs."""
        if not self.renews_by_reset:
            self._create_again()
            return
        try:
            for queue in {self.responder, self.requester}:
                queue.reset()
            self._begin_at_other_psns()
            self._connect()
        except Exception as error:  # PyverbsRDMAError or PeerRefused
            if getattr(error, "error_code", None) is None:
                raise
            self._create_again()  # no rule requires that the transition to RESET succeeds

    def _begin_at_other_psns(self) -> None:
        """Changes the first PSNs of both directions, if both queue pairs are of this host and were connected."""
        ends: list[Any] = [
            getattr(queue, "attributes", None) for queue in (self.responder, self.requester)
        ]
        if None not in ends:
            psn = renewed_psn(ends[0].sq_psn)
            for attributes in ends:
                attributes.sq_psn = attributes.rq_psn = psn

    def _create_again(self) -> None:
        self.close()
        self._create(*self._spec)

    def close(self) -> None:
        """Destroys both queue pairs, and then closes their connection. The requester may use the completion queue of the
        responder, so it is the first."""
        for queue in dict.fromkeys((self.requester, self.responder)):
            queue.close()
        self._strategy.close()
