"""What a device declares, and what keeps a case from being run."""

from __future__ import annotations

from conformance.model.capability import Capabilities, DeviceAttributes, declared_capabilities


def test_atomics_on_demand_are_declared_for_the_transport_and_not_in_general() -> None:
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b01111))["odp_atomic"] is False
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b11111))["odp_atomic"] is True


def test_an_entry_whose_commands_need_the_drivers_part_cannot_be_judged() -> None:
    capabilities = Capabilities({}, {}, {"raw_registration": False})
    assert "driver" in capabilities.unreachable([], "uverbs")
    assert capabilities.unreachable([], "libibverbs") == ""
    assert Capabilities({}, {}, {"raw_registration": True}).unreachable([], "uverbs") == ""
