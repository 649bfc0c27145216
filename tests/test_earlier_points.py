"""Comparisons with an earlier run that judged only some points of a case, and whose files of points are missing."""

import shlex
from array import array
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from conformance.defects import cause_of, symptoms_of
from conformance.errors import PROGRAM, command
from conformance.model.combinations import LACKING
from conformance.model.fault import Fault, FaultKind
from conformance.model.point_index import encode_index
from conformance.model.record import ResultRecord
from conformance.model.record_shape import completed
from conformance.tables.suite import ROOT
from reports import bisection
from reports.compared.changes import (
    FAILING,
    NEW,
    NEW_KINDS,
    NEWLY_WRONG,
    REGRESSED,
    UNKNOWN,
    amount,
)
from reports.compared.comparison import Comparison, compare
from reports.compared.formats import as_json
from reports.compared.text import text
from reports.digest import digest, read
from reports.novelty import Novelty
from samples import footer_of, header, recorded, result
from test_comparison import SUITE

CASE = SUITE.cases[0]
AXES = {"access": {"subsets": ["REMOTE_WRITE", "ON_DEMAND"]}, "op": ["RDMA_READ", "RDMA_WRITE"]}
CLAUSES = [
    {"if": "ON_DEMAND", "needs": ["odp"]},
    {"if": "ON_DEMAND & REMOTE_WRITE", "then": "success", "rule": "REG-12"},
    {"then": "refused", "rule": "REG-05"},
]


def deviation(smallest: str, count: int = 1, rule: str = "REG-05", **more: Any) -> dict[str, Any]:
    labels = dict(part.split("=") for part in smallest.split(","))
    return {"when": "always", "smallest": labels, "count": count, "rules": [rule], **more}


def swept(*deviations: dict[str, Any], unsupported: int = 0, **more: Any) -> ResultRecord:
    """Returns the result of a sweep of eight points, at four of which odp is needed."""
    failed = sum(item["count"] for item in deviations)
    counts = {"PASS": 8 - unsupported - failed, "UNSUPPORTED": unsupported, "FAIL": failed}
    fields: dict[str, Any] = {
        "rules": ["REG-05", "REG-12"],
        "expected": {"clauses": CLAUSES},
        "space": {"axes": AXES, "size": 8, "tries": False},
        "points": {verdict: count for verdict, count in counts.items() if count},
        "rule_verdicts": {"REG-05": "PASS", "REG-12": "UNSUPPORTED" if unsupported else "PASS"},
        "deviations": list(deviations),
    }
    fields["rule_verdicts"] |= {rule: "FAIL" for item in deviations for rule in item["rules"]}
    return result(CASE, "FAIL" if deviations else "PASS", **{**fields, **more})


def comparison(
    before: ResultRecord, after: ResultRecord, has_odp: bool = True, waivers: Any = None
) -> Comparison:
    old, new = (
        recorded([line], device={**header()["device"], "caps": {"odp": odp}})
        for line, odp in ((before, False), (after, has_odp))
    )
    if waivers:
        footer_of(new)["waivers"] = waivers
    return compare(digest(old.shown(), Path()), digest(new.shown(), Path()))


READ, OF_ODP = "access=none,op=RDMA_READ", "access=ON_DEMAND,op=RDMA_READ"
NEEDS_ODP = "access=REMOTE_WRITE+ON_DEMAND,op=RDMA_WRITE"
KINDS = {
    "a rule of which no point was judged": (deviation(NEEDS_ODP, 2, "REG-12"), NEWLY_WRONG),
    "one point that needs what was lacking": (deviation(OF_ODP), NEWLY_WRONG),
    "points that all need it": (deviation(OF_ODP, 2, clause="ON_DEMAND"), NEWLY_WRONG),
    "a formula of such points": (deviation(OF_ODP, 2, when="access=ON_DEMAND"), NEWLY_WRONG),
    "one point that was judged": (deviation(READ), REGRESSED),
    "a group with such a point": (deviation(READ, 3), REGRESSED),
    "more points than were unsupported": (deviation(OF_ODP, 5), REGRESSED),
    "perhaps with a point that was judged": (deviation(OF_ODP, 3), UNKNOWN),
    "a formula that cannot be read": (deviation(OF_ODP, 2, when="none=such"), UNKNOWN),
}


