"""The re-registration of a region, as ibv_rereg_mr(3) defines it: the device's command, and the library's code that
issues the command."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from conformance.verbs import ENUMS
from trial.reference.objects import Domain, Refused, Region, refuse_if
from trial.reference.regions import Regions

_FLAGS = ENUMS["ibv_rereg_mr_flags"]
CHANGE_TRANSLATION, CHANGE_PD, CHANGE_ACCESS = (
    _FLAGS.value_of(name) for name in ("CHANGE_TRANSLATION", "CHANGE_PD", "CHANGE_ACCESS")
)
CHANGES = CHANGE_TRANSLATION | CHANGE_PD | CHANGE_ACCESS
_CODES = ENUMS["ibv_rereg_mr_err_code"]
INPUT, DONT_FORK_NEW, DO_FORK_OLD, CMD, CMD_AND_DO_FORK_NEW = (
    _CODES.value_of(name)
    for name in (
        "ERR_INPUT",
        "ERR_DONT_FORK_NEW",
        "ERR_DO_FORK_OLD",
        "ERR_CMD",
        "ERR_CMD_AND_DO_FORK_NEW",
    )
)


@dataclass(frozen=True)
class Change:
    """The arguments of a re-registration. `flags` selects the arguments that apply. `pd` is a handle; None is NULL."""

    flags: int
    pd: int | None
    addr: int
    length: int
    access: int


class Reregistration(Regions):
    # the code if the provider does not have the verb; the region is not changed
    absent_code = INPUT

    # The command

    def unknown_changes(self, flags: int) -> bool:
        """Returns whether `flags` has a flag other than the three of ibv_rereg_mr(3)."""
        return bool(flags & ~CHANGES)

    def missing_change(self, flags: int) -> bool:
        """Returns whether the device lacks the command for these flags."""
        translation = self.stack.has("rereg_translation") or not flags & CHANGE_TRANSLATION
        return not (self.stack.has("rereg_mr") and translation)

    def change(self, handle: int, change: Change) -> Region:
        """Changes a region in place. Raises Refused. If `apply` has raised Refused, the region is unusable."""
        refuse_if(handle not in self.regions or self.unknown_changes(change.flags), errno.EINVAL)
        region = self.regions[handle]
        refuse_if(self.missing_change(change.flags), errno.EOPNOTSUPP)
        refuse_if(self.held(region), errno.EBUSY)
        try:
            self.apply(region, change)
        except Refused:
            region.usable = False
            raise
        return region

    def held(self, region: Region) -> bool:
        """Returns whether a change is refused because the region is busy, as for a deregistration."""
        return self.busy(region)

    def apply(self, region: Region, change: Change) -> None:
        """Checks the complete change, then executes it. Raises Refused."""
        domain, addr, length, iova, access = self.wanted(region, change)
        # the pages of the old range do not count against the limit
        pinned, region.pinned = (region.pinned, 0)
        fault = self.change_fault(addr, length, access, change.flags)
        if fault:
            region.pinned = pinned
            raise Refused(fault)
        region.pinned = self.pages(addr, length) if pinned else 0
        self.move(region, domain)
        region.addr, region.length, region.iova, region.access = addr, length, iova, access
        self.rekey(region)

    def wanted(self, region: Region, change: Change) -> tuple[Domain, int, int, int, int]:
        """Returns PD, addr, length, iova and access after the change. Raises Refused."""
        domain, addr, length, iova, access = (
            region.domain,
            region.addr,
            region.length,
            region.iova,
            region.access,
        )
        if change.flags & CHANGE_PD:
            domain = self.domain_of(change.pd or 0)
        if change.flags & CHANGE_ACCESS:
            access = change.access
        if change.flags & CHANGE_TRANSLATION:
            addr, length, iova = change.addr, change.length, self.base(change.addr, access)
        return domain, addr, length, iova, access

    def change_fault(self, addr: int, length: int, access: int, flags: int) -> int:
        """Returns the errno with which a registration with these arguments would be refused; 0 if it would succeed."""
        return self.access_fault(access) or self.range_fault(addr, length, access)

    def move(self, region: Region, domain: Domain) -> None:
        region.domain.users -= 1
        region.domain = domain
        domain.users += 1

    def rekey(self, region: Region) -> None:
        """Assigns to the region the next key with the same index. The documents leave open whether the key changes."""
        self.forget_key(region)
        region.key = self.next_key(region.key)
        self.keys[region.key] = region

    # The library

    def input_fault(self, change: Change) -> bool:
        # the manual page leaves this open
        unselected = change.access and not change.flags & CHANGE_ACCESS
        nowhere = change.flags & CHANGE_TRANSLATION and not (change.addr and change.length)
        no_domain = change.flags & CHANGE_PD and change.pd is None
        return self.library_unknown(change.flags) or bool(unselected or nowhere or no_domain)

    def library_unknown(self, flags: int) -> bool:
        return bool(flags & ~CHANGES)

    def rereg_code(self, handle: int, change: Change) -> tuple[int, int, Region | None]:
        """Executes ibv_rereg_mr. Returns the code, errno, and the region if it was changed."""
        if self.input_fault(change):
            return INPUT, errno.EINVAL, None
        if not self.stack.has("rereg_mr"):
            return self.absent_code, errno.EOPNOTSUPP, None
        region = self.regions.get(handle)
        if region:
            old = (region.addr, region.length)
        else:
            old = (0, 0)
        moves = region and region.pinned and change.flags & CHANGE_TRANSLATION
        forks = self.stack.reach("dontfork") and bool(moves)
        if forks and not self.dont_fork(change.addr, change.length):
            return DONT_FORK_NEW, errno.ENOMEM, None
        try:
            changed = self.change(handle, change)
        except Refused as refused:
            return self.command_code(forks, change), refused.errno, None
        if forks and not self.do_fork(*old):
            return DO_FORK_OLD, errno.ENOMEM, changed
        return 0, 0, changed

    def command_code(self, forks: bool, change: Change) -> int:
        """After a failed command, removes the fork protection of the new range and returns the code of ibv_rereg_mr."""
        if not forks or self.do_fork(change.addr, change.length):
            return CMD
        return CMD_AND_DO_FORK_NEW

    # ibv_rereg_mr of a vendor's library, which returns the value of errno instead of the codes above

    def experimental_code(self, handle: int, change: Change) -> tuple[int, Region | None]:
        """Executes ibv_rereg_mr of this library. Returns 0 or errno, and the region if it was changed."""
        if self.stack.reach("peer_memory"):
            return errno.EOPNOTSUPP, None
        try:
            return 0, self.change(handle, change)
        except Refused as refused:
            return refused.errno, None
