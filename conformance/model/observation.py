"""The observation of a case: plain data, recorded unchanged as `observed` of a result, and the input of judging.

TypedDicts, so that a type checker finds misspelt keys; not classes, because observations are read from and written to
JSON, and a sweep has thousands of them. A key is absent if it does not apply. Not for making observations (execution/)
and not for judging them (judging/).
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from conformance.model.fault import FaultData

# Stands for the statuses of a request on a queue pair on which nothing can complete yet.
NOT_AWAITED = "not awaited"


class MrFields(TypedDict):
    """The struct ibv_mr of a region: addresses in this process, `length` in bytes."""

    addr: int
    length: int
    handle: int
    lkey: int
    rkey: int
    pd_is_the_asked: bool
    context_is_the_pds: bool


class AskedRange(TypedDict):
    """The range that a registration requested: its address or offset, and its length in bytes."""

    addr: int
    length: int


class WindowFields(TypedDict):
    """The struct ibv_mw of a window."""

    rkey: int


class KeyChange(TypedDict):
    """The rkey in the structure of a window before and after a bind."""

    before: int
    after: int


class MrKeysChange(TypedDict):
    """[lkey, rkey] of a region before and after a re-registration."""

    before: list[int]
    after: list[int]


class PartialContents(TypedDict):
    """The first bytes of the harness's buffer (`here`) and of the range (`there`), in hexadecimal."""

    here: str
    there: str


class DivergenceData(TypedDict):
    """A deviation from the reference: its signature, the nearest rule, the fault, and the sequence as a row."""

    when: str
    rule: str
    fault: str
    row: str
    found: NotRequired[FaultData]  # the fault as data


class Observation(TypedDict, total=False):
    """The observation of one call, and of the case if it is the judged call."""

    # Of every call that was made.
    rc: int | None  # the value returned; None where the call returns a pointer
    returned: str  # as text: MR, MW or NULL, 0, the name of an errno or code, or a description of the error
    errno: str  # its name; empty if the call did not set it
    layer: str  # which layer returned the result: library, provider, kernel, device, header or none
    not_made: bool  # the step belongs to the other outcome of the judged call, or there was no queue pair for it
    no_pair: str  # the capability of the type of queue pairs that the device refused to create, such as `rc`
    no_control: str  # the errno with which the same call is refused where nothing is wrong with it
    enumerated: bool  # `returned` is a code from the verb's enumeration

    # Of a registration, a re-registration, and an allocation or bind of a window.
    mr: MrFields
    asked: AskedRange
    keys: MrKeysChange
    mw: WindowFields
    rkey: KeyChange

    # Of posted requests.
    wc: list[str]  # the statuses of the completions
    opcode: list[str]  # [reported, specified] of a completion that names another operation than the request
    wr_id_matches: bool | None  # None if there is no completion to compare
    marker: list[str]  # all statuses after an unsignaled request, with that of the signaled request after it
    responder_wc: list[str]  # the statuses at the receiver of a SEND_WITH_INV
    wc_flags: int  # of that receive, as the provider gave them (enum ibv_wc_flags)
    invalidated: list[int | None]  # [reported to the receiver of a SEND_WITH_INV, sent]: the invalidated keys

    # Of operations on a range.
    peer_wc: list[str]  # the statuses at the peer, unless all are SUCCESS
    unacknowledged: bool  # on this transport, SUCCESS of the request says only that it was sent
    qp_type: str
    side: str  # how the range is used: remote, gather, answer or receive
    moved: str  # how much of the data was transferred: all, nothing or part; `other`: the requester's buffer changed,
    # but has no bytes of the responder's
    changed: list[list[int]]  # [offset from the beginning of the range, size] of each changed range, in bytes
    tries: int  # how often it was sent over an unreliable transport; absent if once
    guards: str  # `changed` if bytes next to the harness's own buffer have changed
    late: bool  # a completion came before its data
    bytes: PartialContents
    state_before: str  # of a queue pair that was in the error state before the request
    state: str  # of the responder's queue pair after a refusal
    events: list[str]  # asynchronous events of that queue pair, such as QP_ACCESS_ERR, that had come by then
    byte_len: list[int]  # [reported to the receiver, sent], in bytes
    imm: list[int | None]  # [reported to the receiver, sent] of the immediate data
    pages: list[int]  # [pages in core, all pages] of the memory

    # Of a call that makes many operations: the fault of the first that was wrong.
    fault: FaultData

    # Of a comparison with the installed header.
    checks: dict[str, int]  # the number of checks with each outcome
    differences: list[str]  # of random sequences too
    not_covered: list[str]

    # Of random sequences.
    seed: int
    sequences: int
    steps: int
    divergences: list[DivergenceData]

    # Of the case.
    afterwards: "list[Observation]"  # of the later steps that were made
    setup_failed: str  # which call of the set-up was refused; then only `errno` is present, too
    setup_refused_once: str  # the refused call of the set-up, if the same set-up succeeded when it was made again
    unreachable: str  # why nothing could be observed on this stack
    left_behind: list[str]  # what could not be released, and which kernel resources have leaked
    remarks: list[str]  # what else was noticed; it changes no verdict
    lacking: list[str]  # needed capabilities that the device does not declare, for judging the record again


class ResourceCounts(TypedDict):
    """The kernel's counts of resources, by kind, before and after a case."""

    before: dict[str, int]
    after: dict[str, int]


class KernelEvidence(TypedDict, total=False):
    """Kernel log, taint and resources of the time in which a case ran; recorded as `kernel` of a result.

    `log` is absent if it could not be read, `taint_before` if the taint has not changed. `suspects` are the names one
    of which a complaint must contain to count against the device under test; absent if every complaint counts.
    """

    taint: int
    taint_before: int
    log: list[str]
    suspects: list[str]
    resources: ResourceCounts
    memory: ResourceCounts


# A kernel error or a leak during an interval of a sweep, with the first and the last point of the interval (`from` and
# `to`).
Alarm = TypedDict("Alarm", {"what": str, "from": str, "to": str, "fault": NotRequired[FaultData]})


class PointExample(TypedDict):
    """One point of a sweep in full. `point` is its text from Space.text."""

    point: str
    reason: str
    observed: Observation


def with_undeclared(observed: Observation, undeclared: Sequence[str]) -> Observation:
    """The observation as it is recorded, with needed capabilities that the device does not declare."""
    return {**observed, "lacking": list(undeclared)} if undeclared else observed


def without_undeclared(observed: Observation) -> Observation:
    """The reverse of `with_undeclared`, for a recorded observation."""
    copy = observed.copy()
    copy.pop("lacking", None)
    return copy
