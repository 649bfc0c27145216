"""Creates objects in another process that has opened the same device: a region of shared memory and, if a row asks for
it, a window that is bound to the region. The case uses the keys of these objects, which must give it no access. The
other process then uses the keys itself, which shows that they are valid and that nothing has changed them.

device/bench.py forks the process. The reference has only one process, and runs the generator `owner` in it.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from conformance.bench.calls import Mr, Sge, errno_name
from conformance.bench.interface import Bench, Memory, Pair
from conformance.bench.work_requests import BindInfo, SendRequest, next_rkey
from conformance.errors import SetupRefused, UserError
from conformance.execution.context import CaseContext, create_pair, result_of, told
from conformance.model.case import QpSpec, Step
from conformance.model.observation import Observation
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_OF_A_SINK = _ACCESS.mask_of("LOCAL_WRITE", "REMOTE_WRITE")
_OPERATIONS = {"REMOTE_WRITE": "RDMA_WRITE", "REMOTE_READ": "RDMA_READ"}
_LENGTH = 8  # bytes that the other process accesses with each of its keys
_WINDOW_RIGHTS = _ACCESS.mask_of("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")


def register_elsewhere(context: CaseContext, step: Step) -> Observation:
    """Registers memory in another process. Raises SetupRefused if the other process cannot create its objects."""
    memory = context.memory_of(step)
    access, kind = context.number(step.arguments["access"]), str(step.arguments["window"])
    context.next_report, keys = registered_elsewhere(
        context.bench,
        memory,
        access,
        kind,
        context.cleanup,
    )
    context.fields[step.name] = keys
    return told()


def registered_elsewhere(
    bench: Bench,
    memory: Memory,
    access: int,
    window: str,
    cleanup: ExitStack,
) -> tuple[Callable[[], bytes], dict[str, Any]]:
    """Registers memory in another process, which ends with `cleanup`. Returns the function for its next report, and the
    keys. Raises SetupRefused."""

    def work(other: Bench) -> Iterator[bytes]:
        return owner(other, memory, access, window)

    next_report = cleanup.enter_context(bench.other_process(work))
    return next_report, _read(next_report())


def access_elsewhere(context: CaseContext, step: Step) -> Observation:
    """Lets the other process access its memory by its keys. `returned` is 0, or names the first refused access."""
    assert context.next_report is not None
    statuses = _read(context.next_report())
    refused = [f"{name}: {status}" for name, status in statuses.items() if status != "SUCCESS"]
    return told(refused[0] if refused else "0", "device")


def _read(report: bytes) -> dict[str, Any]:
    """Returns the content of a report. Raises SetupRefused if the other process could not create an object."""
    if not report:
        raise UserError("another process ended before it could create its objects", status=3)
    content = json.loads(report)
    if "refused" in content:
        what = f"{content['refused']} in another process"
        raise SetupRefused(what, content["code"], creates=content["creates"])
    return dict(content)


def owner(bench: Bench, memory: Memory, access: int, window: str) -> Iterator[bytes]:
    """Creates the objects of the other process. Yields first their keys, and then, each time that it is resumed, the
    status of an access with each key."""
    with ExitStack() as cleanup:
        try:
            keys, use = _objects(bench, memory, access, window, cleanup)
        except SetupRefused as refused:
            yield json.dumps(
                {"refused": refused.what, "code": refused.code, "creates": refused.not_offered},
            ).encode()
            return
        yield json.dumps(keys).encode()
        while True:
            yield json.dumps(use()).encode()


def _objects(
    bench: Bench,
    memory: Memory,
    access: int,
    window: str,
    cleanup: ExitStack,
) -> tuple[dict[str, int], Callable[[], dict[str, str]]]:
    entry = bench.entry("libibverbs")
    pd = bench.alloc_pd()
    cleanup.callback(pd.close)
    returned = entry.reg_mr(pd, memory.addr, memory.size, access)
    mr = returned.mr
    if mr is None:
        raise SetupRefused("registering shared memory", errno_name(returned.errno))
    cleanup.callback(lambda: entry.dereg_mr(mr))
    keys = {"lkey": int(mr.struct.lkey), "rkey": int(mr.struct.rkey)}
    pairs: list[Pair] = []

    def pair() -> Pair:
        """Returns the queue pairs of the other process, which only some rows need."""
        if not pairs:
            pairs.append(create_pair(bench, QpSpec("RC", "pd"), {"pd": pd}))
            cleanup.callback(pairs[0].close)
        return pairs[0]

    if window != "none":
        allowed = access & _WINDOW_RIGHTS
        keys["window"] = _window(bench, pair(), mr, memory, allowed, int(window[-1]), cleanup)

    def use() -> dict[str, str]:
        scratch = bench.allocate("anonymous", bench.page)
        # On iWARP, memory that receives the response of a READ needs REMOTE_WRITE.
        own = entry.reg_mr(pd, scratch.addr, scratch.size, _OF_A_SINK)
        assert own.mr is not None
        local = own.mr.fields()
        statuses = {}
        for name in keys.keys() - {"lkey"}:
            for right, operation in _OPERATIONS.items():
                if access & _ACCESS.value_of(right):
                    at = (scratch.addr, _LENGTH, int(local["lkey"]))
                    status = _accessed(pair(), operation, at, keys[name], memory.addr)
                    statuses[f"{operation} by its {name}"] = status
        entry.dereg_mr(own.mr)
        scratch.close()
        return statuses

    return keys, use


def _accessed(pair: Pair, operation: str, local: tuple[int, int, int], rkey: int, addr: int) -> str:
    request = SendRequest(operation, 1, (Sge(*local),), rkey=rkey, remote_addr=addr)
    returned = pair.requester.post_send(request)
    if returned.value:
        return errno_name(returned.value)
    completions = pair.requester.completions(1)
    if completions:
        return completions[0].status
    return "no completion"


def _window(
    bench: Bench,
    pair: Pair,
    mr: Mr,
    memory: Memory,
    access: int,
    kind: int,
    cleanup: ExitStack,
) -> int:
    """Returns the key of a new window of type `kind`, bound to the whole region."""
    window, allocated = bench.alloc_mw(pair.responder.pd, kind)
    if window is None:
        raise SetupRefused(
            "allocating a window",
            errno_name(allocated.errno),
            creates=f"mw_type_{kind}",
        )
    cleanup.callback(window.dealloc)
    info = BindInfo(mr, memory.addr, memory.size, access)
    if kind == 1:
        returned = pair.responder.bind_mw(window, info, SendRequest("", 0).flags, 1)
    else:
        key = next_rkey(window.rkey)
        request = SendRequest("BIND_MW", 1, rkey=key, window=window, bind=info)
        returned = pair.responder.post_send(request)
        window.rkey = key
    statuses = []
    if not returned.value:  # a request that was not posted never completes
        statuses = [completion.status for completion in pair.responder.completions(1)]
    if returned.value or statuses != ["SUCCESS"]:
        codes = " ".join(filter(None, [result_of(returned)["errno"], *statuses]))
        raise SetupRefused("binding a window", codes)
    return int(window.rkey)
