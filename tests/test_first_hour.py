"""Tests of the first hour on a host with NICs, with stand-ins for such hosts: the screen for a run without a device, and
what a run on each device begins with."""

from __future__ import annotations

import shlex
import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from commands import doctor
from commands.__main__ import _report_error
from commands.cli.announcement import errors_on_purpose
from conformance.errors import UserError
from conformance.run_options import RunOptions
from conformance.tables.health import HEALTH
from conformance.tables.refused_requests import refused_requests
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from fixtures.hosts.lab_file import read_lab
from fixtures.system import usable
from fixtures.system.readiness import MISSING, OK
from fixtures.system.usable import check_warnings
from fixtures.targets.target import with_target
from kinds import Patch
from samples import laid, user_error
from stand_in_hosts import (
    HOSTS,
    TRAINING,
    StandInHost,
    StandInPort,
    bond,
    dgx,
    efa,
    infiniband,
    mana,
    virtual_function,
    vlans_and_pods,
)
from stand_in_netlink import StandInDevice

PROCESS = f"process {TRAINING} ({Path(f'/proc/{TRAINING}/comm').read_text().strip()})"
STORAGE = (
    "the kernel's ib_ipoib (1 protection domain), the kernel's nvme_rdma (1 protection domain)"
)


def screen_of(
    host: StandInHost,
    folder: Path,
    monkeypatch: Patch,
    options: RunOptions | None = None,
) -> list[str]:
    """Returns the lines of the screen for a run without a device."""
    host.installed(folder, monkeypatch)
    with pytest.raises(UserError, match="RDMA hardware: name the device to test") as caught:
        with_target(options or RunOptions())
    assert caught.value.status == 2
    return list(caught.value.screen)


def rows_of(screen: list[str]) -> dict[str, list[str]]:
    """Returns the cells of each device of a screen."""
    rows = [line.split("  ") for line in screen if line.startswith("  ") and line[2] != " "]
    cells_by_device = {}
    for row in rows[1:]:
        name, *cells = (cell.strip() for cell in row if cell.strip())
        cells_by_device[name] = cells
    return cells_by_device


@pytest.mark.parametrize(
    "host, rows",
    [
        (
            vlans_and_pods(),
            {"bnxt_re0": ["bnxt_re", "28.43.2026", "1 ACTIVE", "-"]},
        ),
        (
            efa(),
            {"rdmap0s6": ["efa", "28.43.2026", "1 ACTIVE", f"{PROCESS} (1 protection domain)"]},
        ),
        (
            mana(),
            {"mana_0": ["mana", "28.43.2026", "1 ACTIVE", f"{PROCESS} (1 protection domain)"]},
        ),
        (
            virtual_function(),
            {
                "mlx5_0": ["mlx5", "28.43.2026", "1 DOWN, 2 ACTIVE", "-"],
                "mlx5_2": ["mlx5", "28.43.2026", "1 ACTIVE", "-"],
            },
        ),
        (bond(), {"mlx5_bond_0": ["mlx5", "28.43.2026", "1 ACTIVE", "-"]}),
    ],
    ids=["VLANs and pods", "EFA", "MANA", "VF", "bond"],
)
def test_the_screen_lists_what_a_host_has(host, rows, tmp_path, monkeypatch):
    assert rows_of(screen_of(host, tmp_path, monkeypatch)) == rows


def test_the_screen_of_eight_devices_has_the_commands_for_one_for_all_and_for_the_guest(
    tmp_path, monkeypatch
):
    screen = screen_of(dgx(), tmp_path, monkeypatch, RunOptions(tier="smoke"))
    assert len(screen) < 24, "the screen does not fit a terminal"
    rows = rows_of(screen)
    assert list(rows) == [f"mlx5_{number}" for number in range(8)]
    assert rows["mlx5_0"][-1] == "the kernel's ib_ipoib (1 protection domain)"
    ipoib = "the kernel's ib_ipoib (1 protection domain)"
    assert rows["mlx5_1"][-1] == f"{PROCESS} (1 protection domain), {ipoib}"
    assert rows["mlx5_7"][-1] == STORAGE
    on_one, on_all, in_guest = (line.strip() for line in screen if line.startswith("    "))
    assert on_one == "./rdma-cts run --device mlx5_0 --tier smoke"
    assert on_all.endswith(" >lab.yaml && ./rdma-cts run --lab lab.yaml --tier smoke")
    assert in_guest == "./rdma-cts run --guest --tier smoke"


