"""The nodes of a fleet or a lab, in groups of nodes that should be equal, and the differences between the nodes of a
group. The name of a node is the name of its directory or, in a lab, the name in the lab's file. fleet.py has the page of
all groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from urllib.parse import quote

from conformance.errors import format_count
from conformance.model.verdict import KEPT, OF_RULES, UNJUDGED, VIOLATIONS
from conformance.older_python import zip
from reports.absence import NOT_SEEN, absence
from reports.environment import called
from reports.nights.facts import SEEN, Facts
from reports.nights.known_defect import KnownDefect, first_names_of

# The facts by which nodes are grouped, unless a lab's file names their group. Only nodes with equal _DEVICE
# facts are compared. Nodes with different _SETTINGS may form different groups.
_DEVICE = ("driver", "transport", "tier", "tables")
_SETTINGS = ("firmware", "kernel", "rdma-core")
# The least size of a group: a number of nodes, and a share of the nodes with the same device. The nodes of a smaller
# group are added to the largest group, so that their differences are reported.
_LEAST, _LEAST_PART = 3, 0.05
# Facts that may differ between equal nodes. Such a difference is not reported.
_OWN = ("device", "started", "stack", "shard")
COPY, _SECONDS = "copy", "seconds"
_VIOLATED = "violated"
_NOT_SEEN = ""  # the state of a defect or case that a node has judged and does not show
_CASE = "case "  # before the id of a case, as the name of a difference
# A duration is reported if it differs from the median by more than this factor, and by more than this number of median
# absolute deviations.
_SLOW, _DEVIATIONS = 1.5, 6.0
# the ranks of verdicts on a rule, the worst first; the empty text stands for none
_RANKS = {verdict: rank for rank, verdict in enumerate((*OF_RULES, ""))}
_UNKNOWN = (*UNJUDGED, "")  # verdicts that are none on the device
Values = tuple[tuple[str, tuple[str, ...]], ...]  # each value with the names of its nodes or groups
_FIRST = 3  # the number of nodes, and of tied values, that a line names


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
            **{f"{_CASE}{case}": _VIOLATED for case in facts.violating},
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
    value has this majority, `tied` has each value with its nodes, and `nodes` are all of them. `beside` has the versions
    and other parts under test that differ between the same nodes: perhaps the cause."""

    what: str
    usual: str
    here: str
    nodes: tuple[str, ...]
    tied: Values = ()
    beside: tuple[str, ...] = ()

    @property
    def alike(self) -> tuple[tuple[str, ...], ...]:
        """The nodes by value, the same for all differences between the same nodes."""
        return (self.nodes, *(nodes for _, nodes in self.tied))

    @property
    def reason(self) -> str:
        if self.what == COPY:
            ((started, _),) = self.tied
            return f"{self.usual} (all started {started}, with the same duration): run these nodes again"
        if self.tied:
            return f"{self.what}: {self.values}: no majority"
        if self.what == _SECONDS:
            return f"duration: {self.here} s, the median is {self.usual} s"
        usual = "most nodes of its group"
        better = " (better than its group)" if self.is_better else ""
        return f"{self.what}: {self.here or 'none'}, {usual}: {self.usual or 'none'}{better}"

    @property
    def is_better(self) -> bool:
        """Whether the nodes lack a defect or a violation that most nodes of their group have."""
        is_bad = self.usual in (SEEN, _VIOLATED, *VIOLATIONS)
        return is_bad and self.here in (*KEPT, _NOT_SEEN)

    @property
    def values(self) -> str:
        return format_values(self.tied)


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
            if difference.what.startswith(_CASE):
                cases.append(difference.what)
            else:
                not_of_cases.update(difference.nodes)
        # A difference in a case is left out if each of its nodes also has a difference that is not in a case; one of a
        # part under test, if each of its nodes has another version.
        causes = dict.fromkeys(self._parts_under_test, of_versions)
        causes |= dict.fromkeys(cases, not_of_cases)
        shown = [
            *self._together(
                difference
                for difference in differences
                if not causes.get(difference.what, set()).issuperset(difference.nodes)
            )
        ]
        under_test: dict[tuple[tuple[str, ...], ...], tuple[str, ...]] = {}
        for number, difference in enumerate(shown):
            beside = under_test.get(difference.alike, ())
            if difference.what in _SETTINGS or difference.what in self._parts_under_test:
                under_test[difference.alike] = (*beside, difference.what)
            else:
                shown[number] = replace(difference, beside=beside)
        return tuple(shown)

    def rank_of(self, difference: Difference) -> tuple[int, int]:
        """Returns how serious a difference is: wrong behaviour by severity, then versions and capabilities, durations, and
        what is only better."""
        if difference.is_better:
            return 3, 0
        if difference.what == _SECONDS:
            return 2, 0
        if difference.here not in (SEEN, _VIOLATED, *VIOLATIONS):
            return 1, 0
        known = self._known.get(difference.what)
        return 0, known.rank if known else len(self._known)

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
                parts.setdefault(difference.alike, []).append(difference)
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
    def _first_names(self) -> Mapping[str, str]:
        """The name of a defect on all nodes, by its name on each."""
        return first_names_of(self._sorted_defects)

    @cached_property
    def _sorted_defects(self) -> Sequence[KnownDefect]:
        """The defects of each node, the most severe first."""
        defects = [defect for node in self.nodes if node.facts for defect in node.facts.defects]
        return sorted(defects, key=lambda defect: defect.rank)

    @cached_property
    def _known(self) -> Mapping[str, KnownDefect]:
        """The defects, the most severe first, by what a difference calls them: a defect has its most frequent title,
        because the title also depends on what else the run of a node shows."""
        titles: dict[str, Counter[str]] = {}
        known: dict[str, KnownDefect] = {}
        for defect in self._sorted_defects:
            first = self._first_names[defect.fingerprint]
            titles.setdefault(first, Counter())[defect.title] += 1
            known[first] = defect
        named = {}
        for first, count in titles.items():
            ((title, _),) = count.most_common(1)
            named[f"defect {first} ({known[first].severity}; {title})"] = known[first]
        return named

    @cached_property
    def _defects(self) -> Mapping[str, Mapping[str, str]]:
        """The states of the defects on each node, by the names of the node and of the defect."""
        states = {}
        for node in self.nodes:
            if node.facts:
                here = node.facts.states(self._first_names)
                of_node = {}
                for name, defect in self._known.items():
                    state = here.get(self._first_names[defect.fingerprint])
                    of_node[name] = _unless_absent(state or node.facts.absence_of(defect))
                states[node.name] = of_node
        return states

    def link_of(self, difference: Difference) -> str:
        """Returns the address of a defect, case or rule in the report of a node that shows it; empty without a report."""
        what = difference.what
        shows = [node for node in self.nodes if node.name in difference.nodes]
        if what in self._known:
            anchor = f"defect:{self._known[what].fingerprint}"
            shows = [node for node in self.nodes if self._defects[node.name].get(what) == SEEN]
        elif what.startswith(_CASE):
            anchor = what.removeprefix(_CASE)
            shows = [node for node in self.nodes if what in node.traits]
        elif what in self.verdicts:
            anchor = what
        else:
            return ""
        report = next((node.report for node in shows if node.report), "")
        return f"{quote(report)}#{quote(anchor)}" if report else ""

    def _traits(self) -> Iterator[Difference]:
        traits = {
            node.name: {
                **self._unjudged_in(node),
                **self._defects.get(node.name, {}),
                **node.traits,
            }
            for node in self.nodes
        }
        names = dict.fromkeys(self._known)
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
        return {f"{_CASE}{case}": _unless_absent(word) for case, word in words.items()}

    def _order(self, difference: Difference) -> tuple[int, bool, int]:
        """Returns the place of a difference: defects first, then rules; first the rules that the nodes violate, the worst
        verdict first."""
        if difference.what in self._known:
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
        """Yields the nodes with one run: with the same start and duration. Nothing tells whose run it is."""
        runs: dict[tuple[str, float | None], tuple[str, ...]] = {}
        for node in self.nodes:
            if node.facts and node.facts.started and not node.group:
                run = node.facts.started, node.facts.seconds
                runs[run] = (*runs.get(run, ()), node.name)
        for (started, _), nodes in runs.items():
            if len(nodes) > 1:
                yield Difference(
                    COPY, "one run under several names", "", nodes, ((started, nodes),)
                )

    @cached_property
    def verdicts(self) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
        """For each rule: the nodes by verdict; first the most frequent verdict, of several the worst."""
        rules = dict.fromkeys(
            rule for node in self.nodes if node.facts for rule in node.facts.rules
        )
        verdicts: dict[str, dict[str, tuple[str, ...]]] = {}
        for rule in rules:
            nodes: dict[str, tuple[str, ...]] = {}
            for node in self.nodes:
                verdict = node.facts.rules.get(rule, "") if node.facts else ""
                nodes[verdict] = (*nodes.get(verdict, ()), node.name)
            ordered = sorted(nodes, key=lambda verdict: (-len(nodes[verdict]), _RANKS[verdict]))
            verdicts[rule] = {verdict: nodes[verdict] for verdict in ordered}
        return verdicts

    def majority(self, rule: str) -> str:
        """The verdict of more than half of the nodes on a rule; empty if no verdict has this majority."""
        for verdict, nodes in self.verdicts.get(rule, {}).items():
            if len(nodes) * 2 > len(self.nodes):
                return verdict
        return ""

    @cached_property
    def settings(self) -> Mapping[str, str]:
        """The driver, firmware, kernel and rdma-core that all nodes have."""
        shared: dict[str, str] = {}
        for name in ("driver", *_SETTINGS):
            texts = {node.facts.stack.get(name, "") for node in self.nodes if node.facts}
            if len(texts) == 1:
                shared[name] = texts.pop()
        return shared

    @property
    def cases(self) -> Hashable:
        """What nodes of groups that can be compared have in common: the cases of the run, and their tables."""
        facts = self.nodes[0].facts
        return facts and (facts.selection, facts.stack.get("tables", ""))


