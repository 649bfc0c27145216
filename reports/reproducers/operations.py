"""Writes the steps other than verbs on regions as statements of C: operations with a key, binds, invalidations, and
changes of queue pairs and of memory."""

from collections.abc import Callable, Mapping

from conformance.model.case import Step
from conformance.model.expected_errors import RELIABLE, refusal
from conformance.model.operations import BUILDERS, FLUSHES
from conformance.model.vocabulary import NULL
from conformance.verbs import REGION, VERBS
from reports.reproducers import calls
from reports.reproducers.calls import bind_call, bound, required
from reports.reproducers.expressions import identifier
from reports.reproducers.objects import connected, rights, type_of
from reports.reproducers.writer import Inexpressible, Writer

_EXPECTED = {"success": "1", "refused": "0", "open": "-1"}
# The remote operations. The opcode of an operation is IBV_WR_ and the operation's name.
_OPCODES = (
    "RDMA_WRITE RDMA_WRITE_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP ATOMIC_FETCH_AND_ADD".split()
)
# For each local operation: its opcode, whether the peer posts the request, and the side whose refusal is expected.
_LOCAL = {
    "SEND": ("IBV_WR_SEND", 0, "gather"),
    "WRITE": ("IBV_WR_RDMA_WRITE", 0, "gather"),
    "READ": ("IBV_WR_RDMA_READ", 0, "answer"),
    "RECV": ("IBV_WR_SEND", 1, "receive"),
}
_PLACEMENTS = {
    "FLUSH_GLOBAL": "IBV_FLUSH_GLOBAL",
    "FLUSH_PERSISTENT": "IBV_FLUSH_PERSISTENT",
    "FLUSH_BOTH": "IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT",
}


def _prepare(writer: Writer, step: Step) -> None:
    """Notes the features that operations of the peer and of the owner need. Raises Inexpressible."""
    if str(step.arguments["contents"]) != "made":
        raise Inexpressible(f"it needs memory with the contents {step.arguments['contents']!s}")
    if step.arguments["poster"] in BUILDERS:
        raise Inexpressible("it posts requests by the functions of ibv_wr_post(3)")
    if step.then.outcome == "open" or step.then.because:
        writer.features.add("open")
    if step.then.opcode:
        writer.features.add("wc")
    if str(step.arguments["op"]) not in FLUSHES:
        writer.features.add("traffic")


def _pair(writer: Writer, step: Step) -> str:
    via = str(step.arguments.get("via", NULL))
    if via != NULL:
        return identifier(via)
    type_of(writer, str(step.arguments["qp_type"]))
    domain, access = identifier(str(step.arguments["pd"])), step.arguments.get("qp_access")
    allowed = rights(writer, access)  # type: ignore[arg-type]
    if "parts" not in writer.pieces:
        return connected(writer, str(step.arguments["qp_type"]), domain, allowed)
    name = f"pair{writer.next_number('pair') or ''}_"
    writer.say(f"struct ibv_qp **{name} = parts({domain}, 0);")
    writer.say(f"move({name}, IBV_QPS_RESET, IBV_QPS_RTS, {allowed});")
    return name


def _description(step: Step) -> str:
    position = str(step.arguments["position"])
    at = step.arguments["addr"]
    place = f"{position} of {at.text}" if position != "whole" else f"at {at.text}"  # type: ignore[union-attr]
    return f"{step.arguments['op']} {place}"


def traffic(writer: Writer, step: Step) -> None:
    _prepare(writer, step)
    operation = str(step.arguments["op"])
    if operation in FLUSHES:
        return flush(writer, step)
    if operation not in _OPCODES:
        raise Inexpressible(f"it needs the operation {operation}")
    if step.arguments["with_flags"].mask:  # type: ignore[union-attr]
        raise Inexpressible("it needs a request with send flags besides SIGNALED")
    if operation == "RDMA_READ":
        writer.features.add("read")
    if operation.startswith("ATOMIC"):
        writer.features.add("atomic")
    if operation.endswith("IMM"):
        writer.features.add("imm")
    addr, at, count, name = writer.located(step, operation)
    pair = _pair(writer, step)
    writer.area_of(name)
    writer.use("rdma")
    key = writer.number(step.arguments["rkey"])
    expected = _expected(step)
    call = f'rdma({pair}, "{_description(step)}", {expected}, IBV_WR_{operation}, {key}, {addr}, {at}, {count});'
    _executed(writer, step, pair, call, "remote")


