"""Tests of the launcher and of the installation of packages, with stubs in PATH, and of the findings of `doctor`."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from commands import doctor
from conformance.errors import UserError
from conformance.kernel.netlink import driver_name
from conformance.tables.suite import ROOT
from fixtures.guest import qemu
from fixtures.guest.build import os_errors_explained
from fixtures.guest.image import ensure_image
from fixtures.guest.recipe import recipe_for
from fixtures.system import packages, readiness, run_process
from fixtures.system.architecture import host_architecture
from kinds import Cli, Patch, Said, rows
from launched import ended, script
from samples import laid, user_error

LAUNCHER = ROOT / "rdma-cts"
BORROWED = (
    "rm",
    "sh",
    "dirname",
    "readlink",
    "uname",
    "mkdir",
    "grep",
    "cat",
    "chmod",
    "mv",
    "ln",
    "timeout",
)


class Host:
    """A host of stubs: programs in `bin`, a Python that exists only after its installation, and a cache."""

    def __init__(self, root: Path) -> None:
        self.root, self.bin = root, root / "bin"
        self.log = root / "cache" / "install.log"  # apt-get's output
        self.more: dict[str, str] = {}

    def stub(self, name: str, text: str) -> None:
        script(self.bin / name, text)

    def calls(self) -> list[str]:
        path = self.root / "calls"
        if path.exists():
            return path.read_text().splitlines()
        return []

    def environment(self) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "HOME": str(self.root),
            "RDMA_CTS_CACHE": str(self.root / "cache"),
            "RDMA_CTS_PYTHON": "python3",
            "RDMA_CTS_CONTAINER": "0",
            "RDMA_CTS_SYSTEM": str(self.root / "system"),
            **self.more,
        }

    def launch(self, status: int, *arguments: str, answer: str | None = None) -> Said:
        """Runs the launcher and checks its exit status. `answer` is typed on the terminal of its standard input."""
        command = [str(self.bin / "sh"), str(LAUNCHER), *arguments]
        typing, terminal = pty.openpty()
        with open(typing, "wb", buffering=0) as keys, open(terminal, "rb", buffering=0) as keyboard:
            keys.write((answer or "").encode())
            nothing = subprocess.DEVNULL
            done = ended(
                *command,
                env=self.environment(),
                stdin=nothing if answer is None else keyboard,
            )
        assert done.returncode == status, done.stdout + done.stderr
        return Said(done.stdout, done.stderr)

    def refused(self, *arguments: str, answer: str | None = None) -> str:
        """Runs the launcher, which must refuse the command and install nothing; returns its message."""
        done = self.launch(3, *arguments, answer=answer)
        assert (done.out, self.calls()) == ("", [])
        return done.err


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A Debian host without Python; its apt-get installs a stub of Python that prints its arguments."""
    host = Host(tmp_path)
    host.bin.mkdir()
    for name in BORROWED:
        program = shutil.which(name)
        assert program
        (host.bin / name).symlink_to(program)
    laid(tmp_path, {"system/var/lib/apt/lists/Packages": ""})
    host.stub("id", "echo 0")
    host.stub(
        "new-python",
        'case $1 in -c) exit 0 ;; esac\necho "python: $*; $PYTHONPATH; ${RDMA_CTS_YES:-}"',
    )
    host.stub(
        "apt-get",
        f'echo "$*" >>{host.root}/calls\necho "apt says $1"\n'
        f'[ "$1" = install ] && ln -s new-python {host.bin}/python3\nexit 0',
    )
    return host


NEEDED = "python3 python3-yaml python3-jinja2"  # the packages that every command needs
FOR_A_RUN = f"{NEEDED} qemu-system-x86 mmdebstrap erofs-utils busybox-static python3-sympy"
INSTALL = "apt-get install --no-install-recommends"
INSTALLING = ["update", f"install -y --no-install-recommends {FOR_A_RUN}"]


def test_a_suitable_python_is_used_without_a_message(host: Host) -> None:
    (host.bin / "python3").symlink_to("new-python")
    done = host.launch(0, "run", "-k", "a b")
    assert done.err == ""
    assert done.out == f"python: -P -m commands run -k a b; {ROOT}; \n"
    assert host.calls() == []


