"""The transitions of a queue pair from RESET to its last state, with the attributes that each type needs.

As ibv_modify_qp(3) requires them. On iWARP only the connection manager moves a queue pair further than to INIT.
Not for the values of the attributes (queue_pairs.py).
"""

from collections.abc import Mapping
from enum import IntFlag
from typing import Any

from conformance.verbs import ENUMS

_STATES = ENUMS["ibv_qp_state"]


class Attr(IntFlag):
    """The bits of enum ibv_qp_attr_mask (<infiniband/verbs.h>) that are used here."""

    STATE = 1 << 0
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    DEST_QPN = 1 << 20


_INIT = Attr.STATE | Attr.PKEY_INDEX | Attr.PORT
_RTR = Attr.STATE | Attr.AV | Attr.PATH_MTU | Attr.DEST_QPN | Attr.RQ_PSN
_RTR_RESPONDER = _RTR | Attr.MAX_DEST_RD_ATOMIC | Attr.MIN_RNR_TIMER
_RTS = Attr.STATE | Attr.SQ_PSN
_RTS_REQUESTER = _RTS | Attr.TIMEOUT | Attr.RETRY_CNT | Attr.RNR_RETRY | Attr.MAX_QP_RD_ATOMIC
_MASKS: Mapping[str, Mapping[str, Attr]] = {
    "RC": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR_RESPONDER, "RTS": _RTS_REQUESTER},
    "XRC_SEND": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR, "RTS": _RTS_REQUESTER},
    "XRC_RECV": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR_RESPONDER},
    "UC": {"INIT": _INIT | Attr.ACCESS_FLAGS, "RTR": _RTR, "RTS": _RTS},
    "iWARP": {"INIT": Attr.STATE | Attr.ACCESS_FLAGS},
    "UD": {"INIT": _INIT | Attr.QKEY, "RTR": Attr.STATE, "RTS": _RTS},
}


def transitions(kind: str) -> list[tuple[int, int]]:
    """The transitions of a queue pair of type `kind`: (value of enum ibv_qp_state, attribute mask) of each."""
    return [(_STATES.value_of(state), int(mask)) for state, mask in _MASKS[kind].items()]


def modify_to(qp: Any, kind: str, attributes: Any, state: str, since: str = "RESET") -> None:
    """Moves a pyverbs queue pair from the state `since` on to `state`. Raises PyverbsRDMAError.

    It passes through the states between. ERR is entered from the last of these, as after an error of a connected queue
    pair.
    """
    steps = list(_MASKS[kind])
    for step in steps[steps.index(since) + 1 if since in steps else 0 :]:
        mask = _MASKS[kind][step]
        attributes.qp_state = _STATES.value_of(step)
        qp.modify(attributes, mask)
        if step == state:
            return
    if state == "ERR":
        attributes.qp_state = _STATES.value_of(state)
        qp.modify(attributes, Attr.STATE)


def query_state(qp: Any) -> str:
    attributes, _ = qp.query(Attr.STATE)
    return _STATES.name_of(int(attributes.qp_state))
