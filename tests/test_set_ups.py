"""Tests of the text of a set-up, which records, pages, explanations and mails have."""

from dataclasses import replace

import pytest

from conformance.model.case import PATH_MTUS
from conformance.model.set_up import set_up_of
from conformance.tables.keys import QUEUE_PAIR, QUEUE_PAIR_NUMBERS
from conformance.tables.suite import ROOT
from reports.digest import read
from reports.evidence import preconditions
from samples import case

# By key of a queue pair: a value that is no default, and its text.
VALUES = {
    "state": ("RTR", "state RTR"),
    "sq_sig_all": ("true", "sq_sig_all"),
    "access": ("[REMOTE_READ, FLUSH_GLOBAL]", "rights REMOTE_READ|FLUSH_GLOBAL"),
    "poster": ("wr_post", "wr_post"),
    "notifies": ("true", "with a completion channel"),
    "by_readers": ("true", "with an extended completion queue"),
    "one_queue": ("true", "with the completion queue of its peer"),
    "peer": ("wire", "peer wire"),
    "ip": ("v6", "ip v6"),
    "mtu": (max(PATH_MTUS), f"mtu {max(PATH_MTUS)}"),
    **{name: (7, f"{name} 7") for name in QUEUE_PAIR_NUMBERS},
}


@pytest.mark.parametrize("key", sorted(QUEUE_PAIR.keys() - {"type", "pd"}))
def test_a_set_up_names_each_attribute_of_a_queue_pair_that_the_row_sets(key):
    value, text = VALUES[key]
    lines = []
    for more in ("", f", {key}: {value}"):
        row = f"given: {{qps: {{qp: {{type: RC, pd: pd{more}}}}}}}, when: {{access: []}}, then: success"
        lines += set_up_of(case(f"{{rules: [REG-05], {row}}}"))["given"][-1:]
    plain, special = lines
    assert plain.endswith("queue pair, RC, in pd, state RTS")
    assert special.startswith("qp: queue pair, RC, in pd, state ")
    assert f"{special}, ".count(f", {text}, ") == 1


def test_what_a_peer_needs_has_the_attributes_of_the_queue_pair():
    defects = read(ROOT / "docs/runs/rxe.jsonl.xz").violations.defects
    (remote,) = (defect for defect in defects if defect.fingerprint == "092824f67057")
    record, special = remote.first.record, ", peer wire, rights FLUSH_GLOBAL, max_dest_rd_atomic 0"
    given = [line + special * (": queue pair, " in line) for line in record["set_up"]["given"]]
    symptom = replace(remote.first, record={**record, "set_up": {"given": given, "before": []}})
    needed = preconditions(remote, symptom)
    assert needed.endswith("; its queue pair has rights FLUSH_GLOBAL, max_dest_rd_atomic 0")
