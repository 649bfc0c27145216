"""Writes the verbs as statements of C: the call, and the check of its result."""

from collections.abc import Callable

from conformance.bench.doors import RegMrEx
from conformance.judging.faults import documented
from conformance.model.case import Argument, Arguments, SgeSpec, Step
from conformance.model.quantity import Quantity
from conformance.model.vocabulary import CALLS, NULL
from conformance.verbs import ENUMS, VERBS, Convention, Verb
from reports.reproducers import expressions
from reports.reproducers.expressions import identifier
from reports.reproducers.writer import Inexpressible, Writer

_CHANGES = ENUMS["ibv_rereg_mr_flags"]
_INVENTED_HANDLE = "0xfffffff0"  # a handle that the kernel does not assign


def registration(writer: Writer, call: str, arguments: Arguments, raw: bool) -> str:
    """Returns the C expression for a registration. Raises Inexpressible."""
    if call == "ibv_reg_mr_ex" or writer.case.entry == RegMrEx.name:
        return _extended(writer, call, arguments, raw)
    if not raw:
        return f"{call}({', '.join(_operands(writer, call, arguments))})"
    if "fd" in arguments:
        raise Inexpressible("it registers a dma-buf with the kernel's command")
    writer.use("uverbs_reg_mr")
    addr = writer.number(arguments["addr"])
    if "hca_va" in arguments:
        iova = writer.number(arguments["hca_va"])
    else:
        iova = addr
    length, access = writer.number(arguments["length"]), writer.access(arguments["access"])
    return f"uverbs_reg_mr({identifier(str(arguments['pd']))}, {addr}, {length}, {iova}, {access})"


# The field of struct ibv_mr_init_attr for an argument of an older verb, and the bit that selects the field.
_FIELDS = {
    "addr": ("addr", "ADDR"),
    "hca_va": ("iova", "IOVA"),
    "iova": ("iova", "IOVA"),
    "fd": ("fd", "FD"),
}
_FIELDS |= {"offset": ("fd_offset", "FD_OFFSET"), "fd_offset": ("fd_offset", "FD_OFFSET")}


def _extended(writer: Writer, call: str, arguments: Arguments, raw: bool) -> str:
    """Writes the attributes of ibv_reg_mr_ex, which may replace an older verb (bench/doors.py). Returns the C call."""
    if raw:
        raise Inexpressible("it issues the kernel's command of ibv_reg_mr_ex")
    if arguments.get("buf", NULL) != NULL or arguments.get("dmah", "NULL") != "NULL":
        raise Inexpressible("it needs a buffer or a dma handle")
    selected = [bit for key, (_, bit) in _FIELDS.items() if key in arguments]
    mask = " | ".join(f"IBV_REG_MR_MASK_{bit}" for bit in dict.fromkeys(selected))
    if "comp_mask" in arguments:
        mask = writer.access(arguments["comp_mask"], "ibv_mr_init_attr_mask")
    fields = [
        f".{_FIELDS[key][0]} = {_operand_of(writer, call, key, arguments)}"
        for key in _FIELDS
        if key in arguments
    ]
    length, access = writer.number(arguments["length"]), writer.access(arguments["access"])
    name = f"attr{writer.next_number('attr') or ''}"
    text = ", ".join(
        [f".length = {length}", f".access = {access}", f".comp_mask = {mask}", *fields],
    )
    writer.say(f"struct ibv_mr_init_attr {name} = {{ {text} }};")
    return f"ibv_reg_mr_ex({identifier(str(arguments['pd']))}, &{name})"


def is_plain(verb: Verb) -> bool:
    """Whether a verb returns 0 or an errno, destroys no object, and has no argument of type struct ibv_buf."""
    has_no_buffer = all(parameter.ctype != "struct ibv_buf *" for parameter in verb.parameters)
    return has_no_buffer and verb.convention is Convention.ZERO_OR_ERRNO and not verb.destroys


