"""What a device declares, what keeps a case from being run, and which port and address traffic uses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.device import device as device_module
from conformance.device.device import Device
from conformance.errors import UserError
from conformance.model.capability import Capabilities, DeviceAttributes, declared_capabilities


def test_atomics_on_demand_are_declared_for_the_transport_and_not_in_general() -> None:
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b01111))["odp_atomic"] is False
    assert declared_capabilities(DeviceAttributes(0, 1, 1, 0b11111))["odp_atomic"] is True


def test_an_entry_whose_commands_need_the_drivers_part_cannot_be_judged() -> None:
    capabilities = Capabilities({}, {}, {"raw_registration": False})
    assert "driver" in capabilities.unreachable([], "uverbs")
    assert capabilities.unreachable([], "libibverbs") == ""
    assert Capabilities({}, {}, {"raw_registration": True}).unreachable([], "uverbs") == ""


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A device of a made-up /sys with one port: (link layer, GIDs) to the device."""

    def made(link_layer: str, *gids: str, state: int = 4) -> Device:
        folder = tmp_path / "any0" / "ports" / "1"
        (folder / "gids").mkdir(parents=True)
        (folder / "link_layer").write_text(f"{link_layer}\n")
        for index, gid in enumerate(gids):
            (folder / "gids" / str(index)).write_text(f"{gid}\n")
        monkeypatch.setattr(device_module, "SYSFS", tmp_path)
        transport = device_module.transport_of(tmp_path / "any0", 1)
        found = Device.__new__(Device)
        found.name, found.port, found.gid_index, found._chosen_gid = "any0", 1, None, None
        found.transport = transport
        found.__dict__["_port"] = SimpleNamespace(state=state)
        return found

    return made


LINK_LOCAL, MAPPED = "fe80:0000:0000:0000:5054:00ff:fe12:3456", "0000:0000:0000:0000:0000:ffff:c0a8:0001"
PREFIX_ALONE, NONE = "fe80:0000:0000:0000:0000:0000:0000:0000", "0000:0000:0000:0000:0000:0000:0000:0000"


@pytest.mark.parametrize("has_query", [False, True])  # of the whole table of GIDs
@pytest.mark.parametrize(
    ("link_layer", "gids", "index"),
    [
        ("Ethernet", (LINK_LOCAL, MAPPED, NONE), 1),
        ("Ethernet", (LINK_LOCAL, MAPPED, PREFIX_ALONE), 1),
        ("Ethernet", (NONE,), 0),
        ("InfiniBand", (LINK_LOCAL, PREFIX_ALONE, LINK_LOCAL), 0),
    ],
)
def test_traffic_uses_an_address_that_stands_for_an_interface(
    port: Any, monkeypatch: pytest.MonkeyPatch, link_layer: str, gids: tuple[str, ...], index: int, has_query: bool
) -> None:
    valid = [number for number, gid in enumerate(gids) if gid != NONE]
    monkeypatch.setattr(Device, "_gid_indices", lambda _: valid if has_query else None)
    assert port(link_layer, *gids).source_gid_index == index


@pytest.mark.parametrize(("state", "name"), [(1, "DOWN"), (2, "INIT"), (0, "NOP"), (17, "17")])
def test_a_port_that_carries_nothing_is_told_of_before_any_case(port: Any, state: int, name: str) -> None:
    with pytest.raises(UserError, match=f"port 1 of any0 is {name}") as told:
        port("InfiniBand", LINK_LOCAL, state=state).check_port()
    assert told.value.status == 3


@pytest.mark.parametrize("state", [3, 4, 5])
def test_a_port_that_carries_traffic_is_fine(port: Any, state: int) -> None:
    port("Ethernet", MAPPED, state=state).check_port()
