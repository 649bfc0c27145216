"""Writes a whole program: a comment with the quote of the document, the helper functions that the case needs, and
main() with the steps of the case."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from conformance.model.capability import (
    BY_SYMBOL,
    MEANING,
    ODP_OPERATIONS,
    PRECONDITIONS,
    odp_capability,
)
from conformance.model.case import Case, Step
from conformance.model.kind import Kind
from conformance.model.rules import Rule, not_quoted
from conformance.model.vocabulary import NULL
from conformance.verbs import ENUMS, VERBS
from reports.reproducers import layout
from reports.reproducers.expressions import identifier
from reports.reproducers.layout import WIDTH, comment, fitted, statement
from reports.reproducers.objects import set_up, without_idle
from reports.reproducers.operations import STEPS
from reports.reproducers.wire_program import WireScript, is_wire
from reports.reproducers.writer import Inexpressible, Writer

MOST_LINES = 250
_RELEASING = ("ibv_dereg_mr", "ibv_dealloc_mw")
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9]+")
# The exit statuses of a program.
KEPT, VIOLATED, NOT_SET_UP, NOT_SUPPORTED = 0, 1, 2, 77
_MACROS = [
    '#define CHECK(kept, ...) (printf((kept) ? "kept: " : "VIOLATED: "), \\',
    '    violations += !(kept), printf(__VA_ARGS__), puts(""))',
    '#define SET_UP(done) ((done) ? (void)0 : err(2, "failed: %s", #done))',
    "",
]
# A program defines only the macros that it uses.
_DEFINED = {
    "PAGE": "PAGE ((size_t)sysconf(_SC_PAGESIZE))",
    "NONE": "NONE -1 /* the status without a completion */",
    "DATA": "DATA(i) (0x80 + (i) % 113) /* the transferred bytes */",
}
# Bits of on-demand capabilities, by operation. Older headers have no names for these bits.
_ODP_WITHOUT_NAMES = {"flush": "0x40", "atomic_write": "0x80"}
# Constants that the header of the oldest rdma-core lacks, with their values. A program defines those that it uses.
_OLDEST = 44  # the version of rdma-core in Debian 12
_LATER: Mapping[str, int] = {
    "IBV_FLUSH_RANGE": 0,
    "IBV_FLUSH_GLOBAL": 1,
    "IBV_FLUSH_PERSISTENT": 2,
    **{
        value.name: value.value
        for name in ("ibv_access_flags", "ibv_qp_create_send_ops_flags")
        for value in ENUMS[name]
        if value.value is not None and int(value.since or 0) > _OLDEST
    },
}
_SINCE = {
    **{verb.name: verb.since for verb in VERBS.values()},
    **{value.name: value.since for value in itertools.chain.from_iterable(ENUMS.values())},
}
# Calls and constants that such a header lacks and that a program cannot define, with the first release that has them.
_RELEASES: Mapping[str, int] = {
    name: int(since)
    for name, since in _SINCE.items()
    if int(since or 0) > _OLDEST and name not in _LATER
}
# The C expressions that test whether the device declares a capability.
_DECLARED: Mapping[str, str] = {
    "atomics": "device.orig_attr.atomic_cap != IBV_ATOMIC_NONE",
    "mw_type_1": "device.orig_attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW",
    "mw_type_2": "device.orig_attr.device_cap_flags & (IBV_DEVICE_MEM_WINDOW_TYPE_2A | IBV_DEVICE_MEM_WINDOW_TYPE_2B)",
    "odp": "device.odp_caps.general_caps & IBV_ODP_SUPPORT",
    "odp_implicit": "device.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT",
    **{
        odp_capability(transport, operation): "device."
        f"{'' if transport == 'xrc' else 'odp_caps.per_transport_caps.'}{transport}_odp_caps"
        f" & {_ODP_WITHOUT_NAMES.get(operation, f'IBV_ODP_SUPPORT_{operation.upper()}')}"
        for transport, operations in ODP_OPERATIONS.items()
        for operation in operations
    },
    "flush_global": "device.device_cap_flags_ex >> 38 & 1",
    "flush_persistent": "device.device_cap_flags_ex >> 39 & 1",
    "atomic_write": "device.device_cap_flags_ex >> 40 & 1",
    "iwarp": "context->device->transport_type == IBV_TRANSPORT_IWARP",
}
# Capabilities that only the result of the call shows.
_OFFERED = ("rereg_mr", "rereg_translation", "advise_mr", "reg_dmabuf_mr", "zero_based")
# Capabilities that a program need not test. If a call does not exist, the compiler or the result of the call shows it.
# On transports other than InfiniBand and RoCE, the set-up of the queue pairs fails, because state transitions do not
# connect them.
_IMPLIED = (
    *BY_SYMBOL,
    *"rc uc immediate_data send_immediate_data iba_statuses read_sinks lists iova_page_offset".split(),
    *_OFFERED,
)


@dataclass(frozen=True)
class Program:
    """The C program of a case. `cc FILE -libverbs` compiles its text."""

    case: str
    text: str
    script: str = ""  # for a row of packets: the script of the peer, which starts the program

    @property
    def lines(self) -> int:
        return self.text.count("\n")


def needed_release(text: str) -> int:
    """Returns the first release of rdma-core whose headers have all calls of a text; 0 if those of Debian 12 do."""
    names = re.findall(r"\b(?:ibv|IBV)_\w+", text)
    return max((_RELEASES.get(name, 0) for name in names), default=0)


def headers_for(text: str) -> str:
    """Returns which headers a program with this text needs; empty if those of Debian 12 suffice."""
    release = needed_release(text)
    return f"needs the headers of rdma-core {release} or newer" if release else ""


class TooLong(Inexpressible):
    """Raised for a program with more lines than MOST_LINES."""


def program_of(
    case: Case,
    rules: Mapping[str, Rule],
    width: int = WIDTH,
    remark: str = "",
) -> Program:
    """Returns the program of a row, wrapped to `width` columns. With the default width the program has at most
    MOST_LINES lines. `remark` is a sentence for its first comment. Raises Inexpressible."""
    if case.kind is Kind.COMBINATIONS:
        raise Inexpressible("it is a point of a model, which `run --only` runs alone")
    if case.kind is not Kind.ROW:
        raise Inexpressible(
            "it is not a row of calls; if it is a sweep, name one of its points: CASE#axis=value",
        )
    unmet = [need for need in case.needs if need in PRECONDITIONS]
    if unmet:
        meanings = "; ".join(MEANING[need] for need in unmet)
        raise Inexpressible(f"it has a precondition that a program cannot check: {meanings}")
    if not is_wire(case):
        case = without_idle(case)
    writer = Writer(case, width)
    if any(step.call == "connect_qp" for step in case.afterwards) or any(
        qp.state != "RTS" or qp.sq_sig_all for qp in case.given.qps.values()
    ):
        writer.features.add("parts")
    if len(_types(case)) > 1:
        if "parts" in writer.features:
            raise Inexpressible("it needs queue pairs of several types in several states")
        writer.features.add("mixed")
    _needs(writer)
    set_up(writer)
    if is_wire(case):
        wire = WireScript(writer)
        wire.write()
        text = _text(writer, rules, remark)
        return Program(case.id, text, wire.script(rules))
    for step in case.before:  # the calls before the judged call are a part of the set-up
        writer.is_set_up = True
        _step(writer, replace(step, then=replace(step.then, outcome="success")), "before")
        writer.is_set_up = False
        if "traffic" in step.call:  # its checks are in a function of the program
            writer.say_if("violations", 'errx(2, "not set up");')
    _step(writer, case.when, "")
    _afterwards(writer)
    if "mixed" in writer.features:
        writer.features -= {"rc", "uc"}
    program = Program(case.id, _text(writer, rules, remark))
    if width == WIDTH and program.lines > MOST_LINES:
        raise TooLong(f"the program would have {program.lines} lines, more than {MOST_LINES}")
    return program


def _text(writer: Writer, rules: Mapping[str, Rule], remark: str) -> str:
    lines = [*_top(writer, rules, remark), *_main(writer)]
    return "\n".join(part for line in lines for part in fitted(line, writer.width)) + "\n"


def file_name(id_: str, suffix: str = ".c") -> str:
    return f"{_NOT_IN_A_NAME.sub('-', id_).strip('-')}{suffix}"


def _types(case: Case) -> set[str]:
    steps = case.steps
    new = [
        step
        for step in steps
        if "qp_type" in step.arguments and step.arguments.get("via", NULL) == NULL
    ]
    return {qp.kind for qp in case.given.qps.values()} | {
        str(step.arguments["qp_type"]) for step in new
    }


def _needs(writer: Writer) -> None:
    needs = [need for need in writer.case.needs if need not in _IMPLIED]
    if any(need.startswith("odp_") for need in needs):
        needs = [need for need in needs if need != "odp"]
    for need in needs:
        if need not in _DECLARED:
            what = f"a capability that a program cannot check: {MEANING[need]}"
            raise Inexpressible(f"it needs {what}")
    if not needs:
        return
    texts = [_DECLARED[need] for need in needs]
    if any("device." in text for text in texts):
        writer.say("struct ibv_device_attr_ex device;")
        writer.say("SET_UP(!ibv_query_device_ex(context, NULL, &device));")
    inverted = [text.replace("!=", "==") if "!=" in text else f"!({text})" for text in texts]
    writer.say_if(" || ".join(inverted), f'errx(77, "not declared: {", ".join(needs)}");')


def _step(writer: Writer, step: Step, when: str) -> None:
    if step.call not in STEPS:
        raise Inexpressible(f"it needs the call {step.call}")
    try:
        STEPS[step.call](writer, step)
    except KeyError as error:
        raise Inexpressible(
            f"it uses {error.args[0]!s}, which the program does not have",
        ) from error
    offered = [need for need in writer.case.needs if need in _OFFERED]
    if not when and offered:
        writer.say_if(
            "violations && (error == EOPNOTSUPP || error == ENOSYS)",
            f'errx(77, "no {offered[0]}");',
        )


def _afterwards(writer: Writer) -> None:
    case = writer.case
    when, product = case.when, case.when.name
    if not case.afterwards:
        return
    conditional = any(step.then.after for step in case.afterwards)
    if conditional:
        if "status" not in writer.declared:
            refused = "error != 0"
        else:
            refused = "error || status != IBV_WC_SUCCESS"
        writer.say(f"int refused = {refused};")
    if product and when.then.outcome != "refused":
        writer.say_if(f"!{identifier(product)}", "return violations != 0;")
    gone = _gone(writer, when, case.afterwards)
    for number, step in enumerate(case.afterwards, 1):
        for name in sorted(_objects(step) & gone):
            writer.say_if(f"{identifier(name)}_gone", "return violations != 0;")
            gone.remove(name)
        if step.then.after:
            with writer.block("refused" if step.then.after == "refused" else "!refused"):
                _step(writer, step, "afterwards")
        else:
            _step(writer, step, "afterwards")
            gone |= _gone(writer, step, case.afterwards[number:])


def _objects(step: Step) -> set[str]:
    return {str(step.arguments[key]) for key in ("mr", "mw") if key in step.arguments} - {NULL}


def _gone(writer: Writer, step: Step, later: Sequence[Step]) -> set[str]:
    """Returns the objects that later steps use, and that this step releases if the device does not refuse it. A
    variable of the program remembers for each whether it did."""
    if step.call not in _RELEASING or step.then.outcome == "success":
        return set()
    used = set().union(*map(_objects, later))
    names = _objects(step) & used
    for name in sorted(names):
        writer.assign(f"{identifier(name)}_gone", "!error")
    return names


def _top(writer: Writer, rules: Mapping[str, Rule], remark: str) -> list[str]:
    case, lines = writer.case, []
    needed = headers_for("\n".join(writer.used))
    lines += comment(_first_comment(case, rules, remark, needed), writer.width)
    if "udmabuf" in writer.pieces:
        lines.append("#define _GNU_SOURCE")
    names, headers = layout.with_needed(writer.pieces)
    pieces = [layout.lines_of(piece, writer.features) for piece in names]
    text = "\n".join([*writer.used, *(line for piece in pieces for line in piece)])
    defined = [name for name in _DEFINED if re.search(rf"\b{name}\b", text)]
    headers |= {*writer.headers, *(["unistd.h"] if "PAGE" in defined else [])}
    lines += [*(f"#include <{header}>" for header in sorted(headers)), ""]
    lines += [f"#define {_DEFINED[name]}" for name in defined]
    later = [name for name in _LATER if re.search(rf"\b{name}\b", f"{text}{_rights(writer)}")]
    if later:
        lines.append("/* constants of rdma-core 46 and later, for older headers */")
        lines += [f"#define {name} {_LATER[name]}" for name in later]
    if "REMOTE" in text.replace("_REMOTE", ""):
        lines += statement(
            f"static const int REMOTE = {' | '.join(_rights(writer))};",
            0,
            writer.width,
        )
    lines += _MACROS
    lines += [
        "static struct ibv_context *context;",
        "static struct ibv_pd *pd;",
        "static int violations;",
    ]
    if "traffic" in writer.features:
        lines += [
            f"static unsigned char own[{max(1, writer.largest)}], *area; /* of the peer; of the case */",
            "static struct ibv_mr *own_mr;",
            "static size_t size;",
        ]
    if "hugepage" in writer.features:
        lines.append("static size_t hugepage;")
    for piece in pieces:
        lines += ["", *piece]
    return [*lines, ""]


def _rights(writer: Writer) -> list[str]:
    more = {
        "atomic": "IBV_ACCESS_REMOTE_ATOMIC",
        "flush": "IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT",
    }
    return [
        "IBV_ACCESS_REMOTE_WRITE",
        "IBV_ACCESS_REMOTE_READ",
        *(text for feature, text in more.items() if feature in writer.features),
    ]


def _first_comment(case: Case, rules: Mapping[str, Rule], remark: str, headers: str) -> list[str]:
    rule = rules[case.rules[0]]
    if rule.quote:
        requirement = f': "{rule.quote}"'
    else:
        requirement = f" {not_quoted(rule.second_hand)}. The tested rule: {rule.statement}"
    started = "; its script starts ./a.out DEVICE ADDRESS" if is_wire(case) else ""
    return [
        f"{rule.id}, {rule.document}, {rule.section}{requirement}",
        f"Case {case.id} of rdma-cts.",
        *([remark] if remark else []),
        *([f"It {headers}."] if headers else []),
        f"cc FILE -libverbs{started}; 0: kept, 1: violated, 77: not supported, 2: not set up",
    ]


def _main(writer: Writer) -> list[str]:
    lines = ["int main(int argc, char **argv)", "{"]
    body = [
        "struct ibv_device **all = ibv_get_device_list(NULL);",
        "while (all && *all && argc > 1 && strcmp(ibv_get_device_name(*all), argv[1]))",
        "    all++;",
        "if (!all || !*all)",
        '    errx(2, "there is no RDMA device %s", argc > 1 ? argv[1] : "at all");',
        "SET_UP(context = ibv_open_device(*all));",
        "SET_UP(pd = ibv_alloc_pd(context));",
    ]
    if is_wire(writer.case):
        body = [
            "if (argc < 3)",
            '    errx(2, "usage: %s DEVICE ADDRESS, where the script is at ADDRESS", argv[0]);',
            "peer_address = argv[2];",
            *body,
            "setvbuf(stdout, NULL, _IOLBF, 0);",
        ]
    if writer.case.alone:
        body.append("setbuf(stdout, NULL);")
    if "hugepage" in writer.features:
        body.append("hugepage = hugepage_size();")
    if "traffic" in writer.features:
        body.append(
            "SET_UP(own_mr = ibv_reg_mr(pd, own, sizeof(own), IBV_ACCESS_LOCAL_WRITE | REMOTE));",
        )
    for text in body:
        lines += statement(text.lstrip(), 1 + (len(text) - len(text.lstrip())) // 4, writer.width)
    return [*lines, *writer.used, "    return violations != 0;", "}"]
