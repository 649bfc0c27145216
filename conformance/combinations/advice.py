"""Carries out one point of the model of advice: registers a region on demand, advises a list with a range of it, looks
which pages are present, and then uses the region."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from conformance.bench.calls import Sge, errno_name
from conformance.combinations.extent import Extent
from conformance.combinations.objects import Link, Objects, Registered, only
from conformance.combinations.use import Call, not_used
from conformance.errors import SetupRefused
from conformance.kernel import paging
from conformance.model.combination_values import ENTRIES
from conformance.model.observation import AccessSeen
from conformance.verbs import ENUMS

_ADVICE = ENUMS["ibv_advise_mr_advice"]
_FLUSH = ENUMS["ibv_advise_mr_flag"].value_of("FLUSH")
_FLAGS = {"flush": _FLUSH, "none": 0, "unknown": 1 << 1, "flush_unknown": _FLUSH | 1 << 31}
_UNKNOWN = 255  # no advice has this number
_NO_FAULT = "PREFETCH_NO_FAULT"
_LONG = 1 << 31
_SPACE = 1 << 64
_DROPPED = "dropped"
# Faults of the key: no page of the region becomes present, also without FLUSH.
_OF_KEYS = ("owner", "process", "key")
_BEFORE = {"read": "PREFETCH", "write": "PREFETCH_WRITE", "no_fault": _NO_FAULT}


class Advice(Call):
    """One point: the advice, and the use of the region."""

    def __init__(self, objects: Objects, values: Mapping[str, str], faults: Sequence[str]) -> None:
        region = {name: values[name] for name in ("region", "memory", "bounds", "rights")}
        super().__init__(objects, values, faults, **region)
        self._entry = objects.bench.entry(ENTRIES[values["entry"]])

    def _observed(self, link: Link) -> AccessSeen:
        objects = self.objects
        self._region = objects.register(*self._how(), "pd")
        try:
            return self._exchange(link, self._region.extent)
        finally:
            objects.deregister(self._region)  # waits for advice that is followed later
            self._end_point(link)

    def _shown(self, post: Callable[[], AccessSeen]) -> AccessSeen:
        region, call = self._region, self.call
        tested = self._element(region)
        self._advise_before(region, tested)
        flags = _FLAGS[call["flags"]]
        pd = self.objects.pds[{"own": "pd", "other": "other"}[call["domain"]]]
        number = _UNKNOWN if call["advice"] == "unknown" else _ADVICE.value_of(call["advice"])
        code = self._entry.advise_mr(pd, number, flags, self._elements(region, tested)).value
        seen: AccessSeen = {"called": errno_name(code) or "0"}
        if self._tells_pages():
            seen["pages"] = self._pages(region.extent)
        if code or self.must_fail:
            return {**not_used("0", []), **seen}
        return {**post(), **seen}

    def _element(self, region: Registered) -> Sge:
        """Returns the element with the range and the key of the point."""
        extent = region.extent
        start, length = self._range(extent)
        return Sge((extent.base + start) % _SPACE, length, self.lkey(self.call["lkey"], region))

    def _range(self, extent: Extent) -> tuple[int, int]:
        """Returns the offset and the length of the range in the region."""
        length, boundary, page = extent.length, self._boundary(extent), self.objects.bench.page
        return {
            "whole": (0, length),
            "first": (0, 1),
            "last": (length - 1, 1),
            "inner": (length // 2, 64),
            "boundary": (boundary - 1, 2),
            "pages": (boundary - page // 2, page),
            "one_beyond": (1, length),
            "one_before": (-1, length),
            "across_end": (length - 1, 2),
            "behind": (length, 1),
            "wrap": (-page - extent.base, 2 * page),
            "long": (0, _LONG),
        }[self.call["range"]]

    def _elements(self, region: Registered, tested: Sge) -> list[Sge]:
        """Returns the list: the other elements are a byte at each end of the region, or of another region."""
        which = self.call["elements"]
        if which == "only":
            return [tested]
        if only(self.call["others"], "same", "another") == "another":
            region = self.objects.region("on_demand", "plain", "all")
        extent, lkey = region.extent, region.extent.lkey
        elements = [Sge(extent.base, 1, lkey), Sge(extent.base + extent.length - 1, 1, lkey)]
        elements = elements[: int(which[-1]) - 1]
        at = {"first": 0, "middle": 1, "last": len(elements)}[which.partition("_")[0]]
        return [*elements[:at], tested, *elements[at:]]

    def _advise_before(self, region: Registered, tested: Sge) -> None:
        """Gives the advice that comes before. Raises SetupRefused."""
        before, extent = self.call["before"], region.extent
        if before == "nothing":
            return
        only(before, "refused", "beside", *_BEFORE)
        advice, range_ = _BEFORE.get(before, "PREFETCH_WRITE"), Sge(extent.base, 1, extent.lkey)
        if before == "refused":
            range_ = Sge(extent.base, 1, self.objects.invented(extent).lkey)
        elif before == "beside":
            other = self.objects.region("on_demand", "plain", "all").extent
            range_ = Sge(other.base, other.length, other.lkey)
        elif not self.faults:
            range_ = Sge(tested.addr, tested.length, extent.lkey)
        pd = self.objects.pds["pd"]
        code = self._entry.advise_mr(pd, _ADVICE.value_of(advice), _FLUSH, [range_]).value
        if code and before != "refused":
            raise SetupRefused(f"advice before the point ({before})", errno_name(code))
        if self.call["memory"] == _DROPPED:
            stored = self.objects.memories.of_kind(_DROPPED)
            paging.advise(stored.addr, stored.size, "DONTNEED")

    def _tells_pages(self) -> bool:
        """Whether the documents say which pages are present when the call returns. An earlier element of the same memory
        may bring in pages beside its own."""
        call = self.call
        if call["memory"] != _DROPPED:
            return False
        if self.faults:
            alone = call["elements"] == "only" or call["others"] == "another"
            return self.faults[0] in _OF_KEYS and alone
        return call["flags"] == "flush" or call["advice"] == _NO_FAULT

    def _pages(self, extent: Extent) -> str:
        start, length = self._range(extent)
        present, pages = paging.mapped(extent.addr + start, length)
        return {0: "absent", pages: "present"}.get(present, "some present")
