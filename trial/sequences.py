"""Random sequences of calls, with the reference as oracle: what it answers is what the device has to answer.

A Hypothesis state machine makes the same calls on both. Where the two part, the sequence is shrunk and told as a row
that can be put into a table. What no document decides is never asked for; what is known to be hazardous is left out by
name (see HAZARDS). Hypothesis is needed here alone.
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

# What a device may die of, by what is known of Soft-RoCE; such calls are never made.
HAZARDS = {
    "advice on a region that is not on demand": "its bookkeeping is taken for that of an on-demand one (ADV-05)",
    "invalidation of a window that is not bound": "a null pointer is followed (BIND-15)",
}
_EXAMPLES, _STEPS = 100, 20
# How often Hypothesis may try to make a divergence smaller: on an emulated device each time takes a tenth of a second.
_SHRINKS = 400
_REGION = {"addr": "buf + 1 page", "length": "2 pages"}
# Within the region, at its last bytes, across its end, and on both sides of it.
_INSIDE = ("buf + 1 page", "buf + 2 pages", "buf + 1 page + 104", "buf + 3 pages - 8")
_OUTSIDE = ("buf + 3 pages - 7", "buf + 1 page - 1", "buf + 1 page - 8", "buf + 3 pages")
_ADDRESSES = (*_INSIDE, *_INSIDE, *_OUTSIDE)
# Mostly the domain that everything is in at first.
_DOMAINS = ("pd", "pd", "pd", "other")
# The first are what Hypothesis takes for the simplest: what grants most explains most.
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


class Parted(Exception):
    """What Hypothesis takes for a failing test: the two sides have parted."""


class Enough(BaseException):
    """Ends Hypothesis' work where it stands; what derives from Exception would be a failing test to it."""


class Hunt:
    """One search of Hypothesis for one divergence, which ends early when `over` says so."""

    def __init__(self, subject: Subject, over: Callable[[], bool]) -> None:
        self.subject, self.over = subject, over
        self.found: Divergence | None = None
        self._shrinks = 0

    def begins(self) -> None:
        """A sequence begins. Raises Enough when there should be no other one."""
        self._shrinks += self.found is not None
        if self._shrinks > _SHRINKS or (self.found is None and self.over()):
            raise Enough
        self.subject.sequences += 1

    def parts(self, divergence: Divergence) -> None:
        """A sequence ends in this. Raises Parted unless that has been told already."""
        if divergence.signature in self.subject.known:
            return
        if self.found is None or _size(divergence) < _size(self.found):
            self.found = divergence
        raise Parted(divergence.fault)


def _size(divergence: Divergence) -> tuple[int, int]:
    return len(divergence.taken), len(divergence.row)


