"""What was observed of a case: plain data, recorded as it is under `observed` of a result, and judged from there.

The types of the keys, so that a type checker finds a misspelt one. TypedDicts and not classes, since observations come
from JSON and go to JSON, and a sweep makes thousands of them. A key is absent where it does not apply. Not for making
observations (execution/) and not for judging them (judging/).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict


class MrFields(TypedDict):
    """The structure of a registered region: addresses in this process, `length` in bytes."""

    addr: int
    length: int
    handle: int
    lkey: int
    rkey: int
    pd_is_the_asked: bool
    context_is_the_pds: bool


class AskedRange(TypedDict):
    """The range that a registration asked for: its address or offset, and its length in bytes."""

    addr: int
    length: int


class WindowFields(TypedDict):
    """The structure of an allocated window."""

    rkey: int


class KeyChange(TypedDict):
    """A window's rkey in its structure before and after a bind."""

    before: int
    after: int


class MrKeysChange(TypedDict):
    """A region's lkey and rkey, in this order, before and after a re-registration."""

    before: list[int]
    after: list[int]


class PartialContents(TypedDict):
    """The first bytes of the harness's side (`here`) and of the range (`there`) in hexadecimal digits."""

    here: str
    there: str


class DivergenceData(TypedDict):
    """Where a device parts from the reference: a signature, the nearest rule, the fault, the sequence as a row."""

    when: str
    rule: str
    fault: str
    row: str


class Observation(TypedDict, total=False):
    """What came of one call, and of the case whose judged call it is."""

    # Of every call that was made.
    rc: int | None  # the value returned; None where the call returns a pointer
    returned: str  # for people: MR, MW or NULL, 0, the name of an errno or of a code, or what went wrong
    errno: str  # its name; empty if the call left it alone
    layer: str  # who answered: library, provider, kernel, device, header or none
    enumerated: bool  # `returned` is a code of the verb's own enumeration

    # Of a registration, a re-registration, and an allocation or bind of a window.
    mr: MrFields
    asked: AskedRange
    keys: MrKeysChange
    mw: WindowFields
    rkey: KeyChange

    # Of posted requests.
    wc: list[str]  # the statuses of the completions
    wr_id_matches: bool | None  # None where there is nothing to compare
    marker: list[str]  # the statuses with that of the request behind the one that asked for no completion
    responder_wc: list[str]  # the statuses at the receiver of a SEND_WITH_INV

    # Of operations on a range.
    peer_wc: list[str]  # the statuses at the other side, unless all succeeded
    qp_type: str
    side: str  # whose range it is about: remote, gather, answer or receive
    moved: str  # how much has come: all, nothing or part; `other`: the requester's buffer has bytes of neither side
    changed: list[list[int]]  # [offset from the range's beginning, bytes] of each stretch that differs
    tries: int  # how often it was sent over an unreliable transport; absent if once
    guards: str  # `changed` where bytes beside the harness's own buffer differ
    late: bool  # a completion came before its data
    bytes: PartialContents
    state_before: str  # of a queue pair that was in the error state before the request
    state: str  # of the responder's queue pair after a refusal
    byte_len: list[int]  # [what the receiver was told, what was sent], in bytes
    imm: list[int | None]  # the same of the immediate datum
    pages: list[int]  # [those in core, all] of the memory

    # Of a comparison with the installed header.
    checks: dict[str, int]  # how many had each outcome
    differences: list[str]  # of random sequences too
    not_covered: list[str]

    # Of random sequences.
    seed: int
    sequences: int
    steps: int
    divergences: list[DivergenceData]

    # Of the case.
    afterwards: list[Observation]  # the later steps, as far as they were made
    setup_failed: str  # what the device refused of the set-up; with `errno` alone
    setup_refused_once: str  # the refused call of the set-up, where the same set-up was done when it was made again
    unreachable: str  # why nothing could be observed here
    left_behind: list[str]  # what could not be given back, or is counted now and was not before
    lacking: list[str]  # the capabilities that were needed and not declared, so that it can be judged again


class ResourceCounts(TypedDict):
    """What the kernel counts, by kind, before and after a case."""

    before: dict[str, int]
    after: dict[str, int]


class KernelEvidence(TypedDict, total=False):
    """What the kernel showed while a case ran; recorded under `kernel` of a result.

    `log` is absent where it could not be read, `taint_before` where the taint has not changed.
    """

    taint: int
    taint_before: int
    log: list[str]
    resources: ResourceCounts
    memory: ResourceCounts


# What the kernel showed during a stretch of a sweep, and its first and last point (`from` and `to`).
Alarm = TypedDict("Alarm", {"what": str, "from": str, "to": str})


class PointExample(TypedDict):
    """One point of a sweep in full; `point` is its text as Space.text gives it."""

    point: str
    reason: str
    observed: Observation


def with_undeclared(observed: Observation, undeclared: Sequence[str]) -> Observation:
    """The observation as it is recorded where the case needs capabilities that the device does not declare."""
    return {**observed, "lacking": list(undeclared)} if undeclared else observed


def without_undeclared(observed: Observation) -> Observation:
    """An observation that was recorded, as it was when it was judged."""
    made = observed.copy()
    made.pop("lacking", None)
    return made