def _expected(step: Step) -> str:
    if step.then.because:
        return "-1"
    return _EXPECTED[step.then.outcome]


def _executed(writer: Writer, step: Step, pair: str, call: str, side: str) -> None:
    """Writes an operation and, if its refusal must have a certain status, checks of status and queue pair state."""
    kind = str(step.arguments["qp_type"])
    if not step.then.because:
        if step.then.opcode:
            raise Inexpressible("it needs the opcode of a completion")
        assert step.then.outcome != "refused" or refusal(side, "", kind) is None
        writer.say(call)
        return
    expected = refusal(side, step.then.because, kind)
    if expected is None or kind not in RELIABLE:
        writer.say(call)
        return
    if "(" in pair:
        name = f"pair{writer.next_number('pair') or ''}_"
        writer.say(f"struct ibv_qp **{name} = {pair};")
        call = call.replace(pair, name, 1)
        pair = name
    writer.assign("status", call.removesuffix(";"))
    status_of_refusal(writer, "status", expected.wc or expected.peer)
    if expected.state:
        writer.use("in_error")
        writer.assign("stopped", f"in_error({pair}[0])")
        writer.check("stopped", "its queue pair should be in the error state")


def status_of_refusal(writer: Writer, status: str, allowed: tuple[str, ...]) -> None:
    """Writes the check that a refusal has an `allowed` status. The program exits with 77 if nothing is refused."""
    writer.say_if(
        f"{status} == NONE || {status} == IBV_WC_SUCCESS",
        'errx(77, "nothing was refused");',
    )
    names = [f"IBV_WC_{name}" for name in allowed]
    condition = " || ".join(f"{status} == {name}" for name in names)
    writer.check(
        condition,
        f"its status should be {' or '.join(names)}, is %d, %s",
        status,
        f"ibv_wc_status_str({status})",
    )


def flush(writer: Writer, step: Step) -> None:
    """Writes a FLUSH, which only an extended queue pair can post. The program runs only with rdma-core 46 or later."""
    operation = str(step.arguments["op"])
    if step.then.because or str(step.arguments["via"]) != NULL or "parts" in writer.features:
        raise Inexpressible(f"it needs {operation} over a separate queue pair")
    if operation not in _PLACEMENTS:
        raise Inexpressible(f"it needs the operation {operation}")
    writer.features.add("flush")
    addr, _, count, _ = writer.located(step, operation)
    pair = _pair(writer, step)
    if "mixed" in writer.features:
        raise Inexpressible("it needs queue pairs of several types")
    writer.use("flush")
    key = writer.number(step.arguments["rkey"])
    kind, expected_ = _PLACEMENTS[operation], _EXPECTED[step.then.outcome]
    writer.say(
        f'flush({pair}, "{_description(step)}", {expected_}, {kind}, {key}, {addr}, {count});',
    )


def local_traffic(writer: Writer, step: Step) -> None:
    """Writes an operation of the owner of a range, with an lkey."""
    _prepare(writer, step)
    operation = str(step.arguments["op"])
    if operation not in _LOCAL:
        raise Inexpressible(f"it needs the operation {operation}")
    opcode, receives, side = _LOCAL[operation]
    addr, at, count, name = writer.located(step, operation)
    pair = _pair(writer, step)
    writer.area_of(name)
    writer.use("local")
    sge = f"(struct ibv_sge){{ {addr}, {count}, {writer.number(step.arguments['lkey'])} }}"
    call = f'local({pair}, "{_description(step)}", {_expected(step)}, {opcode}, {receives}, {sge}, {at});'
    if step.then.because and operation == "RECV":
        raise Inexpressible("it needs the statuses of both sides of a receive")
    if step.then.because and side == "gather":
        call = f"refused({pair}, {opcode}, {sge});"
        writer.pieces.pop("local")
        writer.use("refused")
    _executed(writer, step, pair, call, side)


