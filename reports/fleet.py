"""Makes the page of a fleet or a lab: the summaries of many nodes, in groups of nodes that should be equal. The name of
a node is the name of its directory or, in a lab, the name in the lab's file. commands/fleet.py and commands/lab.py read
and write the files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from conformance.errors import format_count
from conformance.model.verdict import OF_RULES, VIOLATIONS
from conformance.older_python import zip
from reports.absence import NOT_DECIDED, NOT_SEEN, UNTRIED, absence
from reports.environment import called
from reports.history import SEEN, Facts, first_names_of
from reports.page_templates import environment

FILE_NAME, DATA, DRAIN = "fleet.html", "fleet.json", "drain.sh"
SCHEMA = "rdma-cts-fleet/1"
# The facts by which nodes are grouped, unless a lab's file names their group. Only nodes with equal _DEVICE
# facts are compared. Nodes with different _SETTINGS may form different groups.
_DEVICE = ("driver", "transport", "tier", "tables")
_SETTINGS = ("firmware", "kernel", "rdma-core")
# The least size of a group: a number of nodes, and a share of the nodes with the same device. The nodes of a smaller
# group are added to the largest group, so that their differences are reported.
_LEAST, _LEAST_PART = 3, 0.05
# Facts that may differ between equal nodes. Such a difference is not reported.
_OWN = ("device", "started", "stack", "shard")
_COPY, _SECONDS = "copy", "seconds"
# A duration is reported if it differs from the median by more than this factor, and by more than this number of median
# absolute deviations.
_SLOW, _DEVIATIONS = 1.5, 6.0
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
# the ranks of verdicts on a rule, the worst first; the empty text stands for none
_RANKS = {verdict: rank for rank, verdict in enumerate((*OF_RULES, ""))}
_FIRST = 3  # the number of nodes, and of tied values, that a line names
_MOST_REASON = 200  # the most characters of a reason to drain a node


@dataclass(frozen=True)
class Node:
    """A node. `report` is the address of its report relative to the page; empty without a report. `facts` are read from
    its summary. `problem` is the reason why there are no facts or why the run is incomplete; empty for a complete run.
    `group` is the node's group in the file of a lab, if the file names a group."""

    name: str
    report: str = ""
    facts: Facts | None = None
    problem: str = ""
    group: str = ""

    @cached_property
    def traits(self) -> Mapping[str, str]:
        """The facts that should be the same on equal nodes, by name; without the defects."""
        facts = self.facts
        if facts is None:
            return {}
        return {
            **facts.rules,
            **{f"case {case}": "violated" for case in facts.violating},
            **{f"capability {name}": text for name, text in facts.capabilities.items()},
            **{name: text for name, text in facts.stack.items() if name not in (*_OWN, *_DEVICE)},
            **{called(name): text for name, text in facts.hashes.items()},
        }

    @property
    def violates(self) -> bool:
        return bool(
            self.facts and any(verdict in VIOLATIONS for verdict in self.facts.rules.values()),
        )


@dataclass(frozen=True)
class Difference:
    """Nodes of a group with the value `here` of a fact, while more than half of the group have the value `usual`. If no
    value has this majority, `tied` has each value with its nodes, and `nodes` are all of them."""

    what: str
    usual: str
    here: str
    nodes: tuple[str, ...]
    tied: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def reason(self) -> str:
        if self.tied:
            return f"{self.what}: {self.values}: no majority"
        if self.what == _COPY:
            return f"the run is a copy of {self.here}"
        usual = "the median" if self.what == _SECONDS else "most nodes of its group"
        return f"{self.what}: {self.here or 'none'}, {usual}: {self.usual or 'none'}"

    @property
    def values(self) -> str:
        """The first of the tied values, each with its first nodes."""
        values = [f"{value or 'none'} ({first_of(nodes)})" for value, nodes in self.tied]
        return first_of(values, "; ")