@pytest.mark.parametrize("wrong, kind", KINDS.values(), ids=KINDS)
def test_the_needs_of_points_tell_what_is_newly_supported(wrong, kind):
    here = comparison(swept(unsupported=4), swept(wrong))
    assert [(change.kind, here.status) for change in here.changes] == [(kind, 1)]
    assert here.defects.newly_found == here.defects.by_kind[NEW if kind == REGRESSED else kind]


def test_a_judged_point_among_newly_supported_ones_is_a_regression():
    wrong = [deviation(READ, 1), deviation(NEEDS_ODP, 2, "REG-12")]
    here = comparison(swept(unsupported=4), swept(*wrong))
    assert [change.kind for change in here.changes] == [REGRESSED]


def test_stacks_with_the_same_capabilities_regress():
    after = swept(deviation(OF_ODP, 2), unsupported=4, rule_verdicts={"REG-05": "FAIL"})
    assert [change.kind for change in comparison(swept(unsupported=4), after, False).changes] == [
        REGRESSED
    ]


def test_a_dead_kernel_leaves_open_which_point_has_killed_it():
    after = result(CASE, "CRASH", rules=["REG-05", "REG-12"])
    here = comparison(swept(unsupported=4), after)
    assert [(change.kind, here.status) for change in here.changes] == [(UNKNOWN, 1)]


def test_a_device_that_offers_what_it_does_not_declare_leaves_open_what_was_judged():
    here = comparison(swept(unsupported=2), swept(deviation(OF_ODP)))
    assert [change.kind for change in here.changes] == [UNKNOWN]


@pytest.mark.parametrize("count, kind", [(1, NEWLY_WRONG), (2, UNKNOWN)])
@pytest.mark.parametrize("states, judged", [("rrnn", False), ("rrrn", True)])
def test_a_pair_of_values_that_no_judged_point_has_tells_it_in_a_model(states, judged, count, kind):
    pairs = {"parameters": {"region": ["plain", "ex"], "size": ["byte", "page"]}, "states": states}
    model: dict[str, Any] = {"space": {}, "points": {}, "expected": {}, "pairs": pairs}
    model["evidence"] = [{"shows": "s", "on": "o", "lacking": "reg_mr_ex"}]
    counts = {"reason": "4 points: 2 PASS, 2 UNSUPPORTED; and more"}
    after = swept(deviation("region=ex", count), **{**model, "evidence": []})
    here = comparison(swept(unsupported=2, **model, **counts), after)
    assert [change.kind for change in here.changes] == [UNKNOWN if judged else kind]


SEEN = {"model": "d", "strength": 2, "iba": True, "lacking": ["reg_mr_ex"]}
CLASSES = [{"answer": {}, "observed": {}}, {"answer": {}, "observed": {"setup_failed": "ENOMEM"}}]
# The classes of four points in the old and in the new run, and the number of wrong points.
JUDGED = {
    "the same points": ([0, 0, 1, LACKING], [0, 0, 1, LACKING], 1, REGRESSED),
    "fewer points": ([0, 0, 0, LACKING], [0, 0, 1, LACKING], 1, REGRESSED),
    "a set-up that failed": ([0, 0, 1, LACKING], [0, 0, 0, LACKING], 1, UNKNOWN),
    "a capability that was lacking": ([0, 0, 0, LACKING], [0, 0, 0, 0], 1, UNKNOWN),
    "more wrong points than that": ([0, 0, 0, LACKING], [0, 0, 0, 0], 2, REGRESSED),
    "a damaged file": ([0, 0, 0, LACKING], [0, 0, 7, LACKING], 1, UNKNOWN),
}


