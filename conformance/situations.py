"""What happens to memory under a region: pages taken away, given back to a file, swapped out, shared by a fork.

Calls of the table language that are no verbs. Not for operations on the memory (probes.py).
"""

from __future__ import annotations

import ctypes
import mmap

from conformance.case import Step
from conformance.scene import Observation, Scene

_libc = ctypes.CDLL(None, use_errno=True)


def resident(scene: Scene, step: Step) -> Observation:
    """Whether the memory's pages are in core (mincore): `returned` is 0 for all, `none` or `some`."""
    memory = scene.memory[str(step.arguments["memory"])]
    pages = -(-memory.size // mmap.PAGESIZE)
    vector = (ctypes.c_ubyte * pages)()
    if _libc.mincore(ctypes.c_void_p(memory.addr), ctypes.c_size_t(memory.size), vector) != 0:
        raise OSError(ctypes.get_errno(), "mincore")
    count = sum(page & 1 for page in vector)
    returned = "0" if count == pages else "none" if count == 0 else "some"
    return {"rc": 0, "returned": returned, "errno": "", "layer": "kernel", "pages": [count, pages]}
