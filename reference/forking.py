"""The pages that forked children do not get, on a stack whose library protects regions from fork; and the library's
results when fork protection is turned on in a new process.
"""

import errno
from collections import Counter

from conformance.kernel.paging import libc
from reference.memory import PAGE
from reference.stack import Stack

_MADV_DONTFORK, _MADV_DOFORK = 10, 11


class Forking:
    """The library's list of pages that children do not get."""

    late_code = errno.EINVAL  # of ibv_fork_init after a registration
    marks_part_of_huge_page = True  # although the library checks the size of pages

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.marked: Counter[int] = Counter()  # for each page, the number of regions that contain it

    def dont_fork(self, addr: int, length: int) -> bool:
        """Marks a range as not inherited on fork; returns whether this succeeded, always with `fork_race`."""
        if not self.stack.reach("dontfork") or self.stack.reach("fork_race"):
            return True
        done = 0
        for page in self.pages_kept(addr, length):
            if not self.marked[page] and not _advise(page, _MADV_DONTFORK):
                self.do_fork(addr, done)
                return False
            self.marked[page] += 1
            done = page + PAGE - addr
        return True

    def do_fork(self, addr: int, length: int) -> bool:
        """Marks a range, except pages of other regions, as inherited on fork again; returns whether this succeeded."""
        if not self.stack.reach("dontfork"):
            return True
        left = [page for page in self.pages_kept(addr, length) if self.ends(page)]
        return sum(_advise(page, _MADV_DOFORK) for page in left) == len(left)

    def pages_kept(self, addr: int, length: int) -> range:
        return range(addr // PAGE * PAGE, addr + length, PAGE)

    def ends(self, page: int) -> bool:
        """Removes one region from the count of a page; returns whether the region was the last."""
        self.marked[page] = max(0, self.marked[page] - 1)
        return not self.marked[page]

    # In a new process

    def fork_setting(self, setting: str, kernel: str) -> tuple[int, dict[str, str]]:
        """The result of ibv_fork_init, and the observations of a region."""
        copies = kernel == "asked" and self.stack.reach("copy_on_fork")
        code = self.late_code if setting == "late" and not copies else 0
        enabled = self.turns_on(setting)
        registered = "kept" if enabled and not copies else "inherited"
        if setting == "RDMAV_HUGEPAGES_SAFE" and not self.marks_part_of_huge_page:
            registered = "refused"
        return code, {
            "status": self.fork_status(copies, enabled),
            "registered": registered,
            "deregistered": "inherited",
        }

    def fork_status(self, copies: bool, enabled: bool) -> str:
        """ibv_is_fork_initialized. If `copies`, the kernel reports that it copies on fork."""
        return "UNNEEDED" if copies else "ENABLED" if enabled else "DISABLED"

    def turns_on(self, setting: str) -> bool:
        return setting not in ("none", "late")


def _advise(page: int, advice: int) -> bool:
    return bool(libc.madvise(page, PAGE, advice) == 0)
