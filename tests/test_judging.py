"""Verdicts on hand-made observations: what a document says against what a device did."""

from __future__ import annotations

import copy
from typing import Any, Unpack

import pytest

from conformance.judging import answering_layer, crash_location, judge, kernel_alarm
from conformance.model.case import Case
from conformance.model.fault import FaultKind
from conformance.model.observation import NOT_AWAITED, AskedRange, KernelEvidence, Observation
from conformance.model.verdict import Verdict
from samples import case

REGISTER = case("{rules: [REG-01], when: {access: [LOCAL_WRITE]}, then: {outcome: success, mr: as_asked}}")
REFUSE = case("{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: refused}")
REFUSE_EINVAL = case(
    "{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: [EINVAL, EOPNOTSUPP]}}"
)
REFUSE_ANY = case("{rules: [REG-02], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: any}}")
OPEN = case("{rules: [REG-23], when: {length: 0, access: []}, then: open}")
ON_DEMAND = case("{rules: [REG-17], needs: [odp], when: {access: [ON_DEMAND]}, then: {outcome: success, mr: as_asked}}")
DEREGISTER = case("{rules: [DEREG-01], given: {mrs: {mr: {access: []}}}, when: {mr: mr}, then: success}", "dereg_mr")
DEREGISTER_REFUSED = case(
    """
    - id: refused
      rules: [DEREG-03]
      given: {mrs: {mr: {access: []}}}
      when: {mr: mr, handle: invented}
      then: {outcome: refused, errno: any}
      afterwards: [{call: ibv_dereg_mr, mr: mr, then: success}]
    """,
    "dereg_mr",
)


WINDOW = "memory: {buf: {kind: anonymous, size: 1 page}}, qps: {qp: {type: RC}}, windows: {mw: {type: 1}}"
REGION = "mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}"
BIND = case(
    f"""
    - id: bind
      rules: [BIND-02]
      given: {{{WINDOW}, {REGION}}}
      when: {{access: []}}
      then: {{outcome: success, rkey: changed}}
    """,
    "bind_mw",
)
BIND_QUIETLY = case(
    f"""
    - id: quiet
      rules: [BIND-04]
      given: {{{WINDOW}, {REGION}}}
      when: {{access: [], send_flags: []}}
      then: {{outcome: success, completion: none}}
    """,
    "bind_mw",
)
REREGISTER_REFUSED = case(
    """
    - id: refused
      rules: [REREG-06]
      given: {mrs: {mr: {access: []}}}
      when: {flags: [CHANGE_ACCESS], access: [REMOTE_WRITE]}
      then: {outcome: refused, code: ERR_INPUT}
    """,
    "rereg_mr",
)


def traffic(expected: str, op: str = "RDMA_WRITE") -> Any:
    """A region that a peer then writes to, or uses by another operation."""
    return case(
        f"""
        - id: then-traffic
          rules: [REG-01]
          when: {{access: [LOCAL_WRITE]}}
          then: success
          afterwards: [{{call: traffic, op: {op}, rkey: new.rkey, addr: buf, then: {expected}}}]
        """
    )


def null(errno: str = "EINVAL", /, **more: Unpack[Observation]) -> Observation:
    """A registration that failed."""
    return {"rc": None, "returned": "NULL", "errno": errno, "layer": "kernel", **more}


def region(fields: dict[str, Any] | None = None, **more: Unpack[Observation]) -> Observation:
    """A registration that worked; `fields` of the MR are what differs from what was asked."""
    asked: AskedRange = {"addr": 0x7000, "length": 4096}
    mr: Any = {**asked, "pd_is_the_asked": True, "context_is_the_pds": True, "handle": 1, "lkey": 2, "rkey": 3}
    seen: Observation = {"rc": None, "returned": "MR", "errno": "", "layer": "kernel", "mr": mr | (fields or {})}
    return {**seen, "asked": asked, **more}


def status(code: str, **more: Unpack[Observation]) -> Observation:
    """A call that returns an int: 0, an errno's name, or a negative number."""
    return {"rc": 0 if code == "0" else 22, "returned": code, "errno": "", "layer": "kernel", **more}


def bound(*statuses: str, after: int = 2) -> Observation:
    """A bind that was posted, with the statuses of its completions."""
    return status("0", wc=list(statuses), rkey={"before": 1, "after": after})


def moved(how: str, wc: str, changed: tuple[tuple[int, int], ...] | None = None) -> Observation:
    """A region and what a peer's write to it came to; `changed`: which bytes, as (place, size)."""
    found = changed if changed is not None else () if how == "nothing" else ((0, 8),)
    return region(afterwards=[status("0", wc=[wc], moved=how, changed=[list(each) for each in found])])


def test_a_call_that_does_as_documented_passes() -> None:
    assert judge(REGISTER, [], region()).verdict == Verdict.PASS
    assert judge(REFUSE, [], null()).verdict == Verdict.PASS
    assert judge(DEREGISTER, [], status("0")).verdict == Verdict.PASS


def test_a_refusal_where_success_is_promised_fails_and_names_the_errno() -> None:
    judgement = judge(REGISTER, [], null("EFAULT"))
    assert judgement.verdict == Verdict.FAIL
    assert "should succeed" in judgement.reason
    assert "EFAULT" in judgement.reason


def test_an_acceptance_where_refusal_is_promised_fails() -> None:
    judgement = judge(REFUSE, [], region())
    assert judgement.verdict == Verdict.FAIL
    assert "access=REMOTE_WRITE" in judgement.reason
    assert "should fail, returned an MR" in judgement.reason


