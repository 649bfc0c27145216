"""Defines the vocabulary of tables: what a table can set up, call and expect. `tables/` reads tables with this
vocabulary, `tables/schema.py` publishes it for editors, and `execution/steps.py` executes the calls. The names of flags
and codes come from `verbs`."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from conformance import verbs
from conformance.model.expected_errors import REASONS
from conformance.model.kind import BY_CALL, Kind
from conformance.model.memory_kinds import DISCARDS, PAGES
from conformance.model.operations import (
    ATOMICS_IN_ORDER,
    BATCHES,
    COMPLETED_OPERATIONS,
    ELEMENTS,
    EVENTS_ASKED,
    FAILING,
    FULL,
    IN_FLIGHT_OPERATIONS,
    LIST_OPERATIONS,
    LIST_TYPES,
    LOCAL_OPERATIONS,
    MESSAGES,
    POSTERS,
    PROBES,
    RECEIVES_NOTIFIED,
    REMOTE_OPERATIONS,
    STANDING,
    TOO_LONG_INLINE,
    TRAFFIC_TYPES,
)
from conformance.model.positions import CONTENTS, POSITIONS
from conformance.verbs import INVENTED, ArgumentSpec

ENTRIES = ("libibverbs", "uverbs")
# Verbs that can replace other verbs. A table can also run its rows with these verbs (bench/doors.py).
DOORS = ("reg_mr_ex",)
# The variants of ibv_rereg_mr: the function of rdma-core, and a vendor's experimental function with an argument `attr`.
DIALECTS = ("mainline", "experimental")
# The subject of a run's verdicts: the device with its driver, firmware and provider, or the whole stack.
SUBJECTS = ("device", "stack")
ELSEWHERE, EITHER = "elsewhere", "either"
OUTCOMES = {
    "success": "the call succeeds, by the convention of its manual page",
    "refused": "the call fails, by the convention of its manual page",
    "open": "the documents leave the outcome open: the outcome is recorded and is never a failure",
    EITHER: "the documents permit both outcomes; this row judges what follows in its later steps",
    ELSEWHERE: "other rows judge the outcome; this row judges only its later steps",
}
# The tiers, the smallest first; each contains the cases of the smaller tiers.
TIERS = {
    "smoke": "every rule, with a granted case and a refused case, within seconds",
    "default": "every row, and the sweeps of moderate size",
    "exhaustive": "every row and every sweep",
}
# The peers of a queue pair other than a queue pair.
PEERS = {
    "wire": "a program that sends and receives packets of RoCE itself",
    "stream": "a program that sends and receives segments of iWARP itself",
}
QP_STATES = ("RESET", "INIT", "RTR", "RTS", "ERR")
# The items that rule API-01 compares: every described enumeration, struct and verb.
API_ITEMS = (
    *(f"enum {name}" for name in verbs.ENUMS),
    *(f"struct {name}" for name in verbs.STRUCTS),
    *(f"prototype {name}" for name in verbs.VERBS),
    *(f"pyverbs enum {name}" for name in verbs.ENUMS),
)
# The name of a null pointer in a call.
NULL = "NULL"
# The call that exchanges packets with a peer that is no RDMA device; also the folder of its tables.
WIRE = "wire"
STREAM = "stream"  # its peer on an iWARP device
FORK_CHILDREN = ("writes", "waits")
# The windows that another process can bind to its region.
ELSEWHERE_WINDOWS = ("none", "type_1", "type_2")
# The ways to enable fork protection in a separate process.
FORK_SETTINGS = {
    "none": "nothing is done",
    "ibv_fork_init": "ibv_fork_init before a registration",
    "late": "ibv_fork_init after a registration",
    "RDMAV_FORK_SAFE": "the environment variable",
    "IBV_FORK_SAFE": "the environment variable",
    "RDMAV_HUGEPAGES_SAFE": "the environment variable and ibv_fork_init; the region is a part of a huge page",
}
# Commands of the kernel with a handle as argument. The handle of the first three commands is that of a protection
# domain; the handle of the others is that of the object to release, and of REREG_MR_REGION that of the region to change.
FORGED = (
    *("REG_MR", "ALLOC_MW", "REREG_MR", "DEALLOC_PD"),
    *("DEREG_MR", "DEALLOC_MW", "DESTROY_QP", "REREG_MR_REGION"),
)
QP_RIGHTS = "REMOTE_WRITE REMOTE_READ REMOTE_ATOMIC FLUSH_GLOBAL FLUSH_PERSISTENT"


def _words(of: str, default: str | None, words: Iterable[str]) -> ArgumentSpec:
    return ArgumentSpec("word", of, default, tuple(words))


LENGTH = "length"  # a quantity that the element of a request has in 32 bits
# The arguments of calls that are not verbs, by name.
_ARGUMENTS: Mapping[str, ArgumentSpec] = {
    **{
        name: ArgumentSpec("quantity")
        for name in (
            *("rkey", "lkey", "mr_lkey", "mw_rkey", "at", "behind", "mappings", "iova", "count"),
            "solicited_only",
        )
    },
    **{name: ArgumentSpec("object", name, name) for name in ("pd", "mr", "qp")},
    "addr": ArgumentSpec("quantity", default="buf.addr"),
    "length": ArgumentSpec("quantity", LENGTH, "buf.size"),
    "rounds": ArgumentSpec("quantity", default="100"),
    "memory": ArgumentSpec("object", "memory", "buf"),
    "buffer_fd": ArgumentSpec("object", "dmabuf", "dmabuf"),
    # Memory that must not be accessed if the operation is refused.
    "guarded": ArgumentSpec("object", "memory", NULL, nullable=True),
    "mw": ArgumentSpec("object", "window", "mw"),
    "second": ArgumentSpec("object", "qp", "second"),
    "posted": ArgumentSpec("object", "window", "posted"),
    # The queue pair whose peer is the requester. Without `via`, a new queue pair in `pd` with `qp_type` and `qp_access`
    # is used.
    "via": ArgumentSpec("object", "qp", NULL, nullable=True),
    # The PD of the shared receive queue, if it differs from the PD of the queue pair.
    "srq_pd": ArgumentSpec("object", "pd", NULL, nullable=True),
    "access": ArgumentSpec("flags", "ibv_access_flags"),
    "qp_access": ArgumentSpec("flags", "ibv_access_flags", QP_RIGHTS),
    # The send flags of the request in addition to SIGNALED.
    "with_flags": ArgumentSpec("flags", "ibv_send_flags", ""),
    "send_flags": ArgumentSpec("flags", "ibv_send_flags", "SIGNALED"),
    "operations": ArgumentSpec("flags", "ibv_qp_create_send_ops_flags"),
    "sg_list": ArgumentSpec("sges"),
    "qp_type": _words("qp_type", "RC", TRAFFIC_TYPES),
    "position": _words("position", "whole", POSITIONS),
    "contents": _words("contents", "made", CONTENTS),
    "poster": _words("poster", "post_send", POSTERS),
    "how": _words("how", "DONTNEED", DISCARDS),
    "pages": _words("pages", "present", PAGES),
    "child": _words("child", None, FORK_CHILDREN),
    "window": _words("window of another process", "none", ELSEWHERE_WINDOWS),
    "batch": _words("batch", None, BATCHES),
    "does": _words("second thread", None, ("discard", "deregister")),
}


def _given(text: str, **more: ArgumentSpec) -> dict[str, ArgumentSpec]:
    """Returns the arguments `more`, and then the arguments in a text. `NAME=DEFAULT` is an argument with a different
    default than in _ARGUMENTS; `_` in a default is a space."""
    arguments = dict(more)
    for name, sign, default in (word.partition("=") for word in text.split()):
        arguments_here = _ARGUMENTS[name]
        arguments[name] = (
            replace(arguments_here, default=default.replace("_", " ")) if sign else arguments_here
        )
    return arguments


# With `lkey`, the owner of the range posts the requests, and the range is local memory. With `rkey`, the peer posts the
# requests.
_IN_FLIGHT = {
    "qp": _ARGUMENTS["qp"],
    **_given("rkey= lkey= addr length", op=_words("operation", None, IN_FLIGHT_OPERATIONS)),
}
# `mr_lkey` and `mw_rkey` are keys that struct ibv_mr and struct ibv_mw contain during the call, in place of their own.
_BIND = {**verbs.VERBS["ibv_bind_mw"].arguments, **_given("mr_lkey= mw_rkey=")}
BEGIN_BIND, RESET_QP = "begin_bind", "reset_qp"
_RANGES = ("kept", "inherited", "either")
# The vendor's variant of a verb is a separate call.
_CALLABLE = {
    **verbs.VERBS,
    **{f"{name}_experimental": verb for name, verb in verbs.VENDOR_VERBS.items()},
}
CALLS: Mapping[str, Mapping[str, ArgumentSpec]] = {
    **{name: verb.arguments for name, verb in _CALLABLE.items()},
    "ibv_bind_mw": _BIND,
    # Calls that are not described in `verbs`: posted requests and traffic, which the verbs' manual pages mention, and
    # others.
    # Without `rkey`, ibv_inc_rkey computes the new key from the window's last key.
    "post_bind_mw": {**_BIND, **_given("rkey=")},
    "post_local_inv": _given("qp rkey=mw.rkey send_flags=SIGNALED"),
    # Posts one request, and compares the fields of its completion.
    "completion_fields": {
        **_given("qp mr addr length=64"),
        "mw": ArgumentSpec("object", "window", NULL, nullable=True),
        "rkey": ArgumentSpec("quantity", default="mr.rkey"),
        "op": _words("operation", None, COMPLETED_OPERATIONS),
    },
    # Posts RDMA READs by `rkey` and one by `ended`, and compares their completions, which are all there before the poll.
    "completions_in_turn": {
        **_given("qp addr"),
        "rkey": ArgumentSpec("quantity", default="mr.rkey"),
        "ended": ArgumentSpec("quantity"),
    },
    # Posts receives and requests of which the first fails, and compares the fields of all completions.
    "failures_in_turn": {
        **_given("mr addr"),
        "qp": ArgumentSpec("object", "qp", NULL, nullable=True),
        "qp_type": _words("qp_type", "RC", LIST_TYPES),
        "mw": ArgumentSpec("object", "window", NULL, nullable=True),
        "ended": ArgumentSpec("quantity"),
        "fails": _words("failing request", None, FAILING),
    },
    # Sends messages of different operations, and compares the completions of their receives, which are polled together.
    "receives_in_turn": {
        **_given("qp mr addr"),
        "rkey": ArgumentSpec("quantity", default="mr.rkey"),
    },
    # Posts a bind, with ibv_bind_mw or ibv_post_send as the type of `mw` wants it, and does not await its completion.
    BEGIN_BIND: _BIND,
    # Binds `mw` again and again, and uses the new key and the key before.
    "binds_in_turn": {**_BIND, **_given("rounds=257")},
    "post_send_with_inv": _given(
        "qp rkey=mw.rkey length=0",
    ),  # `length` is the size of the message in bytes
    "restore_rkey": _given("mw"),
    # Rule API-01: compares the suite's description of one item with the installed header and bindings.
    Kind.API.traits.call: {"item": _words("item", None, API_ITEMS)},
    # The points of a stored array of the table's model: all, or those without or with a fault.
    Kind.COMBINATIONS.traits.call: {
        "array": _words("array", None, ("pairs", "triples", "fours", "slice")),
        "points": _words("points", "all", ("all", "granted", "refused")),
    },
    # The kernel's query of a region (UVERBS_METHOD_QUERY_MR). The keys of `mr`, `iova` and `length` are expected.
    "query_mr": _given("mr iova=mr.addr length=mr.length"),
    # At the uverbs entry: a command with the handle of an object of a wrong type, or with a handle that no object has.
    "forged": {
        "command": _words("command", None, FORGED),
        "handle": _words("handle", None, ("nobodys", "pd", "mr", "mw", "qp", "ended")),
    },
    # Requests of the suite's exporter about a dma-buf of the kind `movable`.
    "move_buffer": _given("buffer_fd"),
    "revoke_buffer": _given("buffer_fd"),
    # Counts the bytes that were written to pages that the buffer has left.
    "left_pages": _given("buffer_fd"),
    "detached": _given("buffer_fd"),
    "fill": _given("memory"),
    "unmap": _given("memory"),
    "protect": _given("memory"),
    "move": _given("memory"),
    "discard": _given("memory addr= length= how"),  # without `addr` and `length`: the whole memory
    "fork": _given("memory child"),
    "join": _given("memory"),
    "inherited": _given(
        "addr length=1_page mappings=",
    ),  # `mappings`: how many mappings contain the range
    # Runs in a separate process. `kernel` is whether libibverbs can query the kernel's copy-on-fork support. Expected
    # are `status`, the result of ibv_is_fork_initialized; `registered`, whether a child inherits a registered page; and
    # `deregistered`, the same after the deregistration.
    "ibv_fork_init": {
        "setting": _words("setting", None, FORK_SETTINGS),
        "kernel": _words("kernel", None, ("asked", "not_asked")),
        "status": _words("status", None, ("DISABLED", "ENABLED", "UNNEEDED")),
        "registered": _words("range", "either", _RANGES),
        "deregistered": _words("range", "inherited", _RANGES),
    },
    "resident": _given("memory pages"),
    "receives_in_order": _given("lkey addr length=64 rounds pd"),
    # Four threads at the same time: one registers regions, one deregisters the regions, one binds `mw` on `qp`, and one
    # binds and invalidates `posted` on `second`.
    "four_threads": _given("addr length access pd mr qp mw second posted rounds"),
    # Registers memory and deregisters it again, while a second thread unmaps it or makes the kernel reclaim its pages.
    "deregister_beside": {
        **_given("access pd rounds"),
        "event": _words("event", None, ("unmap", "reclaim")),
        "region": _words("region", "explicit", ("explicit", "implicit")),
    },
    "regions_side_by_side": _given("addr length=64 count=100 access pd"),
    "immediates_in_order": _given("rkey addr length=64 rounds pd"),
    "atomics_in_order": _given(
        "rkey addr rounds pd",
        op=_words("operation", "ATOMIC_FETCH_AND_ADD", ATOMICS_IN_ORDER),
    ),
    # A list of requests in one call, of which one cannot be posted.
    "list_posted": {
        **_given("pd"),
        "qp_type": _words("qp_type", "RC", ("RC", "RC_SRQ")),
        "op": _words("operation", None, ("RDMA_WRITE", "RECV")),
        "fails": _words("fails", None, (FULL, ELEMENTS, TOO_LONG_INLINE)),
        # the size that ibv_modify_srq gives the shared receive queue before
        "resized": ArgumentSpec("quantity", default="0"),
    },
    "bind_and_send": _BIND,
    # A bind of a window of either type on a queue pair with `notifies`, after ibv_req_notify_cq; observes the events of
    # the completion channel after the bind.
    "bind_notified": {
        **_BIND,
        **_given("solicited_only=0"),
        "standing": _words("standing", "nothing", STANDING),
    },
    # The same for the receive of a message.
    "message_notified": {
        **_given("qp addr length=8 with_flags"),
        "rkey": ArgumentSpec("quantity", default="mr.rkey"),
        "op": _words("operation", None, MESSAGES),
        "asked": _words("asked", None, tuple(EVENTS_ASKED)),
        "standing": _words("standing", "nothing", STANDING),
        "receive": _words("receive", "filled", RECEIVES_NOTIFIED),
    },
    # The same for a request: an RDMA WRITE of no bytes, or one of the peer's memory with a key that is not 0.
    "request_notified": {
        **_given("qp addr rkey=0"),
        "asked": _words("asked", None, tuple(EVENTS_ASKED)),
        "standing": _words("standing", "nothing", STANDING),
    },
    # `at` is the address of the bytes in this process, if it differs from `addr`. The operation is executed at the
    # `position` in the range.
    "traffic": _given(
        "rkey addr length=8 at= position contents pd via qp_type qp_access with_flags poster",
        op=_words("operation", None, REMOTE_OPERATIONS),
    ),
    # An operation with a list of local elements. In more rounds than a queue has slots, each slot is used again.
    "list_traffic": {
        **_given("sg_list guarded pd rounds=1", op=_words("operation", None, LIST_OPERATIONS)),
        "qp_type": _words("qp_type", "RC", LIST_TYPES),
    },
    "post_receive": _given("qp sg_list"),
    "send_to_receive": _given(
        "qp memory length=8 behind=0",
    ),  # compares the bytes of `memory` from `behind` on
    "post_traffic": _IN_FLIGHT,
    # Another process creates the set-up of the case, posts the requests of post_traffic, and is killed.
    "killed_in_flight": _IN_FLIGHT,
    "await_traffic": _given("qp memory"),
    "await_statuses": _given("qp memory"),
    # Repeats the requests of post_traffic while a second thread discards the memory or deregisters the region.
    "traffic_beside": {**_IN_FLIGHT, **_given("does mr memory")},
    # A script of packets (model/script.py) on a queue pair whose peer is `wire`.
    WIRE: {**_given("qp"), "packets": ArgumentSpec("script")},
    "connect_qp": _given("qp"),
    "destroy_qp": _given("qp"),
    # Moves a queue pair with a wire peer through RESET to RTS.
    RESET_QP: _given("qp"),
    # Changes qp_access_flags of a queue pair in the state RTS (ibv_modify_qp).
    "modify_access": _given("qp access"),
    # Imports the region or its domain, and releases the import with ibv_unimport_mr or ibv_unimport_pd.
    "unimported": _given("mr pd", imports=_words("import", None, ("mr", "pd"))),
    # Another process registers its mapping of shared memory, and binds a window to it.
    "register_elsewhere": _given("memory access window"),
    # The other process accesses its memory by its own keys, each of which must work.
    "access_elsewhere": _given("memory"),
    "local_traffic": _given(
        "lkey addr length=8 at= position contents pd qp_type srq_pd with_flags poster",
        op=_words("operation", None, LOCAL_OPERATIONS),
    ),
    # Posts several requests in one batch. The requests address consecutive ranges of `length` bytes, from `addr` on.
    "ibv_wr_post": {
        **_given("batch rkey addr length=64 pd"),
        "qp_type": _words("qp_type", "RC", ("RC", "UC")),
    },
    # Creates a queue pair for these operations, and posts nothing to it.
    "create_qp_ex": _given("operations pd", type=_words("qp_type", None, ("RC", "UC", "UD"))),
}
# The subject of a folder of tables: a verb, the API as a whole, or a model of accesses.
VERBS = (
    *(name for name in CALLS if name.startswith("ibv_")),
    WIRE,
    *(kind.traits.folder for kind in BY_CALL.values()),
)
# The call of rows without `call`, in folders whose subject is not itself a call.
DEFAULT_CALLS = {WIRE: WIRE, **{kind.traits.folder: call for call, kind in BY_CALL.items()}}
# Values of `fd` that are not dma-bufs.
BAD_FDS = ("closed", "regular_file", "minus_one")
# The latest descriptor of ibv_dm_export_dmabuf_fd.
EXPORTED = "exported"
# The object that a call creates: its kind, and its name in later steps.
PRODUCTS: Mapping[str, tuple[str, str]] = {
    **{name: verb.product for name, verb in verbs.VERBS.items() if verb.product},
    "register_elsewhere": ("region of another process", "other_process"),
}
REGISTRATIONS = tuple(call for call, (kind, _) in PRODUCTS.items() if kind == "mr")
BINDS = ("ibv_bind_mw", "post_bind_mw")
# The calls that wait for requests, each with the call that posts them.
AWAITED = {
    "await_traffic": "post_traffic",
    "await_statuses": "post_traffic",
    "send_to_receive": "post_receive",
}
# The calls that judge what only devices with a capability define, each with this capability.
DEFINED_WITH = {"await_statuses": "iba_statuses"}


@dataclass(frozen=True)
class ExpectationSpec:
    """A further condition that `then` can contain."""

    words: tuple[str, ...]  # its values
    outcomes: tuple[str, ...] = ()  # the outcomes to which the condition applies; empty: all
    calls: tuple[str, ...] = ()  # the calls to which the condition applies; empty: all
    # a table can have a list of words, and any of these words fulfils the condition
    several: bool = False

    def applies_to(self, call: str) -> bool:
        return not self.calls or call in self.calls


ERRNO_NAMES = (*sorted(set(errno.errorcode.values()) | {"ENOTSUP", "EOPNOTSUPP"}), "any")
EXPECTATIONS: Mapping[str, ExpectationSpec] = {
    "errno": ExpectationSpec(ERRNO_NAMES, ("refused", "open", EITHER), several=True),
    "code": ExpectationSpec(
        verbs.ENUMS["ibv_rereg_mr_err_code"].short_names,
        ("refused",),
        ("ibv_rereg_mr",),
        True,
    ),
    "mr": ExpectationSpec(("as_asked",), ("success",), (*REGISTRATIONS, "ibv_rereg_mr")),
    "completion": ExpectationSpec(("none", "one"), calls=(*BINDS, "connect_qp", "post_local_inv")),
    "rkey": ExpectationSpec(("changed", "unchanged"), calls=BINDS),
    "opcode": ExpectationSpec(("as_posted",), ("success",), (*PROBES, *BINDS, "post_local_inv")),
    "invalidated": ExpectationSpec(("as_posted",), ("success",), ("post_send_with_inv",)),
    "because": ExpectationSpec(tuple(REASONS), ("refused",), (*PROBES, *BINDS, "send_to_receive")),
    "event": ExpectationSpec(("QP_ACCESS_ERR",), ("refused",), ("traffic",)),
    # Other rows judge the refusal. Without the refusal, this row has nothing to judge.
    "otherwise": ExpectationSpec(("unreachable",), ("refused",)),
    # The operation must succeed and must not change a byte.
    "moved": ExpectationSpec(("nothing",), ("success",), PROBES),
    # For a step after the judged call: the step is executed only if the judged call had this outcome.
    "after": ExpectationSpec(("success", "refused")),
}
# Names that objects of a table cannot have, because these names have a different meaning in steps and calls.
RESERVED = (NULL, INVENTED, EXPORTED, *BAD_FDS, *(name for _, name in PRODUCTS.values()))
