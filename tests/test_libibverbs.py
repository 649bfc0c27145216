"""Tests of the device layer without a device. A stub of libibverbs prints the arguments of its calls: the calls are
issued in a process that loads the stub in place of the real library. Attributes, deadlines and asynchronous events of
queue pairs are tested on objects that the tests make."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast
from unittest.mock import ANY

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.bench.calls import ABSENT, Return, Sge
from conformance.device import bench, qp_states
from conformance.device.libibverbs import Libibverbs, clear_errno
from conformance.device.native_exchange import NativeConnection
from conformance.device.qp_states import events_of, modify_to, transitions
from conformance.device.queue_kinds import pair_type
from conformance.device.queue_pairs import DATAGRAM_QKEY, DeviceQueue
from conformance.device.uverbs import Uverbs
from conformance.model.case import QpSpec
from conformance.model.deadline import CASE_DEADLINE_S, COMPLETION_DEADLINE_S, completion_deadline_s
from conformance.model.transport import ROCE
from conformance.older_python import zip
from conformance.tables.suite import ROOT
from kinds import Patch

STUB = Path(__file__).with_name("stub_libibverbs.c").read_text()


@pytest.fixture(scope="session", params=["mainline", "vendor"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns the folder of the stub; the vendor's stub also exports the experimental call."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "vendor":
        options = ["-DEXPERIMENTAL"]
    else:
        options = []
    return built(folder, STUB, *options)


def built(folder: Path, stub: str, *options: str) -> Path:
    (folder / "stub.c").write_text(stub)
    command = ["cc", "-w", "-shared", "-fPIC", *options, "-o", "libibverbs.so.1", "stub.c"]
    subprocess.run(command, cwd=folder, check=True)
    return folder


PRELUDE = """
import json
from types import SimpleNamespace
from conformance.device.libibverbs import Libibverbs, clear_errno
from conformance.bench.calls import IbvMr, Mr
pd = SimpleNamespace(pointer=77)
def show(returned):
    print(json.dumps([returned.value != 0 if returned.mr else returned.value, returned.errno,
                      returned.mr.fields() if returned.mr else None, returned.layer]), flush=True)
"""


def calls(library: Path, *expressions: str, dialect: str | None = None) -> list[tuple[str, Any]]:
    """Issues calls on the stub. Returns, for each call, the stub's arguments and the result that the suite returned."""
    code = "".join(f"\nmr = Mr(IbvMr(), 99)\nshow({expression})" for expression in expressions)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", f"{PRELUDE}library = Libibverbs({dialect!r}){code}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    calls_seen = re.findall(r"((?:^[^\[].*\n)*)^(\[.*)\n", done.stdout, flags=re.MULTILINE)
    return [(received.strip(), json.loads(result)) for received, result in calls_seen]


FIELDS = {"addr": 3, "length": 4, "handle": 5, "lkey": 6, "rkey": 7}
# Calls, with the arguments that the stub must receive, and the result that the suite must return.
CALLS: list[tuple[str, Any, Any]] = [
    (
        "library.reg_mr(pd, 0, 4096, 1)",
        "ibv_reg_mr 77 0 4096 0 1",
        [True, 0, FIELDS, "kernel"],
    ),  # address zero is null
    ("library.reg_mr(pd, 4096, 2**64 - 1, 0)", f"ibv_reg_mr 77 4096 {2**64 - 1} 0 0", ANY),
    # With optional flags, the suite calls the function that the header's macro calls.
    (
        "library.reg_mr(pd, 4096, 8, 1 | 1 << 20)",
        f"ibv_reg_mr_iova2 77 4096 8 4096 {1 | 1 << 20}",
        ANY,
    ),
    (
        "library.reg_mr_iova(pd, 4096, 8, 16, 1 << 29)",
        f"ibv_reg_mr_iova2 77 4096 8 16 {1 << 29}",
        ANY,
    ),
    (
        "library.reg_mr_iova(pd, 4096, 8, 16, 1 << 31)",
        f"ibv_reg_mr_iova 77 4096 8 16 {1 << 31}",
        ANY,
    ),
    ("library.reg_mr(pd, 4096, 8, 2)", ANY, [0, 22, None, "kernel"]),  # null and errno
    ("library.reg_dmabuf_mr(pd, 5, 6, 7, -1, 1)", "fd -1 ibv_reg_dmabuf_mr 77 5 6 7 1", ANY),
    ("library.dereg_mr(mr)", ANY, [16, 1, None, "kernel"]),  # the returned code is not errno
    ("library.rereg_mr(mr, 8, None, 0, 0, 0)", ANY, [-1, 22, None, "libibverbs"]),
    ("library.rereg_mr(mr, 2, None, 0, 0, 0)", ANY, [-4, 22, None, "kernel"]),
]


