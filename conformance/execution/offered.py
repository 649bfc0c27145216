"""Finds out which verbs and types of queue pairs an entry offers, where no device attribute declares it.

Tries each with one harmless call. A stack without a verb returns EOPNOTSUPP or ENOSYS for all arguments; any other
result means that the verb exists. Not for judging whether the result is right.
"""

import errno
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from conformance.bench.calls import ABSENT, Mr, Pd, Return
from conformance.bench.interface import Bench, Entry
from conformance.device.failing import can_fail
from conformance.device.libibverbs import Libibverbs
from conformance.errors import HostLacks, SetupRefused
from conformance.execution.harness_resources import create_pair
from conformance.kernel import paging
from conformance.model import capability
from conformance.model.case import QpSpec
from conformance.model.vocabulary import BUILDERS
from conformance.verbs import ENUMS, dm, made_otherwise

_FLAGS = ENUMS["ibv_rereg_mr_flags"]
# The types of queue pairs that are optional.
_OPTIONAL = ("RC", "UC", "UD", "RC_SRQ")
# The verbs that make regions or domains otherwise than by registration; the kernel has no commands for them.
_MADE_OTHERWISE = [verb.method for verb in (*made_otherwise.ALL, dm.ALLOC_DM, dm.IMPORT_DM) if not verb.destroys]
_MADE_OTHERWISE += ["dmah"]
_OFFSET = 128  # bytes
_NOBODYS = 0xFFFFFFF0  # a handle
_ZERO_BASED, _PLAIN = (ENUMS["ibv_access_flags"].value_of(name) for name in ("ZERO_BASED", "LOCAL_WRITE"))
_ON_DEMAND, _HUGETLB = (ENUMS["ibv_access_flags"].value_of(name) for name in ("ON_DEMAND", "HUGETLB"))
_UNPROTECTED = ENUMS["ibv_parent_domain_init_attr_mask"].value_of("ALLOW_CC_UNPROTECTED_ALLOC")
_PH = ENUMS["ibv_dmah_init_attr_mask"].value_of("PH")
_CHANGE_ACCESS, _CHANGE_TRANSLATION = _FLAGS.value_of("CHANGE_ACCESS"), _FLAGS.value_of("CHANGE_TRANSLATION")


def offered_by(bench: Bench, entry_name: str) -> dict[str, bool]:
    """For each verb, kind of region and type of queue pair that a device cannot declare, whether this entry offers it.

    Capabilities that could not be tried, because the device did not register a page, are left out; the cases report
    that.
    """
    entry = bench.entry(entry_name)
    pd = bench.alloc_pd()
    memory, length = bench.allocate("anonymous", 3 * bench.page), bench.page
    addr = memory.addr + length  # no byte at an end of the mapping
    results = {"advise_mr": entry.advise_mr(pd, 0, 0, ())}
    mr = entry.reg_mr(pd, addr, length, _PLAIN).mr
    regions: dict[str, Return] = {}
    if mr:
        regions["zero_based"] = entry.reg_mr(pd, addr, length, _PLAIN | _ZERO_BASED)
        regions["iova_page_offset"] = entry.reg_mr_iova(pd, addr + _OFFSET, _OFFSET, addr, _PLAIN)
        results["rereg_mr"] = entry.rereg_mr(mr, _CHANGE_ACCESS, None, 0, 0, _PLAIN)
        results["rereg_translation"] = entry.rereg_mr(mr, _CHANGE_TRANSLATION, None, addr, length, 0)
    results["reg_dmabuf_mr"] = dmabuf = entry.reg_dmabuf_mr(pd, 0, bench.page, 0, -1, 0)
    results |= _made_otherwise(entry, pd, mr) if entry_name == "libibverbs" else {}
    newer = dict.fromkeys(() if entry_name == "libibverbs" else _MADE_OTHERWISE, False)
    for region in (mr, dmabuf.mr, *(returned.mr for returned in regions.values())):
        if region:
            entry.dereg_mr(region)
    newer |= {poster: _can_be_created(bench, QpSpec("RC", "pd", extended=poster), pd) for poster in BUILDERS}
    newer |= {name: entry.offers(name) for name in capability.BY_SYMBOL}
    newer["dmabuf_buffers"] = entry_name == "libibverbs" and _has_dmabuf_buffers(entry, pd)
    huge = _on_huge_pages(bench, entry, pd)
    types = {kind.lower(): _can_be_created(bench, QpSpec(kind, "pd"), pd) for kind in _OPTIONAL}
    memory.close()
    with suppress(Exception):  # the cases report what a device does not release
        pd.close()
    verbs = {verb: returned.errno not in ABSENT for verb, returned in results.items()}
    kinds = {kind: returned.mr is not None or not _is_none(returned) for kind, returned in regions.items()}
    return verbs | kinds | huge | types | newer


