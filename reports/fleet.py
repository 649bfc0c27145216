"""Makes the page of a fleet or a lab: the summaries of many nodes, in groups of nodes that should be equal.
commands/compare_nodes.py and commands/lab.py read and write the files, and fleet_group.py finds the differences."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from operator import attrgetter

from conformance.errors import format_count
from conformance.model.verdict import INCOMPLETE, VIOLATIONS
from reports.absence import NOT_DECIDED, UNTRIED
from reports.fleet_group import (
    COPY,
    Difference,
    Group,
    Node,
    between,
    first_of,
    format_differences,
    groups_of,
)
from reports.page_templates import environment

FILE_NAME, DATA, DRAIN = "fleet.html", "fleet.json", "drain.sh"
SCHEMA = "rdma-cts-fleet/1"
# The beginning of the script: `drain REASON NODE...`
_DRAINING = """\
#!/bin/sh
known=$(sinfo --noheader --Node --format=%N) || exit
drain() {
    reason=$1 nodes=
    shift
    for node; do
        if printf '%s\\n' "$known" | grep -Fqx -e "$node"; then
            nodes=$nodes${nodes:+,}$node
        else
            echo "$node is not a node of this cluster, and is not drained" >&2
        fi
    done
    [ -z "$nodes" ] || scontrol update "NodeName=$nodes" State=DRAIN "Reason=$reason"
}
""".splitlines()
_MOST_REASON = 200  # the most characters of a reason to drain a node


@dataclass(frozen=True)
class Fleet:
    """All nodes, in the order in which they were given."""

    nodes: tuple[Node, ...]
    rules: Mapping[str, str] = field(default_factory=dict)  # the statement of each rule

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups, the largest first."""
        return groups_of(self.nodes)

    @cached_property
    def between(self) -> tuple[Difference, ...]:
        """The differences between groups."""
        return tuple(between(self.groups))

    @cached_property
    def broken(self) -> Mapping[tuple[str, str], tuple[str, ...]]:
        """The nodes by rule and by the reason why the rule is BROKEN there."""
        nodes: dict[tuple[str, str], tuple[str, ...]] = {}
        for node in self.nodes:
            for entry in node.facts.broken.items() if node.facts else ():
                nodes[entry] = (*nodes.get(entry, ()), node.name)
        return nodes

    @cached_property
    def missing(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.problem)

    @cached_property
    def differing(self) -> Mapping[str, list[Difference]]:
        """The differences of each node from the majority of its group, the node with the most serious one first."""
        by_node: dict[str, list[Difference]] = {}
        ranks: dict[str, tuple[int, int]] = {}
        for group in self.groups:
            for difference in group.differences:
                if not difference.tied:
                    for node in difference.nodes:
                        by_node.setdefault(node, []).append(difference)
                        rank = group.rank_of(difference)
                        ranks[node] = min(rank, ranks.get(node, rank))
        return {node: by_node[node] for node in sorted(by_node, key=ranks.__getitem__)}

    @cached_property
    def better(self) -> frozenset[str]:
        """The nodes that differ from their group only in that they lack its defects or violations."""
        return frozenset(
            node
            for node, differences in self.differing.items()
            if all(map(attrgetter("is_better"), differences))
        )

    def differences_of(self, node: str) -> list[str]:
        """Returns in what a node differs from its group, or its group has no majority."""
        return [
            difference.what
            for group in self.groups
            for difference in group.differences
            if node in difference.nodes
        ]

    @cached_property
    def tied(self) -> tuple[str, ...]:
        """The nodes with a difference without a majority."""
        return self._in_ties(is_copy=False)

    @cached_property
    def copies(self) -> tuple[str, ...]:
        """The nodes that share their run with another one."""
        return self._in_ties(is_copy=True)

    def _in_ties(self, *, is_copy: bool) -> tuple[str, ...]:
        ties = (difference for group in self.groups for difference in group.ties)
        of_kind = [difference for difference in ties if (difference.what == COPY) == is_copy]
        return (*dict.fromkeys(node for difference in of_kind for node in difference.nodes),)

    @cached_property
    def tested(self) -> list[str]:
        """The rules with a verdict on any node."""
        return list(dict.fromkeys(rule for group in self.groups for rule in group.verdicts))

    @cached_property
    def remarkable(self) -> list[str]:
        """The rules on which nodes of a group, or groups, differ; then those that most nodes violate or leave undecided."""
        alike, unlike = set(), {difference.what for difference in self.between}
        for group in self.groups:
            for rule, (usual, *others) in group.verdicts.items():
                if others:
                    unlike.add(rule)
                elif usual in (*VIOLATIONS, *INCOMPLETE):
                    alike.add(rule)
        rules = [rule for rule in self.tested if rule in alike | unlike]
        return sorted(rules, key=lambda rule: rule not in unlike)

    @property
    def headline(self) -> str:
        parts = [format_count(len(self.nodes), "node"), format_count(len(self.groups), "group")]
        violating = sum(node.violates for node in self.nodes)
        if self.differing:
            better = f" ({len(self.better):,} only for the better)" if self.better else ""
            one = len(self.differing) == 1
            differ = "differs from its group" if one else "differ from their group"
            parts.append(f"{len(self.differing):,} {differ}{better}")
        if self.tied:
            parts.append(
                f"{len(self.tied):,} differ{'s' * (len(self.tied) == 1)} without a majority"
            )
        if self.copies:
            parts.append(f"{len(self.copies):,} have one run under several names")
        if not self.groups:
            parts.append("nothing was compared")
        elif not (self.differing or self.tied or self.copies):
            parts.append("no node differs")
        if self.between:
            parts.append(f"the groups differ in {format_count(len(self.between), 'rule')}")
        if violating or self.groups:
            verb = "violates" if violating == 1 else "violate"
            parts.append(f"{violating:,} {verb} a rule" if violating else "no rule is violated")
        if self.missing:
            parts.append(f"{len(self.missing):,} without a complete run")
        return ", ".join(parts)

    @property
    def status(self) -> int:
        """The exit status: 1 if nodes of a group differ or a node violates a rule, else 3 if a run is missing or incomplete, or
        has several names, else 0."""
        if self.differing or self.tied or any(node.violates for node in self.nodes):
            return 1
        if self.missing or self.copies:
            return 3
        return 0

    def as_data(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "exit_status": self.status,
            "groups": list(map(_group_data, self.groups)),
            "between": [asdict(difference) for difference in self.between],
            "missing": {node.name: node.problem for node in self.missing},
        }