@pytest.mark.parametrize(
    ("program", "folder", "said"),
    [
        ("./rdma-cts", "", "./rdma-cts"),
        ("../rdma-cts", "docs", "../rdma-cts"),
        ("rdma-cts", "docs", "rdma-cts"),
    ],
)
def test_hints_name_the_suite_as_it_was_started(program: str, folder: str, said: str) -> None:
    environment = {
        **os.environ,
        "RDMA_CTS_PYTHON": sys.executable,
        "PATH": f"{os.environ['PATH']}:{ROOT}",
    }
    environment.pop("RDMA_CTS_PROGRAM", None)
    done = ended("sh", "-c", f"{program} explain nothing", cwd=ROOT / folder, env=environment)
    assert f"; `{said} list` shows all cases" in done.stderr


def test_the_log_of_an_installation_is_written_through_no_link(host: Host) -> None:
    target = laid(host.root, {"target": "precious\n", "cache/x": ""}) / "target"
    host.log.symlink_to(target)
    host.launch(0, "--yes", "run")
    assert target.read_text() == "precious\n"
    assert "apt says install" in host.log.read_text()


@pytest.mark.parametrize(
    "arguments",
    [("--yes", "run", "-k", "a b"), ("run", "-k", "a b", "--yes")],
)
def test_yes_installs_without_asking(host: Host, arguments: tuple[str, ...]) -> None:
    done = host.launch(0, *arguments)
    assert host.calls() == INSTALLING
    assert done.out == f"python: -P -m commands run -k a b; {ROOT}; 1\n"
    assert done.err == f"rdma-cts: installing {FOR_A_RUN} (log: {host.log})\n"
    assert host.log.read_text() == "apt says update\napt says install\n"


@pytest.mark.parametrize("answer", ["y\n", "Yes\n"])
def test_on_a_terminal_the_launcher_asks_and_then_installs(host: Host, answer: str) -> None:
    done = host.launch(0, "run", answer=answer)
    assert f"These packages are needed: {FOR_A_RUN}\nInstall them with apt-get? [y/N]" in done.err
    assert host.calls() == INSTALLING


@pytest.mark.parametrize("answer", ["n\n", "\n", "yikes\n", "\x04"])
def test_any_other_answer_installs_nothing(host: Host, answer: str) -> None:
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


@pytest.mark.parametrize(("given", "said"), rows("refusals_of_the_launcher"))
def test_the_launcher_refuses_in_one_line(given: str, said: str, host: Host) -> None:
    done, _, arguments = given.rpartition("; ")
    subprocess.run(["sh", "-c", f"{STUB}\n{done}"], cwd=host.root, check=True)
    line = (
        said.replace("INSTALL", INSTALL)
        .replace("LATER", LATER)
        .replace("PACKAGES", FOR_A_RUN)
        .replace("ROOT", str(host.root))
    )
    assert host.refused(*arguments.split()) == f"rdma-cts: {line}\n"


def test_a_named_python_that_does_not_exist_is_refused(host: Host) -> None:
    host.more["RDMA_CTS_PYTHON"] = f"{host.bin}/python3"
    fault = f"{host.bin}/python3 was not found; set it to another Python, or unset it"
    assert host.refused("list", "--yes") == f"rdma-cts: RDMA_CTS_PYTHON: {fault}\n"


def test_a_python_that_cannot_start_is_not_mended_by_packages(host: Host) -> None:
    host.more |= {"RDMA_CTS_PYTHON": "", "PYTHONHASHSEED": "x"}
    host.stub("python3", "exit 1")
    said = host.refused("list", "--yes")
    assert said.startswith("rdma-cts: python3 does not run; /usr/bin/python3 ")
    assert said.endswith("; look at the environment's variables PYTHON*, and at ulimit -a\n")


