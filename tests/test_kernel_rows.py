"""Tests that rows and sweeps whose calls are all commands of the kernel run in a process without libibverbs and its providers: a
provider that changes the code of the process that loads it cannot change their results. With --verify-calls, it gets no
PASS for the other rows either."""

import shutil
from collections import Counter

import pytest

from bad_driver import library
from conformance.model.kind import Kind
from conformance.results.records import read_written
from conformance.tables.suite import ROOT, load_suite
from launched import run_in_guest
from samples import laid

# Soft-RoCE fails both with EINVAL. The second has traffic, and therefore runs beside the provider.
OF_THE_KERNEL = "advise_mr/codes/region-of-another-pd@uverbs"
BESIDE = "advise_mr/asynchronous/prefetch-of-a-region-of-another-pd-has-no-effect@uverbs"
HONEST = "rereg_mr/revocation/pd-by-lkey@uverbs"  # as BESIDE, but the provider does not change it
SWEEP = "advise_mr/advice_space/advice-and-flags@uverbs"
POINT = f"{SWEEP}#access=LOCAL_WRITE,advice=PREFETCH,flags=none,range=whole"
# Reports, for each ioctl of RDMA, whether the process has mapped libibverbs or a provider.
WATCH = """\
import sys

def watch(event, arguments):
    if event == "fcntl.ioctl" and arguments[1] == 0xC0181B01:
        with open("/proc/self/maps") as maps:
            text = maps.read()
        sys.stderr.write(f"MAPPED {'libibverbs' in text or '-rdmav' in text}\\n")

sys.addaudithook(watch)
"""


def test_the_rows_of_the_kernel_need_nothing_of_a_library():
    of_the_kernel = [case for case in load_suite().cases if case.is_of_the_kernel]
    kinds = Counter(case.kind for case in of_the_kernel)
    text = " ".join((ROOT / "docs/supervision.md").read_text().split())
    assert f"({kinds[Kind.ROW]} rows and {kinds[Kind.SWEEP]} sweeps," in text
    assert set(kinds) == {Kind.ROW, Kind.SWEEP}
    for case in of_the_kernel:
        steps = case.steps
        assert case.entry == "uverbs"
        assert not case.given.qps
        assert not {"traffic", "local_traffic"}.intersection(step.call for step in steps)


@pytest.mark.guest
def test_a_provider_cannot_change_a_row_of_the_kernel(tmp_path):
    provider = library(tmp_path / "provider.so", "hostile_provider.c")
    overlay = laid(
        tmp_path / "overlay",
        {
            "etc/libibverbs.d/hostile.driver": "driver /opt/libhostile\n",
            "opt/watch/sitecustomize.py": WATCH,
        },
    )
    for version in range(30, 100):  # the suffix of the providers depends on rdma-core
        shutil.copy(provider, overlay / f"opt/libhostile-rdmav{version}.so")
    out = tmp_path / "out"
    watched = ("--guest-env", "PYTHONPATH=/opt/watch")
    done = run_in_guest(
        out,
        "--guests",
        "1",
        "--overlay",
        overlay,
        *watched,
        "--verify-calls",
        only=(OF_THE_KERNEL, SWEEP, POINT, BESIDE, HONEST),
    )
    assert done.returncode == 1, done.stdout + done.stderr
    results = {result["case"]: result for result in read_written(out).results}
    assert results[OF_THE_KERNEL]["verdict"] == "FAIL"
    assert results[OF_THE_KERNEL]["observed"]["errno"] == "EINVAL"
    # With the attack, nearly all points of the sweep would have a wrong errno.
    assert results[SWEEP]["points"]["PASS"] > results[SWEEP]["points"]["FAIL"]
    assert results[POINT]["verdict"] == "PASS"
    # Beside the provider the attack succeeds, but the kernel has returned another result.
    assert results[BESIDE]["observed"]["errno"] == "EPERM"
    assert results[BESIDE]["verdict"] == "BROKEN"
    assert "the kernel" in results[BESIDE]["reason"]
    assert results[HONEST]["verdict"] == "PASS"
    mapped = (out / "console.log").read_text().split("MAPPED ")[1:]
    assert {line.split()[0] for line in mapped} == {"True", "False"}
    assert mapped[-1].startswith("False")
