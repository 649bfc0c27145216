"""Defines the observation of a case as data. An observation is recorded unchanged as `observed` of a result. TypedDicts
allow a type checker to find misspelt keys. Observations are not classes, because they are read from JSON and written to
JSON, and a sweep has thousands of observations. A key is absent if it does not apply."""

from collections.abc import Sequence
from typing import Optional, TypedDict, Union

from conformance.model.fault import FaultData
from conformance.older_python import NotRequired

# Recorded in place of the statuses of a request that cannot complete in the current state of its queue pair.
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
    """The first bytes of the requester's buffer (`here`) and of the range (`there`), in hexadecimal."""

    here: str
    there: str


class AccessSeen(TypedDict, total=False):
    """What both ends have shown at one point of a model: the errno of the posting or 0, the words of the completions,
    and how much of each memory has changed. `called` is the errno of the call before the use, or 0; in an answer, all that
    the documents permit. `pages` is how many of its pages are present. `setup_failed` has the refusal of the point's
    set-up."""

    called: str
    pages: str
    posted: str
    requester: list[list[str]]
    receiver: list[list[str]]
    tested: str
    other: str
    setup_failed: str


class PointClass(TypedDict):
    """Points at which the reference requires the same and the device has shown the same. `reliable` is whether their
    transport is. `divided` is whether parts of the message may be accepted before the fault: the range of an element is
    wrong. `count` is their number, and `example` is the first of them."""

    answer: AccessSeen
    observed: AccessSeen
    reliable: bool
    divided: bool
    count: int
    example: str


class CombinationsSeen(TypedDict):
    """The points of a covering array on a device. `index` has for each point the number of its class, or of what the
    device lacks for it; encoded like the index of a sweep."""

    model: str  # the digest of the model
    strength: int
    iba: bool  # whether the statuses of the InfiniBand specification apply
    classes: list[PointClass]
    lacking: list[str]  # the undeclared capabilities of points that were not run
    index: str


class EventSeen(TypedDict):
    """What an event of a `wire` script had to see (`expected`: any of these words), and what was seen. `what` is answer,
    request, completion, receive or state. `data` is the number of bytes of the case's memory in an answer, `psn` the
    distance of the answer's PSN from the request's, `length` the number of the request's PSNs, `gap` the distance of the
    answer's PSN from the one that the device awaited; `fields` are [reported, sent] of a receive, or of an answer [its
    message sequence number, the right one]."""

    event: str
    what: str
    operation: str
    expected: list[str]
    seen: str
    data: NotRequired[int]
    psn: NotRequired[int]
    length: NotRequired[int]
    gap: NotRequired[int]
    fields: NotRequired[dict[str, list[Optional[int]]]]


class TriesInFlight(TypedDict):
    """How often requests were in flight during the call of a case, and how often a rule was violated then."""

    hits: int
    of: int


