"""Runs one case on a device: sets up what is given, makes the calls, records what came raw.

The outcome is an observation: plain data that can be stored and judged again without a device.
Judging happens elsewhere (judging.py); an exception here is the harness's failure, never the device's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

from conformance.calls import Return, errno_name, mr_at
from conformance.case import Argument, Case, Flags, Step
from conformance.quantity import Quantity

Observation = dict[str, Any]

# Handles are small numbers that the kernel counts upwards; no process reaches this one.
_INVENTED_HANDLE = 0xFFFFFFF0


class Memory(Protocol):
    """A range of memory made for a case; `addr` and `size` in bytes."""

    @property
    def addr(self) -> int: ...
    @property
    def size(self) -> int: ...
    def close(self) -> None: ...


class Pd(Protocol):
    """A protection domain made for a case."""

    pointer: int

    @property
    def context_pointer(self) -> int: ...
    def close(self) -> None: ...


class Entry(Protocol):
    """The exact calls of one entry; see calls.Libibverbs."""

    def reg_mr(self, pd: int, addr: int, length: int, access: int) -> Return: ...
    def dereg_mr(self, mr: int) -> Return: ...


class Bench(Protocol):
    """What a case is run on: the device, its entries, and memory of every kind."""

    page: int
    hugepage: int

    def entry(self, name: str) -> Entry: ...
    def alloc_pd(self) -> Pd: ...
    def allocate(self, kind: str, size: int) -> Memory: ...
    def locked_memory_limit(self, size: int) -> AbstractContextManager[None]: ...


class SetupRefused(Exception):
    """The device refused what the case needs before its judged call."""

    def __init__(self, what: str, returned: Return) -> None:
        super().__init__(f"{what} was refused{_because(returned)}")
        self.what = what
        self.returned = returned


def _because(returned: Return) -> str:
    return f" with {errno_name(returned.errno)}" if returned.errno else ""


def execute(case: Case, bench: Bench) -> Observation:
    """Runs `case` and gives what was observed.

    Keys: `rc`, `errno`, `returned`, `layer` of the judged call, `mr` for what it made, `afterwards`
    for the later steps in order; `setup_failed` instead when the device refused the setup;
    `left_behind` for what could not be given back.
    """
    return _Run(case, bench).execute()


class _Run:
    """One case in progress: the objects by name, and what must be given back."""

    def __init__(self, case: Case, bench: Bench) -> None:
        self.case = case
        self.bench = bench
        self.entry = bench.entry(case.entry)
        self.setup_entry = bench.entry("libibverbs")
        self.memory: dict[str, Memory] = {}
        self.pds: dict[str, Pd] = {}
        self.mrs: dict[str, int] = {}
        self.left_behind: list[str] = []

    def execute(self) -> Observation:
        observation: Observation
        with ExitStack() as cleanup:
            try:
                self._set_up(cleanup)
                observation = self._steps(cleanup)
            except SetupRefused as refusal:
                observation = {"setup_failed": str(refusal), "errno": errno_name(refusal.returned.errno)}
        if self.left_behind:
            observation["left_behind"] = self.left_behind
        return observation

    def _steps(self, cleanup: ExitStack) -> Observation:
        limit = self.case.given.memlock
        with ExitStack() as limited:
            if limit is not None:
                limited.enter_context(self.bench.locked_memory_limit(self._bytes(limit)))
            observation = self._step(self.case.when, cleanup)
        if self.case.afterwards:
            observation["afterwards"] = [self._step(step, cleanup) for step in self.case.afterwards]
        return observation

    def _set_up(self, cleanup: ExitStack) -> None:
        given = self.case.given
        for name in ("pd", *given.pds):
            pd = self.bench.alloc_pd()
            cleanup.callback(self._give_back, f"PD {name}", pd.close)
            self.pds[name] = pd
        for name, spec in given.memory.items():
            memory = self.bench.allocate(spec.kind, self._bytes(spec.size))
            cleanup.callback(memory.close)
            self.memory[name] = memory
        for name, mr in given.mrs.items():
            returned = self._reg_mr(mr.arguments, self.setup_entry)
            if returned.value == 0:
                raise SetupRefused(f"registering the MR {name!r}", returned)
            self._keep_mr(name, returned.value, cleanup)

    def _keep_mr(self, name: str, pointer: int, cleanup: ExitStack) -> None:
        self.mrs[name] = pointer
        cleanup.callback(self._release_mr, name, pointer)

    def _release_mr(self, name: str, pointer: int) -> None:
        if self.mrs.get(name) != pointer:
            return  # the case deregistered it
        returned = self.setup_entry.dereg_mr(pointer)
        if returned.value != 0:
            self.left_behind.append(f"MR {name}: ibv_dereg_mr returned {errno_name(returned.value)}")

    def _give_back(self, what: str, close: Callable[[], None]) -> None:
        try:
            close()
        except Exception as error:  # pyverbs raises its own kinds, which differ between versions
            self.left_behind.append(f"{what}: {str(error).splitlines()[0]}")

    def _step(self, step: Step, cleanup: ExitStack) -> Observation:
        return _CALLS[step.call](self, step, cleanup)

    def _call_reg_mr(self, step: Step, cleanup: ExitStack) -> Observation:
        returned = self._reg_mr(step.arguments, self.entry)
        if returned.value == 0:
            return {"rc": None, "returned": "NULL", "errno": errno_name(returned.errno), "layer": "kernel"}
        self._keep_mr(step.name, returned.value, cleanup)
        pd = self.pds[str(step.arguments["pd"])]
        mr = mr_at(returned.value)
        return {
            "rc": None,
            "returned": "MR",
            "errno": errno_name(returned.errno),
            "layer": "kernel",
            "mr": {
                "addr": mr.addr or 0,
                "length": mr.length,
                "pd_is_the_asked": mr.pd == pd.pointer,
                "context_is_the_pds": mr.context == pd.context_pointer,
                "handle": mr.handle,
                "lkey": mr.lkey,
                "rkey": mr.rkey,
            },
            "asked": {
                "addr": self._number(step.arguments["addr"]),
                "length": self._number(step.arguments["length"]),
            },
        }

    def _reg_mr(self, arguments: Mapping[str, Argument], entry: Entry) -> Return:
        pd = self.pds[str(arguments["pd"])]
        return entry.reg_mr(
            pd.pointer,
            self._number(arguments["addr"]),
            self._number(arguments["length"]),
            self._number(arguments["access"]),
        )

    def _call_dereg_mr(self, step: Step, cleanup: ExitStack) -> Observation:
        name = str(step.arguments["mr"])
        mr = mr_at(self.mrs[name])
        own, which = mr.handle, step.arguments["handle"]
        if which != "own":
            mr.handle = _INVENTED_HANDLE if which == "invented" else self._stale_handle(self.mrs[name])
        returned = self.entry.dereg_mr(self.mrs[name])
        if returned.value == 0:
            del self.mrs[name]  # and the library has freed the structure
        else:
            mr.handle = own
        return {
            "rc": returned.value,
            "returned": errno_name(returned.value) if returned.value > 0 else str(returned.value),
            "errno": errno_name(returned.errno),
            "layer": "kernel",
        }

    def _stale_handle(self, mr: int) -> int:
        """The handle of a second region of the same memory, which is deregistered again at once."""
        fields = mr_at(mr)
        returned = self.setup_entry.reg_mr(fields.pd or 0, fields.addr or 0, fields.length, 0)
        if returned.value == 0:
            raise SetupRefused("registering a second region of the same memory", returned)
        handle = int(mr_at(returned.value).handle)
        released = self.setup_entry.dereg_mr(returned.value)
        if released.value != 0:
            raise SetupRefused("deregistering the second region", released)
        return handle

    def _number(self, argument: Argument) -> int:
        if isinstance(argument, Flags):
            return argument.mask
        if isinstance(argument, Quantity):
            return self._bytes(argument)
        raise TypeError(f"{argument!r} names an object, not a number")

    def _bytes(self, quantity: Quantity) -> int:
        return quantity.evaluate(self.bench.page, self.bench.hugepage, self._property)

    def _property(self, name: str, property_: str) -> int:
        if name in self.memory:
            memory = self.memory[name]
            return {"": memory.addr, "addr": memory.addr, "size": memory.size, "end": memory.addr + memory.size}[property_]
        mr = mr_at(self.mrs[name])
        return int(getattr(mr, property_ or "addr") or 0)


_CALLS: Mapping[str, Callable[[_Run, Step, ExitStack], Observation]] = {
    "ibv_reg_mr": _Run._call_reg_mr,
    "ibv_dereg_mr": _Run._call_dereg_mr,
}
