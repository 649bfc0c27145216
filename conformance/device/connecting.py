"""How the two queue pairs of a pair are connected to each other, and how a pair is renewed after an error.

On InfiniBand and RoCE by the states of ibv_modify_qp(3). A queue pair of iWARP goes from RESET to INIT by ibv_modify_qp
and to RTS when its connection over TCP is established. It does not come back from an error: RFC 5040 ends the
connection. Not for creating queue pairs, nor for the connection manager (connection_manager.py).
"""

from typing import Protocol

from conformance.bench.interface import Queue
from conformance.device.connection_manager import Connection, ConnectionManager

CONNECTED = ("RTS", "ERR")  # states in which a queue pair has, or had, a peer


class End(Queue, Protocol):
    """A queue pair of this device."""

    state: str

    def move_to(self, state: str, peer: int) -> None: ...
    def fail(self) -> None: ...


class ConnectStrategy(Protocol):
    """How the queue pairs of one pair are connected.

    `connect` moves the responder to a state, and the requester as far as necessary; `close`, called after the queue
    pairs are destroyed, releases the rest. `by_reset`: the queue pairs can be moved to RESET and connected again.
    """

    @property
    def by_reset(self) -> bool: ...
    def connect(self, requester: End, responder: End, state: str) -> None: ...
    def close(self) -> None: ...


class ByStates:
    """Each queue pair gets the number of the other when it is moved to RTR."""

    by_reset = True

    def connect(self, requester: End, responder: End, state: str) -> None:
        """Moves the queue pairs; both ends may be the same one, which has no peer."""
        if requester is not responder:
            # A responder in a lower state than RTS cannot exchange messages.
            requester.move_to("RTS" if state in CONNECTED else "INIT", responder.number)
        responder.move_to(state, requester.number)

    def close(self) -> None:
        """Does nothing: there is only the pair of queue pairs."""


class ByManager:
    """Connects a pair whose ends are those of one connection."""

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
