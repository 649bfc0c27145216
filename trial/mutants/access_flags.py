"""The combinations of access flags that are granted."""

import errno

from reference.device import Device
from reference.objects import HUGETLB, ON_DEMAND
from trial.violation import permits


@permits("REG-13", written="blind")
class HugetlbWithoutPagingRefused(Device):
    """HUGETLB without ON_DEMAND, where it does not apply, is refused."""

    def access_fault(self, access: int) -> int:
        alone = access & HUGETLB and not access & ON_DEMAND
        return super().access_fault(access) or (errno.EINVAL if alone else 0)
