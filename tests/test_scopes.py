"""Tests of the scopes of rules: each object of which a rule's sentence is true is judged by a case, or named with a reason."""

from dataclasses import replace

import pytest

from conformance.errors import UserError
from conformance.tables.suite import load_suite
from samples import case
from trial.scopes import Cell, judged_cells, missing_in, scopes

SUITE = load_suite()
SCOPES = scopes()


def test_each_rule_has_a_scope_and_what_no_case_judges_a_reason():
    complaints = "\n".join(missing_in(SCOPES, SUITE))
    assert not complaints, complaints


def test_what_the_file_lacks_is_named_with_what_to_add():
    rule = next(iter(SUITE.registry))
    cell = next(iter(SCOPES.unjudged))
    unjudged = {other: reason for other, reason in SCOPES.unjudged.items() if other != cell}
    lacking = replace(SCOPES, rules=SCOPES.rules - {rule} | {"REG-00"}, unjudged=unjudged)
    without_scope, unknown, without_reason = missing_in(lacking, SUITE)
    assert without_scope.startswith("cases/")
    assert f": rule {rule} has no scope: add it to `rules` of an item of " in without_scope
    assert unknown.startswith("trial/scopes.yaml names REG-00, ")
    assert without_reason.startswith(f"no case judges {cell}, ")


@pytest.mark.parametrize(
    "of, message",
    [
        ("{side: remtoe}", "unknown side 'remtoe' (did you mean remote?)"),
        ("{side: all -both}", "unknown side 'both' (known: "),
        ("{sides: all}", "unknown key 'sides' in of (did you mean side?)"),
    ],
)
def test_a_mistake_in_the_file_is_reported_with_its_location(of, message, tmp_path, monkeypatch):
    path = tmp_path / "scopes.yaml"
    path.write_text(f"scopes:\n  - {{rules: [REG-03], of: {of}}}\nno dimension: []\nunjudged: []\n")
    monkeypatch.setattr("trial.scopes.FILE", path)
    with pytest.raises(UserError, match=r"^trial/scopes\.yaml:2:\d+: ") as caught:
        scopes()
    assert message in str(caught.value)


def test_a_row_judges_the_objects_of_its_later_steps():
    row = """
        - id: sample
          rules: [REG-05]
          entries: [uverbs]
          given:
            windows: {mw: {type: 2, bound: {mr: mr, access: [REMOTE_WRITE]}}}
            mrs: {mr: {access: [ON_DEMAND, LOCAL_WRITE, MW_BIND]}}
            qps: {qp: {type: UC, poster: wr_post}}
          when: {access: [LOCAL_WRITE]}
          then: success
          afterwards:
            - {call: traffic, op: RDMA_WRITE, rkey: mw.rkey, addr: buf, via: qp, then: success}
    """
    sample = case(row)
    values = {
        "region": ("uverbs", "on_demand"),
        "window": ("type_2",),
        "transport": ("UC",),
        "posting": ("wr_post",),
        "polling": ("poll_cq",),
    }
    cells = {Cell("REG-05", name, value) for name in values for value in values[name]}
    assert cells <= judged_cells([sample])
    then = replace(sample.when.then, outcome="open")
    later = tuple(replace(step, then=then) for step in sample.afterwards)
    assert not judged_cells(
        [replace(sample, when=replace(sample.when, then=then), afterwards=later)]
    )
