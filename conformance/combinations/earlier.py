"""What comes before a point on its queue pair: another request, of which the point must not notice anything."""

import time

from conformance.bench.calls import Sge, errno_name
from conformance.bench.work_requests import BEHIND, SIGNALED, SendRequest
from conformance.combinations.objects import Link, Objects, only
from conformance.errors import SetupRefused
from conformance.execution.connection import SILENCE_S, post_receives
from conformance.model.combinations import CUT_READ, IN_FLIGHT, LATE_RECEIVE, NOT_READY
from conformance.model.expected_errors import DATAGRAM_HEADER, RELIABLE

_WORD = 8
_REQUESTS = (
    *("other_key", "long_message", "read", "zero_window", "refused", "expired"),
    CUT_READ,
)


def carry_out(objects: Objects, before: str, transport: str, packet: int, link: Link) -> None:
    """Posts what comes before a point, by the parameter `before`; `packet` is the number of bytes in a packet. Raises
    SetupRefused if it does not succeed."""
    if before in ("nothing", IN_FLIGHT, LATE_RECEIVE, NOT_READY):
        return
    only(before, *_REQUESTS)
    plain = objects.region("reg_mr", "plain", "all")
    extent = plain.extent
    if before == "zero_window":
        extent = objects.window(link, plain, 2, "all", True)
    local, size = plain.extent, _WORD
    if before == "long_message" and transport != "UD":
        size = 2 * packet + 3
    opcode = {"UD": "SEND"}.get(
        transport,
        "RDMA_READ" if before in ("read", CUT_READ) else "RDMA_WRITE",
    )
    if before in ("refused", "expired"):
        rkey = objects.invented(extent).rkey
    else:
        rkey = extent.rkey
    sges = [Sge(local.addr, size, local.lkey)]
    if before == CUT_READ:
        invented = objects.invented(extent).lkey
        sges = [Sge(local.addr, packet, local.lkey), Sge(local.addr, size, invented)]
    request = SendRequest(opcode, objects.wr_id(), (*sges,), SIGNALED, extent.base, rkey)
    pair = link.connection.pair
    # Only what the responder has received no longer changes its memory.
    awaited = transport not in RELIABLE
    if transport == "UD":
        into = Sge(local.addr + local.length // 2, size + DATAGRAM_HEADER, local.lkey)
        post_receives(pair.responder, [objects.wr_id()], (into,))
    elif awaited:
        post_receives(pair.responder, [objects.wr_id()])
    returned = pair.requester.post_send(request)
    if not returned.value:
        completions = pair.requester.completions(1)
    else:
        completions = []
    if completions and awaited and transport != "UD":
        pair.requester.post_send(SendRequest("SEND", request.wr_id | BEHIND, flags=0))
    if completions and awaited and not pair.responder.completions(1, SILENCE_S):
        link.connection.stale = True  # the message was lost, and its receive is still posted
        objects.renew_if_stale(link)
    if completions:
        status = completions[0].status
    else:
        status = errno_name(returned.value)
    if before == CUT_READ:
        link.connection.mark_failed(opcode, completions, pair.requester)
        objects.renew_if_stale(link)
    elif before in ("refused", "expired"):
        link.connection.mark_failed(opcode, completions, pair.requester, pair.responder)
        if before == "expired":
            time.sleep(objects.bench.ack_timeout_s)
        objects.renew_if_stale(link)
    elif status != "SUCCESS":
        link.connection.stale = True
        raise SetupRefused(f"a request before the point ({before})", status)


def send_on(objects: Objects, transport: str, link: Link) -> None:
    """Posts requests that change no byte, and does not await them. Raises SetupRefused."""
    extent = objects.region("reg_mr", "plain", "all").extent
    addr = extent.addr + extent.length - _WORD
    sges = (Sge(addr, _WORD, extent.lkey),)
    queue = link.connection.pair.requester
    for opcode in ("RDMA_WRITE", "RDMA_READ")[: 1 + (transport in RELIABLE)]:
        request = SendRequest(opcode, objects.wr_id(), sges, 0, addr, extent.rkey)
        if refused := queue.post_send(request).value:
            link.connection.stale = True
            raise SetupRefused("a request before the point (in_flight)", errno_name(refused))
