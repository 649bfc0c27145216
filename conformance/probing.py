"""Which verbs an entry offers: those for which no declaration exists, tried once with a harmless call.

A stack without a verb says so by EOPNOTSUPP or ENOSYS, whatever the arguments; any other answer
means that the verb is there. Not for judging what the answer should have been.
"""

from __future__ import annotations

from conformance.bench import Bench
from conformance.calls import ABSENT
from conformance.errors import UserError
from conformance.libibverbs import FORK_ENABLED, Libibverbs
from conformance.verbs import ENUMS


def offered(bench: Bench, entry_name: str) -> dict[str, bool]:
    """For each verb that a device cannot declare, whether this entry has it. Raises UserError (status 3)."""
    entry = bench.entry(entry_name)
    pd = bench.alloc_pd()
    memory = bench.allocate("anonymous", bench.page)
    try:
        mr = entry.reg_mr(pd, memory.addr, memory.size, 0).mr
        if mr is None:
            raise UserError(f"the device refuses to register a page of memory at the {entry_name} entry", status=3)
        flags = ENUMS["ibv_rereg_mr_flags"]
        answers = {
            "rereg_mr": entry.rereg_mr(mr, flags.value_of("CHANGE_ACCESS"), None, 0, 0, 0),
            "rereg_translation": entry.rereg_mr(
                mr, flags.value_of("CHANGE_TRANSLATION"), None, memory.addr, memory.size, 0
            ),
            "reg_dmabuf_mr": entry.reg_dmabuf_mr(pd, 0, bench.page, 0, -1, 0),
            "advise_mr": entry.advise_mr(pd, 0, 0, ()),
        }
        entry.dereg_mr(mr)
    finally:
        memory.close()
        pd.close()
    return {verb: returned.errno not in ABSENT for verb, returned in answers.items()}


def reachable(library: Libibverbs, has_advise: bool) -> dict[str, bool]:
    """Which of capability.REACH hold in this process."""
    return {
        "experimental_rereg": library.has_experimental_rereg,
        "shared_mr": False,
        "peer_memory": False,
        "dontfork": library.fork_status() == FORK_ENABLED,
        "fork_race": False,
        "advise_absent": not has_advise,
        "advise_enomem": False,
    }