def groups_of(nodes: Sequence[Node]) -> tuple[Group, ...]:
    """Returns the groups of the nodes with a complete run, the largest first."""
    by_device: dict[tuple[Hashable, ...], list[Node]] = {}
    named: dict[tuple[str, Hashable], list[Node]] = {}
    for node in nodes:
        if node.facts and not node.problem:
            facts = node.facts
            if node.group:
                equals = named.setdefault((node.group, facts.selection), [])
            else:
                equals = by_device.setdefault(_device(facts), [])
            equals.append(node)
    groups = [Group(_named(name, members), tuple(members)) for (name, _), members in named.items()]
    groups += [
        group for device, members in by_device.items() for group in _grouped(device, members)
    ]
    names = Counter(group.name for group in groups)
    groups = [
        replace(group, name=f"{group.name}, as {group.nodes[0].name}")
        if names[group.name] > 1
        else group
        for group in groups
    ]
    return tuple(sorted(groups, key=lambda group: -len(group.nodes)))


def between(groups: Sequence[Group]) -> Iterator[Difference]:
    """Yields the differences between groups that have run the same cases: a rule that most nodes of one group violate,
    and that others keep, in the order of the rules; with the versions in which these groups differ."""
    comparable: dict[Hashable, list[Group]] = {}
    for group in groups:
        comparable.setdefault(group.cases, []).append(group)
    for members in comparable.values():
        for rule in dict.fromkeys(rule for group in members for rule in group.verdicts):
            judged = [group for group in members if group.majority(rule) not in _UNKNOWN]
            verdicts = _by_value(judged, [group.majority(rule) for group in judged])
            if len(verdicts) > 1 and not {*VIOLATIONS}.isdisjoint(dict(verdicts)):
                names = tuple(_label(group, judged) for group in judged)
                yield Difference(rule, "", "", names, verdicts, (*_unlike(judged, verdicts),))


