"""Implements the calls of the table language that access many regions with their keys, or call several verbs at the
same time."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from errno import errorcode
from queue import SimpleQueue

from conformance.bench.calls import Mr, Return, errno_name
from conformance.bench.interface import Queue
from conformance.bench.work_requests import SIGNALED, BindInfo, SendRequest, next_rkey
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext, told
from conformance.execution.traffic import run_probes
from conformance.judging.faults import fault_of
from conformance.model.case import Argument, Expectation, Flags, Step, Value
from conformance.model.fault import Fault
from conformance.model.observation import Observation
from conformance.model.vocabulary import CALLS, NULL, QP_RIGHTS
from conformance.older_python import zip
from conformance.verbs import ENUMS

# Only one in this many forbidden uses of keys is tested, because a refusal takes as long as many operations.
_SAMPLED = 16
_REPORT_INTERVAL = 4096  # the number of registrations between two reports of progress
_USED = 512  # about this many of all regions are accessed, and also the regions that share a key
_PROMISED = 100  # this many regions must be possible; more may exceed a limit of the device or of pinned memory
_BATCH = 32  # the number of operations that are prepared together
_RIGHTS = QP_RIGHTS.split()
_LOCAL_WRITE = ENUMS["ibv_access_flags"].value_of("LOCAL_WRITE")
_QP_ACCESS = Flags(ENUMS["ibv_access_flags"].mask_of(*_RIGHTS), tuple(_RIGHTS))


def regions_side_by_side(context: CaseContext, step: Step) -> Observation:
    """Registers `count` adjacent regions of `length` bytes from `addr` on, and accesses them with their keys. Then
    deregisters every second region, and accesses the remaining regions again. `returned` is 0, or describes the first
    error."""
    addr, length, count, access = context.numbers(
        step.arguments,
        "addr",
        "length",
        "count",
        "access",
    )
    regions: list[Mr] = []
    remarks: list[str] = []
    for number in range(count):
        if number % _REPORT_INTERVAL == _REPORT_INTERVAL - 1:
            context.progress("registrations", number)
        pd = context.pd_of(step)
        returned = context.entry.reg_mr(pd, addr + number * length, length, access)
        if returned.mr is None:
            refused = f"region {number} was refused with {errno_name(returned.errno)}"
            if number < _PROMISED or returned.errno not in errorcode:
                return ended(refused)
            remarks.append(refused)
            break
        context.keep_mr(f"region {number}", returned.mr, context.entry)
        regions.append(returned.mr)
    count = len(regions)
    keys = [(mr.struct.lkey, mr.struct.rkey) for mr in regions]
    starts = [addr + number * length for number in range(count)]
    used = _used(keys)
    beyond = [
        _write(keys[region][1], starts[region + 1], length, "refused")
        for region in used[:-1:_SAMPLED]
    ]
    fault = first_fault(context, [*served(keys, starts, length, used), *beyond])
    if fault:
        return ended(f"with {count} regions: a fault", fault)
    for number in range(0, count, 2):
        if number % _REPORT_INTERVAL == 0:
            context.progress("deregistrations", count + number)
        returned = context.entry.dereg_mr(regions[number])
        if returned.value:
            return ended(
                f"region {number} could not be deregistered: {errno_name(returned.value)}",
            )
        del context.mrs[f"region {number}"]
    used_regions, gone = (
        [region for region in used if region % 2],
        [region for region in used if region % 2 == 0],
    )
    stale = [
        _write(keys[region][1], starts[region], length, "refused") for region in gone[::_SAMPLED]
    ]
    fault = first_fault(context, [*served(keys, starts, length, used_regions), *stale])
    if fault:
        return ended(f"with every second of {count} regions deregistered: a fault", fault)
    if remarks:
        return {**ended("0"), "remarks": remarks}
    return ended("0")


def four_threads(context: CaseContext, step: Step) -> Observation:
    """Calls verbs in four threads at the same time, `rounds` times in each thread (see the vocabulary). `returned` is
    0, or describes the first wrong result."""
    addr, length, access, rounds = context.numbers(
        step.arguments,
        "addr",
        "length",
        "access",
        "rounds",
    )
    entry, pd = context.entry, context.pd_of(step)
    info = BindInfo(context.mrs[str(step.arguments["mr"])], addr, length, access & ~_LOCAL_WRITE)
    alive: SimpleQueue[Mr | None] = SimpleQueue()
    held = set[int]()

    def register() -> str:
        try:
            for _ in range(rounds):
                returned = entry.reg_mr(pd, addr, length, access)
                if returned.mr is None:
                    return f"a registration was refused with {errno_name(returned.errno)}"
                if returned.mr.struct.rkey in held:
                    return "two regions have the same key"
                held.add(returned.mr.struct.rkey)
                alive.put(returned.mr)
            return ""
        finally:
            alive.put(None)

    def deregister() -> str:
        wrong = ""
        while (mr := alive.get()) is not None:
            held.discard(mr.struct.rkey)
            refused = entry.dereg_mr(mr).value
            wrong = wrong or (f"a deregistration returned {errno_name(refused)}" if refused else "")
        return wrong

    def completed(what: str, queue: Queue, returned: Return) -> str:
        if returned.value:
            statuses = []
        else:
            statuses = [completion.status for completion in queue.completions(1)]
        if statuses == ["SUCCESS"]:
            return ""
        return f"{what} returned {returned.value} and completed with {statuses}"

    def rebind() -> str:
        queue, window = (
            context.pair_of(step).responder,
            context.window_of(step),
        )
        wrong = (
            completed("a bind", queue, queue.bind_mw(window, info, SIGNALED, index))
            for index in range(rounds)
        )
        return next(filter(None, wrong), "")

    def invalidate() -> str:
        queue = context.pairs[str(step.arguments["second"])].responder
        window = context.windows[str(step.arguments["posted"])]
        for number in range(rounds):
            key = next_rkey(window.rkey)
            bind = SendRequest("BIND_MW", number, rkey=key, window=window, bind=info)
            wrong = completed("a posted bind", queue, queue.post_send(bind))
            window.rkey = key
            end = SendRequest("LOCAL_INV", number, invalidate_rkey=key)
            wrong = wrong or completed("an invalidation", queue, queue.post_send(end))
            if wrong:
                return wrong
        return ""

    with ThreadPoolExecutor(4) as threads:
        futures = [threads.submit(action) for action in (register, deregister, rebind, invalidate)]
    return ended(next(filter(None, (future.result() for future in futures)), "0"))


def _used(keys: Sequence[tuple[int, int]]) -> list[int]:
    """Returns the numbers of the regions to access: a sample, and regions that share a key with another region."""
    count, occurs = (
        len(keys),
        (Counter(lkey for lkey, _ in keys), Counter(rkey for _, rkey in keys)),
    )
    step = max(1, count // _USED) | 1  # odd, so that only a part of the sample is deregistered
    twice = (
        number
        for number, (lkey, rkey) in enumerate(keys)
        if occurs[0][lkey] > 1 or occurs[1][rkey] > 1
    )
    return sorted({*range(0, count, step), *itertools.islice(twice, _USED)})


def served(
    keys: Sequence[tuple[int, int]],
    starts: Sequence[int],
    length: int,
    numbers: Iterable[int],
) -> list[Step]:
    """Returns two steps for each of the regions: a peer's write to the region, and a receive into the region."""
    return [
        step
        for number in numbers
        for step in (
            _write(keys[number][1], starts[number], length, "success"),
            _probe(
                "local_traffic",
                starts[number],
                length,
                "success",
                op="RECV",
                lkey=_number(keys[number][0]),
            ),
        )
    ]


