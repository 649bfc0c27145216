"""What a device and its header declare."""

from dataclasses import replace

from reference.device import Device
from reference.stack import WHOLE, Stack
from trial.violation import plain, violates


class Claiming(Device):
    """Declares capabilities that it lacks."""

    claims: tuple[str, ...] = ()

    def __init__(self, stack: Stack = WHOLE) -> None:
        lacks, claims = stack.lacks.union(self.claims), stack.claims.union(self.claims)
        super().__init__(replace(stack, lacks=lacks, claims=claims))


def _replaced(text: str, old: str, new: str) -> str:
    if old not in text:
        raise LookupError(f"{old!r} does not stand in the header")
    return text.replace(old, new, 1)


@violates("API-01", Device.header)
def fields_exchanged(self: Device) -> str:
    """The header's struct ibv_mr has lkey and rkey in reverse order."""
    text = plain(self).header()
    start = text.index("struct ibv_mr {\n")
    struct = text[start : text.index("};", start)]
    swapped = struct.replace("lkey", "key").replace("rkey", "lkey").replace(" key", " rkey")
    return text.replace(struct, swapped)
