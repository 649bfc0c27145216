"""Tests that a result is attributed to the kernel's core, the kernel or the library, and that a log of the kernel names the
place."""

from pathlib import Path

import pytest
import yaml

from conformance.judging import judge
from conformance.judging.answering_layer import answering_layer
from conformance.judging.kernel_alarms import crash_location, kernel_alarm
from conformance.model.fault import FaultKind
from conformance.model.observation import Observation
from conformance.model.verdict import Verdict
from kinds import REPORTS
from samples import case
from test_judging import region, status

JUDGED = yaml.safe_load(Path(__file__).with_name("judged.yaml").read_text())
CASES = {name: case(row, verb) for name, (verb, row) in JUDGED["cases"].items()}
REGISTER, REFUSE = CASES["REGISTER"], CASES["REFUSE"]
ONE_REGION = "given: {mrs: {mr: {access: []}}}"
WARNING = "WARNING: CPU: 0 PID: 7 at mm/page_alloc.c:4826 __alloc_pages+0x1/0x2"


@pytest.mark.parametrize("suspect, function, named", JUDGED["suspects"])
def test_a_suspect_is_recognized_only_by_its_whole_name(suspect, function, named):
    log = [WARNING, "Call Trace:", f" {function}"]
    assert bool(kernel_alarm({"taint": 0, "log": log, "suspects": ["ib_core", suspect]})) is named


@pytest.mark.parametrize("name, code, layer", JUDGED["answers"])
def test_checks_of_the_kernel_core_are_attributed_to_it(name, code, layer):
    row = f"{{rules: [IOVA-02], when: {{{name}, access: []}}, then: success}}"
    of = CASES.get(name) or case(row, "reg_mr_iova")
    seen = Observation(rc=None, returned="NULL", errno=code, layer="kernel")
    assert answering_layer(of, seen) == layer
    judgement = judge(of, [], seen)
    says = judgement.reason.endswith(
        "the kernel's RDMA core returned this result, the same for every driver",
    )
    assert says == (layer == "kernel core" and judgement.verdict == Verdict.FAIL)
    assert answering_layer(of, {**seen, "layer": "provider"}) == "provider"


ADVICE = "{rules: [ADV-09], %s, then: open, when: {advice: PREFETCH, sg_list: [{addr: buf, length: 8, lkey: mr.lkey}], %s}}"
REREG = "{rules: [REREG-06], %s, when: {flags: [%s], access: [%s]}, then: open}"


@pytest.mark.parametrize(
    "row, more, core",
    [
        (ADVICE, ("pd_handle: invented",), "ENOENT"),
        (ADVICE, ("flags: [bit 3]",), "EINVAL"),
        (ADVICE, ("flags: [FLUSH]",), ""),
        (REREG, ("CHANGE_ACCESS", "REMOTE_WRITE"), "EINVAL"),
        (REREG, ("CHANGE_ACCESS", "REMOTE_WRITE, LOCAL_WRITE"), ""),
        (REREG, ("CHANGE_PD", "REMOTE_WRITE"), ""),
    ],
)
def test_only_the_core_refuses_these_advices_and_reregistrations(row, more, core):
    of = case(row % (ONE_REGION, *more), "advise_mr" if row is ADVICE else "rereg_mr")
    layers = {
        code: answering_layer(of, {**status(code), "errno": code})
        for code in ("EINVAL", "ENOENT", "EPERM")
    }
    assert layers == {code: "kernel core" if code == core else "kernel" for code in layers}


@pytest.mark.parametrize("name", sorted(name for name in REPORTS if "oops" in name))
def test_the_log_of_a_dead_kernel_names_the_place(name):
    log, place = REPORTS[name]
    assert crash_location(log) == place


@pytest.mark.parametrize("name", sorted(name for name in REPORTS if name.startswith("dead_")))
def test_a_kernel_of_any_processor_that_died_fails_its_case(name):
    log, expected = REPORTS[name]
    kind, _, text = expected.partition(": ")
    fault = judge(REGISTER, [], region(), {"log": log}).fault
    assert fault
    assert fault.kind == kind
    assert fault.seen[0].endswith(text)


def test_a_report_of_kasan_fails_its_case_with_the_error_the_function_and_the_first_frames():
    log, place = REPORTS["kasan"]
    judgement = judge(REGISTER, [], region(), {"taint": 32, "taint_before": 0, "log": log})
    fault = judgement.fault
    assert fault
    assert fault.kind is FaultKind.KERNEL_MEMORY
    assert fault.site == (
        "rxe_check_pagefault",
        "rxe_odp_map_range_and_lock",
        "rdma_rxe",
        "rdma_rxe",
    )
    assert judgement.reason.endswith(f": the kernel reports {place}")


@pytest.mark.parametrize("name", sorted(name for name in REPORTS if name.startswith("tool_")))
@pytest.mark.parametrize(
    "before",
    [[], ["BUG: unrelated, and before"]],
    ids=["alone", "after another"],
)
def test_a_report_of_a_kernel_tool_names_the_first_function_outside_of_tools(name, before):
    log, expected = REPORTS[name]
    kind, _, what = expected.partition(": ")
    fault = kernel_alarm({"taint": 0, "log": [*before, *log], "suspects": ["rdma_rxe"]})
    assert fault
    assert fault.kind == FaultKind(kind)
    assert fault.seen == (what, "rxe_mr_init_user [rdma_rxe]", "rxe_reg_user_mr [rdma_rxe]")