def test_arguments_and_results_are_passed_unchanged(library: Path) -> None:
    calls_seen = calls(library, *(expression for expression, _, _ in CALLS))
    assert calls_seen == [(arguments, result) for _, arguments, result in CALLS]


@pytest.mark.parametrize(
    ("addr", "length", "access", "code", "layer"),
    [
        (4096, 2**64 - 1, 0x41, errno.EINVAL, "libibverbs"),
        (0, 2**64 - 1, 0x41, errno.EINVAL, "kernel"),
        (4096, 2**64 - 1, 0x1, errno.EINVAL, "kernel"),
        (4096, 4096, 0x41, errno.EINVAL, "kernel"),
        (4096, 2**64 - 1, 0x41, errno.ENOMEM, "kernel"),
    ],
)
def test_libibverbs_itself_refuses_an_implicit_region_at_an_address(
    addr: int, length: int, access: int, code: int, layer: str
) -> None:
    refused = Return(0, code, layer="kernel")
    entry = cast(Any, SimpleNamespace(name="libibverbs"))
    assert Libibverbs._by_its_layer(entry, refused, addr, length, access).layer == layer


def test_an_object_refused_without_errno_is_not_refused_with_an_earlier_errno() -> None:
    location = ctypes.CDLL(None).__errno_location
    location.restype = ctypes.POINTER(ctypes.c_int)
    location()[0] = errno.EBUSY
    clear_errno()
    assert location()[0] == 0


def test_calls_that_an_older_library_lacks_are_not_offered(tmp_path: Path) -> None:
    source = STUB.replace("ibv_reg_dmabuf_mr(void", "another(void").replace(
        "ibv_reg_mr_iova2(void",
        "yet_another(void",
    )
    expressions = (
        "library.reg_dmabuf_mr(pd, 5, 6, 7, -1, 1)",
        "library.reg_mr(pd, 4096, 8, 1 << 20)",
    )
    dmabuf, plain = calls(built(tmp_path, source), *expressions)
    assert dmabuf == ("", [0, 95, None, "libibverbs"])
    assert plain[0] == f"ibv_reg_mr_iova 77 4096 8 4096 {1 << 20}"


def test_the_experimental_call_is_found_only_if_the_library_exports_it(library: Path) -> None:
    expression = "library.experimental_rereg_mr(mr, 4, pd, 0, 0, 1 << 40)"
    if library.name.startswith("vendor"):
        [(seen, result)] = calls(library, expression)
        assert seen == f"ibv_exp_rereg_mr 4 77 {1 << 40:x} 1"
        assert result[:2] == [13, 0]
    else:
        with pytest.raises(subprocess.CalledProcessError):
            calls(library, expression)


def test_the_dialect_calls_ibv_rereg_mr_with_an_attr_of_null(library: Path) -> None:
    expression = "library.experimental_rereg_mr(mr, 4, pd, 0, 12, 0)"
    [(seen, result)] = calls(library, expression, dialect="experimental")
    assert seen == "ibv_rereg_mr 4 77 12 1"
    assert result[:2] == [-4, 22]


