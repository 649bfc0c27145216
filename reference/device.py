"""The whole device: every part of the reference in one, and what its library writes into structures."""

from __future__ import annotations

from dataclasses import replace

from conformance.bench.calls import IbvMr, Pd, Return
from reference.advice import Advice
from reference.header import own_header
from reference.objects import Region
from reference.reregistration import Change, Reregistration
from reference.work import Work


class Device(Reregistration, Advice, Work):
    """A device that does what the documents say."""

    def reg_mr(self, pd: int, addr: int, length: int, access: int) -> Region:
        """ibv_reg_mr: keys address the region where it lies. Raises Refused."""
        return self.register(pd, addr, length, addr, access)

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        """ibv_reg_mr_iova. Raises Refused."""
        return self.register(pd, addr, length, hca_va, access)

    # What the library tells

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        """The struct ibv_mr of a new region."""
        lkey, rkey = self.told_keys(region)
        return IbvMr(pd.context_pointer, pd.pointer, addr, length, region.handle, lkey, rkey)

    def told_errno(self, errno: int) -> int:
        """What stands in errno after a registration that gave NULL."""
        return errno

    def told_keys(self, region: Region) -> tuple[int, int]:
        """lkey and rkey as the structure has them."""
        return region.key, region.key

    def told_range(self, change: Change) -> tuple[int, int]:
        """addr and length as the structure has them after a new translation."""
        return change.addr, change.length

    def told_pd(self, pd: Pd, old: int) -> int:
        """The PD as the structure has it after a change to `pd`."""
        return pd.pointer

    def dereg_answer(self, returned: Return) -> Return:
        """What ibv_dereg_mr gives back."""
        return replace(returned)

    # What a program is compiled against

    bindings_fault = ("", "", 0)  # enumeration, name and number of a value that the bindings have otherwise

    def header(self) -> str:
        """The text of the installed verbs.h."""
        return own_header()
