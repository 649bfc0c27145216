"""The differences between the transports of RDMA devices that matter to the suite.

RoCE is InfiniBand's transport over Ethernet: the InfiniBand Architecture Specification also defines the completions of
RoCE. RFC 5040 to 5044 define iWARP, with other operations and without acknowledgements. Other transports, such as
EFA's, follow no public standard, so that no document demands particular statuses.
"""

from dataclasses import dataclass

# Requests to which the peer sends no response. All other requests complete with the response on every transport.
_UNANSWERED = ("SEND", "SEND_WITH_IMM", "SEND_WITH_INV", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")


@dataclass(frozen=True)
class Transport:
    """One transport.

    `acknowledged`: on a reliable connection, SEND and WRITE complete when the peer has acknowledged them, so that their
    status shows a refusal by the peer. Otherwise, they may complete as soon as they have been sent, and a refusal only
    ends the connection. `immediate_data`: a message can have immediate data. `iba`: the completion statuses are those
    of the InfiniBand Architecture Specification. `read_sink`: the remote rights that the memory for the response of an
    RDMA READ needs in addition to LOCAL_WRITE.
    """

    name: str
    acknowledged: bool = True
    immediate_data: bool = True
    iba: bool = True
    read_sink: tuple[str, ...] = ()

    def acknowledges(self, opcode: str) -> bool:
        """Whether SUCCESS of a request on a reliable connection says that the peer has accepted the request."""
        return self.acknowledged or opcode not in _UNANSWERED


INFINIBAND = Transport("InfiniBand")
ROCE = Transport("RoCE")
IWARP = Transport("iWARP", acknowledged=False, immediate_data=False, iba=False, read_sink=("REMOTE_WRITE",))
UNSPECIFIED = Transport("unspecified", iba=False)
TRANSPORTS = {each.name: each for each in (INFINIBAND, ROCE, IWARP, UNSPECIFIED)}
