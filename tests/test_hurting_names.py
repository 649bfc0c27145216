"""Tests that names of devices, hosts, paths, commits and people that are made to hurt change neither a generated script
nor a series of patches nor a mail, and start no program."""

from __future__ import annotations

import json
import os
import re
import subprocess
from argparse import Namespace
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from commands import nightly_message
from commands.__main__ import main
from commands.cli import sendmail
from conformance.model.printable import one_line
from launched import git, script
from programs import SUITE, WRITE, forky, records, symptom_named
from reports.fleet import Fleet, drain
from reports.fleet_group import Node
from reports.patches.message import Seen, message
from samples import laid
from stand_in_hosts import StandInHost, StandInPort
from test_health_scripts import Call, call  # noqa: F401
from test_patches import BIND, DRIVER, LATER, made, patches, tree  # noqa: F401

PROGRAMS = (
    "$(touch hurt)",
    "`touch hurt`",
    "'; touch hurt; '",
    '"; touch hurt; "',
    "a\ntouch hurt\n",
)
SETS = ("all", "ALL", "n[1-9]", "n1,n2", "n1 n2", "-a", "--help", "*", "")
CONTROLS = ("a\x1b[2Jb", "a\u202eb", "a\u2028b", "a\x85b", "a\rb", "a\udcffb", "x" * 100_000)
MISLEADING = (*PROGRAMS, *CONTROLS, "x\nBcc: y")


@pytest.mark.parametrize("name", [*PROGRAMS, *SETS, *CONTROLS], ids=ascii)
@pytest.mark.parametrize("is_reason", [False, True])
def test_a_script_for_slurm_drains_only_nodes_of_the_cluster(name, is_reason, tmp_path):
    """The cluster has the nodes n1 and n2. Slurm would read the other names as a set of nodes."""
    named = Node("n1", problem=name or "none") if is_reason else Node(name, problem="no run")
    path = tmp_path / "drain.sh"
    path.write_bytes(drain(Fleet((named, Node("n2", problem="no run")))))
    script(tmp_path / "bin/sinfo", "printf 'n1\\nn2\\n'")
    script(tmp_path / "bin/scontrol", 'for word; do printf "%s\\n" "$word"; done >>drained')
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    subprocess.run(["sh", path], cwd=tmp_path, env=environment, check=True, capture_output=True)
    drained = re.findall("NodeName=(.*)", (tmp_path / "drained").read_text())
    assert sorted(drained) in (["n2"], ["n1", "n2"] if is_reason else ["n2"])
    assert not (tmp_path / "hurt").exists()
    assert all(line.isprintable() for line in path.read_text().splitlines() if "\t" not in line)


@pytest.mark.parametrize("name", [name for name in SETS if name])
def test_a_health_check_drains_only_a_single_node(call, name):  # noqa: F811
    host = StandInHost({}, {"mlx5_1": (StandInPort(),)})
    said, status = call("slurm.sh", host=host, mlx5_1="1", SLURMD_NODENAME=name)
    assert "scontrol" not in said
    assert status == 0


@pytest.mark.parametrize("device", ["a b", "*", "-x", "$(touch hurt)", "a\nb", "'", "\\c"])
def test_a_health_check_tests_a_device_of_any_name(call, tmp_path, device):  # noqa: F811
    """The suite's stand-in reports a violation of every device."""
    host = StandInHost({}, {device: (StandInPort(),)})
    script(tmp_path / "suite/rdma-cts", 'echo "violated (exit status 1)"; exit 1')
    said, status = call("node.sh", host=host)
    assert status == 1
    assert "violated (exit status 1)" in said
    assert not (tmp_path / "hurt").exists()
    assert len([line for line in said.splitlines() if "results:" not in line]) == 1


@pytest.mark.parametrize("sign", ["\r", "\x0b", "\x1b", "\x85", "\u2028", "\u202e"], ids=ascii)
def test_a_name_that_would_be_a_header_signs_no_patch(tree, capsys, sign):  # noqa: F811
    assert patches(tree, "--signoff", f"A{sign}Bcc: B <a@b.example>") == 2
    assert "--signoff" in capsys.readouterr().err


