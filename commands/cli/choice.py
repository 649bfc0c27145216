"""Makes the run of given options: reads the tables, the cases, the profile and the waivers that the options choose.
fixtures/targets/ determines the target of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from conformance.errors import UserError, format_count
from conformance.model.bounds import MOST_CASES
from conformance.model.profile import Profile
from conformance.run_options import RunOptions
from conformance.supervision.run import Run
from conformance.tables.profile import read_profile
from conformance.tables.suite import Suite, load_suite
from conformance.tables.tiers import ordered, shipped_durations
from fixtures.system.devices import present_devices
from fixtures.targets.builds import guest_driver


def choose(
    options: RunOptions,
    chosen: Run | None = None,
    argv: Sequence[str] = (),
    suite: Suite | None = None,
) -> Run:
    """Returns the run of these options, still without a target. Reuses the tables and cases of `chosen`, another run,
    or the tables `suite`, if possible. `argv` are the arguments of the command. Raises UserError."""
    if chosen:
        suite = chosen.suite
    elif suite is None:
        suite = load_suite(options.cases)
    by = (options.selection, options.seed)
    if chosen and chosen.by == by:
        cases = chosen.cases
    else:
        cases = ordered(options.selection.apply(suite), options.seed)
    if len(cases) > MOST_CASES:
        raise UserError(
            f"{len(cases):,} cases are more than the {MOST_CASES:,} that a results file can have",
            hint="select fewer cases",
        )
    if options.profile:
        profile = read_profile(options.profile)
    else:
        profile = Profile()
    if options.waivers:
        from conformance.results.waiver_file import read_waivers  # imported late: few runs need it

        waivers = read_waivers(options.waivers, suite, datetime.now().date())
    else:
        waivers = None
    return Run(options, suite, cases, waivers, profile, argv=argv, by=by)


def of_target(run: Run, say: Callable[[str], None]) -> Run:
    """Returns the run with only the cases that its target and its shard allow. `say` prints a message if cases are left
    out. Raises UserError if no case remains, or if the profile is for the driver of another device."""
    options = run.options
    if run.profile.device:
        for name, driver in _drivers(options):
            run.profile.check(name, driver)
    cases = run.cases
    if options.device and not options.hazardous:
        cases = [case for case in cases if not case.hazardous]
        count = len(run.cases) - len(cases)
        if not cases:
            raise UserError(
                "every selected case can crash the kernel",
                hint="--hazardous runs these cases",
            )
        if count:
            say(
                f"left out {format_count(count, 'case')} that can crash the kernel (see --hazardous)"
            )
    planned = tuple(case.id for case in cases)
    if not options.shard:
        return replace(run, cases=cases)
    cases = options.shard.part(cases, lambda case: case.id, shipped_durations())
    return replace(run, cases=cases, whole=planned)


def _drivers(options: RunOptions) -> Iterator[tuple[str, str]]:
    """Yields the devices of a run, each with its driver. Those of another host are known only there."""
    if options.guest:
        driver = guest_driver(options)
        yield driver.device, driver.name
    elif not options.host:
        for device in present_devices():
            if device.name in options.devices:
                yield device.name, device.driver
