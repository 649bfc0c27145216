"""A bench that wraps a real bench and passes its calls through an alteration, which has one hook for each call. An
alteration overrides only the hooks that it needs. All other calls reach the real library, kernel and device.
`rdma-cts run` never uses an alteration."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from conformance.bench.calls import Mr, Pd, Return, Sge, Window
from conformance.bench.interface import Bench, Entry, Pair, Queue
from conformance.bench.work_requests import BindInfo, Completion, SendRequest
from conformance.model.case import QpSpec
from conformance.verbs import VERBS

# The verbs that register a region.
_REGISTRATIONS = {verb.method for verb in VERBS.values() if (verb.product or ("",))[0] == "mr"}


class Alteration:
    """Passes every call on unchanged; the base of all alterations. `unreleased` has functions that release the regions
    and windows that the alteration has not released. `faults` has exceptions of the alteration that could not pass
    through C code."""

    def __init__(self) -> None:
        self.unreleased: list[Any] = []
        self.faults: list[BaseException] = []
        self.setup()

    def setup(self) -> None:
        """Initializes the data of an alteration. The constructor calls this method at its end."""

    def bench(self, real: Bench) -> Any:
        """Returns the bench on which cases run: the real bench with altered calls."""
        return AlteredBench(real, self)

    def restore(self) -> None:
        """Ends the alteration, and releases the objects in `unreleased`."""
        for release in reversed(self.unreleased):
            with suppress(
                Exception,
            ):  # the case has already released its PD; the kernel releases the rest at exit
                release()

    def register(
        self,
        entry: Entry,
        verb: str,
        pd: Pd,
        where: tuple[int, ...],
        access: int,
    ) -> Return:
        """Calls a verb that registers a region. `where` has the arguments between PD and access."""
        return getattr(entry, verb)(pd, *where, access)  # type: ignore[no-any-return]

    def dereg_mr(self, entry: Entry, mr: Mr) -> Return:
        return entry.dereg_mr(mr)

    def rereg_mr(
        self,
        entry: Entry,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        return entry.rereg_mr(mr, flags, pd, addr, length, access)

    def advise_mr(
        self,
        entry: Entry,
        pd: Pd,
        advice: int,
        flags: int,
        sg_list: Sequence[Sge],
    ) -> Return:
        return entry.advise_mr(pd, advice, flags, sg_list)

    def pair(self, bench: Bench, spec: QpSpec, requester: Pd, responder: Pd) -> Pair:
        return bench.pair(spec, requester, responder)

    def post_send(self, queue: Queue, request: SendRequest) -> Return:
        return queue.post_send(request)

    def bind_mw(
        self,
        queue: Queue,
        window: Window,
        info: BindInfo,
        flags: int,
        wr_id: int,
    ) -> Return:
        return queue.bind_mw(window, info, flags, wr_id)

    def completions(self, queue: Queue, completions: list[Completion]) -> list[Completion]:
        """Returns the completions that the case sees in place of `completions`, the completions of ibv_poll_cq."""
        return completions

    def alloc_mw(self, bench: Bench, pd: Pd, kind: int) -> tuple[Window | None, Return]:
        return bench.alloc_mw(pd, kind)

    def dealloc_mw(self, window: Window) -> Return:
        return window.dealloc()

    def locked_memory_limit(self, bench: Bench, size: int) -> AbstractContextManager[None]:
        return bench.locked_memory_limit(size)


class AlteredEntry:
    """An entry whose calls pass through an alteration."""

    def __init__(self, real: Entry, alteration: Alteration) -> None:
        self._real, self._alteration = real, alteration
        self.name = real.name

    def __getattr__(self, verb: str) -> Any:
        """Returns a verb: through `register` if the verb registers a region, else through the hook of its name, if
        there is a hook."""
        if verb in _REGISTRATIONS:
            return lambda pd, *where: self._alteration.register(
                self._real,
                verb,
                pd,
                where[:-1],
                where[-1],
            )
        hook = getattr(self._alteration, verb, None)
        if hook:
            return functools.partial(hook, self._real)
        return getattr(self._real, verb)


class Wrapper:
    """Wraps a real object. Calls of the methods `hooked` call the hooks of the same names. All other attributes are
    those of the real object."""

    hooked: tuple[str, ...] = ()

    def __init__(self, real: Any, alteration: Any) -> None:
        self.__dict__["real"], self.__dict__["alteration"] = real, alteration

    def __getattr__(self, name: str) -> Any:
        if name in self.hooked:
            hook = getattr(self.alteration, name)
        else:
            hook = None
        if hook:
            return functools.partial(hook, self.real)
        return getattr(self.real, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.real, name, value)


class AlteredWindow(Wrapper):
    """A window whose deallocation passes through an alteration."""

    def dealloc(self) -> Return:
        return self.alteration.dealloc_mw(self.real)  # type: ignore[no-any-return]


class AlteredQueue(Wrapper):
    """A queue pair whose requests and completions pass through an alteration."""

    hooked = ("post_send", "bind_mw")

    def completions(self, *arguments: Any, **named: Any) -> list[Completion]:
        completions = self.real.completions(*arguments, **named)
        return self.alteration.completions(self.real, completions)  # type: ignore[no-any-return]


class WrappedPair(Wrapper):
    """A pair whose queue pairs are wrapped. Requester and responder may be the same queue pair."""

    def __init__(self, real: Pair, wrapped: Callable[[Any], Any]) -> None:
        super().__init__(real, None)
        self.__dict__["responder"] = wrapped(real.responder)
        same = real.requester is real.responder
        self.__dict__["requester"] = self.responder if same else wrapped(real.requester)


class AlteredBench(Wrapper):
    """A bench whose calls pass through an alteration."""

    hooked = ("locked_memory_limit",)

    def entry(self, name: str) -> AlteredEntry:
        return AlteredEntry(self.real.entry(name), self.alteration)

    def pair(self, spec: QpSpec, requester: Pd, responder: Pd) -> WrappedPair:
        pair = self.alteration.pair(self.real, spec, requester, responder)
        return WrappedPair(pair, lambda queue: AlteredQueue(queue, self.alteration))

    def alloc_mw(self, pd: Pd, kind: int) -> tuple[Any, Return]:
        window, returned = self.alteration.alloc_mw(self.real, pd, kind)
        return (AlteredWindow(window, self.alteration) if window else None), returned
