"""Chooses the nearest rule to a step of a random sequence, because no row names a rule for the step. The call, its key
and its expected outcome determine this rule. If the sequence becomes a row, its author may choose a better rule."""

from collections.abc import Mapping


def _each(call: str, operations: str, *rules: str) -> dict[tuple[str, str], tuple[str, str]]:
    return {(call, operation): (rules[0], rules[-1]) for operation in operations.split()}


# The rules for the success and for the refusal of a call, by the call and the argument that distinguishes its uses.
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
    **_each("traffic", "RDMA_WRITE RDMA_WRITE_WITH_IMM", "REG-05"),
    **_each("traffic", "RDMA_READ", "REG-06"),
    **_each("traffic", "ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD", "REG-07"),
    **_each("window traffic", "RDMA_WRITE RDMA_WRITE_WITH_IMM", "BIND-05", "BIND-09"),
    **_each("window traffic", "RDMA_READ", "BIND-06", "BIND-09"),
    **_each("window traffic", "ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD", "BIND-07", "BIND-09"),
    **_each("local_traffic", "SEND WRITE", "REG-03", "REG-21"),
    **_each("local_traffic", "RECV RECV_WITH_IMM READ", "REG-04"),
    **_each("list_traffic", "SEND WRITE RECV READ", "REG-26"),
}
_OUTSIDE = "BIND-10"  # a window grants no access outside its range
_ON_DEMAND = "REG-12"  # for access to an on-demand region
_REBOUND = "BIND-02"  # for the key that a window had before its latest bind
# for the key of an object that the call released
ENDED = {"ibv_dereg_mr": "DEREG-01", "ibv_dealloc_mw": "BIND-16"}
_RIGHTS = {
    "RDMA_WRITE": "REMOTE_WRITE",
    "RDMA_WRITE_WITH_IMM": "REMOTE_WRITE",
    "RDMA_READ": "REMOTE_READ",
}
_EVERY = (rule for rules in _RULES.values() for rule in rules)
RULES = frozenset([_OUTSIDE, _ON_DEMAND, _REBOUND, *ENDED.values(), *_EVERY])


def nearest_rule(
    call: str,
    arguments: Mapping[str, str],
    outcome: str = "success",
    bound: str = "",
    ended: str = "",
) -> str:
    """Returns the nearest rule to a step with the expected `outcome`. `bound` has the access flags of the window whose
    key the step uses, and `ended` is the call that released the object whose key the step uses."""
    operation = arguments.get("op", "")
    if ended in ENDED:
        return ENDED[ended]
    if arguments.get("rkey", "").endswith(".old_rkey"):
        return _REBOUND
    if call == "traffic" and arguments["rkey"].startswith("mw"):
        if outcome == "refused" and _RIGHTS.get(operation, "REMOTE_ATOMIC") in bound:
            return _OUTSIDE
        call = "window traffic"
    if outcome == "success" and arguments.get("rkey", arguments.get("lkey", "")).startswith("odp"):
        return _ON_DEMAND
    argument = {"ibv_rereg_mr": "flags", "ibv_advise_mr": "advice"}.get(call, "op")
    return _RULES[call, arguments.get(argument, "")][outcome == "refused"]
