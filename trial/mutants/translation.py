"""hca_va: which byte an address by key reaches."""

from reference.device import Device
from reference.objects import Region
from trial.violation import violates


def _moved(region: Region) -> bool:
    """Whether keys have other addresses than this process."""
    return region.iova != region.addr


@violates("IOVA-04", written="blind")
class MovedRemoteWriteAlone(Device):
    """With another hca_va REMOTE_WRITE needs no LOCAL_WRITE."""

    _moves = False

    def reg_mr_iova(self, pd: int, addr: int, length: int, hca_va: int, access: int) -> Region:
        self._moves = hca_va != addr
        try:
            return super().reg_mr_iova(pd, addr, length, hca_va, access)
        finally:
            self._moves = False

    def write_alone(self, access: int) -> bool:
        return not self._moves and super().write_alone(access)
