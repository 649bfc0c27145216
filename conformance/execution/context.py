"""Stores the objects of one case in progress by name, evaluates arguments, and releases the objects. Also provides the
harness's resources for traffic: its own connections, and registered memory for the end that is not under test.

The harness's resources are created on first use and exist until the set-up of the case is released. Therefore the
points of a sweep share the resources.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from conformance.bench.calls import Buffer, Held, Mr, Pd, Return, Sge, Window, errno_name
from conformance.bench.interface import Bench, DmaBuf, Entry, Memory, Pair, Queue
from conformance.bench.memory_areas import Part
from conformance.bench.work_requests import BindInfo, key32
from conformance.device.remote_peer import RemoteDomain
from conformance.errors import HostLacks, NotConnected, SetupRefused
from conformance.execution.connection import LoopbackConnection
from conformance.kernel.child import Child
from conformance.model.case import Argument, Case, Flags, QpSpec, SgeSpec, Step, Value
from conformance.model.expected_errors import DATAGRAM_HEADER
from conformance.model.observation import Observation
from conformance.model.operations import BOTH_POSTERS, BUILDERS, PROBES, WR_POST
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import NULL, WIRE
from conformance.verbs import ENUMS, VERBS

_LOCAL_WRITE = ENUMS["ibv_access_flags"].value_of("LOCAL_WRITE")
_FIRST_WR_ID = 0x510001


class HarnessResources:
    """The connections of the harness, by their properties, and its memory, by use. `cleanup` releases them."""

    def __init__(
        self,
        bench: Bench,
        pds: Mapping[str, Pd],
        cleanup: ExitStack,
        left_behind: list[str],
    ) -> None:
        """PDs may be added to `pds` later. Objects that the device does not release are added to `left_behind`."""
        self.bench, self.pds, self._cleanup, self._left_behind = bench, pds, cleanup, left_behind
        self._connections: dict[tuple[object, ...], LoopbackConnection] = {}
        self._scratch: dict[tuple[int, str, int], Sge] = {}
        self._wr_ids = itertools.count(_FIRST_WR_ID)

    def connection(
        self,
        kind: str,
        pd: str,
        access: int | None = None,
        extended: str = "",
        inline: int = 0,
        shared: str = NULL,
        by_readers: bool = False,
        path_mtu: int = 0,
    ) -> LoopbackConnection:
        """Returns the connection with this QpSpec, created on first use. Raises SetupRefused."""
        key = (kind, pd, access, extended, inline, shared, by_readers, path_mtu)
        if key not in self._connections:
            spec = QpSpec(
                kind,
                pd,
                access=access,
                extended=extended,
                inline=inline,
                shared=self.pds.get(shared),
                by_readers=by_readers,
                path_mtu=path_mtu,
            )
            pair = create_pair(self.bench, spec, self.pds)
            self._cleanup.callback(release, self._left_behind, f"queue pair {kind}", pair.close)
            self._connections[key] = connection = LoopbackConnection(
                pair,
                lambda: next(self._wr_ids),
            )
            if kind == "UD":
                connection.sink = (self.scratch(pair.responder.pd, DATAGRAM_HEADER, "header"),)
        return self._connections[key]

    def scratch(self, pd: Pd, size: int, use: str, access: int = 0) -> Sge:
        """Returns registered memory of `size` bytes. Each `use` has its own memory, which is replaced if a call needs
        more. Mapped pages surround the memory, so that the registration succeeds even if a driver registers too many
        pages. `access` is the mask of the flags besides LOCAL_WRITE. Raises SetupRefused."""
        key = (pd.pointer, use, access)
        if key not in self._scratch or self._scratch[key].length < size:
            self._scratch[key] = self._register(pd, max(size, self.bench.page), access)
        area = self._scratch[key]
        return Sge(area.addr, size, area.lkey, area.rkey)

    def _register(self, pd: Pd, size: int, access: int) -> Sge:
        margin = self.bench.page
        memory = self.bench.allocate("anonymous", size + 2 * margin)
        self._cleanup.callback(memory.close)
        entry = pd.device if isinstance(pd, RemoteDomain) else self.bench.entry("libibverbs")
        addr = memory.addr + margin
        returned = entry.reg_mr(pd, addr, size, _LOCAL_WRITE | access)
        if returned.mr is None:
            raise SetupRefused("registering the local side's memory", errno_name(returned.errno))
        mr = returned.mr
        self._cleanup.callback(lambda: entry.dereg_mr(mr))
        return Sge(addr, size, int(mr.struct.lkey), int(mr.struct.rkey))


def create_pair(bench: Bench, spec: QpSpec, pds: Mapping[str, Pd]) -> Pair:
    """Creates a connected pair whose responder is in the PD of `spec`. Raises SetupRefused, or HostLacks if the device
    may refuse the pair because it has no room for so many bytes of inline data."""
    try:
        return bench.pair(spec, pds["pd"], pds[spec.pd])
    except NotConnected as error:
        what = f"connecting two queue pairs of type {spec.kind}"
        raise SetupRefused(what, errno_name(error.error_code)) from error
    except Exception as error:
        code = getattr(error, "error_code", None)
        if code is None:
            raise
        if spec.inline and code == errno.EINVAL:
            room = f"room for {spec.inline} bytes of inline data"
            what = f"a queue pair of type {spec.kind} with {room}"
            raise HostLacks(what, hint="the device makes none") from error
        if spec.extended == BOTH_POSTERS:
            built = WR_POST
        else:
            built = spec.extended
        if built in BUILDERS:
            creates = built
        else:
            creates = spec.kind.removesuffix("_SEND").lower()
        raise SetupRefused(
            f"making a queue pair of type {spec.kind}",
            errno_name(code),
            creates=creates,
        ) from error


def release(left_behind: list[str], what: str, close: Callable[[], None]) -> None:
    """Closes an object. If the device refuses the release, adds the refusal to `left_behind` instead of raising an
    exception."""
    try:
        close()
    except Exception as error:  # the exceptions of pyverbs differ between versions
        left_behind.append(f"{what}: {str(error).splitlines()[0]}")


# In memory larger than _EXAMINED, only the range and _MARGIN bytes on each side of the range are filled and compared.
_EXAMINED, _MARGIN = 64 << 20, 64 << 10


def result_of(returned: Return) -> Observation:
    """Returns the observation of a call that returns 0 or an errno."""
    value, errno = returned.value, returned.errno
    if value > 0:
        name = errno_name(value)
    else:
        name = str(value)
    return {
        "rc": value,
        "returned": name,
        "errno": errno_name(errno) if errno else "",
        "layer": returned.layer,
    }


def told(returned: str = "0", layer: str = "none", rc: int | None = 0) -> Observation:
    """Returns the observation of a call that is not a verb and has no errno."""
    return {"rc": rc, "returned": returned, "errno": "", "layer": layer}


def compared(seen: Observation, different: list[str]) -> Observation:
    """Adds to an observation the differences from the required result, if there are any."""
    if different:
        return {**seen, "differences": different}
    return seen


def null_result(returned: Return) -> Observation:
    """Returns the observation of a call that returned NULL instead of an object."""
    return {
        "rc": None,
        "returned": "NULL",
        "errno": errno_name(returned.errno),
        "layer": returned.layer,
    }


# Calls that neither create nor release an object.
_WITHOUT_OBJECTS = (
    *PROBES,
    *(name for name, verb in VERBS.items() if verb.leaves_objects and not verb.product),
    "resident",
)


class CaseContext:
    """The objects of one case in progress, by name. `cleanup` releases them; `left_behind` lists releases that
    failed."""

    def __init__(
        self,
        case: Case,
        bench: Bench,
        progress: Callable[[str, int], None] = lambda what, done: None,
    ) -> None:
        self.case = case
        self.bench = bench
        self.progress = progress  # called regularly during a long call (runner.Progress)
        self.entry = bench.entry(case.entry)
        self.memory: dict[str, Memory] = {}
        self.dmabufs: dict[str, DmaBuf] = {}
        self.exported_fd = -1  # the latest descriptor of ibv_dm_export_dmabuf_fd
        self.buffers: dict[str, Buffer] = {}
        self.held: dict[str, Held] = {}
        self.pds: dict[str, Pd] = {}
        self.mrs: dict[str, Mr] = {}
        self.owners: dict[str, Entry] = {}
        self.fields: dict[str, dict[str, int]] = {}
        self.pairs: dict[str, Pair] = {}
        self.destroyed: list[Pair] = []  # the pairs that a step has destroyed
        self.windows: dict[str, Window] = {}
        self.released: set[str] = set()  # regions and windows that a step has released
        self._connections: dict[str, LoopbackConnection] = {}
        self.cleanup = ExitStack()
        self.left_behind: list[str] = []
        self.harness = HarnessResources(bench, self.pds, self.cleanup, self.left_behind)
        # Resumes the other process of the case, and returns its next report (elsewhere.py).
        self.next_report: Callable[[], bytes] | None = None
        self.children: dict[str, Child] = {}  # forked children, by the memory that they copy
        # by pair: the posting queue, the other end's memory
        self.in_flight: dict[str, tuple[Queue, Part]] = {}
        self._work_requests = itertools.count((0x5100 << 48) + 1)  # shared by all branches
        self._trunk: CaseContext | None = None  # the context that this context branches from

    def branch(self, case: Case) -> CaseContext:
        """Returns a context for `case` on the same set-up. Only the returned context has the objects that `case`
        creates."""
        branch = self._view(case)
        branch._trunk = self
        attributes = branch.__dict__
        for name in (
            "mrs",
            "owners",
            "fields",
            "buffers",
            "held",
            "pairs",
            "windows",
            "_connections",
            "released",
        ):
            attributes[name] = attributes[name].copy()
        return branch

    def for_call(self, case: Case) -> CaseContext:
        """Returns a context for the calls of a case on this set-up: a branch if the calls create or release objects."""
        if case.when.call in _WITHOUT_OBJECTS and not case.afterwards:
            return self._view(case)
        return self.branch(case)

    def _view(self, case: Case) -> CaseContext:
        # A copy of this object, made in a tenth of the time of copy.copy, because each point of a sweep needs one.
        view = CaseContext.__new__(CaseContext)
        view.__dict__.update(self.__dict__)
        view.case, view.entry = case, self.bench.entry(case.entry)
        view.cleanup, view.left_behind = ExitStack(), []
        return view

    def pair(self, spec: QpSpec) -> Pair:
        """Creates a connected pair whose responder is in the PD of `spec`, and closes the pair after the case."""
        pair = create_pair(self.bench, spec, self.pds)
        self.cleanup.callback(self._release_pair, spec.kind, pair)
        return pair

    def _release_pair(self, kind: str, pair: Pair) -> None:
        if pair not in self.destroyed:
            self.release(f"queue pair {kind}", pair.close)

    def destroy_pair(self, name: str) -> None:
        """Destroys a pair of the case before the case has finished."""
        pair = self.pairs.pop(name)
        pair.close()
        self.destroyed.append(pair)

    def connection(self, name: str) -> LoopbackConnection:
        """Returns the connection over a pair of the case. This connection is never renewed, because the case may depend
        on the pair's state."""
        if name not in self._connections:
            kind = self.pairs[name].responder.kind
            extended = self.case.given.qps[name].extended
            if extended == WIRE:
                peer = WIRE
            else:
                peer = ""
            self._connections[name] = LoopbackConnection(
                self.pairs[name],
                self.next_wr_id,
                renewable=False,
                control=lambda: self.harness.connection(kind, "pd", extended=peer),
            )
        return self._connections[name]

    def memory_around(self, addr: int, length: int) -> Memory:
        """Returns the memory of the case that contains a range, or the part around the range if the memory is large.
        Raises LookupError if no memory contains the range."""
        areas: list[Memory] = [
            *self.memory.values(),
            *self.dmabufs.values(),
            *self.buffers.values(),
        ]
        for memory in areas:
            end = memory.addr + memory.size
            if memory.addr <= addr and addr + length <= end:
                start = max(memory.addr, addr - _MARGIN)
                if memory.size <= _EXAMINED:
                    return memory
                return Part(start, min(end, addr + length + _MARGIN) - start)
        raise LookupError(
            f"traffic at {addr:#x} for {length} bytes is outside the case's memory; specify `at`, an address in it",
        )

    def keep_mr(self, name: str, mr: Mr, entry: Entry) -> None:
        """Adds a region. If it is still registered after the case, it is deregistered."""
        self.mrs[name] = mr
        self.owners[name] = entry
        self.fields[name] = mr.fields()
        self.cleanup.callback(self._release_mr, name, mr)

    def forget(self, kind: str, name: str) -> None:
        """Removes a released object from `mrs` or `windows` of this context, and of the contexts it branches from."""
        held, context = getattr(self, kind)[name], self
        while getattr(context, kind).get(name) is held:
            del getattr(context, kind)[name]
            context.released.add(name)
            if context._trunk is None:
                break
            context = context._trunk

    def _release_mr(self, name: str, mr: Mr) -> None:
        if self.mrs.get(name) is not mr:
            return  # already deregistered by the case
        returned = self.owners[name].dereg_mr(mr)
        if returned.value != 0:
            self.left_behind.append(
                f"MR {name}: deregistering it returned {errno_name(returned.value)}",
            )

    def release(self, what: str, close: Callable[[], None]) -> None:
        release(self.left_behind, what, close)

    def bind_info(self, arguments: Mapping[str, Argument]) -> BindInfo:
        """Returns struct ibv_mw_bind_info with the arguments of a bind."""
        if arguments["mr"] == NULL:
            mr = None
        else:
            mr = self.mrs[str(arguments["mr"])]
        return BindInfo(mr, *self.numbers(arguments, "addr", "length", "access"))

    def next_wr_id(self) -> int:
        """Returns a new work request id. Neither 32-bit half of the id is zero."""
        return next(self._work_requests)

    def number(self, argument: Argument) -> int:
        if isinstance(argument, Quantity):
            return self.bytes(argument)
        if isinstance(argument, Flags):
            return argument.mask
        if isinstance(argument, Value):
            return argument.number
        raise TypeError(f"{argument!r} names an object, not a number")

    def sges(self, argument: Argument) -> tuple[Sge, ...]:
        assert isinstance(argument, tuple)
        sges: list[Sge] = []
        for element in argument:
            assert isinstance(element, SgeSpec)
            length, lkey = self.bytes(element.length), self.bytes(element.lkey)
            sges.append(Sge(self.bytes(element.addr), length % (1 << 32), key32(lkey)))
        return tuple(sges)

    def pd_of(self, step: Step) -> Pd:
        return self.pds[str(step.arguments["pd"])]

    def pair_of(self, step: Step) -> Pair:
        return self.pairs[str(step.arguments["qp"])]

    def memory_of(self, step: Step) -> Memory:
        return self.memory[str(step.arguments["memory"])]

    def window_of(self, step: Step) -> Window:
        return self.windows[str(step.arguments["mw"])]

    def numbers(self, arguments: Mapping[str, Argument], *keys: str) -> list[int]:
        return [self.number(arguments[key]) for key in keys]

    def bytes(self, quantity: Quantity) -> int:
        """Returns the value of a quantity: an address, a length in bytes, or a key."""
        return quantity.evaluate(self.bench.page, self.bench.hugepage, self._property)

    def _property(self, name: str, property_: str) -> int:
        memory = self.memory.get(name) or self.dmabufs.get(name) or self.buffers.get(name)
        if memory is not None:
            if property_ == "size":
                return memory.size
            if property_ == "end":
                return memory.addr + memory.size
            return memory.addr
        if name in self.windows:
            return int(getattr(self.windows[name], property_))
        return self.fields[name][property_ or "addr"]