def _write(rkey: int, at: int, length: int, outcome: str) -> Step:
    return _probe(
        "traffic",
        at,
        length,
        outcome,
        op="RDMA_WRITE",
        rkey=_number(rkey),
        via=NULL,
        qp_access=_QP_ACCESS,
    )


def _probe(call: str, at: int, length: int, outcome: str, **arguments: Argument) -> Step:
    base: dict[str, Argument] = {
        "addr": _number(at),
        "length": _number(length),
        "at": "",
        "position": "whole",
        "contents": "made",
        "pd": "pd",
        "qp_type": "RC",
        "with_flags": Flags(0, ()),
        "poster": "post_send",
        "srq_pd": NULL,
    }
    asked_for = {**base, **arguments}
    return Step(call, {key: asked_for[key] for key in CALLS[call]}, Expectation(outcome))


def _number(value: int) -> Value:
    return Value(value, f"{value:#x}")


def first_fault(context: CaseContext, steps: Sequence[Step]) -> Fault | None:
    """Executes operations in batches. Returns the first fault, or None."""
    for first in range(0, len(steps), _BATCH):
        batch = steps[first : first + _BATCH]
        for step, seen in zip(batch, run_probes([(context, step) for step in batch]), strict=True):
            if isinstance(seen, SetupRefused):
                raise seen
            fault = fault_of(step, seen)
            if fault:
                # the key was of another region, or of no region
                aimed = step.then.outcome == "refused"
                return replace(
                    fault,
                    call=str(step),
                    operation=str(step.arguments["op"]),
                    outside=aimed,
                )
    return None


def ended(what: str, fault: Fault | None = None) -> Observation:
    seen = told(what, "device")
    if fault:
        return {**seen, "fault": replace(fault, returned=what).as_data()}
    return seen
