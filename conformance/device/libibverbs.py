"""Calls the verbs through libibverbs like a C program, with exact arguments and results (the entry `libibverbs`).

Exported functions are called with ctypes, because pyverbs allocates memory if the address is 0, and an exception of
pyverbs contains the returned value or errno, but not both. Inline functions for advice and windows return one code, and
are called through pyverbs. Other inline functions are called through the pointers in struct verbs_context.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from conformance.bench import calls
from conformance.bench.calls import Buffer, Held, Mr, MrInitAttr, Pd, PdAt, Return, Sge, errno_name
from conformance.device.fork_settings import no_descriptors
from conformance.errors import SetupRefused
from conformance.model.quantity import CONSTANTS
from conformance.verbs import (
    INVENTED,
    OPTIONAL_ACCESS,
    VENDOR_VERBS,
    VERBS,
    Linkage,
    Verb,
    of_method,
)

_EXPERIMENTAL_SYMBOL = "ibv_exp_rereg_mr"
# The functions in struct verbs_context that inline functions of the header call. Each number is the distance from the
# final member, struct ibv_context, in pointers.
_BEFORE_CONTEXT = {
    "alloc_td": 24,
    "dealloc_td": 25,
    "alloc_parent_domain": 26,
    "free_dm": 31,
    "alloc_dm": 32,
}
_BEFORE_CONTEXT |= {"reg_dm_mr": 33, "alloc_null_mr": 38}
_ON_DEMAND = 1 << 6  # IBV_ACCESS_ON_DEMAND
_POINTER = ctypes.sizeof(ctypes.c_void_p)
# struct ibv_alloc_dm_attr: length, log_align_req, comp_mask.
_ALLOC_DM_ATTR = struct.Struct("@QII")
# struct ibv_parent_domain_init_attr: pd, td, comp_mask; then alloc, free and pd_context, which are NULL.
_PARENT_DOMAIN_ATTR = struct.Struct("@PPI4x24x")


class HeldAt:
    """An object for which the library returned a pointer. `end` calls the verb that releases the object."""

    def __init__(self, pointer: int, end: Callable[[int], Return]) -> None:
        self.pointer, self._end, self.gone = pointer, end, False

    @property
    def handle(self) -> int:
        return self.pointer

    def end(self) -> Return:
        """Releases the object. Returns 0, or the value of errno."""
        returned = self._end(self.pointer)
        self.gone = returned.value == 0
        return returned

    def close(self) -> None:
        """Releases the object if no step has released it. Raises OSError if the device refuses."""
        if not self.gone and (value := self.end().value):
            raise OSError(value, os.strerror(value))


def _held(returned: Return, end: Callable[[int], Return], kind: type[HeldAt] = HeldAt) -> Return:
    """Returns the result of a call that returned NULL or a pointer to an object. `end` releases the object."""
    return replace(returned, mr=None, held=kind(returned.value, end) if returned.value else None)


class DeviceMemoryAt(HeldAt):
    """Device memory, with the library's struct ibv_dm *."""

    @property
    def struct(self) -> calls.IbvDm:
        return calls.IbvDm.from_address(self.pointer)

    @property
    def handle(self) -> int:
        return int(self.struct.handle)

    def copy(self, function: int, *arguments: int) -> Return:
        """Calls the function at the address `function`. Each argument is one word."""
        value = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(arguments))(function)(
            *arguments,
        )
        return Return(value, value, layer="provider")


