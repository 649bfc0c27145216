"""Tests the model of an access: that the reference passes each point, that a device with a defect does not, and
that deviations are explained by the values that cause them."""

import copy
import errno
import functools
import itertools
import re
import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from conformance.combinations.explanation import explained
from conformance.combinations.objects import Objects
from conformance.combinations.run import carried_out, observe
from conformance.defects import symptoms_of
from conformance.defects.cause import cause_of
from conformance.errors import UserError
from conformance.execution import connection
from conformance.execution.runner import no_progress
from conformance.judging import judge
from conformance.judging.combinations import Judged, deviation, is_granted
from conformance.judging.sentences import sentence
from conformance.model.combinations import Conditions, CoveringArray, Point
from conformance.model.fault import QUEUE_DOMAIN, FaultKind
from conformance.model.observation import CombinationsSeen, Observation
from conformance.model.verdict import Verdict
from conformance.older_python import pairwise, zip
from conformance.results.combined import deviations, with_command
from conformance.results.reached import pairs, unreached, unseen
from conformance.tables.suite import load_suite
from reports.compared.picture import Picture
from samples import result
from trial.catalogue import named
from trial.reference.access import RIGHTS
from trial.reference.advice import PREFETCH, PREFETCH_NO_FAULT
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.reference.memory import PAGE
from trial.reference.objects import RELAXED_ORDERING, REMOTE_READ, ZERO_BASED, Domain, Region
from trial.reference.reregistration import CHANGE_ACCESS, CHANGE_PD

_CASES = {
    "pairs": ("model/pairs",),
    "slice": ("model/slice",),
    "triples": ("model/triples", "model/refused-triples"),
    "binds": ("binds/triples",),
    "changes": ("changes/triples",),
    "advice": ("advice/triples",),
    "registrations": ("registrations/triples",),
}


@functools.cache
def array(name: str) -> CoveringArray:
    """Returns an array with the points of all its cases."""
    parts = [_array_of(id_) for id_ in _CASES[name]]
    points = [point for part in parts for point in part.points]
    numbers = [number for part in parts for number in part.numbers]
    return replace(parts[0], points=tuple(points), numbers=tuple(numbers))


def _array_of(id_: str) -> CoveringArray:
    case = load_suite().find(f"access/{id_}")
    assert case is not None
    assert case.array is not None
    return case.array


PAIRS = array("pairs")


@functools.cache
def pairs_seen(lacking: str = "") -> CombinationsSeen:
    """Returns what the pairs show on a reference without this capability. A test that changes it copies it."""
    with closing(ReferenceBench(Device())) as bench:
        return observe(PAIRS, bench, lambda name, *entry: name != lacking, no_progress)[
            "combinations"
        ]


@functools.cache
def judged_pairs(device: type[Device]) -> Judged:
    return judged(device, PAIRS)


def judged(device: type[Device], points: CoveringArray) -> Judged:
    with closing(ReferenceBench(device())) as bench:
        seen = observe(points, bench, lambda *need: True, no_progress)
    return Judged(points, seen["combinations"])


@pytest.mark.parametrize("name", ["pairs", "binds", "changes", "advice", "registrations"])
def test_the_reference_passes_every_point(name):
    points = array(name)
    judgement = judged(Device, points)
    assert judgement.verdicts == {Verdict.PASS: len(points.points)}
    assert set(judgement.rules.values()) == {Verdict.PASS}


@pytest.mark.parametrize("name", ["pairs", "binds", "changes", "advice", "registrations"])
def test_a_value_that_no_code_carries_out_is_not_taken_for_another(name):
    """Each parameter is tried at the points without a fault, until one of them raises."""
    model, points = array(name).model, array(name).points
    conditions, taken = Conditions(model), set(model.names)
    with (
        closing(ReferenceBench(Device())) as bench,
        closing(Objects(bench, lambda *n: True)) as objects,
    ):
        for point in itertools.islice((p for p in points if not conditions.faults(p)), 100):
            values = dict(zip(model.names, point, strict=True))
            for parameter in sorted(taken):
                try:
                    carried_out(model.name)(objects, {**values, parameter: "unheard"}, []).observe()
                except (LookupError, ValueError):
                    taken.remove(parameter)
    assert taken == set()


class _GrantsReading(Device):
    """On-demand regions grant REMOTE_READ to everybody."""

    def allows(self, region: Region, right: int) -> bool:
        return right == REMOTE_READ or super().allows(region, right)


