"""What an entry offers: verbs and types of queue pairs that no device attribute declares, tried by a harmless call.

A stack without a verb returns EOPNOTSUPP or ENOSYS, whatever the arguments; any other result means that the verb is
there. Not for judging whether the result is right.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from conformance.bench.calls import ABSENT, Pd
from conformance.bench.interface import Bench
from conformance.device.libibverbs import FORK_ENABLED, Libibverbs
from conformance.errors import SetupRefused
from conformance.execution.harness_resources import make_pair
from conformance.model.case import QpSpec
from conformance.verbs import ENUMS

_FLAGS = ENUMS["ibv_rereg_mr_flags"]
# Types of queue pairs that a device need not have.
_OPTIONAL = ("UC", "UD")
_CHANGE_ACCESS, _CHANGE_TRANSLATION = _FLAGS.value_of("CHANGE_ACCESS"), _FLAGS.value_of("CHANGE_TRANSLATION")


def offered_by(bench: Bench, entry_name: str) -> dict[str, bool]:
    """For each verb and type of queue pair that a device cannot declare, whether this entry has it.

    What could not be tried, since the device does not even register a page, is left out: the cases report that.
    """
    entry = bench.entry(entry_name)
    pd = bench.alloc_pd()
    memory = bench.allocate("anonymous", bench.page)
    answers = {"advise_mr": entry.advise_mr(pd, 0, 0, ())}
    mr = entry.reg_mr(pd, memory.addr, memory.size, 0).mr
    if mr:
        answers["rereg_mr"] = entry.rereg_mr(mr, _CHANGE_ACCESS, None, 0, 0, 0)
        answers["rereg_translation"] = entry.rereg_mr(mr, _CHANGE_TRANSLATION, None, memory.addr, memory.size, 0)
    answers["reg_dmabuf_mr"] = dmabuf = entry.reg_dmabuf_mr(pd, 0, bench.page, 0, -1, 0)
    for made in (mr, dmabuf.mr):
        if made:
            entry.dereg_mr(made)
    there = {kind.lower(): _can_be_made(bench, QpSpec(kind, "pd"), pd) for kind in _OPTIONAL}
    memory.close()
    with suppress(Exception):  # what a device does not give back is found by the cases
        pd.close()
    return {verb: returned.errno not in ABSENT for verb, returned in answers.items()} | there


def _can_be_made(bench: Bench, spec: QpSpec, pd: Pd) -> bool:
    """Whether the device makes a plain pair of this type; it may refuse with whatever code it likes."""
    try:
        pair = make_pair(bench, spec, {spec.pd: pd})
    except SetupRefused:
        return False
    pair.close()
    return True


def reachable_on(library: Libibverbs, has_advise: bool) -> dict[str, bool]:
    """For each of capability.PRECONDITIONS, whether this process meets it."""
    return {
        "experimental_rereg": library.has_experimental_rereg,
        "shared_mr": False,
        "peer_memory": False,
        "dontfork": library.fork_status() == FORK_ENABLED,
        "fork_race": False,
        "advise_absent": not has_advise,
        "swap": len(Path("/proc/swaps").read_text().splitlines()) > 1,
        "advise_enomem": False,
    }
