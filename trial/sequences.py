"""Runs random sequences of calls. The device must return what the reference returns.

A Hypothesis state machine issues the same calls on the device and the reference. If the results differ, the sequence is
shrunk and reported as a row that can be copied into a table. Calls whose outcome the documents leave open, and calls
that are known to crash a kernel (see HAZARDS), are never issued. Only this module needs Hypothesis."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from conformance.errors import SetupRefused
from conformance.model.capability import OPERATION_NEEDS
from trial.comparison import Comparison, Divergence, Subject, Text, flow, shortest

# Calls that crash the kernel with a known driver (Soft-RoCE), with the reasons. Such calls are never issued.
HAZARDS = {
    "advice on a region that is not on demand": "the driver treats the region as an on-demand region (ADV-05)",
    "invalidation of a window that is not bound": "the driver dereferences a null pointer (BIND-15)",
}
_EXAMPLES, _STEPS = 100, 20
# Hypothesis may try this number of sequences to shrink a divergence. In an emulated guest, a try takes 0.1 s.
_SHRINKS = 400
_REGION = {"addr": "buf + 1 page", "length": "2 pages"}
# Addresses of eight bytes inside the region, and of eight bytes across its ends or outside of it.
_INSIDE = ("buf + 1 page", "buf + 2 pages", "buf + 1 page + 104", "buf + 3 pages - 8")
_OUTSIDE = ("buf + 3 pages - 7", "buf + 1 page - 1", "buf + 1 page - 8", "buf + 3 pages")
_ADDRESS = st.sampled_from((*_INSIDE, *_INSIDE, *_OUTSIDE))
# Addresses at which a window of 64 bytes begins. At the last address, the window ends outside of the region.
_STARTS = (
    "buf + 1 page",
    "buf + 2 pages",
    "buf + 1 page + 104",
    "buf + 3 pages - 64",
    "buf + 3 pages - 63",
)
_START = st.sampled_from((*_STARTS[:-1], *_STARTS))
# A PD, usually the PD of all objects.
_PD = st.sampled_from(("pd", "pd", "pd", "other"))
# Hypothesis shrinks towards the first elements. With the widest access, the cause of a divergence is clearest.
_ACCESSES = (
    "[LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND]",
    "[LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, MW_BIND]",
    "[LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ]",
    "[LOCAL_WRITE, REMOTE_WRITE]",
    "[LOCAL_WRITE]",
    "[REMOTE_READ]",
    "[]",
    "[LOCAL_WRITE, MW_BIND]",
    "[REMOTE_READ, MW_BIND]",
)
_CHANGE = st.sampled_from(
    ("[CHANGE_ACCESS]", "[CHANGE_PD]", "[CHANGE_PD, CHANGE_ACCESS]", "[CHANGE_TRANSLATION]"),
)
_REGIONS = ("mr", "new", "odp")
_TYPE_1, _TYPE_2 = ("mw", "mw3"), ("mw2", "mw4")
_WINDOWS = (*_TYPE_1, *_TYPE_2)
_REFUSED = ("[REMOTE_WRITE]", "[REMOTE_WRITE, REMOTE_READ]")
_OPERATIONS = ("RDMA_WRITE", "RDMA_READ", "RDMA_WRITE_WITH_IMM")
_ATOMICS = ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD")
_REMOTE = st.sampled_from((*_OPERATIONS, *_ATOMICS))
_OFTEN_NO_ATOMIC = st.sampled_from((*_OPERATIONS, *_OPERATIONS, *_ATOMICS))
_LOCAL = st.sampled_from(("SEND", "RECV", "READ", "WRITE", "RECV_WITH_IMM"))
_LISTED = st.sampled_from(("SEND", "RECV", "READ", "WRITE"))
# Addresses of a second element, inside and outside of the region. The first element is at the region's beginning.
_ELEMENT = st.sampled_from(("buf + 2 pages - 8", "buf + 3 pages - 64", "buf + 3 pages - 63"))
_WINDOW_ACCESSES = (
    "[REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC]",
    "[REMOTE_WRITE, REMOTE_READ]",
    "[REMOTE_WRITE]",
    "[REMOTE_READ]",
    "[]",
)
# The number of an existing object. Hypothesis shrinks towards the first object.
_ANY = st.integers(0, 11)
# Offsets in a window of 64 bytes: the first and the last eight bytes, and outside of the window before and after it.
_PLACE = st.sampled_from(("", " + 56", " + 57", " + 64", " - 8"))


class Diverged(Exception):
    """A divergence between the two benches. Hypothesis treats this exception as a failing test."""


class SearchEnded(BaseException):
    """Stops Hypothesis at once. An Exception would count as a failing test."""


class Search:
    """One search of Hypothesis for one divergence. The search ends early when `over` returns true."""

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
        """Records the smallest divergence. Raises Diverged if no divergence with this signature was reported before."""
        if divergence.signature in self.subject.known:
            return
        if self.found is None or _size(divergence) < _size(self.found):
            self.found = divergence
        raise Diverged(divergence.fault)


def _size(divergence: Divergence) -> tuple[int, int]:
    return len(divergence.taken), len(divergence.row)


class Sequences(RuleBasedStateMachine):
    """A PD with two regions, two windows of each type and a queue pair, and calls on them in any order."""

    current_search: ClassVar[Search]

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[str, str] = {}  # the existing objects, with their kinds
        self.bound: dict[str, str] = {}  # the bound windows, with their addresses
        # The keys that have become invalid since a key was last assigned, each with two addresses that peers may have
        # accessed with the key. Older invalid keys are removed, because the device may have assigned them again.
        self.dead: dict[str, tuple[str, str]] = {}
        # at most one change is made, because most changes prevent binds to the region
        self.changes = 0
        self.unwritten: set[str] = set()  # the regions that were registered without LOCAL_WRITE
        self.over = False
        self.queue_broken = False
        self.comparison: Comparison | None = None

    @property
    def subject(self) -> Subject:
        return self.current_search.subject

    @initialize(
        access=st.sampled_from((*_ACCESSES[:2], *_ACCESSES)),
        on_demand=st.sampled_from(_ACCESSES[2:7]),
        windows=st.sampled_from(((), ("mw",), ("mw", "mw3"), ("mw2", "mw"))),
    )
    def begin(self, access: str, on_demand: str, windows: tuple[str, ...]) -> None:
        """Sets up the same objects on both benches, and binds some windows if the region permits binds."""
        self.current_search.begins()
        subject = self.subject
        set_up: dict[str, dict[str, str]] = {
            "pds": {"other": ""},
            "mrs": {},
            "qps": {},
            "windows": {},
        }
        set_up["mrs"]["mr"] = flow({**_REGION, "access": self.declared(access)})
        if "odp" in subject.has:
            paged = on_demand.replace("]", ", ON_DEMAND]").replace("[, ", "[")
            set_up["mrs"]["odp"] = flow({**_REGION, "access": paged})
        if subject.entry == "libibverbs":  # a window cannot be bound to a region without an ibv_mr
            set_up["qps"]["qp"] = "{type: RC}"
            kinds = {name: 1 if name in _TYPE_1 else 2 for name in _WINDOWS}
            set_up["windows"] = {
                name: f"{{type: {number}}}"
                for name, number in kinds.items()
                if f"mw_type_{number}" in subject.has
            }
        self.live = {
            **dict.fromkeys(set_up["mrs"], "mr"),
            **dict.fromkeys(set_up["windows"], "window"),
        }
        self.unwritten |= set() if "LOCAL_WRITE" in access else {"mr"}
        try:
            self.comparison = Comparison(subject, set_up)
        except (
            SetupRefused
        ):  # there is nothing to compare; the tables test whether a set-up must succeed
            self.over = True
        for number, name in enumerate(windows if "MW_BIND" in access else ()):
            self.bind_to(
                self.among((name,), 0),
                "mr",
                _STARTS[number],
                "64",
                self.declared(_WINDOW_ACCESSES[number]),
            )

    def declared(self, access: str) -> str:
        """Returns the access flags without flags that the device does not declare."""
        if not self.subject.has & {"mw_type_1", "mw_type_2"}:
            access = access.replace(", MW_BIND", "")
        if "atomics" in self.subject.has:
            return access
        return access.replace(", REMOTE_ATOMIC", "")

    def among(self, names: Iterable[str], number: int) -> str:
        """Returns an existing object among these names; an empty text if no object exists."""
        candidates = [name for name in names if name in self.live]
        if candidates:
            return candidates[number % len(candidates)]
        return ""

    def teardown(self) -> None:
        """Releases all objects in steps, which are compared like all other steps."""
        if self.comparison:
            try:
                for name in () if self.over else (*_WINDOWS, *_REGIONS):
                    self.destroy(name)
            finally:
                self.comparison.close()

    def destroy(self, name: str) -> None:
        """Calls ibv_dealloc_mw or ibv_dereg_mr if the object still exists."""
        kind = self.live.get(name)
        if kind and not self.over:
            call, key = ("ibv_dealloc_mw", "mw") if kind == "window" else ("ibv_dereg_mr", "mr")
            if self.take(call, {key: name}):
                del self.live[name]
                addr = self.bound.pop(name, "buf + 1 page")
                if name not in _TYPE_2:
                    self.dead[f"{name}.rkey"] = (addr, addr)

    def take(self, call: str, arguments: Text) -> bool:
        """Executes a step on both benches. Returns whether the step succeeded. Raises Diverged for a new divergence."""
        assert self.comparison is not None
        outcome = self.comparison.take(call, arguments)
        divergence = self.comparison.divergence
        if divergence:
            self.over = True  # from now on, the states of the two benches differ
            self.current_search.diverges(divergence)
        return outcome == "success" and not divergence

    @precondition(lambda self: not self.over and "new" not in self.live)
    @rule(access=st.sampled_from((*_ACCESSES, *_REFUSED)), pd=_PD)
    def register(self, access: str, pd: str) -> None:
        self.dead.clear()
        if self.take("ibv_reg_mr", {"pd": pd, **_REGION, "access": self.declared(access)}):
            self.live["new"] = "mr"
            self.unwritten.discard("new")
            self.unwritten |= set() if "LOCAL_WRITE" in access else {"new"}

    @precondition(lambda self: not self.over)
    @rule(number=_ANY)
    def release(self, number: int) -> None:
        self.destroy(self.among((*_REGIONS, *_WINDOWS), number))

    @precondition(
        lambda self: (
            not self.over and not self.bound and "rereg_mr" in self.subject.has and self.changes < 1
        ),
    )
    @rule(number=_ANY, flags=_CHANGE, access=st.sampled_from(_ACCESSES), pd=_PD)
    def change(self, number: int, flags: str, access: str, pd: str) -> None:
        """Calls ibv_rereg_mr for a region that is not on demand, while no window is bound."""
        name, translates = self.among(_REGIONS[:2], number), "TRANSLATION" in flags
        if not name or (translates and "rereg_translation" not in self.subject.has):
            return
        # The documents leave open whether the kernel's command may add rights to write (REREG-12).
        if (
            self.subject.entry == "uverbs"
            and name in self.unwritten
            and "ACCESS" in flags
            and access != "[REMOTE_READ]"
        ):
            access = "[]"
        self.dead.clear()
        self.changes += 1
        arguments = {"mr": name, "flags": flags}
        if "PD" in flags:
            arguments["pd"] = pd
        if "ACCESS" in flags:
            arguments["access"] = self.declared(access)
        if translates:
            arguments |= {"addr": "buf + 2 pages", "length": "1 page"}
        self.take("ibv_rereg_mr", arguments)

    @precondition(
        lambda self: not self.over and "odp" in self.live and "advise_mr" in self.subject.has,
    )
    @rule(
        advice=st.sampled_from(("PREFETCH", "PREFETCH_WRITE", "PREFETCH_NO_FAULT")),
        addr=_ADDRESS,
        pd=_PD,
    )
    def advise(self, advice: str, addr: str, pd: str) -> None:
        """Calls ibv_advise_mr for the on-demand region."""
        sges = f"[{{addr: {addr}, length: 8, lkey: odp.lkey}}]"
        self.take(
            "ibv_advise_mr",
            {"pd": pd, "advice": advice, "flags": "[FLUSH]", "sg_list": sges},
        )

    @precondition(lambda self: not self.over and not self.queue_broken)
    @rule(window=_ANY, region=_ANY, addr=_START, access=st.sampled_from(_WINDOW_ACCESSES))
    def bind(self, window: int, region: int, addr: str, access: str) -> None:
        """Binds a window: a window of type 1, which may be bound, or an unbound window of type 2."""
        free = [name for name in _WINDOWS if name in _TYPE_1 or name not in self.bound]
        self.bind_to(
            self.among(free, window),
            self.among(_REGIONS[:2], region),
            addr,
            "64",
            self.declared(access),
        )

    @precondition(lambda self: not self.over and not self.queue_broken)
    @rule(window=_ANY, region=_ANY)
    def unbind(self, window: int, region: int) -> None:
        """Unbinds a window of type 1: ibv_bind_mw with zero bytes."""
        bound = [name for name in _TYPE_1 if name in self.bound]
        self.bind_to(
            self.among(bound, window),
            self.among(_REGIONS[:2], region),
            "buf + 1 page",
            "0",
            "[]",
        )

    def bind_to(self, name: str, region: str, addr: str, length: str, access: str) -> None:
        if self.over or self.queue_broken or not name or not region:
            return
        self.dead.clear()
        arguments = {
            "qp": "qp",
            "mw": name,
            "mr": region,
            "addr": addr,
            "length": length,
            "access": access,
        }
        if not self.take("ibv_bind_mw" if name in _TYPE_1 else "post_bind_mw", arguments):
            self.queue_broken = True
            return
        if name in _TYPE_1:  # with type 2, a wrong key would break the queue pair
            self.dead[f"{name}.old_rkey"] = (addr, self.bound.get(name, addr))
        self.bound[name] = addr
        if length == "0":
            del self.bound[name]

    @precondition(lambda self: not self.over and not self.queue_broken)
    @rule(number=_ANY)
    def invalidate(self, number: int) -> None:
        """Posts a LOCAL_INV of a bound window of type 2."""
        name = self.among([name for name in _TYPE_2 if name in self.bound], number)
        if name and self.take("post_local_inv", {"qp": "qp", "rkey": f"{name}.rkey"}):
            del self.bound[name]
        elif name:
            self.queue_broken = True

    @precondition(lambda self: not self.over and self.dead)
    @rule(number=_ANY, which=st.integers(0, 1), operation=_REMOTE)
    def dead_key(self, number: int, which: int, operation: str) -> None:
        """Posts a remote operation with an invalid rkey: of a released object, or of a window before its last bind."""
        key = sorted(self.dead)[number % len(self.dead)]
        addr = self.dead[key][which]
        if self.can(operation, addr):
            self.take("traffic", {"op": operation, "rkey": key, "addr": addr})

    @precondition(lambda self: not self.over)
    @rule(number=_ANY, addr=_ADDRESS, operation=_OFTEN_NO_ATOMIC, pd=_PD)
    def remote(self, number: int, addr: str, operation: str, pd: str) -> None:
        """Posts a remote operation with the rkey of any existing object."""
        self.operate(self.among((*_REGIONS, *_WINDOWS), number), addr, operation, pd)

    @precondition(lambda self: not self.over and self.bound)
    @rule(number=_ANY, place=_PLACE, operation=_REMOTE, pd=_PD)
    def through_window(self, number: int, place: str, operation: str, pd: str) -> None:
        """Posts a remote operation within a bound window or beyond its ends."""
        name = self.among(self.bound, number)
        self.operate(name, f"{self.bound[name]}{place}", operation, pd)

    def operate(self, name: str, addr: str, operation: str, pd: str) -> None:
        """Posts a remote operation with the rkey of an object if the object exists and the operation is possible."""
        if not name or not self.can(operation, addr):
            return
        arguments = {"op": operation, "rkey": f"{name}.rkey", "addr": addr, "pd": pd}
        if name in _TYPE_2:
            if self.queue_broken:
                return
            arguments["via"] = "qp"
            del arguments["pd"]
        if not self.take("traffic", arguments) and name in _TYPE_2:
            self.queue_broken = True

    def can(self, operation: str, addr: str = "") -> bool:
        """Whether the operation is possible: the device has the operation, and the address of an atomic is aligned."""
        if operation in _ATOMICS:
            return "atomics" in self.subject.has and not addr.endswith(("7", "1"))
        return OPERATION_NEEDS.get(operation, "") in ("", *self.subject.has)

    @precondition(lambda self: not self.over)
    @rule(number=_ANY, addr=_ADDRESS, operation=_LOCAL, pd=_PD)
    def local(self, number: int, addr: str, operation: str, pd: str) -> None:
        """Posts an operation with an lkey."""
        name = self.among(_REGIONS, number)
        if name and self.can(operation):
            self.take(
                "local_traffic",
                {"op": operation, "lkey": f"{name}.lkey", "addr": addr, "pd": pd},
            )

    @precondition(lambda self: not self.over)
    @rule(numbers=st.tuples(_ANY, _ANY), addr=_ELEMENT, operation=_LISTED, pd=_PD)
    def listed(self, numbers: tuple[int, int], addr: str, operation: str, pd: str) -> None:
        """Posts a request with two elements."""
        first, second = (self.among(_REGIONS[:2], number) for number in numbers)
        if first and second and self.can(f"list_traffic {operation}"):
            elements = (("buf + 1 page", "61", first), (addr, "64", second))
            sges = ", ".join(
                f"{{addr: {at}, length: {size}, lkey: {name}.lkey}}" for at, size, name in elements
            )
            self.take("list_traffic", {"op": operation, "sg_list": f"[{sges}]", "pd": pd})

    @precondition(lambda self: self.over)
    @rule()
    def end(self) -> None:
        """Does nothing, because after a divergence no step is compared."""


def search(subject: Subject, seed_number: int, over: Callable[[], bool]) -> Iterator[Divergence]:
    """Yields shrunk divergences with different signatures until `over` returns true. Equal seeds make equal
    sequences."""
    for number in range(seed_number, seed_number + 1_000_000):
        if over():
            return
        current = Search(subject, over)
        machine: Any = type("Sequences", (Sequences,), {"current_search": current})
        with suppress(Diverged, Flaky, SearchEnded):
            _run(seed(number)(machine), settings=_SETTINGS)
        if current.found:
            subject.known.add(current.found.signature)
            yield shortest(subject, current.found)


_run: Callable[..., None] = run_state_machine_as_test  # a function without types


_SETTINGS = settings(
    max_examples=_EXAMPLES,
    stateful_step_count=_STEPS,
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    verbosity=Verbosity.quiet,
    phases=(Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
