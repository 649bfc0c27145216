"""Violations in the access by a window's key: by a key that has ended, without a right, outside of the window."""

from reference.objects import REMOTE_READ
from trial.data_path.objects import Binding, QueuePair, Sent
from trial.mutants.data_path.granting import Granting
from trial.violation import violates


class _EndedBinding(Granting):
    """A window's key that has ended still works for some requests."""

    ended: tuple[str, ...] = ("rebound",)

    def opens(self, sent: Sent, binding: Binding) -> bool:
        """Whether the ended key still works for this request."""
        return sent.reads and bool(binding.access & REMOTE_READ)

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        binding = self.objects.binding(sent.rkey, self.ended)
        if binding is None or self.objects.valid(sent.rkey) or not self.opens(sent, binding):
            return None
        return binding.place(sent.remote_addr, sent.length)


@violates("BIND-02")
class ReboundKeyReads(_EndedBinding):
    """A window can be read by the key from before a bind."""


class _ByWindow(Granting):
    """A window grants requests that its rights do not allow."""

    def grants(self, queue: QueuePair, sent: Sent, binding: Binding) -> bool:
        """Whether the window grants the request although it must not."""
        return False

    def granted(self, queue: QueuePair, sent: Sent) -> int | None:
        binding = self.objects.binding(sent.rkey)
        if binding is None or not self.grants(queue, sent, binding):
            return None
        return binding.place(sent.remote_addr, sent.length)