class Libibverbs:
    """The entry `libibverbs`. If a verb returns a pointer, a `value` of 0 means NULL."""

    name = "libibverbs"

    def __init__(self, dialect: str | None = None) -> None:
        """Loads the library that the dynamic linker selects. Raises OSError if there is no library. `dialect` is one of
        vocabulary.DIALECTS. With `experimental`, the library's ibv_rereg_mr is the vendor's variant. With another value
        or None, the vendor's variant can be called only if the library exports ibv_exp_rereg_mr."""
        self._library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        self._absent: list[Callable[..., Any]] = []
        exported = [verb for verb in VERBS.values() if verb.linkage is not Linkage.INLINE]
        self._functions = {verb.name: self._declare(verb.name, *_types(verb)) for verb in exported}
        # A library without ibv_reg_mr_iova2 has no optional flags. A registration with such a flag then calls
        # ibv_reg_mr_iova.
        if self.exports("ibv_reg_mr_iova2"):
            optional = "ibv_reg_mr_iova2"
        else:
            optional = "ibv_reg_mr_iova"
        types = _types(VERBS["ibv_reg_mr_iova"])[:-1]
        self._functions["ibv_reg_mr_iova2"] = self._declare(optional, *types, ctypes.c_uint)
        experimental = _types(VENDOR_VERBS["ibv_rereg_mr"])
        if dialect == "experimental":
            # On a second handle of the library, the same function can be declared with different types.
            function = ctypes.CDLL("libibverbs.so.1", use_errno=True)["ibv_rereg_mr"]
            function.restype, function.argtypes = experimental[0], experimental[1:]
            self._functions[_EXPERIMENTAL_SYMBOL] = function
        elif self.exports(_EXPERIMENTAL_SYMBOL):
            self._functions[_EXPERIMENTAL_SYMBOL] = self._declare(
                _EXPERIMENTAL_SYMBOL,
                *experimental,
            )

    def _declare(self, name: str, result: type, *arguments: type) -> Callable[..., Any]:
        """Returns the library's function or, if the library does not export it, a function that reports EOPNOTSUPP."""
        if not self.exports(name):
            self._absent.append(_reporting_eopnotsupp(result, *arguments))
            return self._absent[-1]
        function = self._library[name]
        function.restype = result
        function.argtypes = arguments
        return function

    def __getattr__(self, name: str) -> Callable[..., Return]:
        return functools.partial(self._verb, of_method(name).name)

    def _verb(self, name: str, *arguments: Pd | Mr | Buffer | Held | int | None) -> Return:
        """Calls the verb. Passes an object as its pointer, and None as NULL."""
        function = self._functions[name]
        ctypes.set_errno(0)
        value = (
            function(
                *(
                    argument if isinstance(argument, int) else argument.pointer if argument else 0
                    for argument in arguments
                ),
            )
            or 0
        )
        mr = Mr.at(value) if value and function.restype is ctypes.c_void_p else None  # type: ignore[attr-defined]
        return Return(
            value,
            ctypes.get_errno(),
            mr,
            self.name if function in self._absent else "kernel",
        )

    def offers(self, verb: str) -> bool:
        """Whether the loaded library exports a verb. Always true for an inline function."""
        return VERBS[f"ibv_{verb}"].linkage is Linkage.INLINE or self.exports(f"ibv_{verb}")

    def exports(self, symbol: str) -> bool:
        return hasattr(self._library, symbol)

    def raw(self, symbol: str) -> Callable[..., Any]:
        """Returns the ctypes function of a verb, for fast loops. After a call, ctypes.get_errno() returns errno."""
        return self._functions[symbol]

    def keep_from_children(self) -> None:
        """Calls ibv_fork_init, so that forked children do not inherit registered ranges. The library can open no socket
        to query whether the kernel copies on fork, so it protects the ranges. Must be called before registrations."""
        with no_descriptors():
            self._library.ibv_fork_init()

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """Calls ibv_reg_mr as in a C program: for optional flags, the header's macro calls ibv_reg_mr_iova2."""
        if access & OPTIONAL_ACCESS:
            returned = self._verb("ibv_reg_mr_iova2", pd, addr, length, addr, access)
        else:
            returned = self._verb("ibv_reg_mr", pd, addr, length, access)
        return self._by_its_layer(returned, addr, length, access)

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        """Calls ibv_reg_mr_iova as in a C program: for optional flags, the header's macro calls ibv_reg_mr_iova2."""
        name = "ibv_reg_mr_iova"
        if access & OPTIONAL_ACCESS:
            name = "ibv_reg_mr_iova2"
        returned = self._verb(name, pd, addr, length, hca_va, access)
        return self._by_its_layer(returned, addr, length, access)

    def _by_its_layer(self, returned: Return, addr: int, length: int, access: int) -> Return:
        """Returns the result of a registration with the layer that returned it. ibv_cmd_reg_mr of libibverbs refuses the
        length SIZE_MAX on demand at any address but 0, and does not call the kernel."""
        is_implicit = access & _ON_DEMAND and length == CONSTANTS["SIZE_MAX"]
        if is_implicit and addr and returned.errno == errno.EINVAL:
            return replace(returned, layer=self.name)
        return returned

    def reg_mr_ex(self, pd: Pd, *arguments: Any) -> Return:
        """Calls ibv_reg_mr_ex with the fields of MrInitAttr. An `invented` dmah points to zeros."""
        attributes, zeros = MrInitAttr(*arguments), ctypes.create_string_buffer(64)
        words = {"NULL": 0, INVENTED: ctypes.addressof(zeros)}
        if isinstance(attributes.dmah, str):
            dmah = words[attributes.dmah]
        else:
            dmah = attributes.dmah.pointer
        attr = calls.IbvMrInitAttr(
            *attributes._replace(dmah=dmah, buf=attributes.buf.pointer if attributes.buf else 0),
        )
        return self._verb("ibv_reg_mr_ex", pd, ctypes.addressof(attr))

    def alloc_buf(self, pd: Pd, size: int) -> Return:
        """Calls ibv_alloc_buf. The result has a `buffer` if neither the address nor the handle is NULL."""
        handle = ctypes.c_void_p()
        returned = replace(self._verb("ibv_alloc_buf", pd, size, ctypes.addressof(handle)), mr=None)
        free = self._declare("ibv_free_buf", ctypes.c_int, ctypes.c_void_p)
        if not returned.value or not handle.value:
            return returned
        return replace(
            returned,
            buffer=Buffer(
                handle.value,
                returned.value,
                size,
                functools.partial(free, handle.value),
            ),
        )

    def _inline(self, operation: str, context: int, *arguments: int) -> Return:
        """Calls a function of struct verbs_context, like an inline function of the header."""
        address = ctypes.c_void_p.from_address(
            context - _POINTER * _BEFORE_CONTEXT[operation],
        ).value
        if not address:
            return Return(0, errno.EOPNOTSUPP, layer=self.name)
        function = ctypes.CFUNCTYPE(
            ctypes.c_void_p,
            *[ctypes.c_void_p] * len(arguments),
            use_errno=True,
        )(address)
        ctypes.set_errno(0)
        return Return(function(*arguments) or 0, ctypes.get_errno(), layer="provider")

    def _inline_region(self, operation: str, pd: Pd, *arguments: int) -> Return:
        """Like _inline, for an inline function that creates a region in a PD."""
        returned = self._inline(operation, pd.context_pointer, pd.pointer, *arguments)
        if returned.value:
            return replace(returned, mr=Mr.at(returned.value))
        return returned

    def _inline_end(self, operation: str, pointer: int) -> Return:
        """Like _inline, for an inline function that releases an object. The object's struct begins with its context."""
        context = ctypes.c_void_p.from_address(pointer).value or 0
        value = self._inline(operation, context, pointer).value & 0xFFFFFFFF
        return Return(value, value)

    def free_dm(self, held: Held) -> Return:
        """Releases an object with the verb for its type. Returns 0, or the value of errno."""
        return cast(HeldAt, held).end()

    dealloc_dmah = dealloc_td = free_dm

    def alloc_null_mr(self, pd: Pd) -> Return:
        return self._inline_region("alloc_null_mr", pd)

    def alloc_dm(self, context: int, length: int, log_align_req: int) -> Return:
        packed = _ALLOC_DM_ATTR.pack(length, log_align_req, 0)
        attr = ctypes.create_string_buffer(packed, len(packed))
        returned = self._inline("alloc_dm", context, context, ctypes.addressof(attr))
        return _held(returned, functools.partial(self._inline_end, "free_dm"), DeviceMemoryAt)

    def import_dm(self, context: int, handle: int) -> Return:
        """Calls ibv_import_dm. ibv_unimport_dm has to release the imported object."""
        return _held(
            self._verb("ibv_import_dm", context, handle),
            self._unimport_dm,
            DeviceMemoryAt,
        )

    def _unimport_dm(self, pointer: int) -> Return:
        self._declare("ibv_unimport_dm", ctypes.c_int, ctypes.c_void_p)(pointer)
        return Return(0, 0)

    def alloc_dmah(
        self,
        context: int,
        comp_mask: int,
        cpu_id: int,
        ph: int,
        tph_mem_type: int,
    ) -> Return:
        attr = ctypes.create_string_buffer(
            struct.pack("=IIBB2x", comp_mask, cpu_id, ph, tph_mem_type),
        )
        end = functools.partial(self._verb, "ibv_dealloc_dmah")
        return _held(self._verb("ibv_alloc_dmah", context, ctypes.addressof(attr)), end)

    def reg_dm_mr(self, pd: Pd, dm: Held, dm_offset: int, length: int, access: int) -> Return:
        return self._inline_region("reg_dm_mr", pd, dm.pointer, dm_offset, length, access)

    def memcpy_to_dm(self, dm: Held, dm_offset: int, host_addr: int, length: int) -> Return:
        """Calls ibv_memcpy_to_dm. Returns 0, or the value of errno."""
        assert isinstance(dm, DeviceMemoryAt)
        return dm.copy(dm.struct.memcpy_to_dm, dm.pointer, dm_offset, host_addr, length)

    def memcpy_from_dm(self, host_addr: int, dm: Held, dm_offset: int, length: int) -> Return:
        """Calls ibv_memcpy_from_dm. Returns 0, or the value of errno."""
        assert isinstance(dm, DeviceMemoryAt)
        return dm.copy(dm.struct.memcpy_from_dm, host_addr, dm.pointer, dm_offset, length)

    def alloc_td(self, context: int) -> Return:
        attr = ctypes.c_uint32()  # the only member of struct ibv_td_init_attr is comp_mask
        returned = self._inline("alloc_td", context, context, ctypes.addressof(attr))
        return _held(returned, functools.partial(self._inline_end, "dealloc_td"))

    def alloc_parent_domain(
        self,
        context: int,
        pd: Pd | None,
        td: Held | None,
        comp_mask: int,
    ) -> Return:
        fields = (pd.pointer if pd else 0, td.pointer if td else 0, comp_mask)
        packed = _PARENT_DOMAIN_ATTR.pack(*fields)
        attr = ctypes.create_string_buffer(packed, len(packed))
        returned = self._inline("alloc_parent_domain", context, context, ctypes.addressof(attr))
        return self._domain(returned, "ibv_dealloc_pd")

    def import_pd(self, context: int, handle: int) -> Return:
        return self._domain(self._verb("ibv_import_pd", context, handle), "ibv_unimport_pd")

    def import_mr(self, pd: Pd, handle: int) -> Return:
        """Calls ibv_import_mr. ibv_unimport_mr has to release the imported object; the region remains registered."""
        returned = self._verb("ibv_import_mr", pd, handle)
        end = self._declare("ibv_unimport_mr", ctypes.c_int, ctypes.c_void_p)
        if returned.value:
            return replace(returned, release=functools.partial(end, returned.value))
        return returned

    def import_device(self, cmd_fd: int) -> int:
        """Calls ibv_import_device with a duplicate of `cmd_fd`. Returns struct ibv_context *. Raises SetupRefused."""
        function = self._declare("ibv_import_device", ctypes.c_void_p, ctypes.c_int)
        return self._imported("the device", function(os.dup(cmd_fd)))

    def dereg_import(self, context: int, pd_handle: int, mr_handle: int) -> Return:
        """Imports a PD, and a region in this PD. Returns the result of ibv_dereg_mr of the imported region. Raises
        SetupRefused."""
        pd = self._imported("the domain", self._verb("ibv_import_pd", context, pd_handle).value)
        mr = self._imported("the region", self._verb("ibv_import_mr", pd, mr_handle).value)
        return self._verb("ibv_dereg_mr", mr)

    def _imported(self, what: str, pointer: int | None) -> int:
        if not pointer:
            raise SetupRefused(
                f"importing {what}",
                errno_name(ctypes.get_errno()),
                creates="import_mr",
            )
        return pointer

    def _domain(self, returned: Return, end: str) -> Return:
        """Returns the result of a call that returned NULL or a PD. The library's function `end` releases the PD."""
        if not returned.value:
            return returned
        release = functools.partial(
            self._declare(end, ctypes.c_int, ctypes.c_void_p),
            returned.value,
        )
        return replace(returned, mr=None, pd=PdAt(returned.value, release))

    def dealloc_pd(self, pd: Pd) -> Return:
        """Calls ibv_dealloc_pd. Unlike pyverbs, does not release the objects in the PD first."""
        returned = self._verb("ibv_dealloc_pd", pd)
        if returned.value == 0:
            cast(Any, pd).forget()  # a PdAt, such as a ProtectionDomain
        return returned

    def rereg_mr(
        self,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        """Calls ibv_rereg_mr. Returns 0, or a code of enum ibv_rereg_mr_err_code."""
        returned = self._verb("ibv_rereg_mr", mr, flags, pd, addr, length, access)
        # ERR_INPUT (-1) is returned by the library. A provider without the verb returns EOPNOTSUPP.
        if returned.errno in calls.ABSENT:
            layer = "provider"
        else:
            layer = "kernel"
        return replace(returned, layer="libibverbs" if returned.value == -1 else layer)

    @property
    def has_experimental_rereg(self) -> bool:
        """Whether the vendor's variant of ibv_rereg_mr can be called."""
        return _EXPERIMENTAL_SYMBOL in self._functions

    def experimental_rereg_mr(
        self,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        """Calls the vendor's ibv_rereg_mr with NULL as `attr`. Returns 0, or the value of errno."""
        if not self.has_experimental_rereg:
            raise LookupError("the loaded libibverbs has no experimental ibv_rereg_mr")
        return self._verb(_EXPERIMENTAL_SYMBOL, mr, flags, pd, addr, length, access, None)

    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        from pyverbs.wr import SGE

        elements = [SGE(sge.addr, sge.length, sge.lkey) for sge in sg_list]
        return exact(lambda: cast(Any, pd).pyverbs.advise_mr(advice, flags, elements))


def _types(verb: Verb) -> tuple[type, ...]:
    """Returns the ctypes of a verb's result and arguments. Pointers are numbers."""
    ctypes_ = (verb.returns, *(parameter.ctype for parameter in verb.parameters))
    return tuple(
        ctypes.c_void_p if ctype.endswith("*") else calls.NUMBERS[ctype] for ctype in ctypes_
    )


def _reporting_eopnotsupp(result: type, *arguments: type) -> Callable[..., Any]:
    """Returns a C function that sets errno to EOPNOTSUPP and returns NULL, or EOPNOTSUPP if `result` is a number."""

    def report(*_: object) -> int | None:
        ctypes.set_errno(errno.EOPNOTSUPP)
        if result is ctypes.c_void_p:
            return None
        return errno.EOPNOTSUPP

    return ctypes.CFUNCTYPE(result, *arguments, use_errno=True)(report)


_errno_location = ctypes.CDLL(None).__errno_location
_errno_location.restype = ctypes.POINTER(ctypes.c_int)


def clear_errno() -> None:
    """Sets the C library's errno to 0. Some providers refuse an object without setting errno, and then pyverbs reports
    the errno of an earlier call."""
    _errno_location()[0] = 0


def exact(call: Callable[[], object]) -> Return:
    """Returns the result of a pyverbs call: 0, or the code of the exception."""
    from pyverbs.pyverbs_error import PyverbsRDMAError

    try:
        call()
    except PyverbsRDMAError as error:
        return Return(error.error_code, error.error_code)
    return Return(0, 0)
