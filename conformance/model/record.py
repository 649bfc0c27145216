"""The lines of results.jsonl as types: what each record holds, key by key, in the order in which it is written.

The contract itself is docs/results.md. Keys that are NotRequired may be absent from a file; parts with total=False hold
whatever a system reports about itself. Not for checking what was read (record_shape.py), nor for reading and writing
files (results/).
"""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from conformance.model.fault import FaultData
from conformance.model.observation import Alarm, KernelEvidence, Observation, PointExample
from conformance.model.verdict import Verdict

SCHEMA: Literal["rdma-cts/1"] = "rdma-cts/1"


# The header and its parts.


class SuiteVersion(TypedDict, total=False):
    """The version of the suite, and the SHA-256 over all its tables and rules."""

    version: str
    tables_sha256: str


class Environment(TypedDict, total=False):
    """The software around a device; `tainted` is the kernel's taint mask at the start."""

    kernel: str
    rdma_core: str
    pyverbs: str
    python: str
    tainted: int


class PreflightFacts(TypedDict, total=False):
    """The trials before the first case; see model.preflight.Findings."""

    pairs: dict[str, str]
    operations: dict[str, str]
    refused_write: str
    renews_by_reset: bool
    tells_state: bool


class DeviceFacts(TypedDict, total=False):
    """A device's report about itself; `caps` are its capabilities by name, with limits and masks among them.

    `preflight` is absent if several devices are tested at the same time. `peer` is the name of the device on which the
    requesters are; it is absent if traffic is in loopback.
    """

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
    """The tested software, by build id and SHA-256; `given` are the builds that the user put under test."""

    kernel: dict[str, str]
    modules: dict[str, dict[str, str]]
    libraries: dict[str, str]
    given: dict[str, Any]


class DerivedFiles(TypedDict):
    """Files that another guest has derived from the suite, and that this one was given: how many, a SHA-256 over
    their names and contents, and another over the names and contents of the suite's modules."""

    files: int
    sha256: str
    suite_sha256: str


class RuleTexts(TypedDict, total=False):
    """The fields of a rule that reports show, so that they need no other file.

    `quote` holds the words of the document; a rule that has none has `unquoted`, the reason. `evidence` names what a
    run must show to verify the rule; `cases` is the number of its cases in the default tier. `conditional`
    names the situation to which the rule applies, if not every stack has it.
    """

    verb: str
    short: str
    statement: str
    document: str
    section: str
    quote: str
    unquoted: str
    level: str
    layer: str
    since: str
    failure_means: str
    evidence: list[str]
    cases: int
    conditional: str


class GivenFile(TypedDict):
    """A file that a run was given, of waivers or a profile, with its SHA-256."""

    file: str
    sha256: str


class JudgedAgain(TypedDict):
    """For records that were judged again: the suite that observed them, and the time of judging (ISO 8601)."""

    suite: SuiteVersion | None
    at: str


class ShardFacts(TypedDict):
    """The number of this part of a run, from 1, the number of parts, and the ids of all cases of the run in their
    order."""

    number: int
    of: int
    whole: list[str]


class SupervisorFacts(TypedDict, total=False):
    """The part of a header that only the supervisor knows, and not the worker under test.

    `devices` are the names of those that share the cases, if they are several. `isolated` is the user of the process
    under test, if that is not the user of the supervisor. `subject` is what the run passes judgement on, "device" or
    "stack".
    """

    stack: str
    subject: str
    devices: list[str]
    seed: int | None
    tier: str | None
    argv: list[str]
    under_test: UnderTest
    waivers: GivenFile | None
    profile: GivenFile | None
    isolated: str
    shard: ShardFacts


class HeaderRecord(TypedDict):
    """The first record: what is under test, the rules, and the ids of all planned cases in their order.

    `left_out` is the number of cases of the default tier that are not planned. `controls` names, for a refusal,
    what has to be granted for it to count, unless that is the refused operation itself on the same set-up. `shard` is
    there for a part of a run, `shards` for a run that was made of parts: the header of each, its size, and the figures
    of its footer. `derived` is there if the guest that sent the header was given files that another one had derived.
    """

    type: Literal["header"]
    schema: str
    suite: SuiteVersion
    stack: str
    env: Environment
    device: DeviceFacts
    under_test: NotRequired[UnderTest]
    rules: NotRequired[dict[str, RuleTexts]]
    seed: int | None
    planned: list[str]
    left_out: NotRequired[int]
    controls: NotRequired[dict[str, str]]
    argv: list[str]
    started: str
    tier: NotRequired[str | None]
    subject: NotRequired[str]
    devices: NotRequired[list[str]]
    waivers: NotRequired[GivenFile | None]
    profile: NotRequired[GivenFile | None]
    isolated: NotRequired[str]
    judged_again: NotRequired[JudgedAgain]
    shard: NotRequired[ShardFacts]
    shards: NotRequired[list[dict[str, Any]]]
    derived: NotRequired[DerivedFiles]


