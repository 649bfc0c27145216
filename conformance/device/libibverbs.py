"""The libibverbs entry: the verbs as a C program calls them, with exact arguments and results.

ctypes calls the exported functions, because pyverbs hides some codes and arguments: it turns codes into exceptions, and
address 0 into an allocation of its own. The inline functions of the header (advice, windows) are compiled only in
pyverbs, whose exceptions contain their exact codes. Not for the kernel's ABI (uverbs.py).
"""

from __future__ import annotations

import ctypes
import errno
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

from conformance.bench.calls import ABSENT, Mr, Pd, Return, Sge
from conformance.verbs import OPTIONAL_ACCESS

_EXPERIMENTAL_SYMBOL = "ibv_exp_rereg_mr"


class _BindingsPd(Pd, Protocol):
    """A PD that pyverbs allocated."""

    @property
    def pyverbs(self) -> Any: ...


class Libibverbs:
    """Calls at the library. A `value` of 0 is NULL where a pointer is returned."""

    name = "libibverbs"

    def __init__(self, dialect: str | None = None) -> None:
        """Loads the library that the dynamic linker finds. Raises OSError if there is none.

        `dialect` is the variant of the library's ibv_rereg_mr. With None, the vendor's variant exists if the library
        exports it by its experimental name.
        """
        self._library = ctypes.CDLL("libibverbs.so.1", use_errno=True)
        self._absent: list[Callable[..., Any]] = []
        pointer, size, word, long = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint64
        declare = self._declare
        self._reg_mr = declare("ibv_reg_mr", pointer, pointer, pointer, size, word)
        self._reg_mr_iova = declare("ibv_reg_mr_iova", pointer, pointer, pointer, size, long, word)
        # A library without it has no optional flags, so that a program calls the others with them.
        optional = "ibv_reg_mr_iova2" if self.exports("ibv_reg_mr_iova2") else "ibv_reg_mr_iova"
        self._reg_mr_iova2 = declare(optional, pointer, pointer, pointer, size, long, ctypes.c_uint)
        self._reg_dmabuf_mr = declare("ibv_reg_dmabuf_mr", pointer, pointer, long, size, long, word, word)
        self._dereg_mr = declare("ibv_dereg_mr", word, pointer)
        self._rereg_mr = declare("ibv_rereg_mr", word, pointer, word, pointer, pointer, size, word)
        # int (struct ibv_mr *, int flags, struct ibv_pd *, void *, size_t, uint64_t access, struct ibv_rereg_mr_attr *)
        experimental = (word, pointer, word, pointer, pointer, size, long, pointer)
        self._experimental_rereg: Callable[..., Any] | None = None
        if dialect == "experimental":
            library = ctypes.CDLL(
                "libibverbs.so.1", use_errno=True
            )  # a second handle, whose functions can have other types
            self._experimental_rereg = library["ibv_rereg_mr"]
            self._experimental_rereg.restype, self._experimental_rereg.argtypes = experimental[0], experimental[1:]
        elif self.exports(_EXPERIMENTAL_SYMBOL):
            self._experimental_rereg = declare(_EXPERIMENTAL_SYMBOL, *experimental)

    def _declare(self, name: str, result: type, *arguments: type) -> Callable[..., Any]:
        """The function of the library; for one that an older library lacks, one that answers EOPNOTSUPP."""
        if not self.exports(name):
            self._absent.append(_answering_eopnotsupp(result, *arguments))
            return self._absent[-1]
        function = self._library[name]
        function.restype = result
        function.argtypes = arguments
        return function

    def _call(self, function: Callable[..., Any], *arguments: int) -> Return:
        ctypes.set_errno(0)
        value = function(*arguments)
        layer = self.name if function in self._absent else "kernel"
        return Return(value or 0, ctypes.get_errno(), layer=layer)

    def _registration(self, function: Callable[..., Any], *arguments: int) -> Return:
        returned = self._call(function, *arguments)
        return replace(returned, mr=Mr.at(returned.value)) if returned.value else returned

    def exports(self, symbol: str) -> bool:
        """Whether the loaded library has the symbol."""
        return hasattr(self._library, symbol)

    def raw(self, symbol: str) -> Callable[..., Any]:
        """The ctypes function of a verb, for fast loops. ctypes.get_errno() returns its errno."""
        return {
            "ibv_reg_mr": self._reg_mr,
            "ibv_reg_mr_iova": self._reg_mr_iova,
            "ibv_reg_mr_iova2": self._reg_mr_iova2,
            "ibv_reg_dmabuf_mr": self._reg_dmabuf_mr,
            "ibv_dereg_mr": self._dereg_mr,
            "ibv_rereg_mr": self._rereg_mr,
        }[symbol]

    def keep_from_children(self) -> None:
        """ibv_fork_init, so that registered ranges are kept from forked children even if the kernel copies on fork.

        The library asks the kernel by a socket whether it has to, and protects if it cannot ask: no descriptor may be
        opened meanwhile. It must not have registered anything before.
        """
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            self._library.ibv_fork_init()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def reg_mr(self, pd: Pd, addr: int, length: int, access: int) -> Return:
        """ibv_reg_mr as in a C program: with optional flags, the macro of the header calls ibv_reg_mr_iova2."""
        if access & OPTIONAL_ACCESS:
            return self._registration(self._reg_mr_iova2, pd.pointer, addr, length, addr, access)
        return self._registration(self._reg_mr, pd.pointer, addr, length, access)

    def reg_mr_iova(self, pd: Pd, addr: int, length: int, hca_va: int, access: int) -> Return:
        """ibv_reg_mr_iova, with the same choice of the function by a macro."""
        function = self._reg_mr_iova2 if access & OPTIONAL_ACCESS else self._reg_mr_iova
        return self._registration(function, pd.pointer, addr, length, hca_va, access)

    def reg_dmabuf_mr(self, pd: Pd, offset: int, length: int, iova: int, fd: int, access: int) -> Return:
        """ibv_reg_dmabuf_mr."""
        return self._registration(self._reg_dmabuf_mr, pd.pointer, offset, length, iova, fd, access)

    def dereg_mr(self, mr: Mr) -> Return:
        """ibv_dereg_mr: 0, or the value of errno."""
        return self._call(self._dereg_mr, mr.pointer)

    def rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """ibv_rereg_mr: 0, or a code of enum ibv_rereg_mr_err_code."""
        pointer = pd.pointer if pd else 0
        returned = self._call(self._rereg_mr, mr.pointer, flags, pointer, addr, length, access)
        return Return(returned.value, returned.errno, layer=_rereg_layer(returned))

    @property
    def has_experimental_rereg(self) -> bool:
        """Whether the vendor's dialect of ibv_rereg_mr can be called."""
        return self._experimental_rereg is not None

    def experimental_rereg_mr(self, mr: Mr, flags: int, pd: Pd | None, addr: int, length: int, access: int) -> Return:
        """The vendor's ibv_rereg_mr without an attr: 0, or the value of errno."""
        if self._experimental_rereg is None:
            raise LookupError("the loaded libibverbs has no experimental ibv_rereg_mr")
        pointer = pd.pointer if pd else 0
        return self._call(self._experimental_rereg, mr.pointer, flags, pointer, addr, length, access, 0)

    def advise_mr(self, pd: Pd, advice: int, flags: int, sg_list: Sequence[Sge]) -> Return:
        """ibv_advise_mr: 0, or the value of errno."""
        from pyverbs.wr import SGE

        elements = [SGE(sge.addr, sge.length, sge.lkey) for sge in sg_list]
        return exact(lambda: cast(_BindingsPd, pd).pyverbs.advise_mr(advice, flags, elements))


def _answering_eopnotsupp(result: type, *arguments: type) -> Callable[..., Any]:
    """A C function that returns NULL, or EOPNOTSUPP if it returns a number, and sets errno to EOPNOTSUPP."""

    def answer(*_: object) -> int | None:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return None if result is ctypes.c_void_p else errno.EOPNOTSUPP

    return ctypes.CFUNCTYPE(result, *arguments, use_errno=True)(answer)


def _rereg_layer(returned: Return) -> str:
    # The library itself returns ERR_INPUT. A provider without the verb returns EOPNOTSUPP.
    if returned.value == -1:
        return "libibverbs"
    return "provider" if returned.errno in ABSENT else "kernel"


def exact(call: Callable[[], object]) -> Return:
    """The result of a pyverbs call: the code of the exception that it raises, or 0."""
    from pyverbs.pyverbs_error import PyverbsRDMAError

    try:
        call()
    except PyverbsRDMAError as error:
        return Return(error.error_code, error.error_code)
    return Return(0, 0)
