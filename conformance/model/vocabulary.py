"""The words of the table language: what a table can set up, call and expect.

Data only. `tables/loader.py` reads tables with it, `tables/schema.py` publishes it for editors; what a call does
on a device stands in `execution/steps.py`. Flag and code names come from `verbs`, never from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conformance import verbs
from conformance.model.kind import BY_CALL, Kind
from conformance.model.positions import CONTENTS, POSITIONS

ENTRIES = ("libibverbs", "uverbs")
OUTCOMES = {
    "success": "the call succeeds by the page's own convention",
    "refused": "the call fails by the page's own convention",
    "open": "the documents leave the outcome open: it is recorded, never failed",
}
# How much a run takes on, from the least; each has what those before it have.
TIERS = {
    "smoke": "every rule once, within seconds",
    "default": "every row, and the sweeps of moderate size",
    "exhaustive": "every space whole",
}
MEMORY_KINDS = {
    "anonymous": "private anonymous memory, readable and writable",
    "read_only": "private anonymous memory mapped without write permission",
    "no_access": "address range mapped without any permission",
    "unmapped": "address range with nothing mapped",
    "untouched": "private anonymous memory whose pages nobody has touched yet",
    "hole": "readable and writable memory whose second page is unmapped",
    "shared": "shared memory of an anonymous file, readable and writable",
    "huge": "memory of huge pages of the system's default size",
    "persistent": "persistent memory of the device DAX that the run was given",
}
DMABUF_KINDS = {
    "udmabuf": "a dma-buf made of an anonymous file's pages by /dev/udmabuf",
    "system_heap": "a dma-buf of /dev/dma_heap/system",
}
# Advice of madvise(2), by which pages are taken away from memory.
DISCARDS = {
    "DONTNEED": "anonymous pages are given up for good",
    "REMOVE": "pages of an anonymous file are given up with the file's contents",
    "PAGEOUT": "pages go to swap",
}
QP_STATES = ("RESET", "INIT", "RTR", "RTS")
# What API-01 is asked of: every enumeration, struct and verb that is described.
API_ITEMS = (
    *(f"enum {name}" for name in verbs.ENUMS),
    *(f"struct {name}" for name in verbs.STRUCTS),
    *(f"prototype {name}" for name in verbs.VERBS),
    *(f"pyverbs enum {name}" for name in verbs.ENUMS),
)
# What an object's name may be where the call takes a null pointer.
NULL = "NULL"


@dataclass(frozen=True)
class ArgumentSpec:
    """One argument of a call: `kind` says how it is written, `of` what it names.

    Kinds: object (the name of a `pd`, `mr`, …), quantity (see quantity.py), flags (a list of names
    of the enum `of`), value (one name of the enum `of`, or a number), word (one of `words`), sges (a
    list of addr, length, lkey). `default` is what stands when a table leaves it out; None: it must
    be given. `nullable` lets an object be NULL.
    """

    kind: str
    of: str = ""
    default: str | None = None
    words: tuple[str, ...] = ()
    nullable: bool = False


# Operations on what is there, which make no object and end none.
PROBES = ("traffic", "local_traffic")
FLUSHES = ("FLUSH_GLOBAL", "FLUSH_PERSISTENT")
REMOTE_OPERATIONS = (
    "RDMA_WRITE", "RDMA_WRITE_WITH_IMM", "RDMA_READ", "ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "ATOMIC_WRITE",
    "UNEQUAL_CMP_AND_SWP",  # compares with what does not stand there, so that nothing may be swapped
    *FLUSHES,
)  # fmt: skip
# What reads a region by its lkey (SEND, and WRITE as the requester), and what writes to it: RECV, and the
# answers that READ and FETCH_AND_ADD bring their requester.
LOCAL_OPERATIONS = ("SEND", "WRITE", "RECV", "RECV_WITH_IMM", "READ", "FETCH_AND_ADD")
# The transports that traffic can go over.
TRAFFIC_TYPES = ("RC", "UC", "UD", "XRC")
FORK_CHILDREN = ("writes", "waits")
QP_RIGHTS = "REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC FLUSH_GLOBAL FLUSH_PERSISTENT"

_ACCESS = ArgumentSpec("flags", "ibv_access_flags")
_PD = ArgumentSpec("object", "pd", "pd")
_ADDR = ArgumentSpec("quantity", default="buf.addr")
_LENGTH = ArgumentSpec("quantity", default="buf.size")
_MR = ArgumentSpec("object", "mr", "mr")
_BIND = {
    "qp": ArgumentSpec("object", "qp", "qp"),
    "mw": ArgumentSpec("object", "window", "mw"),
    "mr": ArgumentSpec("object", "mr", "mr", nullable=True),
    "addr": _ADDR,
    "length": _LENGTH,
    "access": _ACCESS,
    "send_flags": ArgumentSpec("flags", "ibv_send_flags", "SIGNALED"),
}

_MEMORY = ArgumentSpec("object", "memory", "buf")
_ROUNDS = ArgumentSpec("quantity", default="100")
_POSITION = ArgumentSpec("word", "position", "whole", words=tuple(POSITIONS))
_CONTENTS = ArgumentSpec("word", "contents", "made", words=tuple(CONTENTS))

_REREG = {
    "mr": _MR,
    "flags": ArgumentSpec("flags", "ibv_rereg_mr_flags"),
    "pd": ArgumentSpec("object", "pd", NULL, nullable=True),
    "addr": ArgumentSpec("quantity", default="0"),
    "length": ArgumentSpec("quantity", default="0"),
    "access": ArgumentSpec("flags", "ibv_access_flags", ""),
}

CALLS: Mapping[str, Mapping[str, ArgumentSpec]] = {
    "ibv_reg_mr": {"pd": _PD, "addr": _ADDR, "length": _LENGTH, "access": _ACCESS},
    "ibv_reg_mr_iova": {
        "pd": _PD,
        "addr": _ADDR,
        "length": _LENGTH,
        "hca_va": ArgumentSpec("quantity", default="buf.addr"),
        "access": _ACCESS,
    },
    "ibv_reg_dmabuf_mr": {
        "pd": _PD,
        "offset": ArgumentSpec("quantity", default="0"),
        "length": ArgumentSpec("quantity", default="dmabuf.size"),
        "iova": ArgumentSpec("quantity", default="0"),
        # The name of a dma-buf, or a descriptor that is none.
        "fd": ArgumentSpec("object", "dmabuf", "dmabuf"),
        "access": _ACCESS,
    },
    "ibv_dereg_mr": {
        "mr": _MR,
        # What the structure names when the call is made: its own handle, one that was never given
        # out, or that of a region which is gone.
        "handle": ArgumentSpec("word", "handle", "own", words=("own", "invented", "stale")),
    },
    "ibv_rereg_mr": _REREG,
    "ibv_rereg_mr_experimental": _REREG,
    "ibv_advise_mr": {
        "pd": _PD,
        "advice": ArgumentSpec("value", "ibv_advise_mr_advice"),
        "flags": ArgumentSpec("flags", "ibv_advise_mr_flag", ""),
        "sg_list": ArgumentSpec("sges"),
        # What the PD's structure names when the call is made.
        "pd_handle": ArgumentSpec("word", "handle", "own", words=("own", "invented")),
    },
    "ibv_alloc_mw": {"pd": _PD, "type": ArgumentSpec("value", "ibv_mw_type")},
    "ibv_dealloc_mw": {"mw": ArgumentSpec("object", "window", "mw")},
    "ibv_bind_mw": _BIND,
    # Not verbs of their own pages, but what these point to: posted requests, and traffic.
    "post_bind_mw": _BIND,
    "post_local_inv": {"qp": ArgumentSpec("object", "qp", "qp"), "rkey": ArgumentSpec("quantity", default="mw.rkey")},
    "post_send_with_inv": {
        "qp": ArgumentSpec("object", "qp", "qp"),
        "rkey": ArgumentSpec("quantity", default="mw.rkey"),
    },
    "restore_rkey": {"mw": ArgumentSpec("object", "window", "mw")},
    # API-01: what the suite's descriptions say of one thing, against the installed header and bindings.
    Kind.API.traits.call: {"item": ArgumentSpec("word", "item", words=API_ITEMS)},
    # Sequences that trial/ makes up, with the reference as oracle.
    Kind.SEQUENCES.traits.call: {},
    "fill": {"memory": _MEMORY},
    "unmap": {"memory": _MEMORY},
    "move": {"memory": _MEMORY},
    "discard": {"memory": _MEMORY, "how": ArgumentSpec("word", "how", "DONTNEED", words=tuple(DISCARDS))},
    "fork": {"memory": _MEMORY, "child": ArgumentSpec("word", "child", words=FORK_CHILDREN)},
    "join": {"memory": _MEMORY},
    "resident": {"memory": _MEMORY},
    "receives_in_order": {
        "lkey": ArgumentSpec("quantity"),
        "addr": _ADDR,
        "length": ArgumentSpec("quantity", default="64"),
        "rounds": _ROUNDS,
        "pd": _PD,
    },
    "atomics_in_order": {"rkey": ArgumentSpec("quantity"), "addr": _ADDR, "rounds": _ROUNDS, "pd": _PD},
    "bind_and_send": _BIND,
    "traffic": {
        "op": ArgumentSpec("word", "operation", words=REMOTE_OPERATIONS),
        "rkey": ArgumentSpec("quantity"),
        "addr": _ADDR,
        "length": ArgumentSpec("quantity", default="8"),
        # Where the bytes stand in this process, if that is not `addr`.
        "at": ArgumentSpec("quantity", default=""),
        # Where in the range the operation goes.
        "position": _POSITION,
        "contents": _CONTENTS,
        "pd": _PD,
        # The queue pair whose peer asks; a fresh one of `pd`, of this type and these rights, without it.
        "via": ArgumentSpec("object", "qp", NULL, nullable=True),
        "qp_type": ArgumentSpec("word", "qp_type", "RC", words=TRAFFIC_TYPES),
        "qp_access": ArgumentSpec("flags", "ibv_access_flags", QP_RIGHTS),
    },
    "local_traffic": {
        "op": ArgumentSpec("word", "operation", words=LOCAL_OPERATIONS),
        "lkey": ArgumentSpec("quantity"),
        "addr": _ADDR,
        "length": ArgumentSpec("quantity", default="8"),
        "at": ArgumentSpec("quantity", default=""),
        "position": _POSITION,
        "contents": _CONTENTS,
        "pd": _PD,
        "qp_type": ArgumentSpec("word", "qp_type", "RC", words=TRAFFIC_TYPES),
    },
}
# What a folder of tables can be about: the verbs, each of which has a page of its own, the API as such, and all
# verbs together.
VERBS = (*(name for name in CALLS if name.startswith("ibv_")), *(kind.traits.folder for kind in BY_CALL.values()))
# What a table's rows call when they do not say.
DEFAULT_CALLS = {kind.traits.folder: call for call, kind in BY_CALL.items()}
# Descriptors that are no dma-buf, beside the names of those that are.
BAD_FDS = ("closed", "regular_file", "minus_one")
# What a call makes: its kind, and the name under which later steps find it.
PRODUCTS: Mapping[str, tuple[str, str]] = {
    "ibv_reg_mr": ("mr", "new"),
    "ibv_reg_mr_iova": ("mr", "new"),
    "ibv_reg_dmabuf_mr": ("mr", "new"),
    "ibv_alloc_mw": ("window", "new_mw"),
}
REGISTRATIONS = tuple(call for call, (kind, _) in PRODUCTS.items() if kind == "mr")
BINDS = ("ibv_bind_mw", "post_bind_mw")
# What can be expected, beside the outcome, of some calls only.
EXPECTABLE: Mapping[str, tuple[str, ...]] = {
    "code": ("ibv_rereg_mr",),
    "mr": (*REGISTRATIONS, "ibv_rereg_mr"),
    "completion": BINDS,
    "rkey": BINDS,
    "because": ("traffic", "local_traffic"),
}
# Names that objects of a table cannot have, since later steps or calls use them for something else.
RESERVED = (NULL, *BAD_FDS, *(name for _, name in PRODUCTS.values()))