PD: Any = SimpleNamespace(handle=0x12345678, pointer=1, context_pointer=2)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Records the issued ioctls. Each succeeds, and the created object gets the handle 7."""
    messages: list[bytes] = []

    def ioctl(_: int, number: int, data: bytearray, mutate: bool) -> int:
        assert (number, mutate) == (0xC0181B01, True)
        messages.append(bytes(data))
        struct.pack_into("=Q", data, 24 + 8, 7)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    return messages


def attributes(command: bytes) -> dict[int, tuple[int, bytes]]:
    """Returns the size of each attribute, and its field of eight bytes."""
    length, *_ = struct.unpack_from("=HHHHQII", command)
    assert length == len(command)
    every = struct.iter_unpack("=HHHH8s", command[24:])
    return {number: (size, field) for number, size, _, _, field in every}


def test_a_value_of_four_bytes_is_in_the_first_bytes_of_its_field(sent: list[bytes]) -> None:
    region = Uverbs(3, 14).reg_dmabuf_mr(PD, 5, 6, 7, -1, 0x01020304).mr
    assert region is not None
    assert region.handle == 7
    (command,) = sent
    fields = attributes(command)
    assert fields[5] == (4, b"\xff\xff\xff\xff\0\0\0\0")
    assert fields[6] == (4, (0x01020304).to_bytes(4, sys.byteorder) + bytes(4))
    assert fields[1] == (0, PD.handle.to_bytes(8, sys.byteorder))
    assert fields[3] == (8, (6).to_bytes(8, sys.byteorder))


def test_advice_has_a_constant_of_eight_bytes_and_flags_of_four(sent: list[bytes]) -> None:
    assert Uverbs(3, 14).advise_mr(PD, 2, 1, [Sge(1, 2, 3)]).value == 0
    fields = attributes(sent[0])
    assert fields[1] == (8, (2).to_bytes(8, sys.byteorder))
    assert fields[2] == (4, (1).to_bytes(4, sys.byteorder) + bytes(4))
    assert fields[3][0] == 16


def test_without_a_driver_id_of_the_kernel_no_ioctl_is_issued(sent: list[bytes]) -> None:
    uverbs = Uverbs(3, 0)
    for returned in (uverbs.advise_mr(PD, 0, 0, ()), uverbs.reg_dmabuf_mr(PD, 0, 1, 0, 3, 0)):
        assert (returned.value, returned.errno, returned.mr) == (
            errno.EPROTONOSUPPORT,
            errno.EPROTONOSUPPORT,
            None,
        )
        assert returned.errno in ABSENT
    assert sent == []


# Queue pairs

PEER, AH = 17, 0x5000


@pytest.fixture
def bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, classes in {
        "pyverbs": (),
        "pyverbs.qp": ("QPAttr",),
        "pyverbs.addr": ("AH", "AHAttr", "GlobalRoute"),
    }.items():
        module = ModuleType(name)
        for class_ in classes:
            setattr(module, class_, lambda *_, **attributes: SimpleNamespace(**attributes))
        monkeypatch.setitem(sys.modules, name, module)


def queue(kind: str = "RC", deadline_s: float = 1.0) -> Any:
    """Returns a queue pair of this type without a device. Its `awaited` has the deadlines of waits for completions."""
    device_queue: Any = object.__new__(DeviceQueue)
    device_queue.kind, device_queue.spec, device_queue.deadline_s = (
        kind,
        QpSpec(kind, "pd"),
        deadline_s,
    )
    device_queue.pd = SimpleNamespace(pyverbs=None, pointer=0x4000)
    device_queue.attributes, device_queue.awaited = None, []
    device_queue.poster = SimpleNamespace(
        qp=0,
        completions=lambda count, deadline_s: device_queue.awaited.append(deadline_s) or [],
    )
    pointers = SimpleNamespace(of=lambda *_, **attributes: AH, attributes=lambda attributes: 0)
    device_queue.device = SimpleNamespace(
        pointers=pointers,
        port=1,
        active_mtu=3,
        gid="gid",
        source_gid_index=0,
        lid=0,
        uses_grh=True,
        pkey_index=0,
        capabilities={"atomics": True},
        transport=ROCE,
    )
    return device_queue


@pytest.mark.usefixtures("bindings")
def test_datagrams_have_the_queue_key_of_their_receiver() -> None:
    datagrams = queue("UD")
    datagrams._create_address_handle(PEER)
    assert datagrams.connection_attributes(PEER).qkey == DATAGRAM_QKEY
    assert datagrams._destination == (AH, PEER, DATAGRAM_QKEY)
    assert DATAGRAM_QKEY == 0x11111111
    assert not DATAGRAM_QKEY >> 31, "a key that needs privileges"


@pytest.mark.usefixtures("bindings")
def test_the_path_leads_to_the_device_of_the_peer() -> None:
    device_queue = queue("RC")
    attributes = device_queue.connection_attributes(PEER)
    assert (attributes.path_mtu, attributes.ah_attr.gr.dgid, attributes.ah_attr.gr.sgid_index) == (
        3,
        "gid",
        0,
    )
    device_queue.remote = SimpleNamespace(active_mtu=1, gid="other gid", source_gid_index=5, lid=9)
    across = device_queue.connection_attributes(PEER)
    assert (across.path_mtu, across.ah_attr.gr.dgid, across.ah_attr.gr.sgid_index) == (
        1,
        "other gid",
        0,
    )
    assert (across.ah_attr.dlid, across.ah_attr.port_num) == (9, 1)


@pytest.mark.usefixtures("bindings")
@pytest.mark.parametrize("used", [False, True])
def test_the_path_has_a_global_route_or_none(used: bool) -> None:
    device_queue = queue("RC")
    vars(device_queue.device)["uses_grh"] = used
    path = device_queue.connection_attributes(PEER).ah_attr
    assert (path.is_global, hasattr(path, "gr")) == (int(used), used)


@pytest.mark.parametrize(
    ("kind", "masks"),
    [
        # The bits of enum ibv_qp_attr_mask that ibv_modify_qp(3) requires for INIT, RTR and RTS.
        ("RC", ((0, 3, 4, 5), (0, 7, 8, 12, 15, 17, 20), (0, 9, 10, 11, 13, 16))),
        ("UC", ((0, 3, 4, 5), (0, 7, 8, 12, 20), (0, 16))),
        ("UD", ((0, 4, 5, 6), (0,), (0, 16))),
        ("XRC_SEND", ((0, 3, 4, 5), (0, 7, 8, 12, 20), (0, 9, 10, 11, 13, 16))),
        ("XRC_RECV", ((0, 3, 4, 5), (0, 7, 8, 12, 15, 17, 20))),
    ],
)
def test_each_transition_sets_the_attributes_that_the_manual_page_requires(
    kind: str,
    masks: tuple[tuple[int, ...], ...],
) -> None:
    expected = []
    for state, bits in zip((1, 2, 3), masks, strict=False):
        expected.append((state, sum(1 << bit for bit in bits)))
    assert transitions(kind) == expected
    assert all(type(mask) is int for _, mask in transitions(kind)), "the masks are passed to C"


@pytest.mark.parametrize(
    ("since", "to", "expected"),
    [
        ("RESET", "RTS", [1, 2, 3]),
        ("INIT", "RTS", [2, 3]),
        ("RTR", "RTS", [3]),
        ("RTS", "RTS", []),
        ("RTS", "ERR", [6]),
        ("RESET", "INIT", [1]),
    ],
)
def test_a_queue_pair_is_moved_from_its_current_state(
    since: str,
    to: str,
    expected: list[int],
) -> None:
    taken: list[int] = []
    attributes = SimpleNamespace(qp_state=0)
    qp = SimpleNamespace(modify=lambda attributes, mask: taken.append(attributes.qp_state))
    modify_to(qp, "RC", attributes, to, since)
    assert taken == expected


QP, OTHER = 0x1000, 0x2000


class Events:
    """ibv_get_async_event and ibv_ack_async_event on a struct ibv_context with the read end of a pipe."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()
        self._context = ctypes.create_string_buffer(512)
        self.context = ctypes.addressof(self._context)
        # cmd_fd and async_fd follow the device and the 32 functions of the provider.
        (ctypes.c_int * 2).from_address(self.context + 33 * 8)[:] = [-1, self.reader]
        self.acknowledged: list[tuple[int, int]] = []

    def write(self, qp: int, kind: int) -> None:
        os.write(self.writer, bytes([qp >> 8, kind]))

    def ibv_get_async_event(self, context: int, address: int) -> int:
        assert context == self.context
        high, kind = os.read(self.reader, 2)
        event = qp_states._Event.from_address(address)
        event.element, event.type = high << 8, kind
        return 0

    def ibv_ack_async_event(self, address: int) -> None:
        event = qp_states._Event.from_address(address)
        self.acknowledged.append((event.element, event.type))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Iterator[Events]:
    stand_in = Events()
    monkeypatch.setattr(qp_states, "_library", lambda: stand_in)
    yield stand_in
    os.close(stand_in.reader)
    os.close(stand_in.writer)


