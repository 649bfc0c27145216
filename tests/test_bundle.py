"""`rdma-cts bundle` and `judge BUNDLE`: the conclusions that a bundle supports, and the detection of every change or
forgery."""

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import tarfile
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from commands import judge_bundle
from commands.__main__ import main
from conformance.errors import UserError
from conformance.model.kind import Kind
from conformance.older_python import UTC
from conformance.results.plan import Plan, write_plan
from conformance.results.records import footer_record
from conformance.tables.suite import ROOT, Selection, Suite, load_suite
from conformance.tables.tiers import left_out
from kinds import Cli, Folders, Patch
from recorded_reference import record
from reports import own_tables
from reports.bundles import archive as bundle_file
from reports.bundles.archive import MANIFEST, Manifest, Member, pack, unpack
from reports.bundles.claims import claims
from reports.digest import read
from samples import consistent, lines_of, written_records
from trial.reference.device import Device
from trial.reference.stack import without

SUITE = load_suite()
DEFAULT = Selection(tier="default").apply(SUITE)
DEFAULT_IDS = [case.id for case in DEFAULT]
SOME = [case for case in DEFAULT if case.kind is Kind.ROW and not case.hazardous][::60]
SWEEPS = [case for case in DEFAULT if case.sweep and case.sweep.size <= 16][:2]
NOW = datetime.now(UTC)
Line = dict[str, Any]
Verified = Callable[[int, Path], str]
Forged = Callable[..., str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Folders) -> Path:
    """The bundle of the whole default tier on the reference."""
    folder = tmp_path_factory.mktemp("whole")
    run = record(folder / "run", SUITE, DEFAULT, started=NOW.isoformat())
    assert main(["bundle", str(run), "--out", str(folder / "bundle")]) == 0
    return folder / "bundle"


@pytest.fixture(scope="module")
def run(tmp_path_factory: Folders) -> Path:
    """A run of some cases and two sweeps."""
    cases = [*SOME, *SWEEPS]
    return record(
        tmp_path_factory.mktemp("some") / "run",
        SUITE,
        cases,
        Device(without("odp")),
        started=NOW.isoformat(),
    )


@pytest.fixture
def bundle(run: Path, tmp_path: Path, cli: Cli) -> Path:
    cli(0, "bundle", run, "--out", tmp_path / "bundle")
    return tmp_path / "bundle"


@pytest.fixture
def verified(cli: Cli) -> Verified:
    """Runs `judge`, checks its exit status and that a refusal (status 2) is one line, and returns its whole output."""

    def verify(status: int, bundle: Path) -> str:
        out, err = cli(status, "judge", bundle)
        assert "Traceback" not in err
        assert "error of the suite" not in err
        assert status != 2 or len(err.splitlines()) == 1
        return out + err

    return verify


@pytest.fixture
def forged(run: Path, tmp_path: Path, verified: Verified) -> Forged:
    """Packs these records with a consistent footer and a correct manifest, as a careful forger does; runs `judge` and
    returns its output."""

    def verify(status: int, lines: list[Line], **more: bytes) -> str:
        folder = written_records(consistent(lines), tmp_path / "forged")
        files = {name.replace("_", "."): data for name, data in more.items()}
        for name in ("results.jsonl", *(line.get("points_file") or "" for line in lines)):
            path = (run if name.startswith("points/") else folder) / name
            files |= {name: path.read_bytes()} if path.is_file() else {}
        try:
            said = claims(read(folder))
        except UserError:  # results that cannot be read
            said = {}
        pack(tmp_path / "forged.xz", said, files)
        return verified(status, tmp_path / "forged.xz")

    return verify


# What a bundle supports


def test_a_file_that_is_no_key_is_refused_before_the_run_is_judged(
    run: Path,
    tmp_path: Path,
    monkeypatch: Patch,
    cli: Cli,
) -> None:
    monkeypatch.setattr("commands.bundle.read", lambda _: pytest.fail("the run was read"))
    (tmp_path / "text").write_text("not a key\n")
    said = cli(2, "bundle", run, "--sign", tmp_path / "text").err
    assert said.startswith(f"rdma-cts: --sign {tmp_path}/text is not a key of ssh-keygen: ")
    assert "cannot be read: No such file" in cli(2, "bundle", run, "--sign", "nokey").err