def test_the_command_for_a_device_names_one_that_is_ready(tmp_path, monkeypatch):
    busy = dgx()
    ports = {**busy.ports, "mlx5_0": (infiniband(0, "1: DOWN"),)}
    screen = screen_of(StandInHost(busy.devices, ports), tmp_path, monkeypatch)
    assert "    ./rdma-cts run --device mlx5_2" in screen, "mlx5_1 is in use by a process"


def test_the_command_for_a_device_names_the_port_that_is_up(tmp_path, monkeypatch):
    host = virtual_function()
    alone = StandInHost(
        {"mlx5_0": host.devices["mlx5_0"]},
        {"mlx5_0": host.ports["mlx5_0"]},
        host.interfaces,
        host.addresses,
    )
    screen = screen_of(alone, tmp_path, monkeypatch)
    assert "    ./rdma-cts run --device mlx5_0 --port 2" in screen


def test_the_doctor_says_of_a_device_what_a_run_would_refuse(tmp_path, monkeypatch):
    host = dgx()
    ports = {**host.ports, "mlx5_0": (infiniband(0, "1: DOWN"),)}
    down = StandInHost(host.devices, ports)
    down.installed(tmp_path, monkeypatch)
    monkeypatch.setattr(doctor, "check_warnings", lambda *_, **__: None)
    states = {}
    for name in host.devices:
        states[name] = [shown.state for shown in doctor.use_findings(name)]
    assert states["mlx5_0"] == states["mlx5_1"] == [MISSING]
    assert states["mlx5_2"] == [OK]
    (in_use,) = doctor.use_findings("mlx5_1")
    assert PROCESS in in_use.text
    assert "--shared" in in_use.remedy


def test_the_command_for_a_device_names_one_without_storage(tmp_path, monkeypatch):
    """A driver that crashes takes the file systems over its devices with it."""
    host = dgx()
    names = ("mlx5_7", "mlx5_1", "mlx5_3")
    devices = {f"ibp{number}": host.devices[name] for number, name in enumerate(names)}
    ports = {name: (infiniband(1),) for name in devices}
    screen = screen_of(StandInHost(devices, ports), tmp_path, monkeypatch)
    assert "    ./rdma-cts run --device ibp2" in screen


@pytest.mark.parametrize(
    "tier, hazardous, refused",
    [("smoke", False, True), (None, False, True), (HEALTH, False, False), (None, True, False)],
)
def test_a_host_that_a_warning_would_end_is_refused(tier, hazardous, refused, tmp_path):
    laid(tmp_path, {"sys/kernel/panic_on_warn": "1\n"})
    with user_error("kernel.panic_on_warn is 1", status=2) if refused else nullcontext():
        check_warnings(tier, hazardous, tmp_path)
    check_warnings(tier, hazardous, tmp_path / "elsewhere")


def test_options_of_the_guest_are_only_in_the_command_for_the_guest(tmp_path, monkeypatch):
    options = RunOptions(stack="trixie", port=2)
    screen = screen_of(bond(), tmp_path, monkeypatch, options)
    on_one, _, in_guest = (line.strip() for line in screen if line.startswith("    "))
    assert on_one == "./rdma-cts run --device mlx5_bond_0 --port 2"
    assert in_guest == "./rdma-cts run --guest --stack trixie"


def test_the_file_of_the_lab_has_each_device(tmp_path, monkeypatch):
    screen = screen_of(virtual_function(), tmp_path, monkeypatch)
    written, _, _ = screen[-3].strip().partition(" && ")
    subprocess.run(["sh", "-c", written], check=True, cwd=tmp_path)
    hosts = read_lab(tmp_path / "lab.yaml", {})
    assert [(host.name, host.options) for host in hosts] == [
        (name, {"device": name, "host": "localhost"}) for name in ("mlx5_0", "mlx5_2")
    ]


