"""Boots guests that stand for hosts with an RDMA device and sshd, for tests; QEMU's user networking connects them. The
image is the default image with OpenSSH and the module of a network card; it is built and stored like any other image.
After a panic these guests wait for a reset, as hosts do."""

import shlex
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from conformance.tables.suite import ROOT
from fixtures.guest import job as jobs
from fixtures.guest import qemu
from fixtures.guest.guest import Guest
from fixtures.guest.image import Image, ensure_image
from fixtures.guest.job import Job
from fixtures.guest.qemu import machine_for
from fixtures.guest.recipe import recipe_for
from fixtures.system.architecture import host_architecture
from fixtures.system.cache import cache_directory
from fixtures.system.packages import find_program
from patience import await_true

BOOT_S = 600.0  # only ends a hang
# Sets up the network that QEMU gives a guest, and starts sshd, which must survive the end of each session.
_SERVE = """\
modprobe virtio_net
ip link set eth0 up && ip address add 10.0.2.15/24 dev eth0 || exit 1
mkdir -p /run/sshd /root/.ssh && cp authorized_keys /root/.ssh/ && chmod -R go= /root /root/.ssh host_key || exit 1
/usr/sbin/sshd -D -e -h "$PWD/host_key" -o PidFile=none -o UsePAM=no -o PermitRootLogin=yes -o MaxStartups=100 &
exec /usr/bin/sleep infinity
"""


def host_image(say: Callable[[str], None] = print) -> Image:
    recipe = recipe_for()
    more = replace(
        recipe,
        stack=f"{recipe.stack}-ssh",
        packages=(*recipe.packages, "openssh-server", "openssh-client"),
        optional_modules=(*recipe.optional_modules, "virtio_net"),
    )
    return ensure_image(more, cache_directory(), say)


@dataclass(frozen=True)
class SshGuest:
    """A guest with sshd on a port of 127.0.0.1. `folder` has the keys of the host and of its user, and known_hosts."""

    guest: Guest
    port: int
    folder: Path

    @property
    def address(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    @property
    def reset(self) -> str:
        """The command that resets the guest, for --power-cycle."""
        return shlex.join(["sh", str(self.folder / "reset.sh")])

    @property
    def console(self) -> str:
        """The command that prints the guest's console, for --console."""
        return shlex.join(["tail", "-c", "+1", "-F", str(self.guest.console)])


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def keys_in(folder: Path) -> None:
    """Writes a key for the host and a key for its user."""
    for name in ("host_key", "user_key"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)],
            check=True,
        )


@contextmanager
def ssh_guest(
    folder: Path,
    image: Image,
    devices: int = 1,
    network: Sequence[str] = (),
    prepare: str = "",
    tree: Iterable[tuple[Path, str]] = (),
) -> Iterator[SshGuest]:
    """Boots a guest, and yields it when sshd listens; keys_in(folder) must have been called. `network` are QEMU's
    arguments for more network cards. `prepare` has commands that the guest runs before sshd starts. Their working
    directory has the files of `tree`, given as (source, name in the directory)."""
    program = find_program(host_architecture().program)
    assert program
    work = folder / "work"
    work.mkdir()
    job = Job(
        ((folder / "user_key.pub", "authorized_keys"), (folder / "host_key", "host_key"), *tree),
        prepare + _SERVE,
        {"RDMA_CTS_DEVICES": str(devices)},
    )
    jobs.pack(job, work / "job.erofs")
    console, control, port = folder / "console.log", folder / "qmp", free_port()
    console.write_bytes(b"")
    command = qemu.command_line(machine_for(image, None), image, work / "job.erofs", console)
    command.remove("-no-reboot")
    command = [word.replace("panic=-1", "panic=0") for word in command]
    command += ["-netdev", f"user,id=net,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22"]
    command += [
        "-device",
        "virtio-net-pci,netdev=net",
        *network,
        "-qmp",
        f"unix:{control},server=on,wait=off",
    ]
    reset = shlex.join(["/usr/bin/python3", str(ROOT / "tests/reset_guest.py"), str(control)])
    (folder / "reset.sh").write_text(f"PYTHONPATH={shlex.quote(str(ROOT))} exec {reset}\n")
    host_key = (folder / "host_key.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n")
    with Guest(command, console, work) as guest:
        guest.await_up(BOOT_S)
        await_true(lambda: b"Server listening" in console.read_bytes())
        yield SshGuest(guest, port, folder)
