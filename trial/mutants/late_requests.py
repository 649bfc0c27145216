"""Requests that are carried out once more after their key has ended."""

from collections import deque
from collections.abc import Callable

from conformance.bench.work_requests import Completion, SendRequest
from reference.device import Device
from reference.objects import Window
from reference.queues import Queue


class _Polled(deque[Completion]):
    """A list of completions; when its first completion is polled, late requests are carried out."""

    def __init__(self, late: Callable[[], None]) -> None:
        super().__init__()
        self._late = late

    def popleft(self) -> Completion:
        self._late()
        return super().popleft()


class _Late(Device):
    """Requests can be late. `pending` has the key of each request, a function that repeats it, and the number of
    repetitions."""

    late_writes = late_reads = False

    def setup(self) -> None:
        self.pending: list[tuple[int, Callable[[], object], int]] = []

    def create_qp(self, queue: Queue) -> Queue:
        queue.polled = _Polled(self.make_late)
        return super().create_qp(queue)

    def write(self, queue: Queue, request: SendRequest) -> str:
        return self._remembered(super().write(queue, request), self.late_writes, queue, request, reading=False)

    def read(self, queue: Queue, request: SendRequest) -> str:
        return self._remembered(super().read(queue, request), self.late_reads, queue, request, reading=True)

    def _remembered(self, status: str, late: bool, queue: Queue, request: SendRequest, reading: bool) -> str:
        """Returns the status of a request, and notes a request that was carried out."""
        length = sum(sge.length for sge in request.sges) if late and status == "SUCCESS" else 0
        there = self.target(queue, request, length) if length else None
        here = self.memory_of_sge(queue, request.sges[0], write=reading) if there else None
        if not there or not here:
            return status
        source, sink = (there, here) if reading else (here, there)

        def again() -> bool:
            content = self.memory.read(source, length)
            return content is not None and self.memory.write(sink, content)

        for key in (request.rkey, request.sges[0].lkey):
            self.pending.append((key, again, 2))
        return status

    def make_late(self) -> None:
        """Repeats requests whose keys have ended after the request, at the first two calls."""
        pending, self.pending = self.pending, []
        for key, again, times in pending:
            if self.ended(key):
                again()
                times -= 1
            if times:
                self.pending.append((key, again, times))

    def ended(self, key: int) -> bool:
        """Whether a key is no longer valid."""
        found = self.keys.get(key)
        return found is None or (isinstance(found, Window) and found.region is None)
