"""Violations of what a window's key opens: after it has ended, without a right, outside of the window."""

from __future__ import annotations

from trial.data_path.objects import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE, Binding, QueuePair, Sent
from trial.data_path.structures import BIND_MW, SUCCESS, WR_FLUSH_ERR, WRITE_WITH_IMM, WorkCompletion
from trial.mutants.data_path.granting import Granting
from trial.mutants.data_path.refusing import Refusing
from trial.violation import violates


class _EndedBinding(Granting):
    """A window's key still opens it for some requests after it has ended."""

    ended: tuple[str, ...] = ("rebound",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        """Whether the ended key still opens the window for this request."""
        return sent.reads and bool(binding.access & REMOTE_READ)

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        binding = self.objects.binding(sent.rkey, self.ended)
        if binding is None or self.objects.valid(sent.rkey) or not self.opens(sent, binding):
            return None
        return binding.place(sent.remote_addr, sent.length)


@violates("BIND-02")
class ReboundKeyReads(_EndedBinding):
    """A window can be read by the key from before a bind."""


@violates("BIND-02")
class UnboundKeyReads(_EndedBinding):
    """A window that a bind of length 0 has unbound can be read."""

    ended = ("unbound",)


@violates("BIND-16")
class DeallocatedKeyReads(_EndedBinding):
    """A deallocated window can be read."""

    ended = ("deallocated",)


@violates("BIND-16")
class DeallocatedKeyAdds(_EndedBinding):
    """Atomics work through a deallocated window."""

    ended = ("deallocated",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        return sent.atomic and bool(binding.access & REMOTE_ATOMIC)


@violates("BIND-16")
class DeallocatedKeyTakesImmediates(_EndedBinding):
    """A WRITE with immediate data works through a deallocated window."""

    ended = ("deallocated",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        return sent.opcode == WRITE_WITH_IMM and bool(binding.access & REMOTE_WRITE)


@violates("BIND-15")
class InvalidatedKeyReads(_EndedBinding):
    """A window can be read after a local invalidation."""

    ended = ("invalidated",)


@violates("BIND-15")
class InvalidatedKeyAdds(_EndedBinding):
    """Atomics work through a window after a local invalidation."""

    ended = ("invalidated",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        return sent.atomic and bool(binding.access & REMOTE_ATOMIC)


@violates("BIND-15")
class RemotelyInvalidatedKeyReads(_EndedBinding):
    """A window can be read after its key was invalidated by a message."""

    ended = ("invalidated by a message",)


@violates("BIND-15")
class RemotelyInvalidatedKeyWrites(_EndedBinding):
    """A window can be written after its key was invalidated by a message."""

    ended = ("invalidated by a message",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        return sent.writes and bool(binding.access & REMOTE_WRITE)


class _ByWindow(Granting):
    """A window grants what its rights do not."""

    def grants(self, queue: QueuePair, sent: Sent, binding: Binding) -> bool:
        """Whether the window grants the request although it must not."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        binding = self.objects.binding(sent.rkey)
        if binding is None or not self.grants(queue, sent, binding):
            return None
        return binding.place(sent.remote_addr, sent.length)


@violates("BIND-10", Granting.granted)
def windows_read_on(self: Granting, queue: QueuePair, sent: Sent) -> int | None:
    """A READ may end up to eight bytes behind a window, if that is in its region."""
    binding = self.objects.binding(sent.rkey)
    if binding is None or not sent.reads or not binding.access & REMOTE_READ:
        return None
    over = sent.remote_addr + sent.length - binding.addr - binding.length
    inside = 0 < over <= 8 and binding.region is not None
    return binding.region.place(sent.remote_addr, sent.length) if inside and binding.region else None


@violates("BIND-12")
class FailedBindsUnbind(Refusing):
    """A bind that fails ends the binding from before."""

    def __init__(self) -> None:
        super().__init__()
        self._failed: set[int] = set()

    def completed(self, queue: QueuePair, sent: Sent, wc: WorkCompletion) -> bool:
        if sent.opcode == BIND_MW and wc.status not in (SUCCESS, WR_FLUSH_ERR):
            bound = self.objects.bound(sent.window)
            self._failed |= {bound.rkey} if bound else set()
        return True

    def refused(self, queue: QueuePair, sent: Sent) -> bool:
        return sent.rkey in self._failed and self.objects.binding(sent.rkey) is not None
