"""Defines the types of the lines of results.jsonl: the keys of each record, in the order in which they are written.
docs/results.md describes the keys. Keys that are NotRequired may be absent from a file. Types with total=False have the
facts that a system reports about itself, and any of these keys may be absent. record_shape.py checks records."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

from conformance.model.fault import FaultData
from conformance.model.observation import Alarm, KernelEvidence, Observation, PointExample
from conformance.model.preflight import Findings
from conformance.model.verdict import Verdict
from conformance.older_python import NotRequired, TypeAlias

SCHEMA: Literal["rdma-cts/1"] = "rdma-cts/1"


# The header and its parts.


class SuiteVersion(TypedDict, total=False):
    """The version of the suite, and the SHA-256 of all its tables and rules."""

    version: str
    tables_sha256: str


class Environment(TypedDict, total=False):
    """The software around a device. `tainted` is the kernel's taint mask at the start of the run."""

    kernel: str
    rdma_core: str
    pyverbs: str
    python: str
    tainted: int


# The fields of the findings of preflight.
PreflightFacts: TypeAlias = Annotated[dict[str, Any], Findings]


class DeviceFacts(TypedDict, total=False):
    """The properties that a device reports; `caps` are its capabilities, limits and masks by name."""

    name: str
    driver: str
    fw: str
    vendor_id: int
    vendor_part_id: int
    transport: str
    peer: str
    caps: dict[str, Any]
    preflight: PreflightFacts


class UnderTest(TypedDict, total=False):
    """The build ids and SHA-256 of the tested software; `given` are the builds that the user supplied for the test."""

    kernel: dict[str, str]
    modules: dict[str, dict[str, str]]
    libraries: dict[str, str]
    given: dict[str, Any]


class DerivedFiles(TypedDict):
    """The number and hashes of the cached files that a guest received. An earlier guest has derived the files from the
    suite."""

    files: int
    sha256: str
    suite_sha256: str


class RuleTexts(TypedDict, total=False):
    """The fields of a rule (model.rules.Rule) that reports contain, so that reports need no other file."""

    verb: str
    short: str
    statement: str
    document: str
    section: str
    quote: str
    unquoted: str
    second_hand: str
    argument_against: str
    level: str
    layer: str
    since: str
    failure_means: str
    evidence: list[str]
    cases: int
    conditional: str


class GivenFile(TypedDict):
    """The waiver file or the profile that the user specified for a run, with its SHA-256."""

    file: str
    sha256: str


class JudgedAgain(TypedDict):
    """For records that were judged again: the suite that made the observations, and the time of judging (ISO 8601)."""

    suite: Optional[SuiteVersion]
    at: str


class ShardFacts(TypedDict):
    """A part of a run: its number, which counts from 1, the number of parts, and all cases of the run in order."""

    number: int
    of: int
    whole: list[str]


class SupervisorFacts(TypedDict, total=False):
    """The keys of a header whose values the supervisor has, but the worker under test does not have."""

    stack: str
    subject: str
    devices: list[str]
    seed: Optional[int]
    tier: Optional[str]
    argv: list[str]
    under_test: UnderTest
    waivers: Optional[GivenFile]
    profile: Optional[GivenFile]
    isolated: str
    shard: ShardFacts


class HeaderRecord(TypedDict):
    """The first record: what is under test, the rules, and the ids of all planned cases in order."""

    type: Literal["header"]
    schema: str
    suite: SuiteVersion
    stack: str
    env: Environment
    device: DeviceFacts
    under_test: NotRequired[UnderTest]
    rules: NotRequired[dict[str, RuleTexts]]
    seed: Optional[int]
    planned: list[str]
    left_out: NotRequired[int]
    controls: NotRequired[dict[str, str]]
    argv: list[str]
    started: str
    tier: NotRequired[Optional[str]]
    subject: NotRequired[str]
    devices: NotRequired[list[str]]
    waivers: NotRequired[Optional[GivenFile]]
    profile: NotRequired[Optional[GivenFile]]
    isolated: NotRequired[str]
    judged_again: NotRequired[JudgedAgain]
    shard: NotRequired[ShardFacts]
    shards: NotRequired[list[dict[str, Any]]]
    derived: NotRequired[DerivedFiles]


# A result and its parts.

# The documented expectation of a case, as its table states it.
Expected: TypeAlias = Mapping[str, Any]


class Source(TypedDict, total=False):
    """The location of a case's row; `line` counts from 1."""

    file: str
    line: int


# This form is needed because `for` is a keyword of Python.
WaiverFacts = TypedDict(
    "WaiverFacts",
    {"for": str, "listed": str, "issue": str, "owner": str, "expires": str, "place": str},
    total=False,
)
WaiverFacts.__doc__ = (
    "The waiver of a result: its case, rule or defect, whether it names the case (LISTED, UNSTEADY or UNLISTED; versions "
    "before did not record this), its expiry date, and its location."
)
LISTED, UNSTEADY, UNLISTED = "yes", "unsteady", "no"


