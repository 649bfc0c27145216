"""Behaviours that hide seeded violations: a driver with such a behaviour gives the same answers with and without the
violation."""

from collections.abc import Mapping

from trial.personas.persona import Persona

_OPENING = (
    "read-only-memory-opens-to-writes",
    "read-only-memory-opens-to-receives",
    "read-only-memory-opens-to-atomics",
)
MASKS: Mapping[str, tuple[str, ...]] = {
    # The driver never sees the flag.
    "relaxed-ordering-ignored": (
        "remote-atomic-alone-relaxed",
        "no-binding-of-relaxed",
        "relaxed-refused",
        "relaxed-not-visible",
        "relaxed-atomics-refused",
    ),
    # The persona already refuses the lengths at which the violations begin.
    "windows-of-two-gigabytes": (
        "end-of-a-bind-wraps",
        "huge-lengths-are-signed",
        "wrapping-bind-is-cut-at-the-region",
    ),
    # Advice without FLUSH does nothing, on any region.
    "only-flushed-advice-is-followed": ("asynchronous-advice-for-every-domain",),
    # A re-registration keeps the keys, so that no old key exists.
    "keys-kept": ("old-key-serves",),
    # A region without LOCAL_WRITE has no REMOTE_WRITE either, and is refused for lack of that right.
    "read-sinks-need-remote-write": ("reads-write-anything",),
    # HUGETLB is refused before the device checks whether the region is in huge pages.
    "huge-pages-not-offered": ("dmabuf-every-flag", "dmabuf-on-demand"),
    "hugetlb-without-paging-refused": ("dmabuf-on-demand",),
    # The old key has been assigned to a new region.
    "lowest-free-key": ("posted-receives-keep-their-region",),
    "last-key-comes-back": ("posted-receives-keep-their-region",),
    # Every address is a pointer, so that no address can be wrong by an offset.
    "zero-based-is-dropped": ("zero-based-from-the-page", "zero-based-to-the-pages-end"),
    # Peers address every region by the address of its memory.
    "hca-va-is-dropped": (
        "regions-past-the-end-have-no-end",
        "keys-of-other-addresses-outlive",
        "ex-zero-based",
        "ex-iova-without-its-bit",
        "iova-bounds-of-memory",
    ),
    # The region has no key with which it could be read.
    "no-remote-key-without-rights": ("remote-read-by-local-read",),
    # The completion reports the faults that the posting does not detect.
    "bind-faults-are-found-in-completions": (
        "foreign-region-bound",
        "foreign-regions-are-opened",
        "region-of-any-domain",
        "queue-pair-of-any-domain",
        "windows-follow-their-region",
        "windows-of-any-domain",
        "windows-open-to-the-queue-pair-of-the-bind",
    ),
    # A posted bind of zero bytes is refused.
    "no-empty-type-two": ("no-bytes-are-the-whole-region",),
    # Bound windows do not prevent the deregistration or a change of a region.
    "windows-hold-nothing": (
        "windows-outlive-their-deallocation",
        "refused-changes-move-the-region",
        "local-invalidation-over-uc-holds-the-region",
    ),
    # Windows can be allocated although they are not declared.
    "windows-cannot-be-bound": ("windows-claimed", "type-two-claimed"),
    # The change that would open the memory is refused.
    "no-new-right-to-write": _OPENING,
    "no-writing-of-read-only-pins": _OPENING,
    # The state of a queue pair cannot be queried.
    "no-query-of-queue-pairs": ("responder-goes-on",),
}


def masked(persona: Persona) -> frozenset[str]:
    """Returns the names of the violations that a persona's behaviours mask."""
    return frozenset(name for behaviour, names in MASKS.items() if behaviour in persona.behaves for name in names)
