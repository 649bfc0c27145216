"""Bursts and many regions at once: each finds its fault, and passes on the reference without it."""

from __future__ import annotations

from contextlib import closing

import pytest

from conformance.model.verdict import Verdict
from conformance.tables.suite import load_suite
from reference.bench import ReferenceBench
from reference.device import Device
from reference.objects import Region
from trial.running import judgement_on, on_the_reference


class DeregistrationEndsTwoKeys(Device):
    """The region after the one that is deregistered loses its key as well."""

    def forget_key(self, region: Region) -> None:
        self.keys.pop(region.key, None)
        for other in self.regions.values():
            if other.addr == region.addr + region.length:
                self.keys.pop(other.key, None)


class KeysOpenTheNeighbour(Device):
    """A key opens the bytes beyond its region as well, if there is another region."""

    def contains(self, region: Region, addr: int, length: int) -> bool:
        more = region.length if any(each.addr == region.addr + region.length for each in self.regions.values()) else 0
        return addr >= region.iova and addr + length <= region.iova + region.length + more


class WritesWaitForTheNextRequest(Device):
    """The bytes of a write are in memory when the next request is posted."""

    late: tuple[int, bytes] | None = None

    def put(self, addr: int, content: bytes) -> bool:
        if self.late:
            super().put(*self.late)
        self.late = (addr, content)
        return True


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        (
            "reg_mr/keys/hundred-regions-none",
            DeregistrationEndsTwoKeys,
            "with every second of 100 regions deregistered",
        ),
        ("reg_mr/keys/hundred-regions-none", KeysOpenTheNeighbour, "moved bytes that it should not"),
        ("reg_mr/atomics_and_order/immediates-in-order-of-8", WritesWaitForTheNextRequest, "before its data was there"),
    ],
)
def test_each_finds_the_fault_that_it_is_for(name: str, kind: type[Device], reason: str) -> None:
    (found,) = (each for each in load_suite().cases if each.id == name)
    with closing(ReferenceBench()) as bench:
        assert judgement_on(found, on_the_reference(bench)).verdict == Verdict.PASS
    with closing(ReferenceBench(kind())) as bench:
        judgement = judgement_on(found, on_the_reference(bench))
    assert judgement.verdict == Verdict.FAIL
    assert reason in judgement.reason


def test_steps_after_a_registration_that_is_refused_as_expected_are_made() -> None:
    class NeverRegisters(Device):
        """Nothing registers after the first registration that was refused."""

        refused = False

        def over_limit(self, addr: int, length: int) -> bool:
            self.refused = self.refused or super().over_limit(addr, length)
            return self.refused

    (found,) = (each for each in load_suite().cases if each.id == "reg_mr/memory/over-the-locked-memory-limit")
    with closing(ReferenceBench(NeverRegisters())) as bench:
        judgement = judgement_on(found, on_the_reference(bench))
    assert judgement.verdict == Verdict.FAIL
    assert "afterwards ibv_reg_mr" in judgement.reason
