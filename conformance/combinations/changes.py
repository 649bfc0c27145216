"""Carries out one point of the model of a re-registration: registers a region, changes it, and then uses its keys. The
use is a point of the model of an access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.bench.calls import Pd, errno_name
from conformance.combinations.extent import Extent
from conformance.combinations.objects import Link, Objects, Registered, only
from conformance.combinations.use import Call, not_used
from conformance.errors import SetupRefused
from conformance.model.observation import AccessSeen
from conformance.verbs import ENUMS

_CODES = ENUMS["ibv_rereg_mr_err_code"]
_CHANGE = ENUMS["ibv_rereg_mr_flags"]
_ACCESS = ENUMS["ibv_access_flags"]
_OTHER = {"pd": "other", "other": "pd"}
_KINDS = ("access", "pd", "translation")
_MORE = 1024  # bytes by which a new range is longer or shorter, at each end


class Change(Call):
    """One point: the change, and the use of the region."""

    def __init__(self, objects: Objects, values: Mapping[str, str], faults: Sequence[str]) -> None:
        old, built = values["place"] == "old", values["operation"] == "ATOMIC_WRITE"
        super().__init__(
            objects,
            values,
            faults,
            posting="wr_post" if built else "post_send",
            place="inner" if old else values["place"],
        )
        chosen = values["change"]
        for part in chosen.split("_"):
            only(part, "all", *_KINDS)
        self.flags = [kind for kind in _KINDS if chosen == "all" or kind in chosen.split("_")]

    def _observed(self, link: Link) -> AccessSeen:
        objects = self.objects
        # The queue pairs are in the domain `pd`, which the region has at the end, or has left or never had.
        last = {"own": "pd", "other": "other"}[self.call["domain"]]
        first = _OTHER[last] if "pd" in self.flags else last
        how = {"libibverbs": self.call["region"], "kernel": "uverbs"}[self.call["entry"]]
        region = objects.register(how, "anonymous", self.call["old_rights"], "aligned", first)
        try:
            self._use_before(region, first)
            code = self._changed(region, last)
            if code and not self.must_fail and (self.faults or how == "iova"):
                raise SetupRefused("the change", code)
            if code or self.must_fail:
                return not_used(code or "0", [] if code else [["SUCCESS", "change"]])
            return self._exchange(link, self._extent(region))
        finally:
            objects.deregister(region)
            self._end_point(link)

    def _use_before(self, region: Registered, domain: str) -> None:
        """Changes the region and changes it back. Raises SetupRefused."""
        before, pds = self.call["before"], self.objects.pds
        rights = self.objects.rights(self.call["old_rights"], "reg_mr")
        changes: Mapping[str, Sequence[tuple[str, Pd | None, int]]] = {
            "nothing": [],
            "moved": [("CHANGE_PD", pds[_OTHER[domain]], 0), ("CHANGE_PD", pds[domain], 0)],
            "revoked": [
                ("CHANGE_ACCESS", None, _ACCESS.value_of("LOCAL_WRITE")),
                ("CHANGE_ACCESS", None, rights),
            ],
        }
        for flag, pd, access in changes[before]:
            flags = _CHANGE.value_of(flag)
            changed = region.entry.rereg_mr(region.mr, flags, pd, 0, 0, access)
            if changed.value:
                raise SetupRefused(
                    f"ibv_rereg_mr before the point ({before})", code_name(changed.value)
                )

    def _changed(self, region: Registered, domain: str) -> str:
        """Changes the region. Returns the code of a refusal, else an empty text."""
        flags = _CHANGE.mask_of(*(f"CHANGE_{flag.upper()}" for flag in self.flags))
        # No flag selects some of these arguments: they are ignored, and are not those of the region.
        pd = self.objects.pds[domain if "pd" in self.flags else _OTHER[domain]]
        addr, length = self._new_range(region.extent)
        access = 0
        if "access" in self.flags:
            access = self.objects.rights(self.call["new_rights"], "reg_mr")
        changed = region.entry.rereg_mr(region.mr, flags, pd, addr, length, access)
        return code_name(changed.value) if changed.value else ""

    def _new_range(self, old: Extent) -> tuple[int, int]:
        addr, length = old.addr, old.length
        half = length // 2 & -_MORE
        return {
            "elsewhere": (addr + half, half),
            "same": (addr, length),
            "longer": (addr - _MORE, length + 2 * _MORE),
            "shorter": (addr, length - 2 * _MORE),
            "odd": (addr + _MORE + 1, length - 2 * _MORE - 9),
        }[self.call["range"]]

    def _extent(self, region: Registered) -> Extent:
        """Returns what the region opens after the change, or its old range at the place `old`."""
        old, keys = region.extent, region.mr.struct
        addr, length, base = old.addr, old.length, old.base
        if "translation" in self.flags:
            addr, length = self._new_range(old)
            base = addr
        if self.call["place"] == "old":
            addr, base, length = old.addr, old.base, _MORE
        return Extent(addr, length, base, int(keys.lkey), int(keys.rkey))


def code_name(value: int) -> str:
    """Returns the name of a code of ibv_rereg_mr, or of an errno of the kernel."""
    return _CODES.name_of(value) if value < 0 else errno_name(value)