class Sequences(RuleBasedStateMachine):
    """A domain with two regions, windows of both types and a queue pair, and calls on them in any order."""

    hunt: ClassVar[Hunt]

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, str] = {}  # objects that are there, with their kinds
        self.bound: set[str] = set()
        self.over = False
        self.queue_broken = False
        self.comparison: Comparison | None = None

    @property
    def subject(self) -> Subject:
        """What is compared."""
        return self.hunt.subject

    @initialize(access=st.sampled_from(_ACCESSES), on_demand=st.sampled_from(_ACCESSES[1:6]))
    def begin(self, access: str, on_demand: str) -> None:
        """Sets up the same on both sides."""
        self.hunt.begins()
        subject = self.subject
        given: dict[str, dict[str, str]] = {"pds": {"other": ""}, "mrs": {}, "qps": {}, "windows": {}}
        given["mrs"]["mr"] = flow({**_REGION, "access": self.declared(access)})
        if "odp" in subject.has:
            paged = on_demand.replace("]", ", ON_DEMAND]").replace("[, ", "[")
            given["mrs"]["odp"] = flow({**_REGION, "access": paged})
        if subject.entry == "libibverbs":  # a region of the kernel's alone cannot be bound to
            given["qps"]["qp"] = "{type: RC}"
            kinds = {name: number for name, number in (("mw", 1), ("mw2", 2)) if f"mw_type_{number}" in subject.has}
            given["windows"] = {name: f"{{type: {number}}}" for name, number in kinds.items()}
        self.live = {**dict.fromkeys(given["mrs"], "mr"), **dict.fromkeys(given["windows"], "window")}
        try:
            self.comparison = Comparison(subject, given)
        except SetupRefused:  # there is nothing to compare; that the set-up has to work is for the tables
            self.over = True

    def declared(self, access: str) -> str:
        """The rights without MW_BIND where the device declares no windows."""
        return access if self.subject.has & {"mw_type_1", "mw_type_2"} else access.replace(", MW_BIND", "")

    def teardown(self) -> None:
        """Gives everything back, in steps that are compared like others."""
        if self.comparison:
            try:
                for name in () if self.over else (*_WINDOWS, *_REGIONS):
                    self.give_back(name)
            finally:
                self.comparison.close()

    def give_back(self, name: str) -> None:
        """ibv_dealloc_mw or ibv_dereg_mr of what is still there."""
        kind = self.live.get(name)
        if kind and not self.over:
            call, key = ("ibv_dealloc_mw", "mw") if kind == "window" else ("ibv_dereg_mr", "mr")
            if self.take(call, {key: name}):
                del self.live[name]
                self.bound.discard(name)

    def take(self, call: str, arguments: Text) -> bool:
        """One step on both sides; whether it works. Raises Parted for a divergence that has not been told."""
        assert self.comparison is not None
        outcome = self.comparison.take(call, arguments)
        divergence = self.comparison.divergence
        if divergence:
            self.over = True  # from here on the two sides are not alike
            self.hunt.parts(divergence)
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
        self.give_back(name)

    @precondition(lambda self: not self.over and not self.bound and "rereg_mr" in self.subject.has)
    @rule(name=st.sampled_from(_REGIONS[:2]), flags=st.sampled_from(_CHANGES),
          access=st.sampled_from(_ACCESSES), pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def change(self, name: str, flags: str, access: str, pd: str) -> None:
        """ibv_rereg_mr of a plain region, while nothing is bound."""
        moves = "TRANSLATION" in flags
        if name not in self.live or (moves and "rereg_translation" not in self.subject.has):
            return
        arguments = {"mr": name, "flags": flags}
        if "PD" in flags:
            arguments["pd"] = pd
        if "ACCESS" in flags:
            arguments["access"] = self.declared(access)
        if moves:
            arguments |= {"addr": "buf + 2 pages", "length": "1 page"}
        self.take("ibv_rereg_mr", arguments)

    @precondition(lambda self: not self.over and "odp" in self.live and "advise_mr" in self.subject.has)
    @rule(advice=st.sampled_from(("PREFETCH", "PREFETCH_WRITE", "PREFETCH_NO_FAULT")),
          addr=st.sampled_from(_ADDRESSES), pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def advise(self, advice: str, addr: str, pd: str) -> None:
        """ibv_advise_mr, on the on-demand region alone."""
        sges = f"[{{addr: {addr}, length: 8, lkey: odp.lkey}}]"
        self.take("ibv_advise_mr", {"pd": pd, "advice": advice, "flags": "[FLUSH]", "sg_list": sges})

    @precondition(lambda self: not self.over and not self.queue_broken)
    @rule(name=st.sampled_from(_WINDOWS), region=st.sampled_from(_REGIONS[:2]), addr=st.sampled_from(_ADDRESSES),
          access=st.sampled_from(_WINDOW_ACCESSES))  # fmt: skip
    def bind(self, name: str, region: str, addr: str, access: str) -> None:
        """ibv_bind_mw, or a posted bind of a window of type 2 that is bound to nothing."""
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
        """LOCAL_INV of a window of type 2 that is bound."""
        if self.take("post_local_inv", {"qp": "qp", "rkey": "mw2.rkey"}):
            self.bound.discard("mw2")
        else:
            self.queue_broken = True

    @precondition(lambda self: not self.over)
    @rule(name=st.sampled_from((*_REGIONS, *_WINDOWS)), addr=st.sampled_from(_ADDRESSES),
          operation=st.sampled_from((*_OPERATIONS, *_OPERATIONS, *_ATOMICS)), pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def remote(self, name: str, addr: str, operation: str, pd: str) -> None:
        """A peer's operation by any key that is there."""
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
        """Whether the device has atomics, and an address is a multiple of eight."""
        return "atomics" in self.subject.has and not addr.endswith(("7", "1"))

    @precondition(lambda self: not self.over)
    @rule(name=st.sampled_from(_REGIONS), addr=st.sampled_from(_ADDRESSES), operation=st.sampled_from(_LOCAL),
          pd=st.sampled_from(_DOMAINS))  # fmt: skip
    def local(self, name: str, addr: str, operation: str, pd: str) -> None:
        """An own access by an lkey."""
        if name in self.live:
            self.take("local_traffic", {"op": operation, "lkey": f"{name}.lkey", "addr": addr, "pd": pd})

    @precondition(lambda self: self.over)
    @rule()
    def end(self) -> None:
        """The two sides are not alike any more: nothing is left to compare."""


def search(subject: Subject, seed_number: int, over: Callable[[], bool]) -> Iterator[Divergence]:
    """Divergences, each shrunk and of another signature, until it is `over`. Equal seeds try equal sequences."""
    for number in range(seed_number, seed_number + 1_000_000):
        if over():
            return
        hunt = Hunt(subject, over)
        machine: Any = type("Sequences", (Sequences,), {"hunt": hunt})
        with suppress(Parted, Flaky, Enough):
            run_state_machine_as_test(seed(number)(machine), settings=_settings())
        if hunt.found:
            subject.known.add(hunt.found.signature)
            yield shortest(subject, hunt.found)


def _settings() -> settings:
    return settings(
        max_examples=_EXAMPLES, stateful_step_count=_STEPS, deadline=None, database=None, print_blob=False,
        report_multiple_bugs=False, verbosity=Verbosity.quiet, phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