def page(fleet: Fleet) -> bytes:
    template = environment().get_template("fleet.html")
    links = {
        difference: group.link_of(difference)
        for group in fleet.groups
        for difference in group.differences
    }
    return template.render(
        fleet=fleet,
        links=links,
        undecided=(NOT_DECIDED, UNTRIED),
        format_differences=format_differences,
        first_of=first_of,
    ).encode()


def data(fleet: Fleet) -> bytes:
    return (json.dumps(fleet.as_data(), indent=1) + "\n").encode()


def drain(fleet: Fleet) -> bytes:
    """Returns a shell script that drains the nodes that differ or have no complete run, with one command for each
    reason. A name of a node is the name of a directory, and Slurm could read it as a set of nodes; therefore the script
    drains only names of single nodes of the cluster. Names that Slurm does not accept are named in a comment, and so are
    nodes that are only better than their group."""
    by_reason: dict[str, list[str]] = {}
    left_out: list[str] = []
    reasons = {
        node: format_differences(differences)
        for node, differences in fleet.differing.items()
        if node not in fleet.better
    }
    for node, reason in {**{node.name: node.problem for node in fleet.missing}, **reasons}.items():
        if node.upper() != "ALL" and all(
            (sign.isalnum() and sign.isascii()) or sign in "-_." for sign in node
        ):
            by_reason.setdefault(reason, []).append(node)
        else:
            left_out.append(node)
    lines: list[str] = []
    if by_reason:
        lines += _DRAINING
    if left_out:
        names = f"{left_out!r:.200}"
        lines.append(f"# {len(left_out)} nodes have names that Slurm does not accept: {names}")
    if fleet.better:
        names = f"{sorted(fleet.better)!r:.200}"
        lines.append(f"# not drained, because they lack defects of their group: {names}")
    for reason, nodes in by_reason.items():
        plain = "".join(
            sign if sign.isalnum() or sign in " .,:;()+-_/" else "_" for sign in reason
        )[:_MOST_REASON]
        lines.append(f"drain 'rdma-cts: {plain}' {' '.join(nodes)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _group_data(group: Group) -> dict[str, object]:
    rules = {}
    for rule, (usual, *others) in group.verdicts.items():
        nodes = [node for verdict in others for node in group.verdicts[rule][verdict]]
        rules[rule] = {"usual": usual, "others": len(nodes)}
    return {
        "name": group.name,
        "nodes": [node.name for node in group.nodes],
        "differences": [asdict(difference) for difference in group.differences],
        "rules": rules,
    }
