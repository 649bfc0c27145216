"""Which rule is nearest to a step of a sequence: what a random sequence finds has no row that names one.

By the call and what it should have come to. A person who makes a row of the sequence may know better.
"""

from __future__ import annotations

from collections.abc import Mapping

# A call, and what sets it apart, to the rules of its success and of its refusal.
_RULES: Mapping[tuple[str, str], tuple[str, str]] = {
    ("ibv_reg_mr", ""): ("REG-17", "REG-15"),
    ("ibv_dereg_mr", ""): ("DEREG-01", "DEREG-02"),
    ("ibv_rereg_mr", "[CHANGE_TRANSLATION]"): ("REREG-01", "REREG-12"),
    ("ibv_rereg_mr", "[CHANGE_PD]"): ("REREG-02", "REREG-12"),
    ("ibv_rereg_mr", "[CHANGE_ACCESS]"): ("REREG-12", "REREG-12"),
    ("ibv_rereg_mr", "[CHANGE_PD, CHANGE_ACCESS]"): ("REREG-04", "REREG-12"),
    ("ibv_advise_mr", "PREFETCH"): ("ADV-01", "ADV-08"),
    ("ibv_advise_mr", "PREFETCH_WRITE"): ("ADV-02", "ADV-08"),
    ("ibv_advise_mr", "PREFETCH_NO_FAULT"): ("ADV-03", "ADV-08"),
    ("ibv_bind_mw", ""): ("BIND-01", "BIND-11"),
    ("post_bind_mw", ""): ("BIND-14", "BIND-12"),
    ("post_local_inv", ""): ("BIND-15", "BIND-15"),
    ("ibv_dealloc_mw", ""): ("BIND-16", "BIND-16"),
    ("traffic", "RDMA_WRITE"): ("REG-05", "REG-05"),
    ("traffic", "RDMA_READ"): ("REG-06", "REG-06"),
    ("traffic", "ATOMIC_CMP_AND_SWP"): ("REG-07", "REG-07"),
    ("traffic", "ATOMIC_FETCH_AND_ADD"): ("REG-07", "REG-07"),
    ("window traffic", "RDMA_WRITE"): ("BIND-05", "BIND-09"),
    ("window traffic", "RDMA_READ"): ("BIND-06", "BIND-09"),
    ("window traffic", "ATOMIC_CMP_AND_SWP"): ("BIND-07", "BIND-09"),
    ("window traffic", "ATOMIC_FETCH_AND_ADD"): ("BIND-07", "BIND-09"),
    ("local_traffic", "SEND"): ("REG-03", "REG-21"),
    ("local_traffic", "RECV"): ("REG-04", "REG-04"),
    ("local_traffic", "READ"): ("REG-04", "REG-04"),
}
_BESIDE = "BIND-10"  # whatever a window grants, it grants beside it nothing
_ON_DEMAND = "REG-12"  # bytes that do not arrive where pages come and go
_RIGHTS = {"RDMA_WRITE": "REMOTE_WRITE", "RDMA_READ": "REMOTE_READ"}
RULES = frozenset([_BESIDE, _ON_DEMAND, *(rule for rules in _RULES.values() for rule in rules)])


def nearest_rule(call: str, arguments: Mapping[str, str], outcome: str = "success", bound: str = "") -> str:
    """The rule of a step that should have come to `outcome`; `bound` is what the window in it was bound with."""
    operation = arguments.get("op", "")
    if call == "traffic" and arguments["rkey"].startswith("mw"):
        if outcome == "refused" and _RIGHTS.get(operation, "atomics") in bound:
            return _BESIDE
        call = "window traffic"
    if outcome == "success" and arguments.get("rkey", arguments.get("lkey", "")).startswith("odp"):
        return _ON_DEMAND
    apart = {"ibv_rereg_mr": "flags", "ibv_advise_mr": "advice"}.get(call, "op")
    return _RULES[call, arguments.get(apart, "")][outcome == "refused"]
