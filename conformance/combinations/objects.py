"""Keeps the objects of points: memory, regions, windows and connections, each created when a point needs it first. A
point that ends an object gets its own. The objects are released when the last point has run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from conformance.bench.calls import Mr, Pd, Window, errno_name
from conformance.bench.interface import Bench, Entry, ModifiableQueue, Pair, Queue
from conformance.bench.work_requests import SIGNALED, BindInfo, Completion, SendRequest, next_rkey
from conformance.combinations.extent import Extent
from conformance.combinations.stored import (
    DEVICE_MEMORY,
    DMABUF,
    FORKED,
    NULL,
    Memories,
    OfDevice,
)
from conformance.errors import HostLacks, SetupRefused
from conformance.execution.connection import ERROR_STATE, LoopbackConnection, state_of
from conformance.execution.context import HarnessResources, release
from conformance.execution.elsewhere import registered_elsewhere
from conformance.kernel.child import Child, fork
from conformance.model.case import SMALLEST_MTU, SMALLEST_MTU_BYTES
from conformance.model.deadline import COMPLETION_DEADLINE_S
from conformance.model.operations import WINDOWS_POSTER, WR_POST
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_CHANGE = ENUMS["ibv_rereg_mr_flags"]
_LOCAL_WRITE = _ACCESS.value_of("LOCAL_WRITE")
_ZERO_BASED = _ACCESS.value_of("ZERO_BASED")
_ON_DEMAND = _ACCESS.value_of("ON_DEMAND")
_WHOLE = (1 << 64) - 1  # the length of an implicit region
GRANTED = "granted"  # the rights of a queue pair that ibv_modify_qp has granted
ALIGNED = "aligned"  # bounds of a region
_ON_DEMAND_WAYS = ("on_demand", "implicit")
_NOT_BINDABLE = (*_ON_DEMAND_WAYS, DMABUF, DEVICE_MEMORY)
BINDABLE = "bindable"  # all rights, also of a region on demand
_NOT_FLUSHED = (DMABUF, DEVICE_MEMORY)
FLUSH = "FLUSH_GLOBAL"  # the operation, and the right to it
_SINGLE = {
    "none": "",
    "write": "REMOTE_WRITE",
    "read": "REMOTE_READ",
    "atomic": "REMOTE_ATOMIC",
}
_REMOTE = ("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
_FEW_RIGHTS = {
    "local_write": ("LOCAL_WRITE",),
    "without_local_write": ("REMOTE_READ",),
    "windows_only": ("LOCAL_WRITE", "MW_BIND"),
    "write_alone": ("REMOTE_WRITE",),
    "read_and_windows": ("REMOTE_READ", "MW_BIND"),
}
FAR = 0x7A00_0000_0000  # the hca_va of regions that are registered far from their address
_FIRST_WR_ID = 0x610001
_INVENTED = 0x5A00_0000  # changes the index of a key, so that no object has the key
INSET = 512  # bytes by which a window is narrower than its region, at each end
LEAST = "least"  # the smallest path MTU
# The bytes of inline data for which queue pairs have room, by the path MTU: more than a packet of the smallest.
_INLINE = {"usual": 8, LEAST: SMALLEST_MTU_BYTES + 8}
# bytes by which a region is behind a multiple of 64, by its bounds
_BEHIND = {ALIGNED: 0, "odd": 3}
# A completion is missing if it takes so many times as long as the slowest one before it, and at least so many seconds;
# at least so many after one has been missing, because a defect that loses completions may have many points.
_TIMES, _AT_LEAST_S, _AT_LEAST_AGAIN_S = 20, 3.0, 1.0
_SOON_S = 0.05  # after this time, the state of the sender is queried


class LinkSpec(NamedTuple):
    """The values of the parameters of a connection; `second` is another connection of the same kind."""

    transport: str
    posting: str
    rights: str
    polling: str
    path_mtu: str
    inline: bool
    second: bool = False


@dataclass
class Registered:
    """A region with the entry that has registered it, and its extent."""

    mr: Mr
    entry: Entry
    extent: Extent
    release: Callable[[], object] | None = None  # releases the import of the region


@dataclass
class Link:
    """A connection, with its windows of type 2, which end when the connection is renewed."""

    connection: LoopbackConnection
    key: tuple[object, ...]
    rights: str
    windows: dict[tuple[object, ...], tuple[Window, Extent]] = field(default_factory=dict)


class Objects:
    """The objects of all points. `has` tells whether the device has a capability; `packet` is the number of bytes in a
    packet."""

    def __init__(self, bench: Bench, has: Callable[[str], bool]) -> None:
        self.bench, self.has, self.packet = bench, has, bench.packet
        self.cleanup = ExitStack()
        self.left_behind: list[str] = []
        self.pds: dict[str, Pd] = {}
        for name in ("pd", "other"):
            self.pds[name] = pd = bench.alloc_pd()
            self.cleanup.callback(self._release, f"domain {name}", pd.close)
        self._harnesses: dict[tuple[str, bool], HarnessResources] = {}
        self.memories = Memories(bench, self.pds["pd"], self.cleanup)
        self._child: Child | None = None  # has a copy of the forked memory
        self.cleanup.callback(self._end_child)
        self._regions: dict[tuple[str, str, str, str, str], Registered] = {}
        self._windows: dict[tuple[object, ...], tuple[Window, Extent]] = {}
        self._elsewhere: dict[bool, dict[str, int]] = {}  # the keys of regions of another process
        self._links: dict[tuple[object, ...], Link] = {}
        self._refused: dict[tuple[object, ...], SetupRefused] = {}
        self._wr_id = _FIRST_WR_ID
        self._slowest_s: float | None = None  # the longest wait for a completion that came
        self._least_s = _AT_LEAST_S

    def close(self) -> None:
        for link in self._links.values():
            self._forget_windows(link)
        self.cleanup.close()

    def _release(self, what: str, close: Callable[[], None]) -> None:
        release(self.left_behind, what, close)

    def completions(self, queue: Queue, sender: Pair | None = None) -> list[Completion]:
        """Returns the next completion, or none if it is missing. A message whose `sender` has failed is not awaited."""
        patience_s = COMPLETION_DEADLINE_S
        if self._slowest_s is not None:
            patience_s = min(patience_s, max(self._least_s, _TIMES * self._slowest_s))
        began = time.monotonic()
        completions: list[Completion] = []
        if sender is not None:
            completions = queue.completions(1, _SOON_S)
            if not completions and state_of(sender, sender.requester) == ERROR_STATE:
                return queue.completions(1, _SOON_S)  # sent before the failure
        if not completions:
            completions = queue.completions(1, patience_s)
        if completions:
            self._slowest_s = max(self._slowest_s or 0.0, time.monotonic() - began)
        else:
            self._least_s = _AT_LEAST_AGAIN_S
        return completions

    def wr_id(self) -> int:
        self._wr_id += 1
        return self._wr_id

    # Memory and regions

    def rights(self, name: str, how: str) -> int:
        """Returns the access flags of a region that is registered in the way `how`."""
        if name in _FEW_RIGHTS:
            return _ACCESS.mask_of(*_FEW_RIGHTS[name])
        flags = [flag for flag in self._offered() if flag != _right(name)]
        windows = self.has("mw_type_1") or self.has("mw_type_2")
        if name == BINDABLE or (windows and how not in _NOT_BINDABLE and name != "without_windows"):
            flags.append("MW_BIND")
        on_demand = how in _ON_DEMAND_WAYS
        flushed = how not in _NOT_FLUSHED and (not on_demand or self.has("odp_flush"))
        if flushed and name != "without_flush" and self.has("flush_global"):
            flags.append(FLUSH)
        return _ACCESS.mask_of("LOCAL_WRITE", *flags)

    def window_rights(self, name: str) -> int:
        """Returns the access flags of a window: `all` that peers can have, `none`, one, or all without one."""
        if name in _SINGLE:
            return _ACCESS.mask_of(*(flag for flag in self._offered() if flag == _SINGLE[name]))
        return _ACCESS.mask_of(*(flag for flag in self._offered() if flag != _right(name)))

    def queue_rights(self, name: str) -> int:
        """Returns the access flags of a queue pair."""
        flushes = self.has("flush_global") and not name.endswith("_flush")
        return self.window_rights(name) | (_ACCESS.value_of(FLUSH) if flushes else 0)

    def _offered(self) -> list[str]:
        return [flag for flag in _REMOTE if flag != "REMOTE_ATOMIC" or self.has("atomics")]

    def region(
        self,
        how: str,
        memory: str,
        rights: str,
        bounds: str = ALIGNED,
        pd: str = "pd",
    ) -> Registered:
        """Returns the region that is registered in this way. Raises SetupRefused."""
        key = (how, memory, rights, bounds, pd)
        if key not in self._regions:
            self._regions[key] = region = self._once(key, lambda: self.register(*key))
            self.cleanup.callback(self.deregister, region)
        return self._regions[key]

    def register(self, how: str, memory: str, rights: str, bounds: str, pd: str) -> Registered:
        """Registers a new region. Raises SetupRefused."""
        stored = self.memories.of_region(how, memory)
        before = self.memories.margin + _BEHIND[bounds]
        addr, length = stored.addr + before, self.memories.length
        access = self.rights(rights, how)
        release = None
        library = self.bench.entry("libibverbs")
        if how in _ENTRIES:
            entry = self.bench.entry({"ex": "reg_mr_ex"}.get(how, how))
        else:
            entry = library
        domain, base = self.pds[pd], addr
        if how == "iova":
            base = FAR + addr % self.bench.page
            returned = entry.reg_mr_iova(domain, addr, length, base, access)
        elif how == "zero_based":
            base = 0
            returned = entry.reg_mr(domain, addr, length, access | _ZERO_BASED)
        elif how == "on_demand":
            returned = entry.reg_mr(domain, addr, length, access | _ON_DEMAND)
        elif how == "implicit":
            returned = entry.reg_mr(domain, 0, _WHOLE, access | _ON_DEMAND)
        elif how == DMABUF:
            offset = stored.offset + before
            returned = entry.reg_dmabuf_mr(domain, offset, length, addr, stored.fd, access)
        elif how == NULL:
            returned = entry.alloc_null_mr(domain)
        elif how == DEVICE_MEMORY:
            assert isinstance(stored, OfDevice)
            base = 0
            access |= _ZERO_BASED
            returned = entry.reg_dm_mr(domain, stored.dm, before, length, access)
        elif how == "rereg_access":
            returned = entry.reg_mr(domain, addr, length, _LOCAL_WRITE)
        elif how == "rereg_pd":
            domain = self.pds[_OTHER[pd]]
            returned = entry.reg_mr(domain, addr, length, access)
        elif how == "rereg_translation":
            elsewhere = self.memories.of_kind("plain").addr
            returned = entry.reg_mr(domain, elsewhere, self.bench.page, access)
        elif how == "rereg_all":
            elsewhere, domain = self.memories.of_kind("plain").addr, self.pds[_OTHER[pd]]
            returned = entry.reg_mr(domain, elsewhere, self.bench.page, _LOCAL_WRITE)
        else:
            only(how, "reg_mr", "imported", *_ENTRIES)
            returned = entry.reg_mr(domain, addr, length, access)
        if returned.mr is None:
            raise SetupRefused(f"registering a region ({how})", errno_name(returned.errno))
        mr = returned.mr
        if how.startswith("rereg_"):
            self._change(entry, mr, how, pd, addr, access)
        keys = mr
        if how == "imported":
            keys, release = self._imported(entry, mr, domain)
        if memory == FORKED:
            self._fork()
        extent = Extent(addr, length, base, int(keys.struct.lkey), int(keys.struct.rkey))
        return Registered(mr, entry, extent, release)

    def _imported(self, entry: Entry, mr: Mr, pd: Pd) -> tuple[Mr, Callable[[], object] | None]:
        """Returns the import of a region, and what releases the import. Raises SetupRefused."""
        returned = entry.import_mr(pd, mr.handle)
        if returned.mr is None:
            entry.dereg_mr(mr)
            raise SetupRefused("ibv_import_mr", errno_name(returned.errno))
        return returned.mr, returned.release

    def _fork(self) -> None:
        """Forks a child, which lives until the next region of the memory is registered."""
        self._end_child()
        self._child = fork(lambda report, wait: wait())

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.wake()
            self._child.end()
            self._child = None

    def _change(self, entry: Entry, mr: Mr, how: str, pd: str, addr: int, access: int) -> None:
        length = self.memories.length
        if how == "rereg_all":
            every = _CHANGE.mask_of("CHANGE_TRANSLATION", "CHANGE_PD", "CHANGE_ACCESS")
            changed = entry.rereg_mr(mr, every, self.pds[pd], addr, length, access)
        elif how == "rereg_access":
            changed = entry.rereg_mr(mr, _CHANGE.value_of("CHANGE_ACCESS"), None, 0, 0, access)
        elif how == "rereg_pd":
            changed = entry.rereg_mr(mr, _CHANGE.value_of("CHANGE_PD"), self.pds[pd], 0, 0, 0)
        else:
            only(how, "rereg_translation")
            translation = _CHANGE.value_of("CHANGE_TRANSLATION")
            changed = entry.rereg_mr(mr, translation, None, addr, length, 0)
        if changed.value:
            entry.dereg_mr(mr)
            raise SetupRefused(f"ibv_rereg_mr ({how})", errno_name(changed.errno))

    def deregister(self, region: Registered) -> None:
        if region.release:
            region.release()
        refused = region.entry.dereg_mr(region.mr).value
        if refused:
            self.left_behind.append(f"a region: {errno_name(refused)}")

    def ended(self, how: str, memory: str, rights: str, bounds: str) -> Extent:
        """Returns the extent of a region that was registered and deregistered. Raises SetupRefused."""
        region = self.register(how, memory, rights, bounds, "pd")
        self.deregister(region)
        return region.extent

    def elsewhere(self, how: str) -> Extent:
        """Returns the extent of a region of the shared memory in another process, which is on demand if that is the way
        `how`. Raises SetupRefused."""
        memory, on_demand = self.memories.of_kind("shared"), how in _ON_DEMAND_WAYS
        if on_demand not in self._elsewhere:
            access = self.rights("all", "reg_mr")
            if on_demand:
                access = self.rights("all", how) | _ON_DEMAND
            parts = self.bench, memory, access, "none", self.cleanup
            self._elsewhere[on_demand] = registered_elsewhere(*parts)[1]
        addr, keys = memory.addr + self.memories.margin, self._elsewhere[on_demand]
        return Extent(addr, self.memories.length, addr, keys["lkey"], keys["rkey"])

    def invented(self, extent: Extent) -> Extent:
        return Extent(
            extent.addr,
            extent.length,
            extent.base,
            extent.lkey ^ _INVENTED,
            extent.rkey ^ _INVENTED,
        )

    def _once(self, key: tuple[object, ...], make: Callable[[], Registered]) -> Registered:
        """Creates an object. A refusal is remembered, so that the object is tried once."""
        if key in self._refused:
            raise self._refused[key]
        try:
            return make()
        except SetupRefused as refusal:
            self._refused[key] = refusal
            raise

    # Connections and windows

    def link(self, spec: LinkSpec) -> Link:
        """Returns a connection. Raises SetupRefused."""
        transport, posting, rights = spec.transport, spec.posting, spec.rights
        key = tuple(spec)
        if key not in self._links:
            only(transport, *_TRANSPORTS)
            only(posting, WR_POST, "post_send")
            _right(rights)
            if key in self._refused:
                raise self._refused[key]
            if posting == WR_POST:
                extended = _BUILT.get(transport, "")
            else:
                extended = ""
            access = None
            if rights.startswith("without_"):
                access = self.queue_rights(rights)
            elif rights == GRANTED:
                access = 0
            try:
                connection = self._harness(rights, spec.second).connection(
                    transport,
                    "pd",
                    access,
                    extended,
                    _INLINE[spec.path_mtu] if spec.inline else 0,
                    by_readers={"poll_cq": False, "start_poll": True}[spec.polling],
                    path_mtu={"usual": 0, LEAST: SMALLEST_MTU}[spec.path_mtu],
                )
            except HostLacks as lack:
                self._refused[key] = refusal = SetupRefused(str(lack), "")
                raise refusal from lack
            except SetupRefused as refusal:
                self._refused[key] = refusal
                raise
            self._links[key] = link = Link(connection, key, rights)
            self._change_rights(link)
        return self._links[key]

    def _harness(self, rights: str, second: bool) -> HarnessResources:
        """Returns the resources for connections with these rights: those of other rights are other queue pairs."""
        key = (rights, second)
        if key not in self._harnesses:
            self._harnesses[key] = HarnessResources(
                self.bench,
                self.pds,
                self.cleanup,
                self.left_behind,
            )
        return self._harnesses[key]

    def _change_rights(self, link: Link) -> None:
        """Changes the rights of the responder's queue pair by ibv_modify_qp, if the point wants it. Raises
        SetupRefused."""
        if link.rights == GRANTED:
            access = self.queue_rights("all")
        elif link.rights.startswith("revoked_"):
            access = self.queue_rights(link.rights)
        else:
            return
        responder = cast(ModifiableQueue, link.connection.pair.responder)
        changed = responder.set_access(access)
        if changed.value:
            raise SetupRefused("ibv_modify_qp of rights", errno_name(changed.value))

    def renew_if_stale(self, link: Link) -> None:
        """Renews a connection after a refused request. Raises SetupRefused."""
        if link.connection.stale:
            self._forget_windows(link)
            link.connection.renew_if_stale()
            self._change_rights(link)

    def _forget_windows(self, link: Link) -> None:
        for window, _ in link.windows.values():
            self.deallocate(window)
        link.windows.clear()

    def deallocate(self, window: Window) -> None:
        refused = window.dealloc().value
        if refused:
            self.left_behind.append(f"a window: {errno_name(refused)}")

    def window(
        self,
        link: Link,
        region: Registered,
        kind: int,
        rights: str,
        zero: bool,
        again: bool = False,
    ) -> Extent:
        """Returns the extent of a window of a region, bound over the responder of `link`; `again` if it was bound to
        another region before. Raises SetupRefused."""
        key = (kind, region.extent.rkey, rights, zero, again)
        if kind == 1:
            kept = self._windows
        else:
            kept = link.windows
        if key not in kept:
            window = self.allocated(kind)
            try:
                if again:
                    self.bound_elsewhere(link, window, kind)
                kept[key] = window, self.bound(link, window, region, kind, rights, zero)
            except SetupRefused:
                self.deallocate(window)
                raise
            if kind == 1:
                self.cleanup.callback(self.deallocate, window)
        return kept[key][1]

    def bound_elsewhere(self, link: Link, window: Window, kind: int) -> None:
        """Binds a window to the other memory of requests; a window of type 2 is then invalidated. Raises SetupRefused."""
        other = self.region("reg_mr", "plain", "all")
        rkey = self.bound(link, window, other, kind, "all", False).rkey
        if kind == 2:
            self.invalidated(link, rkey)

    def invalidated(self, link: Link, rkey: int) -> None:
        """Invalidates the window of type 2 with this key. Raises SetupRefused."""
        request = SendRequest("LOCAL_INV", self.wr_id(), invalidate_rkey=rkey)
        refused = link.connection.pair.responder.post_send(request).value
        self.completed(link, refused, "invalidating a window")

    def allocated(self, kind: int, pd: str = "pd") -> Window:
        """Returns a new window. Raises SetupRefused."""
        window, returned = self.bench.alloc_mw(self.pds[pd], kind)
        if window is None:
            raise SetupRefused(f"ibv_alloc_mw of type {kind}", errno_name(returned.errno))
        return window

    def bound(
        self,
        link: Link,
        window: Window,
        region: Registered,
        kind: int,
        rights: str,
        zero: bool,
    ) -> Extent:
        """Binds a window to the middle of a region. Raises SetupRefused."""
        whole, queue = region.extent, link.connection.pair.responder
        start, length = whole.base + INSET, whole.length - 2 * INSET
        access = self.window_rights(rights) | (_ZERO_BASED if zero else 0)
        info = BindInfo(region.mr, start, length, access)
        if kind == 1:
            refused = queue.bind_mw(window, info, SIGNALED, self.wr_id()).value
            rkey = window.rkey
        else:
            rkey = next_rkey(window.rkey)
            request = SendRequest("BIND_MW", self.wr_id(), rkey=rkey, window=window, bind=info)
            refused = queue.post_send(request).value
            window.rkey = rkey
        self.completed(link, refused, f"binding a window of type {kind}")
        return Extent(whole.addr + INSET, length, 0 if zero else start, window.rkey, rkey)

    def completed(self, link: Link, refused: int, what: str) -> None:
        """Awaits a request of the responder, which returned `refused`. Raises SetupRefused if it fails."""
        if refused:
            completions = []
        else:
            completions = link.connection.pair.responder.completions(1)
        if completions:
            status = completions[0].status
        else:
            status = errno_name(refused) or "no completion"
        if status != "SUCCESS":
            link.connection.stale = True
            raise SetupRefused(what, status)


def _right(name: str) -> str:
    """Returns the access flag that rights such as `without_write` lack; an empty text if they lack no such flag."""
    how, _, right = name.partition("_")
    if how in ("without", "revoked"):
        return f"REMOTE_{only(right, 'write', 'read', 'atomic', 'flush', 'windows').upper()}"
    only(name, "all", BINDABLE, GRANTED)
    return ""


def only(value: str, *values: str) -> str:
    """Returns the value of a parameter. Raises LookupError for a value that no code carries out."""
    if value not in values:
        raise LookupError(f"no code carries out the value {value!r}")
    return value


_ENTRIES = ("ex", "uverbs")
_TRANSPORTS = ("RC", "RC_SRQ", "UC", "UD", "XRC")
_OTHER = {"pd": "other", "other": "pd"}  # for each domain, the other
_BUILT: Mapping[str, str] = {"RC": WINDOWS_POSTER, "UC": WINDOWS_POSTER, "UD": WR_POST}
