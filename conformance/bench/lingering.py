"""Remembers what a device did not do in time after refusals, so that each later wait for the same is short. On a device
that never flushes the receives of its peer, every refused request would otherwise cost a second."""

from collections import Counter

from conformance.model.deadline import TAUGHT_S

# A kind of refusal: the opcode of the request, the status of its completion, and a number for the effect that must
# follow: 0 or 1 for the error state of the first or second awaited queue pair, FLUSH or MESSAGE.
Refusal = tuple[str, str, int]
# The flush of the peer's receive, and on an unreliable connection the arrival of the SEND behind the request.
FLUSH, MESSAGE = 2, 3
# Seconds to wait for an effect that was missing after an earlier refusal of the same kind.
SHORT_S = 0.001
# A single message over an unreliable connection may have been lost by chance.
_BY_CHANCE = 2


class Lingering:
    """The effects that were missing, for all queue pairs of a device."""

    def __init__(self) -> None:
        self._missed = Counter[Refusal]()
        self._flushes = 0

    def missed(self, refusal: Refusal) -> None:
        self._missed[refusal] += 1
        self._flushes += refusal[-1] == FLUSH

    def wait_s(self, refusal: Refusal, full_s: float) -> float:
        """Returns how long to wait for the effect of a refusal, in seconds: at most `full_s`."""
        if refusal[-1] == MESSAGE:
            if self._missed[refusal] > _BY_CHANCE:
                return min(TAUGHT_S, full_s)
            return full_s
        if self._missed[refusal]:
            return SHORT_S
        if refusal[-1] == FLUSH:
            return self.flush_s(full_s)
        return full_s

    def flush_s(self, full_s: float) -> float:
        """Returns how long to wait for the flush after a refusal of a kind that is not known yet, in seconds."""
        if self._flushes:
            return min(TAUGHT_S, full_s)
        return full_s