@pytest.mark.parametrize("errno", ["EINVAL", "EOPNOTSUPP"])
def test_any_of_the_allowed_errnos_passes(errno: str) -> None:
    assert judge(REFUSE_EINVAL, [], null(errno)).verdict == Verdict.PASS


def test_an_errno_that_is_not_among_the_allowed_fails() -> None:
    judgement = judge(REFUSE_EINVAL, [], null("EFAULT"))
    assert judgement.verdict == Verdict.FAIL
    assert "EINVAL or EOPNOTSUPP" in judgement.reason
    assert "EFAULT" in judgement.reason


def test_a_refusal_without_errno_fails_only_where_an_errno_is_promised() -> None:
    assert judge(REFUSE_ANY, [], null("")).verdict == Verdict.FAIL
    assert judge(REFUSE, [], null("")).verdict == Verdict.PASS
    assert judge(REFUSE_ANY, [], null("EPERM")).verdict == Verdict.PASS


def test_an_int_that_is_no_errno_fails() -> None:
    judgement = judge(DEREGISTER_REFUSED, [], status("-1", afterwards=[status("0")]))
    assert judgement.verdict == Verdict.FAIL
    assert "-1" in judgement.reason


def test_a_negative_errno_fails() -> None:
    judgement = judge(REFUSE_ANY, [], null("errno -22"))
    assert judgement.verdict == Verdict.FAIL
    assert "no value of errno" in judgement.reason


def test_a_deregistration_that_returns_another_number_than_errno_fails() -> None:
    judgement = judge(DEREGISTER_REFUSED, [], status("EPERM", afterwards=[status("0")]) | {"errno": "EBUSY"})
    assert judgement.verdict == Verdict.FAIL
    assert "returned EPERM, and the value of errno is EBUSY" in judgement.reason
    same = status("EBUSY", afterwards=[status("0")]) | {"errno": "EBUSY"}
    assert judge(DEREGISTER_REFUSED, [], same).verdict == Verdict.PASS


def test_a_registration_that_fails_again_has_the_same_errno() -> None:
    again = case(
        """
        - id: again
          rules: [REG-02]
          when: {access: [REMOTE_WRITE]}
          then: {outcome: refused, errno: any}
          afterwards: [{call: ibv_reg_mr, access: [REMOTE_WRITE], then: {outcome: refused, errno: any}}]
        """
    )
    assert judge(again, [], null("EINVAL", afterwards=[null("EINVAL")])).verdict == Verdict.PASS
    judgement = judge(again, [], null("EINVAL", afterwards=[null("EFAULT")]))
    assert judgement.verdict == Verdict.FAIL
    assert "failed with errno EINVAL, and with EFAULT when it was called again" in judgement.reason


def test_later_steps_are_judged_too() -> None:
    assert judge(DEREGISTER_REFUSED, [], status("EINVAL", afterwards=[status("0")])).verdict == Verdict.PASS
    judgement = judge(DEREGISTER_REFUSED, [], status("EINVAL", afterwards=[status("EBUSY")]))
    assert judgement.verdict == Verdict.FAIL
    assert judgement.reason.startswith("afterwards ")


@pytest.mark.parametrize(
    ("returned", "kind"),
    [("changed", FaultKind.MOVED), ("leaked", FaultKind.MOVED), ("no completion", FaultKind.REFUSED)],
)
def test_bytes_that_move_by_an_ended_key_are_a_fault_of_the_request_in_flight(returned: str, kind: FaultKind) -> None:
    in_flight = case(
        """
        - id: in-flight
          rules: [BIND-16]
          given:
            mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}
            windows: {mw: {type: 1, bound: {access: [REMOTE_READ]}}}
            qps: {qp: {type: RC}}
          before: [{call: post_traffic, op: RDMA_READ, rkey: mw.rkey, addr: buf}]
          call: ibv_dealloc_mw
          when: {mw: mw}
          then: success
          afterwards: [{call: await_traffic, memory: buf, then: success}]
        """,
        "bind_mw",
    )
    fault = judge(in_flight, [], status("0", afterwards=[status(returned)])).fault
    assert fault is not None
    assert (fault.kind, fault.operation, fault.key, fault.dead) == (kind, "RDMA_READ", "window", True)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"addr": 0x8000}, "addr 0x8000 instead of 0x7000"),
        ({"length": 8192}, "length 0x2000 instead of 0x1000"),
        ({"pd_is_the_asked": False}, "pd"),
        ({"context_is_the_pds": False}, "context"),
    ],
)
def test_each_wrong_field_of_the_region_fails(fields: dict[str, Any], said: str) -> None:
    judgement = judge(REGISTER, [], region(fields))
    assert judgement.verdict == Verdict.FAIL
    assert said in judgement.reason


def test_fields_of_the_region_do_not_matter_where_no_one_asks() -> None:
    plain = case("{rules: [REG-03], when: {access: []}, then: success}")
    assert judge(plain, [], region({"addr": 1})).verdict == Verdict.PASS


def test_a_region_whose_keys_and_handle_are_all_zero_fails() -> None:
    assert judge(REGISTER, [], region({"lkey": 0, "rkey": 0, "handle": 0})).verdict == Verdict.FAIL
    assert judge(REGISTER, [], region({"lkey": 0, "rkey": 0})).verdict == Verdict.PASS


