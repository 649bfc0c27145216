"""Tests of the tiers: which cases each of them has."""

import samples
from conformance.tables.suite import load_suite
from conformance.tables.tiers import OTHER_S, of_tier, ordered, shipped_durations
from conformance.verbs import ENUMS

FLAGS = ENUMS["ibv_access_flags"]


def test_tiers_are_nested_and_the_smallest_has_a_case_of_every_rule():
    suite = load_suite()
    smoke, default, exhaustive = (
        of_tier(suite.cases, tier) for tier in ("smoke", "default", "exhaustive")
    )
    assert (
        {case.id for case in smoke}
        <= {case.id for case in default}
        < {case.id for case in exhaustive}
    )
    assert {rule for case in smoke for rule in case.rules} == set(suite.registry)
    assert len(smoke) <= 2 * len(suite.registry)
    assert smoke == of_tier(suite.cases, "smoke")
    assert not any(case.sweep and case.sweep.size > 500 for case in smoke)


def test_the_order_of_a_seed_does_not_depend_on_which_other_cases_are_chosen():
    cases = samples.numbered(9).cases
    all_ordered = ordered(cases, 7)
    assert ordered(cases, None) == list(cases)
    assert all_ordered != list(cases)
    assert ordered(cases[::2], 7) == [case for case in all_ordered if case in cases[::2]]


def test_the_exhaustive_tier_has_the_whole_spaces_of_flags_and_unknown_bits():
    sizes = {case.id: case.sweep.size for case in load_suite().cases if case.sweep}
    masks, unknown = 1 << len(FLAGS.short_names), len(FLAGS.unnamed_bits)
    for verb in ("reg_mr", "reg_mr_iova", "reg_dmabuf_mr"):
        for entry in ("libibverbs", "uverbs"):
            size = sizes[f"{verb}/access_space/every-combination-with-each-unknown-bit@{entry}"]
            assert size == masks * (1 + unknown) >= 2048 * 20
    assert sizes["rereg_mr/change_space/every-access@uverbs"] == 8 * masks * 5
    assert sum(sizes.values()) > 400_000


def test_the_smallest_tier_takes_seconds():
    """In seconds of the recorded run, each guest of a case that needs its own included."""
    smoke = of_tier(load_suite().cases, "smoke")
    assert sum(shipped_durations().get(case.id, OTHER_S) for case in smoke) <= 17
    assert not any(case.array for case in smoke)


def test_the_smallest_tier_has_the_entry_that_the_recorded_stack_has():
    """The provider of Soft-RoCE lacks ibv_rereg_mr, which the kernel has."""
    lacking = {case for case, seconds in shipped_durations().items() if not seconds}
    assert "rereg_mr/changes/grant-read@libibverbs" in lacking
    assert lacking.isdisjoint(case.id for case in of_tier(load_suite().cases, "smoke"))
