"""Describes the transports of RDMA devices, as far as their differences are relevant to the suite.

RoCE is InfiniBand's transport over Ethernet: the InfiniBand Architecture Specification also defines the completions of
RoCE. RFC 5040 to 5044 define iWARP, with different operations and without acknowledgements. Other transports, such as
EFA's, follow no public standard, so no document requires particular statuses.
"""

from dataclasses import dataclass

from conformance.model.operations import SENDS, WRITES

# Requests to which an iWARP peer sends no response. All other requests complete with a response on every transport.
_WITHOUT_RESPONSE = (*SENDS, *WRITES)


@dataclass(frozen=True)
class Transport:
    name: str
    # On a reliable connection: if true, a SEND or WRITE completes when the peer has acknowledged it, and its status
    # reports a refusal. If false, it may complete once it is sent, and a refusal only terminates the connection.
    acknowledged: bool = True
    immediate_data: bool = True  # a message can have immediate data
    # the completion statuses are those of the InfiniBand Architecture Specification
    iba: bool = True
    # the remote rights of the memory for a READ response, besides LOCAL_WRITE
    read_sink: tuple[str, ...] = ()

    def acknowledges(self, opcode: str) -> bool:
        """Whether SUCCESS of a request on a reliable connection means that the peer has accepted the request."""
        return self.acknowledged or opcode not in _WITHOUT_RESPONSE


INFINIBAND = Transport("InfiniBand")
ROCE = Transport("RoCE")
IWARP = Transport(
    "iWARP",
    acknowledged=False,
    immediate_data=False,
    iba=False,
    read_sink=("REMOTE_WRITE",),
)
UNSPECIFIED = Transport("unspecified", iba=False)
TRANSPORTS = {transport.name: transport for transport in (INFINIBAND, ROCE, IWARP, UNSPECIFIED)}
