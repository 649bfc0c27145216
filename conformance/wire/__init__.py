"""RoCEv2 packets as data: headers, opcodes, the invariant CRC, a builder and a parser. Pure: no socket and no device.

The sources of the constants are the InfiniBand Architecture Specification, volume 1 (IBA), with the annexes A17 (RoCEv2)
and A19 (FLUSH and ATOMIC WRITE), and Linux: include/rdma/ib_pack.h and drivers/infiniband/sw/rxe/rxe_hdr.h, which have
the same numbers. device/wire_peer.py sends and receives the packets."""
