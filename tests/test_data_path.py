"""The alterations of the data path, on a provider made of Python functions that moves bytes within this process."""

import ctypes
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.bench.calls import IbvMr, Mr, Return
from conformance.errors import UserError
from conformance.tables.suite import load_suite
from conformance.tables.tiers import DEFAULT, of_tier
from trial.data_path import structures as wire
from trial.data_path.alteration import DataPath
from trial.data_path.memory import content_at, put
from trial.data_path.operations import FUNCTIONS
from trial.mutant_table import mutants_of
from trial.mutants.data_path import DATA_PATH_ALTERATIONS
from trial.trying import KILLED, SURVIVED, try_violation
from trial.violation import Violation

_REQUESTER, _RESPONDER = 1, 2
_LOCAL, _REMOTE, _ALL = 0x100, 0x200, 0xF


class Provider:
    """A struct ibv_context with a requester and a responder; their requests are executed when they are posted."""

    def __init__(self) -> None:
        self.context = (ctypes.c_uint64 * 64)()
        self.at = ctypes.addressof(self.context)
        self.memory = ctypes.create_string_buffer(bytes(range(256)) * 64)
        self.local, self.remote = ctypes.addressof(self.memory), ctypes.addressof(self.memory) + 8192
        self.done: list[wire.WorkCompletion] = []
        self.keys = {_REMOTE}
        self.windows: list[Any] = []
        functions: dict[str, Callable[..., int]] = {
            "alloc_mw": lambda pd, kind: 0,
            "bind_mw": lambda qp, window, request: 0,
            "dealloc_mw": lambda window: 0,
            "poll_cq": self.poll_cq,
            "post_send": self.post_send,
            "post_recv": self.post_recv,
        }
        self.functions = {name: kind(functions[name]) for name, (_, kind) in FUNCTIONS.items()}
        for name, (index, _) in FUNCTIONS.items():
            self.context[1 + index] = ctypes.cast(self.functions[name], ctypes.c_void_p).value or 0
        self.queues = {number: self._queue(number) for number in (_REQUESTER, _RESPONDER)}
        self.receives: list[int] = []

    def _queue(self, number: int) -> Any:
        # struct ibv_qp: context, qp_context, pd, three queues, handle, qp_num, state, qp_type (RC)
        words = (ctypes.c_uint64 * 8)(self.at, 0, 77, 0, 0, 0, number << 32, 2 << 32)
        return words

    def pointer(self, number: int) -> int:
        return ctypes.addressof(self.queues[number])

    def post_send(self, qp: int, address: int, bad: int) -> int:
        request = wire.SendRequest.from_address(address)
        wc = wire.WorkCompletion(wr_id=request.wr_id, qp_num=_REQUESTER)
        elements = wire.elements_at(request.elements or 0, request.count)
        length = sum(each.length for each in elements)
        if length and request.opcode not in wire.SENDS and request.rkey not in self.keys:
            wc.status = wire.REM_ACCESS_ERR
        elif request.opcode == wire.WRITE and length:
            put(request.remote_addr, content_at(elements[0].addr, length) or b"")
        elif request.opcode == wire.READ:
            put(elements[0].addr, content_at(request.remote_addr, length) or b"")
        elif request.opcode in wire.SENDS and self.receives:
            self.done.append(wire.WorkCompletion(wr_id=self.receives.pop(0), qp_num=_RESPONDER, opcode=wire.RECV))
        wc.opcode = wire.COMPLETED_AS[request.opcode]
        self.done.insert(0, wc)
        return 0

    def post_recv(self, qp: int, address: int, bad: int) -> int:
        self.receives.append(wire.ReceiveRequest.from_address(address).wr_id)
        return 0

    def poll_cq(self, cq: int, count: int, address: int) -> int:
        if not self.done:
            return 0
        ctypes.memmove(address, bytes(self.done.pop(0)), ctypes.sizeof(wire.WorkCompletion))
        return 1

    # The calls of a program

    def call(self, name: str, *arguments: int) -> int:
        index, kind = FUNCTIONS[name]
        return int(kind(self.context[1 + index])(*arguments))

    def send(self, opcode: int, length: int = 0, rkey: int = _REMOTE) -> int:
        element = wire.Element(self.local, length, _LOCAL)
        request = wire.SendRequest(wr_id=9, opcode=opcode, count=1 if length else 0, flags=wire.SIGNALED)
        request.elements = ctypes.addressof(element) if length else None
        request.remote_addr, request.rkey = self.remote, rkey
        bad = ctypes.c_uint64()
        return self.call("post_send", self.pointer(_REQUESTER), ctypes.addressof(request), ctypes.addressof(bad))

    def receive(self) -> None:
        request, bad = wire.ReceiveRequest(wr_id=3), ctypes.c_uint64()
        self.call("post_recv", self.pointer(_RESPONDER), ctypes.addressof(request), ctypes.addressof(bad))

    def poll(self) -> wire.WorkCompletion:
        wc = wire.WorkCompletion()
        assert self.call("poll_cq", 0, 1, ctypes.addressof(wc)) == 1
        return wc

    def content(self, length: int) -> bytes | None:
        return content_at(self.remote, length)