@pytest.mark.parametrize("names", [[], ["rxe0"], ["rxe0", "siw0"]])
def test_software_devices_need_not_be_named(names, tmp_path, monkeypatch):
    devices = {name: StandInDevice(name[:3]) for name in names}
    host = StandInHost(devices, {name: (StandInPort(),) for name in names})
    host.installed(tmp_path, monkeypatch)
    options = with_target(RunOptions())
    assert (options.device, options.guest) == (("rxe0", False) if len(names) == 1 else (None, True))


def test_a_nic_beside_a_software_device_is_not_passed_over(tmp_path, monkeypatch):
    nic = bond()
    host = StandInHost(
        {**nic.devices, "rxe0": StandInDevice("rxe")},
        {**nic.ports, "rxe0": (StandInPort(),)},
    )
    screen = screen_of(host, tmp_path, monkeypatch)
    assert "    ./rdma-cts run --device mlx5_bond_0" in screen
    assert "for d in mlx5_bond_0; do" in screen[-3], "Soft-RoCE is not part of the lab"


# The first lines of a run on a device


@pytest.mark.parametrize("name", HOSTS)
def test_a_device_is_refused_only_because_of_processes(name, tmp_path, monkeypatch):
    host = HOSTS[name]()
    host.installed(tmp_path, monkeypatch)
    for device, on_device in host.devices.items():
        said: list[str] = []
        port = len(host.ports[device])
        options = RunOptions(device=device, port=port)
        pairs = on_device.objects["QP"]
        if any(pair.pid == TRAINING for pair in pairs):
            with pytest.raises(UserError, match=f"^{device} is in use by process {TRAINING}"):
                with_target(options, say=said.append)
            options = RunOptions(device=device, port=port, shared=True)
        assert with_target(options, say=said.append).device == device
        noted = [pair for pair in pairs if pair.pid or pair.kernel != "ib_core"]
        assert bool(said) == bool(noted), said


def test_hazardous_without_effect_is_said():
    said: list[str] = []
    with_target(RunOptions(guest=True, hazardous=True), say=said.append)
    assert said == [
        "--hazardous changes nothing: the guest always runs the cases that may crash a kernel"
    ]


@pytest.mark.parametrize("name", HOSTS)
def test_the_plan_on_each_host_is_announced(name, tmp_path, monkeypatch):
    """In the default tier: the refused requests, the longest waits, and what the driver writes."""
    host = HOSTS[name]()
    host.installed(tmp_path, monkeypatch)
    plan = of_tier(load_suite().cases, DEFAULT)
    refused, waits, *drivers = errors_on_purpose(plan, host.devices)
    assert refused.startswith("up to 7,")
    assert refused.endswith(
        "are refused on purpose: to node-health daemons, see docs/node-health.md"
    )
    assert waits.startswith("  waits after refusals, at worst: ")
    assert "over UC or UD" in waits
    names = [line.strip().partition(":")[0] for line in drivers]
    present = {device.driver for device in host.devices.values()}
    assert names == sorted(present & {"bnxt_re", "mlx5"}), "EFA and MANA write nothing"
    few = of_tier(load_suite().cases, HEALTH)
    assert next(iter(errors_on_purpose(few, host.devices))).startswith("up to 1")


def test_the_waits_of_few_cases_are_only_those_for_completions():
    """No request of this case waits for a retry."""
    refusing = ((case, refused_requests([case])) for case in load_suite().cases)
    case = next(case for case, refused in refusing if refused.number and not refused.longest_s)
    _, waits = errors_on_purpose([case], ())
    assert waits == "  waits after refusals, at worst: 20 s for each completion that never comes"


def test_a_device_of_another_host_is_named_if_it_is_hardware(tmp_path, monkeypatch):
    bond().installed(tmp_path, monkeypatch)
    with pytest.raises(UserError) as caught:
        usable.the_only_device()
    said = str(caught.value)
    assert said.startswith("the host has RDMA devices: mlx5_bond_0 (mlx5, port 1 ACTIVE)")
    assert "--device" in said
    assert "`device` in the file of a lab" in said


def test_the_screen_is_printed_without_a_prefix(capsys):
    error = UserError("name it", screen=["  mlx5_0  mlx5", shlex.join(["a", "b"])])
    assert _report_error(error, ["run"]) == 2
    assert capsys.readouterr().err == "rdma-cts: name it\n  mlx5_0  mlx5\na b\n"