def _operands(writer: Writer, call: str, arguments: Arguments) -> list[str]:
    return [
        _operand_of(writer, call, parameter.name, arguments) for parameter in VERBS[call].parameters
    ]


def _operand_of(writer: Writer, call: str, key: str, arguments: Arguments) -> str:
    operand, spec = arguments[key], CALLS[call][key]
    if spec.of == "dmabuf":
        return _descriptor(writer, str(operand))
    if spec.kind == "object":
        if operand == NULL:
            return "NULL"
        return identifier(str(operand))
    if spec.kind == "flags":
        return writer.access(operand, spec.of)
    if spec.kind == "value":
        return expressions.value(operand, spec.of)
    if key == "addr":
        return writer.pointer(operand)
    return writer.number(operand)


def _descriptor(writer: Writer, fd: str) -> str:
    if fd not in writer.case.given.dmabufs and fd != "minus_one":
        raise Inexpressible("it needs a descriptor that is not of a dma-buf")
    if fd == "minus_one":
        return "-1"
    return f"{identifier(fd)}_fd"


def required(step: Step, names: tuple[str, ...] = ()) -> tuple[str, str]:
    """Returns a C condition on `error` (0 is success), and the requirement in words that follow "should". `names` are
    the expected codes of a refusal, by default the expected values of errno."""
    names = names or step.then.errno or documented(step)
    if step.then.outcome == "open":
        return "1", "succeed or fail"
    if step.then.outcome == "success":
        return "!error", "succeed"
    if names and "any" not in names:
        return " || ".join(f"error == {name}" for name in names), f"fail with {' or '.join(names)}"
    return "error != 0", "fail"


def _make(writer: Writer, step: Step, kind: str, call: Callable[[], str]) -> str:
    """Writes the call that creates the object `step.name`. Returns the object's name in C."""
    variable = identifier(step.name)
    if step.name in writer.made:
        raise Inexpressible("it creates several objects with the same name")
    writer.made.add(step.name)
    writer.say("errno = 0;")
    writer.say(f"struct {kind} *{variable} = {call()};")
    writer.assign("error", f"{variable} ? 0 : errno ? errno : -1")
    return variable


def register(writer: Writer, step: Step) -> None:
    variable = _make(
        writer,
        step,
        "ibv_mr",
        lambda: registration(writer, step.call, step.arguments, writer.raw),
    )
    writer.names.region(step.name, f"{variable}->")
    condition, should = required(step)
    if step.then.mr == "as_asked":
        arguments = step.arguments
        if "addr" in arguments:
            addr = writer.pointer(arguments["addr"])
        else:
            addr = ""
        addr = addr or f"(void *){_operand(writer.number(arguments['offset']))}"
        length, domain = writer.number(arguments["length"]), identifier(str(arguments["pd"]))
        condition = (
            f"{variable} && {variable}->addr == {_operand(addr)} && {variable}->length == {_operand(length)} && {variable}->pd == {domain}"
            f" && {variable}->context == context && ({variable}->lkey || {variable}->rkey || {variable}->handle)"
        )
        should = "register the requested range"
    _check_return(writer, step, condition, should)


def _operand(text: str) -> str:
    if " " in text and not text.startswith("("):
        return f"({text})"
    return text


def _check_return(writer: Writer, step: Step, kept: str, should: str) -> None:
    writer.check(kept, f"{step.title} should {should}, returned %d, %s", "error", "strerror(error)")


def copied(writer: Writer, name: str) -> None:
    """Writes the statement that copies a region's struct ibv_mr before the region is deregistered. Later steps use the
    copy."""
    variable = identifier(name)
    writer.keep(f"{variable}_was", f"*{variable}", "struct ibv_mr")
    writer.names.region(name, f"{variable}_was.")


