"""Tests of the launcher: the Python that it chooses, the packages that it installs, and the code that it does not run."""

import os
import shutil
import subprocess
import sys

import pytest

from borrowed_host import (
    FOR_A_RUN,
    INSTALL,
    INSTALLING,
    INSTALLS,
    LAUNCHER,
    NEEDED,
    host,
    python_host,
)
from commands import doctor
from conformance.tables.suite import ROOT
from fixtures.guest.recipe import recipe_for
from fixtures.system import packages, run_process
from kinds import rows
from launched import ended
from samples import laid
from test_readiness import _by_subject

__all__ = ["host", "python_host"]  # fixtures
START = ROOT / "commands" / "cli" / "start.py"


def test_a_suitable_python_is_used_without_a_message(host):
    (host.bin / "python3").symlink_to("new-python")
    done = host.launch(0, "run", "-k", "a b")
    assert done.err == ""
    assert done.out == f"python: -S {START} run -k a b; {ROOT}; \n"
    assert host.calls() == []


@pytest.mark.parametrize(
    "program, folder, said",
    [
        ("./rdma-cts", "", "./rdma-cts"),
        ("../rdma-cts", "docs", "../rdma-cts"),
        ("rdma-cts", "docs", "rdma-cts"),
    ],
)
def test_hints_name_the_suite_as_it_was_started(program, folder, said):
    environment = {
        **os.environ,
        "RDMA_CTS_PYTHON": sys.executable,
        "PATH": f"{os.environ['PATH']}:{ROOT}",
    }
    environment.pop("RDMA_CTS_PROGRAM", None)
    done = ended("sh", "-c", f"{program} explain nothing", cwd=ROOT / folder, env=environment)
    assert f"; `{said} list` shows all cases" in done.stderr


def test_the_log_of_an_installation_is_written_through_no_link(host):
    target = laid(host.root, {"target": "precious\n", "cache/x": ""}) / "target"
    host.log.symlink_to(target)
    host.launch(0, "--yes", "run")
    assert target.read_text() == "precious\n"
    assert "apt says install" in host.log.read_text()


@pytest.mark.parametrize(
    "arguments",
    [("--yes", "run", "-k", "a b"), ("run", "-k", "a b", "--yes")],
)
def test_yes_installs_without_asking(host, arguments):
    done = host.launch(0, *arguments)
    assert host.calls() == INSTALLING
    assert done.out == f"python: -S {START} run -k a b; {ROOT}; 1\n"
    assert done.err == f"rdma-cts: installing {FOR_A_RUN} (log: {host.log})\n"
    assert host.log.read_text() == "apt says update\napt says install\n"


@pytest.mark.parametrize("answer", ["y\n", "Yes\n"])
def test_on_a_terminal_the_launcher_asks_and_then_installs(host, answer):
    done = host.launch(0, "run", answer=answer)
    assert f"These packages are needed: {FOR_A_RUN}\nInstall them with apt-get? [y/N]" in done.err
    assert host.calls() == INSTALLING


@pytest.mark.parametrize("answer", ["n\n", "\n", "yikes\n", "\x04"])
def test_any_other_answer_installs_nothing(host, answer):
    said = host.refused("run", answer=answer)
    assert said.endswith(
        f"rdma-cts: packages are needed and were not installed; install them: {INSTALL} {FOR_A_RUN}\n",
    )


LATER = (
    "Python 3.9 or later is needed; it is in Debian 11, Ubuntu 22.04, Fedora 33, RHEL 9, openSUSE Leap 16, and later "
    "releases; with another Python in RDMA_CTS_PYTHON, --host runs the cases on a host with such a release; nothing "
    "was installed"
)
STUB = r'stub() { printf "#!$PWD/bin/sh\n%s\n" "$2" >bin/$1; chmod +x bin/$1; }'


@pytest.mark.parametrize("given, said", rows("refusals_of_the_launcher"))
def test_the_launcher_refuses_in_one_line(given, said, host):
    done, _, arguments = given.rpartition("; ")
    subprocess.run(["sh", "-c", f"{STUB}\n{done}"], cwd=host.root, check=True)
    line = (
        said.replace("INSTALL", INSTALL)
        .replace("LATER", LATER)
        .replace("PACKAGES", FOR_A_RUN)
        .replace("ROOT", str(host.root))
    )
    assert host.refused(*arguments.split()) == f"rdma-cts: {line}\n"