class _LosesImmediate(Device):
    """Over UC, the completion of a receive has no immediate data."""

    def complete_receive(self, peer: Any, done: Any) -> None:
        super().complete_receive(peer, done._replace(imm=None) if peer.kind == "UC" else done)


def test_a_right_that_is_not_enforced_violates_the_rule_of_the_right():
    judgement = judged_pairs(_GrantsReading)
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert violated
    assert violated <= {"REG-06", "REREG-03"}


class _KeepsRevokedRights(Device):
    """ibv_modify_qp revokes no right of a queue pair."""

    def set_access(self, queue: Any, access: int) -> None:
        super().set_access(queue, queue.access | access)


class _OpensOtherProcesses(Device):
    """The keys of another process open its regions."""

    def opens(self, region: Region, domain: Domain) -> bool:
        return region.domain.context_pointer != domain.context_pointer or super().opens(
            region, domain
        )


class _FailsSilently(Device):
    """A request that is not signaled and fails has no completion; the requests behind it are flushed."""

    def complete(self, queue: Any, request: Any, status: str) -> None:
        if status in ("SUCCESS", "WR_FLUSH_ERR") or self.asks_completion(queue, request.flags):
            super().complete(queue, request, status)
        else:
            self.fail(queue)


class _TellsNoLength(Device):
    """A receive that is too short for its message fails as if it could not be written."""

    def complete_receive(self, peer: Any, done: Any) -> None:
        if done.status == "LOC_LEN_ERR":
            done = done._replace(status="LOC_QP_OP_ERR")
        super().complete_receive(peer, done)


@pytest.mark.parametrize(
    "device, rule",
    [
        (_KeepsRevokedRights, "REG-28"),
        (_OpensOtherProcesses, "REG-27"),
        (_FailsSilently, "WC-07"),
        (_TellsNoLength, "STAT-08"),
    ],
)
def test_a_missing_check_violates_the_rule_of_the_check(device, rule):
    judgement = judged_pairs(device)
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert rule in violated
    assert violated <= {rule, "REG-26"}  # an element of a list may have the key


class _BindsBeyond(Device):
    """A window may begin before its region."""

    def beyond(self, region: Region, addr: int, length: int) -> bool:
        return addr >= region.iova and super().beyond(region, addr, length)


class _KeepsEarlierKeys(Device):
    """After a bind, the key before it still names the window."""

    def replace_key(self, window: Any, key: int) -> None:
        before = window.key
        super().replace_key(window, key)
        self.keys[before] = window


class _TakesNewKeyOfOthers(Device):
    """A bind takes the region of another domain."""

    def other_domain(self, queue: Domain, window: Any, region: Region) -> bool:
        return window.domain is not queue


class _LosesRightsWithTheDomain(Device):
    """A change of the domain and the rights leaves the rights as they were."""

    def wanted(self, region: Region, change: Any) -> Any:
        both = change.flags & CHANGE_PD and change.flags & CHANGE_ACCESS
        *others, access = super().wanted(region, change)
        return (*others, region.access if both else access)


@pytest.mark.parametrize(
    "device, points, rules",
    [
        (_BindsBeyond, "binds", {"BIND-10"}),
        (_KeepsEarlierKeys, "binds", {"BIND-02a", "BIND-15"}),
        (_TakesNewKeyOfOthers, "binds", {"BIND-18"}),
        (_LosesRightsWithTheDomain, "changes", {"REREG-03", "REREG-04", "REREG-12"}),
    ],
)
def test_a_mistake_of_binds_or_changes_violates_its_rules(device, points, rules):
    judgement = judged(device, array(points))
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert violated == rules


class _TakesWindowsOfOthers(Device):
    """A bind takes the window of another domain than that of the queue pair."""

    def other_domain(self, queue: Domain, window: Any, region: Region) -> bool:
        return window.domain is not region.domain


class _WindowsOpenRegions(Device):
    """The key of a window opens all bytes of its region."""

    def window_contains(self, window: Any, offset: int, length: int) -> bool:
        return True


