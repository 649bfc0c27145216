"""The reference: every case of the tables passes on it, and direct calls have the results that the pages define."""

import ctypes
import errno
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from conformance import judging
from conformance.bench.calls import Mr, Sge
from conformance.bench.work_requests import BindInfo, SendRequest
from conformance.model.case import Case, QpSpec
from conformance.model.kind import Kind
from conformance.model.verdict import Verdict
from conformance.tables.suite import Suite, load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from conformance.verbs import ENUMS
from reference.bench import ReferenceBench
from reference.device import Device
from reference.objects import Domain, Refused
from reference.stack import DECLARABLE, OPTIONAL, STACKS, without
from trial.running import on_reference, stack_for

ACCESS = ENUMS["ibv_access_flags"]
READ_WRITE = ACCESS.mask_of("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ")
WITH_BINDING = READ_WRITE | ACCESS.value_of("MW_BIND")


@pytest.fixture(scope="module")
def suite() -> Suite:
    """All but the larger spaces, which are asked once."""
    whole = load_suite()
    chosen = [replace(table, cases=tuple(filter(is_small, table.cases))) for table in whole.tables]
    return replace(whole, tables=tuple(chosen))


def is_small(case: Case) -> bool:
    return case.sweep is None or case.sweep.size <= 300


def is_dear(case: Case) -> bool:
    """Whether a case takes as long as hundreds of others: random sequences, and 2 GiB of memory page by page."""
    return case.kind is Kind.SEQUENCES or case.id == "reg_mr/huge_lengths/pinned-of-2-gib"


@pytest.fixture
def bench() -> Iterator[ReferenceBench]:
    with closing(ReferenceBench()) as made:
        yield made


def faults(found: Iterator[tuple[Case, judging.Judgement]], *allowed: str) -> list[str]:
    return [f"{case.id}: {each.verdict} {each.reason}" for case, each in found if each.verdict not in allowed]


def test_every_case_of_the_tables_passes_on_the_reference(suite: Suite) -> None:
    assert faults(on_reference(suite.cases), Verdict.PASS) == []


def test_every_point_of_the_larger_spaces_passes_on_the_reference() -> None:
    larger = [case for case in of_tier(load_suite().cases, DEFAULT) if not is_small(case)]
    assert len(larger) > 5
    assert faults(on_reference(larger), Verdict.PASS) == []


def test_every_case_has_a_stack_that_reaches_it(suite: Suite) -> None:
    assert [case.id for case in suite.cases if stack_for(case) is None] == []


ODP_OPERATIONS = ("odp_send", "odp_recv", "odp_write", "odp_read", "odp_atomic")
# Rules that every device must follow: one that does not violates them, and what depends on them is unsupported.
OWN_RULES = {"iova_page_offset": "IOVA-02a"}
GROUPS = [*((name,) for name in OPTIONAL if name not in ODP_OPERATIONS), ODP_OPERATIONS, OPTIONAL]
BY_DAY = [("odp",), OPTIONAL]


@pytest.mark.parametrize(
    "undeclared",
    [pytest.param(each, marks=() if each in BY_DAY else pytest.mark.nightly) for each in GROUPS],
    ids=lambda names: "+".join(names),
)
def test_what_a_stack_does_not_declare_is_unsupported_and_never_a_failure(
    undeclared: tuple[str, ...], suite: Suite
) -> None:
    own = {OWN_RULES.get(name) for name in undeclared}
    cases = [case for case in suite.cases if not own & set(case.rules) and not is_dear(case)]
    found = list(on_reference(cases, only=without(*undeclared)))
    assert faults(iter(found), Verdict.PASS, Verdict.UNSUPPORTED, Verdict.UNREACHABLE) == []
    needed = [judgement for case, judgement in found if set(case.needs) & set(undeclared)]
    if needed:  # what is accepted although it is not declared passes, and the result says so
        said = any("does not declare" in each.reason for each in needed)
        assert said or Verdict.UNSUPPORTED in {each.verdict for _, each in found}


def test_capabilities_are_found_out_as_on_a_real_device() -> None:
    for undeclared in OPTIONAL:
        with closing(ReferenceBench(Device(without(undeclared)))) as bench:
            capabilities = bench.capabilities()
            known = {**capabilities.declared, **capabilities.offered["libibverbs"]}
            assert known[undeclared] is False
            assert undeclared in DECLARABLE or capabilities.offered["uverbs"][undeclared] is False


