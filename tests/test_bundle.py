"""`rdma-cts bundle`, and what `judge BUNDLE` concludes from a bundle that nobody has changed."""

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import tarfile
from datetime import timedelta
from pathlib import Path

import pytest

from bundled import DEFAULT, LINES, NOW, SUITE, bundle, eight, loaded, run, verified
from commands.__main__ import main
from conformance.results.plan import Plan, write_plan
from conformance.tables.suite import ROOT, Suite
from kinds import Folders
from recorded_reference import record
from reports.bundles.archive import MANIFEST
from samples import consistent, lines_of, written_records

__all__ = ["bundle", "eight", "loaded", "run", "verified"]  # fixtures


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Folders) -> Path:
    """The bundle of the whole default tier on the reference."""
    folder = tmp_path_factory.mktemp("whole")
    run = record(folder / "run", SUITE, DEFAULT, started=NOW.isoformat())
    assert main(["bundle", str(run), "--out", str(folder / "bundle")]) == 0
    return folder / "bundle"


def test_a_file_that_is_no_key_is_refused_before_the_run_is_judged(run, tmp_path, monkeypatch, cli):
    monkeypatch.setattr("commands.bundle.read", lambda _: pytest.fail("the run was read"))
    (tmp_path / "text").write_text("not a key\n")
    said = cli(2, "bundle", run, "--sign", tmp_path / "text").err
    assert said.startswith(f"rdma-cts: --sign {tmp_path}/text is not a key of ssh-keygen: ")
    assert "cannot be read: No such file" in cli(2, "bundle", run, "--sign", "nokey").err


@pytest.mark.parametrize("name", ["b", "b.sig"])
def test_only_a_bundle_and_its_signature_are_replaced(name, run, tmp_path, cli):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True
    )
    words = ("bundle", run, "--out", tmp_path / "b", "--sign", tmp_path / "key")
    for content in (b"mine", lzma.compress(b"mine")):
        (tmp_path / name).write_bytes(content)
        assert (
            f"{tmp_path / name} is a file that this command has not written" in cli(2, *words).err
        )
        assert (tmp_path / name).read_bytes() == content
    (tmp_path / name).unlink()
    cli(0, *words)
    cli(0, *words)
    assert "is not of this bundle" not in cli(0, *words[:4]).out
    (tmp_path / "b").write_bytes((tmp_path / "b").read_bytes() + b"\0" * 4)  # padding of xz
    said = cli(0, *words[:4]).out
    assert "replaces a file with a different content" in said
    assert f"{tmp_path}/b.sig is not of this bundle: remove it" in said


@pytest.mark.nightly
def test_a_run_in_which_nothing_is_violated(whole, verified):
    said = verified(0, whole)
    last = said.splitlines()[-1]
    assert re.fullmatch(
        r"no rule was violated; \d+ rules unreachable here.* \(exit status 0\)",
        last,
    )
    assert f"{len(DEFAULT):,} results judged again" in said


def test_a_run_in_which_every_rule_is_verified_is_conformant(eight, cli, verified):
    cli(0, "bundle", eight)
    said = verified(0, eight.with_name("eight.rdma-cts.tar.xz"))
    assert said.splitlines()[-1] == "reference conforms to its documents (exit status 0)"


def waived_run(eight_cases: Suite, folder: Path) -> Path:
    """Records a run with a violation, and a plan that names a file with a waiver for this violation."""
    run = record(folder / "run", eight_cases, eight_cases.cases, started=NOW.isoformat())
    lines = lines_of(run)
    case = lines[1]
    case["observed"] |= {"returned": "NULL", "errno": "EINVAL"}
    expires = NOW.date() + timedelta(days=30)
    (folder / "waivers.yaml").write_text(
        f"waivers:\n  - case: {case['case']}\n    where: {{driver: reference}}\n"
        f"    observed: {{verdict: FAIL, errno: EINVAL}}\n    issue: https://bugs.example/1\n"
        f"    owner: me\n    expires: {expires}\n",
    )
    sha256 = hashlib.sha256((folder / "waivers.yaml").read_bytes()).hexdigest()
    lines[0]["waivers"] = {"file": "waivers.yaml", "sha256": sha256}
    case |= {
        "verdict": "FAIL",
        "effective": "WAIVED",
        "waiver": {"for": case["case"], "issue": "x"},
    }
    written_records(consistent(lines), run)
    planned = tuple(lines[0]["planned"])
    write_plan(
        Plan(
            ("--waivers", "waivers.yaml"),
            str(folder),
            planned,
            eight_cases.tables_sha256,
            "host",
            {},
        ),
        run,
    )
    return run


