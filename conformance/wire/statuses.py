"""The completion status with which a requester reports each NAK."""

from __future__ import annotations

from collections.abc import Mapping

# IBA 9.9.2.4.2 and 11.6.2; Linux: rxe_comp.c, check_ack, which has the same pairs.
STATUS_OF_NAK: Mapping[str, str] = {
    "NAK_INVALID_REQUEST": "REM_INV_REQ_ERR",
    "NAK_REMOTE_ACCESS": "REM_ACCESS_ERR",
    "NAK_REMOTE_OPERATIONAL": "REM_OP_ERR",
    "NAK_INVALID_RD_REQUEST": "REM_INV_RD_REQ_ERR",
}
# After these the request is sent again (IBA 9.7.5.2.4 and 9.7.5.2.8), and has this status after the last repetition.
STATUS_OF_REPEATED: Mapping[str, str] = {
    "NAK_PSN_SEQUENCE": "RETRY_EXC_ERR",
    "RNR_NAK": "RNR_RETRY_EXC_ERR",
}
NO_ANSWER = "RETRY_EXC_ERR"
BAD_ANSWER = "BAD_RESP_ERR"
FLUSHED = "WR_FLUSH_ERR"
