"""Defines the findings of preflight, for the header of results and for the reuse of queue pairs. execution/preflight.py
runs the trials."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

WORKS, NOT_OFFERED = "works", "not offered"


@dataclass(frozen=True)
class Findings:
    # WORKS, NOT_OFFERED or a failure, for each tried type
    pairs: Mapping[str, str] = field(default_factory=dict)
    # WORKS or a failure, for each operation on RC
    operations: Mapping[str, str] = field(default_factory=dict)
    # the result of a WRITE to a region without REMOTE_WRITE; empty without RC
    refused_write: str = ""
    # a pair works after RESET; true for a transport whose pairs are never reset
    renews_by_reset: bool = True
    tells_state: bool = True  # ibv_query_qp reports the error state of a queue pair
    # the size of a request that is in flight during a call; 0: not measured
    in_flight_bytes: int = 0
    uncounted: tuple[str, ...] = ()  # the kinds of objects that the kernel cannot count
    wire_peer: str = ""  # what the wire peer cannot check, and why

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def format_findings(findings: Mapping[str, Any]) -> list[str]:
    """Returns a line for each unusual finding, with its consequence for the cases."""
    lines = [
        f"two queue pairs of type {kind} were created, but {what}"
        for kind, what in findings.get("pairs", {}).items()
        if what not in (WORKS, NOT_OFFERED)
    ]
    lines += [
        f"{opcode} between two queue pairs of type RC: {what}; the cases judge this"
        for opcode, what in findings.get("operations", {}).items()
        if what != WORKS
    ]
    if findings.get("wire_peer"):
        lines.append(f"wire peer: {findings['wire_peer']}")
    if not findings.get("tells_state", True):
        lines.append(
            "ibv_query_qp does not report the error state: states are not judged, failed pairs are replaced",
        )
    elif not findings.get("renews_by_reset", True):
        lines.append(
            "a queue pair of this device does not work after RESET: failed pairs are replaced",
        )
    if uncounted := findings.get("uncounted"):
        kinds = ", ".join(uncounted)
        lines.append(f"not countable on this driver and kernel: {kinds}; their leaks are not seen")
    return lines
