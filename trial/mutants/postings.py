"""Postings by the builders of ibv_wr_post(3): which requests are carried out, when, and with which key."""

from conformance.bench.work_requests import SendRequest


def _plain_write(request: SendRequest) -> SendRequest:
    return request._replace(opcode="RDMA_WRITE") if request.opcode == "RDMA_WRITE_WITH_IMM" else request


def _nothing(request: SendRequest) -> SendRequest:
    return request._replace(opcode="RDMA_WRITE")
