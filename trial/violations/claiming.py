"""Violations of CAP-…: devices that declare what they do not have."""

from __future__ import annotations

import errno
from dataclasses import replace

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import ON_DEMAND
from reference.queues import Queue
from reference.stack import WHOLE, Stack
from trial.violation import violates


class Claiming(Device):
    """Declares capabilities that it lacks."""

    claims: tuple[str, ...] = ()

    def __init__(self, stack: Stack = WHOLE) -> None:
        lacks, claims = stack.lacks.union(self.claims), stack.claims.union(self.claims)
        super().__init__(replace(stack, lacks=lacks, claims=claims))


@violates("CAP-01")
class WindowsClaimed(Claiming):
    """Windows of type 1 are declared, and none can be allocated."""

    claims = ("mw_type_1",)


@violates("CAP-02")
class TypeTwoClaimed(Claiming):
    """Windows of type 2 are declared, and none can be allocated."""

    claims = ("mw_type_2",)


@violates("CAP-03")
class XrcClaimed(Claiming):
    """XRC is declared, and no queue pair of this type can be created."""

    claims = ("xrc",)


@violates("CAP-04")
class AtomicsClaimed(Claiming):
    """Atomic operations are declared, and memory cannot be registered for them."""

    claims = ("atomics",)


@violates("CAP-04")
class AtomicsNotPosted(Device):
    """Atomic operations are declared, and cannot be posted."""

    def post_fault(self, queue: Queue, opcode: str) -> int:
        return super().post_fault(queue, opcode) or (errno.EOPNOTSUPP if opcode.startswith("ATOMIC_") else 0)


@violates("CAP-05")
class PagingClaimed(Claiming):
    """On-demand paging is declared, and no region can be registered with it."""

    claims = ("odp", "odp_implicit")


@violates("CAP-06")
class ImplicitPagingClaimed(Claiming):
    """Implicit on-demand regions are declared, and none can be registered."""

    claims = ("odp_implicit",)


@violates("CAP-07")
class PagingOfNoOperations(Device):
    """Operations of peers on on-demand memory are declared, and all are refused."""

    def target(self, queue: Queue, request: SendRequest, length: int) -> int | None:
        region = self.keys.get(request.rkey)
        refused = length and getattr(region, "access", 0) & ON_DEMAND
        return None if refused else super().target(queue, request, length)


@violates("CAP-08")
class ImmediateDataNotPosted(Device):
    """No request with immediate data can be posted, although the transport has it."""

    def post_fault(self, queue: Queue, opcode: str) -> int:
        return super().post_fault(queue, opcode) or (errno.EOPNOTSUPP if opcode.endswith("_IMM") else 0)


@violates("CAP-09")
class FlushesClaimed(Claiming):
    """FLUSH is declared, and memory cannot be registered for it."""

    claims = ("flush_global",)
