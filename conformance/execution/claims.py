"""Tries what a device declares, so that the cases that need it do not all fail where the device does not have it.

Each declared capability that a call can show is tried once, in its simplest form. It counts as absent only if library,
kernel or driver say that there is none of its kind (bench.calls.ABSENT, and EINVAL from what creates an object or posts
a well-formed request). Not for other errors, which the cases find, nor for the violation itself (rules CAP-…).
"""

import errno
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress

from conformance.bench.calls import ABSENT, Pd, Return, errno_name
from conformance.bench.interface import Bench
from conformance.bench.work_requests import SendRequest
from conformance.errors import SetupRefused
from conformance.execution.connection import post_receives
from conformance.execution.harness_resources import HarnessResources
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_WORD, _SIZE_MAX = 8, (1 << 64) - 1


def absent_on(bench: Bench, declared: Mapping[str, bool]) -> dict[str, str]:
    """For each capability that the device declares and does not have, the call that shows it and its errno, as text."""
    pd = bench.alloc_pd()
    found: dict[str, str] = {}
    for name, tried in _TRIED.items():
        if not declared.get(name):
            continue
        with ExitStack() as cleanup:
            try:
                answer = tried(_Place(bench, pd, cleanup))
            except SetupRefused as refused:
                answer = str(refused) if refused.not_offered == name else ""
            if answer:
                found[name] = answer
    with suppress(Exception):  # the cases report what a device does not release
        pd.close()
    return found


class _Place:
    """A PD, and the objects that the trial of one capability needs; `cleanup` releases them."""

    def __init__(self, bench: Bench, pd: Pd, cleanup: ExitStack) -> None:
        self.bench, self.pd = bench, pd
        self.resources = HarnessResources(bench, {"pd": pd}, cleanup, [])

    def window(self, kind: int) -> str:
        window, returned = self.bench.alloc_mw(self.pd, kind)
        if window is None:
            return _refusal(f"ibv_alloc_mw of type {kind}", returned)
        window.dealloc()
        return ""

    def pair(self, kind: str, extended: str = "") -> str:
        """Raises SetupRefused if the pair cannot be made; extended ones are of type RC."""
        try:
            self.resources.connection(kind, "pd", extended=extended)
        except SetupRefused as refused:
            if extended and refused.not_offered:
                return f"{refused} (with {extended})"
            raise
        return ""

    def region(self, right: str) -> str:
        memory = self.bench.allocate("anonymous", 3 * self.bench.page)
        try:  # no byte at an end of the mapping
            return self._register(memory.addr + self.bench.page, self.bench.page, right)
        finally:
            memory.close()

    def whole_address_space(self) -> str:
        return self._register(0, _SIZE_MAX, "ON_DEMAND")

    def _register(self, addr: int, length: int, right: str) -> str:
        entry = self.bench.entry("libibverbs")
        returned = entry.reg_mr(self.pd, addr, length, _ACCESS.mask_of("LOCAL_WRITE", right))
        if returned.mr is None:
            return _refusal(f"ibv_reg_mr with {right}", returned)
        entry.dereg_mr(returned.mr)
        return ""

    def request(self, opcode: str) -> str:
        """A request that a peer can carry out; the cases test whether it is carried out."""
        pair = self.resources.connection("RC", "pd").pair
        rights = _ACCESS.value_of("REMOTE_ATOMIC") if opcode.startswith("ATOMIC") else 0
        try:
            target = self.resources.scratch(self.pd, _WORD, "target", rights)
        except SetupRefused as refused:
            return f"{refused} (with REMOTE_ATOMIC)"
        own = self.resources.scratch(pair.requester.pd, _WORD, "own")
        post_receives(pair.responder, [1])
        sges = (own,) if opcode.startswith("ATOMIC") else ()
        returned = pair.requester.post_send(SendRequest(opcode, 2, sges, remote_addr=target.addr, rkey=target.rkey))
        if returned.value:
            return _refusal(f"posting {opcode}", returned)
        pair.requester.completions(1)
        return ""


def _refusal(what: str, returned: Return) -> str:
    """Describes a call that was refused because the device lacks what it needs; empty if it has another reason."""
    missing = returned.errno in (*ABSENT, errno.EINVAL)
    return f"{what} was refused with {errno_name(returned.errno)}" if missing else ""


# By capability, the call that shows whether it is there.
_TRIED: Mapping[str, Callable[[_Place], str]] = {
    "mw_type_1": lambda place: place.window(1),
    "mw_type_2": lambda place: place.window(2),
    "xrc": lambda place: place.pair("XRC"),
    "atomics": lambda place: place.request("ATOMIC_FETCH_AND_ADD"),
    "immediate_data": lambda place: place.request("SEND_WITH_IMM"),
    "odp": lambda place: place.region("ON_DEMAND"),
    "odp_implicit": _Place.whole_address_space,
    "flush_global": lambda place: place.region("FLUSH_GLOBAL") or place.pair("RC", "FLUSH"),
    "flush_persistent": lambda place: place.pair("RC", "FLUSH"),  # the cases test which memory is persistent
    "atomic_write": lambda place: place.pair("RC", "ATOMIC_WRITE"),
}