def test_waivers_are_packed_applied_again_and_counted(eight_cases, tmp_path, cli, verified):
    cli(0, "bundle", waived_run(eight_cases, tmp_path))
    *lines, last = verified(0, tmp_path / "run.rdma-cts.tar.xz").splitlines()
    assert [line.partition(", sha256")[0] for line in lines if line.startswith("waivers:")] == [
        "waivers: waivers.yaml",
    ]
    assert last == ("reference conforms to its documents except for 1 waived rule (exit status 0)")


def test_waivers_changed_since_the_run_are_refused(eight_cases, tmp_path, cli):
    run = waived_run(eight_cases, tmp_path)
    (tmp_path / "waivers.yaml").write_text("waivers: []\n")
    assert "is not the file of waivers that the run had" in cli(2, "bundle", run).err
    assert not (tmp_path / "run.rdma-cts.tar.xz").exists()


def test_waivers_that_a_judged_run_does_not_find_can_be_named(eight_cases, tmp_path, cli):
    """A run that judge has written does not tell where the file was."""
    run = waived_run(eight_cases, tmp_path)
    (run / "plan.json").unlink()
    said = cli(2, "bundle", run).err
    assert (
        said == "rdma-cts: the run's file waivers.yaml is not there; name it with --waivers FILE\n"
    )
    cli(0, "bundle", run, "--waivers", tmp_path / "waivers.yaml")


def test_equal_runs_give_identical_bundles(run, bundle, tmp_path, cli):
    elsewhere = shutil.copytree(run, tmp_path / "elsewhere")
    os.utime(elsewhere / "results.jsonl", (0, 0))
    cli(0, "bundle", elsewhere, "--out", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == bundle.read_bytes()


def test_a_bundle_is_a_tar_that_others_can_read(run, bundle):
    with tarfile.open(bundle) as archive:
        names = archive.getnames()
        data = archive.extractfile("results.jsonl")
        assert data is not None
        assert data.read() == (run / "results.jsonl").read_bytes()
        manifest = json.load(archive.extractfile(MANIFEST) or io.BytesIO())
    assert names[0] == MANIFEST
    assert manifest["suite"]["tables_sha256"] == SUITE.tables_sha256
    assert manifest["run"]["device"] == "reference"
    assert sorted(manifest["files"]) == names[1:]


def test_a_run_with_unfounded_verdicts_is_not_bundled(run, tmp_path, cli):
    shutil.copytree(run, tmp_path / "run")
    lines = lines_of(run)
    next(filter(LINES["passed"], lines))["observed"] = {}
    written_records(consistent(lines), tmp_path / "run")
    assert "nothing was observed" in cli(1, "bundle", tmp_path / "run").err
    assert not (tmp_path / "run.rdma-cts.tar.xz").exists()


def test_an_existing_bundle_is_not_changed_if_the_run_is_invalid(run, bundle, tmp_path, cli):
    before = bundle.read_bytes()
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "points").joinpath("x").mkdir()
    (tmp_path / "run" / "results.jsonl").write_text("{}\n")
    cli(2, "bundle", tmp_path / "run", "--out", bundle)
    assert bundle.read_bytes() == before


@pytest.mark.parametrize(
    "option, said",
    [
        (["--waivers", str(ROOT / "README.md")], "had no waivers; leave out --waivers"),
        (["--waivers", "/proc/none"], "/proc/none cannot be read: No such file or directory"),
        (["--waivers", "/dev/null"], "/dev/null cannot be read: not a regular file"),
        (["--profile", str(ROOT / "README.md")], "had no profile; leave out --profile"),
    ],
)
def test_a_file_that_the_run_did_not_use_is_refused(run, cli, option, said):
    assert said in cli(2, "bundle", run, *option).err


def test_a_console_that_is_a_link_is_left_out(run, tmp_path, cli):
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "console-2.log").symlink_to("/etc/passwd")
    (tmp_path / "run" / "console.log").write_text("the guest is up\n")
    cli(0, "bundle", tmp_path / "run")
    with tarfile.open(tmp_path / "run.rdma-cts.tar.xz") as archive:
        assert [name for name in archive.getnames() if name.startswith("console")] == [
            "console.log",
        ]
