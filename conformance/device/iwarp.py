"""How queue pairs of iWARP are connected: by the connection manager, over a connection of TCP.

A queue pair of iWARP goes from RESET to INIT by ibv_modify_qp, and to RTS when its connection is established. It does
not come back from an error: RFC 5040 ends the connection. Not for the connection manager (connection_manager.py).
"""

from conformance.device.connecting import CONNECTED, ByStates, End
from conformance.device.connection_manager import Connection, ConnectionManager


class ByManager:
    """A way to connect a pair whose ends are those of one connection."""

    by_reset = False

    def __init__(self, manager: ConnectionManager) -> None:
        self._manager = manager
        self._connection: Connection | None = None

    def connect(self, requester: End, responder: End, state: str) -> None:
        """Moves the queue pairs to INIT and has the manager connect them; the requester asks for the connection.

        Raises CmError, or PyverbsRDMAError if the device refuses a transition.
        """
        if state not in CONNECTED:
            ByStates().connect(requester, responder, state)
            return
        for queue in (requester, responder):
            queue.move_to("INIT", 0)
        self._connection = self._manager.connect(requester.number, responder.number)
        for queue in (requester, responder):
            queue.state = "RTS"
        if state == "ERR":
            responder.fail()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
