"""Comparisons of runs in which chance decides whether a race violates its rule."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.results.conclusions import BY_CHANCE
from made_history import SUITE, run_of
from nights import nights
from reports import html
from reports.absence import NOT_DECIDED
from reports.compared.changes import GONE, HIT, NEW
from reports.compared.comparison import compare
from reports.compared.text import text
from reports.digest import Digest, digest, read
from reports.nights.outcome import BASELINE, UNDECIDED
from reports.races import RACE, remarks_on, tries_of
from reports.reproducers.mail import mail
from reports.reproducers.of_runs import unknown_device
from samples import changed, header, recorded, result, written_records

__all__ = ["nights"]  # a fixture

CASES = [case.id for case in SUITE.cases]
FAULT = {"kind": "leaked", "verb": "await_traffic", "step": 1}


def deviation(hits: int, of: int) -> dict[str, Any]:
    return {
        "when": BY_CHANCE,
        "verdict": "FAIL",
        "observed": "a byte moved after the window had ended",
        "fault": FAULT,
        "count": hits,
        "of": of,
        "smallest": {"addr": "buf"},
        "rules": ["REG-01"],
    }


def raced(tries: Mapping[int, tuple[int, int]]) -> Digest:
    """Returns a run of races; `tries` has the hits and the tries of each case, by the number of the case."""
    lines = []
    for number, (hits, of) in tries.items():
        line = result(
            SUITE.cases[number],
            "FAIL" if hits else "PASS",
            space={"axes": {"addr": ["buf"]}, "size": 96, "tries": True},
            points={"PASS": of - hits, "FAIL": hits},
            deviations=[deviation(hits, of)] if hits else [],
        )
        lines.append(line)
    return digest(recorded(lines).shown(), Path())


def in_flight(hits: int, of: int, counted: bool = True) -> Digest:
    """Returns a run of a case with requests in flight; an older version has not counted its tries."""
    seen = {"returned": "0", "errno": "", "overlapped": True}
    if counted:
        seen["in_flight"] = {"hits": hits, "of": of}
    fault: dict[str, Any] = {"fault": FAULT} if hits else {}
    line = result(SUITE.cases[0], "FAIL" if hits else "PASS", observed=seen, **fault)
    return digest(recorded([line]).shown(), Path())


# the tries of the old and of the new run, the kinds of the changes, the exit status
TRIES = {
    "one hit in many tries": ({0: (0, 96)}, {0: (1, 21)}, ["hit only now"], 3),
    "a hit in the first try": ({0: (0, 200)}, {0: (1, 1)}, ["regressed"], 1),
    "many hits": ({0: (0, 96)}, {0: (4, 21)}, ["regressed"], 1),
    "one hit in each race of a defect": (
        {0: (0, 96), 1: (0, 96)},
        {0: (1, 9), 1: (1, 10)},
        ["regressed"] * 2,
        1,
    ),
    "a defect that the old run has in another race": (
        {0: (0, 96), 1: (0, 96), 2: (1, 5)},
        {0: (1, 9), 1: (1, 10), 2: (1, 5)},
        ["hit only now"] * 2,
        3,
    ),
    "no hit again": ({0: (1, 21)}, {0: (0, 96)}, ["not hit again"], 0),
    "surely fixed": ({0: (6, 21)}, {0: (0, 96)}, ["fixed"], 0),
    "hits in both": ({0: (1, 21)}, {0: (1, 2)}, [], 0),
}


@pytest.mark.parametrize("old, new, kinds, status", TRIES.values(), ids=TRIES)
def test_a_race_changes_only_beyond_chance(old, new, kinds, status):
    comparison = compare(raced(old), raced(new))
    assert ([change.kind for change in comparison.changes], comparison.status) == (kinds, status)


@pytest.mark.parametrize(
    "new, kind, status", [((5, 5), "regressed", 1), ((1, 5), "hit only now", 3)]
)
def test_tries_with_requests_in_flight_are_those_of_a_race(new, kind, status):
    comparison = compare(in_flight(0, 4), in_flight(*new))
    assert ([change.kind for change in comparison.changes], comparison.status) == ([kind], status)
    said = "\n".join(text(comparison, None))
    assert f"hits: 0 of 4 tries in the old run, {new[0]} of {new[1]} in the new run" in said
    assert ("to tell, at most" in said) == (status == 3)


def test_a_race_whose_tries_were_not_counted_is_compared_like_another_case_and_called_a_race():
    comparison = compare(in_flight(0, 4, counted=False), in_flight(5, 5))
    assert [change.kind for change in comparison.changes] == ["regressed"]
    assert f"({RACE})" in "\n".join(text(comparison, None))


@pytest.mark.parametrize("wrong", [(0, 5), (6, 5), (-1, 5)])
def test_tries_that_contradict_their_verdict_are_not_counted(wrong):
    (line,) = in_flight(1, 1).results
    line["observed"]["in_flight"] = {"hits": wrong[0], "of": wrong[1]}
    assert tries_of(line) is None


def test_the_defect_and_the_rule_of_an_undecided_race_are_neither_new_nor_gone():
    (without, hit) = raced({0: (0, 96)}), raced({0: (1, 21)})
    seen, unseen = compare(without, hit), compare(hit, without)
    assert (len(seen.defects.by_kind[NEW]), len(seen.defects.by_kind[HIT])) == (0, 1)
    assert (len(unseen.defects.by_kind[GONE]), len(unseen.defects.by_kind[NOT_DECIDED])) == (0, 1)
    assert [seen.rules.kind(rule) for rule in seen.rules.changed] == ["hit only now"]
    assert [unseen.rules.kind(rule) for rule in unseen.rules.changed] == ["not hit again"]


def test_the_lines_of_a_race_say_how_often_what_it_proves_and_which_command_would_tell():
    said = "\n".join(text(compare(raced({0: (0, 96)}), raced({0: (1, 21)})), None))
    repro = raced({0: (0, 96)}).results[0]["repro"]
    assert said.startswith("a race was hit only in the new run, which does not show that it is new")
    assert "hits: 0 of 96 tries in the old run, 1 of 21 in the new run: the new stack has" in said
    assert "differ so with a probability of at most 18%\n" in said
    assert f"to tell, at most 21 times on the old stack: {repro}\n" in said
    said = "\n".join(text(compare(raced({0: (0, 96)}), raced({0: (4, 21)})), None))
    assert "0 of 96" in said
    assert "to tell" not in said


@pytest.mark.parametrize("hits, proves", [(1, False), (4, True)])
@pytest.mark.parametrize("other", [{}, {1: (1, 5)}], ids=["new", "known"])
def test_a_race_is_to_be_reported_and_waived_only_if_it_proves_something(hits, proves, other):
    said = list(text(compare(raced({0: (0, 96), **other}), raced({0: (hits, 21), **other})), None))
    assert said[0].endswith("(exit status 1)" if proves else "(exit status 3)")
    assert any(line.startswith(("report ", "waive ")) for line in said) == proves


def test_a_mail_says_of_a_race_that_is_decided_that_the_other_stack_lacks_the_defect():
    run = in_flight(22, 23)
    symptoms = run.violations.defects[0].symptoms
    said = " ".join(mail(symptoms, run, SUITE, unknown_device(), [in_flight(0, 4)]).text.split())
    assert "does not have the defect (no hit in 4 tries of this race, and 22 of 23 above: " in said
    assert "equal stacks differ so with a probability of at most 0.028%)" in said


def test_a_mail_counts_all_races_of_the_defect_as_a_comparison_does():
    old, run = raced({0: (0, 96), 1: (0, 96)}), raced({0: (1, 9), 1: (1, 10)})
    odds = compare(old, run).races[CASES[0]].odds
    assert odds.endswith("of at most 8.6%, and in all races of the defect with at most 0.81%")
    symptoms = run.violations.defects[0].symptoms
    said = " ".join(mail(symptoms, run, SUITE, unknown_device(), [old]).text.split())
    assert f"no hit in 96 tries of this race, and 1 of 9 above: {odds})" in said


def test_a_race_that_passed_is_no_news_of_a_known_defect():
    old = raced({0: (1, 3), 1: (0, 96)})
    assert not compare(old, raced({0: (1, 3), 1: (1, 50)})).defects.changed


@pytest.mark.parametrize(
    "run, other, tries",
    [
        (raced({0: (1, 21)}), raced({0: (0, 96)}), "96 tries of "),
        (in_flight(1, 5), in_flight(0, 4), "4 tries of "),
        (in_flight(1, 5), in_flight(0, 4, counted=False), ""),
    ],
    ids=["sweep", "in flight", "not counted"],
)
def test_a_mail_does_not_say_that_a_run_without_a_hit_lacks_the_defect(run, other, tries):
    symptoms = run.violations.defects[0].symptoms
    said = " ".join(mail(symptoms, run, SUITE, unknown_device(), [other]).text.split())
    assert f"did not show the defect in {tries}this race, which does not prove" in said
    assert "does not have the defect" not in said


def test_a_night_with_an_undecided_race_is_undecided_and_names_it(nights):
    def night(hits: int, of: int):
        run = run_of({})
        raced_line = raced({3: (hits, of)}).results[0]
        run.results[3] = changed(run.results[3], raced_line)
        return recorded(run.results, rules=run.header["rules"])

    nights.night(0, forky=night(0, 96))
    said = nights.night(3, forky=night(1, 21))
    assert nights.outcomes("forky") == [BASELINE, UNDECIDED]
    assert "1 case hit only now since the last good night" in said
    assert f"hit only now, since this night: PASS -> FAIL  REG-01  {CASES[3]}" in said


POINT_OF_RACE = f"./rdma-cts run --guest --only {CASES[0]}#addr=buf"


def test_the_command_of_a_race_runs_all_tries_and_a_pass_proves_little(tmp_path, cli):
    """An older version has recorded the command of one try."""
    whole = f"./rdma-cts run --guest --only {CASES[0]}"
    line = result(
        SUITE.cases[0],
        "FAIL",
        space={"axes": {"addr": ["buf"]}, "size": 96, "tries": True},
        points={"PASS": 20, "FAIL": 1},
        deviations=[{**deviation(1, 21), "repro": POINT_OF_RACE}],
    )
    written_records([header(planned=[CASES[0]]), {**line, "repro": whole}], tmp_path)
    run = read(tmp_path)
    (defect,) = run.violations.defects
    said = cli(0, "explain", defect.fingerprint, "--run", str(tmp_path)).out
    for shown in (said, html.render([run])):
        assert whole in shown
        assert POINT_OF_RACE not in shown
        assert RACE in shown
    sent = mail(defect.symptoms, run, SUITE, unknown_device(), ()).text
    assert f"{whole}\n  ({RACE})" in sent
    assert "bisect" not in html.render([run])


@pytest.mark.parametrize("overlapped", [True, False])
def test_a_violation_with_requests_in_flight_is_a_race(overlapped):
    line = result(SUITE.cases[0], "FAIL", observed={"afterwards": [{"overlapped": overlapped}]})
    (record,) = digest(recorded([line]).shown(), Path()).results
    assert list(remarks_on(record)) == [RACE] * overlapped
    record["observed"]["in_flight"] = {"hits": 2, "of": 5}
    assert (
        list(remarks_on(record)) == [RACE, "2 of 5 tries of this run violated a rule"] * overlapped
    )
