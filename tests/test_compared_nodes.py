"""Tests of the page that compares the hosts of a lab."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import html

import samples
from commands.compare_nodes import differences
from conformance.older_python import zip
from conformance.results.records import Recorded
from reports.digest import digest
from reports.fleet import Fleet, drain, page
from reports.fleet_group import Node
from reports.nights.facts import Facts
from reports.summary import as_data
from samples import numbered, result

SUITE = numbered(3)


def recorded(verdicts: Sequence[str], **changes: Any) -> Recorded:
    return samples.recorded(
        [result(case, verdict) for case, verdict in zip(SUITE.cases, verdicts, strict=True)],
        **changes,
    )


def node(name: str, verdicts: Sequence[str], group: str, **changes: Any) -> Node:
    facts = Facts.of(
        as_data(digest(recorded(verdicts, **changes).shown(), Path("out"), is_own=True))
    )
    return Node(name, f"{name}/report.html", facts, group=group)


def test_differences_between_equal_hosts_come_first():
    lab = Fleet(
        (
            node("a", ["PASS", "PASS", "PASS"], "same"),
            node("b", ["PASS", "FAIL", "PASS"], "same", env={"kernel": "6.1"}),
            node("c", ["FAIL", "FAIL", "FAIL"], "c"),
            Node("d", problem="it cannot be reached", group="same"),
        ),
    )
    text = html.fromstring(page(lab).decode()).text_content()
    section = text.partition("Differences between nodes that should be equal")[2].partition(
        "Nodes without a complete run",
    )[0]
    assert "REG-01withkernel,rdma-corenomajorityPASS(a);FAIL(b)" in "".join(section.split())
    assert "6.1" in section
    assert "it cannot be reached" in text
    assert (
        "4 nodes, 2 groups, 2 differ without a majority, 2 violate a rule, 1 without a complete run"
        in text
    )
    tied = [difference.reason for difference in lab.groups[0].differences]
    assert tied[2].startswith("defect ")
    assert tied[3:] == ["REG-01: PASS (a); FAIL (b): no majority"]
    assert [*differences(lab)] == [f"a, b: {tied[0]}; with it {tied[2]}, and 2 more differences"]
    verdicts = html.fromstring(page(lab).decode()).xpath("//tr[th='REG-01']/td[1]")
    assert "FAIL b PASS a" in " ".join(verdicts[-1].text_content().split())


@pytest.mark.parametrize("groups", [("old", "new"), ("", "")])
def test_groups_that_differ_in_a_rule_are_reported(groups):
    """Also groups that no file names: those of many nodes with the same firmware."""
    nodes = []
    for number in range(3):
        for group, verdict, firmware in zip(groups, ("PASS", "FAIL"), ("1", "2"), strict=True):
            name, started = (
                f"{group}{firmware}{number}",
                f"2026-01-02T0{number}:0{firmware}:00+00:00",
            )
            node_here = node(name, [verdict, "PASS", "PASS"], group, started=started)
            assert node_here.facts is not None
            stack = {**node_here.facts.stack, "firmware": firmware}
            nodes.append(replace(node_here, facts=replace(node_here.facts, stack=stack)))
    lab = Fleet((*nodes, node("c", ["UNSUPPORTED"] * 3, "third")))
    if groups[0]:
        line = "groups differ: REG-01: PASS (old); FAIL (new); with it firmware 1 (old); 2 (new)"
    else:
        line = "groups differ: REG-01: PASS (firmware 1); FAIL (firmware 2)"
    assert [*differences(lab)] == [line]
    assert (
        "3 groups, no node differs, the groups differ in 1 rule, 3 violate a rule" in lab.headline
    )
    text = html.fromstring(page(lab).decode()).text_content()
    assert "PASS (old); FAIL (new)" in text or "PASS (firmware 1); FAIL (firmware 2)" in text


def test_groups_with_equal_settings_have_different_names():
    """Two kinds of device with one driver, and the reason of a node without a run, which is told once."""
    nodes = []
    for name, verdict, part in (("a", "PASS", "1"), ("b", "FAIL", "2"), ("c", "PASS", "3")):
        node_here = node(name, [verdict, "PASS", "PASS"], "")
        assert node_here.facts is not None
        capabilities = {**node_here.facts.capabilities, "vendor_part_id": part}
        nodes.append(replace(node_here, facts=replace(node_here.facts, capabilities=capabilities)))
    lab = Fleet((*nodes, Node("d", problem="it cannot be reached", group="")))
    assert len({group.name for group in lab.groups}) == 3
    (difference,) = lab.between
    assert len({name for _, names in difference.tied for name in names}) == 3
    assert page(lab).decode().count("it cannot be reached") == 1


def test_rules_on_which_nodes_differ_come_before_those_that_all_violate():
    nodes = []
    for name, verdict in (("a", "PASS"), ("b", "PASS"), ("c", "FAIL")):
        node_here = node(name, ["FAIL", "PASS", "PASS"], "same")
        assert node_here.facts is not None
        rules = {"REG-01": "FAIL", "REG-02": verdict, "REG-03": "PASS"}
        nodes.append(replace(node_here, facts=replace(node_here.facts, rules=rules)))
    assert Fleet(tuple(nodes)).remarkable == ["REG-02", "REG-01"]


def test_a_rule_that_is_broken_on_all_nodes_has_its_reason():
    lab = Fleet(tuple(node(name, ["BROKEN", "PASS", "PASS"], "same") for name in "ab"))
    case = SUITE.cases[0].id
    (line,) = differences(lab)
    assert line.startswith(f"a, b: REG-01 is BROKEN: {case}: ")
    shown = html.fromstring(page(lab).decode()).xpath(
        "//h2[@id='broken']/following-sibling::div[1]"
    )
    assert case in shown[0].text_content()
    rule = html.fromstring(page(lab).decode()).xpath("//details//tr[th='REG-01']")
    assert not rule


def test_versions_come_before_the_defects_that_they_perhaps_cause():
    nodes = [node(name, ["FAIL", "PASS", "PASS"], "same") for name in "abc"]
    nodes.append(node("d", ["PASS", "PASS", "PASS"], "same", env={"kernel": "6.1"}))
    lab = Fleet(tuple(nodes))
    assert [difference.what for difference in lab.groups[0].differences][:2] == [
        "kernel",
        "rdma-core",
    ]
    (line,) = differences(lab)
    assert line.startswith("d: kernel: 6.1, most nodes of its group: ")
    assert b"drain 'rdma-cts: kernel: 6.1, most nodes of its group: " in drain(lab)


def test_the_rules_of_a_node_come_with_the_worst_verdict_first():
    names = ("REG-01", "REG-02", "REG-03", "REG-04")
    usual = ("UNSUPPORTED", "HANG", "PASS", "PASS")
    here = ("UNREACHABLE", "PASS", "FAIL", "CRASH")
    nodes = []
    for name in "abcd":
        node_here = node(name, ["PASS", "PASS", "PASS"], "same")
        assert node_here.facts is not None
        rules = dict(zip(names, here if name == "d" else usual, strict=True))
        nodes.append(replace(node_here, facts=replace(node_here.facts, rules=rules)))
    (group,) = Fleet(tuple(nodes)).groups
    order = [difference.what for difference in group.differences]
    assert order == ["REG-04", "REG-03", "REG-02", "REG-01"]


def test_the_page_of_hosts_that_do_not_differ_has_no_differences():
    lab = Fleet(tuple(node(name, ["PASS", "FAIL", "UNSUPPORTED"], "same") for name in ("a", "b")))
    assert not [*differences(lab)]
    assert "Nothing." in page(lab).decode()


def test_the_name_of_a_host_does_not_become_markup_of_the_page():
    text = page(Fleet((Node("<script>x</script>", problem="<i>why</i>", group="<b>"),))).decode()
    assert "<script>" not in text
    assert "<i>why" not in text


def test_a_defect_is_the_same_on_all_nodes_whatever_its_title():
    """The title says more if the run also shows what the defect breaks; the fingerprint stays."""
    nodes = [node(name, ["FAIL", "PASS", "PASS"], "same") for name in "abc"]
    facts = nodes[1].facts
    assert facts is not None
    (defect,) = facts.defects
    longer = replace(defect, title=f"{defect.title}, valid requests are refused")
    nodes[1] = replace(nodes[1], facts=replace(facts, defects=(longer,)))
    assert [*differences(Fleet(tuple(nodes)))] == []
    merged = replace(defect, fingerprints=("0123456789ab", defect.fingerprint))
    nodes[1] = replace(nodes[1], facts=replace(facts, defects=(merged,)))
    assert [*differences(Fleet(tuple(nodes)))] == []
    other = replace(defect, fingerprints=("0123456789ab",))
    nodes[1] = replace(nodes[1], facts=replace(facts, defects=(other,)))
    (group,) = Fleet(tuple(nodes)).groups
    assert [
        (difference.nodes, *difference.what.split()[:2]) for difference in group.differences
    ] == [
        (("b",), "defect", defect.fingerprint),
        (("b",), "defect", other.fingerprint),
    ]
