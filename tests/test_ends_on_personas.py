"""What ends a run before its first case, on each persona: one line with the remedy, and exit status 3."""

import re
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import fixtures.bench
from conformance.bench.work_requests import SendRequest
from conformance.errors import UserError
from reference.bench import ReferenceBench
from reference.device import Device
from reference.objects import Refused
from reference.queues import Queue
from trial.personas import PERSONAS, Persona
from trial.personas.sysfs_port import INFINIBAND
from trial.personas.trying import run_clean

each = pytest.mark.parametrize("persona", PERSONAS, ids=lambda each: each.name)


class Unanswered(Device):
    """Nothing that is sent arrives, as on a port whose switch does not return its packets; datagrams are lost."""

    def carry_out(self, queue: Queue, request: SendRequest) -> str:
        return "RETRY_EXC_ERR" if queue.kind == "RC" else "SUCCESS"


class OverTheLimit(Device):
    """Queue pairs count as locked memory, of which there is too little."""

    def create_qp(self, queue: Queue) -> Queue:
        if self.stack.has(queue.kind.lower()):
            raise Refused(12)
        return super().create_qp(queue)


class Vanishing(Device):
    """The device is removed when the second queue pair is made."""

    def create_qp(self, queue: Queue) -> Queue:
        if self.queues:
            raise OSError(19, "ibv_create_qp")
        return super().create_qp(queue)


def one_line(caught: pytest.ExceptionInfo[UserError], message: str, remedy: str) -> None:
    assert re.search(message, caught.value.message), caught.value.message
    assert re.search(remedy, caught.value.hint), caught.value.hint
    assert "\n" not in f"{caught.value.message}{caught.value.hint}"
    assert caught.value.status == 3


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixtures.bench, "device_names", lambda: ["any0"])


def looked_at(persona: Persona, kind: type[Device]) -> None:
    with closing(ReferenceBench(persona.kind(kind)(persona.stack))) as bench:
        vars(bench.device)["name"] = "any0"
        of_a_device: Any = bench
        fixtures.bench.look_at(of_a_device)


@each
def test_a_port_that_is_down(persona: Persona) -> None:
    with pytest.raises(UserError) as caught:
        run_clean(replace(persona, port=replace(persona.port, state="1: DOWN")), [])
    one_line(caught, "port 1 of any0 is DOWN: it carries no traffic", "connect it and bring it up, .* --port")


@each
def test_a_port_without_a_gid(persona: Persona) -> None:
    if persona.port is INFINIBAND:  # it goes by LIDs; its first GID always exists
        assert replace(persona.port, gids=persona.port.gids[:1]).begin()[1] == 0
        return
    with pytest.raises(UserError) as caught:
        run_clean(replace(persona, port=replace(persona.port, gids=())), [])
    one_line(caught, "port 1 of any0 has no GID", "address|--port")


@each
def test_a_port_without_loopback(persona: Persona) -> None:
    with pytest.raises(UserError) as caught:
        looked_at(persona, Unanswered)
    one_line(caught, "loopback does not work on this device: SEND completed with", "switch .*--gid-index.*--peer")


@each
def test_a_limit_of_locked_memory(persona: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("conformance.execution.preflight.lockable", lambda: 64 << 10)
    with pytest.raises(UserError) as caught:
        looked_at(persona, OverTheLimit)
    one_line(caught, "a queue pair .* refused with ENOMEM; this process may lock 64 KiB", "ulimit -l unlimited")


@each
def test_a_device_that_vanishes_meanwhile(persona: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixtures.bench, "device_names", list)
    with pytest.raises(UserError) as caught:
        looked_at(persona, Vanishing)
    one_line(caught, "any0 is gone: it was removed, or its driver was unloaded", "the kernel's log says why")
