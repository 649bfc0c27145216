"""Tests of the installation from Python of packages that a command needs."""

import os
import sys

import pytest

from borrowed_host import INSTALL, INSTALLS, host, python_host
from fixtures.system import packages
from fixtures.system.architecture import host_architecture
from launched import script
from samples import user_error

__all__ = ["host", "python_host"]  # fixtures


def test_only_missing_packages_are_installed(python_host):
    said: list[str] = []
    assert packages.missing(packages.guest(host_architecture())) == [
        "qemu-system-x86",
        "mmdebstrap",
    ]
    assert (
        packages.ensure_tools(packages.guest(host_architecture()), assume_yes=True, say=said.append)
        == sys.executable
    )
    assert python_host.calls() == [
        "update",
        f"{INSTALLS} qemu-system-x86 mmdebstrap",
    ]
    assert said == ["installed qemu-system-x86, mmdebstrap"]
    packages.ensure_tools(packages.guest(host_architecture()), assume_yes=True, say=said.append)
    assert len(said) == 1


def test_scripts_of_packages_import_nothing_from_the_working_directory(python_host):
    links = (
        f"for name in mmdebstrap qemu-system-x86_64; do ln -sf tool {python_host.bin}/$name; done"
    )
    python_host.stub("apt-get", f'echo "$PWD" >>{python_host.root}/calls\n{links}')
    needed = packages.guest(host_architecture())
    packages.ensure_tools(needed, assume_yes=True, say=print)
    assert python_host.calls() == ["/", "/"]


def test_packages_missing_after_installation_are_named(python_host):
    python_host.stub("apt-get", "exit 0")
    with user_error("not found: qemu-system-x86, mmdebstrap", status=3):
        packages.ensure_tools(packages.guest(host_architecture()), assume_yes=True, say=print)


def test_without_a_yes_nothing_is_installed(python_host, monkeypatch):
    with open(os.devnull) as nothing:
        monkeypatch.setattr(packages, "_INPUT", nothing)
        with user_error(f"give --yes .*: {INSTALL} qemu-system-x86 mmdebstrap", status=3):
            packages.ensure_tools(packages.guest(host_architecture()), assume_yes=False, say=print)
    assert python_host.calls() == []


def test_a_busybox_that_is_not_static_does_not_count(python_host):
    (python_host.bin / "busybox").unlink()
    (python_host.bin / "busybox").symlink_to(python_host.bin / "sh")
    assert "busybox-static" in packages.missing(packages.guest(host_architecture()))


def test_if_no_python_has_all_modules_those_missing_in_debians_python_are_installed(monkeypatch):
    monkeypatch.setattr(packages, "SYSTEM_PYTHON", "/debian/python3")
    proofs = [need.proof.partition(":") for need in packages.needs(("suite", "test"))]
    every = {what for kind, _, what in proofs if kind == "module"}
    undeclared = {"xdist", "lxml", "jsonschema"}
    present = {"/debian/python3": every - undeclared, sys.executable: {"yaml", "pytest", "xdist"}}
    installed: list[str] = []

    def install(names: list[str], assume_yes: bool) -> None:
        installed.extend(names)
        present["/debian/python3"] |= undeclared

    monkeypatch.setattr(
        packages,
        "has_modules",
        lambda python, modules: set(modules) <= present[python],
    )
    monkeypatch.setattr(packages, "_install", install)
    assert (
        packages.ensure_tools(("test",), assume_yes=True, say=lambda text: None)
        == "/debian/python3"
    )
    assert sorted(installed) == ["python3-jsonschema", "python3-lxml", "python3-pytest-xdist"]


def test_a_python_with_all_modules_is_preferred(tmp_path, monkeypatch):
    other = script(tmp_path / "python3", f'exec {sys.executable} "$@"')
    monkeypatch.setattr(packages, "SYSTEM_PYTHON", str(other))
    assert packages.python_for(["suite"]) == sys.executable
    real = packages.has_modules
    monkeypatch.setattr(
        packages,
        "has_modules",
        lambda python, names: python != sys.executable and real(python, names),
    )
    assert packages.python_for(["suite"]) == str(other)
    monkeypatch.setattr(packages, "has_modules", lambda python, names: False)
    assert packages.python_for(["suite"]) is None


def test_an_unknown_use_of_packages_raises_a_value_error():
    with pytest.raises(ValueError, match="gest"):
        packages.needs(["gest"])
