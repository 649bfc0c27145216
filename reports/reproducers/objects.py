"""Writes the set-up of a case as statements of C: the protection domains, memory, queue pairs, regions and windows that
the steps of the case need. Many rows of a table share one set-up, and a row may need only some of its objects."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.model.case import (
    Argument,
    Arguments,
    Case,
    Flags,
    MemorySpec,
    MrSpec,
    QpSpec,
    SgeSpec,
    Step,
    WindowSpec,
)
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import QP_RIGHTS
from conformance.verbs import ENUMS, VERBS
from reports.reproducers.calls import bind_call, bound, copied, registration
from reports.reproducers.expressions import identifier
from reports.reproducers.writer import Inexpressible, Writer


def without_idle(case: Case) -> Case:
    """Returns the case with only the objects that its steps need, directly or through other objects."""
    given = case.given
    uses = {name: set(names_in(mr.arguments)) for name, mr in given.mrs.items()}
    uses |= {
        name: {window.pd, *names_in(window.bound or {})} for name, window in given.windows.items()
    }
    uses |= {name: {qp.pd} for name, qp in given.qps.items()}
    uses |= {
        name: set(_names(memory.size))
        for name, memory in (*given.memory.items(), *given.dmabufs.items())
    }
    needed = {
        name
        for step in (*case.before, case.when, *case.afterwards)
        for name in names_in(step.arguments)
    }
    while more := {other for name in needed for other in uses.get(name, ())} - needed:
        needed |= more
    kept: dict[str, Any] = {
        kind: {name: each for name, each in getattr(given, kind).items() if name in needed}
        for kind in _MAKERS
    }
    pds = tuple(name for name in given.pds if name in needed)
    return replace(case, given=replace(given, pds=pds, **kept))


def names_in(arguments: Arguments) -> Iterator[str]:
    """Yields the names of objects in arguments: single words, and the names in quantities."""
    for argument in arguments.values():
        yield from _names(argument)


def _names(argument: Argument) -> Iterator[str]:
    if isinstance(argument, str):
        yield argument
    elif isinstance(argument, Quantity):
        yield from (name for name, _ in argument.names)
    elif isinstance(argument, tuple):
        for each in argument:
            if isinstance(each, SgeSpec):
                yield from (
                    name for part in (each.addr, each.length, each.lkey) for name in _names(part)
                )


# For each kind of memory, the statements that prepare new pages. `{0}` is the memory, and `{1}` its size in bytes.
_KINDS = {
    "anonymous": ("memset({0}, 0, {1});",),
    "read_only": ("memset({0}, 0, {1});", "SET_UP(!mprotect({0}, {1}, PROT_READ));"),
    "writable_start": (
        "memset({0}, 0, {1});",
        "SET_UP(!mprotect({0} + PAGE, {1} - PAGE, PROT_READ));",
    ),
    "no_access": ("memset({0}, 0, {1});", "SET_UP(!mprotect({0}, {1}, PROT_NONE));"),
    "unmapped": ("munmap({0}, {1});",),
    "untouched": (),
    "sparse": (),
    "hole": ("munmap({0} + PAGE, PAGE);",),
    "secret": (
        "int {0}_fd = syscall(SYS_memfd_secret, 0);",
        "SET_UP({0}_fd >= 0 && !ftruncate({0}_fd, {1}));",
        "SET_UP(mmap({0}, {1}, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, {0}_fd, 0) == {0});",
    ),
    "shared": (
        "SET_UP(mmap({0}, {1}, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == {0});",
    ),
}
_RIGHTS = ENUMS["ibv_access_flags"]
_ALL_RIGHTS = _RIGHTS.mask_of(*QP_RIGHTS.split())
_STATES = ("RESET", "INIT", "RTR", "RTS")
_TYPES = {"RC": "rc", "UC": "uc"}


def set_up(writer: Writer) -> None:
    """Writes the statements that create the objects before the judged call. Raises Inexpressible."""
    given = writer.case.given
    if given.memlock is not None:
        raise Inexpressible("it limits locked memory, which has no effect on root")
    for name in given.pds:
        writer.say(f"struct ibv_pd *{identifier(name)} = ibv_alloc_pd(context);")
        writer.say(f"SET_UP({identifier(name)});")
    for kind, make in _MAKERS.items():
        for name, spec in getattr(given, kind).items():
            make(writer, name, spec)


def _memory(writer: Writer, name: str, spec: MemorySpec) -> None:
    own = identifier(name)
    size = writer.number(spec.size)
    if " " in size:
        writer.say(f"size_t {own}_size = {size};")
        size = f"{own}_size"
    writer.headers.add("sys/mman.h")
    if spec.kind != "huge" and spec.kind not in _KINDS:
        raise Inexpressible(f"it needs {spec.kind} memory")
    writer.headers |= {"sys/syscall.h", "unistd.h"} if spec.kind == "secret" else set()
    writer.names.memory(name, size)
    if spec.kind != "huge" and beyond(writer):
        writer.use("memory")
        writer.say(f"unsigned char *{own} = memory({size});")
    else:
        how = {"anonymous": "MAP_POPULATE", "huge": "MAP_HUGETLB"}.get(spec.kind, "MAP_NORESERVE")
        flags = f"MAP_PRIVATE | MAP_ANONYMOUS | {how}"
        writer.say(
            f"unsigned char *{own} = mmap(NULL, {size}, PROT_READ | PROT_WRITE, {flags}, -1, 0);"
        )
        writer.say(f"SET_UP({own} != MAP_FAILED);")
        if spec.kind == "anonymous":
            return
    for text in _KINDS.get(spec.kind, ()):
        writer.say(text.format(own, size))


def beyond(writer: Writer) -> bool:
    """Whether a call uses a range outside of the case's memory. The mappings around the memory must then be defined."""
    case = writer.case
    steps = [step for step in (*case.before, case.when, *case.afterwards) if step.call in VERBS]
    for arguments in (
        *(each.arguments for each in case.given.mrs.values()),
        *(step.arguments for step in steps),
    ):
        elements = arguments.get("sg_list")
        ranges = [(arguments.get("addr"), arguments.get("length"))]
        if isinstance(elements, tuple):
            sges = [element for element in elements if isinstance(element, SgeSpec)]
            ranges = [(sge.addr, sge.length) for sge in sges]
        for addr, length in ranges:
            if (
                isinstance(addr, Quantity)
                and isinstance(length, Quantity)
                and not writer.holds(addr, length)
            ):
                return True
    return False


