"""Implements the calls of the table language that export and import objects, or copy from device memory."""

from __future__ import annotations

import ctypes
import mmap
import os

from conformance.bench.calls import (
    Buffer,
    Return,
    errno_name,
)
from conformance.bench.memory_areas import BEFORE, SHOWN, pattern, repeated
from conformance.execution.context import CaseContext, compared, null_result, result_of, told
from conformance.model.case import Step
from conformance.model.observation import Observation

# The kernel assigns only small handles, so no object has this handle.
INVENTED_HANDLE = 0xFFFFFFF0
_EXPORTED = b"exported"


def ibv_export_buf_dmabuf_fd(context: CaseContext, step: Step) -> Observation:
    buffer = context.buffers[str(step.arguments["buf"])]
    returned, second = (context.entry.export_buf_dmabuf_fd(buffer) for _ in range(2))
    if returned.value < 0:
        if returned.value == -1:
            what = "no descriptor"
        else:
            what = str(returned.value)
        return {**result_of(returned), "returned": what}
    different = _exported(buffer, {returned.value, second.value} - {-1})
    return compared({**result_of(returned), "returned": "descriptor"}, different)


def ibv_dm_export_dmabuf_fd(context: CaseContext, step: Step) -> Observation:
    """Exports device memory. The descriptor stays open until the end of the case."""
    returned = context.entry.dm_export_dmabuf_fd(context.held[str(step.arguments["dm"])])
    if returned.value < 0:
        return {**result_of(returned), "returned": "no descriptor"}
    context.exported_fd = returned.value
    context.cleanup.callback(os.close, returned.value)
    return {**result_of(returned), "returned": "descriptor"}


def _exported(buffer: Buffer, fds: set[int]) -> list[str]:
    """Checks that two descriptors of the buffer's memory were exported, and closes them. Returns the differences."""
    if len(fds) == 2:
        different = []
    else:
        different = ["one descriptor instead of two"]
    for fd in fds:
        try:
            with mmap.mmap(fd, buffer.size) as seen:
                seen[: len(_EXPORTED)] = _EXPORTED
            os.close(fd)
        except OSError as error:
            different.append(f"a descriptor that cannot be mapped ({errno_name(error.errno or 0)})")
            continue
        if ctypes.string_at(buffer.addr, len(_EXPORTED)) != _EXPORTED:
            different.append("other memory instead of the buffer's")
        ctypes.memset(buffer.addr, 0, len(_EXPORTED))
    return different


def ibv_import_mr(context: CaseContext, step: Step) -> Observation:
    mr = context.mrs[str(step.arguments["mr_handle"])]
    if step.arguments["handle"] == "own":
        handle = mr.handle
    else:
        handle = INVENTED_HANDLE
    returned = context.entry.import_mr(context.pd_of(step), handle)
    if returned.mr is None:
        return null_result(returned)
    if returned.release:
        context.cleanup.callback(returned.release)
    actual, expected = returned.mr.fields(), {**mr.fields(), "addr": 0}
    context.fields[step.name] = actual
    different = [
        f"{key} {actual[key]:#x} instead of {v:#x}"
        for key, v in expected.items()
        if actual[key] != v
    ]
    return compared(told("MR", "provider", None), different)


def unimported(context: CaseContext, step: Step) -> Observation:
    """Imports an object and releases the import. The original structure must not change."""
    mr, pd = context.mrs[str(step.arguments["mr"])], context.pd_of(step)
    before = mr.fields()
    if step.arguments["imports"] == "pd":
        returned: Return = context.entry.import_pd(pd.context_pointer, pd.handle)
        if returned.pd is None:
            return null_result(returned)
        returned.pd.close()
    else:
        returned = context.entry.import_mr(pd, mr.handle)
        if returned.mr is None:
            return null_result(returned)
        if returned.release:
            returned.release()
    changed = [name for name, value in mr.fields().items() if value != before[name]]
    return compared(told("0", "provider"), [f"another {name}" for name in changed])


def ibv_memcpy_from_dm(context: CaseContext, step: Step) -> Observation:
    dm, holds = context.held[str(step.arguments["dm"])], step.arguments["holds"]
    to, offset, length = context.numbers(step.arguments, "host_addr", "dm_offset", "length")
    observation = result_of(context.entry.memcpy_from_dm(to, dm, offset, length))
    if observation["returned"] != "0" or holds == "any":
        return observation
    if holds == "pattern":
        expected = pattern(length)
    else:
        expected = repeated(BEFORE if holds == "filled" else 0, length)
    actual = ctypes.string_at(to, length)
    if actual == expected:
        different = []
    else:
        different = [f"bytes {actual[:SHOWN].hex()} instead of {expected[:SHOWN].hex()}"]
    return compared(observation, different)