# A result and its parts.

# The documented expectation of a case, as in its table.
Expected: TypeAlias = Mapping[str, Any]


class Source(TypedDict, total=False):
    """The location of a case's row; `line` counts from 1."""

    file: str
    line: int


# `for` is a keyword of Python, hence this form.
WaiverFacts = TypedDict(
    "WaiverFacts", {"for": str, "issue": str, "owner": str, "expires": str, "place": str}, total=False
)
WaiverFacts.__doc__ = "The waiver of a result: its case or rule, its expiry date, and its location."


class Subsets(TypedDict):
    """An axis over all subsets of flags: value number i has each flag whose bit is set in i."""

    subsets: list[str]


Axes: TypeAlias = dict[str, list[str] | Subsets]  # by name: the labels of an axis's values, or its flags


class SpaceFacts(TypedDict, total=False):
    """The space of a sweep, its number of points, and whether all points repeat one thing that depends on chance."""

    axes: Axes
    size: int
    tries: bool


class SetUp(TypedDict):
    """The set-up of a case before its judged call: a line for each object that it made, and for each call."""

    given: list[str]
    before: list[str]


class Deviation(TypedDict):
    """Points of a sweep with the same deviation, or a random sequence that deviates.

    For points, `when` is a formula that is true at `count` points; `of` is the number of all points that have the
    expectation of `clause`. `smallest` are the labels of the simplest one, and `set_up`, `call` and `afterwards`
    what that one does. For a sequence, `when` is its call, and `row` is the sequence as a table row.
    """

    when: str
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


class PointsFile(TypedDict):
    """The side file of a sweep: an outcome for every point, and a raw observation as an example of each outcome.

    `index` is base64 of zlib of a little-endian 16-bit number of an outcome for each point, row-major; 65535 stands
    for a point that is not in the space.
    """

    case: str
    axes: Axes
    outcomes: list[OutcomeFacts]
    examples: list[PointExample]
    index: str


class Shows(TypedDict):
    """The evidence of a passing result for its rules: an operation that was granted or refused, and on which set-up.

    In a sweep, `rule` is the rule, `verdict` the verdict of the points that show it, and `lacking` what they lack if
    they could not be run.
    """

    shows: str
    on: str
    rule: NotRequired[str]
    verdict: NotRequired[Verdict]
    lacking: NotRequired[str]


class Missing(TypedDict):
    """Why a part of the evidence of a rule was not seen in a run; see results/conclusions.py."""

    why: str
    because: str


class EvidenceFacts(TypedDict):
    """The evidence of a rule in a run: how many parts it needs and how many were seen, and the others by name."""

    needed: int
    seen: int
    missing: dict[str, Missing]


class ResultRecord(TypedDict):
    """The result of one case. The keys from `space` on are those of sweeps and random sequences.

    `duration_us` is in microseconds, None if not measured. `worker` is the number of the worker that ran the case;
    `device` is the device of that worker, if several devices share the cases.
    `fault` is what a violation is about; for sweeps and random sequences it is in each deviation. `set_up` is only in
    results that say something bad of the stack or of the harness. `claimed` is the verdict that the worker gave, if its
    observation gives another: the case is then BROKEN, also when it is judged again. `deviations_left_out` is the
    number of further ways in which points deviate; the record has only their number. `points_data` is only in records
    before they are stored; in the file, `points_file` names a side file with these data instead.
    """

    type: Literal["result"]
    case: str
    rules: list[str]
    level: str
    entry: str
    layer: str
    verdict: Verdict
    effective: Verdict
    waiver: WaiverFacts | None
    reason: str
    fault: NotRequired[FaultData]
    call: str
    expected: Expected
    observed: Observation
    source: Source
    kernel: KernelEvidence
    duration_us: float | None
    repro: str
    worker: NotRequired[int]
    device: NotRequired[str]
    claimed: NotRequired[str]
    notes: NotRequired[list[str]]
    set_up: NotRequired[SetUp]
    evidence: NotRequired[list[Shows]]
    space: NotRequired[SpaceFacts]
    points: NotRequired[dict[str, int]]
    rule_verdicts: NotRequired[dict[str, Verdict]]
    points_data: NotRequired[PointsFile]
    alarms: NotRequired[list[Alarm]]
    deviations: NotRequired[list[Deviation]]
    deviations_left_out: NotRequired[int]
    points_file: NotRequired[str]


