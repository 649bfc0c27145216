"""Writes the set-up of a case as statements of C: the protection domains, memory, queue pairs, regions and windows that
the steps of the case need. Many rows of a table share one set-up, and a row may need only some of its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from conformance.model.case import (
    SMALLEST_MTU,
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
    mtu_bytes,
)
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import QP_RIGHTS, STREAM
from conformance.verbs import ENUMS, VERBS
from reports.reproducers.calls import bind_call, bound, copied, registration
from reports.reproducers.expressions import identifier
from reports.reproducers.writer import Inexpressible, Writer


def without_idle(case: Case) -> Case:
    """Returns the case with only the objects that its steps need, directly or through other objects."""
    set_up = case.given
    uses = {name: set(names_in(mr.arguments)) for name, mr in set_up.mrs.items()}
    uses |= {
        name: {window.pd, *names_in(window.bound or {})} for name, window in set_up.windows.items()
    }
    uses |= {name: {qp.pd} for name, qp in set_up.qps.items()}
    uses |= {
        name: set(_names(memory.size))
        for name, memory in (*set_up.memory.items(), *set_up.dmabufs.items())
    }
    needed = {name for step in case.steps for name in names_in(step.arguments)}
    while more := {other for name in needed for other in uses.get(name, ())} - needed:
        needed |= more
    sections: dict[str, Any] = {}
    for kind in _MAKERS:
        objects = getattr(set_up, kind)
        sections[kind] = {name: spec for name, spec in objects.items() if name in needed}
    pds = tuple(name for name in set_up.pds if name in needed)
    return replace(case, given=replace(set_up, pds=pds, **sections))


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
        for argument_part in argument:
            if isinstance(argument_part, SgeSpec):
                yield from (
                    name
                    for part in (argument_part.addr, argument_part.length, argument_part.lkey)
                    for name in _names(part)
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
    set_up = writer.case.given
    if set_up.memlock is not None:
        raise Inexpressible("it limits locked memory, which has no effect on root")
    for name in set_up.pds:
        writer.say(f"struct ibv_pd *{identifier(name)} = ibv_alloc_pd(context);")
        writer.say(f"SET_UP({identifier(name)});")
    for kind, make in _MAKERS.items():
        for name, spec in getattr(set_up, kind).items():
            make(writer, name, spec)


def _memory(writer: Writer, name: str, spec: MemorySpec) -> None:
    variable = identifier(name)
    size = writer.number(spec.size)
    if " " in size:
        writer.say(f"size_t {variable}_size = {size};")
        size = f"{variable}_size"
    writer.headers.add("sys/mman.h")
    if spec.kind != "huge" and spec.kind not in _KINDS:
        raise Inexpressible(f"it needs {spec.kind} memory")
    writer.headers |= {"sys/syscall.h", "unistd.h"} if spec.kind == "secret" else set()
    writer.names.memory(name, size)
    if spec.kind != "huge" and beyond(writer):
        writer.use("memory")
        writer.say(f"unsigned char *{variable} = memory({size});")
    else:
        how = {"anonymous": "MAP_POPULATE", "huge": "MAP_HUGETLB"}.get(spec.kind, "MAP_NORESERVE")
        flags = f"MAP_PRIVATE | MAP_ANONYMOUS | {how}"
        writer.say(
            f"unsigned char *{variable} = mmap(NULL, {size}, PROT_READ | PROT_WRITE, {flags}, -1, 0);",
        )
        writer.say(f"SET_UP({variable} != MAP_FAILED);")
        if spec.kind == "anonymous":
            return
    for text in _KINDS.get(spec.kind, ()):
        writer.say(text.format(variable, size))


def beyond(writer: Writer) -> bool:
    """Whether a call uses a range outside of the case's memory. The mappings around the memory must then be defined."""
    case = writer.case
    steps = [step for step in case.steps if step.call in VERBS]
    for arguments in (
        *(mr.arguments for mr in case.given.mrs.values()),
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
    variable = identifier(name)
    size = writer.number(spec.size)
    writer.use("udmabuf")
    writer.say(f"size_t {variable}_size = {size};")
    writer.say(f"int {variable}_fd = udmabuf({variable}_size);")
    writer.say(
        f"unsigned char *{variable} = mmap(NULL, {variable}_size, PROT_READ | PROT_WRITE, MAP_SHARED, {variable}_fd, 0);",
    )
    writer.say(f"SET_UP({variable} != MAP_FAILED);")
    writer.names.memory(name, f"{variable}_size")


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
    remote_rights = mask & _RIGHTS.mask_of("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
    return " | ".join(f"IBV_ACCESS_{name}" for name in _RIGHTS.names_of(remote_rights)) or "0"


def _all_rights(access: int | None) -> str:
    """Returns the rights of a queue pair whose peer sends packets itself."""
    if access is None:
        access = _RIGHTS.mask_of("REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC")
    return " | ".join(f"IBV_ACCESS_{name}" for name in _RIGHTS.names_of(access)) or "0"


def _queue_pairs(writer: Writer, name: str, spec: QpSpec) -> None:
    type_of(writer, spec.kind)
    if spec.wire:
        arguments = [identifier(spec.pd), f"IBV_QPT_{spec.kind}", _all_rights(spec.access)]
        arguments.append(str(spec.max_dest_rd_atomic))
        arguments.append(f"IBV_MTU_{mtu_bytes(spec.path_mtu or SMALLEST_MTU)}")
        arguments += [f"{psn:#x}" for psn in spec.first_psns]
        maker = "wire"
        if spec.wire == STREAM:
            maker, arguments = "stream", [arguments[0], arguments[2]]
        writer.say(f"struct ibv_qp **{identifier(name)} = {maker}({', '.join(arguments)});")
        return
    if spec.extended or spec.inline:
        raise Inexpressible("it needs an extended queue pair")
    variable, domain = identifier(name), identifier(spec.pd)
    if "parts" not in writer.features:
        writer.say(
            f"struct ibv_qp **{variable} = {connected(writer, spec.kind, domain, rights(writer, spec.access))};",
        )
        return
    writer.use("parts", "move")
    writer.say(f"struct ibv_qp **{variable} = parts({domain}, {int(spec.sq_sig_all)});")
    if spec.state == "ERR":
        last = "RTS"
    else:
        last = spec.state
    if last != "RESET":
        writer.say(
            f"move({variable}, IBV_QPS_RESET, IBV_QPS_{last}, {rights(writer, spec.access)});"
        )
    if spec.state == "ERR":
        writer.say(f"struct ibv_qp_attr {variable}_state = {{ .qp_state = IBV_QPS_ERR }};")
        writer.say(f"SET_UP(!ibv_modify_qp({variable}[0], &{variable}_state, IBV_QP_STATE));")


def _region(writer: Writer, name: str, spec: MrSpec) -> None:
    variable = identifier(name)
    # For a case at uverbs, the library can register the set-up's regions, except with ibv_reg_mr_ex.
    raw = writer.raw and spec.call == "ibv_reg_mr_ex"
    writer.say(
        f"struct ibv_mr *{variable} = {registration(writer, spec.call, spec.arguments, raw)};"
    )
    writer.say(f"SET_UP({variable});")
    writer.names.region(name, f"{variable}->")
    if spec.gone:
        copied(writer, name)
        writer.say(f"SET_UP(!ibv_dereg_mr({variable}));")


def _window(writer: Writer, name: str, spec: WindowSpec) -> None:
    variable = identifier(name)
    writer.say(
        f"struct ibv_mw *{variable} = ibv_alloc_mw({identifier(spec.pd)}, IBV_MW_TYPE_{spec.type});",
    )
    writer.say(f"SET_UP({variable});")
    writer.names.value(name, "rkey", f"{variable}->rkey")
    if spec.bound is None:
        return
    if spec.type == 1:
        call = "ibv_bind_mw"
    else:
        call = "post_bind_mw"
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
