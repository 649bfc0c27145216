"""How the two queue pairs of a pair are connected to each other, and how a pair is renewed after an error.

By the states of ibv_modify_qp(3), on InfiniBand and RoCE; iwarp.py has the other way. Not for creating queue pairs.
"""

from typing import Protocol

from conformance.bench.interface import Queue

CONNECTED = ("RTS", "ERR")  # states in which a queue pair has, or had, a peer


class End(Queue, Protocol):
    """A queue pair of this device."""

    state: str

    def move_to(self, state: str, peer: int) -> None: ...
    def fail(self) -> None: ...


class ConnectStrategy(Protocol):
    """How the queue pairs of one pair are connected.

    `connect` moves the responder to a state, and the requester as far as that needs it; `close` releases what it took,
    after the queue pairs. `by_reset`: afterwards they can be moved to RESET and connected again.
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
        """Nothing: the queue pairs are all that there is."""