# The footer and the other records.


class WaiversAccount(TypedDict, total=False):
    """How many results are waived, how many waivers hold on other stacks, and a line for each waiver with a problem."""

    file: str
    waived: int
    elsewhere: int
    problems: list[str]


class FooterRecord(TypedDict):
    """The last record; `verdicts` counts cases by effective verdict, `rules` has the verdict on each rule.

    `confirmation` counts violations: confirmed, not confirmed and not tried; it is absent if none were to be confirmed.
    For each rule that passed in part, `rule_evidence` has what was seen of it and what was not, and `not_offered` has
    what the device or the stack does not offer of it, with the number of cases. Each is absent if it would be empty.
    """

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
    waivers: NotRequired[WaiversAccount]


class StartRecord(TypedDict):
    """A case begins."""

    type: Literal["start"]
    case: str


class ProgressRecord(TypedDict):
    """The progress of a case, only in a worker's stream: the next point, and the number of points done.

    For random sequences, `row` is the sequence as a row of a table and `rule` the rule of its last step.
    """

    type: Literal["progress"]
    case: str
    point: str
    done: NotRequired[int]
    row: NotRequired[str]
    rule: NotRequired[str]


class OfferedRecord(TypedDict):
    """The worker's trials of capabilities; only in a worker's stream, before the first result.

    `offered`: by entry and capability, whether the entry offers what no device attribute declares. `absent`: for
    each capability that is declared but was not there, the call that showed this.
    """

    type: Literal["offered"]
    offered: dict[str, dict[str, bool]]
    absent: dict[str, str]


class WorkerRecord(TypedDict):
    """A worker has started. `boot_id` is empty unless the kernel under test is that of a host.

    `derived` is there if the worker is a guest that was given files that another one had derived.
    """

    type: Literal["worker"]
    boot_id: str
    derived: NotRequired[DerivedFiles]


class ResumedRecord(TypedDict):
    """A further session of the run begins; the earlier ones took `earlier_s` seconds."""

    type: Literal["resumed"]
    started: str
    earlier_s: float


class Occurrence(TypedDict):
    """One occurrence of a violation: in the run, or when it was tried again."""

    verdict: Verdict
    reason: str
    fault: NotRequired[FaultData]
    observed: NotRequired[Observation]


class Repetitions(TypedDict):
    """How often a violation was seen, and how often its case was tried alone."""

    seen: int
    of: int


class ConfirmationRecord(TypedDict):
    """Whether a violation occurs without the cases that ran before it.

    `point` is a point of a sweep, absent if the whole case was tried. `by` is "run" if the case was the first one of
    its worker, "repetition" if it was tried again alone in a fresh worker, and "company" if it occurred again, with the
    same verdict, in a fresh worker with other violations. Any violation that the case shows alone is a
    confirmation. If it is a different violation, or if there is none, both occurrences are recorded. For a violation
    that was not seen at the first try, `after` are the cases after which it occurs again, empty if there are none, and
    absent if they were not searched for. Unless such cases were found, `repetitions` says how often the violation was
    tried alone, and how often it was seen.
    """

    type: Literal["confirmation"]
    case: str
    point: NotRequired[str]
    confirmed: bool
    by: str
    in_run: NotRequired[Occurrence]
    alone: NotRequired[Occurrence]
    repetitions: NotRequired[Repetitions]
    after: NotRequired[list[str]]


class GuestRecord(TypedDict):
    """An event of a guest, only in its stream: it is up, it is broken, its command has ended, and so on.

    A session that ends before its first case, on a host too, also reports `broken`; `reason` says why. `files` are
    those that the guest has derived from the suite, in base64, by their paths.
    """

    type: Literal["guest"]
    event: NotRequired[str]
    uptime_s: NotRequired[float]
    reason: NotRequired[str]
    status: NotRequired[int]
    files: NotRequired[dict[str, str]]


OtherRecord: TypeAlias = (
    StartRecord | ProgressRecord | OfferedRecord | WorkerRecord | ResumedRecord | ConfirmationRecord | GuestRecord
)
Record: TypeAlias = HeaderRecord | ResultRecord | FooterRecord | OtherRecord
