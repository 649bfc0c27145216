"""Writes the two programs of a row of packets: a C program at the device, with the objects and the calls of the row, and
a script of the peer, which needs only Python. The script starts the C program, sends the packets, and judges."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path

from conformance.model.case import Case, Step
from conformance.model.quantity import HUGE_PAGES, PAGES, UNITS, Quantity
from conformance.model.rules import Rule
from conformance.model.script import CALL, NOTHING, RESPONSE, Event
from conformance.model.vocabulary import STREAM, WIRE
from conformance.wire.opcodes import SYNDROMES, operation_of
from conformance.wire.segments import SEGMENTS, TERMINATES, fields_of_terminate
from reports.reproducers.calls import element_texts
from reports.reproducers.expressions import identifier
from reports.reproducers.operations import STEPS
from reports.reproducers.writer import Inexpressible, Writer

_SNIPPETS = Path(__file__).with_name("snippets")
# Separates the imports of a part of the script, which only the checks of the source need, from its text.
_BELOW = "# The script.\n"
_IMPORTS = re.compile(r"(?:^import \w+\n)+", re.MULTILINE)
_PSNS = "FIRST_PSN, DEVICE_PSN = 0x700000, 0x300000"
_ERRORS = "ERRORS: dict[tuple[int, int, int], str] = {}\n"
_WORD = 8
_READ = "RDMA_READ_REQUEST"
_COMPARE = "COMPARE_SWAP"
_ATOMICS = (_COMPARE, "FETCH_ADD")
_MORE_FOLLOWS = ("_FIRST", "_MIDDLE")
# The fields of struct ibv_send_wr, by the numbers of a posted request.
_OF_REQUESTS = {
    "to": "wr.rdma.remote_addr",
    "rkey": "wr.rdma.rkey",
    "imm": "imm_data",
    "inv": "invalidate_rkey",
}
_OF_ATOMIC_REQUESTS = {
    "to": "wr.atomic.remote_addr",
    "rkey": "wr.atomic.rkey",
    "compare": "wr.atomic.compare_add",
    "swap": "wr.atomic.swap",
}
_COMPLETED = {"completes": "the request", "receives": "the receive"}
_WIDTH = 96


def is_wire(case: Case) -> bool:
    return case.when.call == WIRE


def _post_receive(writer: Writer, step: Step) -> None:
    """Writes the statements that post a receive."""
    texts = element_texts(writer, step.arguments["sg_list"])
    queue = f"{identifier(str(step.arguments['qp']))}[0]"
    number = writer.next_number("receive")
    name, sges = f"receive{number}", f"sges{number}"
    writer.say(f"struct ibv_sge {sges}[] = {{ {', '.join(texts) or '{ 0 }'} }};")
    fields = f".wr_id = {number}, .sg_list = {sges}, .num_sge = {len(texts)}"
    writer.say(f"struct ibv_recv_wr *bad_{name}, {name} = {{ {fields} }};")
    writer.say(f"SET_UP(!ibv_post_recv({queue}, &{name}, &bad_{name}));")


_CALLS = {**STEPS, "post_receive": _post_receive}


class WireScript:
    """Writes the steps of a row, to a C program and to the script at the same time."""

    def __init__(self, writer: Writer) -> None:
        case = writer.case
        self._writer, self.lines = writer, list[str]()
        if len(case.given.qps) > 1:
            raise Inexpressible("it has several queue pairs with a wire peer")
        (spec,) = case.given.qps.values()
        self._stream = spec.wire == STREAM
        self._first_psns = spec.first_psns
        if spec.kind not in ("RC", "UC") or spec.ip != "v4" or spec.state != "RTS":
            raise Inexpressible(f"it needs a queue pair of type {spec.kind} over {spec.ip}")
        if spec.retry_cnt or spec.timeout or spec.rnr_retry:
            raise Inexpressible("it needs a queue pair that sends again")
        if spec.traffic_class:
            raise Inexpressible("its script would have to see the IP headers of packets")
        self._kind = spec.kind
        self._queue = f"{identifier(next(iter(case.given.qps)))}[0]"
        self._values = _values_of(case)
        self._packets: list[Event] = []
        self._numbers: list[dict[str, str]] = []
        self._changes: list[str] = []
        self._free: list[str] = []

    def write(self) -> None:
        """Writes all events. Raises Inexpressible."""
        writer = self._writer
        writer.use("stream" if self._stream else "wire")
        writer.headers.add("stdlib.h")
        for name in writer.memories:
            variable = identifier(name)
            writer.say(f"fill({variable}, {writer.names.of(name, 'size')});")
        writer.say("turn();")
        self._tell_values()
        if self._stream:
            writer.say("turn();")
            writer.say(f"accept_stream({self._queue});")
            writer.say('puts("done");')
        events = writer.case.when.arguments["packets"]
        assert isinstance(events, tuple)
        for event in events:
            assert isinstance(event, Event)
            self._event(event)
        self._finish()

    def _tell_values(self) -> None:
        writer = self._writer
        for name, property_ in self._values:
            try:
                text = writer.names.of(name, property_)
            except KeyError:
                continue  # a later call sets it
            writer.say(f'printf("{name}.{property_} %#llx\\n", (long long)({text}));')
        for name in writer.memories:
            for key in (f"{name}.addr", f"memory.{name}"):
                writer.say(f'printf("{key} %#llx\\n", (long long)(uintptr_t){identifier(name)});')
        writer.say(
            f'printf("page %d\\nqp.number %d\\ndone\\n", getpagesize(), {self._queue}->qp_num);'
        )

    def _event(self, event: Event) -> None:
        if event.kind == CALL:
            self._call(event)
        elif event.kind == "op" and self._stream:
            self._segment(event)
        elif event.kind == "op":
            self._op(event)
        elif event.kind == "changed":
            self._changed(event)
        elif event.kind == "may_change":
            at, size = _python(event.numbers["may_change"]), _python(event.numbers["length"])
            self._free.append(f"({at}, {size})")
        elif event.kind == "state":
            self._writer.use("wire_state")
            self._settle()
            self._writer.say("turn();")
            self._writer.say(f'printf("done %s\\n", state_of({self._queue}));')
            self._step("the state", event)
        elif event.kind == "post":
            self._post(event)
        elif event.kind == "sends":
            words = "|".join(event.words)
            self.lines += _wrapped(f"sends({', '.join([_quoted(words), *_header_fields(event)])})")
        elif event.kind == "answer" and self._stream:
            self._segment(event)
        elif event.kind == "answer":
            self._reply(event)
        else:
            self._writer.use("wire_completion")
            if NOTHING in event.words:
                self._settle()
            self._writer.say("turn();")
            self._writer.say(f"completion({self._queue});")
            self._step(_COMPLETED[event.kind], event)

    def _settle(self) -> None:
        """Lets the script wait until the device has taken what was sent. Silence is awaited over RoCE already."""
        if self._stream:
            self.lines.append("settle()")

    def _segment(self, event: Event) -> None:
        """Lets the script send a segment, as a request or as an answer."""
        arguments = [_quoted(event.word)]
        gets = event.names.get("gets", ())
        if gets:
            arguments.append(_quoted("|".join(gets)))
        for name in ("crc", "form"):
            if name in event.names:
                arguments.append(f'{name}="{event.names[name][0]}"')
        if event.kind == "op" and event.word == _READ and RESPONSE in gets:
            arguments += self._content_of(event.numbers, event.numbers["length"], len(self.lines))
        fields = _header_fields(event)
        said = event.names.get("says", ())
        if said:
            fields += [f"{key}={number}" for key, number in fields_of_terminate(said[0]).items()]
        if "data" not in event.numbers and "length" in event.numbers and _has_data(event.word):
            fields.append(f"data={_python(event.numbers['length'])}")
        call = "op" if event.kind == "op" else "reply"
        self.lines += _wrapped(f"{call}({', '.join([*arguments, *fields])})")

    def _post(self, event: Event) -> None:
        """Lets the program post a request to the script."""
        writer, numbers = self._writer, event.numbers
        number = writer.next_number("request")
        name, sge = f"request{number}", f"sge{number}"
        fields = [f".wr_id = {number}", f".opcode = IBV_WR_{event.word}"]
        flags = ["SIGNALED", *event.names.get("flags", ())]
        fields.append(f".send_flags = {' | '.join(f'IBV_SEND_{flag}' for flag in flags)}")
        writer.say("turn();")
        if "addr" in numbers:
            place = f"(uintptr_t)({writer.pointer(numbers['addr'])})"
            size, key = (writer.number(numbers[field]) for field in ("length", "lkey"))
            writer.say(f"struct ibv_sge {sge} = {{ {place}, {size}, {key} }};")
            fields += [f".sg_list = &{sge}", ".num_sge = 1"]
        names = _OF_ATOMIC_REQUESTS if event.word.startswith("ATOMIC") else _OF_REQUESTS
        for key, field in names.items():
            if key in numbers:
                text = writer.number(numbers[key])
                if key == "imm":
                    text = f"htonl({text})"
                fields.append(f".{field} = {text}")
        writer.say(f"struct ibv_send_wr *bad_{name}, {name} = {{ {', '.join(fields)} }};")
        writer.say(f"SET_UP(!ibv_post_send({self._queue}, &{name}, &bad_{name}));")
        writer.say('puts("done");')
        self.lines.append(f'device_step("{event.word}")')

    def _reply(self, event: Event) -> None:
        arguments = [_quoted(event.word)]
        names = event.names
        transport = names.get("transport", (self._kind,))[0]
        if transport != "RC":
            arguments.append(f'transport="{transport}"')
        if "icrc" in names:
            arguments.append(f'crc="{names["icrc"][0]}"')
        arguments += _header_fields(event)
        if "syndrome" not in event.numbers:
            arguments.append(f"syndrome={SYNDROMES[names.get('says', ('ACK',))[0]]:#x}")
        self.lines += _wrapped(f"reply({', '.join(arguments)})")

    def _step(self, what: str, event: Event) -> None:
        fields = [f"{key}={_python(quantity)}" for key, quantity in event.numbers.items()]
        arguments = ", ".join([f'"{what}"', f'"{"|".join(event.words)}"', *fields])
        self.lines += _wrapped(f"device_step({arguments})")

    def _call(self, event: Event) -> None:
        step = event.step
        assert step is not None
        if step.call not in _CALLS:
            raise Inexpressible(f"it needs the call {step.call}")
        self._settle()
        self._writer.say("turn();")
        _CALLS[step.call](self._writer, step)
        self._tell_values()
        self.lines.append(f'device_step("{step.title}")')

    def _op(self, event: Event) -> None:
        for key, what in (("counts", "MSN"), ("tclass", "traffic class")):
            if key in event.numbers:
                raise Inexpressible(f"its script would have to see the {what} of answers")
        numbers = {key: _python(quantity) for key, quantity in event.numbers.items()}
        quantities = dict(event.numbers)
        names = dict(event.names)
        again = numbers.pop("again", "")
        number = len(self._packets) + 1
        if again:
            first = int(again) - 1
            earlier = self._packets[first]
            numbers = {**self._numbers[first], **numbers}
            quantities = {**earlier.numbers, **quantities}
            names = {**earlier.names, "lost": (), **names, "gets": event.names.get("gets", ())}
        self._packets.append(event)
        self._numbers.append(numbers)
        gets = names.get("gets", ())
        arguments = [f'"{event.word}"']
        if gets:
            arguments.append(f'"{"|".join(gets)}"')
        if again:
            arguments.append(f"again={again}")
        transport = names.get("transport", (self._kind,))[0]
        if transport not in ("RC", "UC"):
            raise Inexpressible(f"it sends packets of {transport}")
        if transport != "RC":
            arguments.append(f'transport="{transport}"')
        if "icrc" in names:
            arguments.append(f'crc="{names["icrc"][0]}"')
        elif event.word == "FLUSH":
            arguments.append("crc=FLUSH_CRC")
        if names.get("lost"):
            arguments.append("lost=True")
        arguments += self._content(event, quantities, number, again, gets)
        arguments += self._fields(event, numbers)
        self.lines += _wrapped(f"op({', '.join(arguments)})")

    def _content(
        self,
        event: Event,
        quantities: Mapping[str, Quantity],
        number: int,
        again: str,
        gets: tuple[str, ...],
    ) -> list[str]:
        """Lets the program tell the bytes that a response must have. Returns the argument."""
        if event.word not in (_READ, *_ATOMICS):
            return []
        compares = event.word == _COMPARE and "compare" not in quantities
        if RESPONSE not in gets and not compares:
            return []
        if event.word in _ATOMICS and again:
            # A repeated atomic returns the value that it returned first.
            return [f"content=content_{again}"]
        length = quantities.get("length")
        if length is None and event.word == _READ:
            return ['content=""']
        arguments = self._content_of(quantities, length if event.word == _READ else None, number)
        if compares:
            word = f"int.from_bytes(bytes.fromhex(content_{number}), sys.byteorder)"
            arguments.append(f"compare={word}")
        return arguments

    def _content_of(
        self, quantities: Mapping[str, Quantity], length: Quantity | None, number: int
    ) -> list[str]:
        """Lets the program tell `length` bytes, by default a word, where a request reads. Returns the argument."""
        at = quantities.get("at", quantities.get("addr"))
        if at is None:
            return ['content=""']
        size = str(_WORD) if length is None else self._writer.number(length)
        self._writer.say("turn();")
        self._writer.say(f"bytes({self._writer.pointer(at)}, {size});")
        self.lines.append(f'content_{number} = turn()[0].strip("-")')
        return [f"content=content_{number}"]

    def _fields(self, event: Event, numbers: Mapping[str, str]) -> list[str]:
        """Returns the header fields of a packet, and its number of bytes of data, as arguments."""
        fields = {key: text for key, text in numbers.items() if key not in ("addr", "at")}
        if "addr" in numbers:
            fields["va"] = numbers["addr"]
        if "data" not in fields:
            if event.word == "ATOMIC_WRITE":
                fields["data"] = str(_WORD)
            elif event.word.endswith(_MORE_FOLLOWS):
                fields["data"] = 'value["mtu"]'
            elif operation_of(event.word).data:
                fields["data"] = fields.get("length", "0")
        fields.setdefault("length", fields.get("data", "0"))
        fields.setdefault("ackreq", str(int(not event.word.endswith(_MORE_FOLLOWS))))
        return [f"{key}={text}" for key, text in fields.items()]

    def _changed(self, event: Event) -> None:
        numbers = {key: _python(quantity) for key, quantity in event.numbers.items()}
        at = numbers["changed"]
        if "holds" in numbers or "add" in numbers:
            if "add" in numbers:
                value = f"word_at({at}) + {numbers['add']}"
            else:
                value = numbers["holds"]
            self._changes.append(f"({at}, ({value}).to_bytes({_WORD}, sys.byteorder))")
            return
        data = f"pattern({numbers.get('offset', '0')}, {numbers['length']})"
        self._changes.append(f"({at}, {data})")

    def _finish(self) -> None:
        writer = self._writer
        for name, property_ in self._values:
            try:
                writer.names.of(name, property_)
            except KeyError as error:
                raise Inexpressible(f"a packet needs {name}.{property_}") from error
        self._settle()
        writer.say("turn();")
        memories = list(writer.memories)
        writer.say(f'puts("done {" ".join(memories)}");')
        for name in memories:
            writer.say("turn();")
            writer.say(f"bytes({identifier(name)}, {writer.names.of(name, 'size')});")
        changes = "\n".join(f"        {change}," for change in self._changes)
        free = ", ".join(self._free)
        if changes:
            self.lines += [
                "finish(",
                "    [",
                *changes.splitlines(),
                "    ],",
                f"    [{free}],",
                ")",
            ]
        else:
            self.lines.append(f"finish([], [{free}])")

    def script(self, rules: Mapping[str, Rule]) -> str:
        """Returns the text of the script."""
        case = self._writer.case
        rule = rules[case.rules[0]]
        about = textwrap.fill(
            f"The tested rule {rule.id}: {rule.statement} Case {case.id} of rdma-cts.", _WIDTH
        )
        text = _template("peer_segments.py" if self._stream else "peer_packets.py")
        text = text.replace("@about", about.replace('"""', "'''"))
        first, device = (f"{psn:#x}" for psn in self._first_psns)
        text = text.replace(_PSNS, f"FIRST_PSN, DEVICE_PSN = {first}, {device}")
        return f"{text}{chr(10).join(self.lines)}\n"


