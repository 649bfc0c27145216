"""Tests verbs and types of queue pairs that no device attribute declares, and tests the declared capabilities.

Each trial is one harmless call in its simplest form. A stack without a verb or a flag returns a code of
bench.calls.ABSENT for all arguments; after any different result, the verb or the flag exists: what no attribute
declares, only such a code declares as missing. A declared capability counts as absent only if a call
returns such a code, or if a call that creates an object or posts a well-formed request returns EINVAL. The cases detect
other errors, and the rules CAP-… judge an absent capability.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.bench.calls import ABSENT, Mr, Pd, Return, errno_name
from conformance.bench.interface import Bench, Entry
from conformance.bench.work_requests import NO_BYTES, SendRequest
from conformance.device import persistent
from conformance.device.libibverbs import Libibverbs
from conformance.device.limits import can_fail
from conformance.errors import HostLacks, SetupRefused
from conformance.execution.connection import post_receives
from conformance.execution.context import HarnessResources, create_pair
from conformance.kernel import paging
from conformance.model import capability, vocabulary
from conformance.model.capability import IMMEDIATES
from conformance.model.case import QpSpec
from conformance.model.declared import Capabilities
from conformance.model.operations import BUILDERS
from conformance.verbs import ENUMS

if TYPE_CHECKING:
    from conformance.device.bench import DeviceBench

_FLAGS = ENUMS["ibv_rereg_mr_flags"]
# The types of queue pairs that are optional.
_OPTIONAL = ("RC", "UC", "UD", "RC_SRQ")
# Verbs, other than registrations, that create regions, domains or the objects that these need. The entry uverbs does
# not have these verbs.
_MADE_OTHERWISE = (
    "alloc_null_mr import_mr import_pd alloc_parent_domain alloc_td alloc_dm import_dm dmah".split()
)
_OFFSET = 128  # bytes
_NOBODYS = 0xFFFFFFF0  # a handle that no object has
_WORD, _SIZE_MAX = 8, (1 << 64) - 1
_ACCESS = ENUMS["ibv_access_flags"]
_PLAIN, _ZERO_BASED, _ON_DEMAND, _HUGETLB = map(
    _ACCESS.value_of,
    ("LOCAL_WRITE", "ZERO_BASED", "ON_DEMAND", "HUGETLB"),
)
_UNPROTECTED = ENUMS["ibv_parent_domain_init_attr_mask"].value_of("ALLOW_CC_UNPROTECTED_ALLOC")
_PH = ENUMS["ibv_dmah_init_attr_mask"].value_of("PH")
_CHANGE_ACCESS, _CHANGE_TRANSLATION = (
    _FLAGS.value_of("CHANGE_ACCESS"),
    _FLAGS.value_of("CHANGE_TRANSLATION"),
)


def capabilities_of(bench: DeviceBench) -> Capabilities:
    """Returns the capabilities that a device declares, and the capabilities that its entries offer."""
    offered = {name: offered_by(bench, name) for name in (*vocabulary.ENTRIES, *vocabulary.DOORS)}
    reachable = reachable_on(bench.library, offered["libibverbs"])
    reachable["dontfork"] = _keeps_from_children(bench)
    reachable["copy_on_fork"] = bench.device.netlink.copies_on_fork()
    reachable["persistent_memory"] = persistent.device() is not None
    try:
        bench.allocate("bar", bench.page).close()
        reachable["pci_bar"] = True
    except (HostLacks, OSError):
        reachable["pci_bar"] = False
    # rereg_mr is tested on a region. If an entry has no result for rereg_mr, the entry could not register a region.
    registers = {name: "rereg_mr" in tried for name, tried in offered.items()}
    reachable["raw_registration"] = registers["uverbs"] or not registers["libibverbs"]
    declared = with_immediates(bench, bench.device.capabilities)
    return Capabilities(declared, offered, reachable, absent_on(bench, declared))


def with_immediates(bench: Bench, declared: Mapping[str, bool]) -> Mapping[str, bool]:
    """Returns the declared capabilities with those of IMMEDIATES that a call finds. A device without connected queue
    pairs has none of them."""
    capabilities = dict(declared)
    for name, opcode in IMMEDIATES.items():
        if declared.get(name, True):
            continue
        with domain(bench) as pd, ExitStack() as cleanup, suppress(SetupRefused):
            capabilities[name] = _Trial(bench, {"pd": pd}, cleanup, []).delivers(opcode)
    return capabilities


@contextmanager
def domain(bench: Bench) -> Iterator[Pd]:
    """Yields a PD for trials. Ignores a failed release, because the cases detect such failures."""
    pd = bench.alloc_pd()
    try:
        yield pd
    finally:
        with suppress(Exception):
            pd.close()


@contextmanager
def _page(bench: Bench) -> Iterator[int]:
    """Yields the address of a page that has a mapped page on each side."""
    memory = bench.allocate("anonymous", 3 * bench.page)
    try:
        yield memory.addr + bench.page
    finally:
        memory.close()


def _discard(entry: Entry, returned: Return) -> None:
    """Releases the object that a call has created, if any. Ignores a failed release, which the cases detect."""
    held = returned.held or returned.pd
    with suppress(Exception):
        if returned.release:
            returned.release()
        elif returned.mr:
            entry.dereg_mr(returned.mr)
        elif held:
            held.close()


def offered_by(bench: Bench, entry_name: str) -> dict[str, bool]:
    """Returns, for each verb, type of region and type of queue pair that a device cannot declare, whether this entry
    offers it. If the device does not register a page, the capabilities that need a region are absent from the result,
    and the cases report the failed registration."""
    entry, by_library = bench.entry(entry_name), entry_name == "libibverbs"
    results, regions = dict[str, Return](), dict[str, Return]()
    with domain(bench) as pd, _page(bench) as addr:
        results["advise_mr"] = entry.advise_mr(pd, 0, 0, ())
        returned_here = entry.reg_mr(pd, addr, bench.page, _PLAIN)
        if returned_here.mr:
            regions["zero_based"] = entry.reg_mr(pd, addr, bench.page, _PLAIN | _ZERO_BASED)
            regions["iova_page_offset"] = entry.reg_mr_iova(
                pd,
                addr + _OFFSET,
                _OFFSET,
                addr,
                _PLAIN,
            )
            results["rereg_mr"] = entry.rereg_mr(
                returned_here.mr, _CHANGE_ACCESS, None, 0, 0, _PLAIN
            )
            results["rereg_translation"] = entry.rereg_mr(
                returned_here.mr,
                _CHANGE_TRANSLATION,
                None,
                addr,
                bench.page,
                0,
            )
        results["reg_dmabuf_mr"] = entry.reg_dmabuf_mr(pd, 0, bench.page, 0, -1, 0)
        results |= _made_otherwise(entry, pd, returned_here.mr) if by_library else {}
        for returned in (*results.values(), *regions.values(), returned_here):
            _discard(entry, returned)
        newer = dict.fromkeys(() if by_library else _MADE_OTHERWISE, False)
        newer |= {
            poster: _can_be_created(bench, QpSpec("RC", "pd", extended=poster), pd)
            for poster in BUILDERS
        }
        newer |= {name: entry.offers(name) for name in capability.BY_SYMBOL}
        newer["dm_export_dmabuf_fd"] &= by_library and _exports_device_memory(entry, pd)
        newer["dmabuf_buffers"] = by_library and _has_dmabuf_buffers(entry, pd)
        newer |= _on_huge_pages(bench, entry, pd)
        newer |= {
            kind.lower(): _can_be_created(bench, QpSpec(kind, "pd"), pd) for kind in _OPTIONAL
        }
    verbs = {verb: returned.errno not in ABSENT for verb, returned in results.items()}
    # No document allows a device to refuse another offset in the page: a refusal violates a rule (capability.JUDGED_BY).
    kinds = {kind: returned.errno not in ABSENT for kind, returned in regions.items()}
    for kind in capability.JUDGED_BY.keys() & regions.keys():
        kinds[kind] = not _means_absent(regions[kind])
    return verbs | kinds | newer


def _made_otherwise(entry: Entry, pd: Pd, mr: Mr | None) -> dict[str, Return]:
    """Calls the verbs of _MADE_OTHERWISE, and returns their results."""
    context = pd.context_pointer
    returns = {
        "alloc_null_mr": entry.alloc_null_mr(pd),
        "import_pd": entry.import_pd(context, pd.handle),
        "alloc_dm": entry.alloc_dm(context, 1, 0),
        "dmah": entry.alloc_dmah(context, _PH, 0, 0, 0),
        "import_dm": entry.import_dm(context, _NOBODYS),
        "alloc_td": entry.alloc_td(context),
        "alloc_parent_domain": entry.alloc_parent_domain(context, pd, None, 0),
    }
    if mr:
        return {**returns, "import_mr": entry.import_mr(pd, mr.handle)}
    return returns


def _exports_device_memory(entry: Entry, pd: Pd) -> bool:
    """Whether the provider exports device memory as a dma-buf."""
    memory = entry.alloc_dm(pd.context_pointer, 1, 0).held
    if memory is None:
        return False
    returned = entry.dm_export_dmabuf_fd(memory)
    if returned.value >= 0:
        os.close(returned.value)
    memory.close()
    return returned.errno not in ABSENT


def _has_dmabuf_buffers(entry: Entry, pd: Pd) -> bool:
    """Whether buffers of a parent domain with ALLOW_CC_UNPROTECTED_ALLOC are dma-bufs."""
    parent = entry.alloc_parent_domain(pd.context_pointer, pd, None, _UNPROTECTED).pd
    if parent is None:
        return False
    buffer, fd = entry.alloc_buf(parent, 1).buffer, -1
    if buffer:
        fd = entry.export_buf_dmabuf_fd(buffer).value
        if fd >= 0:
            os.close(fd)
        buffer.close()
    parent.close()
    return fd >= 0


def _on_huge_pages(bench: Bench, entry: Entry, pd: Pd) -> dict[str, bool]:
    """Returns whether a region with HUGETLB can be registered. Returns {} if this host has no huge pages, or if a
    region with only ON_DEMAND cannot be registered on huge pages."""
    try:
        memory = bench.allocate("huge", bench.hugepage)
    except HostLacks:
        return {}
    outcomes = {}
    plain = entry.reg_mr(pd, memory.addr, memory.size, _PLAIN | _ON_DEMAND)
    _discard(entry, plain)
    if plain.mr:
        returned = entry.reg_mr(pd, memory.addr, memory.size, _PLAIN | _ON_DEMAND | _HUGETLB)
        outcomes["hugetlb"] = returned.errno not in ABSENT
        _discard(entry, returned)
    memory.close()
    return outcomes


def _keeps_from_children(bench: Bench) -> bool:
    """Whether a registered page is absent from forked children; ibv_is_fork_initialized does not report this."""
    entry = bench.entry("libibverbs")
    with domain(bench) as pd, _page(bench) as addr:
        returned = entry.reg_mr(pd, addr, bench.page, _PLAIN)
        is_kept = paging.kept_from_children(addr)
        _discard(entry, returned)
    return is_kept


def _means_absent(returned: Return) -> bool:
    """Whether a refusal means that the device does not have this feature."""
    return returned.errno in (*ABSENT, errno.EINVAL)


def _can_be_created(bench: Bench, spec: QpSpec, pd: Pd) -> bool:
    """Whether the device offers pairs of this type, even if the pair cannot be connected."""
    try:
        pair = create_pair(bench, spec, {spec.pd: pd})
    except SetupRefused as refused:
        return not refused.not_offered
    pair.close()
    return True


def reachable_on(library: Libibverbs, offered: Mapping[str, bool]) -> dict[str, bool]:
    """Returns, for each of capability.PRECONDITIONS that can be tested here, whether it is met."""
    return {
        "experimental_rereg": library.has_experimental_rereg,
        "shared_mr": False,
        "peer_memory": False,
        "fork_race": False,
        "advise_absent": not offered["advise_mr"],
        "rereg_absent": not offered.get("rereg_mr", True),
        "swap": len(Path("/proc/swaps").read_text().splitlines()) > 1,
        "failing_allocations": can_fail(),
    }


def absent_on(bench: Bench, declared: Mapping[str, bool]) -> dict[str, str]:
    """Returns the capabilities that the device declares but does not have, each with the refused call and its errno as
    text."""
    absent: dict[str, str] = {}
    with domain(bench) as pd:
        for name, tried in _TRIED.items():
            if not declared.get(name):
                continue
            with ExitStack() as cleanup:
                try:
                    lack = tried(_Trial(bench, {"pd": pd}, cleanup, []))
                except SetupRefused as refused:
                    if refused.not_offered == name:
                        lack = str(refused)
                    else:
                        lack = ""
                if lack:
                    absent[name] = lack
    return absent


class _Trial(HarnessResources):
    def window(self, kind: int) -> str:
        window, returned = self.bench.alloc_mw(self.pds["pd"], kind)
        if window is None:
            return _refusal(f"ibv_alloc_mw of type {kind}", returned)
        window.dealloc()
        return ""

    def pair(self, kind: str, extended: str = "") -> str:
        """Creates a pair. Returns the refusal if the device does not offer `extended`, or else an empty text. Raises
        SetupRefused for other refusals."""
        try:
            self.connection(kind, "pd", extended=extended)
        except SetupRefused as refused:
            if extended and refused.not_offered:
                return f"{refused} (with {extended})"
            raise
        return ""

    def region(self, right: str) -> str:
        with _page(self.bench) as addr:
            return self._try(addr, self.bench.page, right)

    def whole_address_space(self) -> str:
        return self._try(0, _SIZE_MAX, "ON_DEMAND")

    def _try(self, addr: int, length: int, right: str) -> str:
        entry = self.bench.entry("libibverbs")
        returned = entry.reg_mr(self.pds["pd"], addr, length, _ACCESS.mask_of("LOCAL_WRITE", right))
        _discard(entry, returned)
        if returned.mr:
            return ""
        return _refusal(f"ibv_reg_mr with {right}", returned)

    def request(self, opcode: str) -> str:
        """Posts a valid request. The cases test whether the request is executed."""
        pair = self.connection("RC", "pd").pair
        rights = _ACCESS.value_of("REMOTE_ATOMIC") if opcode.startswith("ATOMIC") else 0
        try:
            target = self.scratch(self.pds["pd"], _WORD, "target", rights)
        except SetupRefused as refused:
            return f"{refused} (with REMOTE_ATOMIC)"
        element = self.scratch(pair.requester.pd, _WORD, "own")
        post_receives(pair.responder, [1])
        sges = (element,) if opcode.startswith("ATOMIC") else ()
        returned = pair.requester.post_send(
            SendRequest(opcode, 2, sges, remote_addr=target.addr, rkey=target.rkey),
        )
        if returned.value:
            return _refusal(f"posting {opcode}", returned)
        pair.requester.completions(1)
        return ""

    def delivers(self, opcode: str) -> bool:
        """Whether a request with immediate data and one byte is posted, and its data arrive."""
        pair = self.connection("RC", "pd").pair
        target = self.scratch(self.pds["pd"], 1, "target", _ACCESS.value_of("REMOTE_WRITE"))
        source = self.scratch(pair.requester.pd, 1, "own")
        if opcode.startswith("SEND"):
            sinks = (target,)
        else:
            sinks = NO_BYTES
        request = SendRequest(opcode, 2, (source,), remote_addr=target.addr, rkey=target.rkey)
        if pair.responder.post_receive(sinks, 1).value:
            return False
        if pair.requester.post_send(request._replace(imm=_WORD)).value:
            return False
        arrived = pair.responder.completions(1)
        pair.requester.completions(1)
        return [(completion.status, completion.imm) for completion in arrived] == [
            ("SUCCESS", _WORD)
        ]


def _refusal(what: str, returned: Return) -> str:
    """Describes a call that was refused because the device lacks a capability. Returns "" for other refusals."""
    if _means_absent(returned):
        return f"{what} was refused with {errno_name(returned.errno)}"
    return ""


# For each capability, the call that tests whether the device has the capability.
_TRIED: Mapping[str, Callable[[_Trial], str]] = {
    "mw_type_1": lambda trial: trial.window(1),
    "mw_type_2": lambda trial: trial.window(2),
    "xrc": lambda trial: trial.pair("XRC"),
    "atomics": lambda trial: trial.request("ATOMIC_FETCH_AND_ADD"),
    **{
        name: functools.partial(_Trial.request, opcode=opcode)
        for name, opcode in IMMEDIATES.items()
    },
    "odp": lambda trial: trial.region("ON_DEMAND"),
    "odp_implicit": _Trial.whole_address_space,
    "flush_global": lambda trial: trial.region("FLUSH_GLOBAL") or trial.pair("RC", "FLUSH"),
    "flush_persistent": lambda trial: trial.pair(
        "RC",
        "FLUSH",
    ),  # the cases test which memory is persistent
    "atomic_write": lambda trial: trial.pair("RC", "ATOMIC_WRITE"),
}