@pytest.mark.nightly
def test_a_run_in_which_nothing_is_violated(whole: Path, verified: Verified) -> None:
    said = verified(0, whole)
    last = said.splitlines()[-1]
    assert re.fullmatch(
        r"partial: \d+ rules unreachable here.*; no rule was violated \(exit status 0\)",
        last,
    )
    assert f"{len(DEFAULT):,} results judged again" in said


@pytest.fixture(autouse=True)
def loaded(monkeypatch: Patch) -> None:
    """Reads the tables once for all tests."""
    monkeypatch.setattr(judge_bundle, "load_suite", lambda _: SUITE)
    monkeypatch.setattr(own_tables, "tables_digest", lambda _: SUITE.tables_sha256)


@pytest.fixture
def eight(eight_cases: Suite, tmp_path: Path) -> Path:
    return record(tmp_path / "eight", eight_cases, eight_cases.cases, started=NOW.isoformat())


def test_a_run_in_which_every_rule_is_verified_is_conformant(
    eight: Path,
    cli: Cli,
    verified: Verified,
) -> None:
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


def test_waivers_are_packed_applied_again_and_counted(
    eight_cases: Suite,
    tmp_path: Path,
    cli: Cli,
    verified: Verified,
) -> None:
    cli(0, "bundle", waived_run(eight_cases, tmp_path))
    *lines, last = verified(0, tmp_path / "run.rdma-cts.tar.xz").splitlines()
    assert [line.partition(", sha256")[0] for line in lines if line.startswith("waivers:")] == [
        "waivers: waivers.yaml",
    ]
    assert last == ("reference conforms to its documents except for 1 waived rule (exit status 0)")


def test_waivers_changed_since_the_run_are_refused(
    eight_cases: Suite,
    tmp_path: Path,
    cli: Cli,
) -> None:
    run = waived_run(eight_cases, tmp_path)
    (tmp_path / "waivers.yaml").write_text("waivers: []\n")
    assert "is not the file of waivers that the run had" in cli(2, "bundle", run).err
    assert not (tmp_path / "run.rdma-cts.tar.xz").exists()