class Subsets(TypedDict):
    """An axis over all subsets of flags: value number i has each flag whose bit is set in i."""

    subsets: list[str]


# for each axis, the labels of its values, or its flags
Axes: TypeAlias = dict[str, Union[list[str], Subsets]]


class SpaceFacts(TypedDict, total=False):
    """The space of a sweep and its number of points. If `tries`, the points repeat one experiment that depends on
    chance."""

    axes: Axes
    size: int
    tries: bool


class SetUp(TypedDict):
    """The set-up of a case before its judged call: a line for each object, and a line for each call."""

    given: list[str]
    before: list[str]


class Deviation(TypedDict):
    """Points of a sweep with the same deviation, or a random sequence with a deviation. `smallest` has the labels of
    the simplest deviating point; `set_up`, `call` and `afterwards` belong to this point. `together` has the values of
    `when` and `clause` that always occur with values of another axis."""

    when: str
    together: NotRequired[list[str]]
    clause: NotRequired[str]
    minimal: NotRequired[bool]
    verdict: NotRequired[Verdict]
    expected: NotRequired[str]
    observed: NotRequired[str]
    fault: NotRequired[FaultData]
    count: NotRequired[int]
    of: NotRequired[int]
    smallest: NotRequired[dict[str, str]]
    set_up: NotRequired[SetUp]
    call: NotRequired[str]
    afterwards: NotRequired[list[str]]
    rules: list[str]
    repro: NotRequired[str]
    row: NotRequired[str]


class OutcomeFacts(TypedDict):
    """The outcome of points of a sweep."""

    verdict: Verdict
    expected: str
    observed: str
    rule: str
    fault: NotRequired[FaultData]
    clause: NotRequired[str]
    notes: NotRequired[list[str]]
    also: NotRequired[list[str]]


class PointsFile(TypedDict):
    """The side file of a sweep: an outcome for every point, and a raw observation as an example of each outcome.
    docs/results.md describes `index`, which has the number of the outcome of each point."""

    case: str
    axes: Axes
    outcomes: list[OutcomeFacts]
    examples: list[PointExample]
    index: str


class Shows(TypedDict):
    """The evidence of a passing result for its rules: an operation that was granted or refused, and its set-up."""

    shows: str
    on: str
    rule: NotRequired[str]
    verdict: NotRequired[Verdict]
    lacking: NotRequired[str]


class Missing(TypedDict):
    """The reason why a part of the evidence of a rule was not seen in a run; see results/conclusions.py."""

    why: str
    because: str


class EvidenceFacts(TypedDict):
    """The evidence of a rule in a run: the number of parts needed, the number seen, and the missing parts by name."""

    needed: int
    seen: int
    missing: dict[str, Missing]


class PairsFacts(TypedDict):
    """What the points of a model show about each pair of values of two parameters. `states` has a letter for each pair,
    in the order of the parameters and their values: `r` if all points with the pair are right, `w` if all are wrong,
    `s` if some are wrong, `n` if none was judged, and `-` if the array has no such point. `points` has the number of points
    by verdict, `combinations` how many the array has, and `lacking` how many of them no judged point has, by the reason."""

    parameters: dict[str, list[str]]
    states: str
    points: NotRequired[dict[str, int]]
    combinations: NotRequired[int]
    lacking: NotRequired[dict[str, int]]


class ResultRecord(TypedDict):
    """The result of one case. The keys from `space` on are those of sweeps and random sequences. `duration_us` is in
    microseconds, None if not measured. A record has `points_data` only until the record is stored. In the file,
    `points_file` names a side file with these data."""

    type: Literal["result"]
    case: str
    rules: list[str]
    level: str
    entry: str
    layer: str
    verdict: Verdict
    effective: Verdict
    waiver: Optional[WaiverFacts]
    reason: str
    fault: NotRequired[FaultData]
    call: str
    expected: Expected
    observed: Observation
    source: Source
    kernel: KernelEvidence
    duration_us: Optional[float]
    repro: str
    worker: NotRequired[int]
    device: NotRequired[str]
    claimed: NotRequired[str]
    notes: NotRequired[list[str]]
    set_up: NotRequired[SetUp]
    evidence: NotRequired[list[Shows]]
    space: NotRequired[SpaceFacts]
    points: NotRequired[dict[str, int]]
    unreached: NotRequired[dict[str, int]]
    rule_verdicts: NotRequired[dict[str, Verdict]]
    points_data: NotRequired[PointsFile]
    alarms: NotRequired[list[Alarm]]
    deviations: NotRequired[list[Deviation]]
    deviations_left_out: NotRequired[int]
    points_file: NotRequired[str]
    pairs: NotRequired[PairsFacts]