def test_a_bind_has_to_complete_and_change_the_key() -> None:
    assert judge(BIND, [], bound("SUCCESS")).verdict == Verdict.PASS
    twice, failed, same_key = bound("SUCCESS", "SUCCESS"), bound("MW_BIND_ERR"), bound("SUCCESS", after=1)
    for wrong in (bound(), twice, failed, same_key, status("EINVAL")):
        assert judge(BIND, [], wrong).verdict == (Verdict.FAIL if wrong.get("wc") != [] else Verdict.HANG)


def test_a_completion_of_another_request_fails() -> None:
    judgement = judge(BIND, [], {**bound("SUCCESS"), "wr_id_matches": False})
    assert judgement.verdict == Verdict.FAIL
    assert "wr_id" in judgement.reason


def test_a_completion_that_was_not_asked_for_fails() -> None:
    assert judge(BIND_QUIETLY, [], bound()).verdict == Verdict.PASS
    judgement = judge(BIND_QUIETLY, [], bound("SUCCESS"))
    assert judgement.verdict == Verdict.FAIL
    assert "asked for no completion" in judgement.reason


def test_an_enumerated_code_is_judged_by_its_name() -> None:
    assert judge(REREGISTER_REFUSED, [], status("ERR_INPUT", enumerated=True)).verdict == Verdict.PASS
    judgement = judge(REREGISTER_REFUSED, [], status("ERR_CMD", enumerated=True))
    assert judgement.verdict == Verdict.FAIL
    assert "should fail with ERR_INPUT, failed with ERR_CMD" in judgement.reason


@pytest.mark.parametrize(
    ("expected", "how", "wc", "verdict"),
    [
        ("success", "all", "SUCCESS", Verdict.PASS),
        ("success", "nothing", "REM_ACCESS_ERR", Verdict.FAIL),
        ("refused", "nothing", "REM_ACCESS_ERR", Verdict.PASS),
        ("refused", "all", "SUCCESS", Verdict.FAIL),
        ("refused", "all", "REM_ACCESS_ERR", Verdict.FAIL),
        ("refused", "part", "REM_ACCESS_ERR", Verdict.FAIL),
        ("success", "part", "SUCCESS", Verdict.FAIL),
        ("success", "nothing", "SUCCESS", Verdict.FAIL),
        ("refused", "nothing", "SUCCESS", Verdict.FAIL),
        ("open", "nothing", "REM_ACCESS_ERR", Verdict.PASS),
        ("open", "part", "SUCCESS", Verdict.FAIL),
    ],
)
def test_traffic_is_judged_by_its_completion_and_by_the_bytes(expected: str, how: str, wc: str, verdict: str) -> None:
    assert judge(traffic(expected), [], moved(how, wc)).verdict == verdict


@pytest.mark.parametrize(
    ("expected", "how", "wc", "changed"),
    [
        ("success", "all", "SUCCESS", ((-8, 8),)),
        ("success", "all", "SUCCESS", ((0, 8), (64, 1))),
        ("refused", "nothing", "REM_ACCESS_ERR", ((0, 8),)),
    ],
)
def test_bytes_that_changed_elsewhere_fail_whatever_the_completion(
    expected: str, how: str, wc: str, changed: tuple[tuple[int, int], ...]
) -> None:
    judgement = judge(traffic(expected), [], moved(how, wc, changed))
    assert judgement.verdict == Verdict.FAIL
    assert "remote bytes changed" in judgement.reason


RECEIVE = case(
    """
    - id: receive
      rules: [REG-04]
      when: {access: [LOCAL_WRITE]}
      then: success
      afterwards: [{call: local_traffic, op: RECV, lkey: new.lkey, addr: buf, length: 200, qp_type: UD, then: success}]
    """
)


@pytest.mark.parametrize(
    ("kind", "changed", "verdict"),
    [
        ("UD", [[0, 200]], Verdict.PASS),
        ("UD", [[0, 24], [25, 175]], Verdict.PASS),
        ("UD", [[0, 12], [20, 19], [40, 160]], Verdict.PASS),
        ("UD", [[20, 180]], Verdict.PASS),
        ("UD", [[0, 200], [264, 1]], Verdict.FAIL),
        ("UD", [[0, 50], [60, 140]], Verdict.FAIL),
        ("UD", [[-8, 208]], Verdict.FAIL),
        ("RC", [[0, 24], [25, 175]], Verdict.FAIL),
    ],
)
def test_a_byte_of_a_datagrams_header_may_keep_its_value(kind: str, changed: list[list[int]], verdict: str) -> None:
    seen = status("0", wc=["SUCCESS"], qp_type=kind, side="receive", byte_len=[200, 200], moved="all", changed=changed)
    assert judge(RECEIVE, [], region(afterwards=[seen])).verdict == verdict


def test_what_the_run_found_to_be_out_of_reach_is_unreachable_with_its_reason() -> None:
    judgement = judge(REGISTER, [], {"unreachable": "this library has no such call"})
    assert (judgement.verdict, judgement.reason) == (Verdict.UNREACHABLE, "this library has no such call")


@pytest.mark.parametrize("observed", [null(), region()])
def test_what_the_documents_leave_open_passes_and_is_noted(observed: Observation) -> None:
    judgement = judge(OPEN, [], observed)
    assert judgement.verdict == Verdict.PASS
    assert any("open" in note for note in judgement.notes)


