"""Tests of several devices and addresses in one guest: findings of preflight, and messages about unusable ports."""

from typing import Any

import pytest

from kinds import Folders
from own_guest import told_by

pytestmark = [pytest.mark.guest, pytest.mark.nightly]
# The types of queue pairs of Soft-RoCE; each transfers a message to its peer.
PAIRS = {"RC": "works", "UC": "works", "UD": "works", "RC_SRQ": "works"}
MTU_4096 = 5  # IBV_MTU_4096


@pytest.fixture(scope="module")
def seen(tmp_path_factory: Folders) -> Any:
    return told_by("on_ports.py", tmp_path_factory.mktemp("ports"))


@pytest.mark.parametrize("where", ["first", "second", "beside", "ipv6", "large"])
def test_traffic_works_on_each_device(seen, where):
    facts = seen[where]
    assert facts["pairs"] == PAIRS
    assert (facts["refused_write"], facts["renews_by_reset"], facts["tells_state"]) == (
        "REM_ACCESS_ERR",
        True,
        True,
    )
    assert facts["kind"] == "RoCE v2"


def test_each_device_has_the_address_of_its_own_interface(seen):
    assert (seen["first"]["gid"], seen["first"]["interface"]) == (
        "0000:0000:0000:0000:0000:ffff:0a4d:0001",
        "d0",
    )
    assert (seen["second"]["gid"], seen["second"]["interface"]) == (
        "0000:0000:0000:0000:0000:ffff:0a4e:0001",
        "e1",
    )
    assert seen["beside"]["gid"] == seen["first"]["gid"]
    assert (seen["ipv6"]["gid"], seen["ipv6"]["interface"]) == (
        "fd00:0077:0000:0000:0000:0000:0000:0001",
        "e2",
    )


def test_every_type_of_gid_that_the_port_has_can_be_selected(seen):
    assert seen["each"]
    assert set(seen["each"].values()) == {"works"}


def test_large_frames_have_the_largest_path_mtu(seen):
    assert seen["large"]["mtu"] == MTU_4096 > seen["second"]["mtu"]


def test_a_vlan_is_chosen_by_its_gid(seen):
    facts = seen["vlan"]
    assert (facts["gid"], facts["interface"]) == ("0000:0000:0000:0000:0000:ffff:0a4f:0001", "e1.7")
    assert (facts["pairs"], facts["refused_write"], facts["kind"]) == (
        PAIRS,
        "REM_ACCESS_ERR",
        "RoCE v2",
    )
    assert seen["vlan case"]["status"] == 0, seen["vlan case"]


@pytest.mark.parametrize(
    "what, line",
    [
        ("down", "port 1 of rxe2 "),
        ("interface down", "port 1 of rxe1 "),
        ("elsewhere", "port 1 of rxe0 has no GID whose network interface is up"),
    ],
)
def test_a_port_that_cannot_be_used_is_reported_in_one_line(seen, what, line):
    said, status = seen[what]
    assert said.startswith(line)
    assert "\n" not in said
    assert "; " in said  # the message also has a remedy
    assert status == 3
