"""Resources of the harness for traffic: its own connections, and registered memory for the side not under test.

They are created on first use and kept until the set-up of the case is released, so that the points of a sweep share
them. Not for objects that a case names (context.py).
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from conformance.bench.calls import Pd, Sge, errno_name
from conformance.bench.interface import Bench, Pair
from conformance.device.remote_peer import RemoteDomain
from conformance.errors import NotConnected, SetupRefused
from conformance.execution.connection import LoopbackConnection
from conformance.model.case import QpSpec
from conformance.model.expected_errors import DATAGRAM_HEADER
from conformance.model.vocabulary import BOTH_POSTERS, BUILDERS, NULL, WR_POST
from conformance.verbs import ENUMS

_LOCAL_WRITE = ENUMS["ibv_access_flags"].value_of("LOCAL_WRITE")
_FIRST_WR_ID = 0x510000


class HarnessResources:
    """Connections by their properties, memory by its use. `cleanup` releases all of them."""

    def __init__(self, bench: Bench, pds: Mapping[str, Pd], cleanup: ExitStack, left_behind: list[str]) -> None:
        """`pds` may be filled later. Objects that the device does not release are added to `left_behind`."""
        self._bench, self._pds, self._cleanup, self._left_behind = bench, pds, cleanup, left_behind
        self._connections: dict[tuple[str, str, int | None, str, int, str], LoopbackConnection] = {}
        self._scratch: dict[tuple[int, str, int], Sge] = {}
        self._work_requests = _FIRST_WR_ID

    def connection(
        self, kind: str, pd: str, access: int | None = None, extended: str = "", inline: int = 0, shared: str = NULL
    ) -> LoopbackConnection:
        """The connection with this QpSpec, created on first use. Raises SetupRefused."""
        key = (kind, pd, access, extended, inline, shared)
        if key not in self._connections:
            spec = QpSpec(kind, pd, access=access, extended=extended, inline=inline, shared=self._pds.get(shared))
            pair = create_pair(self._bench, spec, self._pds)
            self._cleanup.callback(release, self._left_behind, f"queue pair {kind}", pair.close)
            self._connections[key] = connection = LoopbackConnection(pair, self._next_wr_id)
            if kind == "UD":
                connection.sink = (self.scratch(pair.responder.pd, DATAGRAM_HEADER, "header"),)
        return self._connections[key]

    def scratch(self, pd: Pd, size: int, use: str, access: int = 0) -> Sge:
        """Registered memory of `size` bytes. Each `use` has memory of its own, which is replaced if more is needed. It
        is the middle of a mapping, so that a driver that registers too much works as well. `access` are the rights of
        peers. Raises SetupRefused.
        """
        key = (pd.pointer, use, access)
        if key not in self._scratch or self._scratch[key].length < size:
            self._scratch[key] = self._register(pd, max(size, self._bench.page), access)
        whole = self._scratch[key]
        return Sge(whole.addr, size, whole.lkey, whole.rkey)

    def _register(self, pd: Pd, size: int, access: int) -> Sge:
        margin = self._bench.page
        memory = self._bench.allocate("anonymous", size + 2 * margin)
        self._cleanup.callback(memory.close)
        entry = pd.device if isinstance(pd, RemoteDomain) else self._bench.entry("libibverbs")
        addr = memory.addr + margin
        returned = entry.reg_mr(pd, addr, size, _LOCAL_WRITE | access)
        if returned.mr is None:
            raise SetupRefused("registering the local side's memory", errno_name(returned.errno))
        mr = returned.mr
        self._cleanup.callback(lambda: entry.dereg_mr(mr))
        return Sge(addr, size, int(mr.struct.lkey), int(mr.struct.rkey))

    def _next_wr_id(self) -> int:
        self._work_requests += 1
        return self._work_requests


def create_pair(bench: Bench, spec: QpSpec, pds: Mapping[str, Pd]) -> Pair:
    """Creates a connected pair whose responder is in the PD of `spec`. Raises SetupRefused."""
    try:
        return bench.pair(spec, pds["pd"], pds[spec.pd])
    except NotConnected as error:
        what = f"connecting two queue pairs of type {spec.kind}"
        raise SetupRefused(what, errno_name(error.error_code)) from error
    except Exception as error:
        code = getattr(error, "error_code", None)
        if code is None:
            raise
        built = WR_POST if spec.extended == BOTH_POSTERS else spec.extended
        creates = built if built in BUILDERS else spec.kind.removesuffix("_SEND").lower()
        raise SetupRefused(f"making a queue pair of type {spec.kind}", errno_name(code), creates=creates) from error


def release(left_behind: list[str], what: str, close: Callable[[], None]) -> None:
    """Closes an object; a refusal by the device is added to `left_behind`, not raised."""
    try:
        close()
    except Exception as error:  # the exceptions of pyverbs differ between versions
        left_behind.append(f"{what}: {str(error).splitlines()[0]}")