def _made_otherwise(entry: Entry, pd: Pd, mr: Mr | None) -> dict[str, Return]:
    """The answers of these verbs; the objects that they made are released."""
    null = entry.alloc_null_mr(pd)
    if null.mr:
        entry.dereg_mr(null.mr)
    found = {"alloc_null_mr": null, "import_pd": entry.import_pd(pd.context_pointer, pd.handle)}
    found["alloc_dm"] = memory = entry.alloc_dm(pd.context_pointer, 1, 0)
    found["dmah"] = dmah = entry.alloc_dmah(pd.context_pointer, _PH, 0, 0, 0)
    found["import_dm"] = entry.import_dm(pd.context_pointer, _NOBODYS)
    found["alloc_td"] = td = entry.alloc_td(pd.context_pointer)
    for held in (memory.held, dmah.held, td.held):
        if held:
            with suppress(Exception):  # the cases report what a device does not release
                held.close()
    found["alloc_parent_domain"] = entry.alloc_parent_domain(pd.context_pointer, pd, None, 0)
    if mr:
        found["import_mr"] = imported = entry.import_mr(pd, mr.handle)
        if imported.release:
            imported.release()
    for domain in (found["import_pd"].pd, found["alloc_parent_domain"].pd):
        if domain:
            domain.close()
    return found


def _has_dmabuf_buffers(entry: Entry, pd: Pd) -> bool:
    """Whether buffers of a parent domain that allows it are dma-bufs."""
    domain = entry.alloc_parent_domain(pd.context_pointer, pd, None, _UNPROTECTED).pd
    if domain is None:
        return False
    buffer, fd = entry.alloc_buf(domain, 1).buffer, -1
    if buffer:
        fd = entry.export_buf_dmabuf_fd(buffer).value
        if fd >= 0:
            os.close(fd)
        buffer.close()
    domain.close()
    return fd >= 0


def _on_huge_pages(bench: Bench, entry: Entry, pd: Pd) -> dict[str, bool]:
    """Whether HUGETLB is granted; nothing where this host has no huge pages or no on-demand region of them."""
    try:
        memory = bench.allocate("huge", bench.hugepage)
    except HostLacks:
        return {}
    plain = entry.reg_mr(pd, memory.addr, memory.size, _PLAIN | _ON_DEMAND).mr
    found = {}
    if plain:
        entry.dereg_mr(plain)
        returned = entry.reg_mr(pd, memory.addr, memory.size, _PLAIN | _ON_DEMAND | _HUGETLB)
        found["hugetlb"] = returned.mr is not None or not _is_none(returned)
        if returned.mr:
            entry.dereg_mr(returned.mr)
    memory.close()
    return found


def _is_none(returned: Return) -> bool:
    """Whether a refusal means that the device does not have objects of that kind, although it has plain ones."""
    return returned.errno in (*ABSENT, errno.EINVAL)


def _can_be_created(bench: Bench, spec: QpSpec, pd: Pd) -> bool:
    """Whether the device offers pairs of this type; if they cannot be connected, the cases report why."""
    try:
        pair = create_pair(bench, spec, {spec.pd: pd})
    except SetupRefused as refused:
        return not refused.not_offered
    pair.close()
    return True


def keeps_from_children(bench: Bench) -> bool:
    """Whether a registered page is kept from forked children; ibv_is_fork_initialized does not report it."""
    pd, memory, entry = bench.alloc_pd(), bench.allocate("anonymous", 3 * bench.page), bench.entry("libibverbs")
    addr = memory.addr + bench.page  # no byte at an end of the mapping
    mr = entry.reg_mr(pd, addr, bench.page, _PLAIN).mr
    kept = paging.kept_from_children(addr)
    if mr:
        entry.dereg_mr(mr)
    memory.close()
    with suppress(Exception):
        pd.close()
    return kept


def reachable_on(library: Libibverbs, offered: Mapping[str, bool]) -> dict[str, bool]:
    """Whether this process meets each of capability.PRECONDITIONS that a call can show."""
    return {
        "experimental_rereg": library.has_experimental_rereg,
        "shared_mr": False,
        "peer_memory": False,
        "fork_race": False,
        "advise_absent": not offered["advise_mr"],
        "rereg_absent": not offered["rereg_mr"],
        "swap": len(Path("/proc/swaps").read_text().splitlines()) > 1,
        "failing_allocations": can_fail(),
    }
