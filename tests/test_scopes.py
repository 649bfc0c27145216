"""Tests of the scopes of rules: each object of which a rule's sentence is true is judged by a case, or named with a reason."""

from dataclasses import replace

from conformance.tables.suite import load_suite
from samples import case
from trial.scopes import Cell, judged_cells, scopes

SUITE = load_suite()
SCOPES = scopes()
# Rules about packets, about declarations and of a vendor's dialect.
APART = ("WIRE-", "CAP-", "XREREG-")


def test_each_rule_has_a_scope():
    rules = {rule for rule in SUITE.registry if not rule.startswith(APART)}
    assert SCOPES.rules == rules


def test_what_no_case_judges_is_named_with_its_reason():
    unjudged = SCOPES.cells - judged_cells(SUITE.cases)
    assert sorted(map(str, unjudged)) == sorted(map(str, SCOPES.unjudged))
    assert all(SCOPES.unjudged.values())


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
