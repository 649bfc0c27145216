"""Violations of the alignment of operations on a word."""

from __future__ import annotations

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.memory import PAGE
from reference.objects import ON_DEMAND, Region, Window
from trial.violation import violates

_WORD = 8


@violates("REG-29")
class HalfWordsAreAligned(Device):
    """An address that is a multiple of four is aligned enough."""

    def misaligned(self, request: SendRequest) -> bool:
        return request.remote_addr % (_WORD // 2) != 0


@violates("REG-29")
class AtomicsWithinAPage(Device):
    """Only a word that lies on two pages is refused."""

    def misaligned(self, request: SendRequest) -> bool:
        return request.remote_addr % PAGE > PAGE - _WORD


@violates("REG-29")
class AtomicsOnDemandAnywhere(Device):
    """The address of an operation on an on-demand region is not looked at."""

    def misaligned(self, request: SendRequest) -> bool:
        found = self.keys.get(request.rkey)
        on_demand = isinstance(found, Region) and found.access & ON_DEMAND
        return not on_demand and super().misaligned(request)


@violates("REG-29")
class AtomicsThroughWindowsAnywhere(Device):
    """The address of an operation through a window is not looked at."""

    def misaligned(self, request: SendRequest) -> bool:
        return not isinstance(self.keys.get(request.rkey), Window) and super().misaligned(request)


@violates("REG-29")
class AtomicWritesAnywhere(Device):
    """The address of an ATOMIC WRITE is not looked at."""

    def misaligned(self, request: SendRequest) -> bool:
        return request.opcode != "ATOMIC_WRITE" and super().misaligned(request)
