"""One case in progress: its objects by name, what arguments stand for, and what must be given back.

Not for making calls (steps.py, traffic.py) and not for their order (procedure.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from conformance.bench.calls import Mr, Pd, Return, Window, errno_name
from conformance.bench.interface import Bench, DmaBuf, Entry, Memory, Pair
from conformance.bench.work_requests import BindInfo
from conformance.execution.connection import LoopbackConnection
from conformance.execution.harness_resources import HarnessResources, give_back, make_pair
from conformance.model.case import Argument, Case, Flags, QpSpec, Value
from conformance.model.observation import Observation
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import NULL, PROBES


def answer(returned: Return) -> Observation:
    """What is recorded of a call that returns 0 or an errno."""
    value, errno = returned.value, returned.errno
    name = errno_name(value) if value > 0 else str(value)
    return {"rc": value, "returned": name, "errno": errno_name(errno) if errno else "", "layer": returned.layer}


def no_pointer(returned: Return) -> Observation:
    """What is recorded of a call that returned NULL instead of an object."""
    return {"rc": None, "returned": "NULL", "errno": errno_name(returned.errno), "layer": returned.layer}


class CaseContext:
    """One case in progress: its objects by name, and what must be given back at its end."""

    def __init__(self, case: Case, bench: Bench) -> None:
        self.case = case
        self.bench = bench
        self.entry = bench.entry(case.entry)
        self.memory: dict[str, Memory] = {}
        self.dmabufs: dict[str, DmaBuf] = {}
        self.pds: dict[str, Pd] = {}
        self.mrs: dict[str, Mr] = {}
        self.owners: dict[str, Entry] = {}
        self.fields: dict[str, dict[str, int]] = {}
        self.pairs: dict[str, Pair] = {}
        self.windows: dict[str, Window] = {}
        self.released: set[str] = set()  # regions and windows that a step has given back
        self._connections: dict[str, LoopbackConnection] = {}
        self.cleanup = ExitStack()
        self.left_behind: list[str] = []
        self.harness = HarnessResources(bench, self.pds, self.cleanup, self.left_behind)
        self.children: dict[str, tuple[int, int, int]] = {}  # of forks: process, and pipes to and from it
        self.work_requests = 0

    def branch(self, case: Case) -> CaseContext:
        """A context for another case on the same set-up; what that case makes belongs to the new context alone."""
        branch = self._view(case)
        branch.released = set(self.released)
        for name in ("mrs", "owners", "fields", "pairs", "windows", "_connections"):
            setattr(branch, name, dict(getattr(self, name)))
        return branch

    def for_call(self, case: Case) -> CaseContext:
        """A context for the calls of a case that is set up here: a branch if they make or release objects."""
        return self._view(case) if case.when.call in PROBES and not case.afterwards else self.branch(case)

    def _view(self, case: Case) -> CaseContext:
        # Equal to copy.copy, in a tenth of its time: a sweep does this at every point.
        view = CaseContext.__new__(CaseContext)
        view.__dict__.update(self.__dict__)
        view.case, view.entry = case, self.bench.entry(case.entry)
        view.cleanup, view.left_behind = ExitStack(), []
        return view

    def pair(self, spec: QpSpec) -> Pair:
        """A connected pair whose responder is in the PD that `spec` names; closed with the case."""
        pair = make_pair(self.bench, spec, self.pds)
        self.cleanup.callback(self.give_back, f"queue pair {spec.kind}", pair.close)
        return pair

    def connection(self, name: str) -> LoopbackConnection:
        """The connection over a pair of the case, which is never renewed: the case may depend on its state."""
        if name not in self._connections:
            self._connections[name] = LoopbackConnection(self.pairs[name], self.next_wr_id, renewable=False)
        return self._connections[name]

    def memory_around(self, addr: int, length: int) -> Memory:
        """The memory of the case that contains a range. Raises LookupError if there is none."""
        for memory in (*self.memory.values(), *self.dmabufs.values()):
            if memory.addr <= addr and addr + length <= memory.addr + memory.size:
                return memory
        raise LookupError(f"traffic at {addr:#x} for {length} bytes lies in no memory of the case; say where with `at`")

    def keep_mr(self, name: str, mr: Mr, entry: Entry) -> None:
        """Keeps a region by its name, and deregisters it at the end if it is still registered."""
        self.mrs[name] = mr
        self.owners[name] = entry
        self.fields[name] = mr.fields()
        self.cleanup.callback(self._release_mr, name, mr)

    def _release_mr(self, name: str, mr: Mr) -> None:
        if self.mrs.get(name) is not mr:
            return  # the case deregistered it
        returned = self.owners[name].dereg_mr(mr)
        if returned.value != 0:
            self.left_behind.append(f"MR {name}: deregistering it returned {errno_name(returned.value)}")

    def give_back(self, what: str, close: Callable[[], None]) -> None:
        """Closes something; the device's refusal is recorded, not raised."""
        give_back(self.left_behind, what, close)

    def bind_info(self, arguments: Mapping[str, Argument]) -> BindInfo:
        """What a bind's arguments ask for."""
        mr = None if arguments["mr"] == NULL else self.mrs[str(arguments["mr"])]
        return BindInfo(mr, *self.numbers(arguments, "addr", "length", "access"))

    def next_wr_id(self) -> int:
        """A number for a work request, not used before in this case."""
        self.work_requests += 1
        return 0x5100 + self.work_requests

    def number(self, argument: Argument) -> int:
        """The number that an argument stands for here."""
        if isinstance(argument, Flags):
            return argument.mask
        if isinstance(argument, Value):
            return argument.number
        if isinstance(argument, Quantity):
            return self.bytes(argument)
        raise TypeError(f"{argument!r} names an object, not a number")

    def numbers(self, arguments: Mapping[str, Argument], *keys: str) -> list[int]:
        """Several arguments as numbers."""
        return [self.number(arguments[key]) for key in keys]

    def bytes(self, quantity: Quantity) -> int:
        """An address or a length in bytes."""
        return quantity.evaluate(self.bench.page, self.bench.hugepage, self._property)

    def _property(self, name: str, property_: str) -> int:
        memory = self.memory.get(name) or self.dmabufs.get(name)
        if memory is not None:
            if property_ == "size":
                return memory.size
            return memory.addr + memory.size if property_ == "end" else memory.addr
        if name in self.windows:
            return int(getattr(self.windows[name], property_))
        return self.fields[name][property_ or "addr"]