def _by_value(groups: Sequence[Group], values: Sequence[str]) -> Values:
    """Returns each value with the names of its groups."""
    names: dict[str, tuple[str, ...]] = {}
    for group, value in zip(groups, values, strict=True):
        names[value] = (*names.get(value, ()), _label(group, groups))
    return (*names.items(),)


def _label(group: Group, groups: Sequence[Group]) -> str:
    """Returns the group's name in the lab's file or, without a file, what the group has and not all of the others."""
    if group.nodes[0].group:
        return group.nodes[0].group
    words = []
    if any(other is not group and other.settings == group.settings for other in groups):
        return group.name
    for name, text in group.settings.items():
        if any(other.settings.get(name) != text for other in groups):
            words.append(f"{name} {text or 'none'}")
    return ", ".join(words) or group.name


def _unlike(groups: Sequence[Group], verdicts: Values) -> Iterator[str]:
    """Yields what divides the groups of a lab's file as the verdicts do, with its values."""
    for setting in groups[0].settings if groups[0].nodes[0].group else ():
        values = _by_value(groups, [group.settings.get(setting, "?") for group in groups])
        if [names for _, names in values] == [names for _, names in verdicts]:
            yield f"{setting} {format_values(values)}"


def format_values(values: Values) -> str:
    """Returns the first of the values, each with the first of its nodes or groups."""
    return first_of([f"{value or 'none'} ({first_of(names)})" for value, names in values], "; ")


def format_differences(differences: Sequence[Difference]) -> str:
    """Returns the first difference of a node or a group, and the number of the others. With a version comes the first of
    what differs between the same nodes: a rule, a defect, a case or a capability."""
    first, *further = differences
    effect = next((other for other in further if first.what in other.beside), None)
    text = first.reason
    if effect:
        text += f"; with it {effect.reason}"
        further.remove(effect)
    more = f", and {format_count(len(further), 'more difference')}" if further else ""
    return f"{text}{more}"


def first_of(texts: Sequence[str], separator: str = ", ") -> str:
    more = f" and {len(texts) - _FIRST:,} more" if len(texts) > _FIRST else ""
    return f"{separator.join(texts[:_FIRST])}{more}"


def _unless_absent(state: str) -> str:
    """Returns the state of a defect, but nothing for one that was not seen."""
    return _NOT_SEEN if state == NOT_SEEN else state


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