def test_a_step_after_an_open_call_is_judged() -> None:
    of = case(
        """
        - id: open-then-deregistered
          rules: [REG-23]
          when: {length: 0, access: []}
          then: open
          afterwards: [{call: ibv_dereg_mr, mr: new, then: success}]
        """
    )
    assert judge(of, [], region(afterwards=[status("0")])).verdict == Verdict.PASS
    assert judge(of, [], region(afterwards=[status("EBUSY")])).verdict == Verdict.FAIL


def test_an_undeclared_capability_that_is_refused_is_unsupported() -> None:
    judgement = judge(ON_DEMAND, ["odp"], null("EOPNOTSUPP"))
    assert judgement.verdict == Verdict.UNSUPPORTED
    assert "odp" in judgement.reason
    assert "EOPNOTSUPP" in judgement.reason


def test_an_undeclared_capability_that_works_passes_with_a_note() -> None:
    judgement = judge(ON_DEMAND, ["odp"], region())
    assert judgement.verdict == Verdict.PASS
    assert any("does not declare odp" in note for note in judgement.notes)


def test_an_undeclared_capability_that_works_wrongly_fails() -> None:
    assert judge(ON_DEMAND, ["odp"], region({"length": 1})).verdict == Verdict.FAIL


def test_what_is_accepted_and_does_nothing_is_unsupported_where_it_is_not_declared() -> None:
    judgement = judge(traffic("success"), ["atomics"], moved("nothing", "REM_INV_REQ_ERR"))
    assert judgement.verdict == Verdict.UNSUPPORTED
    assert any("accepted although" in note for note in judgement.notes)
    assert judge(traffic("success"), [], moved("nothing", "REM_INV_REQ_ERR")).verdict == Verdict.FAIL
    assert judge(traffic("success"), ["atomics"], moved("part", "SUCCESS")).verdict == Verdict.FAIL
    assert (
        judge(traffic("success"), ["atomics"], moved("nothing", "REM_INV_REQ_ERR", ((-8, 8),))).verdict == Verdict.FAIL
    )
    assert judge(traffic("refused"), ["atomics"], moved("all", "SUCCESS")).verdict == Verdict.FAIL


@pytest.mark.parametrize(
    "observed",
    [
        status("0", wc=["REM_ACCESS_ERR"], moved="all", changed=[[0, 8]]),
        status("0", wc=["REM_ACCESS_ERR"], moved="nothing", changed=[[-8, 8]]),
        status("0", wc=["SUCCESS"], moved="part", changed=[[0, 4]]),
    ],
)
def test_an_undeclared_operation_that_is_refused_and_moves_bytes_fails(observed: Observation) -> None:
    of = case(
        """
        - id: atomic
          rules: [REG-07]
          call: traffic
          given: {mrs: {mr: {access: [LOCAL_WRITE, REMOTE_ATOMIC]}}}
          when: {op: ATOMIC_FETCH_AND_ADD, rkey: mr.rkey, addr: buf}
          then: success
        """
    )
    assert judge(of, ["atomics"], observed).verdict == Verdict.FAIL
    refused = status("0", wc=["REM_INV_REQ_ERR"], moved="nothing", changed=[])
    assert judge(of, ["atomics"], refused).verdict == Verdict.UNSUPPORTED


def test_a_receiver_that_is_reported_what_was_refused_fails() -> None:
    observed = moved("nothing", "REM_ACCESS_ERR")
    observed["afterwards"][0] |= {"side": "remote", "imm": [None, 7]}
    assert judge(traffic("refused"), [], observed).verdict == Verdict.PASS
    observed["afterwards"][0]["imm"] = [7, 7]
    judgement = judge(traffic("refused"), [], observed)
    assert judgement.verdict == Verdict.FAIL
    assert "told the receiver" in judgement.reason


def test_a_success_that_is_an_error_at_the_other_side_fails() -> None:
    observed = moved("all", "SUCCESS")
    observed["afterwards"][0]["peer_wc"] = ["LOC_LEN_ERR"]
    judgement = judge(traffic("success"), [], observed)
    assert judgement.verdict == Verdict.FAIL
    assert "at the other side with LOC_LEN_ERR" in judgement.reason


def test_data_that_comes_after_its_completion_fails() -> None:
    observed = moved("all", "SUCCESS")
    assert judge(traffic("success"), [], observed).verdict == Verdict.PASS
    observed["afterwards"][0]["late"] = True
    judgement = judge(traffic("success"), [], observed)
    assert judgement.verdict == Verdict.FAIL
    assert "before its data was there" in judgement.reason


def test_a_declared_capability_that_is_refused_fails() -> None:
    assert judge(ON_DEMAND, [], null("EOPNOTSUPP")).verdict == Verdict.FAIL


def test_a_refused_setup_is_unsupported_only_when_a_capability_is_lacking() -> None:
    observed: Observation = {
        "setup_failed": "registering the MR 'mr' was refused with EOPNOTSUPP",
        "errno": "EOPNOTSUPP",
    }
    assert judge(ON_DEMAND, ["odp"], observed).verdict == Verdict.UNSUPPORTED
    judgement = judge(DEREGISTER, [], observed)
    assert judgement.verdict == Verdict.BROKEN
    assert "registering the MR" in judgement.reason