def test_equal_runs_give_identical_bundles(
    run: Path,
    bundle: Path,
    tmp_path: Path,
    cli: Cli,
) -> None:
    elsewhere = shutil.copytree(run, tmp_path / "elsewhere")
    os.utime(elsewhere / "results.jsonl", (0, 0))
    cli(0, "bundle", elsewhere, "--out", tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == bundle.read_bytes()


def test_a_bundle_is_a_tar_that_others_can_read(run: Path, bundle: Path) -> None:
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


# What `judge` reports as changed


SAMPLE: Mapping[str, bytes] = {
    "results.jsonl": b"one\n",
    "console.log": b"x" * 700,
    f"points/{'n' * 180}.json": b"{}",
}


def test_every_changed_byte_and_every_truncation_is_found(tmp_path: Path) -> None:
    path, folder = tmp_path / "bundle", tmp_path / "folder"
    pack(path, {"words": "as they are"}, SAMPLE)
    data = path.read_bytes()
    for number in range(len(data)):
        for rest in (bytes([data[number] ^ (1 << number % 8)]) + data[number + 1 :], b""):
            path.write_bytes(data[:number] + rest)
            folder.mkdir()
            with pytest.raises(UserError, match="is not a bundle, or was changed"):
                unpack(path, folder)
            shutil.rmtree(folder)


InTar = tuple[tarfile.TarInfo, bytes]


def named(name: str, **fields: Any) -> tarfile.TarInfo:
    """Returns the header of a member with these fields."""
    member = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(member, field, value)
    return member


def tar_of(*members: InTar) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for member, data in members:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def xz(*members: InTar) -> bytes:
    """Returns the archive of these members, compressed with xz."""
    return lzma.compress(tar_of(*members))


def manifest_of(files: Mapping[str, bytes], **more: Any) -> bytes:
    return Manifest(more, {name: Member.of(data) for name, data in files.items()}).encoded()


GOOD = {"results.jsonl": b"one\n"}
FIRST = (named(MANIFEST), manifest_of(GOOD))
RESULT = (named("results.jsonl"), GOOD["results.jsonl"])


def claimed(manifest: bytes, *more: InTar) -> bytes:
    """Returns an archive with this manifest, these members, and the results."""
    return xz((named(MANIFEST), manifest), *more, RESULT)


def instead(data: bytes, **fields: Any) -> bytes:
    """Returns an archive with the good manifest, whose member for the results has these data and header fields."""
    return xz(FIRST, (named("results.jsonl", **fields), data))


HOSTILE: Mapping[str, Callable[[], bytes]] = {
    "an empty file": lambda: b"",
    "text": lambda: b"no bundle\n",
    "a tar that is not compressed": lambda: tar_of(FIRST, RESULT),
    "no manifest": lambda: xz(RESULT),
    "the manifest not first": lambda: xz(RESULT, FIRST),
    "a manifest that is not JSON": lambda: claimed(b"{" * 999),
    "a manifest nested too deeply": lambda: claimed(b"[" * 99_999),
    "a manifest of another schema": lambda: claimed(b'{"schema": "x/1"}'),
    "a manifest with its files twice": lambda: claimed(
        manifest_of(GOOD).replace(b'"files"', b'"files": {}, "files"'),
    ),
    "a path that leads out": lambda: claimed(
        manifest_of({"../../evil": b"evil", **GOOD}),
        (named("../../evil"), b"evil"),
    ),
    "a path that leads out of points": lambda: claimed(
        manifest_of({"points/../x.json": b"", **GOOD}),
    ),
    "an absolute path": lambda: claimed(
        manifest_of({"/tmp/evil": b"", **GOOD}),
        (named("/tmp/evil"), b""),
    ),
    "a name with a control character": lambda: claimed(
        manifest_of({"points/\x1b[2J.json": b"", **GOOD}),
    ),
    "a symbolic link": lambda: instead(b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
    "a hard link": lambda: instead(b"", type=tarfile.LNKTYPE, linkname=MANIFEST),
    "a device": lambda: instead(b"", type=tarfile.CHRTYPE),
    "a missing member": lambda: xz(FIRST),
    "an additional member": lambda: xz(FIRST, RESULT, (named("console.log"), b"x")),
    "a member twice": lambda: xz(FIRST, RESULT, RESULT),
    "a byte changed": lambda: instead(b"two\n"),
    "another size": lambda: instead(b"one\none\n"),
    "another owner": lambda: instead(b"one\n", uid=1000),
    "a size of 8 GiB": lambda: lzma.compress(
        named(MANIFEST, size=8 << 30).tobuf() + bytes(1 << 20),
    ),
    "a negative size": lambda: lzma.compress(
        named(MANIFEST, size=-1).tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20),
    ),
    "files of 1 TiB": lambda: claimed(
        manifest_of(GOOD).replace(b'"size": 4', b'"size": 1099511627776'),
    ),
    "a bomb behind the end": lambda: _packed()[:-12] + lzma.compress(bytes(64 << 20)),
    "another stream behind the end": lambda: _packed() + lzma.compress(b"more"),
    "a byte behind the end": lambda: _packed() + b"\0",
    "xz without a check": lambda: _packed(lzma.CHECK_NONE),
    "xz with CRC32": lambda: _packed(lzma.CHECK_CRC32),
    "xz with CRC64": lambda: _packed(lzma.CHECK_CRC64),
    "a memory limit": lambda: lzma.compress(
        tar_of(FIRST, RESULT),
        filters=[{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 29}],
    ),
}


def _packed(check: int = lzma.CHECK_SHA256) -> bytes:
    compressor = lzma.LZMACompressor(lzma.FORMAT_XZ, check, preset=6)
    content = tar_of(FIRST, RESULT)[: 4 * 512 + 1024]
    return compressor.compress(content) + compressor.flush()


def test_a_repacked_bundle_is_refused_because_a_member_has_another_header(
    tmp_path: Path,
    verified: Verified,
) -> None:
    (tmp_path / "bundle").write_bytes(xz((named(MANIFEST, uid=1000), FIRST[1]), RESULT))
    said = verified(2, tmp_path / "bundle")
    assert "begin with" not in said
    assert (
        "is not a bundle, or was changed: the archive differs from what `bundle` writes, at manifest.json"
        in said
    )


def test_a_bundle_of_another_version_is_refused_as_such(tmp_path: Path, verified: Verified) -> None:
    other = manifest_of(GOOD).replace(b"rdma-cts-bundle/1", b"rdma-cts-bundle/2")
    (tmp_path / "bundle").write_bytes(claimed(other))
    assert verified(2, tmp_path / "bundle") == (
        f"rdma-cts: {tmp_path / 'bundle'} is a bundle of another version, rdma-cts-bundle/2; this version reads "
        "rdma-cts-bundle/1; use the version of rdma-cts that wrote this file\n"
    )


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused_in_one_line_and_writes_nothing(
    what: str,
    tmp_path: Path,
    verified: Verified,
) -> None:
    path = tmp_path / "bundle"
    path.write_bytes(HOSTILE[what]())
    said = verified(2, path)
    assert "is not a bundle, or was changed: " in said
    assert said.isascii()
    assert "\x1b" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_a_fifo_is_not_waited_for(tmp_path: Path, verified: Verified) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "cannot be read: not a regular file" in verified(2, tmp_path / "fifo")


def test_a_bomb_within_the_bounds_of_its_manifest_is_refused(
    tmp_path: Path,
    monkeypatch: Patch,
    verified: Verified,
) -> None:
    pack(tmp_path / "bundle", {}, {**GOOD, "console.log": bytes(1 << 20)})
    assert (tmp_path / "bundle").stat().st_size < 2000
    monkeypatch.setattr(bundle_file, "MOST_BYTES", 1 << 19)
    assert "it is too large: a bundle has at most 0 MiB unpacked" in verified(
        2,
        tmp_path / "bundle",
    )


def test_the_packed_sample_is_a_bundle_with_the_right_checksum(tmp_path: Path) -> None:
    (tmp_path / "bundle").write_bytes(_packed())
    (tmp_path / "folder").mkdir()
    assert unpack(tmp_path / "bundle", tmp_path / "folder")[0].files.keys() == GOOD.keys()


# Forgeries with correct hashes


CRASHED = {"verdict": "CRASH", "effective": "CRASH", "observed": {}}
FAILED, PASSED = ({"verdict": verdict, "effective": verdict} for verdict in ("FAIL", "PASS"))
NOT_FOUNDED = "nothing: 1 recorded verdict not supported by the observations (exit status 1)"
# How to find the line that a test changes.
LINES: dict[str, Callable[[Line], object]] = {
    "head": lambda line: line["type"] == "header",
    "passed": lambda line: line.get("verdict") == "PASS" and line["observed"],
    "unsupported": lambda line: line.get("verdict") == "UNSUPPORTED",
    "swept": lambda line: line.get("points"),
}


@pytest.mark.parametrize(
    ("which", "change", "status", "said"),
    [
        (
            "unsupported",
            PASSED,
            1,
            "{case}: verdict is recorded as PASS, but should be UNSUPPORTED",
        ),
        ("passed", {"observed": None}, 1, "PASS of {case}: nothing was observed"),
        (
            "passed",
            {**CRASHED, "rules": ["REG-17", "API-01"]},
            1,
            "rules is recorded as ['REG-17', 'API-01']",
        ),
        (
            "passed",
            {**CRASHED, "rule_verdicts": {"REG-17": "PASS"}},
            1,
            "rule_verdicts is recorded as",
        ),
        (
            "passed",
            {**FAILED, "case": "a/b/c\n\x1b[31m"},
            1,
            "FAIL of a/b/c??[31m: the case no longer exists",
        ),
        (
            "passed",
            {**CRASHED, "case": "reg_mr/no/such"},
            1,
            "CRASH of reg_mr/no/such: the case no longer exists",
        ),
        (
            "passed",
            {"case": "reg_mr/no/such"},
            1,
            "PASS of reg_mr/no/such: the case no longer exists",
        ),
        ("swept", {"points": {"PASS": 1}}, 1, "{case}: points is recorded as"),
        (
            "swept",
            {"points_file": "points/none.json"},
            2,
            "directory; the points of sweeps are in points/ next to",
        ),
        (
            "head",
            {"suite": {"tables_sha256": "f" * 64}},
            2,
            "was made with the tables ffffffffffff",
        ),
    ],
)
def test_forged_lines_are_found(
    run: Path,
    forged: Forged,
    which: str,
    change: Line,
    status: int,
    said: str,
) -> None:
    lines = lines_of(run)
    line = next(filter(LINES[which], lines))
    case = line.get("case")
    line.update(change)
    output = forged(status, lines)
    assert said.format(case=case) in output
    assert which not in ("passed", "unsupported") or NOT_FOUNDED in output


def test_a_violation_forged_as_missed_is_undecided(eight: Path, forged: Forged) -> None:
    lines = lines_of(eight)
    next(filter(LINES["passed"], lines)).update(verdict="MISSED", effective="MISSED", observed=None)
    assert "1 without an observation (1 MISSED)" in forged(3, lines)


def test_planned_cases_without_a_result_are_counted(eight: Path, forged: Forged) -> None:
    lines = lines_of(eight)
    del lines[5:8]
    output = forged(3, lines)
    assert f"{8 - 3} results judged again; 3 planned cases without a result\n" in output
    assert re.search(r"partial: .*3 planned cases without a result.* \(exit status 3\)", output)


def test_an_unreachable_sweep_needs_only_its_reason_as_evidence(run: Path, forged: Forged) -> None:
    lines = lines_of(run)
    sweep = next(filter(LINES["swept"], lines))
    for key in ("points", "points_file", "rule_verdicts", "deviations", "space"):
        sweep.pop(key, None)
    case = SUITE.find(sweep["case"])
    assert case is not None
    sweep.update(
        verdict="UNREACHABLE",
        effective="UNREACHABLE",
        observed={"unreachable": "no huge pages"},
        expected={"outcome": "open"},
        call=str(case.when),
        rules=list(case.rules),
    )
    assert NOT_FOUNDED not in forged(3, lines)
    sweep.update(verdict="PASS", effective="PASS", observed={"returned": "mr"})
    assert "PASS of" in forged(1, lines)


def test_a_case_left_out_of_the_plan_is_missed(
    eight: Path,
    eight_cases: Suite,
    forged: Forged,
) -> None:
    lines = lines_of(eight)
    gone = lines.pop(5)
    lines[0]["planned"].remove(gone["case"])
    lines[0]["left_out"] = 1
    results: list[Any] = [line for line in lines if line["type"] == "result"]
    lines[-1] |= footer_record(lines[0]["planned"], results, eight_cases.registry, duration_s=1.0)
    assert "1 case of the default tier not in the run" in forged(3, lines)


# Fields of a manifest that another version wrote, with words that this version does not use.
OTHER = {
    "bundled_by": {"version": "0.2.0", "engine_sha256": "e" * 64},
    "words": "127 rules, all of them verified",
}


def packed_by_another(folder: Path, to: Path, **change: Any) -> Path:
    """Packs a bundle of the run with the manifest of another version, which has an unknown fact."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json*")}
    claims_made = claims(read(folder))
    facts = {name: claims_made["run"][name] for name in ("device", "kernel", "tables")} | {
        "judged calls": "about a thousand",
    }
    pack(to, {**claims_made, "run": facts, **OTHER, **change}, files)
    return to


def test_a_manifest_of_another_version_may_use_other_words(
    run: Path,
    bundle: Path,
    tmp_path: Path,
    verified: Verified,
) -> None:
    verified_here, lines = (
        verified(3, bundle),
        verified(3, packed_by_another(run, tmp_path / "other")).splitlines(),
    )
    remark = next(line for line in lines if line.startswith("manifest:"))
    facts = remark.partition("true of the run: ")[2].partition(";")[0].split(", ")
    assert set(facts) == {"device", "kernel", "tables"}
    assert remark.endswith(
        "; its other entries were not compared, because a different version wrote them: "
        "0.2.0 (eeeeeeeeeeee)"
    )
    assert lines[-2:] == verified_here.splitlines()[-2:]
    assert "manifest:" not in verified_here


@pytest.mark.parametrize(
    ("name", "value", "by_another"),
    [
        ("words", "127 of 127 documented rules verified", False),
        ("run", {"kernel": "6.1"}, True),
        ("run", "it was fine", True),
        ("under_test", {"kernel": {"build_id": "0"}}, False),
        ("suite", {}, True),
        ("certified", "yes", False),
    ],
)
def test_a_manifest_with_false_facts_is_refused(
    run: Path,
    tmp_path: Path,
    verified: Verified,
    name: str,
    value: object,
    by_another: bool,
) -> None:
    if by_another:
        more = {}
    else:
        more = claims(read(run))
    output = verified(2, packed_by_another(run, tmp_path / "forged", **{**more, name: value}))
    assert (
        f"is not a bundle, or was changed: `{name}` of its manifest is not true of the run"
        in output
    )


def test_the_remark_does_not_call_true_what_was_not_compared(
    run: Path, tmp_path: Path, verified: Verified
) -> None:
    """A different version states facts that this version does not know, or calls by other names."""
    stated = {**claims(read(run))["run"], "exit status": "0", "certified": "yes"}
    output = verified(3, packed_by_another(run, tmp_path / "other", run=stated))
    remark = next(line for line in output.splitlines() if line.startswith("manifest:"))
    assert "exit status" not in remark
    assert "certified" not in remark
    assert "its other entries were not compared" in remark


@pytest.mark.parametrize("by", [None, {"version": ["x"], "engine_sha256": 7}])
def test_a_bundle_without_a_known_version_counts_as_another_versions(
    run: Path,
    tmp_path: Path,
    verified: Verified,
    by: object,
) -> None:
    output = verified(3, packed_by_another(run, tmp_path / "other", bundled_by=by))
    assert "its other entries were not compared, because a different version wrote them: " in output
    assert output.isascii()


def test_another_version_may_describe_a_rule_by_other_keys(run: Path, forged: Forged) -> None:
    lines = lines_of(run)
    for texts in lines[0]["rules"].values():
        del texts["failure_means"]
        texts["of interest to"] = "everybody"
    forged(3, lines)
    lines[0]["rules"]["REG-15"]["statement"] = "REMOTE_WRITE is granted"
    assert "the rules of its header are not those of the tables" in forged(2, lines)


@pytest.mark.parametrize("tier", ["smoke", "default"])
def test_planned_cases_outside_their_tier_are_refused(run: Path, forged: Forged, tier: str) -> None:
    lines = lines_of(run)
    if tier == "default":
        larger = [case.id for case in SUITE.cases if case.tier == "exhaustive"][:1]
    else:
        larger = DEFAULT_IDS
    planned = list(dict.fromkeys([*lines[0]["planned"], *larger]))
    lines[0].update(tier=tier, planned=planned, left_out=len(left_out(SUITE.cases, planned)))
    assert re.search(rf"planned cases are not of the tier {tier}$", forged(2, lines))


def test_a_part_of_a_tier_is_accepted_and_named_cases_may_be_of_any_tier(
    run: Path,
    forged: Forged,
) -> None:
    lines = lines_of(run)
    planned = [case.id for case in Selection(tier="exhaustive").apply(SUITE) if not case.hazardous]
    lines[0].update(
        tier="exhaustive",
        planned=planned,
        left_out=len(left_out(SUITE.cases, planned)),
    )
    forged(3, lines)
    larger = next(case.id for case in SUITE.cases if case.tier == "exhaustive")
    lines = lines_of(run)
    lines[0]["planned"].append(larger)
    lines[0].update(tier="default", argv=["run", f"--only={larger}"])
    forged(3, lines)


EMPTY = b"waivers: []\n"


def given_file(content: bytes) -> dict[str, str]:
    """Returns the value in a header for a file of waivers or a profile with this content."""
    return {"file": "x.yaml", "sha256": hashlib.sha256(content).hexdigest()}


def test_a_bad_line_is_reported_with_the_name_of_the_bundle_and_of_the_member(
    run: Path,
    tmp_path: Path,
    forged: Forged,
) -> None:
    lines = lines_of(run)
    lines[0].update({"waivers": given_file(EMPTY), "tier": 5})
    output = forged(2, lines, waivers_yaml=EMPTY)
    assert (
        output
        == f"rdma-cts: {tmp_path / 'forged.xz'}: results.jsonl:1: tier is 5, not a text or null\n"
    )


@pytest.mark.parametrize(
    ("member", "content"),
    [("waivers_yaml", b"waivers: 7"), ("profile_yaml", b"]")],
)
def test_a_bad_member_is_reported_with_the_name_of_the_bundle(
    run: Path,
    tmp_path: Path,
    forged: Forged,
    member: str,
    content: bytes,
) -> None:
    lines = lines_of(run)
    lines[0][member.removesuffix("_yaml")] = given_file(content)
    output = forged(2, lines, **{member: content})
    assert output.startswith(f"rdma-cts: {tmp_path / 'forged.xz'}: {member.replace('_', '.')}:1:")


# Runs that cannot be bundled


def test_a_run_with_unfounded_verdicts_is_not_bundled(run: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(run, tmp_path / "run")
    lines = lines_of(run)
    next(filter(LINES["passed"], lines))["observed"] = {}
    written_records(consistent(lines), tmp_path / "run")
    assert "nothing was observed" in cli(1, "bundle", tmp_path / "run").err
    assert not (tmp_path / "run.rdma-cts.tar.xz").exists()


def test_an_existing_bundle_is_not_changed_if_the_run_is_invalid(
    run: Path,
    bundle: Path,
    tmp_path: Path,
    cli: Cli,
) -> None:
    before = bundle.read_bytes()
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "points").joinpath("x").mkdir()
    (tmp_path / "run" / "results.jsonl").write_text("{}\n")
    cli(2, "bundle", tmp_path / "run", "--out", bundle)
    assert bundle.read_bytes() == before


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--waivers", str(ROOT / "README.md")], "had no waivers; leave out --waivers"),
        (["--profile", "/proc/none"], "/proc/none cannot be read: No such file or directory"),
        (["--profile", "/dev/null"], "/dev/null cannot be read: not a regular file"),
    ],
)
def test_a_file_that_the_run_did_not_use_is_refused(
    run: Path,
    cli: Cli,
    option: list[str],
    said: str,
) -> None:
    assert said in cli(2, "bundle", run, *option).err


def test_a_console_that_is_a_link_is_left_out(run: Path, tmp_path: Path, cli: Cli) -> None:
    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "console-2.log").symlink_to("/etc/passwd")
    (tmp_path / "run" / "console.log").write_text("the guest is up\n")
    cli(0, "bundle", tmp_path / "run")
    with tarfile.open(tmp_path / "run.rdma-cts.tar.xz") as archive:
        assert [name for name in archive.getnames() if name.startswith("console")] == [
            "console.log",
        ]
