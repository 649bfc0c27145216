"""Implements the calls of the table language that change the memory of a region: they discard, swap out or move pages,
or share pages with a child by fork()."""

import ctypes
from collections.abc import Callable

from conformance.bench.calls import Return, errno_name
from conformance.bench.memory_areas import BEFORE, Part
from conformance.errors import SetupRefused
from conformance.execution.context import CaseContext, compared, result_of, told
from conformance.kernel import paging
from conformance.kernel.child import fork as forked
from conformance.model.case import Step
from conformance.model.observation import Observation

_WRITTEN = 0xEE  # the byte that a child writes into its copy
_READY, _UNHARMED, _HARMED = b"ready", b"unharmed", b"harmed"


def fill(context: CaseContext, step: Step) -> Observation:
    memory = context.memory_of(step)
    ctypes.memset(memory.addr, BEFORE, memory.size)
    return told()


def unmap(context: CaseContext, step: Step) -> Observation:
    context.memory_of(step).close()
    return told()


def protect(context: CaseContext, step: Step) -> Observation:
    memory = context.memory_of(step)
    paging.protect(memory.addr, memory.size)
    return told()


def move(context: CaseContext, step: Step) -> Observation:
    """Moves the mapping to another address (mremap). In later steps, the memory's name refers to the new address."""
    name = str(step.arguments["memory"])
    memory = context.memory[name]
    destination = context.bench.allocate("unmapped", memory.size)
    context.cleanup.callback(destination.close)
    paging.move(memory.addr, memory.size, destination.addr)
    context.memory[name] = destination
    return told()


def move_buffer(context: CaseContext, step: Step) -> Observation:
    """Moves a dma-buf to other pages. A buffer that an importer has pinned does not move."""
    return _exporter(context, step, "move")


def revoke_buffer(context: CaseContext, step: Step) -> Observation:
    return _exporter(context, step, "revoke")


def left_pages(context: CaseContext, step: Step) -> Observation:
    """Examines the pages that a dma-buf has left. `returned` is 0 if no byte of them has changed."""
    dmabuf = context.dmabufs[str(step.arguments["buffer_fd"])]
    changed = context.bench.exporter("changed", dmabuf)
    return told(f"{changed} bytes of pages that the buffer has left" if changed else "0", "device")


def detached(context: CaseContext, step: Step) -> Observation:
    """Asks the exporter who uses a dma-buf. `returned` is 0 if no importer is attached, and none has pinned it."""
    dmabuf = context.dmabufs[str(step.arguments["buffer_fd"])]
    counts = {name: context.bench.exporter(name, dmabuf) for name in ("attachments", "pins")}
    users = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return told(users or "0", "kernel")


def _exporter(context: CaseContext, step: Step, request: str) -> Observation:
    dmabuf = context.dmabufs[str(step.arguments["buffer_fd"])]
    try:
        context.bench.exporter(request, dmabuf)
    except OSError as error:
        return {**told("-1", "kernel"), "errno": errno_name(error.errno or 0)}
    return told("0", "kernel")


def discard(context: CaseContext, step: Step) -> Observation:
    """Removes the pages of the memory, or of a part of the memory, by the method `how` (memory_kinds.DISCARDS). Raises
    SetupRefused if the pages cannot be swapped out."""
    memory, how = context.memory_of(step), str(step.arguments["how"])
    if step.arguments["addr"]:
        memory = Part(*context.numbers(step.arguments, "addr", "length"))
    if how != "PAGEOUT":
        paging.advise(memory.addr, memory.size, how)
    elif not context.bench.page_out(memory):
        raise SetupRefused("paging out", "")
    return told()


def resident(context: CaseContext, step: Step) -> Observation:
    """Checks whether pages are in the state `pages` (memory_kinds.PAGES). `returned` is 0 if all pages are in this state,
    else `none` or `some`."""
    memory = context.memory_of(step)
    if step.arguments["pages"] == "own":
        counted = paging.own_pages
    else:
        counted = paging.in_core
    count, pages = counted(memory.addr, memory.size)
    if count == pages:
        returned = "0"
    elif count == 0:
        returned = "none"
    else:
        returned = "some"
    return {**told(returned, "kernel"), "pages": [count, pages]}


def inherited(context: CaseContext, step: Step) -> Observation:
    """Counts the pages of a range that a forked child inherits. `returned` is `none` for no page, else 0."""
    range_ = context.numbers(step.arguments, "addr", "length")
    count, pages = paging.inherited(*range_)
    seen = told("none" if count == 0 else "0") | {"pages": [count, pages]}
    if count not in (0, pages):
        seen["differences"] = [f"a child gets {count} of {pages} pages"]
    elif (mappings_expected := step.arguments["mappings"]) and (
        mappings := paging.mappings(*range_)
    ) != context.number(mappings_expected):
        seen["differences"] = [f"the range is in {mappings} mappings"]
    return seen


def ibv_fork_init(context: CaseContext, step: Step) -> Observation:
    """Enables fork protection in a new process, and compares the results in that process with the arguments."""
    setting, kernel = str(step.arguments["setting"]), str(step.arguments["kernel"])
    code, seen = context.bench.fork_setting(setting, kernel)
    expected = {key: str(step.arguments[key]) for key in seen if step.arguments[key] != "either"}
    different = [
        f"{key}: {seen[key]} instead of {value}"
        for key, value in expected.items()
        if seen[key] != value
    ]
    return compared(result_of(Return(code, 0, layer="libibverbs")), different)


def fork(context: CaseContext, step: Step) -> Observation:
    """Forks a child, which shares the pages of the memory until a process writes to them. If `child` is `writes`, the
    child first fills its whole copy. At `join`, it reports whether the copy has changed since the fork or this fill."""
    name, writes = str(step.arguments["memory"]), step.arguments["child"] == "writes"
    memory = context.memory[name]
    if writes:
        contents = bytes([_WRITTEN]) * memory.size
    else:
        contents = ctypes.string_at(memory.addr, memory.size)

    def hold(report: Callable[[bytes], object], wait: Callable[[], object]) -> None:
        if writes:
            ctypes.memset(memory.addr, _WRITTEN, memory.size)
            report(_READY)
        wait()
        report(_UNHARMED if ctypes.string_at(memory.addr, memory.size) == contents else _HARMED)

    context.children[name] = child = forked(hold)
    context.cleanup.callback(_end, context, name)
    if writes:
        child.report()
    return told()


def join(context: CaseContext, step: Step) -> Observation:
    """Terminates the child. `returned` is 0 if the child's copy of the memory is unchanged, else `differs`."""
    return told("0" if _end(context, str(step.arguments["memory"])) == _UNHARMED else "differs")


def _end(context: CaseContext, name: str) -> bytes:
    """Terminates the child and returns its report. The report is empty if the child was already terminated."""
    if name not in context.children:
        return b""
    child = context.children.pop(name)
    child.wake()
    reported = child.report()
    child.end()
    return reported