def bind(writer: Writer, step: Step) -> None:
    then, name = step.then, str(step.arguments["mw"])
    window, queue = identifier(name), f"{identifier(str(step.arguments['qp']))}[0]"
    spec = writer.case.given.qps[str(step.arguments["qp"])]
    writer.keep(f"{window}_old", f"{window}->rkey", "uint32_t")
    writer.assign("error", bind_call(writer, step))
    bound(writer, "!error")
    writer.names.value(name, "old_rkey", f"{window}_old")
    writer.use("next")
    signaled = "SIGNALED" in step.arguments["send_flags"].names or spec.sq_sig_all  # type: ignore[union-attr]
    awaited = spec.state in ("RTS", "ERR")
    call = step.title
    if not awaited:
        writer.assign("status", "error ? NONE : IBV_WC_SUCCESS")
    elif signaled:
        writer.assign("status", f"error ? NONE : next({queue}->send_cq)")
    else:
        writer.use("earlier")
        writer.features.add("wc")
        silent = f"error || earlier({queue}) ? NONE : IBV_WC_SUCCESS"
        failing = f"error ? NONE : earlier({queue}) ? ended : IBV_WC_SUCCESS"
        writer.assign("status", silent if then.outcome == "success" else failing)
    done = _done(writer, step, "BIND_MW", awaited)
    if then.because:
        expected_ = refusal("bind", then.because, spec.kind)
        assert expected_ is not None
        status_of_refusal(writer, "status", expected_.wc)
        return
    if then.outcome == "success":
        condition, should = done, "succeed"
    elif then.outcome == "refused":
        code, should = required(step)
        condition = f"error ? {code.replace('error != 0', 'error > 0')} : status != IBV_WC_SUCCESS"
        if not awaited:
            condition = code.replace("error != 0", "error > 0")
    else:
        condition, should = "1", "succeed or fail"
    if then.completion == "one":
        condition, should = (
            f"({condition}) && (error || status != NONE)",
            f"{should} and complete once",
        )
    if then.rkey:
        if then.rkey == "changed":
            sign = "!="
        else:
            sign = "=="
        condition, should = (
            f"({condition}) && {window}->rkey {sign} {window}_old",
            f"{should} with its rkey {then.rkey}",
        )
    _completion(writer, condition, call, should)


def _done(writer: Writer, step: Step, opcode: str, awaited: bool = True) -> str:
    """Returns the condition that a request was posted and, if `awaited`, that it has completed with its opcode."""
    if awaited:
        done = "!error && status == IBV_WC_SUCCESS"
    else:
        done = "!error"
    if not step.then.opcode:
        return done
    writer.features.add("wc")
    return f"{done} && wc.opcode == IBV_WC_{opcode}"


def _completion(writer: Writer, condition: str, call: str, should: str) -> None:
    message = f"{call} should {should}, returned %d, completed with %d, %s"
    writer.check(condition, message, "error", "status", "ibv_wc_status_str(status)")


def local_inv(writer: Writer, step: Step) -> None:
    _invalidated(writer, step, 0, "IBV_WR_LOCAL_INV")
    _completed(writer, step, _done(writer, step, "LOCAL_INV"))


def send_with_inv(writer: Writer, step: Step) -> None:
    """Writes a SEND with invalidation. The completion of the receive must have the invalidated key."""
    queue = identifier(str(step.arguments["qp"]))
    elements = ".num_sge = 0"
    if length := writer.moved(step.arguments["length"]):
        writer.say(f"struct ibv_sge message = {{ (uintptr_t)own, {length}, own_mr->lkey }};")
        elements = ".sg_list = &message, .num_sge = 1"
    writer.say(f"struct ibv_recv_wr receive = {{ {elements} }}, *bad_receive;")
    writer.say(f"SET_UP(!ibv_post_recv({queue}[0], &receive, &bad_receive));")
    key = writer.number(step.arguments["rkey"])
    if step.then.outcome == "success":
        writer.assign("sent", key, "uint32_t")
    _invalidated(writer, step, 1, "IBV_WR_SEND_WITH_INV", f" {elements}," if length else "")
    writer.features.add("wc")
    if step.then.outcome == "open":
        return _completed(writer, step, "1")
    writer.assign("received", f"status == IBV_WC_SUCCESS ? next({queue}[0]->recv_cq) : NONE")
    _completed(writer, step, "!error && status == IBV_WC_SUCCESS && received == IBV_WC_SUCCESS")
    if step.then.outcome == "success":
        with writer.block("received == IBV_WC_SUCCESS"):
            message = "(wc.wc_flags & IBV_WC_WITH_INV) && wc.invalidated_rkey == sent"
            writer.check(
                message,
                "its receiver should get the key, got flags %u and key %#x",
                "wc.wc_flags",
                "wc.invalidated_rkey",
            )


def _invalidated(writer: Writer, step: Step, side: int, opcode: str, message: str = "") -> None:
    queue = f"{identifier(str(step.arguments['qp']))}[{side}]"
    writer.use("next")
    name = f"wr{writer.next_number('wr') or ''}"
    key = writer.number(step.arguments["rkey"])
    writer.say(
        f"struct ibv_send_wr *bad_{name}, {name} = {{ .opcode = {opcode}, .wr_id = 1,{message}"
        f" .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = {key} }};",
    )
    writer.assign("error", f"ibv_post_send({queue}, &{name}, &bad_{name})")
    writer.assign("status", f"error ? NONE : next({queue}->send_cq)")


