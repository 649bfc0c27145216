"""Tests of templates of the guest: their key, requests, damaged templates, and runs that continue without a template. No
guest is booted. test_own_builds.py boots a guest."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conformance.errors import UserError
from fixtures.guest import derivation, freezing, kept, qemu, request, template, warm
from fixtures.guest.freezing import CONSOLE, STATE, Ended, Failure, Ingredients
from fixtures.guest.guest import Guest, NotStarted
from fixtures.guest.image import Image
from fixtures.guest.job import Job
from fixtures.guest.kept import MANIFEST
from fixtures.guest.qemu import Machine
from fixtures.guest.qmp import QmpError
from fixtures.guest.request import Request
from fixtures.guest.template import FILES, Templates
from fixtures.targets import guests
from kinds import Patch
from patience import PATIENCE_S, await_true, is_running
from samples import flip, laid

MACHINE = Machine("/bin/true")
REQUEST = Request(("--rdma-alone",), ("cases/reg_mr",), {"only": "reg_mr/a\n"}, 20.0)


# The ingredients that determine a guest


@pytest.fixture
def ingredients(tmp_path: Path) -> Ingredients:
    place = tmp_path / "image"
    laid(tmp_path, {"suite/a.py": "1\n"})
    image = Image(
        place / "vmlinuz",
        place / "initrd",
        place / "root.erofs",
        "digest",
        "6.1",
        "digest",
    )
    job = Job(((tmp_path / "suite", "suite"),), "true", {"A": "1"}, "depmod\n")
    return Ingredients(image, job, None, MACHINE)


def overlaid(before: Ingredients, folder: Path, text: str) -> Ingredients:
    return replace(before, overlay=laid(folder, {"file": text}))


def test_equal_ingredients_have_equal_keys_wherever_they_are(ingredients, tmp_path):
    laid(tmp_path / "other", {"a.py": "1\n", "__pycache__/a.pyc": ""})
    moved = replace(
        ingredients,
        job=replace(ingredients.job, tree=((tmp_path / "other", "suite"),)),
    )
    assert moved.key() == ingredients.key()
    first, two = (
        overlaid(ingredients, tmp_path / name / "overlay", "x") for name in ("one", "two")
    )
    assert first.key() == two.key() != ingredients.key()


@pytest.mark.parametrize(
    "change",
    [
        lambda it, place: replace(it, image=replace(it.image, digest="other")),
        lambda it, place: replace(it, machine=replace(MACHINE, accelerator="kvm")),
        lambda it, place: replace(it, machine=replace(MACHINE, processor="max")),
        lambda it, place: replace(it, machine=Machine("/bin/false")),
        lambda it, place: replace(it, job=replace(it.job, command="false")),
        lambda it, place: replace(it, job=replace(it.job, environment={"A": "2"})),
        lambda it, place: replace(it, job=replace(it.job, prepare="")),
        lambda it, place: overlaid(it, place / "overlay", "x"),
    ],
)
def test_every_input_of_a_guest_changes_the_key(ingredients, tmp_path, change):
    assert change(ingredients, tmp_path).key() != ingredients.key()


def test_content_of_files_changes_the_key(ingredients, tmp_path):
    keys = {ingredients.key()}
    laid(tmp_path, {"suite/a.py": "2\n"})
    keys.add(ingredients.key())
    changed = replace(ingredients, image=replace(ingredients.image, vmlinuz=tmp_path / "bzImage"))
    for content in ("one", "two"):
        laid(tmp_path, {"bzImage": content})
        keys |= {changed.key(), overlaid(ingredients, tmp_path / content, content).key()}
    assert len(keys) == 6


# Requests


def test_each_request_has_the_present_time():
    (first, time_ns), (second, later_ns) = (
        request.decode(request.encode(REQUEST)) for _ in range(2)
    )
    assert first == second == REQUEST
    assert later_ns >= time_ns > 0


@pytest.mark.parametrize("parts", [1, 2, 7, 1000])
def test_a_guest_renews_its_randomness_before_the_request_arrives(tmp_path, monkeypatch, parts):
    sent = BytesIO(request.awakening() + request.encode(REQUEST))
    port = tmp_path / "port"
    renewed: list[bytes] = []
    port.touch()
    monkeypatch.setattr(os, "read", lambda _, most: sent.read(min(parts, most)))
    monkeypatch.setattr(warm, "renew", lambda _, entropy: renewed.append(entropy))
    monkeypatch.setattr(derivation, "encoded", lambda *_: {})
    assert request.decode(warm.wait(str(port)))[0] == REQUEST
    assert [len(entropy) for entropy in renewed] == [64]
    assert request.awakening() != request.awakening()
    events = [json.loads(line)["event"] for line in port.read_text().splitlines()]
    assert events == ["derived", "warm", "resumed"]


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"{}", b'{"request": 1, "time_ns": 2}', b'{"request"']
)
def test_a_malformed_request_is_refused(line):
    with pytest.raises(ValueError, match=r".*"):
        request.decode(line)


# The cache


class Freezer:
    """Replaces freezing.py, and has a cache of templates. Counts its calls, and fails on request."""

    def __init__(self, folder: Path, ingredients: Ingredients) -> None:
        self.folder = folder
        self.ingredients = ingredients
        self.templates = Templates(folder, print)
        self.place = folder / "templates" / ingredients.key()[:16]
        self.made = 0
        self.resumed: list[bytes] = []
        self.failure: Exception | None = None
        self.resume_failure: Exception | None = None
        self.ends = 0  # the number of guests that are killed externally before a guest survives
        self.during: Callable[[Path], None] = lambda folder: None

    def guest(self, templates: Templates | None = None, **changes: Any) -> Guest:
        ingredients_used = replace(self.ingredients, **changes)
        return (templates or self.templates).resume(ingredients_used, REQUEST, Path("console"))

    def freeze(self, folder: Path, ingredients: Ingredients) -> tuple[dict[str, Any], None]:
        self.made += 1
        for name in FILES:
            (folder / name).write_bytes(name.encode() * 10000)
        self.during(folder)
        if self.failure:
            raise self.failure
        return {"type": "guest", "event": "up", "uptime_s": 1.5}, None

    def resume(
        self,
        folder: Path,
        ingredients: Ingredients,
        request: Request,
        console: Path,
    ) -> Guest:
        if self.ends:
            self.ends -= 1
            raise Ended("QEMU was ended externally: SIGKILL")
        assert kept.in_use(folder), "another run could remove the template"
        if self.resume_failure:
            raise self.resume_failure
        self.resumed.append((folder / "memory").read_bytes()[:6])
        return cast(Guest, type("Resumed", (), {})())


@pytest.fixture
def freezer(ingredients: Ingredients, tmp_path: Path, monkeypatch: Patch) -> Freezer:
    counting = Freezer(tmp_path / "cache", ingredients)
    monkeypatch.setattr(freezing, "freeze", counting.freeze)
    monkeypatch.setattr(freezing, "resume", counting.resume)
    return counting


def test_a_template_is_made_once(freezer):
    assert freezer.guest().up == freezer.guest().up
    assert (freezer.made, freezer.resumed) == (1, [b"memory"] * 2)
    freezer.guest(machine=replace(MACHINE, processor="max"))
    assert freezer.made == 2
    assert sorted(path.name for path in freezer.place.iterdir()) == sorted(
        [*FILES, MANIFEST, "verified"],
    )


def test_the_message_about_a_template_says_how_long_the_last_one_took(freezer, monkeypatch):
    said: list[str] = []
    ticks = itertools.count(0.0, 28.0)
    clock = SimpleNamespace(time=time.time, monotonic=ticks.__next__)
    monkeypatch.setattr(template, "time", clock)
    templates = Templates(freezer.folder, said.append)
    freezer.guest(templates)
    freezer.guest(templates, machine=replace(MACHINE, processor="max"))
    first, second = (text for text in said if text.startswith("creating a template"))
    assert "took" not in first
    assert second.endswith("; the last one took 28 s")


class WatchedLock:
    """A lock that reports when a caller has to wait for it."""

    def __init__(self, awaited: threading.Event) -> None:
        self.lock, self.awaited = threading.Lock(), awaited

    def __enter__(self) -> None:
        if self.lock.locked():
            self.awaited.set()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("other_run", [False, True], ids=["of the same run", "of another run"])
def test_one_of_two_guests_makes_a_template_and_the_other_waits(freezer, other_run, monkeypatch):
    """Only the second run prints that it waits for another run."""
    said: list[str] = []
    waiting = threading.Event()
    templates = freezer.templates = Templates(freezer.folder, said.append)
    if other_run:
        templates = Templates(freezer.folder, lambda _: waiting.set())
    else:
        monkeypatch.setattr(templates, "_making", WatchedLock(waiting))
    second = threading.Thread(target=freezer.guest, args=(templates,))

    def meanwhile(folder: Path) -> None:
        second.start()
        assert waiting.wait(PATIENCE_S)

    freezer.during = meanwhile
    freezer.guest()
    second.join(PATIENCE_S)
    assert (freezer.made, len(freezer.resumed)) == (1, 2)
    assert [line for line in said if "waiting" in line] == []


def _of_another_key(path: Path) -> None:
    path.write_text(path.read_text().replace('"key": "', '"key": "0'))


@pytest.mark.parametrize(
    "name, damage",
    [
        *(
            (name, damage)
            for name in FILES
            for damage in (flip, Path.unlink, lambda path: os.truncate(path, 3))
        ),
        (MANIFEST, _of_another_key),
        (MANIFEST, Path.unlink),
        (MANIFEST, lambda path: path.write_text('{"key": 7}')),
    ],
)
def test_a_damaged_or_foreign_template_is_made_again(freezer, name, damage):
    freezer.guest()
    damage(freezer.place / name)
    freezer.guest()
    assert freezer.made == 2
    freezer.guest()
    assert freezer.made == 2


def test_files_that_are_not_trusted_are_verified_and_then_trusted_again(freezer):
    freezer.guest()
    note = freezer.place / "verified"
    note.write_text("[]")
    freezer.guest()
    assert freezer.made == 1
    assert kept.is_trusted(note.parent, FILES)


def test_a_template_that_fails_leaves_nothing_and_is_not_retried_at_once(freezer):
    freezer.failure = QmpError("migrate: State blocked by non-migratable device")
    for _ in range(2):
        with pytest.raises(Failure, match="State blocked by non-migratable device"):
            freezer.guest()
    assert freezer.made == 1
    note = freezer.place.with_suffix(".failed")
    assert sorted(note.parent.iterdir()) == [note, note.with_suffix(".lock")]
    freezer.failure = None
    os.utime(note, (0, 0))
    freezer.guest()
    assert freezer.made == 2


def test_a_guest_that_did_not_start_ends_the_run_and_leaves_its_console(freezer):
    freezer.failure = NotStarted("early start failed: no drives", log="elsewhere", status=3)
    with pytest.raises(NotStarted, match="no drives; see ") as caught:
        freezer.templates.resume(freezer.ingredients, REQUEST, freezer.folder / "console")
    assert caught.value.log == str(freezer.folder / "console")
    assert (freezer.folder / "console").read_bytes().startswith(b"console")
    assert not freezer.place.with_suffix(".failed").exists()


def test_a_template_that_cannot_be_resumed_is_removed(freezer):
    freezer.resume_failure = Failure("the guest was silent for 60 s")
    with pytest.raises(Failure, match="silent"):
        freezer.guest()
    assert not freezer.place.exists()


@pytest.mark.parametrize("ends", [2, 3])
def test_a_guest_that_was_ended_externally_is_resumed_again_and_its_template_is_kept(freezer, ends):
    freezer.guest()
    freezer.ends = ends
    with pytest.raises(Ended) if ends == 3 else contextlib.nullcontext():
        freezer.guest()
    assert not freezer.place.with_suffix(".failed").exists()
    freezer.guest()
    assert freezer.made == 1


@pytest.mark.parametrize(
    "script, error",
    [("kill -9 $$", Ended), ("exit 0", QmpError), ("exit 1", QmpError)],
)
def test_an_external_kill_of_qemu_is_distinguished_from_its_exit(
    ingredients, tmp_path, monkeypatch, script, error
):
    for name in (CONSOLE, STATE):
        (tmp_path / name).touch()
    monkeypatch.setattr(qemu, "command_line", lambda *_, **__: ["sh", "-c", script])
    with pytest.raises(error):
        freezing.resume(tmp_path, ingredients, REQUEST, tmp_path / "out" / "console.log")


class Begun:
    """Stands in for a guest that is being resumed and has received no request."""

    def __init__(self, folder: Path, ingredients: Ingredients, console: Path, mark: str) -> None:
        self.folder, self.mark, self.closed = folder, mark, 0
        made_begun.append(self)

    def asked(self, request: Request) -> Guest:
        assert kept.in_use(self.folder), "another run could remove the template"
        return cast(Guest, self)

    def close(self) -> None:
        self.closed += 1


made_begun: list[Begun] = []


@pytest.fixture
def begun(monkeypatch: Patch) -> list[Begun]:
    made_begun.clear()
    monkeypatch.setattr(template, "Resuming", Begun)
    return made_begun


def test_a_guest_that_was_begun_gets_the_request_for_its_console(freezer, begun):
    freezer.guest()
    assert freezer.templates.begin(freezer.ingredients, Path("console"), "mark")
    assert kept.in_use(freezer.place)
    other = Path("console-2")
    assert freezer.templates.start(freezer.ingredients, REQUEST, other) is not begun[0]
    assert freezer.guest() is begun[0]
    assert freezer.guest() is not begun[0]
    freezer.templates.close()
    assert (len(begun), begun[0].mark, begun[0].closed) == (1, "mark", 0)
    assert not kept.in_use(freezer.place)


def test_a_guest_that_was_begun_and_not_needed_is_ended(freezer, begun):
    freezer.guest()
    assert freezer.templates.begin(freezer.ingredients, Path("console"), "")
    freezer.templates.close()
    assert begun[0].closed == 1
    assert not kept.in_use(freezer.place)


def test_no_template_is_made_for_a_guest_that_is_begun(freezer, begun, monkeypatch):
    assert not freezer.templates.begin(freezer.ingredients, Path("console"), "")
    freezer.guest()
    monkeypatch.setenv("RDMA_CTS_TEMPLATES", "off")
    without = Templates(freezer.folder, print)
    assert not without.begin(freezer.ingredients, Path("console"), "")
    assert (freezer.made, begun) == (1, [])


def test_a_guest_that_is_begun_and_ended_leaves_no_process_and_no_file(
    ingredients, tmp_path, monkeypatch
):
    for name in (CONSOLE, STATE):
        (tmp_path / name).touch()
    out, started = tmp_path / "out", tmp_path / "started"
    script = f"echo $$ >{started}.new && mv {started}.new {started} && exec sleep {PATIENCE_S}"
    monkeypatch.setattr(qemu, "command_line", lambda *_, **__: ["sh", "-c", script])
    guest = freezing.Resuming(tmp_path, ingredients, out / "console.log", "mark")
    await_true(started.exists)
    guest.close()
    assert not is_running(int(started.read_text()))
    assert [path.name for path in out.iterdir()] == ["console.log"]


def test_a_full_disk_is_a_failure(freezer, monkeypatch):
    freezer.failure = OSError(28, "No space left on device")
    with pytest.raises(Failure, match="is full"):
        freezer.guest()
    monkeypatch.setattr(template, "_SPARE_BYTES", 1 << 60)
    with pytest.raises(Failure, match="MiB are free"):
        freezer.guest(machine=replace(MACHINE, processor="max"))


def test_leftovers_of_killed_runs_are_removed_but_not_unfinished_templates(freezer):
    place = freezer.place
    own_place, other_place, making = (
        place.with_name(f"{name}-x") for name in (place.name, "0" * 16, "1" * 16)
    )
    for leftover in (own_place, other_place, making):
        laid(leftover, {"memory": "half"})
    with place.with_name(f"{'1' * 16}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        freezer.guest()
    assert [leftover.exists() for leftover in (own_place, other_place, making)] == [
        False,
        False,
        True,
    ]


def test_the_oldest_unused_templates_are_removed_above_the_bound(freezer, monkeypatch):
    three = [replace(MACHINE, processor=name) for name in ("first", "second", "third")]
    keys = [replace(freezer.ingredients, machine=machine).key() for machine in three]
    places = [freezer.place.with_name(key[:16]) for key in keys]
    for number, machine in enumerate(three):
        freezer.guest(machine=machine)
        os.utime(places[number], (number, number))
    freezer.guest(machine=three[0])  # now this template is the most recently used
    size = sum(path.stat().st_blocks * 512 for path in places[0].iterdir())
    monkeypatch.setattr(template, "KEPT_BYTES", 2 * size)
    with (places[1] / MANIFEST).open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        freezer.guest(machine=replace(MACHINE, processor="fourth"))
    assert [place.exists() for place in places] == [True, True, False]


def test_a_run_continues_without_templates_and_reports_it_once(freezer, monkeypatch):
    arguments = (freezer.ingredients, REQUEST, Path("console"))
    monkeypatch.delenv("RDMA_CTS_TEMPLATES", raising=False)
    freezer.failure = QmpError("QEMU closed its control channel")
    said: list[str] = []
    templates = Templates(freezer.folder, said.append)
    for _ in range(2):
        assert templates.start(*arguments) is None
    assert [line for line in said if "booting the guest instead" in line] == [said[-1]]
    monkeypatch.setenv("RDMA_CTS_TEMPLATES", "off")
    assert Templates(freezer.folder, said.append).start(*arguments) is None
    assert freezer.made == 1
    monkeypatch.setenv("RDMA_CTS_TEMPLATES", "on")
    with pytest.raises(UserError, match="RDMA_CTS_TEMPLATES is 'on'"):
        Templates(freezer.folder, said.append)


@pytest.mark.parametrize("run_size, how", [(40, "late"), (41, "")])
def test_a_run_of_many_cases_makes_no_template_for_a_batch_of_few(monkeypatch, run_size, how):
    """A build under test is either in the template, or loaded by a guest of the image's own template."""
    started: list[str] = []
    monkeypatch.setattr(guests, "ingredients_of", lambda image, job, overlay=None: job.command)
    monkeypatch.setattr(guests.Guests, "_waiting", lambda self, parts, *how: Job((), "".join(how)))
    monkeypatch.setattr(guests, "LATE", "late")
    starter = SimpleNamespace(
        has=lambda ingredients: False, start=lambda command, *_: started.append(command)
    )
    several = guests.Guests.__new__(guests.Guests)
    vars(several).update(_templates=starter, _is_unmodified=True, _run_size=run_size)
    build = SimpleNamespace(packed=lambda: "build")
    parts = cast(Any, SimpleNamespace(image=None, overlay=None, exchange=build))
    several._resume(["reg_mr/a"], REQUEST, parts, Path("console.log"))
    assert started == [how]
