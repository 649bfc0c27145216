"""Altered calls of deregistration, re-registration and advice."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from conformance.bench.calls import Mr, Pd, Return, Sge
from conformance.bench.interface import Entry
from reference.advice import PREFETCH, PREFETCH_NO_FAULT
from reference.objects import LOCAL_WRITE
from reference.reregistration import CHANGE_ACCESS, CHANGE_PD
from trial.altering import Alteration
from trial.violation import plain, violates


@violates("DEREG-01", Alteration.dereg_mr)
def not_deregistered(self: Alteration, entry: Entry, mr: Mr) -> Return:
    """Deregistration returns 0 and does nothing."""
    self.unreleased.append(lambda: entry.dereg_mr(mr))
    return Return(0, 0)


@violates("DEREG-03", Alteration.dereg_mr)
def negative_codes(self: Alteration, entry: Entry, mr: Mr) -> Return:
    """A failed deregistration returns the negative errno."""
    returned = plain(self).dereg_mr(entry, mr)
    return Return(-returned.value, returned.errno)


@violates("DEREG-02", Alteration.dereg_mr)
def busy_hidden(self: Alteration, entry: Entry, mr: Mr) -> Return:
    """Deregistering a busy region returns 0."""
    returned = plain(self).dereg_mr(entry, mr)
    if returned.value:
        self.unreleased.append(lambda: entry.dereg_mr(mr))
    return Return(0, 0)


@violates("REREG-03", Alteration.rereg_mr)
def change_of_access_swallowed(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """CHANGE_ACCESS returns 0 and does nothing."""
    return Return(0, 0) if flags == CHANGE_ACCESS else plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-02", Alteration.rereg_mr)
def change_of_domain_swallowed(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """CHANGE_PD returns 0 and does nothing."""
    return Return(0, 0) if flags == CHANGE_PD else plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-04", Alteration.rereg_mr)
def one_of_two_changes(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """CHANGE_PD together with CHANGE_ACCESS changes only the access flags."""
    if flags == CHANGE_PD | CHANGE_ACCESS:
        flags, pd = CHANGE_ACCESS, None
    return plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-05", Alteration.rereg_mr)
def codes_replaced(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """A failed re-registration returns errno instead of a code."""
    returned = plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access)
    return Return(returned.errno, returned.errno) if returned.value else returned


@violates("REREG-06", Alteration.rereg_mr)
def unknown_changes_masked(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """Unknown flags of a re-registration are masked out, and it does nothing."""
    return Return(0, 0) if flags & ~7 else plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("REREG-12", Alteration.rereg_mr)
def change_to_write_alone_granted(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """LOCAL_WRITE is added to the access flags of a change."""
    return plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access | LOCAL_WRITE if access else access)


@violates("REREG-13", Alteration.rereg_mr)
def rights_lost_with_the_domain(
    self: Alteration, entry: Entry, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int
) -> Return:
    """CHANGE_PD removes the remote access flags."""
    if flags == CHANGE_PD:
        flags, access = CHANGE_PD | CHANGE_ACCESS, LOCAL_WRITE
    return plain(self).rereg_mr(entry, mr, flags, pd, addr, length, access)


@violates("ADV-02", Alteration.advise_mr)
def advice_refused(self: Alteration, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
    """Advice is refused with EINVAL."""
    return Return(errno.EINVAL, errno.EINVAL) if sg_list else plain(self).advise_mr(entry, pd, advice, flags, sg_list)


@violates("ADV-03", Alteration.advise_mr)
def no_fault_made_prefetch(
    self: Alteration, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]
) -> Return:
    """PREFETCH_NO_FAULT is passed on as PREFETCH."""
    return plain(self).advise_mr(entry, pd, PREFETCH if advice == PREFETCH_NO_FAULT else advice, flags, sg_list)


@violates("ADV-04", Alteration.advise_mr)
def advice_swallowed(self: Alteration, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
    """Advice returns 0 and has no effect."""
    return Return(0, 0)


@violates("ADV-08", Alteration.advise_mr)
def absent_pages_hidden(
    self: Alteration, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]
) -> Return:
    """Advice returns 0 instead of EFAULT."""
    returned = plain(self).advise_mr(entry, pd, advice, flags, sg_list)
    return Return(0, 0) if returned.value == errno.EFAULT else returned


@violates("ADV-13", Alteration.advise_mr)
def only_the_first_element(
    self: Alteration, entry: Entry, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]
) -> Return:
    """Only the first element of the list is passed on."""
    return plain(self).advise_mr(entry, pd, advice, flags, sg_list[:1])