@pytest.mark.parametrize(
    "device, key",
    [
        (_BindsBeyond, ("accepted", "bind", "", "BIND-10")),
        (_TakesNewKeyOfOthers, ("accepted", "bind", "", "BIND-18")),
        (_TakesWindowsOfOthers, ("accepted", "bind", "", "BIND-18", QUEUE_DOMAIN)),
        (_WindowsOpenRegions, ("use", "window", "BIND-10")),
    ],
)
def test_points_of_binds_have_the_causes_of_rows(device, key):
    case = load_suite().find("access/binds/slice")
    assert case is not None
    assert case.array is not None
    broken = deviations(judged(device, case.array), case)
    record = result(case, verdict="FAIL", deviations=broken)
    assert {cause_of(symptom).key for symptom in symptoms_of(record)} == {key}


class _FollowsListsShortly(Device):
    """A range of a list of several is followed up to the end of 2 MiB."""

    several = False

    def advise_mr(self, pd: int, advice: int, flags: int, sg_list: Any) -> None:
        self.several = len(sg_list) > 1
        super().advise_mr(pd, advice, flags, sg_list)

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        if self.several:
            length = min(length, -addr % (2 << 20) or 2 << 20)
        return super().follow(addr, length, advice, flags)


class _FaultsLaterElements(Device):
    """PREFETCH_NO_FAULT faults in the pages of all elements but the first."""

    first = True

    def advise_mr(self, pd: int, advice: int, flags: int, sg_list: Any) -> None:
        self.first = True
        super().advise_mr(pd, advice, flags, sg_list)

    def follow(self, addr: int, length: int, advice: int, flags: int) -> bool:
        if advice == PREFETCH_NO_FAULT and not self.first:
            advice = PREFETCH
        self.first = False
        return super().follow(addr, length, advice, flags)


class _AdvisesForeignImplicitRegions(Device):
    """An implicit region of another domain is advised."""

    def foreign(self, domain: Domain, region: Region) -> bool:
        return region.addr > 0 and super().foreign(domain, region)


class _TellsWrongCode(Device):
    """A range outside of an odd region is refused with another errno."""

    def element_fault(self, domain: Domain, advice: int, region: Region, sge: Any) -> int:
        fault = super().element_fault(domain, advice, region, sge)
        return errno.EINVAL if fault == errno.EFAULT and region.iova % 2 else fault


class _LimitsNotByIova(Device):
    """ibv_reg_mr_iova does not check the limit of locked memory."""

    limited = True

    def reg_mr_iova(self, *arguments: Any) -> Region:
        self.limited = False
        try:
            return super().reg_mr_iova(*arguments)
        finally:
            self.limited = True

    def over_limit(self, addr: int, length: int) -> bool:
        return self.limited and super().over_limit(addr, length)


class _ChecksUpTo2Mib(Device):
    """The pages behind the end of 2 MiB are only checked for reading."""

    def not_there(self, addr: int, length: int, access: int) -> bool:
        front = min(length, -addr % (2 << 20) or 2 << 20)
        return super().not_there(addr, front, access) or (
            front < length and super().not_there(addr + front, length - front, 0)
        )


