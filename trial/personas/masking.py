"""Behaviours that hide seeded violations: a driver with such a behaviour gives the same answers with and without the
violation."""

from collections.abc import Mapping

from reference.device import Device
from trial.mutants.access_flags import HugetlbWithoutPagingRefused
from trial.mutants.advice_pages import OnlyFlushedAdviceIsFollowed
from trial.mutants.bind_posting import BindFaultsAreFoundInCompletions
from trial.mutants.ordering import RelaxedOrderingIgnored
from trial.mutants.rereg_access import KeysKept
from trial.personas.persona import Persona
from trial.personas.queueing import NoQueryOfQueuePairs, ReadSinksNeedRemoteWrite
from trial.personas.registering import (
    HcaVaIsDropped,
    HugePagesNotOffered,
    LastKeyComesBack,
    LowestFreeKey,
    NoNewRightToWrite,
    NoRemoteKeyWithoutRights,
    NoWritingOfReadOnlyPins,
    ZeroBasedIsDropped,
)
from trial.personas.windows import NoEmptyTypeTwo, WindowsCannotBeBound, WindowsHoldNothing, WindowsOfTwoGigabytes

_OPENING = (
    "read-only-memory-opens-to-writes",
    "read-only-memory-opens-to-receives",
    "read-only-memory-opens-to-atomics",
)
MASKS: Mapping[type[Device], tuple[str, ...]] = {
    # The driver never sees the flag.
    RelaxedOrderingIgnored: (
        "remote-atomic-alone-relaxed",
        "no-binding-of-relaxed",
        "relaxed-refused",
        "relaxed-not-visible",
        "relaxed-atomics-refused",
    ),
    # The persona already refuses the lengths at which the violations begin.
    WindowsOfTwoGigabytes: ("end-of-a-bind-wraps", "huge-lengths-are-signed", "wrapping-bind-is-cut-at-the-region"),
    # Advice without FLUSH does nothing, on any region.
    OnlyFlushedAdviceIsFollowed: ("asynchronous-advice-for-every-domain",),
    # A re-registration keeps the keys, so that no old key exists.
    KeysKept: ("old-key-serves",),
    # A region without LOCAL_WRITE has no REMOTE_WRITE either, and is refused for lack of that right.
    ReadSinksNeedRemoteWrite: ("reads-write-anything",),
    # HUGETLB is refused before the device checks whether the region is in huge pages.
    HugePagesNotOffered: ("dmabuf-every-flag", "dmabuf-on-demand"),
    HugetlbWithoutPagingRefused: ("dmabuf-on-demand",),
    # The old key has been assigned to a new region.
    LowestFreeKey: ("posted-receives-keep-their-region",),
    LastKeyComesBack: ("posted-receives-keep-their-region",),
    # Every address is a pointer, so that no address can be wrong by an offset.
    ZeroBasedIsDropped: ("zero-based-from-the-page", "zero-based-to-the-pages-end"),
    # Peers address every region by the address of its memory.
    HcaVaIsDropped: (
        "regions-past-the-end-have-no-end",
        "keys-of-other-addresses-outlive",
        "ex-zero-based",
        "ex-iova-without-its-bit",
        "iova-bounds-of-memory",
    ),
    # The region has no key with which it could be read.
    NoRemoteKeyWithoutRights: ("remote-read-by-local-read",),
    # The completion reports the faults that the posting does not detect.
    BindFaultsAreFoundInCompletions: (
        "foreign-region-bound",
        "foreign-regions-are-opened",
        "region-of-any-domain",
        "queue-pair-of-any-domain",
        "windows-follow-their-region",
        "windows-of-any-domain",
        "windows-open-to-the-queue-pair-of-the-bind",
    ),
    # A posted bind of zero bytes is refused.
    NoEmptyTypeTwo: ("no-bytes-are-the-whole-region",),
    # Bound windows do not prevent the deregistration or a change of a region.
    WindowsHoldNothing: (
        "windows-outlive-their-deallocation",
        "refused-changes-move-the-region",
        "local-invalidation-over-uc-holds-the-region",
    ),
    # Windows can be allocated although they are not declared.
    WindowsCannotBeBound: ("windows-claimed", "type-two-claimed"),
    # The change that would open the memory is refused.
    NoNewRightToWrite: _OPENING,
    NoWritingOfReadOnlyPins: _OPENING,
    # The state of a queue pair cannot be queried.
    NoQueryOfQueuePairs: ("responder-goes-on",),
}


def masked(persona: Persona) -> frozenset[str]:
    """Returns the names of the violations that a persona's behaviours mask."""
    return frozenset(name for kind, names in MASKS.items() if kind in persona.behaves for name in names)
