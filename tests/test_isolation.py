"""Tests of --isolate: the library under test runs in a process of another user, or a message says why it does not."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from conformance.errors import UserError
from conformance.run_options import RunOptions
from fixtures.system.host import HostWorker, OtherUser
from fixtures.targets import builds, hosts
from patience import PATIENCE_S

USER = "nobody"
# A stand-in for pytest. It writes its user, its rights, and what it can read and change, to the stream.
WORKER = """\
#!{python}
import json, os, sys
only, stream, mark = (sys.argv[sys.argv.index(f"--rdma-{{name}}") + 1] for name in ("only", "stream", "mark"))
def can(do):
    try:
        do()
    except OSError as error:
        return error.strerror
    return ""
status = dict(line.split(":\\t") for line in open("/proc/self/status").read().splitlines())
told = {{
    "ids": os.getresuid() + os.getresgid(),
    "groups": sorted(os.getgroups()),
    "rights": [status["CapEff"], status["NoNewPrivs"]],
    "log": can(lambda: os.fstat(int(os.environ["RDMA_CTS_KERNEL_LOG"]))),
    "kill": can(lambda: os.kill(os.getppid(), 0)),
    "write": can(lambda: open({results!r}, "a")),
    "replace": can(lambda: os.unlink({results!r})),
    "cases": open(only).read(),
}}
text = open(mark).read() + " " + json.dumps(told) + "\\n"
os.unlink(mark)
with open(stream, "w") as file:
    file.write(text)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every user can enter, unlike pytest's temporary directory."""
    folder = Path(tempfile.mkdtemp(prefix="rdma-cts-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.skipif(
    os.geteuid() != 0,
    reason="needs root; the refusal for other users is tested below",
)
class TestAsRoot:
    def test_the_worker_is_another_user_without_any_right(self, place, monkeypatch):
        (place / "kmsg").touch(0o600)  # a container has no log of the kernel
        monkeypatch.setattr("conformance.kernel.log._KMSG", str(place / "kmsg"))
        results, python = place / "results.jsonl", place / "python"
        results.write_text("kept")
        python.write_text(WORKER.format(python=sys.executable, results=str(results)))
        python.chmod(0o755)
        user = OtherUser.named(USER)
        with closing(
            HostWorker(place, str(python), [], ["a", "b"], place / "console.log", user=user),
        ) as worker:
            line = worker.next_line(PATIENCE_S)
            assert line, (place / "console.log").read_text()
        facts = json.loads(line)
        assert facts["ids"] == [user.uid] * 3 + [user.gid] * 3
        assert facts["groups"] == sorted(user.groups)
        assert facts["rights"] == ["0000000000000000", "1"]
        assert facts["cases"] == "a\nb\n"
        assert facts["log"] == ""
        assert facts["kill"] == "Operation not permitted"
        assert facts["write"] == facts["replace"] == "Permission denied"
        assert results.read_text() == "kept"
        assert not list(place.glob("work-*"))

    @pytest.mark.parametrize(
        "name, mode, said",
        [
            ("closed", 0o700, "cannot read {}/closed"),
            ("open", 0o777, "can write {}/open"),
            ("python", 0o600, "cannot run {}/python"),
        ],
    )
    def test_a_user_with_too_few_or_too_many_rights_is_refused(self, place, name, mode, said):
        folder = place / name
        folder.mkdir()
        folder.chmod(mode)
        if name == "python":
            python = str(folder)
        else:
            python = sys.executable
        with pytest.raises(UserError, match=f"the user {USER} {said.format(place)}"):
            OtherUser.named(USER).check(python, [folder], [])
        OtherUser.named(USER).check(sys.executable, [place], [Path("/etc/passwd")])


def test_a_user_who_is_not_root_is_refused(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UserError, match="only root can start a process as another user"):
        OtherUser.named(USER)


@pytest.mark.parametrize(
    "name, said",
    [("nobdy", "this host has no user 'nobdy'"), ("root", "root can change everything")],
)
def test_a_name_that_isolates_nothing_is_refused(name, said, monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 0)  # no real rights are needed
    with pytest.raises(UserError, match=said):
        OtherUser.named(name)


def test_isolate_is_only_for_a_device_of_this_host():
    with pytest.raises(
        UserError,
        match="a process on another host cannot change files of this host",
    ):
        hosts.opened(RunOptions(host="there", device="x", isolate=USER), print)
    builds.refuse_on_host(RunOptions(device="x", isolate=USER))
