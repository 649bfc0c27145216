"""Tests of verdicts, faults and their causes on hand-made observations; judged.yaml has most of them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
import yaml

from conformance.defects import Defect, Severity, cause_of, defects_of, symptoms_of
from conformance.defects.severity import severity_of_fault
from conformance.judging import judge, refused_region
from conformance.judging.circumstances import located
from conformance.model.fault import OWN_ADDRESSES, Fault, FaultKind
from conformance.model.observation import AskedRange, Observation
from conformance.model.record_shape import RESULT, completed
from conformance.model.verdict import Verdict
from conformance.results.new_records import result_record
from conformance.tables.suite import load_suite
from samples import case, changed, registry

if TYPE_CHECKING:
    from typing import Unpack


JUDGED = yaml.safe_load(Path(__file__).with_name("judged.yaml").read_text())
CASES = {name: case(row, verb) for name, (verb, row) in JUDGED["cases"].items()}
REGISTER, REFUSE = CASES["REGISTER"], CASES["REFUSE"]
REGION = "mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}"


def failed(errno: str = "EINVAL", /, **more: Unpack[Observation]) -> Observation:
    return {"rc": None, "returned": "NULL", "errno": errno, "layer": "kernel", **more}


def region(fields: dict[str, Any] | None = None, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a successful registration; `fields` has the fields of the MR that differ from the
    request."""
    requested: AskedRange = {"addr": 0x7000, "length": 4096}
    mr: Any = {
        **requested,
        "pd_is_the_asked": True,
        "context_is_the_pds": True,
        "handle": 1,
        "lkey": 2,
        "rkey": 3,
    }
    seen: Observation = {
        "rc": None,
        "returned": "MR",
        "errno": "",
        "layer": "kernel",
        "mr": mr | (fields or {}),
    }
    return {**seen, "asked": requested, **more}