def _dmabuf(writer: Writer, name: str, spec: MemorySpec) -> None:
    if spec.kind != "udmabuf":
        raise Inexpressible(f"it needs a dma-buf of {spec.kind}")
    own = identifier(name)
    size = writer.number(spec.size)
    writer.use("udmabuf")
    writer.say(f"size_t {own}_size = {size};")
    writer.say(f"int {own}_fd = udmabuf({own}_size);")
    writer.say(
        f"unsigned char *{own} = mmap(NULL, {own}_size, PROT_READ | PROT_WRITE, MAP_SHARED, {own}_fd, 0);"
    )
    writer.say(f"SET_UP({own} != MAP_FAILED);")
    writer.names.memory(name, f"{own}_size")


def type_of(writer: Writer, kind: str) -> None:
    """Notes that the program has queue pairs of type `kind`. Raises Inexpressible."""
    if kind not in _TYPES:
        raise Inexpressible(f"it needs queue pairs of type {kind}")
    writer.features.add(_TYPES[kind])


def connected(writer: Writer, kind: str, domain: str, access: str) -> str:
    """Returns the expression for a new pair in the state RTS."""
    writer.use("pair")
    return f"pair({domain}, {access}{f', IBV_QPT_{kind}' if 'mixed' in writer.features else ''})"


def rights(writer: Writer, access: Flags | int | None) -> str:
    """Returns the qp_access_flags of a tested queue pair. For all rights (or None), returns the constant REMOTE of the
    program, which has only the rights that the program's operations need."""
    mask = access.mask if isinstance(access, Flags) else access
    if mask is None or mask == _ALL_RIGHTS:
        return "REMOTE"
    known = mask & _RIGHTS.mask_of("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
    return " | ".join(f"IBV_ACCESS_{name}" for name in _RIGHTS.names_of(known)) or "0"


def _queue_pairs(writer: Writer, name: str, spec: QpSpec) -> None:
    type_of(writer, spec.kind)
    if spec.extended or spec.inline:
        raise Inexpressible("it needs an extended queue pair")
    own, domain = identifier(name), identifier(spec.pd)
    if "parts" not in writer.features:
        writer.say(
            f"struct ibv_qp **{own} = {connected(writer, spec.kind, domain, rights(writer, spec.access))};"
        )
        return
    writer.use("parts", "move")
    writer.say(f"struct ibv_qp **{own} = parts({domain}, {int(spec.sq_sig_all)});")
    last = "RTS" if spec.state == "ERR" else spec.state
    if last != "RESET":
        writer.say(f"move({own}, IBV_QPS_RESET, IBV_QPS_{last}, {rights(writer, spec.access)});")
    if spec.state == "ERR":
        writer.say(f"struct ibv_qp_attr {own}_state = {{ .qp_state = IBV_QPS_ERR }};")
        writer.say(f"SET_UP(!ibv_modify_qp({own}[0], &{own}_state, IBV_QP_STATE));")


def _region(writer: Writer, name: str, spec: MrSpec) -> None:
    own = identifier(name)
    # For a case at uverbs, the library can register the set-up's regions, except with ibv_reg_mr_ex.
    raw = writer.raw and spec.call == "ibv_reg_mr_ex"
    writer.say(f"struct ibv_mr *{own} = {registration(writer, spec.call, spec.arguments, raw)};")
    writer.say(f"SET_UP({own});")
    writer.names.region(name, f"{own}->")
    if spec.gone:
        copied(writer, name)
        writer.say(f"SET_UP(!ibv_dereg_mr({own}));")


def _window(writer: Writer, name: str, spec: WindowSpec) -> None:
    own = identifier(name)
    writer.say(
        f"struct ibv_mw *{own} = ibv_alloc_mw({identifier(spec.pd)}, IBV_MW_TYPE_{spec.type});"
    )
    writer.say(f"SET_UP({own});")
    writer.names.value(name, "rkey", f"{own}->rkey")
    if spec.bound is None:
        return
    call = "ibv_bind_mw" if spec.type == 1 else "post_bind_mw"
    queue = f"{identifier(str(spec.bound['qp']))}[0]"
    step = Step(call, spec.bound, writer.case.when.then)
    writer.use("next")
    writer.say(f"SET_UP(!{bind_call(writer, step)});")
    bound(writer)
    writer.say(f"SET_UP(next({queue}->send_cq) == IBV_WC_SUCCESS);")


# For each section of `given`, the function that writes an object, in the order in which the objects are created.
_MAKERS: Mapping[str, Callable[[Writer, str, Any], None]] = {
    "memory": _memory,
    "dmabufs": _dmabuf,
    "qps": _queue_pairs,
    "mrs": _region,
    "windows": _window,
}
