"""Tests the reports of AddressSanitizer about the libraries under test."""

from conformance.judging.kernel_alarms import kernel_alarm
from conformance.judging.sentences import sentence
from conformance.kernel.sanitizer import VARIABLE, SanitizerLog
from conformance.model.fault import FaultKind, verdict_of
from conformance.model.verdict import Verdict
from conformance.run_options import RunOptions
from fixtures.targets.builds import environment_from

_REPORT = """\
=================================================================
==812==ERROR: AddressSanitizer: heap-use-after-free on address 0x50c0000a4ed8 at pc 0x7f1
READ of size 8 at 0x50c0000a4ed8 thread T0
    #0 0x7f1234 in __interceptor_memcpy (/lib/x86_64-linux-gnu/libasan.so.8+0x1)
    #1 0x7f1235 in ibv_dereg_mr /source/trees/rdma-core/libibverbs/verbs.c:674
    #2 0x7f1236 in ffi_call_unix64 (/lib/libffi.so.8+0x1)

freed by thread T0 here:
    #0 0x7f1237 in free (/lib/x86_64-linux-gnu/libasan.so.8+0x2)
    #1 0x7f1238 in rxe_dereg_mr /source/trees/rdma-core/providers/rxe/rxe.c:300
"""


def test_a_report_is_a_violation_with_its_function():
    fault = kernel_alarm({"taint": 0, "log": [], "sanitizer": _REPORT.splitlines()})
    assert fault is not None
    assert verdict_of(fault.kind) is Verdict.FAIL
    assert fault.site == ("ibv_dereg_mr", "ffi_call_unix64", "", "")
    assert sentence(fault) == (
        "the process under test reports AddressSanitizer: heap-use-after-free in ibv_dereg_mr, called by ffi_call_unix64"
    )


def test_an_error_of_the_kernel_comes_first():
    log = ["WARNING: drivers/infiniband/sw/rxe/rxe_mr.c:1 at rxe_mr_copy+0x1/0x2 [rdma_rxe]"]
    fault = kernel_alarm({"taint": 0, "log": log, "sanitizer": _REPORT.splitlines()})
    assert fault is not None
    assert fault.kind is FaultKind.KERNEL_WARNED


def test_a_file_without_a_report_is_no_violation():
    warning = "==149==WARNING: AddressSanitizer failed to allocate 0xfffffffffffff000 bytes"
    assert kernel_alarm({"taint": 0, "log": [], "sanitizer": [warning]}) is None


def test_each_report_is_read_once(tmp_path):
    (tmp_path / "asan.1").write_text("before\n", encoding="utf-8")
    log = SanitizerLog({VARIABLE: f"detect_leaks=0:log_path={tmp_path}/asan"})
    assert log.since_last() == []
    with (tmp_path / "asan.1").open("r+", encoding="utf-8") as file:
        file.seek(len("before\n"))  # where the process goes on
        file.write("first\nsecond\n")
    (tmp_path / "asan.2").write_text("of a child\n", encoding="utf-8")
    (tmp_path / "other.3").write_text("of another program\n", encoding="utf-8")
    assert log.since_last() == ["first", "second", "of a child"]
    assert log.since_last() == []


def test_without_a_path_nothing_is_read():
    assert SanitizerLog({}).since_last() == []
    assert SanitizerLog({VARIABLE: "detect_leaks=0"}).since_last() == []


def test_the_guest_gets_the_runtime_before_all_libraries():
    options = RunOptions(sanitize=True, guest_env=("COLOUR=blue",))
    environment = environment_from(options)
    assert environment["COLOUR"] == "blue"
    assert environment["LD_PRELOAD"] == "libasan.so.8"
    assert "halt_on_error=0" in environment[VARIABLE]
    assert VARIABLE not in environment_from(RunOptions())
