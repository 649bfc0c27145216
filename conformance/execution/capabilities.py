"""The capabilities that a device declares and those that its entry points offer, determined before the first case.
offered.py tries a single verb or declared capability."""

from conformance.device import persistent
from conformance.device.bench import DeviceBench
from conformance.errors import HostLacks
from conformance.execution.offered import absent_on, keeps_from_children, offered_by, reachable_on
from conformance.model import vocabulary
from conformance.model.capability import Capabilities


def capabilities_of(bench: DeviceBench) -> Capabilities:
    offered = {name: offered_by(bench, name) for name in (*vocabulary.ENTRIES, *vocabulary.DOORS)}
    reachable = reachable_on(bench.library, offered["libibverbs"])
    reachable["dontfork"] = keeps_from_children(bench)
    reachable["copy_on_fork"] = bench.device.netlink.copies_on_fork()
    reachable["persistent_memory"] = persistent.device() is not None
    reachable["pci_bar"] = _is_had(bench, "bar")
    # rereg_mr is tried on a region; without the key, the entry point could not register a region.
    registers = {name: "rereg_mr" in tried for name, tried in offered.items()}
    reachable["raw_registration"] = registers["uverbs"] or not registers["libibverbs"]
    declared = bench.device.capabilities
    return Capabilities(declared, offered, reachable, absent_on(bench, declared))


def _is_had(bench: DeviceBench, kind: str) -> bool:
    try:
        bench.allocate(kind, bench.page).close()
    except (HostLacks, OSError):
        return False
    return True
