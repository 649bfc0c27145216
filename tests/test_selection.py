"""The cases of a selection, and the messages if there are none."""

from __future__ import annotations

import pytest

from conformance.errors import UserError
from conformance.tables.selection import Selection
from samples import suite, table

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
    "dereg_mr/all", "- {id: plain, rules: [DEREG-01], given: {mrs: {mr: {access: []}}}, when: {mr: mr}, then: success}"
)
SUITE = suite([REG, DEREG])
ALL = ["reg_mr/flags/plain", "reg_mr/flags/remote-write", "reg_mr/flags/remote-atomic", "dereg_mr/all/plain"]


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), ALL),
        (Selection(verbs=["reg_mr"]), ALL[:3]),
        (Selection(verbs=["ibv_dereg_mr"]), ALL[3:]),
        (Selection(verbs=["dereg_mr", "reg_mr"]), ALL),
        (Selection(rules=["REG-02"]), [ALL[1]]),
        (Selection(rules=["REG-16", "REG-15"]), ALL[1:3]),
        (Selection(words=["REMOTE"]), ALL[1:3]),
        (Selection(words=["remote", "atomic"]), [ALL[2]]),
        (Selection(only=[ALL[3], ALL[0]]), [ALL[0], ALL[3]]),
        (Selection(verbs=["reg_mr"], words=["plain"]), [ALL[0]]),
    ],
)
def test_a_selection_has_the_cases_that_match_all_criteria_in_the_suites_order(
    selection: Selection, chosen: list[str]
) -> None:
    assert [case.id for case in selection.apply(SUITE)] == chosen


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        (Selection(verbs=["reg_m"]), r"unknown verb 'ibv_reg_m' \(did you mean ibv_reg_mr\?\)"),
        (Selection(rules=["REG-61"]), r"unknown rule 'REG-61' \(did you mean REG-"),
        (Selection(only=["reg_mr/flags/plane"]), r"unknown case .* \(did you mean reg_mr/flags/plain\?\)"),
        (Selection(words=["nothing-like-it"]), "no case matches the selection; see ./rdma-cts list"),
        (Selection(verbs=["reg_mr"], rules=["DEREG-01"]), "no case matches the selection"),
    ],
)
def test_a_selection_of_nothing_is_the_persons_mistake(selection: Selection, said: str) -> None:
    with pytest.raises(UserError, match=said) as caught:
        selection.apply(SUITE)
    assert caught.value.status == 2
    assert len(str(caught.value).splitlines()) == 1
