"""Carries out one point of the model of registrations: registers a range of memory, some of whose pages may be missing,
and then uses the region."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext

from conformance.bench.calls import Mr, errno_name
from conformance.combinations.changes import code_name
from conformance.combinations.extent import Extent
from conformance.combinations.objects import FAR, Link, Objects, Registered, only
from conformance.combinations.stored import DMABUF
from conformance.combinations.use import Call, not_used
from conformance.errors import SetupRefused
from conformance.kernel import paging
from conformance.kernel.resources import PINNED
from conformance.model.combination_values import ENTRIES
from conformance.model.observation import AccessSeen
from conformance.verbs import ENUMS

_ACCESS = ENUMS["ibv_access_flags"]
_TRANSLATION = ENUMS["ibv_rereg_mr_flags"].value_of("CHANGE_TRANSLATION")
_LOCAL_WRITE = _ACCESS.value_of("LOCAL_WRITE")
_UNKNOWN, _OPTIONAL = 1 << _ACCESS.unknown_bit, 1 << 29
_RIGHTS = {
    "none": "",
    "local": "LOCAL_WRITE",
    "write": "LOCAL_WRITE REMOTE_WRITE",
    "read": "REMOTE_READ",
    "atomic": "LOCAL_WRITE REMOTE_ATOMIC",
    "write_alone": "REMOTE_WRITE REMOTE_READ",
    "atomic_alone": "REMOTE_ATOMIC",
}
_FLAGS = {
    "none": 0,
    "windows": _ACCESS.value_of("MW_BIND"),
    "zero_based": _ACCESS.value_of("ZERO_BASED"),
    "on_demand": _ACCESS.value_of("ON_DEMAND"),
    "huge": _ACCESS.mask_of("ON_DEMAND", "HUGETLB"),
    "relaxed": _ACCESS.value_of("RELAXED_ORDERING"),
    "flush": _ACCESS.value_of("FLUSH_GLOBAL"),
    "optional": _OPTIONAL,
    "unknown": _UNKNOWN,
    "high": 1 << 31,
    "both": _OPTIONAL | _UNKNOWN,
}
_FRONT, _BEHIND = 2, 3  # pages of the memory in front of the end of 2 MiB, and behind it
_BEYOND = ("one_beyond", "page_beyond", "far_beyond")
_LINE = 64
_FAR_BEYOND = 4 << 30
_SPACE = 1 << 64


class Registration(Call):
    """One point: the registration, and the use of the region."""

    def __init__(self, objects: Objects, values: Mapping[str, str], faults: Sequence[str]) -> None:
        how = DMABUF if values["call"] == "reg_dmabuf_mr" else "reg_mr"
        super().__init__(objects, values, faults, region=how, memory=values["memory"])
        page = objects.bench.page
        self._pd, self._entry = objects.pds["pd"], objects.bench.entry(ENTRIES[values["entry"]])
        self._stored = objects.memories.of_region(how, values["memory"])
        self._boundary_at = self._stored.addr + objects.memories.before_boundary
        self._first = self._boundary_at - _FRONT * page
        self._end = self._boundary_at + _BEHIND * page
        self._addr, self._length = self._range()
        self._base = self._first_address()

    @property
    def size(self) -> int:
        return min(super().size, self._length)

    def _observed(self, link: Link) -> AccessSeen:
        objects = self.objects
        region: Registered | None = None
        beside = self._before()
        try:
            code, mr = self._called()
            if mr:
                region = self._registered(mr)
            if code and not self.must_fail and (self.faults or self.call["memory"] == "file"):
                raise SetupRefused("the registration", code)
            if code or self.must_fail:
                return {**not_used("0", []), "called": code or "0"}
            assert region is not None
            return {**self._exchange(link, region.extent), "called": "0"}
        finally:
            for registration in filter(None, (region, beside)):
                objects.deregister(registration)
            self._end_point(link)

    def _range(self) -> tuple[int, int]:
        """Returns address and length of what is registered."""
        page = self.objects.bench.page
        starts = {"page": 0, "line": _LINE, "odd": 1, "last": page - 1, "boundary": _FRONT * page}
        addr = self._first + starts[self.call["start"]]
        length = {
            "byte": 1,
            "below_page": page - 1,
            "page": page,
            "above_page": page + 1,
            "several": 2 * page + 5,
            "to_boundary": self._boundary_at - addr,
            "to_end": self._end - addr,
            "one_beyond": self._end - addr + 1,
            "page_beyond": self._end - addr + page,
            "far_beyond": _FAR_BEYOND + page,
            "wrap": _SPACE - addr + page,
            "space": _SPACE - 1,
        }[self.call["length"]]
        return addr, length

    def _first_address(self) -> int:
        """Returns the address of the first byte in requests."""
        page, addr = self.objects.bench.page, self._addr
        if self.call["flag"] == "zero_based":
            return 0
        return {
            "same": addr,
            "far": FAR + addr % page,
            "zero": 0,
            "top": _SPACE - 16 * page + addr % page,
            "line": FAR + (addr + _LINE) % page,
            "odd": FAR + (addr + 1) % page,
        }[self.call["iova"]]

    def _access(self) -> int:
        rights = self.call["rights"]
        if rights == "all":
            flags = _LOCAL_WRITE | self.objects.window_rights("all")
        else:
            flags = _ACCESS.mask_of(*_RIGHTS[rights].split())
        return flags | _FLAGS[self.call["flag"]]

    def _before(self) -> Registered | None:
        """Carries out what comes before. Returns a region that is kept. Raises SetupRefused."""
        before, pages = self.call["before"], (self._first, self._end - self._first)
        if self.call["memory"] == "untouched":
            paging.advise(self._stored.addr, self._stored.size, "DONTNEED")
        if before == "nothing":
            return None
        only(before, "refusal", "ended", "beside")
        access = _LOCAL_WRITE | (_UNKNOWN if before == "refusal" else 0)
        returned = self._entry.reg_mr(self._pd, *pages, access)
        region = self._registered(returned.mr) if returned.mr else None
        if region and before != "beside":
            self.objects.deregister(region)
        if (region is None) is not (before == "refusal"):
            raise SetupRefused(
                f"a registration before the point ({before})", errno_name(returned.errno)
            )
        return region if before == "beside" else None

    def _registered(self, mr: Mr) -> Registered:
        keys = mr.struct
        extent = Extent(self._addr, self._length, self._base, int(keys.lkey), int(keys.rkey))
        return Registered(mr, self._entry, extent)

    def _called(self) -> tuple[str, Mr | None]:
        """Registers the range. Returns the name of a refusal's code or an empty text, and the region. Raises
        SetupRefused."""
        call, entry, pd, access = self.call["call"], self._entry, self._pd, self._access()
        addr, length, stored = self._addr, self._length, self._stored
        if call == "rereg_mr":
            elsewhere = self.objects.memories.of_kind("plain").addr
            returned = entry.reg_mr(pd, elsewhere, self.objects.bench.page, access)
            if returned.mr is None:
                raise SetupRefused("registering other memory", errno_name(returned.errno))
            with self._withheld():
                changed = entry.rereg_mr(returned.mr, _TRANSLATION, None, addr, length, 0).value
            return code_name(changed) if changed else "", returned.mr
        with self._withheld(), self._limited():
            if call == "reg_dmabuf_mr":
                offset = stored.offset + addr - stored.addr
                returned = entry.reg_dmabuf_mr(pd, offset, length, self._base, stored.fd, access)
            elif call == "reg_mr_iova":
                returned = entry.reg_mr_iova(pd, addr, length, self._base, access)
            else:
                only(call, "reg_mr")
                returned = entry.reg_mr(pd, addr, length, access)
        if returned.mr is None:
            return errno_name(returned.errno) or "no errno", None
        return "", returned.mr

    @contextmanager
    def _withheld(self) -> Iterator[None]:
        """Takes pages, or the access to them, from the process in the block."""
        pages, page = self.call["pages"], self.objects.bench.page
        first = self._boundary_at if pages.startswith("last") else self._first
        size = self._end - first
        if self.call["length"] in _BEYOND:
            # A region that fits into the memory has the pages behind it too.
            with paging.absent(self._end, page):
                yield
        elif pages == "whole":
            yield
        elif pages.endswith("unmapped"):
            with paging.absent(first, size):
                yield
        else:
            only(pages.rpartition("last_")[2], "read_only", "no_access")
            paging.protect(first, size, pages.endswith("read_only"))
            try:
                yield
            finally:
                paging.unprotect(first, size)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Limits the memory that the process can lock in the block."""
        limit = only(self.call["limit"], "none", "exact", "page_less")
        page, bench = self.objects.bench.page, self.objects.bench
        pages = -(-(self._addr % page + self._length) // page) - (limit == "page_less")
        pinned = bench.resources().get(PINNED, 0) << 10 if limit != "none" else 0
        room = pinned + pages * page
        with nullcontext() if limit == "none" else bench.locked_memory_limit(room):
            yield