def test_a_python_without_a_module_starts_the_launcher_again(tmp_path):
    """The launcher starts a Python outside of the system's directories once, and that Python finds out what it lacks."""
    python, bare = tmp_path / "python", laid(tmp_path / "bare", {"bin/x": ""})
    interpreter = os.path.realpath(sys.executable)
    (bare / "bin/python").symlink_to(interpreter)
    (bare / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(interpreter)}\ninclude-system-site-packages = false\n"
    )
    python.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/starts\nexec {bare}/bin/python "$@"\n')
    python.chmod(0o755)
    environment = {**os.environ, "RDMA_CTS_PYTHON": str(python), "RDMA_CTS_PROGRAM": "as-started"}
    for name in ("PYTHONPATH", "RDMA_CTS_YES", "CI"):
        environment.pop(name, None)
    done = ended(
        LAUNCHER, "list", "--rule", "REG-15", env={**environment, "RDMA_CTS_CONTAINER": "0"}
    )
    assert done.returncode == 3
    assert done.stderr.startswith("rdma-cts: packages are needed; ")
    assert (tmp_path / "starts").read_text().split() == ["-S", "-S", "-c"]


def test_a_named_python_that_does_not_exist_is_refused(host):
    host.more["RDMA_CTS_PYTHON"] = f"{host.bin}/python3"
    fault = f"{host.bin}/python3 was not found; set it to another Python, or unset it"
    assert host.refused("list", "--yes") == f"rdma-cts: RDMA_CTS_PYTHON: {fault}\n"


def test_a_program_that_is_no_python_is_refused(host):
    host.stub("true", "exit 0")
    host.more["RDMA_CTS_PYTHON"] = "true"
    fault = "true is not a Python; set it to another Python, or unset it"
    assert host.refused("list", "--yes") == f"rdma-cts: RDMA_CTS_PYTHON: {fault}\n"


def test_a_python_that_cannot_start_is_not_mended_by_packages(host):
    host.more |= {"RDMA_CTS_PYTHON": "", "PYTHONHASHSEED": "x"}
    host.stub("python3", "exit 1")
    said = host.refused("list", "--yes")
    assert said.startswith("rdma-cts: python3 does not run; /usr/bin/python3 ")
    assert said.endswith("; look at the environment's variables PYTHON*, and at ulimit -a\n")


@pytest.mark.parametrize(
    "manager, installing",
    [
        (
            "dnf",
            "install -y --setopt=install_weak_deps=False python3 python3-pyyaml python3-jinja2",
        ),
        (
            "zypper",
            "--non-interactive install --no-recommends python3 python3-PyYAML python3-Jinja2",
        ),
    ],
)
def test_other_package_managers_get_their_own_names_of_packages(manager, installing, host):
    (host.bin / "apt-get").unlink()
    host.stub(manager, f'echo "$*" >>{host.root}/calls\nln -s new-python {host.bin}/python3')
    host.launch(0, "list", "--yes")
    assert host.calls() == [installing]


def test_a_package_without_a_known_name_is_reported_before_anything_is_installed(host):
    (host.bin / "apt-get").unlink()
    host.stub("zypper", f'echo "$*" >>{host.root}/calls')
    command = [str(host.bin / "sh"), str(packages.INSTALLER), "erofs-utils", "mmdebstrap"]
    done = ended(*command, env={**host.environment(), "RDMA_CTS_YES": "1"})
    assert done.returncode == 3
    assert done.stdout == (
        "the equivalent of the Debian package mmdebstrap is needed, and its name for zypper is not known; "
        "install it yourself\n"
    )
    assert host.calls() == []


def test_the_doctor_uses_the_names_of_packages_on_this_system(python_host):
    (python_host.bin / "apt-get").unlink()
    python_host.stub("dnf", "exit 0")
    findings = _by_subject(doctor.guest_findings(recipe_for(), python_host.root))
    assert findings["packages"].remedy.endswith("dnf install qemu-system-x86-core mmdebstrap")


@pytest.mark.parametrize(
    "script, reason",
    [
        (
            '[ "$1" = update ] || { echo "E: no such package"; exit 100; }',
            "apt-get could not install python3",
        ),
        (
            '[ "$1" = update ] || { echo "write: No space left on device" >&2; exit 100; }',
            "the disk is full",
        ),
        ("exit 0", "no Python is suitable, though the packages are installed: "),
    ],
)
def test_a_failed_installation_is_reported_in_one_line(host, script, reason):
    host.stub("apt-get", script)
    progress, line = host.launch(3, "run", "--yes").err.splitlines()
    assert progress.startswith("rdma-cts: installing")
    assert line.startswith(f"rdma-cts: {reason}")


def test_in_ci_and_in_a_container_packages_are_installed_without_a_question(host):
    for more in (
        {"CI": "true"},
        {"RDMA_CTS_CONTAINER": "1"},
        {"RDMA_CTS_CONTAINER": "", "container": "podman"},
    ):
        host.more.clear()
        host.more.update(more)
        host.launch(0, "list")
        assert host.calls().pop() == f"{INSTALLS} {NEEDED}"
        (host.bin / "python3").unlink()


