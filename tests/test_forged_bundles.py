"""Bundles whose hashes are right and whose results or facts are forged: `judge` compares them with the observations
and with its own tables."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pytest

from bundled import (
    DEFAULT_IDS,
    LINES,
    NOT_FOUNDED,
    SUITE,
    bundle,
    eight,
    forged,
    loaded,
    run,
    verified,
)
from conformance.results.new_records import footer_record
from conformance.tables.suite import Selection
from reports.bundles.archive import pack
from reports.bundles.claims import claims
from reports.digest import read
from samples import lines_of

__all__ = ["bundle", "eight", "forged", "loaded", "run", "verified"]  # fixtures
CRASHED = {"verdict": "CRASH", "effective": "CRASH", "observed": {}}
FAILED, PASSED = ({"verdict": verdict, "effective": verdict} for verdict in ("FAIL", "PASS"))


@pytest.mark.parametrize(
    "which, change, status, said",
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
def test_forged_lines_are_found(run, forged, which, change, status, said):
    lines = lines_of(run)
    line = next(filter(LINES[which], lines))
    case = line.get("case")
    line.update(change)
    output = forged(status, lines)
    assert said.format(case=case) in output
    assert which not in ("passed", "unsupported") or NOT_FOUNDED in output


def test_a_violation_forged_as_missed_is_undecided(eight, forged):
    lines = lines_of(eight)
    next(filter(LINES["passed"], lines)).update(verdict="MISSED", effective="MISSED", observed=None)
    assert "1 without an observation (1 MISSED)" in forged(3, lines)


def test_planned_cases_without_a_result_are_counted(eight, forged):
    lines = lines_of(eight)
    del lines[5:8]
    output = forged(3, lines)
    assert f"{8 - 3} results judged again; 3 planned cases without a result\n" in output
    assert re.search(r"partial: .*3 planned cases without a result.* \(exit status 3\)", output)


def test_an_unreachable_sweep_needs_only_its_reason_as_evidence(run, forged):
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


def test_a_case_left_out_of_the_plan_is_missed(eight, eight_cases, forged):
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
    claimed = claims(read(folder))
    facts = {name: claimed["run"][name] for name in ("device", "kernel", "tables")} | {
        "judged calls": "about a thousand",
    }
    pack(to, {**claimed, "run": facts, **OTHER, **change}, files)
    return to


def test_a_manifest_of_another_version_may_use_other_words(run, bundle, tmp_path, verified):
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
    "name, value, by_another",
    [
        ("words", "127 of 127 documented rules verified", False),
        ("run", {"kernel": "6.1"}, True),
        ("run", "it was fine", True),
        ("under_test", {"kernel": {"build_id": "0"}}, False),
        ("suite", {}, True),
        ("certified", "yes", False),
    ],
)
def test_a_manifest_with_false_facts_is_refused(run, tmp_path, verified, name, value, by_another):
    if by_another:
        more = {}
    else:
        more = claims(read(run))
    output = verified(2, packed_by_another(run, tmp_path / "forged", **{**more, name: value}))
    assert (
        f"is not a bundle, or was changed: `{name}` of its manifest is not true of the run"
        in output
    )


def test_the_remark_does_not_call_true_what_was_not_compared(run, tmp_path, verified):
    """A different version states facts that this version does not know, or calls by other names."""
    stated = {**claims(read(run))["run"], "exit status": "0", "certified": "yes"}
    output = verified(3, packed_by_another(run, tmp_path / "other", run=stated))
    remark = next(line for line in output.splitlines() if line.startswith("manifest:"))
    assert "exit status" not in remark
    assert "certified" not in remark
    assert "its other entries were not compared" in remark


@pytest.mark.parametrize("by", [None, {"version": ["x"], "engine_sha256": 7}])
def test_a_bundle_without_a_known_version_counts_as_another_versions(run, tmp_path, verified, by):
    output = verified(3, packed_by_another(run, tmp_path / "other", bundled_by=by))
    assert "its other entries were not compared, because a different version wrote them: " in output
    assert output.isascii()


def test_another_version_may_describe_a_rule_by_other_keys(run, forged):
    lines = lines_of(run)
    for texts in lines[0]["rules"].values():
        del texts["failure_means"]
        texts["of interest to"] = "everybody"
    forged(3, lines)
    lines[0]["rules"]["REG-15"]["statement"] = "REMOTE_WRITE is granted"
    assert "the rules of its header are not those of the tables" in forged(2, lines)


@pytest.mark.parametrize("tier", ["smoke", "default"])
def test_planned_cases_outside_their_tier_are_refused(run, forged, tier):
    lines = lines_of(run)
    if tier == "default":
        larger = [case.id for case in SUITE.cases if case.tier == "exhaustive"][:1]
    else:
        larger = DEFAULT_IDS
    planned = list(dict.fromkeys([*lines[0]["planned"], *larger]))
    lines[0].update(tier=tier, planned=planned, left_out=len(SUITE.left_out(planned)))
    assert re.search(rf"planned cases are not of the tier {tier}$", forged(2, lines))


def test_a_part_of_a_tier_is_accepted_and_named_cases_may_be_of_any_tier(run, forged):
    lines = lines_of(run)
    planned = [case.id for case in Selection(tier="exhaustive").apply(SUITE) if not case.hazardous]
    lines[0].update(
        tier="exhaustive",
        planned=planned,
        left_out=len(SUITE.left_out(planned)),
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
    run, tmp_path, forged
):
    lines = lines_of(run)
    lines[0].update({"waivers": given_file(EMPTY), "tier": 5})
    output = forged(2, lines, waivers_yaml=EMPTY)
    assert (
        output
        == f"rdma-cts: {tmp_path / 'forged.xz'}: results.jsonl:1: tier is 5, not a text or null\n"
    )


@pytest.mark.parametrize(
    "member, content",
    [("waivers_yaml", b"waivers: 7"), ("profile_yaml", b"]")],
)
def test_a_bad_member_is_reported_with_the_name_of_the_bundle(
    run, tmp_path, forged, member, content
):
    lines = lines_of(run)
    lines[0][member.removesuffix("_yaml")] = given_file(content)
    output = forged(2, lines, **{member: content})
    assert output.startswith(f"rdma-cts: {tmp_path / 'forged.xz'}: {member.replace('_', '.')}:1:")