# The footer and the other records.


class WaiversAccount(TypedDict, total=False):
    """The numbers of waived results and of waivers for other stacks, a line for each waiver with a problem, the waivers
    without cases whose defects no case shows (absent in older results), the waivers of violated rules, cases and
    defects that do not cover the kernel, a line for each defect without a waiver because of which cases of waived
    defects count, and for each such case the fingerprints that waivers cover."""

    file: str
    waived: int
    elsewhere: int
    problems: list[str]
    unseen: list[str]
    out_of_range: list[str]
    partly: list[str]
    covered: dict[str, list[str]]


class FooterRecord(TypedDict):
    """The last record, with totals of the results. Keys that would be empty are absent."""

    type: Literal["footer"]
    complete: bool
    verdicts: dict[str, int]
    rules: dict[str, Verdict]
    rule_totals: dict[str, int]
    points: int
    duration_s: float
    not_offered: NotRequired[dict[str, dict[str, int]]]
    rule_evidence: NotRequired[dict[str, EvidenceFacts]]
    boots: NotRequired[int]
    resumed: NotRequired[int]
    confirmation: NotRequired[dict[str, int]]
    not_repeated: NotRequired[str]
    waivers: NotRequired[WaiversAccount]


class StartRecord(TypedDict):
    """The beginning of a case."""

    type: Literal["start"]
    case: str


class ProgressRecord(TypedDict):
    """The progress of a case: the next point, and the number of finished points. Only a worker's stream has this
    record."""

    type: Literal["progress"]
    case: str
    point: str
    done: NotRequired[int]


class OfferedRecord(TypedDict):
    """The results of the worker's trials of capabilities. Only a worker's stream has this record, before the first
    result. `offered` has, for each entry, the capabilities that no device attribute declares, and whether the entry
    offers them. `absent` has the declared capabilities that a trial did not find, each with the refused call."""

    type: Literal["offered"]
    offered: dict[str, dict[str, bool]]
    absent: dict[str, str]


class WorkerRecord(TypedDict):
    """The start of a worker. `boot_id` is empty unless the kernel under test is the kernel of a host."""

    type: Literal["worker"]
    boot_id: str
    derived: NotRequired[DerivedFiles]


class ResumedRecord(TypedDict):
    """The beginning of a further session of the run; the earlier sessions took `earlier_s` seconds."""

    type: Literal["resumed"]
    started: str
    earlier_s: float


class Occurrence(TypedDict):
    """One occurrence of a violation: in the run, or in a repetition of its case."""

    verdict: Verdict
    reason: str
    fault: NotRequired[FaultData]
    observed: NotRequired[Observation]


class Repetitions(TypedDict):
    """How often a violation occurred, and how often its case was repeated in isolation."""

    seen: int
    of: int


class ConfirmationRecord(TypedDict):
    """The result of repeating a violation without the cases that ran before it. `point` is absent if the whole case was
    repeated. If the isolated case has a different violation or none, both occurrences are recorded. `after` has the
    cases after which the violation occurs again. `after` is absent if there was no search for these cases. `untried` is
    how many earlier cases a search without result has left out because of its time."""

    type: Literal["confirmation"]
    case: str
    point: NotRequired[str]
    confirmed: bool
    by: str
    in_run: NotRequired[Occurrence]
    alone: NotRequired[Occurrence]
    repetitions: NotRequired[Repetitions]
    after: NotRequired[list[str]]
    untried: NotRequired[int]


class ObservedRecord(TypedDict):
    """The observation of a case that its worker has not judged, for the supervisor to judge."""

    type: Literal["observed"]
    case: str
    observed: Observation
    kernel: KernelEvidence
    duration_us: Optional[float]


class GuestRecord(TypedDict):
    """An event of a guest, such as its start, a failure or the exit of its command. Only a guest's stream has this
    record, except for the event `broken`: any session that ends before its first case reports this event, with a
    `reason`. `files` are the files that the guest has derived from the suite, in base64, by their paths."""

    type: Literal["guest"]
    event: NotRequired[str]
    uptime_s: NotRequired[float]
    reason: NotRequired[str]
    status: NotRequired[int]
    files: NotRequired[dict[str, str]]


OtherRecord: TypeAlias = Union[
    StartRecord,
    ProgressRecord,
    OfferedRecord,
    ObservedRecord,
    WorkerRecord,
    ResumedRecord,
    ConfirmationRecord,
    GuestRecord,
]
Record: TypeAlias = Union[HeaderRecord, ResultRecord, FooterRecord, OtherRecord]
