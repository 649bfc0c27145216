"""The conclusion about a run has the same words everywhere, and is "conforms" only if no rule and no case is left
open."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from commands.report import renderer
from conformance.errors import UserError
from conformance.model.record import FooterRecord
from conformance.model.rules import VENDOR, Needs
from conformance.model.verdict import Verdict
from conformance.results.conclusions import RunConclusion, conclude_run
from conformance.results.records import read_results
from conformance.results.rule_conclusions import RuleConclusion
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from kinds import Cli, Folders
from one_verdict import contradictions
from recorded_reference import is_dear, record
from reference.device import Device
from reference.stack import without
from reports.digest import read
from reports.history import Facts, facts_of
from reports.terminal import NORMAL, QUIET, VERBOSE, summary
from samples import lines_of, written_records

SUITE = load_suite()
(CASE,) = (case for case in SUITE.cases if case.id == "reg_mr/rights/remote-read-granted-by-remote-read")
CONFORMS = re.compile(r"\bconform(s|ant)\b|\b[1-9]\d* of \d+ hosts? conform")
OTHERS = f"{sum(rule.since != VENDOR for rule in SUITE.registry.values()) - 1:,} rules without a case"
PARTIAL = (
    f"partial: {OTHERS}, {len(of_tier(SUITE.cases, DEFAULT)) - 1:,} cases of the default tier not in the run, "
    "1 rule passed only in part"
)


@pytest.fixture(scope="module")
def one(tmp_path_factory: Folders) -> Path:
    """A run of one case, which passes."""
    folder = tmp_path_factory.mktemp("one")
    return record(folder, SUITE, [CASE], started="2026-01-02T03:04:05+00:00")


@pytest.mark.parametrize("of", ["html", "junit", "ktap", "markdown", "summary"])
def test_no_report_of_one_case_says_that_the_device_conforms(one: Path, tmp_path: Path, of: str, cli: Cli) -> None:
    out = tmp_path / "report"
    cli(0, "report", one, "--format", of, "--out", out)
    text = out.read_text()
    assert PARTIAL in re.sub(r"\\(.)", r"\1", text)
    assert not CONFORMS.search(text)


@pytest.mark.parametrize("level", [QUIET, NORMAL, VERBOSE])
def test_the_terminal_does_not_say_that_one_case_conforms(one: Path, level: int) -> None:
    text = summary(read(one), one, level=level)
    assert text.splitlines()[-1] == f"{PARTIAL}; no rule was violated (exit status 0)"
    assert not CONFORMS.search(text)


def test_judge_bundle_and_verify_do_not_say_that_one_case_conforms(one: Path, tmp_path: Path, cli: Cli) -> None:
    bundle = tmp_path / "bundle"
    for status, *command in ((0, "judge", one), (0, "bundle", one, "--out", bundle), (3, "verify", bundle)):
        text = cli(status, *command).out
        assert PARTIAL in text
        assert not CONFORMS.search(text)


class Refusing(Device):
    """Every registration is refused."""

    def access_fault(self, access: int) -> int:
        return 22


def test_a_violation_counts_everywhere_although_the_run_was_cut_short(tmp_path: Path, cli: Cli) -> None:
    run = record(tmp_path, SUITE, [CASE], Refusing(), started="2026-01-02T03:04:05+00:00")
    known = read(written_records(lines_of(run)[:-1], run))
    assert known.status == 1
    assert known.conclusion.endswith(" violated (cut short)")
    assert known.conclusion in cli(1, "judge", run).out
    assert known.conclusion in cli(0, "bundle", run, "--out", tmp_path / "bundle").out
    assert known.conclusion in cli(1, "verify", tmp_path / "bundle").out


def concluded(verdicts: Sequence[str], left_out: int | None = 0, unrecorded: int = 0, **more: str) -> RunConclusion:
    """Returns the conclusion about a run with a rule for each of these verdicts; `more` has conditional rules."""
    rules = {f"R-{number}": RuleConclusion(Verdict(each)) for number, each in enumerate(verdicts)}
    rules |= {rule: RuleConclusion(Verdict(each)) for rule, each in more.items()}
    found: dict[str, int] = {}
    for each in rules.values():
        found[each.verdict] = found.get(each.verdict, 0) + 1
    footer: FooterRecord = {
        "type": "footer",
        "complete": not unrecorded,
        "verdicts": found,
        "rules": {},
        "rule_totals": {},
        "points": 0,
        "duration_s": 1.0,
    }
    needs = Needs(conditional=frozenset(more))
    return conclude_run("x0", footer, [*rules], rules, needs, left_out=left_out, unrecorded=unrecorded)


def test_a_whole_run_without_anything_left_conforms() -> None:
    found = concluded(["PASS", "UNSUPPORTED", "WAIVED"], other="UNREACHABLE")
    assert (found.words, found.conforms) == ("x0 conforms to its documents except for 1 waived rule", True)


@pytest.mark.parametrize(
    ("found", "left"),
    [
        (concluded(["PASS", "UNREACHABLE"]), "1 rule unreachable here"),
        (concluded(["PASS"], left_out=2), "2 cases of the default tier not in the run"),
        (concluded(["PASS"], left_out=None), "it is unknown how much of the default tier was run"),
        (concluded(["PASS", "BROKEN"]), "1 rule undecided"),
        (concluded(["PASS"], unrecorded=1), "1 planned case without a result"),
        (concluded(["UNSUPPORTED", "UNSUPPORTED"]), "no rule verified"),
        (concluded([]), "no rule verified"),
    ],
)
def test_an_incomplete_run_is_partial_and_names_the_gap(found: RunConclusion, left: str) -> None:
    assert found.words == f"partial: {left}; no rule was violated"
    assert not found.conforms


def test_a_violation_outranks_whatever_is_left() -> None:
    found = concluded(["PASS", "FAIL", "CRASH"], left_out=7)
    assert (found.words, found.status) == ("x0 does not conform to its documents: 2 rules violated", 1)


def test_a_run_that_claims_other_tables_is_not_believed(one: Path, tmp_path: Path) -> None:
    header, *results, footer = lines_of(one)
    header["suite"]["tables_sha256"] = "1" * 64
    said = read(written_records([header, *results, footer], tmp_path)).conclusion
    assert f" {header['left_out']:,} cases of the default tier not in the run" in said
    header |= {"left_out": 0, "rules": {rule: header["rules"][rule] for rule in footer["rules"]}}
    said = read(written_records([header, *results, footer], tmp_path)).conclusion
    assert "it is unknown how much of the default tier was run" in said


@pytest.mark.parametrize("changed", [{"conclusion": "x0 conforms to its documents"}, {"exit_status": 0}])
def test_a_summary_that_contradicts_itself_is_damaged(one: Path, tmp_path: Path, changed: dict[str, object]) -> None:
    known = json.loads(str(renderer("summary").render([read(one)])))
    rule = next(iter(known["rules"]))
    violated = {**known, "rules": {**known["rules"], rule: "FAIL"}, "exit_status": 1}
    assert Facts.of(violated).rules[rule] == "FAIL"
    (tmp_path / "summary.json").write_text(json.dumps({**violated, **changed}))
    with pytest.raises(UserError, match=r"summary\.json is damaged"):
        facts_of(tmp_path)


class NoOffsets(Device):
    """ZERO_BASED and HUGETLB are answered with EOPNOTSUPP."""

    def access_fault(self, access: int) -> int:
        return 95 if access & (1 << 5 | 1 << 7) else super().access_fault(access)


def check(directory: Path, device: Device, most_points: int) -> list[str]:
    cases = [case for case in of_tier(SUITE.cases, DEFAULT) if case.verb in ("ibv_rereg_mr", "ibv_reg_mr")]
    fast = [case for case in cases if (case.sweep is None or case.sweep.size <= most_points) and not is_dear(case)]
    path = record(directory, SUITE, fast, device)
    return contradictions(SUITE.cases, read_results(path), path)


DEVICES = (Device(without("odp", "rereg_mr")), Device(), NoOffsets(), Device(without("rereg_translation")))


@pytest.mark.parametrize(
    ("device", "most_points"),
    [(DEVICES[0], 256), *(pytest.param(each, 2048, marks=pytest.mark.nightly) for each in DEVICES)],
)
def test_equal_answers_have_equal_verdicts(tmp_path: Path, device: Device, most_points: int) -> None:
    assert check(tmp_path, device, most_points) == []
