"""Packets of RoCEv2 and segments of iWARP as data: headers, opcodes, checksums, builders and parsers. Pure: no socket and no
device.

The sources of the constants of RoCEv2 are the InfiniBand Architecture Specification, volume 1 (IBA), with the annexes A17
(RoCEv2) and A19 (FLUSH and ATOMIC WRITE), and Linux: include/rdma/ib_pack.h and drivers/infiniband/sw/rxe/rxe_hdr.h, which
have the same numbers. Those of iWARP, in segments.py and mpa.py, are RFC 5040, 5041 and 5044. device/wire_peer.py and
device/stream_peer.py send and receive."""
