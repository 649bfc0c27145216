"""Exchanges data with a guest in which mutants of a driver are tried in turn. Runs on the host; the program in the
guest is inside.py. trying.py judges the outcomes."""

from __future__ import annotations

import json
import pickle
import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import cache
from conformance.errors import UserError
from conformance.model.case import Case
from conformance.model.verdict import Verdict
from conformance.packed_text import packed
from conformance.tables.suite import ROOT
from fixtures.guest import derivation, freezing
from fixtures.guest.driver import Driver
from fixtures.guest.guest import Guest, boot
from fixtures.guest.job import Job
from fixtures.guest.request import Request, awakening, encode
from fixtures.guest.template import Templates
from fixtures.guest.under_test import Prepared, UnderTest
from fixtures.system.cache import cache_directory
from fixtures.targets.guests import PORT, SUITE_PARTS

SILENCE_S = 120.0  # a program without progress for this time counts as hanging, as in a run
_LOADING_S = 900.0  # the limit for a booted guest to load its programs
_PYTHON = "exec python3 -m trial.kernel.inside"
# The guest receives its cases over a serial port instead of in its template: a changed row needs no new template.
_LEFT_OUT = ("cases", "conftest.py", "tox.ini")
MORE = ("trial/single_cases.py", "trial/kernel/__init__.py", "trial/kernel/inside.py")


class Lost(Exception):
    """A guest that has died (`verdict` is CRASH), that hangs (HANG), or that reads no orders or cannot exchange modules
    (BROKEN). `case` is the case that was running."""

    def __init__(self, verdict: Verdict, where: str, case: str = "") -> None:
        super().__init__(f"{verdict} {where}".strip())
        self.verdict, self.case = verdict, case


@dataclass(frozen=True)
class Answer:
    """The outcome of a case: its verdict, the rules that it reports as violated, the reason, its duration, and the fault
    of a row as data."""

    case: str
    verdict: str
    rules: tuple[str, ...]
    reason: str
    seconds: float
    fault: Mapping[str, Any] | None = None


class NoSession(Exception):
    """The reason why no case was run."""


class Guests:
    """Starts guests with the software under test; `seed` shuffles the points of sweeps. A guest must be started in the
    thread that uses it."""

    def __init__(
        self,
        under_test: UnderTest,
        driver: Driver,
        out: Path,
        say: Callable[[str], None],
        seed: int | None = None,
    ) -> None:
        self._under_test, self._driver, self._out, self._seed = under_test, driver, out, seed
        self._stage = tempfile.TemporaryDirectory(prefix="work-", dir=out)
        self._prepared: Prepared | None = None
        self._templates = Templates(cache_directory(), say)

    def start(self, cases: Sequence[Case]) -> MutantGuest:
        """Returns a new guest with these cases and the driver without a mutant."""
        if self._prepared is None:
            self._prepared = self._under_test.lay_out(Path(self._stage.name))
        prepared, console = self._prepared, self._out / "console.log"
        job = self._job(prepared)
        guest = self._templates.start(
            freezing.ingredients_of(prepared.image, job, prepared.overlay),
            Request(()),
            console,
        )
        if guest is None:
            guest = boot(prepared.image, job, console=console, overlay=prepared.overlay)
            freezing.await_event(guest, "derived", _LOADING_S)
            freezing.await_event(guest, "warm", _LOADING_S)
            guest.send(awakening() + encode(Request(())), SILENCE_S)
            freezing.await_event(guest, "resumed", SILENCE_S)
        return MutantGuest(guest, cases, self._seed)

    def _job(self, prepared: Prepared) -> Job:
        tree = tuple((ROOT / part, part) for part in (*SUITE_PARTS, *MORE) if part not in _LEFT_OUT)
        environment = {
            cache.DIRECTORY: derivation.FOLDER,
            **self._driver.environment,
            **prepared.environment,
        }
        folder = derivation.folder_of(cache_directory(), prepared.image.base)
        return Job(
            tree, shlex.join([*_PYTHON.split(), PORT]), environment, prepared.prepare, folder
        )


class MutantGuest:
    def __init__(self, guest: Guest, cases: Sequence[Case], seed: int | None) -> None:
        self._guest = guest
        self.module: Path | None = None  # None: the driver with which the guest was started
        self.loads = 0
        # orders that are sent before the guest has opened the port are lost
        self._next("before its first order")
        self._order(cases=packed(pickle.dumps(list(cases)), level=6), seed=seed)

    def load(self, module: Path) -> str:
        """Replaces the driver's module, and the provider if one is next to the module. Returns why the module does not
        load, or an empty text. Raises Lost."""
        if self.module == module:
            return ""
        self.module, self.loads = module, self.loads + 1
        provider = module.with_suffix(".so")
        self._order(
            module=packed(module.read_bytes(), level=6),
            provider=packed(provider.read_bytes(), level=6) if provider.exists() else "",
        )
        answer = self._next("while a module was exchanged")
        if answer["event"] == "stuck":
            raise Lost(Verdict.BROKEN, answer["reason"])
        return str(answer["reason"])

    def run(
        self,
        cases: Sequence[str],
        all_of_them: bool = False,
        watched: bool = True,
    ) -> Iterator[Answer]:
        """Runs the cases until one reports a violation, or all with `all_of_them`. Raises Lost and NoSession."""
        self._order(run=list(cases), all=all_of_them, watched=watched)
        running, began = "", time.monotonic()
        while True:
            answer = self._next(running and f"in {running}", running)
            event = answer["event"]
            if event == "begins":
                running = answer["case"]
            elif event == "judged":
                yield Answer(
                    running,
                    answer["verdict"],
                    tuple(answer["rules"]),
                    answer["reason"],
                    answer["seconds"],
                    answer.get("fault"),
                )
                running = ""
            elif event == "no-session":
                reason = str(answer["reason"])
                self._next("after a session that could not begin")
                raise NoSession(reason)
            elif event == "done":
                if answer["status"] != 0 and running:
                    reason = f"the process under test ended with status {answer['status']}"
                    yield Answer(running, Verdict.CRASH, (), reason, time.monotonic() - began)
                return

    def outcomes(self, program: bytes, arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Runs a packed program with tests of another project; yields each test's name and outcome. Raises Lost."""
        self._order(program=packed(program, level=6), arguments=list(arguments))
        running = ""
        while (answer := self._next(f"in {running}", running))["event"] != "done":
            if "test" in answer:
                running = answer["test"]
            if answer.get("outcome"):
                yield running, answer["outcome"]
                running = ""
        if running:
            yield running, f"ended with status {answer['status']}"

    def close(self) -> None:
        self._guest.close()

    def _order(self, **order: object) -> None:
        if not self._guest.send(json.dumps(order).encode() + b"\n", SILENCE_S):
            raise Lost(Verdict.BROKEN, "the guest does not read its orders")

    def _next(self, where: str, case: str = "") -> dict[str, Any]:
        line = self._guest.next_line(SILENCE_S)
        if line is None:
            raise Lost(Verdict.HANG, where, case)
        if not line.endswith(b"\n") or b'"exit"' in line:
            raise Lost(Verdict.CRASH, where, case)
        try:
            return dict(json.loads(line))
        except ValueError as error:
            raise UserError(
                f"the guest wrote a line that is not JSON: {line[:80]!r}",
                status=3,
            ) from error
