"""The codes with which advice is refused."""

import errno
from collections.abc import Sequence

from conformance.bench.calls import Sge
from reference.device import Device
from reference.objects import Refused
from trial.violation import plain, violates


@violates("ADV-12", Device.advise)
def no_memory_not_told(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Advice returns 0 although memory is exhausted."""
    try:
        plain(self).advise(pd, advice, flags, sg_list)
    except Refused as refused:
        if refused.errno != errno.ENOMEM:
            raise


@violates("ADV-12", name="no-memory-answers-eagain", written="blind")
@violates("ADV-12", Device.advise)
def no_memory_is_again(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Advice returns EAGAIN if memory is exhausted."""
    try:
        plain(self).advise(pd, advice, flags, sg_list)
    except Refused as refused:
        raise Refused(errno.EAGAIN if refused.errno == errno.ENOMEM else refused.errno) from refused


@violates("ADV-12", Device.advise, written="blind")
def no_memory_answers_efault(self: Device, pd: int, advice: int, flags: int, sg_list: Sequence[Sge]) -> None:
    """Where memory does not suffice the answer is EFAULT."""
    try:
        plain(self).advise(pd, advice, flags, sg_list)
    except Refused as refused:
        raise Refused(errno.EFAULT if refused.errno == errno.ENOMEM else refused.errno) from refused
