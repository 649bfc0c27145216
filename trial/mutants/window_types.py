"""Mutants that violate BIND-15: keys of type 2 windows, and invalidation. Short mutants are in window_types.yaml."""

from dataclasses import replace

from conformance.bench.work_requests import SendRequest
from reference.device import Device
from reference.objects import REMOTE_READ, Domain, Window
from reference.queues import Queue
from trial.violation import violates


@violates("BIND-15", written="blind")
class NewKeyIsTheDevicesOwn(Device):
    """A second bind of a type 2 window gives the window the key after its present key, not the key in the request."""

    def posted_bind(self, queue: Queue, request: SendRequest) -> str:
        window = self.window_behind(request.window)
        if window.key & 0xFF0000FF != request.rkey & 0xFF0000FF and window.key != request.rkey and self._second(window):
            request = request._replace(rkey=self.next_key(request.rkey))
        return super().posted_bind(queue, request)

    def setup(self) -> None:
        self._bound: list[Window] = []

    def _second(self, window: Window) -> bool:
        again = window in self._bound
        self._bound.append(window)
        return again


@violates("BIND-15", written="blind")
class InvalidatedKeyServesOneMoreRead(Device):
    """After a local invalidation, the key still works for one remote read."""

    def setup(self) -> None:
        self._last: dict[int, Window] = {}

    def local_invalidate(self, key: int, queue: Queue) -> bool:
        found = self.keys.get(key)
        ghost = replace(found) if isinstance(found, Window) and found.region else None
        done = super().local_invalidate(key, queue)
        if done and ghost:
            self._last[key] = ghost
        return done

    def remote(self, rkey: int, domain: Domain, queue: int, addr: int, length: int, right: int) -> int | None:
        if right == REMOTE_READ and rkey in self._last:
            ghost = self._last.pop(rkey)
            if ghost.region and ghost.region.handle in self.regions:
                return self.through_window(ghost, domain, queue, addr, length, right)
        return super().remote(rkey, domain, queue, addr, length, right)
