"""Runs in the guest and makes further devices there; prints one line of JSON for test_ports_in_guest.py. The line has
the findings of preflight on each device (with only IPv6, with large frames, next to another device), and the messages
about unusable ports."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.device.bench import DeviceBench
from conformance.device.device import Device
from conformance.device.port import Port
from conformance.errors import UserError
from conformance.execution.preflight import preflight
from forked import run_forked
from patience import await_true

GRANTED = "reg_mr/rights/remote-write-granted-by-local-write+remote-write"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def add_device(name: str, interface: str, *addresses: str) -> None:
    ip("link", "add", interface, "type", "veth", "peer", "name", f"{interface}p")
    for end in (interface, f"{interface}p"):
        ip("link", "set", end, "up")
    for address in addresses:
        ip("address", "add", address, "dev", interface)
    subprocess.run(["rdma", "link", "add", name, "type", "rxe", "netdev", interface], check=True)
    await_true(lambda: len(usable(name)) >= len(addresses) and bool(usable(name)))


def usable(name: str) -> list[str]:
    return [gid.address for gid in Port(name, 1).gids() if gid.up]


def found_on(name: str, gid_index: int | None = None) -> dict[str, Any]:
    """Runs preflight; returns its findings and its duration."""
    with Device(name, gid_index=gid_index) as device:
        device.check_port()
        bench = DeviceBench(device)
        began = time.monotonic()
        findings = preflight(bench)
        took = time.monotonic() - began
        gid = next(gid for gid in Port(name, 1).gids() if gid.index == device.source_gid_index)
        return {
            **findings.as_data(),
            "gid": gid.address,
            "kind": gid.kind,
            "interface": gid.interface,
            "mtu": device.active_mtu,
            "took_s": round(took, 3),
        }


def told(of: Callable[[], object]) -> list[Any]:
    """Returns the message and the exit status of the error that a function raises."""
    try:
        of()
    except UserError as error:
        return [str(error), error.status]
    return ["nothing", 0]


def main() -> None:
    seen: dict[str, Any] = {"first": found_on("rxe0")}
    by_kind = {gid.kind: gid.index for gid in Port("rxe0", 1).gids()}
    seen["each"] = {kind: found_on("rxe0", index)["pairs"]["RC"] for kind, index in by_kind.items()}

    add_device("rxe1", "e1", "10.78.0.1/24")
    seen["second"] = found_on("rxe1")
    seen["beside"] = found_on("rxe0")
    add_device("rxe2", "e2", "fd00:77::1/64")
    seen["ipv6"] = found_on("rxe2")

    for end in ("e1", "e1p"):
        ip("link", "set", end, "mtu", "9000")
    seen["large"] = found_on("rxe1")

    # A VLAN of the second device's interface has its own GID; frames with this GID have the VLAN's tag.
    for end in ("e1", "e1p"):
        ip("link", "add", "link", end, "name", f"{end}.7", "type", "vlan", "id", "7")
        ip("link", "set", f"{end}.7", "up")
    ip("address", "add", "10.79.0.1/24", "dev", "e1.7")
    await_true(lambda: any(gid.interface == "e1.7" for gid in Port("rxe1", 1).gids() if gid.up))
    in_vlan = str(
        next(gid.index for gid in Port("rxe1", 1).gids() if gid.address.endswith("ffff:0a4f:0001")),
    )
    seen["vlan"] = found_on("rxe1", int(in_vlan))
    seen["vlan case"] = run_forked(
        "--device",
        "rxe1",
        "--gid-index",
        in_vlan,
        "--only",
        GRANTED,
        "--out",
        "/tmp/vlan",
    )

    ip("link", "set", "e2p", "down")
    await_true(lambda: Path("/sys/class/net/e2/operstate").read_text().strip() != "up")
    seen["down"] = told(lambda: found_on("rxe2"))
    ip("link", "set", "e1", "down")
    seen["interface down"] = told(lambda: found_on("rxe1"))

    # This is done last, because the process cannot leave the namespace and its view of /sys.
    ip("netns", "add", "elsewhere")
    os.setns(os.open("/run/netns/elsewhere", os.O_RDONLY), os.CLONE_NEWNET)  # type: ignore[attr-defined]  # Python 3.12
    os.unshare(os.CLONE_NEWNS)  # type: ignore[attr-defined]
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    seen["elsewhere"] = told(lambda: found_on("rxe0"))

    print("RESULT", json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
