"""Tests of the batches for workers: every case is in one batch, long cases are first, and cases that may crash are last.
Also tests the file of durations, and selections of cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.older_python import zip
from conformance.supervision.durations import Durations, expected_durations
from conformance.supervision.schedule import START_S, Schedule, needs_its_own_worker
from conformance.tables.suite import Selection, load_suite
from conformance.tables.tiers import of_tier, shipped_durations
from samples import numbered, suite, table

COUNT = 12
CASES = numbered(COUNT).cases
IDS = [case.id for case in CASES]
ROWS = "\n".join(
    f"- {{id: c{number}, rules: [REG-01], {'hazardous' if number % 2 else 'ends_process'}:"
    f" {str(number % 3 == 0).lower()}, when: {{access: []}}, then: open}}"
    for number in range(COUNT)
)
MIXED = table("reg_mr/sample", ROWS, COUNT).cases
ALONE = {case.id for case in MIXED if case.alone}
SECONDS = st.dictionaries(st.sampled_from(IDS), st.floats(0, 1000, allow_nan=False))


def batches(schedule: Schedule) -> list[list[str]]:
    taken = []
    while batch := schedule.take():
        taken.append(batch)
    return taken


@given(st.integers(1, 5), SECONDS)
def test_each_case_is_in_one_batch_and_cases_that_may_crash_are_in_batches_at_the_end(
    workers, seconds
):
    taken = batches(Schedule(MIXED, workers, seconds))
    assert sorted(case for batch in taken for case in batch) == sorted(case.id for case in MIXED)
    hazardous = {case.id for case in MIXED if case.hazardous}
    ending = {case.id for case in MIXED if case.ends_process and not case.hazardous}
    single = {case.id for case in MIXED if needs_its_own_worker(case, seconds)}
    assert single == {case.id for case in MIXED if case.alone and case.id not in seconds}
    assert all(len(batch) == 1 for batch in taken if single & set(batch))
    assert all(len(ending & set(batch)) <= 1 for batch in taken)
    assert sum(bool((hazardous - single) & set(batch)) for batch in taken) <= workers
    kinds = [not ALONE.issuperset(batch) for batch in taken]
    assert kinds == sorted(kinds, reverse=True)
    for batch in taken:
        assert batch == [case for case in IDS if case in batch]


@pytest.mark.parametrize("known", [False, True])
def test_a_case_that_can_end_its_process_is_the_last_of_a_batch_if_it_has_not_done_so(known):
    ending = [case.id for case in MIXED if case.ends_process and not case.hazardous]
    first, *others = batches(Schedule(MIXED, 1, dict.fromkeys(IDS, 1.0) if known else {}))
    assert len(ending) > 1
    assert [case for case in first if case in ending] == ending[: int(known)]
    together = [batch for batch in (first, *others) if len(batch) > 1 and set(batch) & set(ending)]
    assert len(together) == (2 if known else 0)
    by_place = sorted((case for case in MIXED if case.id in first), key=lambda case: case.place)
    assert by_place[-1].ends_process == known


def test_hazardous_cases_that_have_ended_before_share_a_worker_and_are_handed_out_again():
    hazardous = [case.id for case in MIXED if case.hazardous]
    schedule = Schedule(MIXED, 1, dict.fromkeys(IDS, 1.0))
    schedule.take()
    assert len(hazardous) > 1
    together = schedule.take()
    assert [case for case in together if case in hazardous] == hazardous
    schedule.give_back(hazardous[1:])
    again = schedule.take()
    assert [case for case in again if case in hazardous] == hazardous[1:]


@given(SECONDS)
def test_a_single_worker_gets_all_cases_that_need_not_run_alone_in_one_batch(seconds):
    batch = Schedule(MIXED, 1, seconds).take()
    assert [case.id for case in MIXED if not case.alone] == [
        case for case in batch if case not in ALONE
    ]


def test_with_known_durations_each_worker_gets_its_share_and_the_longest_come_first():
    seconds = dict(zip(IDS, [1, 1, 1, 40, 1, 1, 1, 1, 30, 1, 1, 1], strict=True))
    first, second = batches(Schedule(CASES, 2, seconds))
    assert (sum(seconds[case] for case in first), sum(seconds[case] for case in second)) == (40, 40)
    assert IDS[3] in first
    assert IDS[8] in second


def test_with_unknown_durations_the_batches_become_smaller():
    # Only half of the durations are known, so that the others are estimated.
    schedule = Schedule(CASES, 2, dict.fromkeys(IDS[:6], 40.0))
    lengths = [len(batch) for batch in batches(schedule)]
    assert len(lengths) > 2
    assert sum(lengths) == COUNT


def test_if_no_duration_is_known_guests_get_shares_by_the_recorded_run():
    cases = of_tier(load_suite().cases, "default")
    schedule = Schedule(cases, 2, {}, takes_over=True)
    schedule.take()  # the cases with fork protection
    first, second = schedule.take(), schedule.take()
    assert len(first) + len(second) == sum(
        not case.alone and not case.needs_kept_memory for case in cases
    )
    recorded = shipped_durations()
    assert schedule.total([max(recorded, key=recorded.__getitem__)]) == max(recorded.values())
    assert schedule.total(first) < 2 * schedule.total(second) < 4 * schedule.total(first)


def test_a_first_run_expects_a_case_with_its_own_guest_to_take_as_long_as_in_the_recorded_run():
    shipped = shipped_durations()
    alone = [case for case in load_suite().cases if case.hazardous and case.id in shipped]
    assert alone
    assert expected_durations(alone, {}) == {case.id: max(1.0, shipped[case.id]) for case in alone}


def test_short_cases_are_one_batch():
    seconds = dict.fromkeys(IDS, START_S / COUNT / 2)
    assert batches(Schedule(CASES, 4, seconds)) == [IDS]


def test_cases_left_by_a_worker_are_handed_out_again():
    schedule = Schedule(CASES, 2, dict.fromkeys(IDS, 10.0))
    first = schedule.take()
    schedule.take()
    assert schedule.take() == []
    schedule.give_back(first[1:])
    assert sorted(case for batch in batches(schedule) for case in batch) == sorted(first[1:])


@given(st.sets(st.sampled_from(IDS)), SECONDS, st.floats(0, 4))
def test_what_another_worker_takes_over_is_at_most_half_or_the_last_case(waiting, seconds, pace):
    taken = Schedule(CASES, 2, seconds).second_half(waiting, pace)
    left = [case for case in IDS if case in waiting and case not in taken]
    assert left + taken == [case for case in IDS if case in waiting]
    total = Schedule(CASES, 2, seconds).total
    assert len(taken) == 1 or total(taken) <= total(waiting) / 2 * 1.000001
    assert not taken or (left and pace * total(waiting) >= 2 * START_S)


DAMAGED = [
    *(b"", b"{", b"[]", b"17", b"\xff", b"[" * 100_000),
    b'{"schema": "other", "seconds": {}}',
    b'{"schema": "rdma-cts-durations/2"}',
    b'{"schema": "rdma-cts-durations/1", "seconds": {"a": 1}}',
    b'{"schema": "rdma-cts-durations/2", "seconds": {"a": "long"}}',
]


class TestDurations:
    """The file of durations in the cache."""

    def test_measured_durations_are_updated_and_others_kept(self, tmp_path):
        durations = Durations(tmp_path / "cache" / "forky-tcg.json")
        durations.update({IDS[0]: 1.5, IDS[1]: 0.0021})
        durations.update({IDS[0]: 0.5})
        assert durations.read() == {IDS[0]: 0.5, IDS[1]: 0.002}

    @pytest.mark.parametrize("content", DAMAGED)
    def test_a_damaged_file_counts_as_empty_and_is_replaced(self, tmp_path, content):
        durations = Durations(tmp_path / "forky-tcg.json")
        durations.path.write_bytes(content)
        assert durations.read() == {}
        durations.update({IDS[0]: 1.0})
        assert durations.read() == {IDS[0]: 1.0}

    def test_a_cache_of_durations_that_cannot_be_written_is_ignored(self, tmp_path):
        (tmp_path / "file").touch()
        Durations(tmp_path / "file" / "forky-tcg.json").update({IDS[0]: 1.0})


@given(st.integers(1, 5))
def test_cases_that_need_kept_memory_are_the_first_batch(workers):
    fields = "rules: [REREG-07], when: {flags: []}, then: open, given: {mrs: {mr: {access: []}}}"
    keeping = table(
        "rereg_mr/sample",
        "\n".join(f"- {{id: k{number}, {fields}}}" for number in range(3)),
        3,
    ).cases
    first, *later = batches(Schedule([*MIXED, *keeping], workers, {}))
    assert first == [case.id for case in keeping]
    assert sorted(case for batch in later for case in batch) == sorted(case.id for case in MIXED)


REG = table(
    "reg_mr/flags",
    """
    - {id: plain, rules: [REG-01], when: {access: []}, then: success}
    - {id: remote-write, rules: [REG-15, REG-02], when: {access: [REMOTE_WRITE]}, then: refused}
    - {id: remote-atomic, rules: [REG-16], when: {access: [REMOTE_ATOMIC]}, then: refused}
    """,
    3,
)
DEREG = table(
    "dereg_mr/all",
    "- {id: plain, rules: [DEREG-01], given: {mrs: {mr: {access: []}}}, when: {mr: mr}, then: success}",
)
SUITE = suite([REG, DEREG])
ALL = [
    "reg_mr/flags/plain",
    "reg_mr/flags/remote-write",
    "reg_mr/flags/remote-atomic",
    "dereg_mr/all/plain",
]


@pytest.mark.parametrize(
    "selection, chosen",
    [
        (Selection(), ALL),
        (Selection(verbs=["reg_mr"]), ALL[:3]),
        (Selection(verbs=["ibv_dereg_mr"]), ALL[3:]),
        (Selection(verbs=["dereg_mr", "reg_mr"]), ALL),
        (Selection(rules=["reg-02"]), [ALL[1]]),
        (Selection(rules=["REG-16", "REG-15"]), ALL[1:3]),
        (Selection(words=["REMOTE"]), ALL[1:3]),
        (Selection(words=["remote", "atomic"]), [ALL[2]]),
        (Selection(only=[ALL[3], ALL[0]]), [ALL[0], ALL[3]]),
        (Selection(verbs=["reg_mr"], words=["plain"]), [ALL[0]]),
    ],
)
def test_a_selection_has_the_cases_that_match_all_criteria_in_the_suites_order(selection, chosen):
    assert [case.id for case in selection.apply(SUITE)] == chosen
