"""Describes the set-up of a case as text: the objects that the case creates, and the calls before the judged call."""

from collections.abc import Iterator

from conformance.model.case import Case, Expectation, Given, QpSpec, Step, WindowSpec, mtu_bytes
from conformance.model.record import SetUp
from conformance.verbs import ENUMS

_DONE = Expectation("success")
# Arguments of a bind that the text of a set-up omits, because they are the same for all windows.
_OWN = ("mw", "send_flags")
# Numbers of a queue pair, which the text names unless they are the defaults.
NUMBERS = "inline max_dest_rd_atomic max_rd_atomic timeout retry_cnt rnr_retry traffic_class psn"
RIGHTS = "rights"


def set_up_of(case: Case) -> SetUp:
    """Returns the set-up of a row or of one point of a sweep, with a line for each object and each call."""
    return {"given": list(_given(case.given)), "before": [str(step) for step in case.before]}


def _given(given: Given) -> Iterator[str]:
    for name, buffer in (*given.memory.items(), *given.dmabufs.items()):
        yield f"{name}: {'dma-buf' if name in given.dmabufs else 'memory'}, {buffer.kind}, {buffer.size.text}"
    yield from (f"{name}: protection domain" for name in given.pds)
    for name, spec in given.mrs.items():
        yield f"{name}: {Step(spec.call, spec.arguments, _DONE)}{', deregistered again' if spec.gone else ''}"
    for name, queue in given.qps.items():
        parts = ["queue pair", queue.kind, f"in {queue.pd}", f"state {queue.state}"]
        yield f"{name}: {', '.join([*parts, *_attributes(queue)])}"
    yield from (f"{name}: {_window(window)}" for name, window in given.windows.items())
    if given.memlock:
        yield f"at most {given.memlock.text} of locked memory"


def _attributes(queue: QpSpec) -> Iterator[str]:
    """Yields what a queue pair has and others do not have."""
    for what, yes in (
        ("sq_sig_all", queue.sq_sig_all),
        ("with a completion channel", queue.notifies),
        ("with an extended completion queue", queue.by_readers),
        ("with the completion queue of its peer", queue.one_queue),
        (queue.extended, queue.extended),
        (f"without {RIGHTS}", queue.access == 0),
        (f"peer {queue.wire}", bool(queue.wire)),
        (f"ip {queue.ip}", queue.ip != QpSpec.ip),
    ):
        if yes:
            yield what
    if queue.access:
        flags = ENUMS["ibv_access_flags"]
        names = [name for name in flags.short_names if queue.access & flags.value_of(name)]
        yield f"{RIGHTS} {'|'.join(names) or hex(queue.access)}"
    if queue.path_mtu:
        yield f"mtu {mtu_bytes(queue.path_mtu)}"
    for number in NUMBERS.split():
        value = getattr(queue, number)
        if value != getattr(QpSpec, number):
            yield f"{number} {value}"


def _window(spec: WindowSpec) -> str:
    text = f"window of type {spec.type}, in {spec.pd}"
    if spec.bound is None:
        return text
    if spec.type == 1:
        call = "ibv_bind_mw"
    else:
        call = "post_bind_mw"
    bind = Step(
        call,
        {name: value for name, value in spec.bound.items() if name not in _OWN},
        _DONE,
    )
    return f"{text}, bound by {bind}"