def _template(part: str) -> str:
    """Returns the text of a script before its steps: the common text, and that of a protocol."""
    common, own = ((_SNIPPETS / name).read_text(encoding="utf-8") for name in ("peer.py", part))
    head, _, body = own.partition(_BELOW)
    imports: set[str] = set()
    for text in (common, head):
        block = _IMPORTS.search(text)
        assert block
        imports |= {*block[0].splitlines(True)}
    errors = "".join(f'    {numbers}: "{name}",\n' for name, numbers in TERMINATES.items())
    body = body.replace(_ERRORS, f"ERRORS = {{\n{errors}}}\n")
    return f"{_IMPORTS.sub(''.join(sorted(imports)), common, count=1)}\n{body}"


def _has_data(operation: str) -> bool:
    return operation not in SEGMENTS or SEGMENTS[operation].data


def _quoted(word: str) -> str:
    return f'"{word}"'


def _header_fields(event: Event) -> list[str]:
    """Returns the fields of a packet as arguments."""
    fields = {key: _python(quantity) for key, quantity in event.numbers.items()}
    for key, name in (("addr", "va"), ("from", "source")):
        if key in fields:
            fields[name] = fields.pop(key)
    return [f"{key}={text}" for key, text in fields.items()]


def _wrapped(call: str) -> list[str]:
    """Returns the lines of a call, without a new line within a word."""
    return textwrap.wrap(
        call,
        _WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _values_of(case: Case) -> list[tuple[str, str]]:
    """Returns the properties of regions and windows in the packets of a case."""
    values: dict[tuple[str, str], None] = {}
    events = case.when.arguments["packets"]
    assert isinstance(events, tuple)
    for event in events:
        assert isinstance(event, Event)
        for quantity in event.numbers.values():
            for name, property_ in quantity.names:
                if name not in case.given.memory:
                    values[name, property_ or "addr"] = None
    return list(values)


def _python(quantity: Quantity) -> str:
    """Returns a quantity as an expression of the script."""
    texts: list[str] = []
    for term in quantity.terms:
        if term.name == "SIZE_MAX":
            text = "0xFFFFFFFFFFFFFFFF"
        elif term.name:
            if term.property in ("size", "end"):
                raise Inexpressible("a packet depends on the size of memory")
            text = f'value["{term.name}.{term.property or "addr"}"]'
        elif term.unit in PAGES:
            text = f'{term.number} * value["page"]'
        elif term.unit in HUGE_PAGES:
            raise Inexpressible("a packet depends on the size of huge pages")
        else:
            text = _number(term.number * UNITS.get(term.unit, 1))
        sign = "-" if term.sign < 0 else "+"
        texts.append(f"{sign} {text}")
    joined = " ".join(texts).removeprefix("+ ")
    return joined or "0"


def _number(number: int) -> str:
    if number > 1 << 16:
        return f"{number:#x}"
    return str(number)