@dataclass(frozen=True)
class Group:
    """Nodes that should be equal. `name` describes their device and settings, or is their group in the lab's file."""

    name: str
    nodes: tuple[Node, ...]

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The differences between the nodes: versions and other parts under test, which are perhaps the cause of the
        others; then defects and verdicts, capabilities, durations, copies."""
        differences = [*self._traits(), *self._seconds(), *self._copies()]
        of_versions: set[str] = set()
        not_of_cases: set[str] = set()
        cases = []
        for difference in differences:
            if difference.what in _SETTINGS:
                of_versions.update(difference.nodes)
            if difference.what.startswith("case "):
                cases.append(difference.what)
            else:
                not_of_cases.update(difference.nodes)
        # A difference in a case is left out if each of its nodes also has a difference that is not in a case; one of a
        # part under test, if each of its nodes has another version.
        causes = dict.fromkeys(self._parts_under_test, of_versions)
        causes |= dict.fromkeys(cases, not_of_cases)
        return tuple(
            self._together(
                difference
                for difference in differences
                if not causes.get(difference.what, set()).issuperset(difference.nodes)
            )
        )

    @property
    def ties(self) -> list[Difference]:
        """The differences without a majority."""
        return [difference for difference in self.differences if difference.tied]

    def _together(self, differences: Iterable[Difference]) -> Iterator[Difference]:
        """Yields the differences; parts under test that differ on the same nodes are one difference."""
        parts: dict[tuple[tuple[str, ...], ...], list[Difference]] = {}
        others = []
        for difference in differences:
            if difference.what in self._parts_under_test:
                alike = (difference.nodes, *(nodes for _, nodes in difference.tied))
                parts.setdefault(alike, []).append(difference)
            elif difference.what in _SETTINGS:
                yield difference
            else:
                others.append(difference)
        for first, *more in parts.values():
            if more:
                yield replace(first, what=f"{first.what}, and {len(more)} more parts under test")
            else:
                yield first
        yield from others

    @cached_property
    def _parts_under_test(self) -> set[str]:
        """The names of the parts under test whose hashes any node has."""
        facts = [node.facts for node in self.nodes if node.facts]
        return {called(name) for these in facts for name in these.hashes}

    @cached_property
    def _defects(self) -> Mapping[str, Mapping[str, str]]:
        """The defects of each node as facts, by the name of the node, and first under no name all of them, the most severe
        first. A defect has one name on all nodes, with its most frequent title: the title also depends on what else the
        run of a node shows."""
        defects = [defect for node in self.nodes if node.facts for defect in node.facts.defects]
        defects.sort(key=lambda defect: defect.rank)
        first_names = first_names_of(defects)
        titles: dict[str, Counter[str]] = {}
        for defect in defects:
            titles.setdefault(first_names[defect.fingerprint], Counter())[defect.title] += 1
        called_here, known = {}, {first_names[defect.fingerprint]: defect for defect in defects}
        for first, count in titles.items():
            ((title, _),) = count.most_common(1)
            called_here[first] = f"defect {first} ({title})"
        states = {"": dict.fromkeys(called_here.values(), SEEN)}
        for node in self.nodes:
            if node.facts:
                here = node.facts.states(first_names)
                states[node.name] = {
                    name: _unless_absent(here.get(first) or node.facts.absence_of(known[first]))
                    for first, name in called_here.items()
                }
        return states

    def _traits(self) -> Iterator[Difference]:
        traits = {
            node.name: {
                **self._unjudged_in(node),
                **self._defects.get(node.name, {}),
                **node.traits,
            }
            for node in self.nodes
        }
        names = dict.fromkeys(self._defects[""])
        names |= dict.fromkeys(name for of_node in traits.values() for name in of_node)
        differences = []
        for name in names:
            by_value: dict[str, list[str]] = {}
            for node, of_node in traits.items():
                by_value.setdefault(of_node.get(name, ""), []).append(node)
            values = [(value, (*nodes,)) for value, nodes in by_value.items()]
            values.sort(key=lambda entry: -len(entry[1]))
            (usual, most), *rest = values
            if len(most) * 2 > len(traits):
                differences += [Difference(name, usual, other, nodes) for other, nodes in rest]
            else:
                differences.append(Difference(name, "", "", (*traits,), (*values,)))
        yield from sorted(differences, key=self._order)

    def _unjudged_in(self, node: Node) -> Mapping[str, str]:
        """The word for each case that another node violates, and of which this node has judged nothing, or not all."""
        violated = {case for other in self.nodes if other.facts for case in other.facts.violating}
        if not node.facts:
            return {}
        words = {case: absence([node.facts.judged(case)]) for case in violated}
        return {f"case {case}": _unless_absent(word) for case, word in words.items()}

    def _order(self, difference: Difference) -> tuple[int, bool, int]:
        """Returns the place of a difference: defects first, then rules; first the rules that the nodes violate, the worst
        verdict first."""
        if difference.what in self._defects[""]:
            return 0, False, 0
        if difference.what not in self.verdicts:
            return 2, False, 0
        here = dict(difference.tied) or {difference.here: ()}
        worst = min(_RANKS.get(value, len(_RANKS)) for value in (difference.usual, *here))
        return 1, {*here}.isdisjoint(VIOLATIONS), worst

    def _seconds(self) -> Iterator[Difference]:
        taken = {
            node.name: node.facts.seconds
            for node in self.nodes
            if node.facts and node.facts.seconds
        }
        if len(taken) < _LEAST:
            return
        import statistics  # imported late: few fleets are so large

        median = statistics.median(taken.values())
        deviation = statistics.median(abs(seconds - median) for seconds in taken.values())
        for name, seconds in taken.items():
            ratio = max(seconds / median, median / seconds)
            if ratio > _SLOW and abs(seconds - median) > _DEVIATIONS * deviation:
                yield Difference(_SECONDS, f"{median:.0f}", f"{seconds:.0f}", (name,))

    def _copies(self) -> Iterator[Difference]:
        """Yields nodes whose results are a copy: their run has the start and the duration of another node's run."""
        copies: dict[tuple[str, float | None], str] = {}
        for node in self.nodes:
            if node.facts and node.facts.started and not node.group:
                first = copies.setdefault((node.facts.started, node.facts.seconds), node.name)
                if first != node.name:
                    yield Difference(_COPY, "", f"the run of {first}", (node.name,))

    @cached_property
    def verdicts(self) -> Mapping[str, tuple[str, int]]:
        """For each rule: the most frequent verdict of the nodes, of several the worst, and the number of nodes with a
        different verdict."""
        rules = dict.fromkeys(
            rule for node in self.nodes if node.facts for rule in node.facts.rules
        )
        verdicts: dict[str, tuple[str, int]] = {}
        for rule in rules:
            count = Counter(node.facts.rules.get(rule, "") for node in self.nodes if node.facts)
            usual = min(count, key=lambda verdict: (-count[verdict], _RANKS[verdict]))
            verdicts[rule] = usual, len(self.nodes) - count[usual]
        return verdicts


