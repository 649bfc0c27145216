"""Describes the set-up of a case as text: the objects that the case creates, and the calls before the judged call."""

from collections.abc import Iterator

from conformance.model.case import Case, Expectation, Given, Step, WindowSpec
from conformance.model.record import SetUp

_DONE = Expectation("success")
# Arguments of a bind that the text of a set-up omits, because they are the same for all windows.
_OWN = ("mw", "send_flags")


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
        more = "".join(
            f", {what}"
            for what, yes in (
                ("sq_sig_all", queue.sq_sig_all),
                ("with a completion channel", queue.notifies),
                ("with an extended completion queue", queue.by_readers),
                ("with the completion queue of its peer", queue.one_queue),
                (queue.extended, queue.extended),
                ("without rights", queue.access == 0),
            )
            if yes
        )
        yield f"{name}: queue pair, {queue.kind}, in {queue.pd}, state {queue.state}{more}"
    yield from (f"{name}: {_window(window)}" for name, window in given.windows.items())
    if given.memlock:
        yield f"at most {given.memlock.text} of locked memory"


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