@pytest.mark.parametrize(
    ("of", "undeclared", "observed"),
    [
        (REGISTER, [], region()),
        (REFUSE, [], null()),
        (OPEN, [], null()),
        (ON_DEMAND, ["odp"], null("EOPNOTSUPP")),
        (ON_DEMAND, ["odp"], {"setup_failed": "registering the MR 'mr' was refused", "errno": "EOPNOTSUPP"}),
    ],
)
def test_what_cannot_be_given_back_fails_whatever_the_call_did(
    of: Any, undeclared: list[str], observed: Observation
) -> None:
    judgement = judge(of, undeclared, {**observed, "left_behind": ["MR new: ibv_dereg_mr returned EBUSY"]})
    assert judgement.verdict == Verdict.FAIL
    assert "MR new" in judgement.reason


def test_a_failure_is_not_hidden_by_what_was_left_behind() -> None:
    judgement = judge(REFUSE, [], region(left_behind=["PD pd: EBUSY"]))
    assert "should fail" in judgement.reason


@pytest.mark.parametrize(
    "kernel",
    [
        {"taint": 512, "taint_before": 0, "log": []},
        {"taint": 0, "log": ["all is well", "WARNING: CPU: 0 PID: 7 at drivers/infiniband/core/umem.c:1"]},
        {"taint": 0, "log": ["BUG: kernel NULL pointer dereference, address: 0000000000000008"]},
        {"taint": 0, "log": ["refcount_t: underflow; use-after-free."]},
        {"taint": 0, "log": ["KASAN: slab-use-after-free in rxe_mr_cleanup+0x1/0x2 [rdma_rxe]"]},
    ],
)
def test_a_kernel_that_complains_fails_the_case(kernel: KernelEvidence) -> None:
    judgement = judge(REGISTER, [], region(), kernel)
    assert judgement.verdict == Verdict.FAIL
    assert "kernel" in judgement.reason


WARNING = "WARNING: CPU: 0 PID: 7 at mm/page_alloc.c:4826 __alloc_pages+0x1/0x2"
LOADED = "Modules linked in: siw rdma_rxe mlx5_ib ib_uverbs ib_core"


@pytest.mark.parametrize(
    ("log", "about"),
    [
        ([WARNING, LOADED, "Call Trace:", " siw_umem_get+0x3f/0x2b0 [siw]"], True),
        ([WARNING, LOADED, "Call Trace:", " ext4_writepages+0x3f/0x2b0"], False),
        (["infiniband siw0: set active", WARNING, LOADED], False),
        ([WARNING, LOADED, "BUG: unable to handle page fault", "RIP: 0010:ib_umem_get+0x1/0x2 [ib_uverbs]"], True),
        (["siw: loading out-of-tree module taints kernel."], True),
        (["nvidia: loading out-of-tree module taints kernel."], False),
        ([], False),
    ],
)
def test_where_others_use_the_kernel_only_what_names_the_device_counts(log: list[str], about: bool) -> None:
    kernel: KernelEvidence = {"taint": 512, "taint_before": 0, "log": log, "suspects": ["ib_core", "ib_uverbs", "siw"]}
    seen: Observation = {"rc": None, "returned": "NULL", "errno": "EINVAL", "layer": "kernel"}
    judgement = judge(case("{rules: [REG-01], when: {access: []}, then: refused}"), [], seen, kernel)
    assert judgement.verdict == (Verdict.FAIL if about else Verdict.PASS)
    assert about or judgement.notes[0].startswith("the kernel became tainted (0 to 512); nothing there names")


@pytest.mark.parametrize(
    ("suspect", "function", "named"),
    [
        ("mana", "mana_ib_reg_user_mr+0x3f/0x2b0 [mana_ib]", True),
        ("mana", "manage_workers+0x3f/0x2b0", False),
        ("efa", "efault_handler+0x3f/0x2b0", False),
        ("hns", "hns3_clean_tx_ring+0x3f/0x2b0 [hns3]", False),
        ("hns", "hns_roce_reg_user_mr+0x3f/0x2b0 [hns_roce_hw_v2]", True),
        ("mlx5_1", "mlx5_10: something", False),
    ],
)
def test_a_suspect_is_named_by_its_whole_name(suspect: str, function: str, named: bool) -> None:
    log = [WARNING, "Call Trace:", f" {function}"]
    assert bool(kernel_alarm({"taint": 0, "log": log, "suspects": ["ib_core", suspect]})) is named


@pytest.mark.parametrize(
    "kernel",
    [
        {},
        {"taint": 0},
        {"taint": 512, "log": ["rdma_rxe: loaded"]},
        {"taint": 512, "taint_before": 512, "log": []},
        {"taint": 0, "log": ["infiniband rxe0: set active"]},
    ],
)
def test_a_kernel_that_was_tainted_before_or_only_talks_changes_no_verdict(kernel: KernelEvidence) -> None:
    assert judge(REGISTER, [], region(), kernel).verdict == Verdict.PASS


@pytest.mark.parametrize("of", [REGISTER, REFUSE, REFUSE_ANY, OPEN, ON_DEMAND])
@pytest.mark.parametrize("undeclared", [[], ["odp"]])
@pytest.mark.parametrize("observed", [null(), null(""), region(), region({"length": 0}, left_behind=["PD pd: busy"])])
def test_judging_the_same_data_twice_gives_the_same_and_changes_nothing(
    of: Any, undeclared: list[str], observed: Observation
) -> None:
    kernel: KernelEvidence = {"taint": 0, "log": ["a line"]}
    before = copy.deepcopy((undeclared, observed, kernel))
    first = judge(of, undeclared, observed, kernel)
    assert judge(of, undeclared, observed, kernel) == first
    assert (undeclared, observed, kernel) == before
    assert "\n" not in first.reason