def status(code: str, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a call that returns an int: `code` is 0, an errno by name, or a negative number."""
    return {
        "rc": 0 if code == "0" else 22,
        "returned": code,
        "errno": "",
        "layer": "kernel",
        **more,
    }


def deregistered(code: str, errno: str = "", then: str = "0") -> Observation:
    """Returns the observation of a refused deregistration and of the later, successful deregistration."""
    return {**status(code, afterwards=[status(then)]), "errno": errno}


def bound(*statuses: str, after: int = 2, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a posted bind, with the statuses of its completions."""
    return {**status("0", wc=list(statuses), rkey={"before": 1, "after": after}), **more}


def invalidated(output: int | None, responder: str = "SUCCESS") -> Observation:
    return status("0", wc=["SUCCESS"], responder_wc=[responder], invalidated=[output, 7])


def moved(
    how: str,
    wc: str,
    *changed: tuple[int, int],
    step: Observation | None = None,
    unchanged: bool = False,
) -> Observation:
    """Returns the observation of a region and of a peer's write to it; `changed` has the changed bytes as (place,
    size)."""
    if changed or unchanged or how == "nothing":
        changes = changed
    else:
        changes = ((0, 8),)
    seen = status("0", wc=[wc], moved=how, changed=[list(change) for change in changes])
    return region(afterwards=[{**seen, **(step or {})}])


def done(**step: Unpack[Observation]) -> Observation:
    """Returns the observation of a request that has moved all bytes, with further keys."""
    return moved("all", "SUCCESS", step=step)


def refusal(status: str, state: str = "ERR", kind: str = "RC") -> Observation:
    return moved(
        "nothing",
        status,
        step={"side": "remote", "qp_type": kind, "peer_wc": [], "state": state},
    )


def notified(imm: int | None) -> Observation:
    return moved("nothing", "REM_ACCESS_ERR", step={"side": "remote", "imm": [imm, 7]})


def received(kind: str, *changed: tuple[int, int]) -> Observation:
    seen = status(
        "0",
        wc=["SUCCESS"],
        qp_type=kind,
        side="receive",
        byte_len=[200, 200],
        moved="all",
    )
    return region(afterwards=[{**seen, "changed": [list(change) for change in changed]}])


def requested(
    status: str | None,
    how: str = "nothing",
    step: Observation | None = None,
) -> Observation:
    """Returns the observation of a peer's request that is the judged call itself."""
    seen = Observation(
        rc=0,
        returned="0",
        errno="",
        layer="device",
        peer_wc=[],
        side="remote",
        qp_type="RC",
    )
    seen |= {
        "state": "ERR",
        "wc": [status] if status else [],
        "moved": how,
        "changed": [[0, 8]] * (how == "all"),
    }
    return {**seen, **(step or {})}


def silent(**step: Any) -> Observation:
    """Returns the observation of a peer's request without a completion, with further keys."""
    seen: Any = {"wc": [], "side": "remote", "qp_type": "RC", "peer_wc": [], **step}
    return moved("nothing", "", step=seen)


def left(seen: Observation) -> Observation:
    return {**seen, "left_behind": ["MR new: EBUSY"]}


def observed(**fields: Unpack[Observation]) -> Observation:
    return fields


_FUNCTIONS = (
    failed,
    region,
    status,
    deregistered,
    bound,
    invalidated,
    moved,
    done,
    refusal,
    notified,
    received,
)
OBSERVATIONS = {
    pattern.__name__: pattern for pattern in (*_FUNCTIONS, requested, silent, left, observed)
}


def observation(data: Any) -> Any:
    """Makes an observation of judged.yaml, which is a list: the name of a function above, its arguments, and a mapping
    of its keyword arguments."""
    if not isinstance(data, list):
        return data
    if not data or not isinstance(data[0], str) or data[0] not in OBSERVATIONS:
        return [observation(item) for item in data]
    name, *arguments = data
    if arguments and isinstance(arguments[-1], dict):
        more = arguments.pop()
    else:
        more = {}
    named = {key: observation(value) for key, value in more.items()}
    return cast(Any, OBSERVATIONS[name])(*map(observation, arguments), **named)


def judgements() -> Iterator[Any]:
    for name, of, seen, verdict, *words in JUDGED["judgements"]:
        if words and isinstance(words[-1], dict):
            more = words.pop()
        else:
            more = {}
        kernel = more.get("kernel", {"taint": 0, "log": ["a line"]})
        if "lacking" in more:
            undeclared = [more["lacking"]]
        else:
            undeclared = []
        fault = more.get("fault", "NO_COMPLETION" if verdict == Verdict.HANG else "")
        yield pytest.param(
            CASES[of],
            undeclared,
            observation(seen),
            kernel,
            verdict,
            fault,
            words,
            id=name,
        )


@pytest.mark.parametrize(
    "of, undeclared, seen, kernel, verdict, fault, words",
    judgements(),
)
def test_an_observation_has_its_verdict_its_fault_and_its_words(
    of, undeclared, seen, kernel, verdict, fault, words
):
    before = copy.deepcopy((undeclared, seen, kernel))
    judgement = judge(of, undeclared, seen, kernel)
    assert judgement.verdict == verdict, judgement.reason
    if fault:
        assert judgement.fault
        assert judgement.fault.kind is FaultKind[fault]
        assert (severity_of_fault(judgement.fault) is Severity.HANG) == (verdict == Verdict.HANG)
    texts = [
        judgement.reason,
        *(judgement.notes if verdict in (Verdict.PASS, Verdict.UNSUPPORTED) else ()),
    ]
    for word in words:
        pattern = re.escape(word.strip("^$ "))
        pattern = "^" * word.startswith("^") + pattern + "$" * word.endswith("$")
        assert any(re.search(pattern, text) for text in texts), (word, texts)
    assert "\n" not in judgement.reason
    assert judge(of, undeclared, seen, kernel) == judgement, "a second judgement differs"
    assert (undeclared, seen, kernel) == before


def test_requests_of_one_kind_that_never_complete_are_one_defect_whatever_their_rules():
    of, seen = CASES["REFUSED"], silent()
    record = completed(result_record(of, registry(), judge(of, [], seen), seen))
    (defect,) = defects_of([record, {**record, "case": "reg_mr/other/row", "rules": ["REG-15"]}])
    assert (defect.title, len(defect.cases)) == ("requests never complete: RDMA_WRITE", 2)


@pytest.mark.parametrize(
    "returned, kind",
    [
        ("changed", FaultKind.MOVED),
        ("leaked", FaultKind.MOVED),
        ("no completion", FaultKind.REFUSED),
    ],
)
def test_bytes_that_move_by_an_invalid_key_are_a_fault_of_the_request_in_flight(returned, kind):
    window = "windows: {mw: {type: 1, bound: {access: [REMOTE_READ]}}}"
    bound_window = f"given: {{{REGION}, {window}, qps: {{qp: {{type: RC}}}}}}"
    in_flight = case(
        f"{{rules: [BIND-16], {bound_window}, call: ibv_dealloc_mw, when: {{mw: mw}}, then: success, "
        "before: [{call: post_traffic, op: RDMA_READ, rkey: mw.rkey, addr: buf}], "
        "afterwards: [{call: await_traffic, memory: buf, then: success}]}",
        "bind_mw",
    )
    fault = judge(in_flight, [], status("0", afterwards=[status(returned)])).fault
    assert fault is not None
    assert (fault.kind, fault.operation, fault.key, fault.dead) == (
        kind,
        "RDMA_READ",
        "window",
        True,
    )


@pytest.mark.parametrize(
    "key, call, title",
    [
        ("mr.rkey", "ibv_dereg_mr", "a key remains valid after its region was destroyed"),
        (
            "mr.old_rkey",
            "ibv_rereg_mr",
            "ibv_rereg_mr with CHANGE_ACCESS: access as before remains (rights)",
        ),
    ],
)
def test_a_key_that_still_works_is_a_defect_of_the_call_that_ended_the_key(key, call, title):
    region = "mrs: {mr: {access: [REMOTE_READ]}}"
    arguments = "mr: mr" if call == "ibv_dereg_mr" else "mr: mr, flags: [CHANGE_ACCESS], access: []"
    with_traffic = case(
        f"{{rules: [DEREG-01], given: {{{region}}}, call: {call}, when: {{{arguments}}}, then: success, "
        f"afterwards: [{{call: traffic, op: RDMA_READ, rkey: {key}, addr: buf, then: refused}}]}}",
        "rereg_mr" if call == "ibv_rereg_mr" else "dereg_mr",
    )
    fault = located(Fault(FaultKind.MOVED), with_traffic, 1)
    assert (fault.dead, fault.ended) == (True, call)
    (defect,) = defects_of(
        [{**completed(RESULT), "verdict": Verdict.FAIL, "fault": fault.as_data()}]
    )
    assert defect.title == title


def test_requests_in_flight_at_a_change_are_a_defect_apart_from_later_requests():
    """Another line of a driver looks up the key of a later packet. The fingerprints are those of recorded runs."""

    def defect(verb: str, *flags: str) -> Defect:
        fault = Fault(FaultKind.MOVED, verb=verb, key="region", changed=flags, decides="rights")
        violation = {"verdict": Verdict.FAIL, "rules": ["REREG-03"], "fault": fault.as_data()}
        (shown,) = defects_of([changed(completed(RESULT), violation)])
        return shown

    in_flight, later = defect("await_traffic", "CHANGE_ACCESS"), defect("traffic", "CHANGE_ACCESS")
    assert in_flight.fingerprint == "481899d962d9"
    assert set(in_flight.fingerprints).isdisjoint(later.fingerprints)
    assert in_flight.title == later.title.replace(" (", " for requests in flight (")
    assert defect("traffic", "CHANGE_PD", "CHANGE_ACCESS").fingerprint == "c8846d8a50f0"


@pytest.mark.parametrize(
    "flags, then, changed, ended, granted",
    [
        ("CHANGE_ACCESS], access: [LOCAL_WRITE]", "RDMA_READ", "CHANGE_ACCESS", "rights", ""),
        (
            "CHANGE_ACCESS], access: [LOCAL_WRITE, REMOTE_ATOMIC]",
            "ATOMIC_FETCH_AND_ADD",
            "CHANGE_ACCESS",
            "",
            "rights",
        ),
        ("CHANGE_ACCESS], access: [REMOTE_READ]", "RDMA_READ", "CHANGE_ACCESS", "", ""),
        ("CHANGE_PD], pd: other", "RDMA_READ", "CHANGE_PD", "domain", ""),
        ("CHANGE_PD], pd: other", "RDMA_READ, pd: other", "CHANGE_PD", "", "domain"),
        (
            "CHANGE_TRANSLATION], addr: buf + 2 pages, length: 1 page",
            "RDMA_READ",
            "CHANGE_TRANSLATION",
            "range",
            "",
        ),
        (
            "CHANGE_PD, CHANGE_ACCESS], pd: other, access: [LOCAL_WRITE]",
            "RDMA_READ, pd: other",
            "CHANGE_PD+CHANGE_ACCESS",
            "rights",
            "domain",
        ),
    ],
)
def test_a_fault_after_a_change_says_what_the_change_decides(flags, then, changed, ended, granted):
    """What a change ends, and what it grants, are different causes. Two operations are one cause."""
    of_change = case(
        "{rules: [REREG-01], given: {pds: [other], mrs: {mr: {access: [LOCAL_WRITE, REMOTE_READ]}}}, "
        f"call: ibv_rereg_mr, when: {{flags: [{flags}}}, then: success, "
        f"afterwards: [{{call: traffic, op: {then}, rkey: mr.rkey, addr: buf, then: success}}]}}",
        "rereg_mr",
    )
    keys = set()
    for kind in (FaultKind.MOVED, FaultKind.ACCEPTED, FaultKind.REFUSED):
        fault = located(Fault(kind), of_change, 1)
        (symptom,) = symptoms_of(
            {**completed(RESULT), "verdict": Verdict.FAIL, "fault": fault.as_data()}
        )
        keys.add(cause_of(symptom).key[2:5])
    assert keys == {(changed, ended, "moved"), (changed, granted, "refused")}


def test_at_uverbs_a_call_is_named_by_the_kernels_command():
    rows = "{rules: [REREG-11], entries: [uverbs], given: {mrs: {mr: {access: []}}}, when: {flags: [CHANGE_ACCESS]}, "
    at_kernel = case(
        rows + "then: success, afterwards: [{call: ibv_dereg_mr, mr: mr, then: success}]}",
        "rereg_mr",
    )
    assert str(at_kernel.when).startswith("uverbs REREG_MR(mr=mr, flags=CHANGE_ACCESS")
    assert str(at_kernel.afterwards[0]) == "uverbs DEREG_MR(mr=mr)"
    assert str(REFUSE.when).startswith("ibv_reg_mr(")


BOUND = "qps: {qp: {type: RC}}, windows: {mw: {type: 1, bound: {addr: buf + 64, length: 256, access: [REMOTE_WRITE]}}}"


@pytest.mark.parametrize("given, key, place, outside, kinds", JUDGED["places"])
def test_a_fault_says_whether_the_bytes_are_outside_of_their_key(given, key, place, outside, kinds):
    given += ", access: [LOCAL_WRITE]" * ("access" not in given)
    objects = f"mrs: {{mr: {{{given}}}}}, {BOUND if key == 'mw' else 'pds: [other]'}"
    when = f"op: RDMA_WRITE, rkey: {key}.rkey, {place}"
    of = case(
        f"{{rules: [REG-20], call: traffic, given: {{{objects}}}, when: {{{when}}}, then: open}}",
        "bind_mw",
    )
    fault_located = located(Fault(FaultKind.MOVED), of)
    assert (fault_located.outside, fault_located.region) == (outside, tuple(kinds))
    assert fault_located.key == ("window" if key == "mw" else "region")


@pytest.mark.parametrize(
    "row_name, kinds",
    [("iova-4-gib", (OWN_ADDRESSES,)), ("a-reason-for-remote-write", ())],
)
def test_a_region_of_reg_mr_ex_has_addresses_of_its_own_only_with_an_iova(row_name, kinds):
    (row,) = [row for row in load_suite().cases if row.id == f"reg_mr_ex/registration/{row_name}"]
    fault = located(Fault(FaultKind.REFUSED), row, min(1, len(row.afterwards)))
    assert (fault.region, fault.outside) == (kinds, False)


@pytest.mark.parametrize(
    "code, call, verdict",
    [
        ("EINVAL", "ibv_reg_mr", Verdict.FAIL),
        ("EOPNOTSUPP", "ibv_reg_mr", None),
        ("EINVAL", "ibv_alloc_mw", None),
    ],
)
def test_a_valid_region_that_the_set_up_of_a_point_needs_must_be_registered(code, call, verdict):
    seen: Observation = {"setup_failed": "registering mr", "errno": code, "setup_call": call}
    found = refused_region(case("{rules: [REG-05], when: {access: []}, then: success}"), seen)
    assert (found.verdict if found else None) == verdict


def test_a_device_may_refuse_persistence_of_ordinary_memory_in_the_set_up_of_a_point():
    seen: Observation = {
        "setup_failed": "registering mr",
        "errno": "EINVAL",
        "setup_call": "ibv_reg_mr",
    }
    row = "{rules: [REG-05], given: {mrs: {mr: {access: [%s]}}}, when: {access: []}, then: success}"
    assert refused_region(case(row % "FLUSH_PERSISTENT"), seen) is None
    judgement = refused_region(case(row % "FLUSH_GLOBAL"), seen)
    assert judgement is not None
    assert judgement.verdict == Verdict.FAIL


def test_statuses_of_requests_in_flight_are_judged_only_where_a_document_defines_them():
    of = load_suite().find(
        "reg_mr/completion_status/rdma-write-in-flight-when-its-region-ends",
    )
    assert of is not None
    answer = {"rc": 0, "returned": "0", "errno": "", "layer": "kernel"}
    wrong = {**answer, "differences": ["LOC_QP_OP_ERR instead of REM_ACCESS_ERR"]}
    seen: Any = {**answer, "afterwards": [wrong]}
    assert judge(of, [], seen).verdict == Verdict.FAIL
    assert judge(of, ["iba_statuses"], seen).verdict == Verdict.UNSUPPORTED
