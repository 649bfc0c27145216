"""Tests of the doctor: what it says about this machine, and the remedies."""

import os
import re
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from borrowed_host import INSTALL, host, python_host
from commands import doctor
from conformance.errors import UserError
from conformance.kernel.netlink import driver_name
from conformance.tables.suite import ROOT
from fixtures.guest import qemu
from fixtures.guest.build import os_errors_explained
from fixtures.guest.image import ensure_image, is_verified
from fixtures.guest.recipe import recipe_for
from fixtures.system import packages, readiness
from fixtures.system.architecture import host_architecture
from fixtures.system.cache import cache_directory, check_usable
from samples import laid

__all__ = ["host", "python_host"]  # fixtures


def _by_subject(findings: list[readiness.Finding]) -> dict[str, readiness.Finding]:
    return {finding.about: finding for finding in findings}


def test_a_host_with_a_device_works(tmp_path):
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    pages = "HugePages_Total:  16\nHugePages_Free:   7\n"
    laid(tmp_path, {"dev/infiniband/uverbs0": "", "proc/meminfo": pages})
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    assert (findings["RDMA devices"].state, findings["RDMA devices"].text) == (
        readiness.OK,
        "mlx5_0",
    )
    assert findings["device nodes"].state == readiness.OK
    assert (findings["hugepages"].state, findings["hugepages"].text) == (readiness.OK, "7 free")
    assert (findings["Python"].state, findings["Python"].text) == (readiness.OK, sys.executable)


def test_a_host_with_nothing_gets_remedies(tmp_path):
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    assert findings["RDMA devices"].state == readiness.MISSING
    assert "no module rdma_rxe" in findings["RDMA devices"].text
    assert findings["device nodes"].state == readiness.MISSING
    assert findings["hugepages"].state == readiness.NOTE
    assert not readiness.works(findings.values())


@pytest.mark.parametrize("python", [sys.executable, "/no/python3"])
def test_a_python_without_the_modules_is_named_once(tmp_path, monkeypatch, python):
    monkeypatch.setattr(packages, "SYSTEM_PYTHON", python)
    monkeypatch.setattr(packages, "has_modules", lambda python, modules: False)
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    text = findings["Python"].text
    assert text.startswith(f"{python} lacks the modules of python3-")
    assert text.count(sys.executable) == 1
    assert ("has not all modules" in text) == (python != sys.executable)


def test_the_kernel_of_the_hosts_processor_is_advised(tmp_path, monkeypatch):
    monkeypatch.setattr("os.uname", lambda: Mock(machine="aarch64", release="7.2.12"))
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    for about in ("RDMA devices", "device nodes"):
        assert "(Debian: linux-image-arm64)" in findings[about].remedy


def test_a_host_that_is_reached_over_ssh_is_not_told_to_use_the_guest(tmp_path):
    findings = _by_subject(readiness.device_findings(root=tmp_path, is_remote=True))
    assert findings["RDMA devices"].remedy == "load the driver of the NIC"
    assert "guest" not in "".join(finding.remedy for finding in findings.values())


ON_HOSTS = {
    "": (4, "MISSING  mlx5_0           this host has no RDMA device"),
    "mlx5_1, mlx5_10": (4, "MISSING  mlx5_0           this host has only mlx5_1, mlx5_10"),
    "mlx5_1, mlx5_0": (0, "ok       mlx5_0           this host has it"),
}


@pytest.mark.parametrize("names", ON_HOSTS)
def test_the_doctor_of_a_device_of_another_host_says_whether_the_host_has_it(
    names, cli, monkeypatch, tmp_path
):
    for name in filter(None, names.split(", ")):
        (tmp_path / "sys/class/infiniband" / name).mkdir(parents=True)
    (devices, *_) = readiness.device_findings(root=tmp_path, is_remote=True)
    monkeypatch.setattr("fixtures.targets.hosts.findings", lambda *_: [devices])
    status, line = ON_HOSTS[names]
    said = cli(status, "doctor", "--host", "lab7", "--device", "mlx5_0").out
    assert said.startswith(
        f"On mlx5_0 of lab7 (./rdma-cts run --host lab7 --device mlx5_0)\n  {line}\n"
    )


