"""The statuses and opcodes of completions."""

_SENDERS = ("SEND", "SEND_WITH_IMM", "RDMA_WRITE", "RDMA_WRITE_WITH_IMM")
