"""Tests of devices that can no longer be used in the middle of a run: each ends the run with one line, and the results
before it are kept."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from actors import Stage, ran, verdicts
from conformance.device import device as device_module
from conformance.device.device import Device
from conformance.errors import UserError
from conformance.results.conclusions import exit_status
from conformance.results.records import encode
from kinds import Patch
from samples import footer_of
from stand_in_hosts import StandInHost, bond


def port_down(folder: Path, _: Patch) -> Callable[[], object]:
    (folder / "ib/mlx5_bond_0/ports/1/state").write_text("1: DOWN\n")
    return lambda: bond().port(folder, "mlx5_bond_0").check(3)


def namespace_left(folder: Path, _: Patch) -> Callable[[], object]:
    """The network interface has been moved to the namespace of a pod."""
    shutil.rmtree(folder / "net/bond0")
    host = StandInHost({}, {}, {}, ())
    return lambda: host.port(folder, "mlx5_bond_0").check(3)


def device_removed(_: Path, monkeypatch: Patch) -> Callable[[], object]:
    monkeypatch.setattr(device_module, "device_names", lambda: ["mlx5_7"])
    return lambda: Device("mlx5_bond_0")


@pytest.mark.parametrize(
    "happens, says",
    [
        (port_down, "port 1 of mlx5_bond_0 is DOWN: it transfers no data"),
        (namespace_left, "this GID of port 1 of mlx5_bond_0 has no interface here"),
        (device_removed, "no RDMA device 'mlx5_bond_0'"),
    ],
)
def test_a_device_that_can_no_longer_be_used_ends_the_run_in_one_line(
    happens, says, tmp_path, monkeypatch
):
    """A worker exits after a request without a response. The next worker finds the reason before any case."""
    look = happens(bond().laid(tmp_path), monkeypatch)
    with pytest.raises(UserError) as caught:
        look()
    assert "\n" not in caught.value.message
    assert says in caught.value.message
    refusal = encode({"type": "guest", "event": "broken", "reason": str(caught.value)})
    stage = Stage(tmp_path)
    recorded = stage.play(ran(0, 1), [refusal])
    assert verdicts(recorded) == ["PASS", "PASS", "MISSED", "MISSED"]
    assert says in recorded.results[-1]["reason"]
    assert exit_status(footer_of(recorded)) == 3
