"""Runs a Python module of the project in the Soft-RoCE guest and reads the JSON lines that it writes."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from conformance.errors import UserError
from conformance.tables.suite import ROOT
from fixtures.guest.driver import driver_for
from fixtures.guest.guest import boot
from fixtures.guest.image import ensure_image
from fixtures.guest.job import Job
from fixtures.guest.recipe import recipe_for
from fixtures.system import packages
from fixtures.system.cache import cache_directory
from targets.guests import PORT, SUITE_PARTS

_SILENCE_S = 900.0  # the longest silence; in an emulated guest on a busy machine, a round of cases may be silent

Say = Callable[[str], None]


def messages_from_guest(
    module: str,
    arguments: Sequence[str],
    stack: str,
    console: Path,
    say: Say,
    assume_yes: bool = False,
    more: Sequence[tuple[Path, str]] = (),
) -> Iterator[dict[str, Any]]:
    """Yields the JSON objects that `python3 -m module DEVICE PORT arguments…` writes to PORT, a virtio-serial port.
    `more` are further files or folders: pairs of a source and a name in the guest. Raises UserError (status 3)."""
    packages.ensure_tools(packages.GUEST, assume_yes=assume_yes, say=say)
    image = ensure_image(recipe_for(stack), cache_directory(), say)
    tree = (*((ROOT / part, part) for part in (*SUITE_PARTS, "trial")), *more)
    command = " ".join(["python3 -m", module, driver_for().device, PORT, *arguments])
    with boot(image, Job(tree, command), console=console) as guest:
        while line := guest.next_line(_SILENCE_S):
            try:
                data = json.loads(line)
            except ValueError as error:
                if not line.endswith(b"\n"):
                    break  # the guest ended in the middle of this line
                raise UserError(
                    f"{module} wrote a line that is not JSON", log=str(console), status=3
                ) from error
            if "status" in data and data.get("event") == "exit" and data["status"] != 0:
                raise UserError(
                    f"{module} ended with status {data['status']}", log=str(console), status=3
                )
            yield data
        if line is None:
            raise UserError(f"{module} was silent for {_SILENCE_S:g} s", log=str(console), status=3)
