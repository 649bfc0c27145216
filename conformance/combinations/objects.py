"""Keeps the objects of points: memory, regions, windows and connections, each created when a point needs it first. A
point that ends an object gets its own. The objects are released when the last point has run."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from conformance.bench.calls import Mr, Pd, Window, errno_name
from conformance.bench.interface import Bench, Entry, Memory
from conformance.bench.work_requests import SIGNALED, BindInfo, SendRequest, next_rkey
from conformance.combinations.extent import Extent
from conformance.errors import SetupRefused
from conformance.execution.connection import LoopbackConnection
from conformance.execution.context import HarnessResources, release
from conformance.model.deadline import COMPLETION_DEADLINE_S
from conformance.model.vocabulary import WINDOWS_POSTER, WR_POST
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_CHANGE = ENUMS["ibv_rereg_mr_flags"]
_LOCAL_WRITE = _ACCESS.value_of("LOCAL_WRITE")
_ZERO_BASED = _ACCESS.value_of("ZERO_BASED")
_REMOTE = ("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
_FAR = 0x7A00_0000_0000  # the hca_va of regions that are registered far from their address
_FIRST_WR_ID = 0x610001
_INVENTED = 0x5A00_0000  # changes the index of a key, so that no object has the key
_INSET = 512  # bytes by which a window is narrower than its region, at each end
_INLINE = 8
# The deadline of a completion after one was missing: a defect that loses completions may have many points.
PATIENCE_S = 2.0


@dataclass
class Registered:
    """A region with the entry that has registered it, and its extent."""

    mr: Mr
    entry: Entry
    extent: Extent


@dataclass
class Link:
    """A connection, with its windows of type 2, which end when the connection is renewed."""

    connection: LoopbackConnection
    key: tuple[object, ...]
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
        self._harness = HarnessResources(bench, self.pds, self.cleanup, self.left_behind)
        self._second = HarnessResources(bench, self.pds, self.cleanup, self.left_behind)
        self._memory: dict[str, Memory] = {}
        self._regions: dict[tuple[str, str, str, str], Registered] = {}
        self._windows: dict[tuple[object, ...], tuple[Window, Extent]] = {}
        self._links: dict[tuple[object, ...], Link] = {}
        self._refused: dict[tuple[object, ...], SetupRefused] = {}
        self._wr_id = _FIRST_WR_ID
        self.patience_s = COMPLETION_DEADLINE_S

    def close(self) -> None:
        for link in self._links.values():
            self._forget_windows(link)
        self.cleanup.close()

    def _release(self, what: str, close: Callable[[], None]) -> None:
        release(self.left_behind, what, close)

    def wr_id(self) -> int:
        self._wr_id += 1
        return self._wr_id

    # Memory and regions

    @property
    def length(self) -> int:
        """The number of bytes of a region."""
        return 2 * self.bench.page + 8 * self.packet + 192

    @property
    def margin(self) -> int:
        """The number of bytes before a region, to the beginning of its memory."""
        return self.bench.page + 4 * self.packet + 64

    def memory(self, kind: str) -> Memory:
        """Returns the memory of a kind, with the region in its middle."""
        if kind not in self._memory:
            if kind in ("dropped", "plain"):
                stored = "shared"
            else:
                stored = kind
            made = self.bench.allocate(stored, self.length + 2 * self.margin)
            self.cleanup.callback(made.close)
            self._memory[kind] = made
        return self._memory[kind]

    def rights(self, name: str, on_demand: bool) -> int:
        """Returns the access flags of a region."""
        if name == "without_local_write":
            return _ACCESS.mask_of("REMOTE_READ")
        missing = f"REMOTE_{name.removeprefix('without_').upper()}"
        flags = [flag for flag in self._offered() if flag != missing]
        windows = self.has("mw_type_1") or self.has("mw_type_2")
        if windows and not on_demand:
            flags.append("MW_BIND")
        return _ACCESS.mask_of("LOCAL_WRITE", *flags)

    def window_rights(self, name: str) -> int:
        """Returns the access flags of a window or of a queue pair."""
        missing = f"REMOTE_{name.removeprefix('without_').upper()}"
        return _ACCESS.mask_of(*(flag for flag in self._offered() if flag != missing))

    def _offered(self) -> list[str]:
        return [flag for flag in _REMOTE if flag != "REMOTE_ATOMIC" or self.has("atomics")]

    def region(self, how: str, memory: str, rights: str, pd: str = "pd") -> Registered:
        """Returns the region that is registered in this way. Raises SetupRefused."""
        key = (how, memory, rights, pd)
        if key not in self._regions:
            self._regions[key] = made = self._once(key, lambda: self.register(*key))
            self.cleanup.callback(self._deregister, made)
        return self._regions[key]

    def register(self, how: str, memory: str, rights: str, pd: str) -> Registered:
        """Registers a new region. Raises SetupRefused."""
        addr, length = self.memory(memory).addr + self.margin, self.length
        access = self.rights(rights, how == "on_demand")
        library = self.bench.entry("libibverbs")
        if how in _ENTRIES:
            entry = self.bench.entry({"ex": "reg_mr_ex"}.get(how, how))
        else:
            entry = library
        domain, base = self.pds[pd], addr
        if how == "iova":
            base = _FAR + addr % self.bench.page
            returned = entry.reg_mr_iova(domain, addr, length, base, access)
        elif how == "zero_based":
            base = 0
            returned = entry.reg_mr(domain, addr, length, access | _ZERO_BASED)
        elif how == "on_demand":
            returned = entry.reg_mr(domain, addr, length, access | _ACCESS.value_of("ON_DEMAND"))
        elif how == "rereg_access":
            returned = entry.reg_mr(domain, addr, length, _LOCAL_WRITE)
        elif how == "rereg_pd":
            domain = self.pds["other" if pd == "pd" else "pd"]
            returned = entry.reg_mr(domain, addr, length, access)
        elif how == "rereg_translation":
            elsewhere = self.memory("plain").addr
            returned = entry.reg_mr(domain, elsewhere, self.bench.page, access)
        else:
            returned = entry.reg_mr(domain, addr, length, access)
        if returned.mr is None:
            raise SetupRefused(f"registering a region ({how})", errno_name(returned.errno))
        mr = returned.mr
        if how.startswith("rereg_"):
            self._change(entry, mr, how, pd, addr, access)
        extent = Extent(addr, length, base, int(mr.struct.lkey), int(mr.struct.rkey))
        return Registered(mr, entry, extent)

    def _change(self, entry: Entry, mr: Mr, how: str, pd: str, addr: int, access: int) -> None:
        if how == "rereg_access":
            changed = entry.rereg_mr(mr, _CHANGE.value_of("CHANGE_ACCESS"), None, 0, 0, access)
        elif how == "rereg_pd":
            changed = entry.rereg_mr(mr, _CHANGE.value_of("CHANGE_PD"), self.pds[pd], 0, 0, 0)
        else:
            translation = _CHANGE.value_of("CHANGE_TRANSLATION")
            changed = entry.rereg_mr(mr, translation, None, addr, self.length, 0)
        if changed.value:
            entry.dereg_mr(mr)
            raise SetupRefused(f"ibv_rereg_mr ({how})", errno_name(changed.errno))

    def _deregister(self, region: Registered) -> None:
        refused = region.entry.dereg_mr(region.mr).value
        if refused:
            self.left_behind.append(f"a region: {errno_name(refused)}")

    def ended(self, how: str, memory: str, rights: str) -> Extent:
        """Returns the extent of a region that was registered and deregistered. Raises SetupRefused."""
        made = self.register(how, memory, rights, "pd")
        self._deregister(made)
        return made.extent

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

    def link(
        self,
        transport: str,
        posting: str,
        rights: str,
        inline: bool,
        second: bool = False,
    ) -> Link:
        """Returns a connection; `second` is another connection of this kind. Raises SetupRefused."""
        key = (transport, posting, rights, inline, second)
        if key not in self._links:
            if key in self._refused:
                raise self._refused[key]
            if posting == WR_POST:
                extended = _BUILT.get(transport, "")
            else:
                extended = ""
            if second:
                harness = self._second
            else:
                harness = self._harness
            if rights != "all":
                access = self.window_rights(rights)
            else:
                access = None
            try:
                connection = harness.connection(
                    transport,
                    "pd",
                    access,
                    extended,
                    _INLINE if inline else 0,
                )
            except SetupRefused as refusal:
                self._refused[key] = refusal
                raise
            self._links[key] = Link(connection, key)
        return self._links[key]

    def renew_if_stale(self, link: Link) -> None:
        if link.connection.stale:
            self._forget_windows(link)
            link.connection.renew_if_stale()

    def _forget_windows(self, link: Link) -> None:
        for window, _ in link.windows.values():
            self.deallocate(window)
        link.windows.clear()

    def deallocate(self, window: Window) -> None:
        refused = window.dealloc().value
        if refused:
            self.left_behind.append(f"a window: {errno_name(refused)}")

    def window(self, link: Link, region: Registered, kind: int, rights: str, zero: bool) -> Extent:
        """Returns the extent of a window of a region, bound over the responder of `link`. Raises SetupRefused."""
        key = (kind, region.extent.rkey, rights, zero)
        if kind == 1:
            kept = self._windows
        else:
            kept = link.windows
        if key not in kept:
            window = self.allocated(kind)
            try:
                kept[key] = window, self.bound(link, window, region, kind, rights, zero)
            except SetupRefused:
                self.deallocate(window)
                raise
            if kind == 1:
                self.cleanup.callback(self.deallocate, window)
        return kept[key][1]

    def allocated(self, kind: int) -> Window:
        """Returns a new window. Raises SetupRefused."""
        window, returned = self.bench.alloc_mw(self.pds["pd"], kind)
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
        start, length = whole.base + _INSET, whole.length - 2 * _INSET
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
        self._completed(link, refused, f"binding a window of type {kind}")
        return Extent(whole.addr + _INSET, length, 0 if zero else start, window.rkey, rkey)

    def _completed(self, link: Link, refused: int, what: str) -> None:
        if refused:
            found = []
        else:
            found = link.connection.pair.responder.completions(1)
        if found:
            status = found[0].status
        else:
            status = errno_name(refused) or "no completion"
        if status != "SUCCESS":
            link.connection.stale = True
            raise SetupRefused(what, status)


_ENTRIES = ("ex", "uverbs")
_BUILT: Mapping[str, str] = {"RC": WINDOWS_POSTER, "UC": WINDOWS_POSTER, "UD": WR_POST}
