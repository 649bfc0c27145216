"""Violations of the result of ibv_reg_mr, and of the flags that it accepts."""

from __future__ import annotations

import errno

from conformance.bench.calls import IbvMr, Pd
from conformance.verbs import OPTIONAL_ACCESS
from reference.device import Device
from reference.memory import PAGE
from reference.objects import (
    FLUSH_GLOBAL,
    LOCAL_WRITE,
    MW_BIND,
    ON_DEMAND,
    RELAXED_ORDERING,
    REMOTE_ATOMIC,
    REMOTE_READ,
    REMOTE_WRITE,
    ZERO_BASED,
    Refused,
    Region,
)
from trial.violation import violates


@violates("REG-01")
class AddrOfThePage(Device):
    """The structure has the address of the region's first page."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, pd, addr // PAGE * PAGE, length)


@violates("REG-01")
class LengthOfThePages(Device):
    """The structure has a length rounded up to whole pages."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, pd, addr, -(-length // PAGE) * PAGE if length < 1 << 40 else length)


@violates("REG-01")
class PdOfTheFirst(Device):
    """The structure has the PD that was allocated first."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        return super().structure(region, next(iter(self.domains.values())), addr, length)


@violates("REG-01")
class NoContext(Device):
    """The structure has no context."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        struct = super().structure(region, pd, addr, length)
        struct.context = None
        return struct


@violates("REG-01")
class StructureNotFilledIn(Device):
    """The structure has neither keys nor a handle."""

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        struct = super().structure(region, pd, addr, length)
        struct.lkey = struct.rkey = struct.handle = 0
        return struct


@violates("REG-01")
class OncePerMemory(Device):
    """Registered memory cannot be registered a second time."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        taken = any(each.addr == addr for each in self.regions.values())
        return errno.EEXIST if taken else super().range_fault(addr, length, access)


@violates("REG-01")
class AlignedOnly(Device):
    """A range that does not begin at a multiple of four bytes is refused."""

    def range_fault(self, addr: int, length: int, access: int) -> int:
        return errno.EINVAL if addr % 4 else super().range_fault(addr, length, access)


@violates("REG-02a")
class NullWithoutReason(Device):
    """A refused registration does not set errno."""

    def reported_errno(self, errno: int) -> int:
        return 0


@violates("REG-02")
class RefusedAndKept(Device):
    """A registration that is refused because of its memory stays registered."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        try:
            return super().register(pd, addr, length, hca_va, access)
        except Refused:
            self.keep(Region(self.new_handle(), self.new_key(), self.domain_of(pd), addr, length, addr, access))
            raise


@violates("REG-03")
class AccessZeroRefused(Device):
    """Access 0 is refused."""

    def access_fault(self, access: int) -> int:
        return super().access_fault(access) if access else errno.EINVAL


@violates("REG-15")
class RemoteWriteAlone(Device):
    """REMOTE_WRITE is granted without LOCAL_WRITE."""

    def write_alone(self, access: int) -> bool:
        return False


@violates("REG-15")
class RemoteWriteAloneWithRead(Device):
    """LOCAL_WRITE is not checked if REMOTE_READ is requested as well."""

    def write_alone(self, access: int) -> bool:
        return super().write_alone(access) and not access & REMOTE_READ


@violates("REG-15")
class RemoteWriteAloneOnDemand(Device):
    """LOCAL_WRITE is not checked for on-demand regions."""

    def write_alone(self, access: int) -> bool:
        return super().write_alone(access) and not access & ON_DEMAND


@violates("REG-15")
class RemoteWriteAloneForBinding(Device):
    """LOCAL_WRITE is not checked if MW_BIND is requested as well."""

    def write_alone(self, access: int) -> bool:
        return super().write_alone(access) and not access & MW_BIND


@violates("REG-15")
class RemoteWriteNever(Device):
    """REMOTE_WRITE is refused with LOCAL_WRITE too."""

    def write_alone(self, access: int) -> bool:
        return bool(access & REMOTE_WRITE)


@violates("REG-16")
class RemoteAtomicAlone(Device):
    """REMOTE_ATOMIC is granted without LOCAL_WRITE."""

    def atomic_alone(self, access: int) -> bool:
        return False


@violates("REG-16")
class RemoteAtomicAloneRelaxed(Device):
    """LOCAL_WRITE is not checked for REMOTE_ATOMIC with RELAXED_ORDERING."""

    def atomic_alone(self, access: int) -> bool:
        return super().atomic_alone(access) and not access & RELAXED_ORDERING


@violates("CAP-04")
class RemoteAtomicNever(Device):
    """REMOTE_ATOMIC is refused with LOCAL_WRITE too."""

    def atomic_alone(self, access: int) -> bool:
        return bool(access & REMOTE_ATOMIC)


@violates("REG-17")
class NoZeroBasedForPeers(Device):
    """ZERO_BASED is refused together with REMOTE_READ, though it is offered."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access) or access & (ZERO_BASED | REMOTE_READ) == ZERO_BASED | REMOTE_READ


@violates("REG-17")
class FlushNeedsLocalWrite(Device):
    """FLUSH_GLOBAL is refused without LOCAL_WRITE."""

    def unsupported(self, access: int) -> bool:
        return super().unsupported(access) or access & (FLUSH_GLOBAL | LOCAL_WRITE) == FLUSH_GLOBAL


@violates("REG-17")
class NoBindingOfRelaxed(Device):
    """MW_BIND together with RELAXED_ORDERING is refused."""

    def unsupported(self, access: int) -> bool:
        both = MW_BIND | RELAXED_ORDERING
        return super().unsupported(access) or access & both == both


@violates("REG-17")
class NoAtomicsWithReads(Device):
    """REMOTE_ATOMIC and REMOTE_READ exclude each other."""

    def unsupported(self, access: int) -> bool:
        both = REMOTE_ATOMIC | REMOTE_READ
        return super().unsupported(access) or access & both == both


@violates("REG-18")
class UnknownBitsIgnored(Device):
    """Unknown bits of the mandatory range are ignored."""

    def unknown_bits(self, access: int) -> int:
        return 0


@violates("REG-18")
class OneUnknownBitIgnored(Device):
    """The mask of known bits wrongly contains bit 13."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access) & ~(1 << 13)


@violates("REG-18")
class TopBitIgnored(Device):
    """The highest bit is ignored."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access & 0x7FFFFFFF)


@violates("REG-18")
class OptionalBitsRefused(Device):
    """Unknown bits of the optional range are refused."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access) | access & OPTIONAL_ACCESS & ~RELAXED_ORDERING


@violates("REG-18")
class LastOptionalBitRefused(Device):
    """The optional range ends one bit too early."""

    def unknown_bits(self, access: int) -> int:
        return super().unknown_bits(access) | access & 1 << 29


@violates("REG-18")
class OptionalHidesMandatory(Device):
    """With an optional bit the mandatory bits are not checked."""

    def unknown_bits(self, access: int) -> int:
        return 0 if access & OPTIONAL_ACCESS else super().unknown_bits(access)
