"""What the options of a run choose: the tables, the cases, the profile and the waivers. Not for the target of the run,
which fixtures/targets/ determines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from commands.cli import run_arguments
from conformance.errors import UserError
from conformance.model.bounds import MOST_CASES
from conformance.model.capability import Profile
from conformance.model.case import Case
from conformance.model.kind import Kind
from conformance.results.waiver_file import read_waivers
from conformance.results.waivers import Waivers
from conformance.run_options import RunOptions
from conformance.tables.profile import read_profile
from conformance.tables.suite import Suite
from conformance.tables.tiers import ordered, shipped_durations


@dataclass(frozen=True)
class Chosen:
    """The parts of a run that do not depend on its target."""

    suite: Suite
    cases: Sequence[Case]
    profile: Profile
    waivers: Waivers | None
    whole: Sequence[str] = ()  # the ids of the cases of all shards
    by: object = None  # the options that have selected the cases

    @property
    def hazardous(self) -> frozenset[str]:
        """The ids of the cases that may crash a kernel."""
        return frozenset(case.id for case in self.cases if case.hazardous)


def choose(options: RunOptions, known: Chosen | None = None) -> Chosen:
    """Returns the tables and cases that the options select; reuses those of `known` if possible. Raises UserError."""
    suite = known.suite if known else run_arguments.suite_of_run(options)
    selection = run_arguments.selection_from(options)
    by = (selection, options.seed, bool(options.sequences))
    if known and known.by == by:
        cases = known.cases
    else:
        cases = ordered(selection.apply(suite), options.seed)
        if not options.sequences:
            cases = [case for case in cases if case.kind is not Kind.SEQUENCES]
        if not cases:
            raise UserError("--sequences 0 leaves no case to run")
    if len(cases) > MOST_CASES:
        raise UserError(
            f"{len(cases):,} cases are more than the {MOST_CASES:,} that a results file can have",
            hint="select fewer cases",
        )
    profile = read_profile(options.profile) if options.profile else Profile()
    waivers = (
        read_waivers(options.waivers, suite, datetime.now().date()) if options.waivers else None
    )
    return Chosen(suite, cases, profile, waivers, by=by)


def of_shard(chosen: Chosen, options: RunOptions) -> Chosen:
    """Returns the choice with only the cases of the shard that the options name, if they name any."""
    if not options.shard:
        return chosen
    cases = options.shard.part(chosen.cases, lambda case: case.id, shipped_durations())
    return replace(chosen, cases=cases, whole=[case.id for case in chosen.cases])
