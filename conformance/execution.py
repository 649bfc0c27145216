"""Runs one case on a device: sets up what is given, makes the calls, records what came raw.

The outcome is an observation: plain data that can be stored and judged again without a device.
What each call does stands in steps.py; judging is elsewhere (judging.py). An exception here is the
harness's failure, never the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from conformance.calls import Mr, Pd, Return, Sge, errno_name
from conformance.case import Argument, Case, Flags, MrSpec, QpSpec, Step, Value, WindowSpec
from conformance.header import Check
from conformance.quantity import Quantity
from conformance.traffic import Pair
from conformance.verbs import ENUMS
from conformance.windows import Window

Observation = dict[str, Any]

_LOCAL_WRITE, _REMOTE_READ = (ENUMS["ibv_access_flags"].value_of(name) for name in ("LOCAL_WRITE", "REMOTE_READ"))


class Memory(Protocol):
    """A range of memory made for a case; `addr` and `size` in bytes."""

    @property
    def addr(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class DmaBuf(Protocol):
    """A dma-buf made for a case: its file descriptor, where this process sees it, its size in bytes."""

    @property
    def fd(self) -> int: ...
    @property
    def addr(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class Entry(Protocol):
    """The exact calls of one entry; see libibverbs.Libibverbs."""

    name: str

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return: ...
    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return: ...
    def reg_dmabuf_mr(self, pd: Pd, offset: int, length: int, iova: int, fd: int, access: int) -> Return: ...
    def dereg_mr(self, mr: Mr) -> Return: ...
    def rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return: ...
    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return: ...


class Bench(Protocol):
    """What a case is run on: the device, its entries, and memory of every kind."""

    page: int
    hugepage: int

    def entry(self, name: str) -> Entry: ...
    def alloc_pd(self) -> Pd: ...
    def allocate(self, kind: str, size: int) -> Memory: ...
    def dmabuf(self, kind: str, size: int) -> DmaBuf: ...
    def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> Pair: ...
    def locked_memory_limit(self, size: int) -> AbstractContextManager[None]: ...
    def experimental_rereg_mr(
        self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
    ) -> Return: ...
    def resources(self) -> dict[str, int]: ...
    def api_checks(self) -> Sequence[Check]: ...


class SetupRefused(Exception):
    """The device refused what the case needs before its judged call."""

    def __init__(self, what: str, code: str) -> None:
        super().__init__(f"{what} was refused{f' with {code}' if code else ''}")
        self.code = code


def execute(case: Case, bench: Bench) -> Observation:
    """Runs `case` and gives what was observed.

    Keys: those of the judged call as steps.py records it, `afterwards` for the later steps in order;
    `setup_failed` instead when the device refused the setup; `left_behind` for what could not be
    given back, or is there now and was not before.
    """
    before = bench.resources()
    observation = Run(case, bench).execute()
    after = bench.resources()
    left = [f"{after[kind] - count} {kind}" for kind, count in before.items() if after.get(kind, 0) > count]
    if left:
        observation.setdefault("left_behind", []).append(f"the kernel still counts {', '.join(left)}")
    return observation


class Run:
    """One case in progress: the objects by name, and what must be given back."""

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
        self.cleanup = ExitStack()
        self.left_behind: list[str] = []
        self.work_requests = 0

    def execute(self) -> Observation:
        observation: Observation
        with self.cleanup:
            try:
                self._set_up()
                observation = self._steps()
            except SetupRefused as refusal:
                observation = {"setup_failed": str(refusal), "errno": refusal.code}
        if self.left_behind:
            observation["left_behind"] = self.left_behind
        return observation

    def _steps(self) -> Observation:
        limit = self.case.given.memlock
        with ExitStack() as limited:
            if limit is not None:
                limited.enter_context(self.bench.locked_memory_limit(self.bytes(limit)))
            observation = self.step(self.case.when)
        if self.case.afterwards:
            observation["afterwards"] = self._afterwards()
        return observation

    def _afterwards(self) -> list[Observation]:
        """The later steps, none of them when the judged call did not make what they are about."""
        made = self.case.when.name
        if made and made not in self.mrs and made not in self.windows:
            return []
        return [self.step(step) for step in self.case.afterwards]

    def step(self, step: Step) -> Observation:
        """Makes one call and gives what was observed."""
        from conformance.steps import STEPS

        return STEPS[step.call](self, step)

    def _set_up(self) -> None:
        given = self.case.given
        for name in ("pd", *given.pds):
            self.pds[name] = pd = self.bench.alloc_pd()
            self.cleanup.callback(self.give_back, f"PD {name}", pd.close)
        for name, spec in given.memory.items():
            self.memory[name] = memory = self.bench.allocate(spec.kind, self.bytes(spec.size))
            self.cleanup.callback(memory.close)
        for name, spec in given.dmabufs.items():
            self.dmabufs[name] = dmabuf = self.bench.dmabuf(spec.kind, self.bytes(spec.size))
            self.cleanup.callback(dmabuf.close)
        for name, mr in given.mrs.items():
            self._set_up_mr(name, mr)
        for name, qp in given.qps.items():
            self.pairs[name] = self.pair(qp)
        for name, window in given.windows.items():
            self._set_up_window(name, window)
        for step in self.case.before:
            observed = self.step(step)
            if observed["returned"] not in ("MR", "MW", "0") or observed.get("wc", ["SUCCESS"]) != ["SUCCESS"]:
                raise SetupRefused(str(step), " ".join([observed["errno"], *observed.get("wc", ())]))

    def _set_up_mr(self, name: str, spec: MrSpec) -> None:
        observed = self.step(Step(spec.call, spec.arguments, self.case.when.then, name))
        if observed["returned"] != "MR":
            raise SetupRefused(f"registering the MR {name!r}", observed["errno"])
        if spec.gone:
            released = self.owners[name].dereg_mr(self.mrs.pop(name))
            if released.value:
                raise SetupRefused(f"deregistering the MR {name!r}", errno_name(released.value))

    def _set_up_window(self, name: str, spec: WindowSpec) -> None:
        from conformance import steps

        observed = steps.alloc_window(self, name, spec.pd, spec.type)
        if observed["returned"] != "MW":
            raise SetupRefused(f"allocating the window {name!r}", observed["errno"])
        if spec.bound is not None:
            call = "ibv_bind_mw" if spec.type == 1 else "post_bind_mw"
            observed = self.step(Step(call, spec.bound, self.case.when.then))
            if observed["returned"] != "0" or observed["wc"] != ["SUCCESS"]:
                raise SetupRefused(f"binding the window {name!r}", " ".join([observed["errno"], *observed["wc"]]))

    def pair(self, spec: QpSpec) -> Pair:
        """A connected pair whose responder is in the PD that `spec` names; closed with the case."""
        try:
            pair = self.bench.pair(spec, self.pds["pd"], self.pds[spec.pd])
        except Exception as error:
            code = getattr(error, "error_code", None)
            if code is None:
                raise
            raise SetupRefused(f"making a queue pair of type {spec.kind}", errno_name(code)) from error
        self.cleanup.callback(self.give_back, f"queue pair {spec.kind}", pair.close)
        return pair

    def scratch(self, pd: Pd, size: int, remote: bool = False) -> Sge:
        """Registered memory of the harness's own, for the side of traffic that is not looked at."""
        memory = self.bench.allocate("anonymous", size)
        self.cleanup.callback(memory.close)
        entry = self.bench.entry("libibverbs")
        returned = entry.reg_mr(pd, memory.addr, size, _LOCAL_WRITE | (_REMOTE_READ if remote else 0))
        if returned.mr is None:
            raise SetupRefused("registering the local side's memory", errno_name(returned.errno))
        mr = returned.mr
        self.cleanup.callback(lambda: entry.dereg_mr(mr))
        return Sge(memory.addr, size, int(mr.struct.lkey), int(mr.struct.rkey))

    def memory_around(self, addr: int, length: int) -> Memory:
        """The case's memory that holds a range; canaries can be laid all around in it."""
        for memory in (*self.memory.values(), *self.dmabufs.values()):
            if memory.addr <= addr and addr + length <= memory.addr + memory.size:
                return memory
        raise LookupError(f"traffic at {addr:#x} for {length} bytes lies in no memory of the case; say where with `at`")

    def keep_mr(self, name: str, mr: Mr, entry: Entry) -> None:
        """A region of the case: found by name from now on, deregistered at the end if it still is there."""
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
        try:
            close()
        except Exception as error:  # pyverbs raises its own kinds, which differ between versions
            self.left_behind.append(f"{what}: {str(error).splitlines()[0]}")

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
            return {"size": memory.size, "end": memory.addr + memory.size}.get(property_, memory.addr)
        if name in self.windows:
            return int(getattr(self.windows[name], property_))
        return self.fields[name][property_ or "addr"]