@dataclass(frozen=True)
class Fleet:
    """All nodes, in the order in which they were given."""

    nodes: tuple[Node, ...]
    rules: Mapping[str, str] = field(default_factory=dict)  # the statement of each rule

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups, the largest first."""
        by_device: dict[tuple[Hashable, ...], list[Node]] = {}
        named: dict[tuple[str, Hashable], list[Node]] = {}
        for node in self.nodes:
            if node.facts and not node.problem:
                facts = node.facts
                if node.group:
                    equals = named.setdefault((node.group, facts.selection), [])
                else:
                    equals = by_device.setdefault(_device(facts), [])
                equals.append(node)
        groups = [Group(_named(name, nodes), tuple(nodes)) for (name, _), nodes in named.items()]
        groups += [
            group for device, nodes in by_device.items() for group in _grouped(device, nodes)
        ]
        return tuple(sorted(groups, key=lambda group: -len(group.nodes)))

    @cached_property
    def missing(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.problem)

    @cached_property
    def differing(self) -> Mapping[str, list[Difference]]:
        """The differences of each node from the majority of its group."""
        by_node: dict[str, list[Difference]] = {}
        for group in self.groups:
            for difference in group.differences:
                if not difference.tied:
                    for node in difference.nodes:
                        by_node.setdefault(node, []).append(difference)
        return by_node

    @cached_property
    def tied(self) -> tuple[str, ...]:
        """The nodes of the groups in which a value has no majority."""
        return tuple(node.name for group in self.groups if group.ties for node in group.nodes)

    @cached_property
    def tested(self) -> list[str]:
        """The rules with a verdict on any node."""
        return list(dict.fromkeys(rule for group in self.groups for rule in group.verdicts))

    @cached_property
    def remarkable(self) -> list[str]:
        """The rules that most nodes of a group violate, or on which nodes of a group differ."""
        verdicts = [
            (rule, verdict) for group in self.groups for rule, verdict in group.verdicts.items()
        ]
        rules = {rule for rule, (usual, others) in verdicts if usual in VIOLATIONS or others}
        return [rule for rule in self.tested if rule in rules]

    @property
    def headline(self) -> str:
        parts = [format_count(len(self.nodes), "node"), format_count(len(self.groups), "group")]
        violating = sum(node.violates for node in self.nodes)
        if self.differing:
            parts.append(f"{len(self.differing):,} differ from their group")
        if self.tied:
            parts.append(f"{len(self.tied):,} differ without a majority")
        if not self.groups:
            parts.append("nothing was compared")
        elif not (self.differing or self.tied):
            parts.append("no node differs")
        if violating or self.groups:
            verb = "violates" if violating == 1 else "violate"
            parts.append(f"{violating:,} {verb} a rule" if violating else "no rule is violated")
        if self.missing:
            parts.append(f"{len(self.missing):,} without a complete run")
        return ", ".join(parts)

    @property
    def status(self) -> int:
        """The exit status: 1 if nodes of a group differ or a node violates a rule, else 3 if a run is missing or incomplete,
        else 0."""
        if self.differing or self.tied or any(node.violates for node in self.nodes):
            return 1
        if self.missing:
            return 3
        return 0

    def as_data(self) -> dict[str, object]:
        return {
            "schema": SCHEMA,
            "headline": self.headline,
            "exit_status": self.status,
            "groups": list(map(_group_data, self.groups)),
            "missing": {node.name: node.problem for node in self.missing},
        }


def first_of(texts: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(texts) - _FIRST:,} more" if len(texts) > _FIRST else ""
    return f"{separator.join(texts[:_FIRST])}{more}"


def _unless_absent(state: str) -> str:
    """Returns the state of a defect, but nothing for one that was not seen."""
    return "" if state == NOT_SEEN else state


def _device(facts: Facts) -> tuple[Hashable, ...]:
    """Returns the facts that nodes must share to be compared: the kind of device and the cases of the run."""
    shared = (facts.stack.get(name, "") for name in _DEVICE)
    return (*shared, facts.capabilities.get("vendor_part_id", ""), facts.selection)


def _named(name: str, nodes: Sequence[Node]) -> str:
    if nodes[0].facts:
        return f"{name}, {format_count(nodes[0].facts.cases, 'case')}"
    return name


def _grouped(device: tuple[Hashable, ...], nodes: Sequence[Node]) -> Iterator[Group]:
    """Groups the nodes with one kind of device by settings. Nodes with rare settings are in the largest group."""
    by_settings: dict[tuple[str, ...], list[Node]] = {}
    for node in nodes:
        assert node.facts is not None
        settings = tuple(node.facts.stack.get(name, "") for name in _SETTINGS)
        by_settings.setdefault(settings, []).append(node)
    ordered = sorted(by_settings.items(), key=lambda item: -len(item[1]))
    (settings, largest), *rest = ordered
    enough = max(_LEAST, _LEAST_PART * len(nodes))
    large_groups = {
        settings_of_group: members for settings_of_group, members in rest if len(members) >= enough
    }
    rare = [
        node
        for settings_of_group, members in rest
        if settings_of_group not in large_groups
        for node in members
    ]
    for entry, members in {settings: [*largest, *rare], **large_groups}.items():
        words = [str(device[0])]
        for name, text in zip(_SETTINGS, entry, strict=True):
            alike = [node for node in members if node.facts and node.facts.stack.get(name) == text]
            if text and len(alike) * 2 > len(members):
                words.append(f"{name} {text}")
        yield Group(_named(", ".join(words), members), tuple(members))


def page(fleet: Fleet) -> bytes:
    template = environment().get_template("fleet.html")
    return template.render(fleet=fleet, undecided=(NOT_DECIDED, UNTRIED)).encode()


def data(fleet: Fleet) -> bytes:
    return (json.dumps(fleet.as_data(), indent=1) + "\n").encode()


def drain(fleet: Fleet) -> bytes:
    """Returns a shell script that drains the nodes that differ or have no complete run, with one command for each
    reason. A name of a node is the name of a directory, and Slurm could read it as a set of nodes; therefore the script
    drains only names of single nodes of the cluster. Names that Slurm does not accept are named in a comment."""
    by_reason: dict[str, list[str]] = {}
    left_out: list[str] = []
    reasons = {
        node: differences[0].reason + ", and more" * (len(differences) > 1)
        for node, differences in fleet.differing.items()
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
    for reason, nodes in by_reason.items():
        plain = "".join(
            sign if sign.isalnum() or sign in " .,:;()+-_/" else "_" for sign in reason
        )[:_MOST_REASON]
        lines.append(f"drain 'rdma-cts: {plain}' {' '.join(nodes)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _group_data(group: Group) -> dict[str, object]:
    rules = {}
    for rule, (usual, others) in group.verdicts.items():
        rules[rule] = {"usual": usual, "others": others}
    return {
        "name": group.name,
        "nodes": [node.name for node in group.nodes],
        "differences": [asdict(difference) for difference in group.differences],
        "rules": rules,
    }
