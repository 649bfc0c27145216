"""Makes the run of given options: reads the tables, the cases, the profile and the waivers that the options choose.
fixtures/targets/ determines the target of the run."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from commands.cli import run_arguments
from conformance.errors import UserError
from conformance.model.bounds import MOST_CASES
from conformance.model.capability import Profile
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.results.waiver_file import read_waivers
from conformance.run_options import RunOptions
from conformance.supervision.run import Run
from conformance.tables.profile import read_profile
from conformance.tables.suite import Selection, Suite
from conformance.tables.tiers import ordered, shipped_durations


def choose(options: RunOptions, chosen: Run | None = None, argv: Sequence[str] = ()) -> Run:
    """Returns the run of these options, still without a target. Reuses the tables and cases of `chosen`, another run,
    if possible. `argv` are the arguments of the command. Raises UserError."""
    if chosen:
        suite = chosen.suite
    else:
        suite = run_arguments.suite_of_run(options)
    selection = run_arguments.selection_from(options)
    by = (selection, options.seed, bool(options.sequences))
    if chosen and chosen.by == by:
        cases = chosen.cases
    else:
        cases = _selected(selection, suite, options)
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
        waivers = read_waivers(options.waivers, suite, datetime.now().date())
    else:
        waivers = None
    return Run(options, suite, cases, waivers, profile, argv=argv, by=by)


def _selected(selection: Selection, suite: Suite, options: RunOptions) -> list[Case]:
    cases = ordered(selection.apply(suite), options.seed)
    if not options.sequences:
        cases = [case for case in cases if case.kind is not Kind.SEQUENCES]
    if not cases:
        raise UserError("--sequences 0 leaves no case to run")
    return cases


def of_shard(run: Run) -> Run:
    """Returns the run with only the cases of its shard, if its options name a shard."""
    shard = run.options.shard
    if not shard:
        return run
    cases = shard.part(run.cases, lambda case: case.id, shipped_durations())
    return replace(run, cases=cases, whole=run.planned)