@pytest.mark.parametrize("subject", ["rxe: a\x1b[2Jb", "rxe: a\u202eb", "a\rBcc: b"], ids=ascii)
def test_the_subject_of_a_commit_cannot_control_a_terminal(tree, tmp_path, subject):  # noqa: F811
    git(tree, "commit", "-q", "--amend", "-m", subject)
    assert patches(tree) == 0
    text = b"".join(path.read_bytes() for path in made(tree)).decode()
    assert f'("{one_line(subject)}")' in text
    assert all(line.replace("\t", "").isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("file", [True, False])
def test_a_tree_with_bytes_that_are_no_text_is_no_traceback(tree, file, capsys):  # noqa: F811
    if file:
        (tree / DRIVER / "rxe_other.c").write_bytes(b"/* \xe4 */\n")
        git(tree, "add", "--all")
        git(tree, "commit", "-q", "-m", "Latin")
        here = tree
    else:
        here = Path(os.fsdecode(os.fsencode(tree) + b"-\xff"))
        tree.rename(here)
    assert patches(here) == 0


def test_no_program_of_a_filter_with_a_strange_name_is_started(tree, tmp_path):  # noqa: F811
    program = script(tmp_path / "program", f"touch {tmp_path}/started; cat")
    laid(tree / DRIVER, {"rxe_mw.c": LATER.replace("key", "lock"[:3])})
    laid(tree / ".git/info", {"attributes": "* filter=a=b\n"})
    git(tree, "config", "filter.a=b.clean", str(program))
    assert patches(tree) == 3
    assert not (tmp_path / "started").exists()


def test_a_tree_fetches_nothing(tree, tmp_path):  # noqa: F811
    """Objects are missing in the tree, and its configuration names a program that would bring them."""
    program = script(tmp_path / "program", f"touch {tmp_path}/started; false")
    blob = git(tree, "rev-parse", f"HEAD~1:{DRIVER}/rxe_mw.c").strip()
    (tree / ".git/objects" / blob[:2] / blob[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{program}",
        "remote.origin.promisor": "true",
        "protocol.ext.allow": "always",
    }.items():
        git(tree, "config", name, value)
    assert patches(tree) == 3
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("words", ["diff -x", "diff --git a/x b/x", "Index: x", "---"])
def test_no_line_of_a_message_ends_the_message(words, monkeypatch):
    """git am reads such a line as the beginning of the patch. The wrapped text has it at the beginning of a line."""
    run = forky()
    for length in range(40, 72):
        kernel = f"{'x' * length} {words} y {'z ' * 20}"
        monkeypatch.setitem(run.header["env"], "kernel", kernel)
        text = message(BIND, "RDMA/rxe", SUITE.registry, "", "", Seen(symptom_named(WRITE), run))
        assert words.split()[0] in text
        assert not re.search(r"^(diff -|Index: |---)", text, re.MULTILINE)


@pytest.mark.parametrize(
    "where, key",
    [("env", "kernel"), ("env", "rdma_core"), ("device", "name"), ("device", "driver")],
)
@pytest.mark.parametrize("name", MISLEADING, ids=lambda name: ascii(name)[:30])
def test_a_mail_has_one_header_with_a_subject_and_an_address(tmp_path, where, key, name):
    """A results file of somebody else is refused, or its text is harmless."""
    path = tmp_path / "results.jsonl"
    with path.open("w") as file:
        for record in records():
            if record["type"] == "header":
                record[where][key] = name
            if record.get("case", WRITE) == WRITE:  # all others would only take time
                file.write(json.dumps(record) + "\n")
    out = tmp_path / "mail"
    if status := main(["reproducer", WRITE, "--run", str(path), "--mail", "--out", str(out)]):
        assert status in (2, 3)
        return
    text = out.read_text(encoding="utf-8")
    assert all(line.isprintable() for line in text.split("\n"))
    head = text.partition("\n\n")[0]
    assert re.fullmatch(r"Subject: .*(\n .*)*\nTo: \S+@(vger\.)?kernel\.org", head)
    assert len(text) < 200_000


ADDRESSES = """
" < > a@[ [ ( ) a: @ =?utf-8?q?a=0aBcc:x@y?=@h =?utf-8?q?=0d=0aBcc:_evil@h?= -oQ/tmp@x =??q??= |prog /etc/passwd
:include:/etc/passwd "|prog"@h <@ a@b> , a@b,
""".split()


@pytest.mark.parametrize(
    "address", [*ADDRESSES, "\x01@x", "\udcff@x", "a\u202e@b", "\x85@x"], ids=ascii
)
def test_an_address_that_is_none_is_refused_before_the_night(tmp_path, capsys, address):
    history = tmp_path / "history"
    assert main(["nightly", "--history", str(history), f"--mail-to={address}"]) == 2
    assert not history.exists()
    assert "--mail-to" in capsys.readouterr().err


@pytest.mark.parametrize("line", MISLEADING, ids=lambda name: ascii(name)[:30])
def test_the_message_of_a_night_is_text(tmp_path, monkeypatch, line):
    """A line can have the path of a tree or of the history."""
    monkeypatch.setattr(sendmail, "find_program", lambda name: "")
    night = tmp_path / "20200101T000000Z"
    arguments = Namespace(mail_to="a@b,c", webhook_file=tmp_path / "hook.json")
    nightly_message.tell(arguments, night, ["first", line, "last"], 0)
    (path,) = tmp_path.glob("*.eml")
    sent = message_from_bytes(path.read_bytes(), policy=policy.default)
    assert set(sent) == {
        "To",
        "Subject",
        "Content-Type",
        "Content-Transfer-Encoding",
        "MIME-Version",
    }
    lines = sent.get_content().rstrip("\n").split("\n")
    assert lines == ["first", one_line(line), "last"]
    assert json.loads((tmp_path / "hook.json").read_text())["text"].split("\n") == lines
