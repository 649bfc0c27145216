"""A system with only the programs that a test lends it, for tests of the launcher and of installations."""

from __future__ import annotations

import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from conformance.tables.suite import ROOT
from kinds import Patch, Said
from launched import ended, script
from samples import laid

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
        'case $1 in -c) echo "$0" && exit 0 ;; esac\necho "python: $*; $PYTHONPATH; ${RDMA_CTS_YES:-}"',
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
INSTALLS = "install -y -o DPkg::Lock::Timeout=900 --no-install-recommends"
INSTALLING = ["update", f"{INSTALLS} {FOR_A_RUN}"]


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