@pytest.mark.parametrize("before, now, count, kind", JUDGED.values(), ids=JUDGED)
def test_a_model_whose_points_were_all_judged_before_regresses(before, now, count, kind):
    """Whatever the pairs of values and the numbers of unreached combinations tell."""
    pairs = {"parameters": {"region": ["plain", "ex"], "size": ["byte", "page"]}, "states": "rrrn"}
    model: dict[str, Any] = {"space": {}, "points": {}, "expected": {}, "pairs": pairs}
    old, new = (
        {"combinations": {**SEEN, "classes": CLASSES, "index": encode_index(array("H", numbers))}}
        for numbers in (before, now)
    )
    reason = "4 points: {}, 1 UNREACHABLE, 1 UNSUPPORTED; and more"
    earlier = swept(
        unsupported=2,
        **model,
        observed=old,
        unreached={"REG-05": 9},
        reason=reason.format("2 PASS"),
    )
    wrong = deviation("region=ex", count)
    later = swept(wrong, **model, observed=new, reason=reason.format("1 PASS, 1 FAIL"))
    assert [change.kind for change in comparison(earlier, later).changes] == [kind]


@pytest.mark.parametrize("states, kind", [("rrnn", NEWLY_WRONG), ("rrrn", REGRESSED)])
def test_a_model_tells_what_the_host_of_the_old_run_lacked(states, kind):
    """The devices offer the same, but there were no huge pages."""
    pairs = {
        "parameters": {"region": ["plain", "huge"], "size": ["byte", "page"]},
        "states": states,
    }
    model: dict[str, Any] = {"space": {}, "points": {}, "expected": {}, "pairs": pairs}
    counts = {"reason": "4 points: 2 PASS, 2 UNSUPPORTED; and more"}
    here = comparison(
        swept(unsupported=2, **model, **counts), swept(deviation("region=huge", 1), **model)
    )
    assert [change.kind for change in here.changes] == [kind]


ONLY = f"{CASE.id}#{OF_ODP}"
OURS = deviation(OF_ODP, repro=f"{PROGRAM} run --guest --linux /tree --only {ONLY}")


@pytest.mark.parametrize(
    "other, passed",
    [
        (deviation(READ), True),
        (deviation(OF_ODP), False),
        (deviation(READ, 2, when="op=RDMA_READ"), False),  # a formula that has the point
        (deviation(READ, 2, when="op=RDMA_WRITE"), True),
        (deviation(READ, 2), False),  # a formula that selects no points
    ],
)
def test_a_case_that_failed_before_is_bisected_by_a_point_that_passed(other, passed):
    before = {**other, "fault": Fault(FaultKind.MOVED, verb="traffic").as_data()}
    here = comparison(swept(before), swept(OURS))
    (defect,) = here.new.violations.defects
    commands = here.defects.bisection(defect)
    assert shlex.split(commands)[-2:] == ["--only", ONLY] * passed


LINUX, OTHER = "35758f218859fb6ea9c021caeea6c70538492202", "9af1" * 10
# The commits of the new and of the old run, and what git starts with.
COMMITS = {
    (LINUX, ""): f"start {LINUX[:12]} GOOD",
    (LINUX, OTHER): f"start {LINUX[:12]} {OTHER[:12]}",
    ("", ""): "start BAD GOOD",
    ("; reboot", "$(reboot)"): "start BAD GOOD",  # recorded by others
    (LINUX, LINUX): "",  # what was changed is not committed
    (f"{LINUX} with 1 uncommitted file", OTHER): "",  # the commit itself can be good
    (LINUX, f"{OTHER} with 2 uncommitted files"): f"start {LINUX[:12]} GOOD",
}


@pytest.mark.parametrize("bad, good", COMMITS)
def test_the_commands_of_a_bisection_work_on_any_machine(bad, good):
    repro = shlex.join([PROGRAM, "run", "--guest", "--linux", "a tree", "--only", ONLY])
    before = {**deviation(READ), "fault": Fault(FaultKind.MOVED, verb="traffic").as_data()}
    here = comparison(swept(before), swept({**OURS, "repro": repro}))
    for run, commit in ((here.new, bad), (here.old, good)):
        commit, _, uncommitted = commit.partition(" with ")
        linux = {"sha256": "0" * 64, "commit": commit}
        if uncommitted:
            linux["uncommitted"] = int(uncommitted.split()[0])
        run.header["under_test"] = {"given": {"linux": linux}}
    commands = here.defects.bisection(here.new.violations.defects[0])
    tree, start = "\"$PWD\"/'a tree'", COMMITS[bad, good]
    step = f"--yes --guest --linux {tree} --only {shlex.quote(ONLY)}"
    step = f'git -C {tree} bisect run "$PWD"/rdma-cts bisect-step {step}'
    assert commands == f"git -C {tree} bisect {start} && {step}" * bool(start)
    words = {"BAD": "a commit with the defect", "GOOD": "a commit without it"}
    about = [f"{word} is {words[word]}" for word in start.split()[1:] if word in words]
    line = bisection.line_of(commands)
    assert line == f"bisect ({', '.join(['docs/patches.md#bisection', *about])}): {commands}"