class _PlacesZeroBased(Device):
    """A zero-based region that crosses the end of 2 MiB begins at its offset in the page."""

    def register(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        region = super().register(pd, addr, length, hca_va, access)
        if access & ZERO_BASED and addr >> 21 != (addr + length - 1) >> 21:
            region.iova = addr % PAGE
        return region


class _PlacesDmabufs(Device):
    """With RELAXED_ORDERING, the offset of a dma-buf is not compared with that of its iova."""

    def dmabuf_fault(self, offset: int, length: int, iova: int, access: int, size: int) -> int:
        if access & RELAXED_ORDERING:
            iova = offset
        return super().dmabuf_fault(offset, length, iova, access, size)


@pytest.mark.parametrize(
    "device, rules, verb",
    [
        (_FollowsListsShortly, {"ADV-04", "ADV-08", "ADV-13"}, "resident"),
        (_FaultsLaterElements, {"ADV-03"}, "resident"),
        (_AdvisesForeignImplicitRegions, {"ADV-10", "ADV-13", "ADV-15"}, "ibv_advise_mr"),
        (_TellsWrongCode, {"ADV-08", "ADV-16"}, "ibv_advise_mr"),
        (_LimitsNotByIova, {"REG-23"}, "ibv_reg_mr_iova"),
        (_ChecksUpTo2Mib, {"REG-23"}, "ibv_reg_mr"),
        (_PlacesZeroBased, {"EX-06", "REG-11", "REG-20"}, "traffic"),
        (_PlacesDmabufs, {"DMA-02"}, "ibv_reg_dmabuf_mr"),
    ],
)
def test_a_mistake_of_a_call_violates_its_rules_and_names_the_verb(device, rules, verb):
    model = "advice" if rules & {*array("advice").rules} else "registrations"
    judgement = judged(device, array(model))
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert violated == rules
    case = load_suite().find(f"access/{model}/triples")
    assert case is not None
    assert verb in {item["fault"]["verb"] for item in deviations(judgement, case)}


class _NullRegionsKeep(Device):
    """What a null region gives when it is read is not zero."""

    def null_content(self, length: int) -> bytes:
        return bytes([1]) * length


class _FlushesWithoutRight(Device):
    """A region without FLUSH_GLOBAL is flushed."""

    def allows(self, region: Region, right: int) -> bool:
        return right == RIGHTS["FLUSH_GLOBAL"] or super().allows(region, right)


@pytest.mark.parametrize(
    "device, rules",
    [
        (_NullRegionsKeep, {"NUL-01", "WRX-02"}),  # a builder's list may have the region
        (_FlushesWithoutRight, {"REG-08", "NUL-04"}),
    ],
)
def test_null_regions_and_flushes_are_judged(device, rules):
    judgement = judged_pairs(device)
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert violated == rules


def _combinations(points: Sequence[Point], strength: int) -> set[tuple[Any, ...]]:
    values = set()
    for point in points:
        for chosen in itertools.combinations(range(len(point)), strength):
            values.add((chosen, tuple(point[number] for number in chosen)))
    return values


def test_a_failed_request_without_a_completion_is_told_unless_its_inline_data_may_be_lost():
    seen = copy.deepcopy(pairs_seen())
    for point_class in seen["classes"]:
        answer = point_class["answer"]
        if point_class["reliable"] and not is_granted(answer) and answer["posted"] == "0":
            flushed = [["WR_FLUSH_ERR", "another wr_id"]]
            point_class["observed"] = {**point_class["observed"], "requester": flushed}
    (group,) = (group for key, group in Judged(PAIRS, seen).groups.items() if key[1] == "WC-07")
    values = [dict(zip(PAIRS.model.names, point)) for point in group.points]
    inline = [point for point in values if point["flags"] == "inline"]
    assert {point["posting"] for point in inline} == {"post_send"}
    assert {point["posting"] for point in values} > {"post_send"}


def test_a_case_of_which_no_point_can_be_run_is_unsupported():
    case = load_suite().find("access/model/pairs")
    assert case is not None
    with closing(ReferenceBench(Device())) as bench:
        nothing = observe(PAIRS, bench, lambda name: False, no_progress)
    something: Observation = {**nothing, "combinations": pairs_seen("atomics")}
    verdicts = [judge(case, (), seen).verdict for seen in (nothing, something)]
    assert verdicts == [Verdict.UNSUPPORTED, Verdict.PASS]


def test_combinations_that_a_device_lacks_are_counted_by_the_missing_capability():
    judgement = Judged(PAIRS, pairs_seen("atomics"))
    reasons, total = unreached(judgement)
    names = PAIRS.model.names
    atomics = {point[names.index("operation")] for point in judgement.skipped}
    assert atomics == {"ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD"}
    assert set(reasons) == {"need atomics"}
    reached = _combinations([point for point in PAIRS.points if point not in judgement.skipped], 2)
    assert total == len(_combinations(PAIRS.points, 2))
    assert reasons.total() == total - len(reached)
    assert unreached(Judged(PAIRS, pairs_seen()))[0].total() == 0


def test_a_fault_names_the_addresses_of_a_region_if_its_rule_is_about_addresses():
    case = load_suite().find("access/registrations/slice")
    assert case is not None
    assert case.array is not None
    judgement = judged(named("ex-iova-ignored").kind, case.array)
    found = {fact["rules"][0]: fact["fault"].get("region") for fact in deviations(judgement, case)}
    assert found.pop("EX-02") == ["addresses of its own"]
    assert not any(found.values())


def test_combinations_that_show_nothing_about_a_rule_are_counted_by_rule():
    seen = copy.deepcopy(pairs_seen())
    assert unseen(Judged(PAIRS, seen)) == {}
    ids = [*range(0, len(seen["classes"]), 7)]
    for number in ids:
        seen["classes"][number]["observed"] = {"setup_failed": "a region was refused"}
    judgement = Judged(PAIRS, seen)
    right = {rule: {*judgement.points_of(rule)} for rule in judgement.rules}
    hidden = {
        rule: _combinations(points, 2) - _combinations([*right.get(rule, ())], 2)
        for rule, points in judgement.hidden.items()
    }
    expected = {rule: len(combinations) for rule, combinations in hidden.items() if combinations}
    assert unseen(judgement) == expected != {}
    assert set().union(*judgement.hidden.values()) == {*judgement.skipped}


def test_a_deviation_hides_what_its_point_would_show_about_other_rules():
    judgement = judged_pairs(_GrantsReading)
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert "STAT-01" in judgement.hidden
    assert "STAT-01" in unseen(judgement)
    assert violated.isdisjoint(unseen(judgement))


def test_the_picture_has_a_cell_for_each_pair_of_values_in_the_colour_of_its_points():
    facts = pairs(judged_pairs(_LosesImmediate))
    picture = Picture("access/model/pairs", facts)
    numbers = {value: number for number, value in enumerate(picture.values)}

    def state(transport: str, operation: str) -> str:
        column, row = numbers["transport", transport], numbers["operation", operation]
        return picture.cells[column, row]

    assert state("UC", "SEND_WITH_IMM") in "sw"
    assert state("RC", "SEND_WITH_IMM") == "r"
    assert state("UC", "RDMA_READ") == "-"
    assert picture.always_wrong == []
    for name, count in picture.counts.items():
        widths = re.findall(r"h(\d+)v1", picture.paths[name])
        assert sum(map(int, widths)) == count
    assert sum(picture.counts.values()) + facts["states"].count("-") == len(picture.cells)


def test_a_value_that_is_wrong_everywhere_is_named():
    axes = {"one": ["a", "b"], "two": ["c", "d"], "three": ["e", "f"]}
    wrong = Picture("m", {"parameters": axes, "states": "wwrs" + "wwrr" + "rr-n"})
    assert wrong.always_wrong == ["one=a"]
    assert wrong.paths["wrong"] == "M0 2h1v1h-1zM0 3h1v1h-1zM0 4h1v1h-1zM0 5h1v1h-1z"
    assert wrong.paths["lacking"] == "M3 5h1v1h-1z"


def test_the_labels_of_parameters_with_few_values_are_apart_and_beside_the_cells():
    """Three parameters of two values had labels on top of each other among forty rows."""
    lengths = [6, 2, 2, 2, 30]
    axes = {}
    for number, length in enumerate(lengths):
        axes[f"parameter_{number}"] = [f"{number}-{value}" for value in range(length)]
    number = sum(one * other for one, other in itertools.combinations(lengths, 2))
    picture = Picture("m", {"parameters": axes, "states": "r" * number})
    labels = sorted(picture.labels, key=lambda label: label.y)
    assert [label.name for label in labels] == [*axes]
    assert all(after.y - before.y >= picture.letter for before, after in pairwise(labels))
    starts = [0, *itertools.accumulate(lengths)]
    for label in labels:
        widest = max(start for start in starts if start <= label.y)
        assert widest < label.x < picture.width
    assert labels[-1].y <= picture.size


def test_a_deviation_is_explained_by_the_values_that_cause_it():
    points = array("slice")
    judgement = judged(_LosesImmediate, points)
    wrong = [point for group in judgement.groups.values() for point in group.points]
    formula = explained(
        points.model, judgement.conditions, wrong, judgement.passed["fields", "WC-01"]
    )
    assert "transport=UC" in formula
    assert "operation=" in formula
    assert "place=" not in formula


class _SendsPacketsBeforeTheFault(Device):
    """The packets before the byte that is out of range are sent, as a device may that checks each packet."""

    packet = 1024

    def write(self, queue: Any, request: Any) -> str:
        status = super().write(queue, request)
        if status == "LOC_PROT_ERR" and len(request.sges) == 1:
            (sge,) = request.sges
            short = sge._replace(length=max(sge.length - self.packet, 0))
            if content := self.gather(queue, [short]):
                self.memory.write(request.remote_addr, content)
        return status


REFUSED_AT_PEER: dict[str, Any] = {
    "posted": "0",
    "requester": [["REM_ACCESS_ERR", "request"]],
    "receiver": [],
    "tested": "nothing",
    "other": "nothing",
}
SENT = ["SUCCESS", "request", "RDMA_WRITE"]
TOLD = ["SUCCESS", "receive", "RECV_RDMA_WITH_IMM", "whole length", "imm"]
BEHIND = ["SUCCESS", "receive", "RECV", "length 0", "no imm"]


@pytest.mark.parametrize(
    "answer, seen, reliable, accepted",
    [
        ({}, {"receiver": [TOLD]}, True, True),
        ({"requester": [SENT]}, {"receiver": [TOLD]}, False, True),
        ({"requester": [SENT]}, {"receiver": [BEHIND]}, False, False),
        ({"requester": [["LOC_PROT_ERR", "request"]]}, {"requester": [SENT]}, False, True),
        ({"requester": [SENT]}, {"requester": [SENT]}, False, False),
        ({}, {"requester": [SENT]}, True, True),
    ],
)
def test_a_refused_request_that_is_told_as_done_is_accepted(answer, seen, reliable, accepted):
    expected = REFUSED_AT_PEER | answer
    points: Any = {
        "answer": expected,
        "observed": expected | seen,
        "reliable": reliable,
        "divided": False,
    }
    wrong = deviation(points, iba=True)
    assert (wrong is not None and wrong.fault.kind is FaultKind.ACCEPTED) is accepted
    assert deviation(points, iba=False) is None


@pytest.mark.parametrize(
    "expected, seen, is_wrong",
    [
        ("LOC_PROT_ERR", "LOC_QP_OP_ERR", True),
        ("LOC_PROT_ERR", "LOC_PROT_ERR", False),
        ("SUCCESS", "REM_ACCESS_ERR", False),
    ],
)
def test_an_unreliable_request_has_a_status_if_its_own_buffer_is_wrong(expected, seen, is_wrong):
    points: Any = {
        "answer": REFUSED_AT_PEER | {"requester": [[expected, "request"]]},
        "observed": REFUSED_AT_PEER | {"requester": [[seen, "request"]]},
        "reliable": False,
        "divided": False,
    }
    wrong = deviation(points, iba=True)
    assert (wrong is not None and wrong.fault.kind is FaultKind.WRONG_STATUS) is is_wrong
    assert deviation(points, iba=False) is None


class _RefusesToPost(Device):
    """A request that will fail cannot be posted."""

    def send_fault(self, queue: Any, request: Any) -> int:
        if (
            request.opcode in RIGHTS
            and self.target(queue, request, request_length(request)) is None
        ):
            return errno.EINVAL
        return super().send_fault(queue, request)


def request_length(request: Any) -> int:
    return sum(sge.length for sge in request.sges) or 8


def test_a_posting_fails_only_for_what_the_requester_can_know(monkeypatch):
    monkeypatch.setattr(connection, "SILENCE_S", 0.0)  # no error state follows later
    judgement = judged_pairs(_RefusesToPost)
    violated = {rule for rule, verdict in judgement.rules.items() if verdict != Verdict.PASS}
    assert violated == {"STAT-01"}
    for group in judgement.groups.values():
        values = {point[PAIRS.model.names.index("place")] for point in group.points}
        assert "wrap" not in values


@pytest.mark.parametrize(
    "posted, receiver, is_wrong",
    [
        ("EINVAL", [], True),
        ("receive: EINVAL", [], True),
        ("receive: EINVAL", [["LOC_PROT_ERR", "receive"]], False),
    ],
)
def test_a_receive_may_be_refused_for_its_own_elements(posted, receiver, is_wrong):
    expected = REFUSED_AT_PEER | {"receiver": receiver}
    points: Any = {
        "answer": expected,
        "observed": {"posted": posted, "tested": "nothing", "other": "nothing"},
        "reliable": True,
        "divided": False,
    }
    assert (deviation(points, iba=True) is not None) is is_wrong
    moved = points["observed"] | {"tested": "all"}
    wrong = deviation(points | {"observed": moved}, iba=True)
    assert wrong is not None
    assert wrong.fault.kind is FaultKind.MOVED


@pytest.mark.parametrize(
    "permitted, code, kind",
    [
        ("any", "EINVAL", None),
        ("any", "ERR_CMD", None),
        ("any", "0", FaultKind.ACCEPTED),
        ("EPERM EFAULT", "EFAULT", None),
        ("EPERM EFAULT", "EINVAL", FaultKind.WRONG_CODE),
        ("0", "EINVAL", FaultKind.REFUSED),
    ],
)
def test_a_call_fails_with_a_code_of_its_fault_or_with_any(permitted, code, kind):
    unused = {
        "posted": "0",
        "requester": [],
        "receiver": [],
        "tested": "nothing",
        "other": "nothing",
    }
    points: Any = {
        "answer": unused | {"called": permitted},
        "observed": unused | {"called": code},
        "reliable": True,
        "divided": False,
    }
    wrong = deviation(points, iba=True)
    assert (wrong.fault.kind if wrong else None) == kind


class _TellsAnotherKey(Device):
    """The receiver of a SEND_WITH_INV is told another key than the one that was invalidated."""

    def reported_key(self, key: int) -> int:
        return key + 1


class _AddsWithoutCarry(Device):
    """Each byte of a word is added alone."""

    def atomic_result(self, request: Any, before: int) -> int:
        if request.opcode != "ATOMIC_FETCH_AND_ADD":
            return super().atomic_result(request, before)
        bytes_before, added = before.to_bytes(8, "big"), request.compare_add.to_bytes(8, "big")
        summed = zip(bytes_before, added, strict=True)
        return int.from_bytes(bytes((left + right) % 256 for left, right in summed), "big")


@pytest.mark.parametrize("device", [_TellsAnotherKey, _AddsWithoutCarry])
def test_a_wrong_report_or_operand_violates_a_rule(device):
    assert set(judged_pairs(device).verdicts) > {Verdict.PASS}


def test_what_the_key_opens_may_be_sent_before_the_fault():
    points = array("triples")
    conditions = Conditions(points.model)
    refused_writes = []
    for number, point in zip(points.numbers, points.points, strict=True):
        values = dict(zip(points.model.names, point, strict=True))
        is_write = values["operation"].startswith("RDMA_WRITE") and values["elements"] == "only"
        if is_write and conditions.faults(point):
            refused_writes.append((number, point))
    numbers, chosen = zip(*refused_writes, strict=True)
    assert len(chosen) > 100
    points = replace(points, points=chosen, numbers=numbers)
    assert set(judged(_SendsPacketsBeforeTheFault, points).verdicts) == {Verdict.PASS}


def test_a_point_is_selected_by_its_values_and_others_have_no_answer():
    suite, model = load_suite(), PAIRS.model
    case = suite.find(f"access/model/pairs#{model.text(PAIRS.points[5])}")
    assert case is not None
    assert case.array is not None
    assert case.array.points == (PAIRS.points[5],)
    with pytest.raises(UserError, match="there is no answer"):
        suite.find("access/model/pairs#operation=RDMA_READ,size=several,place=page")
    with pytest.raises(UserError, match="no value 'RDMA_REED'"):
        suite.find("access/model/pairs#operation=RDMA_REED")


def test_recorded_points_of_another_model_are_judged_by_their_recorded_answers():
    from conformance.judging.combinations import fault_at_points

    with closing(ReferenceBench(_LosesImmediate())) as bench:
        seen = observe(PAIRS, bench, lambda name: True, no_progress)["combinations"]
    other = replace(PAIRS, model=replace(PAIRS.model, digest="another"))
    fault = fault_at_points(other, seen)
    assert fault is not None
    assert fault.kind == "wrong-immediate"


def test_the_command_of_a_point_has_the_target_of_its_run_and_a_short_name():
    case = load_suite().find("access/model/pairs")
    assert case is not None
    failures = deviations(judged_pairs(_OpensOtherProcesses), case)
    assert failures
    record = result(case, "FAIL", deviations=failures)
    again = with_command(record, f"./rdma-cts run --guest --driver siw --only {case.id}")
    for item in again["deviations"]:
        point = ",".join(f"{axis}={label}" for axis, label in item["smallest"].items())
        command = shlex.split(item["repro"])
        assert command[2:] == ["--guest", "--driver", "siw", "--only", f"{case.id}#{point}"]
        assert load_suite().find(command[-1]) is not None
        assert len(item["smallest"]) < len(PAIRS.model.parameters)


def test_what_did_not_arrive_at_a_point_is_said_in_words_and_with_its_status():
    done = {"called": "0", "posted": "0", "requester": [["SUCCESS"]], "receiver": []}
    answer = {**done, "tested": "all", "other": "all"}
    failure = deviation(
        {"answer": answer, "observed": {**answer, "other": "nothing"}},  # type: ignore[typeddict-item]
        iba=True,
    )
    assert failure
    said = sentence(failure.fault)
    assert ", completed with SUCCESS, but its data did not arrive; " in said
    assert said.endswith("; no byte changed in the other memory")
    assert "nothing arrived" not in said