def _completed(writer: Writer, step: Step, done: str) -> None:
    condition, should = {
        "success": (done, "succeed"),
        "refused": (f"error >= 0 && !({done})", "fail"),
        "open": ("1", "succeed or fail"),
    }[step.then.outcome]
    _completion(writer, condition, step.title, should)


def restore_rkey(writer: Writer, step: Step) -> None:
    """Writes the statement that restores, in struct ibv_mw, the key from before the last bind."""
    window = identifier(str(step.arguments["mw"]))
    writer.say(f"{window}->rkey = {window}_old;")


def connect_qp(writer: Writer, step: Step) -> None:
    """Writes the statements that move a queue pair and its peer to RTS and count the completions."""
    name = str(step.arguments["qp"])
    variable, spec = identifier(name), writer.case.given.qps[name]
    writer.use("earlier", "move")
    writer.features.add("wc")
    writer.say(
        f"move({variable}, IBV_QPS_{spec.state}, IBV_QPS_RTS, {rights(writer, spec.access)});"
    )
    writer.assign("count", f"earlier({variable}[0])")
    if step.then.completion == "one":
        writer.check(
            "count == 1",
            "the request should complete once after RTS, completed %d times",
            "count",
        )
    elif step.then.completion != "none":
        writer.say('printf("completed after RTS: %d\\n", count);')
    else:
        writer.check("!count", "no request should complete after RTS, %d completed", "count")


def destroy_qp(writer: Writer, step: Step) -> None:
    variable = identifier(str(step.arguments["qp"]))
    writer.say(f"SET_UP(!ibv_destroy_qp({variable}[0]) && !ibv_destroy_qp({variable}[1]));")


# The statements of the calls on a whole memory. `{0}` is the address of the memory, and `{1}` its size in bytes.
_ON_MEMORY = {
    "fill": "memset({0}, 0xfe, {1});",
    "unmap": "SET_UP(!munmap({0}, {1}));",
    "protect": "SET_UP(!mprotect({0}, {1}, PROT_READ));",
    "discard": "SET_UP(!madvise({0}, {1}, MADV_{2}));",
}


def on_memory(writer: Writer, step: Step) -> None:
    name, how = str(step.arguments["memory"]), str(step.arguments.get("how"))
    if step.call == "discard" and how not in ("DONTNEED", "REMOVE"):
        raise Inexpressible(f"it discards pages by {how}")
    writer.say(_ON_MEMORY[step.call].format(identifier(name), writer.names.of(name, "size"), how))


def register_elsewhere(writer: Writer, step: Step) -> None:
    """Writes the start of another process, which registers shared memory."""
    if step.arguments["window"] != "none":
        raise Inexpressible("it needs a window of another process")
    memory = identifier(str(step.arguments["memory"]))
    writer.use("other_process")
    access = writer.access(step.arguments["access"])
    writer.say(f"SET_UP(other_process({memory}, {memory}_size, {access}));")
    for key in ("lkey", "rkey"):
        writer.names.value(step.name, key, f"other.{key}")


def access_elsewhere(writer: Writer, step: Step) -> None:
    """Writes nothing: the other process of a program only waits."""


STEPS: Mapping[str, Callable[[Writer, Step], None]] = {
    **{name: calls.register for name, verb in VERBS.items() if verb.product == REGION},
    **{name: calls.plain for name, verb in VERBS.items() if calls.is_plain(verb)},
    "ibv_dereg_mr": calls.dereg,
    "ibv_rereg_mr": calls.rereg,
    "ibv_advise_mr": calls.advise,
    "ibv_alloc_mw": calls.alloc_mw,
    "ibv_dealloc_mw": calls.dealloc_mw,
    "ibv_bind_mw": bind,
    "post_bind_mw": bind,
    "post_local_inv": local_inv,
    "post_send_with_inv": send_with_inv,
    "restore_rkey": restore_rkey,
    "connect_qp": connect_qp,
    "destroy_qp": destroy_qp,
    "register_elsewhere": register_elsewhere,
    "access_elsewhere": access_elsewhere,
    **dict.fromkeys(_ON_MEMORY, on_memory),
    "traffic": traffic,
    "local_traffic": local_traffic,
}