def test_more_points_of_a_known_defect_name_the_new_defect_of_the_same_case():
    new = deviation(OF_ODP, fault=Fault(FaultKind.MOVED, verb="traffic").as_data())
    here = comparison(swept(deviation(READ)), swept(deviation(READ, 2), new))
    ((_, news),) = here.defects.changed
    (defect,) = here.defects.newly_found
    shown = f"{CASE.id} also shows {defect.fingerprint}, perhaps of one cause"
    assert news == f"at 1 more point of {CASE.id} ({shown})"
    alone = comparison(swept(deviation(READ)), swept(deviation(READ, 2)))
    assert [news for _, news in alone.defects.changed] == [f"at 1 more point of {CASE.id}"]


def test_more_points_of_a_known_defect_have_an_example_that_was_not_wrong():
    here = comparison(swept(deviation(READ)), swept(deviation(OF_ODP, 2)))
    ((_, news),) = here.defects.changed
    assert news == f"at 1 more point of the same cases, such as {CASE.id}#{OF_ODP}"


@pytest.mark.parametrize("states, known", [("rsww", True), ("sswn", False), ("nsww", True)])
def test_a_further_point_of_a_model_is_known_by_a_pair_that_was_not_wrong(states, known):
    pairs = {"parameters": {"region": ["plain", "ex"], "size": ["byte", "page"]}, "states": states}
    model: dict[str, Any] = {"space": {}, "points": {}, "expected": {}, "pairs": pairs}
    here = comparison(
        swept(deviation("size=byte"), **model), swept(deviation("size=byte", 2), **model)
    )
    ((_, news),) = here.defects.changed
    assert (", such as" in news) is known


def test_a_case_of_which_not_all_points_were_judged_has_no_point_to_bisect():
    for more in ({"unsupported": 4}, {"deviations_left_out": 1}):
        here = comparison(swept(deviation(READ), **more), swept(OURS))
        assert not here.defects.bisection(here.new.violations.defects[0])


def test_the_points_of_the_old_run_stand_beside_its_verdict():
    here = comparison(swept(unsupported=4), swept(deviation(OF_ODP, 3)))
    said = "\n".join(text(here, None))
    assert "  PASS (8 points: 4 PASS, 4 UNSUPPORTED) -> FAIL  REG-05  reg_mr" in said
    assert said.startswith("something has regressed, or is newly supported and wrong: 1 regressed")
    assert '"old_points": "8 points: 4 PASS, 4 UNSUPPORTED"' in as_json(here)


@pytest.mark.parametrize("covered, kinds", [(True, ["changed"]), (False, [NEWLY_WRONG])])
def test_a_waiver_of_what_is_newly_supported_holds_in_a_result_that_counts(covered, kinds):
    """Another symptom of the sweep, which both runs have, has no waiver."""
    known, fresh = deviation(READ), deviation(NEEDS_ODP, 2, "REG-12", fault={"kind": "accepted"})
    before, after = swept(known, unsupported=4), swept(known, fresh)
    (symptom,) = (symptom for symptom in symptoms_of(completed(after)) if symptom.points == 2)
    names = [cause_of(symptom).fingerprint] if covered else []
    here = comparison(before, after, waivers={"covered": {CASE.id: names}})
    assert [change.kind for change in here.changes] == kinds
    assert (here.status, len(here.defects.newly_found)) == ((0, 0) if covered else (1, 1))
    assert here.rules.verdicts_of("REG-12") == ("UNSUPPORTED", "WAIVED" if covered else "FAIL")
    assert [here.rules.kind(rule) for rule in here.rules.changed] == kinds
    (change,) = here.changes
    assert (change.old, change.new) == ("UNSUPPORTED", "WAIVED" if covered else "FAIL")