@pytest.mark.parametrize("arguments", [(), ("--help",), ("doctor",)])
def test_help_and_doctor_report_that_there_is_no_python_and_install_nothing(arguments, host):
    said = host.launch(4 if arguments == ("doctor",) else 0, *arguments).out
    assert "No suitable Python is installed yet: python3 was not found." in said
    assert host.calls() == []


@pytest.mark.slow
def test_no_code_of_the_working_directory_runs(tmp_path):
    modules = (
        "yaml.py",
        "jinja2.py",
        "commands/__init__.py",
        "reports/__init__.py",
        "sitecustomize.py",
    )
    laid(
        tmp_path,
        dict.fromkeys(modules, "raise SystemExit('code of the working directory ran')\n"),
    )
    done = ended(LAUNCHER, "list", "--rule", "REG-15", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "reg_mr/access_flags" in done.stdout
    # Labs and nightly runs start their runs with this command.
    done = ended(*run_process.COMMAND, "--help", cwd=tmp_path, env=run_process.environment())
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    "name, value",
    [
        ("PYTHONPATH", ":/nonexistent"),
        ("PYTHONPATH", "/nonexistent:"),
        ("PYTHONPATH", "/nonexistent::/also"),
        ("PYTHONPATH", "."),
        ("PYTHONPATH", "/nonexistent:lib/python"),
        ("PYTHONHOME", "."),
        ("PYTHONHOME", f"{sys.prefix}:"),
        ("PYTHONHOME", f"{sys.prefix}:."),
        ("PYTHONPYCACHEPREFIX", "."),
        ("PYTHONUSERBASE", "."),
        ("HOME", "."),
    ],
)
def test_no_variable_leads_python_into_the_working_directory(name, value, tmp_path):
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\n"
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    modules = (
        "sitecustomize.py",
        "usercustomize.py",
        "lzma.py",
        "yaml.py",
        "encodings/__init__.py",
    )
    folders = ("", "lib/python/", f"lib/{version}/", f"lib/{version}/lib-dynload/")
    sites = (f"lib/{version}/site-packages/x.pth", f".local/lib/{version}/site-packages/x.pth")
    files = {folder + module: code for folder in folders for module in modules}
    files |= dict.fromkeys(sites, f"import os; {code}")
    folder = laid(tmp_path / "cwd", files)
    done = ended(LAUNCHER, "list", "--rule", "REG-15", cwd=folder, env={**os.environ, name: value})
    assert done.returncode == 0, done.stderr
    assert "reg_mr/access_flags" in done.stdout
    assert not ran.exists()


@pytest.mark.parametrize("name", ["argparse", "contextlib", "json", "yaml"])
def test_a_module_of_pythonpath_that_hides_another_is_one_line(name, tmp_path):
    folder = laid(tmp_path / "path", {f"{name}.py": ""})
    cache = str(tmp_path / "cache")  # with no parsed table
    environment = {**os.environ, "PYTHONPATH": str(folder), "RDMA_CTS_CACHE": cache}
    environment.pop("RDMA_CTS_DERIVED", None)
    done = ended(LAUNCHER, "list", "--rules", env=environment)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3
    hint = f"PYTHONPATH provides {folder}/{name}.py; unset PYTHONPATH"
    assert hint in line or "look at the environment's variables PYTHON*" in line


def test_absolute_directories_of_pythonpath_remain(tmp_path):
    ran = tmp_path / "ran"
    folder = laid(tmp_path / "a *", {"sitecustomize.py": f"open({str(ran)!r}, 'w').close()\n"})
    path = f":{folder}::."
    done = ended(LAUNCHER, "--version", cwd="/", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert ran.exists()


def test_a_launcher_without_its_programs_or_its_suite_says_so_in_one_line(tmp_path):
    done = ended(LAUNCHER, "list", env={"PATH": "/nowhere"})
    said = "rdma-cts: no directory of PATH has readlink; add /usr/bin to PATH\n"
    assert (done.returncode, done.stderr) == (3, said)
    shutil.copy(LAUNCHER, tmp_path / "copy")
    (tmp_path / "link").symlink_to(LAUNCHER)
    done = ended(tmp_path / "copy", "list")
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3
    assert line.startswith(f"rdma-cts: {tmp_path}/fixtures/system/packages.txt cannot be read; ")
    environment = {**os.environ, "RDMA_CTS_PYTHON": sys.executable}
    assert ended(tmp_path / "link", "--version", env=environment).returncode == 0
