"""The reference device, which inherits from its parts, and the values that its library writes into structures."""

import errno

from conformance.bench.calls import IbvMr, Pd, Return
from trial.reference.advice import Advice
from trial.reference.extended import Extended
from trial.reference.header import own_header
from trial.reference.made_otherwise import MadeOtherwise
from trial.reference.memory import PAGE
from trial.reference.objects import Region, refuse_if
from trial.reference.postings import Postings
from trial.reference.reregistration import Change
from trial.reference.segments import Segments


class Device(MadeOtherwise, Advice, Postings, Extended, Segments):
    """A device that behaves as the documents require."""

    def reg_mr(self, pd: int, addr: int, length: int, access: int) -> Region:
        """Registers memory. Requests with the keys use the addresses of the process. Raises Refused."""
        return self.register(pd, addr, length, addr, access)

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        refuse_if(self.offsets_differ(addr, hca_va), errno.EINVAL)
        return self.register(pd, addr, length, hca_va, access)

    def offsets_differ(self, addr: int, hca_va: int) -> bool:
        """Returns whether the device refuses addr and hca_va because their offsets in the page differ."""
        return not self.stack.has("iova_page_offset") and (addr - hca_va) % PAGE != 0

    def completes_at_once(self) -> bool:
        """Whether each request is complete when ibv_post_send returns. If not, the last completion is later."""
        return False

    def waits(self, seconds: float) -> None:
        """Is called where a program would wait this long for a completion that never comes. The reference does not
        wait."""

    # Reports of the library

    def structure(self, region: Region, pd: Pd, addr: int, length: int) -> IbvMr:
        lkey, rkey = self.reported_keys(region)
        return IbvMr(pd.context_pointer, pd.pointer, addr, length, region.handle, lkey, rkey)

    def reported_errno(self, errno: int) -> int:
        """Returns the errno that a program sees after a registration that returned NULL."""
        return errno

    def query_mr(self, handle: int) -> tuple[int, int, int, int]:
        """Executes UVERBS_METHOD_QUERY_MR. Returns lkey, rkey, length and iova. Raises Refused."""
        refuse_if(handle not in self.regions, errno.ENOENT)
        region = self.regions[handle]
        return *self.reported_keys(region), region.length, region.iova

    def forged_fault(self, command: str, handle: int) -> int:
        """Returns the errno of a command with a handle of a different kind of object, or with an unassigned handle."""
        return errno.EINVAL

    def reported_range(self, change: Change) -> tuple[int, int]:
        return change.addr, change.length

    def reported_pd(self, pd: Pd, old: int) -> int:
        return pd.pointer

    def dereg_answer(self, returned: Return) -> Return:
        return returned

    # The headers and bindings of programs

    bindings_fault = ("", "", 0)  # enumeration, name and number of a wrong value, if any

    def header(self) -> str:
        return own_header()
