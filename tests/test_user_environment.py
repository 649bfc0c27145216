"""Tests of users that lack something: a home directory, a private cache, /proc, or the right to build an image."""

import os
import pwd
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

from conformance.errors import UserError
from fixtures.guest import privileges
from fixtures.system import cache, processes
from fixtures.targets import target
from launched import script
from samples import laid, user_error

RACER = """
import os, pathlib, sys
place, victim = map(pathlib.Path, sys.argv[1:])
print(flush=True)
while True:
    place.symlink_to(victim)
    place.unlink()
    place.mkdir(0o777)
    place.chmod(0o777)
    place.rmdir()
    place.touch()
    place.unlink()
"""


def test_a_race_for_the_temporary_cache_is_lost_in_one_line(tmp_path, monkeypatch):
    """A second process makes and removes what has the name of the directory. Nothing but a refusal is an error."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    place = tmp_path / f"rdma-cts-{os.geteuid()}"
    command = [sys.executable, "-c", RACER, str(place), str(laid(tmp_path / "victim", {}))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as racer:
        assert racer.stdout is not None
        racer.stdout.readline()
        for _ in range(5000):
            with suppress(UserError):
                assert cache._temporary() == place
                break
        racer.kill()
    assert not list((tmp_path / "victim").iterdir())


def test_the_temporary_cache_of_another_user_that_is_gone_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))

    def lost(*_: object) -> None:
        raise FileExistsError

    monkeypatch.setattr(Path, "mkdir", lost)
    with user_error("is not a private directory of this user", status=3):
        cache._temporary()


def test_a_run_without_proc_is_refused_in_one_line(tmp_path, monkeypatch, cli):
    monkeypatch.setattr(target, "_PROCESSES", tmp_path / "self")
    (line,) = cli(3, "run", "--guest", "--out", tmp_path / "out").err.splitlines()
    assert line == "rdma-cts: a run needs /proc, which is not mounted; mount -t proc proc /proc"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "programs, refused, said, reason, remedy",
    [
        (
            "unshare",
            "nothing",
            "",
            "a user namespace needs the program newuidmap (Debian package uidmap)",
            "sudo apt-get install --no-install-recommends uidmap",
        ),
        (
            "unshare",
            "true",
            "unshare: no such right",
            "this kernel or its configuration refuses the user namespace (unshare: no such right)",
            "permit user namespaces, or use root for the guest: sudo -E ./rdma-cts run --guest",
        ),
        (
            "unshare newuidmap",
            "--map-auto",
            "no line matching someone in /etc/subuid",
            "this user has no subordinate ids (no line matching someone in /etc/subuid)",
            "sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER",
        ),
    ],
)
def test_the_reason_why_a_user_cannot_build_an_image_is_reported(
    programs, refused, said, reason, remedy, tmp_path, monkeypatch
):
    """A process that unshare leaves behind holds its output, and does not delay the answer."""
    stand_in = f'/bin/sleep 36000 &\n[ "$3" != {refused} ] || {{ echo {said} >&2 && exit 1; }}'
    for name in ("apt-get", *programs.split()):
        script(tmp_path / name, stand_in)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(processes, "_SYSTEM_PROGRAMS", ())
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(privileges, "forbidden_by", list)
    assert privileges.obstacle() == privileges.Obstacle(reason, remedy)


def test_the_setting_that_forbids_user_namespaces_is_named(tmp_path):
    restriction = "kernel/apparmor_restrict_unprivileged_userns"
    laid(tmp_path, {"user/max_user_namespaces": "31000\n", restriction: "1\n"})
    assert privileges.forbidden_by(tmp_path) == [
        "kernel.apparmor_restrict_unprivileged_userns is 1",
    ]
    assert privileges.forbidden_by(tmp_path / "none") == []


def test_a_user_without_a_home_directory_has_a_private_cache(tmp_path, monkeypatch):
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("RDMA_CTS_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("HOME", "")
    user = pwd.getpwuid(os.geteuid())
    assert cache.cache_directory() == Path(user.pw_dir) / ".cache" / "rdma-cts"
    monkeypatch.setenv("HOME", str(tmp_path))
    place = cache.cache_directory()
    assert place.parent == tmp_path
    assert place.stat().st_mode & 0o777 == 0o700
    place.rmdir()
    place.symlink_to("/etc")
    with pytest.raises(UserError, match="set RDMA_CTS_CACHE"):
        cache.cache_directory()


def test_no_home_directory_is_created_and_a_relative_cache_is_ignored(tmp_path, monkeypatch):
    monkeypatch.delenv("RDMA_CTS_CACHE", raising=False)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache.cache_directory() == tmp_path / ".cache/rdma-cts"
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    assert cache.cache_directory() == tmp_path / f"rdma-cts-{os.geteuid()}"