def dereg(writer: Writer, step: Step) -> None:
    name = str(step.arguments["mr"])
    variable, raw = identifier(name), writer.raw
    which = step.arguments["handle"]
    if which == "stale":
        raise Inexpressible("it needs the handle of a region that is gone")
    copied(writer, name)
    if which == "invented":
        writer.assign("handle", f"{variable}->handle", "uint32_t")
        writer.say(f"{variable}->handle = {_INVENTED_HANDLE};")
    if raw:
        writer.use("uverbs_dereg_mr")
    else:
        writer.say("errno = 0;")
    writer.assign("error", f"{'uverbs' if raw else 'ibv'}_dereg_mr({variable})")
    condition, should = required(step)
    if step.then.outcome == "refused" and not raw:
        condition = f"({condition}) && (!errno || errno == error)"
    _check_return(writer, step, condition, should)
    if which == "invented":
        writer.say_if("error", f"{variable}->handle = handle;")


def rereg(writer: Writer, step: Step) -> None:
    name, domain = str(step.arguments["mr"]), str(step.arguments["pd"])
    variable = identifier(name)
    flags = writer.access(step.arguments["flags"], "ibv_rereg_mr_flags")
    addr, length = writer.pointer(step.arguments["addr"]), writer.number(step.arguments["length"])
    access = writer.access(step.arguments["access"])
    if domain == NULL:
        pd = "NULL"
    else:
        pd = identifier(domain)
    writer.keep(f"{variable}_old", f"*{variable}", "struct ibv_mr")
    verb = "ibv_rereg_mr"
    if writer.raw:
        writer.use("uverbs_rereg_mr")
        verb = "uverbs_rereg_mr"
    writer.assign("error", f"{verb}({variable}, {flags}, {pd}, {addr}, {length}, {access})")
    writer.names.old_keys(name, f"{variable}_old.")
    codes = step.then.code or ENUMS["ibv_rereg_mr_err_code"].short_names
    condition, should = required(
        step,
        () if writer.raw else tuple(f"IBV_REREG_MR_{code}" for code in codes),
    )
    if step.then.outcome == "refused" and not step.then.code and not writer.raw:
        should = "fail with one of its codes"
    if step.then.mr == "as_asked":
        mask = step.arguments["flags"].mask  # type: ignore[union-attr]
        moved = mask & _CHANGES.value_of("CHANGE_TRANSLATION")
        if moved:
            new = (addr, length)
        else:
            new = (f"{variable}_old.addr", f"{variable}_old.length")
        if mask & _CHANGES.value_of("CHANGE_PD") and pd != "NULL":
            of = pd
        else:
            of = f"{variable}_old.pd"
        condition = (
            f"!error && {variable}->addr == {_operand(new[0])} && {variable}->length == {_operand(new[1])} && {variable}->pd == {of}"
            f" && {variable}->context == context"
        )
        should = "change the requested attributes"
    _check_return(writer, step, condition, should)


def advise(writer: Writer, step: Step) -> None:
    domain = identifier(str(step.arguments["pd"]))
    texts = element_texts(writer, step.arguments["sg_list"])
    count = len(texts)
    name = f"list{writer.next_number('list') or ''}"
    if texts:
        writer.say(f"struct ibv_sge {name}[] = {{ {', '.join(texts)} }};")
    else:
        name = "NULL"
    advice = expressions.value(step.arguments["advice"], "ibv_advise_mr_advice")
    mask = writer.access(step.arguments["flags"], "ibv_advise_mr_flag")
    verb = "ibv_advise_mr"
    if writer.raw:
        verb = "uverbs_advise_mr"
        writer.use(verb)
    if step.arguments["pd_handle"] == "invented":
        writer.assign("handle", f"{domain}->handle", "uint32_t")
        writer.say(f"{domain}->handle = {_INVENTED_HANDLE};")
    writer.assign("error", f"{verb}({domain}, {advice}, {mask}, {name}, {count})")
    if step.arguments["pd_handle"] == "invented":
        writer.say(f"{domain}->handle = handle;")
    _check_return(writer, step, *required(step))