def refused_traffic(because: str, op: str = "RDMA_WRITE") -> Any:
    return case(f"""
        - id: then-refused-traffic
          rules: [REG-05]
          when: {{access: [LOCAL_WRITE]}}
          then: success
          afterwards:
            - {{call: traffic, op: {op}, rkey: new.rkey, addr: buf, then: {{outcome: refused, because: {because}}}}}
    """)


def refusal_seen(status: str, /, **more: Unpack[Observation]) -> Observation:
    seen = moved("nothing", status)
    seen["afterwards"][0] |= {"side": "remote", "qp_type": "RC", "peer_wc": [], "state": "ERR", **more}
    return seen


@pytest.mark.parametrize(
    ("because", "seen", "complaint"),
    [
        ("memory", refusal_seen("REM_ACCESS_ERR"), ""),
        ("memory", refusal_seen("REM_INV_REQ_ERR"), "should be refused with REM_ACCESS_ERR"),
        ("memory", refusal_seen("REM_ACCESS_ERR", state="RTS"), "in state RTS instead of ERR"),
        ("queue_pair", refusal_seen("REM_INV_REQ_ERR"), ""),
        ("queue_pair", refusal_seen("REM_ACCESS_ERR"), "should be refused with REM_INV_REQ_ERR"),
        ("memory", refusal_seen("SUCCESS", state="RTS", qp_type="UC"), ""),
    ],
)
def test_a_refusal_is_judged_by_its_status_and_by_the_queue_pairs_state(
    because: str, seen: Observation, complaint: str
) -> None:
    judgement = judge(refused_traffic(because), [], seen)
    assert (judgement.verdict == Verdict.FAIL) == bool(complaint)
    assert complaint in judgement.reason


STATUS = case("""
    - id: write
      rules: [STAT-01]
      call: traffic
      given: {mrs: {mr: {access: [LOCAL_WRITE]}}}
      when: {op: RDMA_WRITE, rkey: mr.rkey, addr: buf}
      then: {outcome: refused, because: memory}
    """)
BIND_STATUS = case("""
    - id: bind
      rules: [STAT-06]
      call: ibv_bind_mw
      given: {mrs: {mr: {access: [LOCAL_WRITE]}}, qps: {qp: {type: RC}}, windows: {mw: {type: 1}}}
      when: {access: [REMOTE_READ]}
      then: {outcome: refused, because: memory}
    """)
POSTED = Observation(rc=0, returned="0", errno="", layer="device", peer_wc=[], side="remote", qp_type="RC", state="ERR")


@pytest.mark.parametrize(
    ("seen", "verdict", "complaint"),
    [
        (Observation(wc=["REM_ACCESS_ERR"], moved="nothing", changed=[]), "PASS", ""),
        (Observation(wc=["WR_FLUSH_ERR"], moved="nothing", changed=[]), "FAIL", "completed with WR_FLUSH_ERR"),
        (Observation(wc=[], moved="nothing", changed=[]), "HANG", "gave no completion"),
        (Observation(wc=["REM_ACCESS_ERR"], moved="all", changed=[[0, 8]]), "PASS", ""),  # a violation of REG-05
        (Observation(wc=["SUCCESS"], moved="all", changed=[[0, 8]]), "UNREACHABLE", "was not refused"),
        (Observation(rc=22, returned="EINVAL", wc=[]), "UNREACHABLE", "refused when it was posted"),
    ],
)
def test_the_row_of_a_status_is_judged_by_the_status_alone(seen: Observation, verdict: str, complaint: str) -> None:
    judgement = judge(STATUS, [], {**POSTED, **seen})
    assert judgement.verdict == verdict
    assert complaint in judgement.reason


@pytest.mark.parametrize(
    ("status", "verdict"), [("MW_BIND_ERR", "PASS"), ("WR_FLUSH_ERR", "FAIL"), ("SUCCESS", "UNREACHABLE")]
)
def test_a_bind_that_fails_is_not_reported_as_flushed(status: str, verdict: str) -> None:
    seen = Observation(rc=0, returned="0", errno="", layer="device", wc=[status], wr_id_matches=True)
    assert judge(BIND_STATUS, [], seen).verdict == verdict


@pytest.mark.parametrize("received", [Observation(byte_len=[8, 9]), Observation(imm=[8, 9])])
def test_a_receiver_that_was_told_something_else_fails(received: Observation) -> None:
    seen = moved("all", "SUCCESS", ((0, 8),))
    assert judge(traffic("success"), [], seen).verdict == Verdict.PASS
    seen["afterwards"][0] |= received
    assert "the receiver was told 8" in judge(traffic("success"), [], seen).reason


def test_at_the_kernel_a_line_names_the_kernels_command() -> None:
    rows = "{rules: [REREG-11], entries: [uverbs], given: {mrs: {mr: {access: []}}}, when: {flags: [CHANGE_ACCESS]}, "
    at_kernel = case(rows + "then: success, afterwards: [{call: ibv_dereg_mr, mr: mr, then: success}]}", "rereg_mr")
    assert str(at_kernel.when).startswith("uverbs REREG_MR(mr=mr, flags=CHANGE_ACCESS")
    assert str(at_kernel.afterwards[0]) == "uverbs DEREG_MR(mr=mr)"
    assert str(REFUSE.when).startswith("ibv_reg_mr(")