def test_stacks_have_names_of_their_own() -> None:
    assert len({stack.name for stack in STACKS}) == len(STACKS)


class CaseContext:
    """A PD, a page of memory, and a pair of queue pairs."""

    def __init__(self, bench: ReferenceBench) -> None:
        self.bench = bench
        self.pd: Domain = bench.alloc_pd()
        self.memory = bench.allocate("anonymous", 4096)
        self.pair = bench.pair(QpSpec("RC", "pd"), self.pd, self.pd)

    def register(self, access: int = READ_WRITE) -> Mr:
        made = self.bench.library.reg_mr(self.pd, self.memory.addr, self.memory.size, access).mr
        assert made is not None
        return made

    def write(self, rkey: int, addr: int, content: bytes = b"12345678") -> str:
        """The requester's status of an RDMA WRITE."""
        source = self.bench.allocate("anonymous", 4096)
        ctypes.memmove(source.addr, content, len(content))
        mr = self.bench.library.reg_mr(self.pd, source.addr, source.size, 0).mr
        assert mr is not None
        request = SendRequest(
            "RDMA_WRITE", 7, (Sge(source.addr, len(content), mr.struct.lkey),), remote_addr=addr, rkey=rkey
        )
        assert self.pair.requester.post_send(request).value == 0
        [completion] = self.pair.requester.completions(1)
        assert completion.wr_id == 7
        return completion.status


def test_traffic_moves_bytes_of_this_process(bench: ReferenceBench) -> None:
    context = CaseContext(bench)
    assert context.write(context.register().struct.rkey, context.memory.addr + 100) == "SUCCESS"
    assert ctypes.string_at(context.memory.addr + 98, 12) == b"\0\0" + b"12345678" + b"\0\0"


def test_a_refused_operation_touches_nothing_and_ends_both_queue_pairs(bench: ReferenceBench) -> None:
    context = CaseContext(bench)
    context.pair.responder.post_receive((), 11)
    mr = context.register(ACCESS.value_of("LOCAL_WRITE"))
    assert context.write(mr.struct.rkey, context.memory.addr) == "REM_ACCESS_ERR"
    assert ctypes.string_at(context.memory.addr, 8) == bytes(8)
    assert [context.pair.requester.query_state(), context.pair.responder.query_state()] == ["ERR", "ERR"]
    assert [each.status for each in context.pair.responder.completions(2)] == ["WR_FLUSH_ERR"]
    context.pair.renew()
    assert context.write(context.register().struct.rkey, context.memory.addr) == "SUCCESS"


def test_a_domain_is_not_given_back_while_something_is_in_it(bench: ReferenceBench) -> None:
    pd = bench.alloc_pd()
    window, _ = bench.alloc_mw(pd, 1)
    assert window is not None
    with pytest.raises(Refused) as refused:
        pd.close()
    assert refused.value.errno == errno.EBUSY
    assert window.dealloc().value == 0
    pd.close()


def test_a_bound_region_stays_until_its_window_goes(bench: ReferenceBench) -> None:
    context = CaseContext(bench)
    mr = context.register(WITH_BINDING)
    window, _ = bench.alloc_mw(context.pd, 1)
    assert window is not None
    queue = context.pair.responder
    bound = queue.bind_mw(window, BindInfo(mr, context.memory.addr, 64, ACCESS.value_of("REMOTE_WRITE")), 2, 9)
    assert (bound.value, [each.status for each in queue.completions(1)]) == (0, ["SUCCESS"])
    assert bench.library.dereg_mr(mr).value == errno.EBUSY
    assert context.write(window.rkey, context.memory.addr + 56) == "SUCCESS"
    assert context.write(window.rkey, context.memory.addr + 57) == "REM_ACCESS_ERR"
    assert window.dealloc().value == 0
    assert bench.library.dereg_mr(mr).value == 0


def test_memory_of_every_kind_is_closed_once(bench: ReferenceBench) -> None:
    for kind in ("anonymous", "huge", "untouched"):
        memory = bench.allocate(kind, 4096)
        memory.close()
        memory.close()