class Observation(TypedDict, total=False):
    """The observation of one call. The observation of the judged call also has the keys for the whole case."""

    # Observations of every call.
    rc: Optional[int]  # the returned value; None if the call returns a pointer
    returned: str  # as text: MR, MW or NULL, 0, the name of an errno or code, or a description of the error
    errno: str  # the name of errno; empty if the call did not set errno
    # which layer returned the result: libibverbs, provider, kernel, device, header or none
    layer: str
    not_made: bool  # the step needs a different outcome of the judged call, or there was no queue pair for the step
    no_pair: str  # if the device refused to create the queue pair: the capability for its type, such as `rc`
    # the errno with which the control, the same call with valid arguments, was refused
    no_control: str
    enumerated: bool  # `returned` is a code from the verb's enumeration

    # Observations of a registration, a re-registration, and an allocation or bind of a window.
    mr: MrFields
    asked: AskedRange
    keys: MrKeysChange
    mw: WindowFields
    rkey: KeyChange

    # Observations of posted requests.
    wc: list[str]  # the statuses of the completions
    # [reported, specified] for a completion that names a different operation than the request
    opcode: list[str]
    wr_id_matches: Optional[bool]  # None if there is no completion to compare
    # all statuses after an unsignaled request, including the status of the next, signaled request
    marker: list[str]
    # of requests in flight: one has failed, or was not complete after the judged call
    overlapped: bool
    responder_wc: list[str]  # the statuses at the receiver of a SEND_WITH_INV
    wc_flags: int  # wc_flags of the completion at the receiver of a SEND_WITH_INV
    # [reported to the receiver of a SEND_WITH_INV, sent]: the invalidated keys
    invalidated: list[Optional[int]]

    # Observations of operations on a range.
    peer_wc: list[str]  # the statuses at the peer, unless all are SUCCESS
    # on this transport, the status SUCCESS means only that the request was sent
    unacknowledged: bool
    qp_type: str
    side: str  # how the range is used: remote, gather, answer or receive
    moved: str  # how much of the data was transferred: all, nothing or part; `other`: the requester's buffer changed,
    # but has no bytes from the responder
    # [offset from the beginning of the range, size] of each changed range, in bytes
    changed: list[list[int]]
    tries: int  # how often the request was sent over an unreliable transport; absent if only once
    guards: str  # `changed` if bytes next to the requester's buffer have changed
    late: bool  # a completion was reported before the data of its request
    bytes: PartialContents
    state_before: str  # the state of the queue pair before the request, if it was the error state
    state: str  # the state of the responder's queue pair after a refusal
    # asynchronous events of the responder's queue pair after a refusal, such as QP_ACCESS_ERR
    events: list[str]
    byte_len: list[int]  # [reported to the receiver, sent], in bytes
    imm: list[Optional[int]]  # [reported to the receiver, sent]: immediate data
    pages: list[int]  # [pages in core, all pages] of the memory

    # Observations of a script of packets. Ranges are [memory, offset, size].
    exchange: list[EventSeen]
    stray: list[list[Union[str, int]]]  # changed, but not expected
    missing: list[list[Union[str, int]]]  # expected to change, but without the expected bytes
    wrong_packets: list[str]  # mistakes in packets of the device
    unasked: list[str]  # packets of the device that no event awaited
    announced: list[str]  # receives that completed with SUCCESS although no event awaited them

    # For a call that executes many operations: the fault of the first operation with a fault.
    fault: FaultData

    # Observations of a comparison with the installed header.
    checks: dict[str, int]  # the number of checks with each outcome
    differences: list[str]
    not_covered: list[str]

    combinations: CombinationsSeen

    # Observations of the case as a whole.
    afterwards: "list[Observation]"  # the observations of the later steps
    setup_failed: str  # the call of the set-up that was refused, in words; other keys are `errno` and `setup_call`
    setup_call: str  # the name of this call, if it is a call of the table language
    # the refused call of the set-up, if the same set-up succeeded when repeated
    setup_refused_once: str
    unreachable: str  # why nothing could be observed on this stack
    no_binding: str  # what the case needs of pyverbs, and this release of pyverbs lacks
    precondition: list[str]  # the names in capability.PRECONDITIONS that this stack does not meet
    # objects that could not be released, and kernel resources that have leaked
    left_behind: list[str]
    remarks: list[str]  # other facts, which do not change the verdict
    in_flight: TriesInFlight
    # needed capabilities that the device does not declare; used when a record is judged again
    lacking: list[str]


class ResourceCounts(TypedDict):
    """The kernel's counts of resources, by type, before and after a case."""

    before: dict[str, int]
    after: dict[str, int]


class UnfreedMemory(TypedDict):
    """Memory that a module has allocated in a case, and again in each repetition of the case, and has not freed. `line`
    is the line of source that allocates the memory. `objects` has the numbers of objects from the case and from each
    repetition; `size` is the number of bytes from the last repetition."""

    function: str
    module: str
    line: str
    objects: list[int]
    size: int


class KernelEvidence(TypedDict, total=False):
    """Kernel log, taint, resources and unfreed memory of modules while a case ran; recorded as `kernel` of a result.

    `log` is absent if the log could not be read. `taint_before` is absent if the taint has not changed. A complaint
    counts against the device under test if it contains one of the names `suspects`. If `suspects` is absent, all
    complaints count. `sanitizer` has the lines of reports of AddressSanitizer about libibverbs and its provider.
    """

    taint: int
    taint_before: int
    log: list[str]
    sanitizer: list[str]
    suspects: list[str]
    resources: ResourceCounts
    memory: ResourceCounts
    unfreed: list[UnfreedMemory]


# A kernel error or a leak during an interval of a sweep, with the first and the last point of the interval (`from` and
# `to`).
Alarm = TypedDict("Alarm", {"what": str, "from": str, "to": str, "fault": NotRequired[FaultData]})


class PointExample(TypedDict):
    """One point of a sweep in full. `point` is its text from Space.text."""

    point: str
    reason: str
    observed: Observation


def with_undeclared(observed: Observation, undeclared: Sequence[str]) -> Observation:
    """Returns the observation with `lacking`, the needed capabilities that the device does not declare."""
    if undeclared:
        return {**observed, "lacking": list(undeclared)}
    return observed


def without_undeclared(observed: Observation) -> Observation:
    copy = observed.copy()
    copy.pop("lacking", None)
    return copy


def reports_arrival(seen: Observation) -> bool:
    """Whether a receive completed with the length of its message. The data have then arrived, on unreliable transports
    too: if the message is lost, a later message of a different length consumes the receive."""
    came, sent = seen.get("byte_len") or (None, 0)
    return seen.get("side") == "receive" and seen["wc"] == ["SUCCESS"] and came == sent