def iova(hca_va: str, more: str = "addr: buf + 100") -> Case:
    return case(f"{{rules: [IOVA-02], when: {{{more}, hca_va: {hca_va}, access: []}}, then: success}}", "reg_mr_iova")


@pytest.mark.parametrize(
    ("of", "code", "layer"),
    [
        (iova("4 GiB + 200"), "EINVAL", "kernel core"),
        (iova("0"), "EINVAL", "kernel core"),
        (iova("4 GiB + 100"), "EINVAL", "kernel"),
        (iova("4 GiB + 4196"), "EINVAL", "kernel"),  # another offset within a page of 64 KiB only: not known
        (iova("3 pages + 100"), "EINVAL", "kernel"),
        (iova("3 pages + 99"), "EINVAL", "kernel core"),
        (iova("1 hugepage + 64 KiB + 99"), "EINVAL", "kernel core"),
        (iova("4 GiB + 200"), "ENOMEM", "kernel"),
        (iova("4 GiB + 200", "addr: buf.end - 8"), "EINVAL", "kernel"),
        (REFUSE, "EINVAL", "kernel core"),
        (REFUSE, "EPERM", "kernel"),
        (REGISTER, "EINVAL", "kernel"),
    ],
)
def test_what_the_core_of_the_kernel_checks_is_answered_by_it(of: Case, code: str, layer: str) -> None:
    seen = Observation(rc=None, returned="NULL", errno=code, layer="kernel")
    assert answering_layer(of, seen) == layer
    judgement = judge(of, [], seen)
    says = judgement.reason.endswith("the kernel's RDMA core answered, whatever the driver")
    assert says == (layer == "kernel core" and judgement.verdict == Verdict.FAIL)
    assert answering_layer(of, {**seen, "layer": "provider"}) == "provider"


OOPS = """[   41.066534] BUG: kernel NULL pointer dereference, address: 0000000000000160
[   41.070570] RIP: 0010:__put+0x12/0x60 [some_driver]
[   41.073929] Call Trace:
[   41.074244]  <TASK>
[   41.074300]  ? exc_page_fault+0x7e/0x1a0
[   41.074400]  __put+0x12/0x60 [some_driver]
[   41.074500]  invalidate_mw+0x9d/0x110 [some_driver]
[   41.074867]  requester+0x45b/0x12f0 [some_driver]
"""
OOPS_OF_ARM = """[    9.1] pc : put.isra.0+0x12/0x60 [some_driver]
[    9.2] lr : invalidate_mw+0x9d/0x110 [some_driver]
[    9.3] Call trace:
[    9.4]  put.isra.0+0x12/0x60 [some_driver] (P)
[    9.5]  invalidate_mw+0x9d/0x110 [some_driver]
"""


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (OOPS, "in __put+0x12/0x60 [some_driver], called by invalidate_mw+0x9d/0x110 [some_driver]"),
        (OOPS_OF_ARM, "in put.isra.0+0x12/0x60 [some_driver], called by invalidate_mw+0x9d/0x110 [some_driver]"),
        (OOPS.partition("[   41.073929]")[0], "in __put+0x12/0x60 [some_driver]"),
        ("[ 1.0] all is well", ""),
    ],
)
def test_a_kernel_that_died_says_where(log: str, expected: str) -> None:
    assert crash_location(log.splitlines()) == expected


def test_a_flush_that_should_be_refused_is_not_said_to_move_bytes() -> None:
    seen = moved("all", "SUCCESS", ())
    judgement = judge(traffic("refused", "FLUSH_GLOBAL"), [], seen)
    assert judgement.verdict == Verdict.FAIL
    assert judgement.reason.endswith("and flushed memory that it may not: a FLUSH moves no bytes")


def test_a_refusal_on_a_queue_pair_that_had_failed_before_shows_nothing() -> None:
    seen = moved("nothing", "WR_FLUSH_ERR")
    assert judge(traffic("refused"), [], seen).verdict == Verdict.PASS
    seen["afterwards"][0]["state_before"] = "ERR"
    judgement = judge(traffic("refused"), [], seen)
    assert judgement.verdict == Verdict.BROKEN
    assert judgement.reason.endswith("completed with WR_FLUSH_ERR: its queue pair was in the error state before")
    assert judge(traffic("success"), [], seen).verdict == Verdict.FAIL


def test_a_refused_read_that_scribbles_on_the_requesters_own_buffer_leaks_nothing() -> None:
    seen = moved("other", "REM_ACCESS_ERR", ())
    judgement = judge(traffic("refused", "RDMA_READ"), [], seen)
    assert judgement.verdict == Verdict.PASS
    assert "none of them are the responder's" in judgement.notes[0]
    assert judge(traffic("refused", "RDMA_READ"), [], moved("part", "REM_ACCESS_ERR", ())).verdict == Verdict.FAIL
    done = judge(traffic("success", "RDMA_READ"), [], moved("other", "SUCCESS", ()))
    assert "something else has arrived" in done.reason


@pytest.mark.parametrize("outcome", ["open", "refused"])
def test_a_bind_that_must_complete_is_judged_by_its_completions(outcome: str) -> None:
    of = case(
        f"{{rules: [BIND-22], given: {{{WINDOW}, {REGION}}}, when: {{access: [], send_flags: []}},"
        f" then: {{outcome: {outcome}, completion: one}}}}",
        "bind_mw",
    )
    assert judge(of, [], bound("WR_FLUSH_ERR")).verdict == Verdict.PASS
    assert judge(of, [], {**bound(), **status("EINVAL")}).verdict == Verdict.PASS
    assert judge(of, [], bound()).verdict == Verdict.HANG
    assert judge(of, [], bound("WR_FLUSH_ERR", "WR_FLUSH_ERR")).verdict == Verdict.FAIL