def test_each_event_is_acknowledged_and_the_events_of_the_queue_pair_are_named(
    events: Events,
) -> None:
    assert events_of(QP, events.context) == [], "the call does not wait"
    for qp, kind in ((QP, 3), (OTHER, 1), (QP, 16), (QP, 99)):
        events.write(qp, kind)
    assert events_of(QP, events.context) == ["QP_ACCESS_ERR", "QP_LAST_WQE_REACHED", "event 99"]
    assert events.acknowledged == [(QP, 3), (OTHER, 1), (QP, 16), (QP, 99)]
    assert events_of(QP, events.context) == [], "each event is reported once"


# The deadline of a completion


@given(st.floats(1e-6, 1e9))
def test_a_case_deadline_is_longer_than_the_waits_for_several_missing_completions(
    deadline: float,
) -> None:
    assert 0 < completion_deadline_s(deadline) <= COMPLETION_DEADLINE_S
    assert 5 * completion_deadline_s(deadline) < deadline


def test_a_queue_waits_for_a_completion_until_its_deadline_or_a_given_deadline() -> None:
    device_queue = queue(deadline_s=1.5)
    assert (
        device_queue.completions()
        == device_queue.completions(1, 0.25)
        == device_queue.completions(1, 0.0)
        == []
    )
    assert device_queue.awaited == [1.5, 0.25, 0.0]


