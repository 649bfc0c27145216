"""Defines a run: the options, what the options choose, and the target once it is ready. commands/cli/choice.py makes the
run, fixtures/targets/target.py adds the target, and all other code of a run receives this object."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from conformance.model.case import Case
from conformance.model.deadline import CASE_DEADLINE_S, longest_case_s
from conformance.model.profile import Profile
from conformance.model.record import SupervisorFacts
from conformance.recorded_command import without_values
from conformance.results.plan import Plan
from conformance.results.waivers import Waivers
from conformance.run_options import RunOptions
from conformance.supervision.durations import Durations
from conformance.supervision.worker import Start
from conformance.tables.profile import named_profile
from conformance.tables.suite import Suite


@dataclass(frozen=True)
class Target:
    """The target of a run. Each of `starts` starts one worker at a time, for given case ids.

    `given` are facts about the software under test, such as hashes of the user's builds. `boot_id` returns an id of the
    present boot if the kernel under test is the kernel of a host, else an empty text: a crash of this kernel may also
    kill this process, and the file of results therefore records the start of each case. Each of `again` starts a worker
    that repeats violated cases. `durations` are the durations of cases in earlier runs in the guest; None for a host.
    `device` is the name of the guest's device.
    """

    stack: str = ""
    starts: Sequence[Start] = ()
    given: dict[str, Any] = field(default_factory=dict)
    boot_id: Callable[[], str] = str
    again: Sequence[Start] = ()
    durations: Durations | None = None
    device: str = ""


@dataclass(frozen=True)
class Run:
    """The options of a run, the cases, and everything that determines their verdicts.

    `options` names the device or the guest as soon as the target is determined. `waivers` determine effective verdicts,
    and `profile` has the capabilities that the device must have. `whole` are the ids of the cases of all shards, if the
    options name a shard. `argv` are the arguments of the command. `target` is empty until it is ready. `by` are the
    options that have selected the cases.
    """

    options: RunOptions
    suite: Suite
    cases: Sequence[Case] = ()
    waivers: Waivers | None = None
    profile: Profile = field(default_factory=Profile)
    whole: Sequence[str] = ()
    argv: Sequence[str] = ()
    target: Target = field(default_factory=Target)
    by: object = None

    @property
    def deadline(self) -> float:
        """The seconds without progress after which a case counts as hung."""
        return self.options.deadline or CASE_DEADLINE_S

    @property
    def longest_case_s(self) -> float:
        """The maximum duration of a case in seconds, even if the case makes progress."""
        return longest_case_s(self.deadline)

    @property
    def devices(self) -> tuple[str, ...]:
        """The names of the devices that a worker may use, if the names are known."""
        return self.options.devices or tuple(filter(None, [self.target.device]))

    @property
    def hazardous(self) -> frozenset[str]:
        """The ids of the cases that may crash a kernel."""
        return frozenset(case.id for case in self.cases if case.hazardous)

    @property
    def planned(self) -> tuple[str, ...]:
        """The ids of the cases, in order."""
        return tuple(case.id for case in self.cases)

    @property
    def plan(self) -> Plan:
        """What `--resume` needs: the arguments, and what they have selected."""
        return Plan(
            tuple(self.options.arguments()),
            os.getcwd(),
            self.planned,
            self.suite.tables_sha256,
            self.target.stack,
            self.target.given,
        )

    @cached_property
    def durations(self) -> Mapping[str, float]:
        """The seconds that cases took in an earlier run, by id. They only decide which worker runs which case."""
        if self.target.durations:
            return self.target.durations.read()
        return {}

    def reproduction(self, case: Case, device: str) -> str:
        """Returns the command that runs one case on the same target or, if several devices share the cases, on the
        device with the given name. It ends with the case's id."""
        like, name = (case.hazardous, device), shlex.quote(case.id)
        if like not in self._commands:
            command = self._from_project.reproduction(case, device)
            self._commands[like] = command.removesuffix(name)
        return f"{self._commands[like]}{name}"

    @cached_property
    def _commands(self) -> dict[tuple[bool, str], str]:
        """The commands of cases without the case's id, because each takes as long as the judgement of a case."""
        return {}

    @cached_property
    def _from_project(self) -> RunOptions:
        return self.options.seen_from_project(Path.cwd())

    @cached_property
    def facts(self) -> SupervisorFacts:
        """The values of the header that workers do not know."""
        options, waivers = self.options, self.waivers
        facts: SupervisorFacts = {
            "stack": self.target.stack,
            "subject": options.judged_subject,
            "seed": options.seed,
            "tier": options.tier,
            "argv": ["run", *without_values(self.argv)],
            "under_test": {"given": self.target.given},
            "waivers": {"file": waivers.file, "sha256": waivers.sha256} if waivers else None,
            "profile": named_profile(options.profile),
        }
        if options.isolate:
            facts["isolated"] = options.isolate
        if len(options.devices) > 1:
            facts["devices"] = list(options.devices)
        if options.shard:
            facts["shard"] = {
                "number": options.shard.number,
                "of": options.shard.of,
                "whole": list(self.whole),
            }
        return facts