def test_a_bind_that_succeeds_and_ends_its_queue_pair_fails() -> None:
    assert judge(BIND, [], {**bound("SUCCESS"), "state": "ERR"}).reason.endswith("and its queue pair is in state ERR")


INVALIDATE = (
    "{{rules: [BIND-19], given: {{qps: {{qp: {{type: RC}}}}}}, call: post_send_with_inv, when: {{rkey: 7}}, then: {}}}"
)


def test_the_receiver_has_to_be_told_the_invalidated_key() -> None:
    of = case(INVALIDATE.format("{outcome: success, invalidated: as_posted}"), "bind_mw")
    seen = status("0", wc=["SUCCESS"], responder_wc=["SUCCESS"], invalidated=[7, 7])
    assert judge(of, [], seen).verdict == Verdict.PASS
    for output in (None, 8):
        wrong: Observation = {**seen, "invalidated": [output, 7]}
        assert judge(of, [], wrong).verdict == Verdict.FAIL
        assert judge(case(INVALIDATE.format("success"), "bind_mw"), [], wrong).verdict == Verdict.PASS


def test_an_invalidation_is_refused_if_its_receiver_alone_learns_of_it() -> None:
    of = case(INVALIDATE.format("refused"), "bind_mw")
    assert judge(of, [], status("0", wc=["SUCCESS"], responder_wc=["REM_INV_REQ_ERR"])).verdict == Verdict.PASS
    assert judge(of, [], status("0", wc=["SUCCESS"], responder_wc=["SUCCESS"])).verdict == Verdict.FAIL


def test_a_step_of_the_other_outcome_is_not_judged() -> None:
    of = case(
        """
        - id: only-if-refused
          rules: [DEREG-03]
          given: {mrs: {mr: {access: []}}}
          when: {mr: mr, handle: invented}
          then: open
          afterwards: [{call: ibv_dereg_mr, mr: mr, then: {outcome: success, after: refused}}]
        """,
        "dereg_mr",
    )
    assert judge(of, [], status("0", afterwards=[status("not made", not_made=True)])).verdict == Verdict.PASS
    assert judge(of, [], status("EINVAL", afterwards=[status("EBUSY")])).verdict == Verdict.FAIL
    assert judge(of, ["odp"], status("EINVAL", afterwards=[status("0")])).verdict == Verdict.UNSUPPORTED


def test_a_failed_bind_completes_with_its_own_number() -> None:
    of = case(f"{{rules: [BIND-01], given: {{{WINDOW}, {REGION}}}, when: {{access: []}}, then: refused}}", "bind_mw")
    failed = bound("MW_BIND_ERR")
    assert judge(of, [], {**failed, "wr_id_matches": True}).verdict == Verdict.PASS
    assert "another wr_id" in judge(of, [], {**failed, "wr_id_matches": False}).reason
    assert judge(of, [], {**bound(), "wr_id_matches": False}).verdict == Verdict.HANG, "there is no completion"


def test_the_opcode_of_a_completion_counts_where_a_row_asks_for_it() -> None:
    observed = moved("all", "SUCCESS")
    observed["afterwards"][0]["opcode"] = ["RDMA_READ", "RDMA_WRITE"]
    assert judge(traffic("success"), [], observed).verdict == Verdict.PASS
    judgement = judge(traffic("{outcome: success, opcode: as_posted}"), [], observed)
    assert judgement.verdict == Verdict.FAIL
    assert "has the opcode RDMA_READ, not RDMA_WRITE" in judgement.reason
    del observed["afterwards"][0]["opcode"]
    assert judge(traffic("{outcome: success, opcode: as_posted}"), [], observed).verdict == Verdict.PASS


LATER = """
- id: later
  rules: [BIND-11]
  given: {memory: {buf: {kind: anonymous, size: 1 page}}, qps: {qp: {type: RC, state: RESET}}, windows: {mw: {type: 1}},
    mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}}
  when: {access: []}
  then: open
  afterwards:
    - {call: connect_qp, then: {outcome: success, completion: none, after: refused}}
    - {call: connect_qp, then: {outcome: open, after: success}}
"""
SKIPPED = status("not made", not_made=True)


@pytest.mark.parametrize(
    ("returned", "completed", "verdict"),
    [
        ("EINVAL", [], Verdict.PASS),
        ("EINVAL", ["SUCCESS"], Verdict.FAIL),
        ("EINVAL", ["MW_BIND_ERR"], Verdict.FAIL),
        ("0", ["SUCCESS"], Verdict.PASS),
        ("0", ["MW_BIND_ERR"], Verdict.PASS),
        ("0", [], Verdict.PASS),
    ],
)
def test_what_was_refused_is_not_done_later_and_what_was_accepted_too_early_is_open(
    returned: str, completed: list[str], verdict: str
) -> None:
    judged = status(returned, wc=[NOT_AWAITED] if returned == "0" else [], rkey={"before": 1, "after": 1})
    later = status("0", wc=completed)
    steps = [SKIPPED, later] if returned == "0" else [later, SKIPPED]
    assert judge(case(LATER, "bind_mw"), [], {**judged, "afterwards": steps}).verdict == verdict