def test_the_doctor_of_a_lab_has_a_line_for_each_host(cli, monkeypatch, tmp_path):
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    (devices, *_) = readiness.device_findings(root=tmp_path, is_remote=True)

    def findings(host: str, *_: object) -> list[readiness.Finding]:
        if host == "absent":
            raise UserError("absent cannot be reached", hint="try: ssh absent true", status=3)
        if host == "bare":
            missing = (("python", "install python3"), ("compiler", "install gcc"))
            lacking = [readiness.Finding(readiness.MISSING, what, "", do) for what, do in missing]
            return [devices, *lacking]
        if host == "noted":
            return [devices, readiness.Finding(readiness.NOTE, "memory", "64 KiB", "ulimit -l")]
        return [devices]

    monkeypatch.setattr("fixtures.targets.hosts.findings", findings)
    hosts = ["{host: one, device: mlx5_0}", "{host: two}", "{host: three, device: mlx5_1}"]
    lab = tmp_path / "lab.yaml"
    lab.write_text(f"hosts: [{', '.join(hosts[:2])}]")
    said = cli(0, "doctor", "--lab", lab).out
    assert said.endswith("2 of 2 hosts are ready.\n")
    assert re.findall(r"^  (\w+) +(\w+) +(.*)$", said, re.M) == [
        ("ok", "one", "mlx5_0"),
        ("ok", "two", "mlx5_0"),
    ]
    hosts += [f"{{host: {name}}}" for name in ("absent", "bare", "noted")]
    lab.write_text(f"hosts: [{', '.join(hosts)}]")
    said = cli(4, "doctor", "--lab", lab).out
    assert said.endswith("3 of 6 hosts are ready.\n")
    assert re.search(r"  ok +noted +mlx5_0; memory: 64 KiB\n +-> ulimit -l\n", said)
    assert "-> install python3; install gcc\n" in said
    assert "three            mlx5_1: this host has only mlx5_0" in said
    assert "absent           absent cannot be reached" in said
    assert "try: ssh absent true" in said
    assert "leave out the others" in cli(2, "doctor", "--lab", lab, "--host", "one").err


def test_modules_that_only_need_loading_are_distinguished(tmp_path):
    modules = "kernel/x/rdma_rxe.ko.xz: kernel/y/ib-core.ko\nkernel/y/ib-uverbs.ko:\n"
    laid(tmp_path, {f"lib/modules/{os.uname().release}/modules.dep": modules})
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    assert findings["RDMA devices"].remedy.startswith("modprobe rdma_rxe")
    assert findings["device nodes"].remedy == "modprobe ib_uverbs"