@pytest.mark.parametrize(
    ("manager", "installing"),
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
def test_other_package_managers_get_their_own_names_of_packages(
    manager: str,
    installing: str,
    host: Host,
) -> None:
    (host.bin / "apt-get").unlink()
    host.stub(manager, f'echo "$*" >>{host.root}/calls\nln -s new-python {host.bin}/python3')
    host.launch(0, "list", "--yes")
    assert host.calls() == [installing]


def test_a_package_without_a_known_name_is_reported_before_anything_is_installed(
    host: Host,
) -> None:
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


def test_the_doctor_uses_the_names_of_packages_on_this_system(python_host: Host) -> None:
    (python_host.bin / "apt-get").unlink()
    python_host.stub("dnf", "exit 0")
    findings = _by_subject(doctor.guest_findings(recipe_for(), python_host.root))
    assert findings["packages"].remedy.endswith("dnf install qemu-system-x86-core mmdebstrap")


@pytest.mark.parametrize(
    ("script", "reason"),
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
def test_a_failed_installation_is_reported_in_one_line(
    host: Host,
    script: str,
    reason: str,
) -> None:
    host.stub("apt-get", script)
    progress, line = host.launch(3, "run", "--yes").err.splitlines()
    assert progress.startswith("rdma-cts: installing")
    assert line.startswith(f"rdma-cts: {reason}")


def test_in_ci_and_in_a_container_packages_are_installed_without_a_question(host: Host) -> None:
    for more in (
        {"CI": "true"},
        {"RDMA_CTS_CONTAINER": "1"},
        {"RDMA_CTS_CONTAINER": "", "container": "podman"},
    ):
        host.more.clear()
        host.more.update(more)
        host.launch(0, "list")
        assert host.calls().pop() == f"install -y --no-install-recommends {NEEDED}"
        (host.bin / "python3").unlink()


@pytest.mark.parametrize("arguments", [(), ("--help",), ("doctor",)])
def test_help_and_doctor_report_that_there_is_no_python_and_install_nothing(
    arguments: tuple[str, ...],
    host: Host,
) -> None:
    said = host.launch(4 if arguments == ("doctor",) else 0, *arguments).out
    assert "No suitable Python is installed yet: python3 was not found." in said
    assert host.calls() == []


@pytest.mark.slow
def test_no_code_of_the_working_directory_runs(tmp_path: Path) -> None:
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
    ("name", "value"),
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
def test_no_variable_leads_python_into_the_working_directory(
    name: str, value: str, tmp_path: Path
) -> None:
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


def test_absolute_directories_of_pythonpath_remain(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    folder = laid(tmp_path / "a *", {"sitecustomize.py": f"open({str(ran)!r}, 'w').close()\n"})
    path = f":{folder}::."
    done = ended(LAUNCHER, "--version", cwd="/", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    assert ran.exists()


# Installation from Python, for packages that a command needs


@pytest.fixture
def python_host(host: Host, monkeypatch: Patch) -> Host:
    """Makes this process use the stubs of a host without mmdebstrap and qemu; its apt-get installs these programs."""
    for name, value in host.environment().items():
        monkeypatch.setenv(name, value)
    for name in ("RDMA_CTS_YES", "CI", "container"):
        monkeypatch.delenv(name, raising=False)
    for name in ("python3", "mkfs.erofs", "tool"):
        host.stub(name, "exit 0")
    busybox = shutil.which("busybox", path="/usr/bin:/bin:/usr/sbin:/sbin")
    assert busybox, "the tests need the package busybox-static"
    (host.bin / "busybox").symlink_to(busybox)
    host.stub(
        "apt-get",
        f'echo "$*" >>{host.root}/calls\n[ "$1" = update ] && exit 0\n'
        f"for name in mmdebstrap qemu-system-x86_64; do ln -s tool {host.bin}/$name; done",
    )
    return host


def test_only_missing_packages_are_installed(python_host: Host) -> None:
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
        "install -y --no-install-recommends qemu-system-x86 mmdebstrap",
    ]
    assert said == ["installed qemu-system-x86, mmdebstrap"]
    packages.ensure_tools(packages.guest(host_architecture()), assume_yes=True, say=said.append)
    assert len(said) == 1


def test_packages_missing_after_installation_are_named(python_host: Host) -> None:
    python_host.stub("apt-get", "exit 0")
    with user_error("not found: qemu-system-x86, mmdebstrap", status=3):
        packages.ensure_tools(packages.guest(host_architecture()), assume_yes=True, say=print)


def test_without_a_yes_nothing_is_installed(python_host: Host, monkeypatch: Patch) -> None:
    with open(os.devnull) as nothing:
        monkeypatch.setattr(packages, "_INPUT", nothing)
        with user_error(f"give --yes .*: {INSTALL} qemu-system-x86 mmdebstrap", status=3):
            packages.ensure_tools(packages.guest(host_architecture()), assume_yes=False, say=print)
    assert python_host.calls() == []


def test_a_busybox_that_is_not_static_does_not_count(python_host: Host) -> None:
    (python_host.bin / "busybox").unlink()
    (python_host.bin / "busybox").symlink_to(python_host.bin / "sh")
    assert "busybox-static" in packages.missing(packages.guest(host_architecture()))


def test_if_no_python_has_all_modules_those_missing_in_debians_python_are_installed(
    monkeypatch: Patch,
) -> None:
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


def test_a_python_with_all_modules_is_preferred(tmp_path: Path, monkeypatch: Patch) -> None:
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


def test_an_unknown_use_of_packages_raises_a_value_error() -> None:
    with pytest.raises(ValueError, match="gest"):
        packages.needs(["gest"])


# The doctor


def _by_subject(findings: list[readiness.Finding]) -> dict[str, readiness.Finding]:
    return {finding.about: finding for finding in findings}


def test_a_host_with_a_device_works(tmp_path: Path) -> None:
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


def test_a_host_with_nothing_gets_remedies(tmp_path: Path) -> None:
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    assert findings["RDMA devices"].state == readiness.MISSING
    assert "no module rdma_rxe" in findings["RDMA devices"].text
    assert findings["device nodes"].state == readiness.MISSING
    assert findings["hugepages"].state == readiness.NOTE
    assert not readiness.works(findings.values())


def test_modules_that_only_need_loading_are_distinguished(tmp_path: Path) -> None:
    modules = "kernel/x/rdma_rxe.ko.xz: kernel/y/ib-core.ko\nkernel/y/ib-uverbs.ko:\n"
    laid(tmp_path, {f"lib/modules/{os.uname().release}/modules.dep": modules})
    findings = _by_subject(readiness.device_findings(root=tmp_path))
    assert findings["RDMA devices"].remedy.startswith("modprobe rdma_rxe")
    assert findings["device nodes"].remedy == "modprobe ib_uverbs"


def test_missing_programs_are_reported_with_the_command(
    python_host: Host,
    monkeypatch: Patch,
) -> None:
    for user, sudo in ((1000, "sudo "), (0, "")):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        findings = _by_subject(doctor.guest_findings(recipe_for(), python_host.root))
        assert findings["packages"].state == readiness.MISSING
        assert findings["packages"].remedy == f"{sudo}{INSTALL} qemu-system-x86 mmdebstrap"
    assert findings["guest image"].text.startswith("not built yet")
    assert findings["processor"].text.startswith("software emulation")


@pytest.mark.parametrize(
    ("known", "said"),
    [("kvm", "/dev/kvm$"), ("tcg", "software emulation"), ("", "tried at the")],
)
def test_the_doctor_reports_what_runs_have_recorded_about_kvm(
    known: str,
    said: str,
    monkeypatch: Patch,
) -> None:
    monkeypatch.delenv("RDMA_CTS_ACCEL", raising=False)
    monkeypatch.setattr(qemu, "kvm_present", lambda _: True)
    monkeypatch.setattr(qemu, "remembered", lambda _: known)
    finding = doctor._processor(Path("/"), Path("vmlinuz"), host_architecture())
    assert re.search(said, finding.text)


def test_a_cache_that_cannot_be_used_is_named_with_its_variable(
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    monkeypatch.setenv("RDMA_CTS_CACHE", "/proc/x")
    said = cli(4, "doctor", "--stack", "forky-mended").out
    assert re.search("guest image +not built yet.*\\)$", said, re.MULTILINE)
    with pytest.raises(UserError, match=r"the cache cannot be used.*; set RDMA_CTS_CACHE"):
        ensure_image(recipe_for(), Path("/proc/x"), print)


def test_a_cache_that_cannot_be_searched_is_named_with_its_variable(monkeypatch: Patch) -> None:
    """A stand-in refuses access to the cache, because root may read every directory."""
    refused = PermissionError(13, "Permission denied", "/home/other/cache")
    monkeypatch.setattr(Path, "stat", Mock(side_effect=refused))
    with (
        pytest.raises(UserError, match=r"the cache cannot be used.*; set RDMA_CTS_CACHE"),
        os_errors_explained(Path("x/log")),
    ):
        raise refused


def test_the_doctor_reports_what_is_known_about_the_driver_of_a_device(
    cli: Cli,
    monkeypatch: Patch,
) -> None:
    monkeypatch.setattr(
        doctor,
        "device_findings",
        lambda: [readiness.Finding(readiness.OK, "it", "is")],
    )
    monkeypatch.setattr(doctor, "device_names", lambda: ["mlx5_0"])
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


def test_each_row_about_nics_is_found_by_the_driver_that_the_kernel_names() -> None:
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
    (elsewhere,) = doctor.driver_findings("mlx5", [])
    assert "nics.md" in elsewhere.text


@pytest.mark.usefixtures("python_host")
def test_the_doctor_fails_when_no_way_works(cli: Cli, monkeypatch: Patch) -> None:
    findings = [readiness.Finding(readiness.MISSING, "it", "is not", "fix it")]
    monkeypatch.setattr(doctor, "device_findings", lambda: findings)
    assert "Neither way works" in cli(4, "doctor").out
    findings[:] = [readiness.Finding(readiness.OK, "it", "is")]
    assert "Works now: On an RDMA device of this host." in cli(0, "doctor").out
