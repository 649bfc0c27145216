"""Implements bench.interface.Bench for a real device. fixtures/bench.py opens the device before the run and closes it
after the run. execution/offered.py determines the capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from typing import cast

from conformance.bench.calls import Mr, Pd, Return
from conformance.bench.doors import RegMrEx
from conformance.bench.interface import Bench, DmaBuf, Entry, Memory
from conformance.device import (
    exporter,
    fork_settings,
    other_process,
    queue_pairs,
    wire_peer,
)
from conformance.device.device import Device, ProtectionDomain, library_release
from conformance.device.kernel_bench import HostMemory
from conformance.device.libibverbs import Libibverbs
from conformance.device.queue_kinds import pair_type, try_create
from conformance.device.queue_pairs import ACK_TIMEOUT_S, DevicePair
from conformance.device.remote_peer import RemoteDevice, RemoteDomain
from conformance.device.stream_peer import SocketsOfPeer, StreamLink, StreamPair
from conformance.device.uverbs import Uverbs
from conformance.device.wire_peer import WireLink, WirePair
from conformance.device.wire_requester import MOST_WITH_LOSSES, CarriedPair
from conformance.errors import HostLacks, UserError
from conformance.header import Check, installed_api
from conformance.kernel import paging
from conformance.kernel.netlink import KINDS
from conformance.kernel.resources import ResourceCounter
from conformance.model.case import QpSpec, mtu_bytes
from conformance.model.deadline import COMPLETION_DEADLINE_S
from conformance.model.operations import WINDOWS_POSTER, WR_POST
from conformance.model.preflight import Findings
from conformance.model.transport import IWARP
from conformance.model.vocabulary import STREAM, WIRE
from conformance.wire.sequence import PSNS

# For each type of queue pair with builders: the value of QpSpec.extended that selects these builders.
_BUILT = {"RC": WINDOWS_POSTER, "UC": WINDOWS_POSTER, "UD": WR_POST}
_COMPILER_POLL_S = 5.0  # the interval at which a case that waits for the compiler reports progress


class DeviceBench(HostMemory):
    """The bench of a real device: one open device, libibverbs, and this process's memory."""

    _builds = False  # whether builders post all requests for which a builder exists
    # the PD of all requesters, if they are on another device
    _peer_pd: ProtectionDomain | RemoteDomain | None = None
    carries = False
    _loses_packets, _most_packets = False, PSNS
    _wire: WireLink | StreamLink | HostLacks = HostLacks(
        "this run has no wire peer",
        "--wire-peer names a machine that sends packets",
    )
    alloc_mw = staticmethod(queue_pairs.alloc_mw)

    def __init__(
        self,
        device: Device,
        dialect: str | None = None,
        alone: bool = False,
        completion_deadline_s: float = COMPLETION_DEADLINE_S,
        peer: Device | RemoteDevice | None = None,
    ) -> None:
        """`dialect` is one of vocabulary.DIALECTS. `alone` is true if no other process on this kernel uses the
        device or pins pages. Each wait for a completion lasts at most `completion_deadline_s` seconds. `peer` is the
        device of the requesters; without `peer`, all pairs are in loopback on `device`."""
        super().__init__()
        self.device = device
        if peer:
            self._peer_pd = (
                RemoteDomain(peer) if isinstance(peer, RemoteDevice) else ProtectionDomain(peer)
            )
        self._completion_deadline_s = completion_deadline_s
        self._resource_counter = ResourceCounter(
            device.name,
            device.netlink,
            device.queue_pairs,
            alone,
        )
        self.ack_timeout_s = ACK_TIMEOUT_S
        self.not_ready_s = 0.002  # longer than a message takes
        self.library = Libibverbs(dialect)
        uverbs = Uverbs(device.context.cmd_fd, device.driver_id)
        door = RegMrEx(self.library)
        self._entries: dict[str, Entry] = {
            "libibverbs": self.library,
            "uverbs": uverbs,
            door.name: door,
        }
        self._api_checks: Future[tuple[Check, ...]] | None = None
        self.max_read_elements = device.max_read_elements
        self.max_dm_size = device.max_dm_size
        if device.transport is IWARP:
            device.open_connection_manager()

    @property
    def in_flight_bytes(self) -> int:
        return self.device.findings.in_flight_bytes

    def entry(self, name: str) -> Entry:
        return self._entries[name]

    @property
    def packet(self) -> int:
        return mtu_bytes(self.device.active_mtu)

    def post_by_builders(self) -> None:
        """Uses the builders of ibv_wr_post(3) for all later requests for which a builder exists. Raises UserError
        (status 2) if the device cannot create a queue pair for builders."""
        self._builds = True
        try:
            with closing(self.alloc_pd()) as pd:
                self.pair(QpSpec("UD", "pd"), pd, pd).close()
        except Exception as error:  # the exceptions of pyverbs differ between versions
            message = (
                f"--poster wr: {self.device.name} cannot create a queue pair for ibv_wr_post(3)"
            )
            raise UserError(message, hint="omit --poster") from error

    def carry(self) -> None:
        """Lets the wire peer send the requests of all later traffic. Raises UserError (status 2) if there is none."""
        try:
            self._wire_link()
        except HostLacks as lack:
            raise UserError(f"--poster wire: {lack.message}", hint=lack.hint) from lack
        self.carries = True

    def expect_losses(self) -> None:
        """From now on the network between wire peer and device loses, repeats and reorders packets."""
        self._loses_packets, self._most_packets = True, MOST_WITH_LOSSES

    def alloc_pd(self) -> ProtectionDomain:
        return ProtectionDomain(self.device)

    def page_out(self, memory: Memory) -> bool:
        """Swaps out the memory's pages. Returns False if any page remains resident."""
        return paging.page_out(memory.addr, memory.size)

    def dereg_import(self, pd: Pd, mr: Mr, elsewhere: bool) -> Return:
        """Imports a region, in this process or, if `elsewhere`, in another process. Returns the result of ibv_dereg_mr
        of the imported region. Raises SetupRefused."""
        library = self.library
        if elsewhere:
            fd = self.device.context.cmd_fd
            return other_process.in_child(
                lambda: library.dereg_import(library.import_device(fd), pd.handle, mr.handle),
            )
        return library.dereg_import(pd.context_pointer, pd.handle, mr.handle)

    def other_process(
        self,
        work: Callable[[Bench], Iterator[bytes]],
    ) -> AbstractContextManager[Callable[[], bytes]]:
        return other_process.reporting(lambda: work(self._again()))

    def _again(self) -> DeviceBench:
        """Opens the device again, in another process."""
        again = Device(self.device.name, self.device.port, self.device.gid_index)
        again.findings = self.device.findings
        return DeviceBench(again)

    def killed(self, prepare: Callable[[Bench], Callable[[], bool]]) -> Mapping[str, int]:
        """Calls `prepare` in another process, and then what it returned until this returns True. That process is then
        killed. Returns the counts of objects that the kernel still reports for the killed process."""
        return other_process.killed(lambda: prepare(self._again()), self.device.netlink.count)

    def exporter(self, request: str, dmabuf: DmaBuf) -> int:
        """Sends a request about a dma-buf to the suite's exporter (exporter.py). Raises OSError or HostLacks."""
        return exporter.request(request, dmabuf.fd)

    def fork_setting(self, setting: str, kernel: str) -> tuple[int, Mapping[str, str]]:
        """Tests fork protection in a new process; see fork_settings.py."""
        return fork_settings.observe(self.device.name, setting, kernel)

    def pair(
        self,
        spec: QpSpec,
        requester: Pd,
        responder: Pd,
    ) -> DevicePair | WirePair | StreamPair:
        """Creates and connects a pair of queue pairs. If there is a peer, the requester is on the peer's device. Raises
        HostLacks if there is no wire peer."""
        deadline_s = self._completion_deadline_s
        if spec.wire == STREAM:
            return StreamPair(self._stream_link(), spec, responder, deadline_s)
        if spec.wire:
            if self._loses_packets:
                raise HostLacks(
                    "--wire-losses loses packets on purpose, and this row judges each packet",
                    "run it without --wire-losses",
                )
            return WirePair(self._wire_link(), spec, responder, deadline_s)
        if spec.extended == WIRE:
            domains = (requester, responder)
            return CarriedPair(self._wire_link(), spec, domains, deadline_s, self._most_packets)
        if self._builds and not spec.extended and spec.kind in _BUILT:
            spec = replace(spec, extended=_BUILT[spec.kind])
        pair = pair_type(spec)
        return pair(
            self.device,
            spec,
            self._peer_pd or requester,
            responder,
            self._completion_deadline_s,
        )

    def _wire_link(self) -> WireLink:
        if isinstance(self._wire, HostLacks):
            raise self._wire
        if isinstance(self._wire, StreamLink):
            raise HostLacks("packets of RoCE need a RoCE device", "run it on one")
        return self._wire

    def _stream_link(self) -> StreamLink:
        if isinstance(self._wire, HostLacks):
            raise self._wire
        if isinstance(self._wire, WireLink):
            raise HostLacks("segments of iWARP need an iWARP device", "run it on one")
        return self._wire

    def open_wire(self, open_sockets: Callable[[], SocketsOfPeer]) -> None:
        """Opens the peer of wire connections. If there is none, the reason is that of each case that needs it."""
        try:
            sockets = open_sockets()
            self._wire = wire_peer.opened(self.device, sockets, self._completion_deadline_s)
        except HostLacks as lack:
            self._wire = lack
        except UserError as error:
            self._wire = HostLacks(error.message, error.hint)
        except OSError as error:
            self._wire = HostLacks(f"there is no wire peer: {error.strerror}", "see docs/wire.md")

    def wire_remark(self) -> str:
        """Returns what the wire peer cannot check, and why; empty if there is no such thing, or no peer."""
        if not isinstance(self._wire, WireLink) or self._wire.sockets.sees_headers:
            return ""
        return (
            "it has no raw socket (CAP_NET_RAW), so the ICRCs of answers over IPv4 are not checked"
        )

    def close_wire(self) -> None:
        if not isinstance(self._wire, HostLacks):
            self._wire.close()

    def create_qp_ex(self, pd: Pd, kind: str, operations: int) -> Return:
        """Creates and destroys a queue pair for `operations` (enum ibv_qp_create_send_ops_flags). Returns 0 or
        errno."""
        return try_create(self.device, cast(ProtectionDomain, pd).pyverbs, kind, operations)

    def adapt(self, findings: Findings) -> None:
        self.device.findings = findings

    def resources(self) -> dict[str, int]:
        """Returns the kernel's counts of this process's RDMA objects, and of its pinned and locked memory."""
        return self._resource_counter.count()

    def uncounted(self) -> tuple[str, ...]:
        """Returns the kinds of objects that the kernel cannot count on this device."""
        counts = self.resources()
        return tuple(kind for kind in KINDS if kind not in counts)

    def api_checks(self, waiting: Callable[[], None]) -> Sequence[Check]:
        """Returns the checks of API-01 on the installed header and bindings. The checks are computed once. Until they
        are finished, `waiting` is called repeatedly."""
        checks = self.prepare_api_checks()
        while wait([checks], timeout=_COMPILER_POLL_S).not_done:
            waiting()
        return checks.result()

    def prepare_api_checks(self) -> Future[tuple[Check, ...]]:
        """Starts the checks of API-01 in the background, because compiling is slow in an emulated guest."""
        self._api_checks = self._api_checks or ThreadPoolExecutor(1).submit(
            installed_api,
            library_release(),
        )
        return self._api_checks
