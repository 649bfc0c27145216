"""Replaces the provider's functions in struct ibv_context by Python functions, and restores them. ibv_post_send,
ibv_post_recv, ibv_poll_cq, ibv_bind_mw and the allocation of windows are inline functions of the header that call the
provider's functions. Therefore all code in this process calls the replacements: Python, pyverbs and C."""

import ctypes
from collections.abc import Callable
from typing import Any

_WORD = ctypes.sizeof(ctypes.c_void_p)
_pointer, _int = ctypes.c_void_p, ctypes.c_int
_Posting = ctypes.CFUNCTYPE(_int, _pointer, _pointer, _pointer)
# For each function, its index in struct ibv_context_ops, and its type. In struct ibv_context, this struct follows the
# pointer to the device.
FUNCTIONS: dict[str, tuple[int, Any]] = {
    "alloc_mw": (7, ctypes.CFUNCTYPE(_pointer, _pointer, _int)),
    "bind_mw": (8, _Posting),
    "dealloc_mw": (9, ctypes.CFUNCTYPE(_int, _pointer)),
    "poll_cq": (11, ctypes.CFUNCTYPE(_int, _pointer, _int, _pointer)),
    "post_send": (25, _Posting),
    "post_recv": (26, _Posting),
}
# Replacements are never deleted, because a caller that has read the address of a replacement may call it later.
_kept: list[Any] = []


class Operations:
    """The replaced functions of one struct ibv_context. The real functions are attributes with the functions' names."""

    def __init__(
        self,
        context: int,
        replacements: dict[str, Callable[..., int]],
        faults: list[BaseException],
    ) -> None:
        """`context` is struct ibv_context *. Exceptions of replacements are appended to `faults`."""
        self._real: dict[str, int] = {}
        self._context = context
        self._faults = faults
        for name, (index, kind) in FUNCTIONS.items():
            cell = self._cell(index)
            self._real[name] = cell.value
            setattr(self, name, kind(cell.value))
            replacement = kind(self._guarded(replacements[name], -1 if name != "alloc_mw" else 0))
            _kept.append(replacement)
            cell.value = ctypes.cast(replacement, _pointer).value or 0

    def _cell(self, index: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._context + (1 + index) * _WORD)

    def _guarded(self, function: Callable[..., int], failed: int) -> Callable[..., int]:
        def guarded(*arguments: Any) -> int:
            try:
                return function(*(argument or 0 for argument in arguments))
            except BaseException as error:  # ctypes would print the exception and return 0
                self._faults.append(error)
                return failed

        return guarded

    def restore(self) -> None:
        for name, (index, _) in FUNCTIONS.items():
            self._cell(index).value = self._real[name]