@pytest.fixture
def provider() -> Provider:
    return Provider()


@pytest.fixture
def altered(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], DataPath]]:
    """Installs an alteration by its name, on two connected queue pairs with a region on each side."""
    installed: list[DataPath] = []

    def install(name: str) -> DataPath:
        kind = next((each.kind for each in DATA_PATH_ALTERATIONS if each.name == name), DataPath)
        alteration = kind()
        monkeypatch.setattr(alteration, "ready", lambda queue: True)
        pd = SimpleNamespace(context_pointer=provider.at, pointer=77, close=lambda: None)
        ends = [SimpleNamespace(number=number, pd=pd) for number in (_REQUESTER, _RESPONDER)]
        real: Any = SimpleNamespace(
            alloc_pd=lambda: pd, pair=lambda *_: SimpleNamespace(requester=ends[0], responder=ends[1])
        )
        bench = alteration.bench(real)
        bench.pair(None, pd, pd)
        for key, addr in ((_LOCAL, provider.local), (_REMOTE, provider.remote)):
            struct = IbvMr(lkey=key, rkey=key, addr=addr, length=4096)
            entry: Any = SimpleNamespace(
                reg_mr=lambda *_, made=struct: Return(1, 0, Mr(made)), dereg_mr=lambda mr: Return(0, 0)
            )
            alteration.register(entry, "reg_mr", pd, (addr, 4096), _ALL)
        installed.append(alteration)
        return alteration

    yield install
    for each in installed:
        each.restore()
        assert each.faults == []


def test_nothing_changes_without_an_alteration(provider: Provider, altered: Callable[[str], DataPath]) -> None:
    altered("none")
    before = content_at(provider.local, 100)
    assert provider.send(wire.WRITE, 100) == 0
    wc = provider.poll()
    assert (wc.wr_id, wc.status, wc.opcode, provider.content(100)) == (9, wire.SUCCESS, 1, before)


def test_the_real_functions_are_put_back(provider: Provider, altered: Callable[[str], DataPath]) -> None:
    real = list(provider.context)
    alteration = altered("none")
    assert list(provider.context) != real
    alteration.restore()
    assert list(provider.context) == real


@pytest.mark.parametrize("name", [each.name for each in DATA_PATH_ALTERATIONS])
def test_no_alteration_fails_by_itself(name: str, provider: Provider, altered: Callable[[str], DataPath]) -> None:
    altered(name)
    provider.receive()
    for opcode in wire.COMPLETED_AS:
        provider.send(opcode, 8 if opcode in (wire.WRITE, wire.READ, *wire.ATOMICS) else 0)
    provider.send(wire.WRITE, 2000)
    provider.send(wire.READ, 3, rkey=5)
    wc = wire.WorkCompletion()
    while provider.done:
        provider.call("poll_cq", 0, 1, ctypes.addressof(wc))