def test_exchanges_in_c_wait_for_a_completion_as_long_as_the_queues() -> None:
    struct = NativeConnection(
        queue(deadline_s=1.5),
        queue(deadline_s=2.5),
        0.5,
        renewable=False,
        by_reset=True,
    )._struct
    assert (struct.send_timeout, struct.receive_timeout, struct.silence) == (
        1_500_000_000,
        2_500_000_000,
        500_000_000,
    )


@pytest.mark.parametrize(
    ("kind", "extended", "pair"),
    [
        ("RC", "", "DevicePair"),
        ("UD", "", "DevicePair"),
        ("XRC", "", "XrcPair"),
        ("RC_SRQ", "", "SharedReceivesPair"),
        ("RC", "FLUSH", "ExtendedPair"),
        ("UC", "wr_post", "ExtendedPair"),
    ],
)
def test_the_bench_passes_the_deadline_to_each_pair(
    kind: str,
    extended: str,
    pair: str,
    monkeypatch: Patch,
) -> None:
    pairs: list[Any] = []

    def recording(spec: Any) -> Any:
        return lambda *arguments: pairs.append((pair_type(spec).__name__, *arguments))

    monkeypatch.setattr(bench, "pair_type", recording)
    some: Any = object.__new__(bench.DeviceBench)
    some.device, some._completion_deadline_s = "device", 1.5
    spec = SimpleNamespace(kind=kind, extended=extended, wire="")
    some.pair(spec, "requester", "responder")
    assert pairs == [(pair, "device", spec, "requester", "responder", 1.5)]


def test_the_default_deadline_of_a_completion_is_the_longest() -> None:
    assert completion_deadline_s(CASE_DEADLINE_S) == COMPLETION_DEADLINE_S