def test_a_waiver_of_what_the_old_run_judged_hides_no_regression():
    known, fresh = deviation(READ), deviation(READ, rule="REG-12", fault={"kind": "accepted"})
    judged = {"REG-05": "FAIL", "REG-12": "PASS"}
    after = swept(known, fresh)
    names = [cause_of(symptom).fingerprint for symptom in symptoms_of(completed(after))]
    before = swept(known, unsupported=4, rule_verdicts=judged)
    here = comparison(before, after, waivers={"covered": {CASE.id: names}})
    assert ([change.kind for change in here.changes], here.status) == ([REGRESSED], 1)


@pytest.mark.parametrize("names", [("trixie", "rxe"), ("rxe", "siw")], ids="->".join)
def test_the_last_line_followed_to_its_end_leaves_nothing_that_is_newly_wrong(names, tmp_path, cli):
    old, new = (ROOT / "docs/runs" / f"{name}.jsonl.xz" for name in names)
    waivers, judged = tmp_path / "waivers.yaml", tmp_path / "judged"
    line = cli(1, "compare", old, new).out.splitlines()[-1]
    words = shlex.split(line.partition(f"{PROGRAM} ")[2].partition(" --owner")[0])
    expires = str(date.today() + timedelta(days=30))
    terms = "--owner", "O", "--issue", "https://bugs.example.org/1", "--expires", expires
    cli(0, *words, *terms, "--out", waivers)
    cli(1, "judge", new, "--waivers", waivers, "--out", judged)
    said = cli(0, "compare", old, judged).out
    assert "only in the new run" not in said
    assert "report the first" not in said
    listed = said.partition("\nrules: ")[2].partition("\n\n")[0]
    assert not any(kind in listed for kind in FAILING)


def test_what_a_recorded_stack_did_not_support_is_no_regression_of_the_next():
    runs = (ROOT / "docs/runs" / f"{name}.jsonl.xz" for name in ("trixie", "rxe"))
    old, new = map(read, runs)
    here = compare(old, new)
    of_odp = next(d for d in new.violations.defects if d.fingerprint == "251ad0de44ec")
    regressed = {change.case for change in here.of(REGRESSED)}
    assert of_odp in here.defects.by_kind[NEWLY_WRONG]
    assert regressed.isdisjoint(of_odp.cases)
    assert (
        here.defects.foremost in here.defects.newly_found
    )  # a worse defect of both runs has more cases now
    news = Novelty(here)
    for kind in NEW_KINDS:
        assert [item.defect for item in news.by_kind.get(kind, ())] == [*here.defects.by_kind[kind]]
    listing = command("compare", old.path, new.path)
    assert f"{amount(here.of(REGRESSED))} {REGRESSED}: {listing} lists the cases" in news.hints()
    assert here.rules.kind("REG-12") == NEWLY_WRONG
    assert "BIND-18" in {rule for rule in here.rules.changed if here.rules.kind(rule) == REGRESSED}
    (point,) = (change for change in here.changes if change.rule == "REG-12")
    assert [defect.fingerprint for defect in here.defects.of_change(point)] == ["251ad0de44ec"]
    assert (point.old, point.new) == ("UNSUPPORTED", "FAIL")


def test_the_part_of_a_defect_in_changed_points_is_that_of_its_own_points():
    kinds = {FaultKind.MOVED: (READ, 1), FaultKind.NOT_ARRIVED: (OF_ODP, 2)}
    further = [
        deviation(point, count, "REG-12", fault=Fault(kind, verb="traffic").as_data())
        for kind, (point, count) in kinds.items()
    ]
    here = comparison(swept(deviation(READ)), swept(deviation(READ), *further))
    (change,) = here.changes
    assert change.points == 3
    defects = here.defects.newly_found
    assert len(defects) == len(kinds)
    parts = {defect.first.fault.kind: here.defects.part_of(defect, change) for defect in defects}
    assert {kind: (*part.examples, part.points) for kind, part in parts.items()} == kinds
    (_, line) = Novelty(here).about(defects[0], None)
    (points, count) = kinds[defects[0].first.fault.kind]
    assert line.endswith(f"{count} points of {CASE.id}, such as {points}")
