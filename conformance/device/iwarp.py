"""Pairs of queue pairs over iWARP: connected by the connection manager, and made anew when they have to be renewed.

A queue pair of iWARP goes from RESET to INIT by ibv_modify_qp, and to RTS when its connection is established. It does
not come back from an error: RFC 5040 ends the connection. Not for the connection manager (connection_manager.py).
"""

from __future__ import annotations

from conformance.device.connection_manager import Connection
from conformance.device.queue_pairs import DevicePair


class IwarpPair(DevicePair):
    """Two queue pairs of type RC at the two ends of a connection of TCP."""

    renews_by_reset = False
    _connection: Connection | None = None

    def _connect(self) -> None:
        requester, responder = self.requester, self.responder
        if self._state not in ("RTS", "ERR"):
            super()._connect()
            return
        for queue in (requester, responder):
            queue.move_to("INIT", 0)
        manager = requester.device.connection_manager
        assert manager is not None, "opened with the device"
        self._connection = manager.connect(requester.number, responder.number)
        for queue in (requester, responder):
            queue.state = "RTS"
        if self._state == "ERR":
            responder.fail()

    def close(self) -> None:
        """Destroys both queue pairs, and then what remains of their connection."""
        super().close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
