"""The two entries of the reference device. The interface is the same as in device/libibverbs.py and device/uverbs.py. A
verb calls the device's method of the same name. The entries' results of registrations, refusals and changes differ.
"""

from __future__ import annotations

import ctypes
import errno
import functools
from collections.abc import Callable
from typing import Any, cast

from conformance.bench import calls
from conformance.bench.calls import IbvMr, Mr, Pd, QueriedMr, Return
from conformance.bench.doors import start_of
from conformance.model.capability import BY_SYMBOL
from conformance.model.vocabulary import CALLS
from conformance.older_python import zip
from conformance.verbs import VERBS, Convention, Verb, of_method
from trial.reference.device import Device
from trial.reference.extended import Buffer
from trial.reference.objects import Domain, Held, Refused, Region
from trial.reference.reregistration import CHANGE_PD, CHANGE_TRANSLATION, INPUT, Change


class KernelEntry:
    """uverbs: returns 0 or errno, even if the manual page of the library's verb defines other codes."""

    name = "uverbs"

    def __init__(self, device: Device) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Callable[..., Return]:
        """Returns a verb. The verb calls the device's method of this name with handles in place of objects."""
        return functools.partial(self._verb, of_method(name))

    def offers(self, verb: str) -> bool:
        return self._device.stack.has(verb) and VERBS[f"ibv_{verb}"].command != ""

    def query_mr(self, mr: Mr) -> Return:
        try:
            return Return(0, 0, queried=QueriedMr(*self._device.query_mr(mr.handle)))
        except Refused as refused:
            return Return(refused.errno, refused.errno)

    def forged(self, command: str, handle: int, mr: Mr) -> Return:
        """Issues a command of the kernel with the handle of a different object."""
        error = self._device.forged_fault(command, handle)
        return Return(error, error)

    def by_right_handle(self, command: str, pd: int, mr: Mr) -> Return:
        """Issues the command of `forged`, but with the right handle."""
        return Return(0, 0)

    def _verb(self, verb: Verb, *arguments: Any) -> Return:
        if verb.method in BY_SYMBOL and not self.offers(verb.method):
            return self._refused(verb, errno.EOPNOTSUPP)
        handles = [
            argument if isinstance(argument, int) else getattr(argument, "handle", argument)
            for argument in arguments
        ]
        with self._device.turn:
            return self._answered(
                verb,
                lambda: self._made(verb, getattr(self._device, verb.method)(*handles), arguments),
            )

    def _answered(self, verb: Verb, call: Callable[[], Return]) -> Return:
        try:
            return call()
        except Refused as refused:
            return self._refused(verb, refused.errno)

    def _made(
        self,
        verb: Verb,
        made: Region | Buffer | Domain | Held | int | None,
        arguments: tuple[Any, ...],
    ) -> Return:
        if isinstance(made, Buffer):
            free = functools.partial(self._device.free_buf, made.handle)
            return Return(
                made.addr,
                0,
                buffer=calls.Buffer(made.handle, made.addr, made.size, free),
            )
        if made is None or isinstance(made, int):
            return Return(made or 0, 0)
        if isinstance(made, Held):
            return Return(made.pointer, 0, held=made)
        if isinstance(made, Domain):
            return Return(made.pointer, 0, pd=made)
        named = dict(zip(CALLS[verb.name], arguments, strict=False))
        length = named.get("length", made.length)
        if "length" in named:
            start = start_of(named)
        elif "mr" in named:
            start = made.addr
        else:
            start = self._device.imported_addr(made)
        return self._registered(
            self._device.structure(made, named.get("pd", made.domain), start, length),
        )

    def _registered(self, struct: IbvMr) -> Return:
        """Returns the result for a new region. The library has no record of this region."""
        return Return(0, 0, Mr(struct))

    def _refused(self, verb: Verb, errno: int) -> Return:
        return Return(errno, errno)

    def _changed(self, mr: Mr, change: Change, pd: Pd | None) -> Return:
        """Executes REREG_MR. Only the keys in struct ibv_mr change, because the kernel returns nothing else."""
        mr.struct.lkey, mr.struct.rkey = self._device.reported_keys(
            self._device.change(mr.handle, change),
        )
        return Return(0, 0)

    def dealloc_pd(self, pd: Pd) -> Return:
        return cast(Domain, pd).dealloc()

    def dereg_mr(self, mr: Mr) -> Return:
        return self._device.dereg_answer(self._verb(of_method("dereg_mr"), mr))

    def rereg_mr(
        self,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        change = Change(flags, pd.handle if pd else None, addr, length, access)
        return self._answered(of_method("rereg_mr"), lambda: self._changed(mr, change, pd))


class LibraryEntry(KernelEntry):
    """libibverbs: returns a pointer or NULL, or the codes of the manual pages."""

    name = "libibverbs"

    def offers(self, verb: str) -> bool:
        return self._device.stack.has(verb)

    def _registered(self, struct: IbvMr) -> Return:
        pointer = ctypes.addressof(struct)
        return Return(pointer, 0, Mr(struct, pointer))

    def _refused(self, verb: Verb, errno: int) -> Return:
        """Returns the result of a refusal: NULL or -1 with errno, or the value of errno."""
        if verb.convention is Convention.FD_OR_MINUS_ONE:
            return Return(-1, errno)
        if verb.convention is Convention.POINTER_OR_NULL:
            return Return(0, self._device.reported_errno(errno))
        return Return(errno, errno)

    def _changed(self, mr: Mr, change: Change, pd: Pd | None) -> Return:
        """Executes ibv_rereg_mr. Returns 0, or a code of enum ibv_rereg_mr_err_code."""
        code, error, region = self._device.rereg_code(mr.handle, change)
        self._update_structure(mr, region, change, pd)
        return Return(code, error, layer=self.name if code == INPUT else "kernel")

    def experimental_rereg_mr(
        self,
        mr: Mr,
        flags: int,
        pd: Pd | None,
        addr: int,
        length: int,
        access: int,
    ) -> Return:
        """Executes the vendor's ibv_rereg_mr. Returns 0, or the value of errno."""
        change = Change(flags, pd.handle if pd else None, addr, length, access)
        code, region = self._device.experimental_code(mr.handle, change)
        self._update_structure(mr, region, change, pd)
        return Return(code, max(0, code))

    def _update_structure(
        self,
        mr: Mr,
        region: Region | None,
        change: Change,
        pd: Pd | None,
    ) -> None:
        """Updates struct ibv_mr as the library does after a change. If no region was changed, does nothing."""
        if region is None:
            return
        if change.flags & CHANGE_TRANSLATION:
            mr.struct.addr, mr.struct.length = self._device.reported_range(change)
        if change.flags & CHANGE_PD and pd:
            mr.struct.pd = self._device.reported_pd(pd, int(mr.struct.pd or 0))
        mr.struct.lkey, mr.struct.rkey = self._device.reported_keys(region)
