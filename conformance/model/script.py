"""Defines the script of a `wire` call: packets of a peer that is no RDMA device, calls of the device's side between the
packets, and what must be seen. tables/scripts.py reads scripts, and execution/wire.py executes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from conformance.model.quantity import Quantity

if TYPE_CHECKING:
    from conformance.model.case import Step

# The answers that a packet can get. RESPONSE is the complete response of a READ, an atomic, a FLUSH or an ATOMIC WRITE,
# with the right data; `refusal` is any NAK, or no answer. Over iWARP, which has no acknowledgements, ACK is that the
# stream works behind the segment; a refusal is a Terminate message, or that the device closes the stream.
NOTHING, REFUSAL, RESPONSE, ANYTHING = "nothing", "refusal", "RESPONSE", "anything"
CLOSED = "closed"
# The event `call` is a call of the table language, with its arguments.
CALL = "call"
_DECISIVE = ("sends", "completes", "receives", "state", "changed")
# The keys of an event whose words are lists.
LISTS = ("gets", "flags")


@dataclass(frozen=True)
class Event:
    """One event of a script. `words` are the words of its key, and `names` those of its further keys."""

    kind: str
    words: tuple[str, ...] = ()
    numbers: Mapping[str, Quantity] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    qp: str = ""
    step: "Step | None" = None

    def __str__(self) -> str:
        if self.step:
            return str(self.step)
        texts = [f"{key}={quantity.text}" for key, quantity in self.numbers.items()]
        texts += [f"{key}={'|'.join(words)}" for key, words in self.names.items()]
        subject = "|".join(self.words)
        return f"{self.kind} {subject}({', '.join(texts)})"

    @property
    def word(self) -> str:
        return self.words[0]

    @property
    def decides(self) -> bool:
        """Whether some behaviour of the device is wrong here, besides a byte that should not change: not if a packet may
        be executed as well as refused."""
        if self.kind != "op":
            return self.kind in _DECISIVE
        gets = set(self.names.get("gets", ()))
        executed = not gets.isdisjoint(("ACK", RESPONSE))
        may_refuse = not gets.issubset(("ACK", RESPONSE))
        return bool(gets) and ANYTHING not in gets and not (executed and may_refuse)