def test_missing_programs_are_reported_with_the_command(python_host, monkeypatch):
    for user, sudo in ((1000, "sudo "), (0, "")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        findings = _by_subject(doctor.guest_findings(recipe_for(), python_host.root))
        assert findings["packages"].state == readiness.MISSING
        assert findings["packages"].remedy == f"{sudo}{INSTALL} qemu-system-x86 mmdebstrap"
    assert findings["guest image"].text.startswith("not built yet")
    assert findings["processor"].text.startswith("software emulation")


@pytest.mark.parametrize(
    "requested, known, said",
    [
        ("", "kvm", "ok.*/dev/kvm$"),
        ("", "tcg", "ok.*software emulation: /dev/kvm exists but"),
        ("", "", "ok.*tried at the"),
        ("kvm", "tcg", "MISSING.*is kvm, and /dev/kvm exists but.*\n.*unset RDMA_CTS_ACCEL"),
        ("kvm", "", "ok.*requests.*tried at the"),
        ("tcg", "kvm", "ok.*tcg, which RDMA_CTS_ACCEL requests$"),
    ],
)
def test_the_doctor_reports_what_runs_have_recorded_about_kvm(requested, known, said, monkeypatch):
    monkeypatch.setenv("RDMA_CTS_ACCEL", requested)
    monkeypatch.setattr(qemu, "kvm_present", lambda _: True)
    monkeypatch.setattr(qemu, "remembered", lambda _: known)
    finding = doctor._processor(Path("/"), Path("vmlinuz"), host_architecture())
    assert re.search(said, "\n".join(doctor.table([finding])))


def test_a_cache_that_cannot_be_used_is_named_with_its_variable(monkeypatch, cli):
    monkeypatch.setenv("RDMA_CTS_CACHE", "/proc/x")
    said = cli(4, "doctor", "--stack", "forky-mended").out
    assert re.search("guest image +not built yet.*\\)$", said, re.MULTILINE)
    with pytest.raises(UserError, match=r"the cache cannot be used.*; set RDMA_CTS_CACHE"):
        ensure_image(recipe_for(), Path("/proc/x"), print)


def test_the_doctor_lists_a_cache_in_which_no_image_can_be_made(monkeypatch, cli):
    monkeypatch.setenv("RDMA_CTS_CACHE", "/dev/null")
    said = cli(4, "doctor").out
    line = "MISSING +guest image +the cache cannot be used: /dev/null: Not a directory\n +-> set RDMA_CTS_CACHE"
    assert re.search(line, said)
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write to every directory
    with pytest.raises(UserError, match="the cache cannot be used: /x/y: Permission denied"):
        check_usable(Path("/x/y"))


def test_a_reader_that_a_cache_refuses_names_the_cache_with_its_variable(monkeypatch, cli):
    """A stand-in is refused, because root may read every directory."""
    cache = cache_directory()
    refused = PermissionError(13, "Permission denied", f"{cache}/images/forky")
    monkeypatch.setattr(doctor, "damage_of", Mock(side_effect=refused))
    said = (
        f"the cache cannot be used: {cache}/images/forky: Permission denied; set RDMA_CTS_CACHE to"
    )
    assert said in cli(3, "doctor").err
    monkeypatch.setattr("os.stat", Mock(side_effect=refused))
    monkeypatch.setattr("os.lstat", Mock(side_effect=refused))
    assert not is_verified(cache / "images/forky")  # a run therefore prepares the image


def test_a_cache_that_cannot_be_searched_is_named_with_its_variable(monkeypatch):
    """A stand-in refuses access to the cache, because root may read every directory."""
    refused = PermissionError(13, "Permission denied", "/home/other/cache")
    monkeypatch.setattr(Path, "stat", Mock(side_effect=refused))
    with (
        pytest.raises(UserError, match=r"the cache cannot be used.*; set RDMA_CTS_CACHE"),
        os_errors_explained(Path("x/log")),
    ):
        raise refused


def test_the_doctor_reports_what_is_known_about_the_driver_of_a_device(cli, monkeypatch):
    monkeypatch.setattr(
        doctor,
        "device_findings",
        lambda: [readiness.Finding(readiness.OK, "it", "is")],
    )
    monkeypatch.setattr(doctor, "device_names", lambda: ["mlx5_0"])
    monkeypatch.setattr(doctor, "use_findings", lambda _: [])
    monkeypatch.setattr("commands.doctor.RdmaNetlink.driver_id", lambda _: 1)
    text = cli(0, "doctor", "--device", "mlx5_0").out
    assert "REG-10, NUL-05: memory keys have no bit for MW_BIND; DEREG-02: " in text
    assert "every driver" in text
    assert "`" not in text
    assert "mana" not in text
    assert (
        "there is no device mlx5_1; devices of this host: mlx5_0"
        in cli(2, "doctor", "--device", "mlx5_1").err
    )


def test_each_row_about_nics_is_found_by_the_driver_that_the_kernel_names():
    page = (ROOT / "docs" / "nics.md").read_text()
    named = {
        name
        for row in re.findall(r"^\| ([a-z][\w, ]+) \| ", page, re.MULTILINE)
        for name in row.split(", ")
    }
    # Rows that are not about one driver, and a driver that registers no device.
    named -= {"driver", "every driver", "bng_re"}
    assert named == {driver_name(number) for number in range(1, 22)} - {
        "cxgb3",
        "nes",
        "qib",
        "rxe",
    }
    for driver in named:
        assert [rows for rows in doctor.driver_findings(driver) if rows.about == driver], driver
    assert [rows.about for rows in doctor.driver_findings("rxe")] == ["every driver"]
    (elsewhere,) = doctor.driver_findings("mlx5", Path("absent"))
    assert "nics.md" in elsewhere.text


@pytest.mark.usefixtures("python_host")
def test_the_doctor_fails_when_no_way_works(cli, monkeypatch):
    findings = [readiness.Finding(readiness.MISSING, "it", "is not", "fix it")]
    monkeypatch.setattr(doctor, "device_findings", lambda: findings)
    assert "Neither way works" in cli(4, "doctor").out
    findings[:] = [readiness.Finding(readiness.OK, "it", "is")]
    assert "Works now: On an RDMA device of this host." in cli(0, "doctor").out