def plain(writer: Writer, step: Step) -> None:
    """Writes the call of a verb for which `is_plain` is true."""
    if writer.raw:
        raise Inexpressible(f"it issues the kernel's command of {step.call}")
    writer.assign(
        "error",
        f"{step.call}({', '.join(_operands(writer, step.call, step.arguments))})",
    )
    _check_return(writer, step, *required(step))


def element_texts(writer: Writer, elements: Argument) -> list[str]:
    """Returns the initializers of struct ibv_sge of a list of elements."""
    assert isinstance(elements, tuple)
    return [_sge(writer, element) for element in elements if isinstance(element, SgeSpec)]


def _sge(writer: Writer, element: SgeSpec) -> str:
    parts: list[Quantity] = [element.addr, element.length, element.lkey]
    return f"{{ {', '.join(writer.number(part) for part in parts)} }}"


def alloc_mw(writer: Writer, step: Step) -> None:
    domain, kind = (
        identifier(str(step.arguments["pd"])),
        expressions.value(step.arguments["type"], "ibv_mw_type"),
    )
    variable = _make(writer, step, "ibv_mw", lambda: f"ibv_alloc_mw({domain}, {kind})")
    writer.names.value(step.name, "rkey", f"{variable}->rkey")
    _check_return(writer, step, *required(step))


def dealloc_mw(writer: Writer, step: Step) -> None:
    name = str(step.arguments["mw"])
    variable = identifier(name)
    writer.keep(f"{variable}_key", f"{variable}->rkey", "uint32_t")
    writer.names.value(name, "rkey", f"{variable}_key")
    writer.assign("error", f"ibv_dealloc_mw({variable})")
    _check_return(writer, step, *required(step))


def bind_call(writer: Writer, step: Step) -> str:
    """Writes the request of a bind. Returns the expression that posts the request; its value is 0 or an errno."""
    arguments = step.arguments
    window = identifier(str(arguments["mw"]))
    if arguments["mr"] == NULL:
        region = "NULL"
    else:
        region = identifier(str(arguments["mr"]))
    addr, length = writer.number(arguments["addr"]), writer.number(arguments["length"])
    info = f"{{ {region}, {addr}, {length}, {writer.access(arguments['access'])} }}"
    queue, mask = (
        f"{identifier(str(arguments['qp']))}[0]",
        writer.access(arguments["send_flags"], "ibv_send_flags"),
    )
    name = f"bind{writer.next_number('bind') or ''}"
    if arguments.get("mr_lkey"):
        writer.say(f"{region}->lkey = {writer.number(arguments['mr_lkey'])}; /* for the bind */")
    if arguments.get("mw_rkey"):
        writer.say(f"{window}->rkey = {writer.number(arguments['mw_rkey'])}; /* for the bind */")
    if step.call == "ibv_bind_mw":
        writer.say(f"struct ibv_mw_bind {name} = {{ 1, {mask}, {info} }};")
        return f"ibv_bind_mw({queue}, {window}, &{name})"
    if arguments.get("rkey"):
        key = writer.number(arguments["rkey"])
    else:
        key = f"ibv_inc_rkey({window}->rkey)"
    writer.say(
        f"struct ibv_send_wr *bad_{name}, {name} = {{ .opcode = IBV_WR_BIND_MW,"
        f" .wr_id = 1, .send_flags = {mask}, .bind_mw = {{ {window}, {key}, {info} }} }};",
    )
    writer.posted[name] = window
    return f"ibv_post_send({queue}, &{name}, &bad_{name})"


def bound(writer: Writer, posted: str = "") -> None:
    """Writes the statement that stores the new key in struct ibv_mw after a posted bind. `posted` is the condition of
    the statement; empty without a condition."""
    if writer.posted:
        name, window = writer.posted.popitem()
        text = f"{window}->rkey = {name}.bind_mw.rkey;"
        writer.say_if(posted, text)