def test_absent_memory_is_neither_read_nor_written() -> None:
    assert content_at(16, 4) is None
    assert put(16, b"abcd") is False


def _tried(violation: Violation, *rules: str) -> str:
    cases = [case for case in of_tier(load_suite().cases, DEFAULT) if set(rules) & set(case.rules) and not case.sweep]
    assert cases
    return try_violation(violation, cases).outcome


def test_cases_pass_on_the_reference_behind_unaltered_functions() -> None:
    nothing = Violation("nothing", "REG-20", "Nothing is altered.", DataPath)
    assert _tried(nothing, "REG-20", "BIND-02", "BIND-15", "REG-07") == SURVIVED


@pytest.mark.parametrize(
    "name",
    ["writes-arrive-late", "new-value-returned", "ended-key-reads", "refused-reads-leak", "failed-binds-succeed"],
)
def test_alterations_on_the_reference_are_seen_by_the_cases_of_their_rule(name: str) -> None:
    violation = next(each for each in DATA_PATH_ALTERATIONS if each.name == name)
    assert _tried(violation, violation.rule) == KILLED


class Made:
    """The class that the rows of these tests change."""

    size = 1

    def __init__(self) -> None:
        self.setup()

    def setup(self) -> None:
        """Does nothing: the class has no state."""

    def answer(self, number: int, unit: int = 1) -> int:
        """Returns a multiple of the size."""
        return number * unit * self.size


def made(folder: Path, text: str) -> Iterator[Violation]:
    """The mutants of a package that has only this table."""
    (folder / "topic.yaml").write_text(text)
    package = types.ModuleType("package")
    package.__file__ = str(folder / "__init__.py")
    return mutants_of(package, Made, ())


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ("R-1 answer: 7", 7),
        ("R-1 answer: was + 1", 31),
        ("R-1 answer: was(unit=unit + 1) if number > 5 else was", 40),
        ("R-1 answer: |\n    found = was\n    return found - EPERM", 29),
        ("R-1 Made.size: 2", 60),
        ("R-1 answer: was * self.kept\n  setup: self.kept = 3", 90),
    ],
)
def test_a_row_replaces_members(tmp_path: Path, row: str, answer: int) -> None:
    (violation,) = made(tmp_path, f"- some-name: A sentence.\n  {row}\n")
    assert (violation.name, violation.rule, violation.about) == ("some-name", "R-1", "A sentence.")
    assert violation.kind().answer(10, 3) == answer


def test_marks_of_a_row(tmp_path: Path) -> None:
    row = "- one: A sentence.\n  R-1 permitted answer: 7\n- two: Another.\n  R-2 blind answer: 8\n"
    found = list(made(tmp_path, row + "  also: [R-3, R-4 blind three]\n"))
    assert [(each.name, each.rule, each.written, each.permitted) for each in found] == [
        ("one", "R-1", "", True),
        ("two", "R-2", "blind", False),
        ("two", "R-3", "", False),
        ("three", "R-4", "blind", False),
    ]


@pytest.mark.parametrize(
    ("row", "place", "message"),
    [
        ("R-1 answer: nummer", ":2:15:", "unknown name 'nummer'"),
        ("R-1 answer: 7 +", ":2:15:", "not Python"),
        ("R-1 anwser: 7", ":1:3:", "no rule and method: 'R-1 anwser'"),
        ("R-1 seen answer: 7", ":1:3:", "no rule and method"),
        ("R-1 answer: 7\n  sice: 2", ":1:3:", "Made has no 'sice'"),
        ("also: R-2", ":1:3:", "a mutant is NAME: SENTENCE"),
    ],
)
def test_a_mistake_is_located(tmp_path: Path, row: str, place: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        list(made(tmp_path, f"- some-name: A sentence.\n  {row}\n"))
    assert place in raised.value.message
    assert message in raised.value.message
