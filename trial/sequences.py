"""Random sequences of calls, with the reference as oracle: the device must answer as the reference does.

A Hypothesis state machine makes the same calls on both. If their answers differ, the sequence is shrunk and reported as
a row that can be copied into a table. Calls whose outcome the documents leave open are never made, and neither are
calls that are known to crash a kernel (see HAZARDS). Only this module needs Hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from conformance.errors import SetupRefused
from trial.comparison import Comparison, Divergence, Subject, Text, flow, shortest

# Calls that crash the kernel of a known driver (Soft-RoCE), with the reason; such calls are never made.
HAZARDS = {
    "advice on a region that is not on demand": "the driver reads it as an on-demand region (ADV-05)",
    "invalidation of a window that is not bound": "the driver follows a null pointer (BIND-15)",
}
_EXAMPLES, _STEPS = 100, 20
# How often Hypothesis may try to shrink a divergence: on an emulated device each attempt takes a tenth of a second.
_SHRINKS = 400
_REGION = {"addr": "buf + 1 page", "length": "2 pages"}
# Addresses within the region, at its last bytes, across its end, and outside on both sides.
_INSIDE = ("buf + 1 page", "buf + 2 pages", "buf + 1 page + 104", "buf + 3 pages - 8")
_OUTSIDE = ("buf + 3 pages - 7", "buf + 1 page - 1", "buf + 1 page - 8", "buf + 3 pages")
_ADDRESSES = (*_INSIDE, *_INSIDE, *_OUTSIDE)
# Mostly the PD that all objects belong to at first.
_DOMAINS = ("pd", "pd", "pd", "other")
# Hypothesis shrinks towards the first elements: the widest access explains a divergence best.
_ACCESSES = (
    "[LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, MW_BIND]", "[LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ]",
    "[LOCAL_WRITE, REMOTE_WRITE]", "[LOCAL_WRITE]", "[REMOTE_READ]", "[]", "[LOCAL_WRITE, MW_BIND]",
    "[REMOTE_READ, MW_BIND]",
)  # fmt: skip
_CHANGES = ("[CHANGE_ACCESS]", "[CHANGE_PD]", "[CHANGE_PD, CHANGE_ACCESS]", "[CHANGE_TRANSLATION]")
_REGIONS, _WINDOWS = ("mr", "new", "odp"), ("mw", "mw2")
_REFUSED = ("[REMOTE_WRITE]", "[REMOTE_WRITE, REMOTE_READ]")
_OPERATIONS = ("RDMA_WRITE", "RDMA_READ")
_ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
_LOCAL = ("SEND", "RECV", "READ")
_WINDOW_ACCESSES = ("[]", "[REMOTE_WRITE]", "[REMOTE_READ]", "[REMOTE_WRITE, REMOTE_READ]")


class Diverged(Exception):
    """The two sides have diverged; Hypothesis treats it as a failing test."""


class SearchEnded(BaseException):
    """Stops Hypothesis at once; an Exception would count as a failing test."""


class Search:
    """One search of Hypothesis for one divergence; it ends early when `over` returns true."""

    def __init__(self, subject: Subject, over: Callable[[], bool]) -> None:
        self.subject, self.over = subject, over
        self.found: Divergence | None = None
        self._shrinks = 0

    def begins(self) -> None:
        """Counts a new sequence. Raises SearchEnded if the search is over."""
        self._shrinks += self.found is not None
        if self._shrinks > _SHRINKS or (self.found is None and self.over()):
            raise SearchEnded
        self.subject.sequences += 1

    def diverges(self, divergence: Divergence) -> None:
        """Keeps the smallest divergence. Raises Diverged unless one with this signature was reported before."""
        if divergence.signature in self.subject.known:
            return
        if self.found is None or _size(divergence) < _size(self.found):
            self.found = divergence
        raise Diverged(divergence.fault)


def _size(divergence: Divergence) -> tuple[int, int]:
    return len(divergence.taken), len(divergence.row)


class Sequences(RuleBasedStateMachine):
    """A PD with two regions, windows of both types and a queue pair, and calls on them in any order."""

    current_search: ClassVar[Search]

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, str] = {}  # the existing objects, with their kinds
        self.bound: set[str] = set()
        self.over = False
        self.queue_broken = False
        self.comparison: Comparison | None = None

    @property
    def subject(self) -> Subject:
        """What is compared."""
        return self.current_search.subject

    @initialize(access=st.sampled_from(_ACCESSES), on_demand=st.sampled_from(_ACCESSES[1:6]))
    def begin(self, access: str, on_demand: str) -> None:
        """Sets up the same objects on both sides."""
        self.current_search.begins()
        subject = self.subject
        given: dict[str, dict[str, str]] = {"pds": {"other": ""}, "mrs": {}, "qps": {}, "windows": {}}
        given["mrs"]["mr"] = flow({**_REGION, "access": self.declared(access)})
        if "odp" in subject.has:
            paged = on_demand.replace("]", ", ON_DEMAND]").replace("[, ", "[")
            given["mrs"]["odp"] = flow({**_REGION, "access": paged})
        if subject.entry == "libibverbs":  # a window cannot be bound to a region without an ibv_mr
            given["qps"]["qp"] = "{type: RC}"
            kinds = {name: number for name, number in (("mw", 1), ("mw2", 2)) if f"mw_type_{number}" in subject.has}
            given["windows"] = {name: f"{{type: {number}}}" for name, number in kinds.items()}
        self.live = {**dict.fromkeys(given["mrs"], "mr"), **dict.fromkeys(given["windows"], "window")}
        try:
            self.comparison = Comparison(subject, given)
        except SetupRefused:  # nothing to compare; the tables test whether the set-up has to succeed
            self.over = True

    def declared(self, access: str) -> str:
        """The access flags, without MW_BIND if the device declares no windows."""
        return access if self.subject.has & {"mw_type_1", "mw_type_2"} else access.replace(", MW_BIND", "")

    def teardown(self) -> None:
        """Releases all objects, in steps that are compared like all others."""
        if self.comparison:
            try:
                for name in () if self.over else (*_WINDOWS, *_REGIONS):
                    self.destroy(name)
            finally:
                self.comparison.close()

    def destroy(self, name: str) -> None:
        """ibv_dealloc_mw or ibv_dereg_mr, if the object still exists."""
        kind = self.live.get(name)
        if kind and not self.over:
            call, key = ("ibv_dealloc_mw", "mw") if kind == "window" else ("ibv_dereg_mr", "mr")
            if self.take(call, {key: name}):
                del self.live[name]
                self.bound.discard(name)

    def take(self, call: str, arguments: Text) -> bool:
        """Takes one step on both sides; returns whether it succeeded. Raises Diverged for a new divergence."""
        assert self.comparison is not None
        outcome = self.comparison.take(call, arguments)
        divergence = self.comparison.divergence
        if divergence:
            self.over = True  # from here on the states of the two sides differ
            self.current_search.diverges(divergence)
        return outcome == "success" and not divergence

    @precondition(lambda self: not self.over and "new" not in self.live)
    @rule(access=st.sampled_from((*_ACCESSES, *_REFUSED)), pd=st.sampled_from(_DOMAINS))
    def register(self, access: str, pd: str) -> None:
        """ibv_reg_mr."""
        if self.take("ibv_reg_mr", {"pd": pd, **_REGION, "access": self.declared(access)}):
            self.live["new"] = "mr"

    @precondition(lambda self: not self.over)
    @rule(name=st.sampled_from((*_REGIONS, *_WINDOWS)))
    def release(self, name: str) -> None:
        """ibv_dereg_mr or ibv_dealloc_mw."""
        self.destroy(name)

    @precondition(lambda self: not self.over and not self.bound and "rereg_mr" in self.subject.has)
    @rule(name=st.sampled_from(_REGIONS[:2]), flags=st.sampled_from(_CHANGES),
          access=st.sampled_from(_ACCESSES), pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def change(self, name: str, flags: str, access: str, pd: str) -> None:
        """ibv_rereg_mr of a region that is not on demand, while no window is bound."""
        translates = "TRANSLATION" in flags
        if name not in self.live or (translates and "rereg_translation" not in self.subject.has):
            return
        arguments = {"mr": name, "flags": flags}
        if "PD" in flags:
            arguments["pd"] = pd
        if "ACCESS" in flags:
            arguments["access"] = self.declared(access)
        if translates:
            arguments |= {"addr": "buf + 2 pages", "length": "1 page"}
        self.take("ibv_rereg_mr", arguments)

    @precondition(lambda self: not self.over and "odp" in self.live and "advise_mr" in self.subject.has)
    @rule(advice=st.sampled_from(("PREFETCH", "PREFETCH_WRITE", "PREFETCH_NO_FAULT")),
          addr=st.sampled_from(_ADDRESSES), pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def advise(self, advice: str, addr: str, pd: str) -> None:
        """ibv_advise_mr, only on the on-demand region."""
        sges = f"[{{addr: {addr}, length: 8, lkey: odp.lkey}}]"
        self.take("ibv_advise_mr", {"pd": pd, "advice": advice, "flags": "[FLUSH]", "sg_list": sges})

    @precondition(lambda self: not self.over and not self.queue_broken)
    @rule(name=st.sampled_from(_WINDOWS), region=st.sampled_from(_REGIONS[:2]), addr=st.sampled_from(_ADDRESSES),
          access=st.sampled_from(_WINDOW_ACCESSES))  # fmt: skip
    def bind(self, name: str, region: str, addr: str, access: str) -> None:
        """ibv_bind_mw, or a posted bind of a window of type 2 that is not bound."""
        if not {name, region} <= set(self.live) or (name == "mw2" and name in self.bound):
            return
        arguments = {"qp": "qp", "mw": name, "mr": region, "addr": addr, "length": "64", "access": access}
        call = "ibv_bind_mw" if name == "mw" else "post_bind_mw"
        if self.take(call, arguments):
            self.bound.add(name)
        else:
            self.queue_broken = True

    @precondition(lambda self: not self.over and not self.queue_broken and "mw2" in self.bound)
    @rule()
    def invalidate(self) -> None:
        """LOCAL_INV of a bound window of type 2."""
        if self.take("post_local_inv", {"qp": "qp", "rkey": "mw2.rkey"}):
            self.bound.discard("mw2")
        else:
            self.queue_broken = True

    @precondition(lambda self: not self.over)
    @rule(name=st.sampled_from((*_REGIONS, *_WINDOWS)), addr=st.sampled_from(_ADDRESSES),
          operation=st.sampled_from((*_OPERATIONS, *_OPERATIONS, *_ATOMICS)), pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def remote(self, name: str, addr: str, operation: str, pd: str) -> None:
        """A remote operation with the rkey of any existing object."""
        if name not in self.live or (operation in _ATOMICS and not self.fits_atomics(addr)):
            return
        arguments = {"op": operation, "rkey": f"{name}.rkey", "addr": addr, "pd": pd}
        if name == "mw2":
            if self.queue_broken:
                return
            arguments["via"] = "qp"
            del arguments["pd"]
        if not self.take("traffic", arguments) and name == "mw2":
            self.queue_broken = True

    def fits_atomics(self, addr: str) -> bool:
        """Whether the device has atomics, and the address is a multiple of eight."""
        return "atomics" in self.subject.has and not addr.endswith(("7", "1"))

    @precondition(lambda self: not self.over)
    @rule(name=st.sampled_from(_REGIONS), addr=st.sampled_from(_ADDRESSES), operation=st.sampled_from(_LOCAL),
          pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def local(self, name: str, addr: str, operation: str, pd: str) -> None:
        """A local access with an lkey."""
        if name in self.live:
            self.take("local_traffic", {"op": operation, "lkey": f"{name}.lkey", "addr": addr, "pd": pd})

    @precondition(lambda self: self.over)
    @rule()
    def end(self) -> None:
        """Does nothing: after a divergence there is nothing left to compare."""


def search(subject: Subject, seed_number: int, over: Callable[[], bool]) -> Iterator[Divergence]:
    """Yields shrunk divergences, each with another signature, until `over`. Equal seeds make equal sequences."""
    for number in range(seed_number, seed_number + 1_000_000):
        if over():
            return
        current = Search(subject, over)
        machine: Any = type("Sequences", (Sequences,), {"current_search": current})
        with suppress(Diverged, Flaky, SearchEnded):
            run_state_machine_as_test(seed(number)(machine), settings=_settings())
        if current.found:
            subject.known.add(current.found.signature)
            yield shortest(subject, current.found)


def _settings() -> settings:
    return settings(
        max_examples=_EXAMPLES, stateful_step_count=_STEPS, deadline=None, database=None, print_blob=False,
        report_multiple_bugs=False, verbosity=Verbosity.quiet, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
