"""Verdicts on hand-made observations, by the requirements of the documents."""

import copy
import re
from pathlib import Path
from typing import Any, Unpack

import pytest

from conformance.judging import judge
from conformance.judging.answering_layer import answering_layer
from conformance.judging.circumstances import located
from conformance.judging.kernel_alarms import crash_location, kernel_alarm
from conformance.model.case import Case
from conformance.model.fault import ON_DEMAND as OF_DEMAND
from conformance.model.fault import OWN_ADDRESSES, Fault, FaultKind
from conformance.model.observation import NOT_AWAITED, AskedRange, KernelEvidence, Observation
from conformance.model.verdict import Verdict
from samples import case

REGISTER = case("{rules: [REG-01], when: {access: [LOCAL_WRITE]}, then: {outcome: success, mr: as_asked}}")
REFUSE = case("{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: refused}")
REFUSE_EINVAL = case(
    "{rules: [REG-15], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: [EINVAL, EOPNOTSUPP]}}"
)
REFUSE_ANY = case("{rules: [REG-02], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: any}}")
OPEN = case("{rules: [REG-23], when: {length: 0, access: []}, then: open}")
ON_DEMAND = case("{rules: [REG-17], needs: [odp], when: {access: [ON_DEMAND]}, then: {outcome: success, mr: as_asked}}")
DEREGISTER = case("{rules: [DEREG-01], given: {mrs: {mr: {access: []}}}, when: {mr: mr}, then: success}", "dereg_mr")
WINDOW = "memory: {buf: {kind: anonymous, size: 1 page}}, qps: {qp: {type: RC}}, windows: {mw: {type: 1}}"
REGION = "mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}"
ONE_REGION = "given: {mrs: {mr: {access: []}}}"
DEREG_REFUSED = case(
    f"{{rules: [DEREG-03], {ONE_REGION}, when: {{mr: mr, handle: invented}}, then: {{outcome: refused, errno: any}}, "
    "afterwards: [{call: ibv_dereg_mr, mr: mr, then: success}]}",
    "dereg_mr",
)
ONLY_IF_REFUSED = case(
    f"{{rules: [DEREG-03], {ONE_REGION}, when: {{mr: mr, handle: invented}}, then: open, "
    "afterwards: [{call: ibv_dereg_mr, mr: mr, then: {outcome: success, after: refused}}]}",
    "dereg_mr",
)
REREG_REFUSED = case(
    f"{{rules: [REREG-06], {ONE_REGION}, when: {{flags: [CHANGE_ACCESS], access: [REMOTE_WRITE]}}, "
    "then: {outcome: refused, code: ERR_INPUT}}",
    "rereg_mr",
)
AGAIN = case(
    "{rules: [REG-02], when: {access: [REMOTE_WRITE]}, then: {outcome: refused, errno: any}, "
    "afterwards: [{call: ibv_reg_mr, access: [REMOTE_WRITE], then: {outcome: refused, errno: any}}]}"
)
OPEN_THEN_DEREG = case(
    "{rules: [REG-23], when: {length: 0, access: []}, then: open, "
    "afterwards: [{call: ibv_dereg_mr, mr: new, then: success}]}"
)
ATOMIC = case(
    "{rules: [REG-07], call: traffic, given: {mrs: {mr: {access: [LOCAL_WRITE, REMOTE_ATOMIC]}}}, "
    "when: {op: ATOMIC_FETCH_AND_ADD, rkey: mr.rkey, addr: buf}, then: success}"
)
RECEIVE = case(
    "{rules: [REG-04], when: {access: [LOCAL_WRITE]}, then: success, "
    "afterwards: [{call: local_traffic, op: RECV, lkey: new.lkey, addr: buf, length: 200, qp_type: UD, then: success}]}"
)
STATUS = case(
    "{rules: [STAT-01], call: traffic, given: {mrs: {mr: {access: [LOCAL_WRITE]}}}, "
    "when: {op: RDMA_WRITE, rkey: mr.rkey, addr: buf}, then: {outcome: refused, because: memory}}"
)
BIND_STATUS = case(
    "{rules: [STAT-06], call: ibv_bind_mw, when: {access: [REMOTE_READ]}, then: {outcome: refused, because: memory}, "
    "given: {mrs: {mr: {access: [LOCAL_WRITE]}}, qps: {qp: {type: RC}}, windows: {mw: {type: 1}}}}"
)


def traffic(expected: str, op: str = "RDMA_WRITE") -> Case:
    """Returns a case of a region and of a peer's operation on it, by default a write."""
    later = f"{{call: traffic, op: {op}, rkey: new.rkey, addr: buf, then: {expected}}}"
    return case(f"{{rules: [REG-01], when: {{access: [LOCAL_WRITE]}}, then: success, afterwards: [{later}]}}")


def bind(then: str, more: str = "") -> Case:
    return case(
        f"{{rules: [BIND-22], given: {{{WINDOW}, {REGION}}}, when: {{access: []{more}}}, then: {then}}}", "bind_mw"
    )


BIND, BIND_QUIETLY = (
    bind("{outcome: success, rkey: changed}"),
    bind("{outcome: success, completion: none}", ", send_flags: []"),
)


def invalidation(then: str) -> Case:
    given = "given: {qps: {qp: {type: RC}}}, call: post_send_with_inv, when: {rkey: 7}"
    return case(f"{{rules: [BIND-19], {given}, then: {then}}}", "bind_mw")


def null(errno: str = "EINVAL", /, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a registration that failed."""
    return {"rc": None, "returned": "NULL", "errno": errno, "layer": "kernel", **more}


def region(fields: dict[str, Any] | None = None, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a successful registration; `fields` has the fields of the MR that differ from the
    request."""
    asked: AskedRange = {"addr": 0x7000, "length": 4096}
    mr: Any = {**asked, "pd_is_the_asked": True, "context_is_the_pds": True, "handle": 1, "lkey": 2, "rkey": 3}
    seen: Observation = {"rc": None, "returned": "MR", "errno": "", "layer": "kernel", "mr": mr | (fields or {})}
    return {**seen, "asked": asked, **more}


def status(code: str, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a call that returns an int: 0, the errno of a name, or a negative number."""
    return {"rc": 0 if code == "0" else 22, "returned": code, "errno": "", "layer": "kernel", **more}


def deregistered(code: str, errno: str = "", then: str = "0") -> Observation:
    """Returns the observation of a refused deregistration and of the later, successful deregistration."""
    return {**status(code, afterwards=[status(then)]), "errno": errno}


def bound(*statuses: str, after: int = 2, **more: Unpack[Observation]) -> Observation:
    """Returns the observation of a posted bind, with the statuses of its completions."""
    return {**status("0", wc=list(statuses), rkey={"before": 1, "after": after}), **more}


def invalidated(output: int | None, responder: str = "SUCCESS") -> Observation:
    return status("0", wc=["SUCCESS"], responder_wc=[responder], invalidated=[output, 7])


def moved(
    how: str, wc: str, *changed: tuple[int, int], step: Observation | None = None, unchanged: bool = False
) -> Observation:
    """Returns the observation of a region and of a peer's write to it; `changed` has the changed bytes as (place,
    size)."""
    found = changed if changed or unchanged or how == "nothing" else ((0, 8),)
    seen = status("0", wc=[wc], moved=how, changed=[list(each) for each in found])
    return region(afterwards=[{**seen, **(step or {})}])


def done(**step: Unpack[Observation]) -> Observation:
    """Returns the observation of a request that has moved all bytes, with further keys."""
    return moved("all", "SUCCESS", step=step)


def refusal(status: str, state: str = "ERR", kind: str = "RC") -> Observation:
    return moved("nothing", status, step={"side": "remote", "qp_type": kind, "peer_wc": [], "state": state})


def notified(imm: int | None) -> Observation:
    return moved("nothing", "REM_ACCESS_ERR", step={"side": "remote", "imm": [imm, 7]})


def received(kind: str, *changed: tuple[int, int]) -> Observation:
    seen = status("0", wc=["SUCCESS"], qp_type=kind, side="receive", byte_len=[200, 200], moved="all")
    return region(afterwards=[{**seen, "changed": [list(each) for each in changed]}])


def requested(status: str | None, how: str = "nothing", step: Observation | None = None) -> Observation:
    """Returns the observation of a peer's request that is the judged call itself."""
    seen = Observation(rc=0, returned="0", errno="", layer="device", peer_wc=[], side="remote", qp_type="RC")
    seen |= {"state": "ERR", "wc": [status] if status else [], "moved": how, "changed": [[0, 8]] * (how == "all")}
    return {**seen, **(step or {})}


def left(seen: Observation) -> Observation:
    return {**seen, "left_behind": ["MR new: EBUSY"]}


def row(name: str, of: Case, seen: Observation, verdict: str, *words: str, lacking: str = "") -> Any:
    """A row of JUDGED: the judgement of the observation must have this verdict and these words."""
    return pytest.param(of, [lacking] if lacking else [], seen, verdict, words, id=name)


PASS, FAIL, HANG = Verdict.PASS, Verdict.FAIL, Verdict.HANG
UNSUPPORTED, UNREACHABLE, BROKEN = Verdict.UNSUPPORTED, Verdict.UNREACHABLE, Verdict.BROKEN
ACCESS, INV_REQ, ATOMICS = "REM_ACCESS_ERR", "REM_INV_REQ_ERR", "atomics"
GRANTED, REFUSED = traffic("success"), traffic("refused")
OF_MEMORY, OF_A_QP = (traffic(f"{{outcome: refused, because: {each}}}") for each in ("memory", "queue_pair"))
READ, READ_REFUSED = traffic("success", "RDMA_READ"), traffic("refused", "RDMA_READ")
FLUSH = traffic("refused", "FLUSH_GLOBAL")
OPCODE = traffic("{outcome: success, opcode: as_posted}")
SETUP_FAILED = Observation(setup_failed="registering the MR 'mr' was refused with EOPNOTSUPP", errno="EOPNOTSUPP")
DEAD = moved("nothing", "WR_FLUSH_ERR", step={"state_before": "ERR"})
QUIET = ", send_flags: []"
ONE = "completion: one}"
NOTED = invalidation("{outcome: success, invalidated: as_posted}")
JUDGED = [
    # Codes
    row("as documented", REGISTER, region(), PASS),
    row("a refusal as documented", REFUSE, null(), PASS),
    row("an int as documented", DEREGISTER, status("0"), PASS),
    row("a valid call refused", REGISTER, null("EFAULT"), FAIL, "should succeed", "EFAULT"),
    row("an invalid call accepted", REFUSE, region(), FAIL, "access=REMOTE_WRITE", "should fail, returned an MR"),
    row("an allowed errno", REFUSE_EINVAL, null("EINVAL"), PASS),
    row("another allowed errno", REFUSE_EINVAL, null("EOPNOTSUPP"), PASS),
    row("an errno not allowed", REFUSE_EINVAL, null("EFAULT"), FAIL, "EINVAL or EOPNOTSUPP", "EFAULT"),
    row("no errno where one is promised", REFUSE_ANY, null(""), FAIL),
    row("no errno where none is promised", REFUSE, null(""), PASS),
    row("any errno", REFUSE_ANY, null("EPERM"), PASS),
    row("an int without an errno", DEREG_REFUSED, deregistered("-1"), FAIL, "-1"),
    row("a negative errno", REFUSE_ANY, null("errno -22"), FAIL, "no value of errno"),
    row("not errno", DEREG_REFUSED, deregistered("EPERM", "EBUSY"), FAIL, "EPERM, and the value of errno is EBUSY"),
    row("code and errno are equal", DEREG_REFUSED, deregistered("EBUSY", "EBUSY"), PASS),
    row("the same errno again", AGAIN, null("EINVAL", afterwards=[null("EINVAL")]), PASS),
    row("another one", AGAIN, null("EINVAL", afterwards=[null("EFAULT")]), FAIL, "EFAULT when it was called again"),
    row("a later step", DEREG_REFUSED, deregistered("EINVAL"), PASS),
    row("a later step that fails", DEREG_REFUSED, deregistered("EINVAL", then="EBUSY"), FAIL, "^afterwards "),
    row("an enumerated code", REREG_REFUSED, status("ERR_INPUT", enumerated=True), PASS),
    row("another code", REREG_REFUSED, status("ERR_CMD", enumerated=True), FAIL, "with ERR_INPUT, failed with ERR_CMD"),
    # Fields of the region
    row("another addr", REGISTER, region({"addr": 0x8000}), FAIL, "addr 0x8000 instead of 0x7000"),
    row("another length", REGISTER, region({"length": 8192}), FAIL, "length 0x2000 instead of 0x1000"),
    row("another pd", REGISTER, region({"pd_is_the_asked": False}), FAIL, "pd"),
    row("another context", REGISTER, region({"context_is_the_pds": False}), FAIL, "context"),
    row(
        "fields that are not judged",
        RECEIVE,
        region({"addr": 1}, afterwards=received("UD", (0, 200))["afterwards"]),
        PASS,
    ),
    row("keys and handle are zero", REGISTER, region({"lkey": 0, "rkey": 0, "handle": 0}), FAIL),
    row("keys are zero", REGISTER, region({"lkey": 0, "rkey": 0}), PASS),
    # Binds and invalidations
    row("a bind", BIND, bound("SUCCESS"), PASS),
    row("a bind that never completes", BIND, bound(), HANG),
    row("a bind that completes twice", BIND, bound("SUCCESS", "SUCCESS"), FAIL),
    row("a bind that fails", BIND, bound("MW_BIND_ERR"), FAIL),
    row("a bind that keeps the key", BIND, bound("SUCCESS", after=1), FAIL),
    row("a bind that is refused", BIND, status("EINVAL"), FAIL),
    row("a completion of another request", BIND, bound("SUCCESS", wr_id_matches=False), FAIL, "wr_id"),
    row("no completion requested", BIND_QUIETLY, bound(), PASS),
    row("a completion not requested", BIND_QUIETLY, bound("SUCCESS"), FAIL, "asked for no completion"),
    row("a bind with an error state", BIND, bound("SUCCESS", state="ERR"), FAIL, "and its queue pair is in state ERR$"),
    row("a refused bind's own wr_id", bind("refused"), bound("MW_BIND_ERR", wr_id_matches=True), PASS),
    row(
        "a refused bind, another wr_id",
        bind("refused"),
        bound("MW_BIND_ERR", wr_id_matches=False),
        FAIL,
        "another wr_id",
    ),
    row("a refused bind without completion", bind("refused"), bound(wr_id_matches=False), HANG),
    *(
        row(f"one completion, {outcome}: {name}", bind(f"{{outcome: {outcome}, {ONE}", QUIET), seen, verdict)
        for outcome in ("open", "refused")
        for name, seen, verdict in (
            ("flushed", bound("WR_FLUSH_ERR"), PASS),
            ("not posted", bound() | status("EINVAL"), PASS),
            ("none", bound(), HANG),
            ("two", bound("WR_FLUSH_ERR", "WR_FLUSH_ERR"), FAIL),
        )
    ),
    row("the key of an invalidation", NOTED, invalidated(7), PASS),
    row("no key of an invalidation", NOTED, invalidated(None), FAIL),
    row("another key of an invalidation", NOTED, invalidated(8), FAIL),
    row("no key, not judged", invalidation("success"), invalidated(None), PASS),
    row("another key, not judged", invalidation("success"), invalidated(8), PASS),
    row("an invalidation refused at its receiver", invalidation("refused"), invalidated(7, INV_REQ), PASS),
    row("an invalid invalidation carried out", invalidation("refused"), invalidated(7), FAIL),
    # Traffic: the completion and the bytes
    row("granted", GRANTED, done(), PASS),
    row("granted and refused", GRANTED, moved("nothing", ACCESS), FAIL),
    row("refused", REFUSED, moved("nothing", ACCESS), PASS),
    row("refused and granted", REFUSED, done(), FAIL),
    row("refused and moved", REFUSED, moved("all", ACCESS), FAIL),
    row("refused and moved in part", REFUSED, moved("part", ACCESS), FAIL),
    row("granted in part", GRANTED, moved("part", "SUCCESS"), FAIL),
    row("granted and nothing moved", GRANTED, moved("nothing", "SUCCESS"), FAIL),
    row("refused with SUCCESS", REFUSED, moved("nothing", "SUCCESS"), FAIL),
    row("open and refused", traffic("open"), moved("nothing", ACCESS), PASS),
    row("an open request moved in part", traffic("open"), moved("part", "SUCCESS"), FAIL),
    row("bytes before the range", GRANTED, moved("all", "SUCCESS", (-8, 8)), FAIL, "remote bytes changed"),
    row("bytes elsewhere too", GRANTED, moved("all", "SUCCESS", (0, 8), (64, 1)), FAIL, "remote bytes changed"),
    row("bytes changed by a refused request", REFUSED, moved("nothing", ACCESS, (0, 8)), FAIL, "remote bytes changed"),
    row("a datagram", RECEIVE, received("UD", (0, 200)), PASS),
    row("a header's byte unchanged", RECEIVE, received("UD", (0, 24), (25, 175)), PASS),
    row("a header's bytes unchanged", RECEIVE, received("UD", (0, 12), (20, 19), (40, 160)), PASS),
    row("a header's beginning unchanged", RECEIVE, received("UD", (20, 180)), PASS),
    row("bytes after a datagram", RECEIVE, received("UD", (0, 200), (264, 1)), FAIL),
    row("a datagram's bytes unchanged", RECEIVE, received("UD", (0, 50), (60, 140)), FAIL),
    row("bytes before a datagram", RECEIVE, received("UD", (-8, 208)), FAIL),
    row("a byte unchanged on RC", RECEIVE, received("RC", (0, 24), (25, 175)), FAIL),
    row("no completion at the receiver", REFUSED, notified(None), PASS),
    row("a receiver told", REFUSED, notified(7), FAIL, "the receiver was notified"),
    row("another length reported", GRANTED, done(byte_len=[8, 9]), FAIL, "was told 8"),
    row("other data reported", GRANTED, done(imm=[8, 9]), FAIL, "the receiver was told 8"),
    row("a peer's error", GRANTED, done(peer_wc=["LOC_LEN_ERR"]), FAIL, "at the other side with LOC_LEN_ERR"),
    row("data after its completion", GRANTED, done(late=True), FAIL, "before its data was there"),
    row("an opcode that is not judged", GRANTED, done(opcode=["RDMA_READ", "RDMA_WRITE"]), PASS),
    row("another opcode", OPCODE, done(opcode=["RDMA_READ", "RDMA_WRITE"]), FAIL, "RDMA_READ, not RDMA_WRITE"),
    row("no opcode", OPCODE, done(), PASS),
    row("a FLUSH", FLUSH, moved("all", "SUCCESS", unchanged=True), FAIL, "that it may not: a FLUSH moves no bytes$"),
    row("flushed", REFUSED, moved("nothing", "WR_FLUSH_ERR"), PASS),
    row("dead before", REFUSED, DEAD, BROKEN, "WR_FLUSH_ERR, but its queue pair was already in the error state$"),
    row("granted, dead before", GRANTED, DEAD, FAIL),
    row("a scribble", READ_REFUSED, moved("other", ACCESS, unchanged=True), PASS, "none of them are the responder's"),
    row("a refused READ that moves a part", READ_REFUSED, moved("part", ACCESS, unchanged=True), FAIL),
    row("another content", READ, moved("other", "SUCCESS", unchanged=True), FAIL, "something else has arrived"),
    # Statuses and states
    row("the status of memory", OF_MEMORY, refusal(ACCESS), PASS),
    row("not memory's", OF_MEMORY, refusal(INV_REQ), FAIL, "refused with REM_ACCESS_ERR"),
    row("a QP without an error state", OF_MEMORY, refusal(ACCESS, "RTS"), FAIL, "in state RTS instead of ERR"),
    row("the status of a QP", OF_A_QP, refusal(INV_REQ), PASS),
    row("not a QP's", OF_A_QP, refusal(ACCESS), FAIL, "refused with REM_INV_REQ_ERR"),
    row("UC tells nothing", OF_MEMORY, refusal("SUCCESS", "RTS", "UC"), PASS),
    row("a status", STATUS, requested(ACCESS), PASS),
    row("another status", STATUS, requested("WR_FLUSH_ERR"), FAIL, "completed with WR_FLUSH_ERR"),
    row("no status", STATUS, requested(None), HANG, "gave no completion"),
    row("a status, a violation of REG-05", STATUS, requested(ACCESS, "all"), PASS),
    row("a status of a granted request", STATUS, requested("SUCCESS", "all"), UNREACHABLE, "was not refused"),
    row("not posted", STATUS, requested(None, step={"rc": 22, "returned": "EINVAL"}), UNREACHABLE, "it was posted"),
    row("the status of a bind", BIND_STATUS, bound("MW_BIND_ERR", wr_id_matches=True), PASS),
    row("a bind that is flushed", BIND_STATUS, bound("WR_FLUSH_ERR", wr_id_matches=True), FAIL),
    row("a refusal without a control", REFUSE, null("EINVAL", no_control="EPERM"), UNREACHABLE, "EPERM$"),
    row("a bind that is granted", BIND_STATUS, bound("SUCCESS", wr_id_matches=True), UNREACHABLE),
    # Open outcomes, undeclared capabilities, set-ups that failed
    row("out of reach", REGISTER, {"unreachable": "no such call"}, UNREACHABLE, "^no such call$"),
    row("open, refused", OPEN, null(), PASS, "open"),
    row("open, accepted", OPEN, region(), PASS, "open"),
    row("a step after an open call", OPEN_THEN_DEREG, region(afterwards=[status("0")]), PASS),
    row("a wrong step after an open call", OPEN_THEN_DEREG, region(afterwards=[status("EBUSY")]), FAIL),
    row("no step recorded after an open call", OPEN_THEN_DEREG, region(), BROKEN, "^there is no observation"),
    row("a step not recorded", AGAIN, null("EINVAL"), BROKEN, "^there is no observation of ibv_reg_mr"),
    row("a step not made", ONLY_IF_REFUSED, status("0", afterwards=[status("not made", not_made=True)]), PASS),
    row("a wrong step of this outcome", ONLY_IF_REFUSED, deregistered("EINVAL", then="EBUSY"), FAIL),
    row("undeclared, with a step", ONLY_IF_REFUSED, deregistered("EINVAL"), UNSUPPORTED, lacking="odp"),
    row("undeclared, refused", ON_DEMAND, null("EOPNOTSUPP"), UNSUPPORTED, "odp", "EOPNOTSUPP", lacking="odp"),
    row("undeclared, works", ON_DEMAND, region(), PASS, "does not declare odp", lacking="odp"),
    row("undeclared, works wrongly", ON_DEMAND, region({"length": 1}), FAIL, lacking="odp"),
    row("declared, refused", ON_DEMAND, null("EOPNOTSUPP"), FAIL),
    row("undeclared, not set up", ON_DEMAND, SETUP_FAILED, UNSUPPORTED, lacking="odp"),
    row("not set up", DEREGISTER, SETUP_FAILED, BROKEN, "registering the MR"),
    row("undeclared, no effect", GRANTED, moved("nothing", INV_REQ), UNSUPPORTED, "accepted although", lacking=ATOMICS),
    row("declared, accepted without effect", GRANTED, moved("nothing", INV_REQ), FAIL),
    row("undeclared, a part moved", GRANTED, moved("part", "SUCCESS"), FAIL, lacking=ATOMICS),
    row("undeclared, bytes elsewhere", GRANTED, moved("nothing", INV_REQ, (-8, 8)), FAIL, lacking=ATOMICS),
    row("undeclared, granted despite the rule", REFUSED, done(), FAIL, lacking=ATOMICS),
    row("undeclared, moved", ATOMIC, requested(ACCESS, "all"), FAIL, lacking=ATOMICS),
    row("undeclared, before", ATOMIC, requested(ACCESS, step={"changed": [[-8, 8]]}), FAIL, lacking=ATOMICS),
    row("undeclared, a part", ATOMIC, requested("SUCCESS", "part", {"changed": [[0, 4]]}), FAIL, lacking=ATOMICS),
    row("undeclared operation refused", ATOMIC, requested(INV_REQ), UNSUPPORTED, lacking=ATOMICS),
    # A leak fails the case whatever the call did, and does not hide another failure
    *(
        row(f"left behind: {name}", of, left(seen), FAIL, "MR new", lacking=lacking)
        for name, of, lacking, seen in (
            ("accepted", REGISTER, "", region()),
            ("refused", REFUSE, "", null()),
            ("open", OPEN, "", null()),
            ("undeclared", ON_DEMAND, "odp", null("EOPNOTSUPP")),
            ("not set up", ON_DEMAND, "odp", SETUP_FAILED),
        )
    ),
    row("left behind by a failure", REFUSE, region(left_behind=["PD pd: EBUSY"]), FAIL, "should fail"),
]


@pytest.mark.parametrize(("of", "undeclared", "seen", "verdict", "words"), JUDGED)
def test_a_verdict_and_its_words(
    of: Case, undeclared: list[str], seen: Observation, verdict: str, words: tuple[str, ...]
) -> None:
    """The words must be in the reason or, for a PASS, in a note; `^` and `$` mark its beginning and end."""
    kernel: KernelEvidence = {"taint": 0, "log": ["a line"]}
    before = copy.deepcopy((undeclared, seen, kernel))
    judgement = judge(of, undeclared, seen, kernel)
    assert judgement.verdict == verdict, judgement.reason
    texts = [judgement.reason, *(judgement.notes if verdict in (PASS, UNSUPPORTED) else ())]
    for each in words:
        pattern = re.escape(each.strip("^$ "))
        pattern = "^" * each.startswith("^") + pattern + "$" * each.endswith("$")
        assert any(re.search(pattern, text) for text in texts), (each, texts)
    assert "\n" not in judgement.reason
    assert judge(of, undeclared, seen, kernel) == judgement, "judging is a function of what was seen"
    assert (undeclared, seen, kernel) == before


@pytest.mark.parametrize(
    ("returned", "kind"),
    [("changed", FaultKind.MOVED), ("leaked", FaultKind.MOVED), ("no completion", FaultKind.REFUSED)],
)
def test_bytes_that_move_by_an_ended_key_are_a_fault_of_the_request_in_flight(returned: str, kind: FaultKind) -> None:
    window = "windows: {mw: {type: 1, bound: {access: [REMOTE_READ]}}}"
    bound_window = f"given: {{{REGION}, {window}, qps: {{qp: {{type: RC}}}}}}"
    in_flight = case(
        f"{{rules: [BIND-16], {bound_window}, call: ibv_dealloc_mw, when: {{mw: mw}}, then: success, "
        "before: [{call: post_traffic, op: RDMA_READ, rkey: mw.rkey, addr: buf}], "
        "afterwards: [{call: await_traffic, memory: buf, then: success}]}",
        "bind_mw",
    )
    fault = judge(in_flight, [], status("0", afterwards=[status(returned)])).fault
    assert fault is not None
    assert (fault.kind, fault.operation, fault.key, fault.dead) == (kind, "RDMA_READ", "window", True)


@pytest.mark.parametrize(
    "kernel",
    [
        {"taint": 512, "taint_before": 0, "log": []},
        {"taint": 0, "log": ["all is well", "WARNING: CPU: 0 PID: 7 at drivers/infiniband/core/umem.c:1"]},
        {"taint": 0, "log": ["BUG: kernel NULL pointer dereference, address: 0000000000000008"]},
        {"taint": 0, "log": ["refcount_t: underflow; use-after-free."]},
        {"taint": 0, "log": ["KASAN: slab-use-after-free in rxe_mr_cleanup+0x1/0x2 [rdma_rxe]"]},
    ],
)
def test_a_kernel_that_complains_fails_the_case(kernel: KernelEvidence) -> None:
    judgement = judge(REGISTER, [], region(), kernel)
    assert judgement.verdict == Verdict.FAIL
    assert "kernel" in judgement.reason


WARNING = "WARNING: CPU: 0 PID: 7 at mm/page_alloc.c:4826 __alloc_pages+0x1/0x2"
LOADED = "Modules linked in: siw rdma_rxe mlx5_ib ib_uverbs ib_core"


@pytest.mark.parametrize(
    ("log", "about"),
    [
        ([WARNING, LOADED, "Call Trace:", " siw_umem_get+0x3f/0x2b0 [siw]"], True),
        ([WARNING, LOADED, "Call Trace:", " ext4_writepages+0x3f/0x2b0"], False),
        (["infiniband siw0: set active", WARNING, LOADED], False),
        ([WARNING, LOADED, "BUG: unable to handle page fault", "RIP: 0010:ib_umem_get+0x1/0x2 [ib_uverbs]"], True),
        (["siw: loading out-of-tree module taints kernel."], True),
        (["nvidia: loading out-of-tree module taints kernel."], False),
        ([], False),
    ],
)
def test_on_a_shared_kernel_only_alarms_that_name_the_device_count(log: list[str], about: bool) -> None:
    kernel: KernelEvidence = {"taint": 512, "taint_before": 0, "log": log, "suspects": ["ib_core", "ib_uverbs", "siw"]}
    seen: Observation = {"rc": None, "returned": "NULL", "errno": "EINVAL", "layer": "kernel"}
    judgement = judge(case("{rules: [REG-01], when: {access: []}, then: refused}"), [], seen, kernel)
    assert judgement.verdict == (Verdict.FAIL if about else Verdict.PASS)
    assert about or "; no line names the device" in judgement.notes[0]


@pytest.mark.parametrize(
    ("suspect", "function", "named"),
    [
        ("mana", "mana_ib_reg_user_mr+0x3f/0x2b0 [mana_ib]", True),
        ("mana", "manage_workers+0x3f/0x2b0", False),
        ("efa", "efault_handler+0x3f/0x2b0", False),
        ("hns", "hns3_clean_tx_ring+0x3f/0x2b0 [hns3]", False),
        ("hns", "hns_roce_reg_user_mr+0x3f/0x2b0 [hns_roce_hw_v2]", True),
        ("mlx5_1", "mlx5_10: something", False),
    ],
)
def test_a_suspect_is_named_by_its_whole_name(suspect: str, function: str, named: bool) -> None:
    log = [WARNING, "Call Trace:", f" {function}"]
    assert bool(kernel_alarm({"taint": 0, "log": log, "suspects": ["ib_core", suspect]})) is named


@pytest.mark.parametrize(
    "kernel",
    [
        {},
        {"taint": 0},
        {"taint": 512, "log": ["rdma_rxe: loaded"]},
        {"taint": 512, "taint_before": 512, "log": []},
        {"taint": 0, "log": ["infiniband rxe0: set active"]},
    ],
)
def test_a_kernel_that_was_tainted_before_or_only_talks_changes_no_verdict(kernel: KernelEvidence) -> None:
    assert judge(REGISTER, [], region(), kernel).verdict == Verdict.PASS


def test_at_the_kernel_a_line_names_the_kernels_command() -> None:
    rows = "{rules: [REREG-11], entries: [uverbs], given: {mrs: {mr: {access: []}}}, when: {flags: [CHANGE_ACCESS]}, "
    at_kernel = case(rows + "then: success, afterwards: [{call: ibv_dereg_mr, mr: mr, then: success}]}", "rereg_mr")
    assert str(at_kernel.when).startswith("uverbs REREG_MR(mr=mr, flags=CHANGE_ACCESS")
    assert str(at_kernel.afterwards[0]) == "uverbs DEREG_MR(mr=mr)"
    assert str(REFUSE.when).startswith("ibv_reg_mr(")


def iova(hca_va: str, more: str = "addr: buf + 100") -> Case:
    return case(f"{{rules: [IOVA-02], when: {{{more}, hca_va: {hca_va}, access: []}}, then: success}}", "reg_mr_iova")


@pytest.mark.parametrize(
    ("of", "code", "layer"),
    [
        (iova("4 GiB + 200"), "EINVAL", "kernel core"),
        (iova("0"), "EINVAL", "kernel core"),
        (iova("4 GiB + 100"), "EINVAL", "kernel"),
        # The offsets differ only within a page of 64 KiB, so that the layer is unknown.
        (iova("4 GiB + 4196"), "EINVAL", "kernel"),
        (iova("3 pages + 100"), "EINVAL", "kernel"),
        (iova("3 pages + 99"), "EINVAL", "kernel core"),
        (iova("1 hugepage + 64 KiB + 99"), "EINVAL", "kernel core"),
        (iova("4 GiB + 200"), "ENOMEM", "kernel"),
        (iova("4 GiB + 200", "addr: buf.end - 8"), "EINVAL", "kernel"),
        (REFUSE, "EINVAL", "kernel core"),
        (REFUSE, "EPERM", "kernel"),
        (REGISTER, "EINVAL", "kernel"),
    ],
)
def test_checks_of_the_kernel_core_are_attributed_to_it(of: Case, code: str, layer: str) -> None:
    seen = Observation(rc=None, returned="NULL", errno=code, layer="kernel")
    assert answering_layer(of, seen) == layer
    judgement = judge(of, [], seen)
    says = judgement.reason.endswith("the kernel's RDMA core answered, whatever the driver")
    assert says == (layer == "kernel core" and judgement.verdict == Verdict.FAIL)
    assert answering_layer(of, {**seen, "layer": "provider"}) == "provider"


ADVICE = (
    "{rules: [ADV-09], %s, then: open, when: {advice: PREFETCH, sg_list: [{addr: buf, length: 8, lkey: mr.lkey}], %s}}"
)
REREG = "{rules: [REREG-06], %s, when: {flags: [%s], access: [%s]}, then: open}"


@pytest.mark.parametrize(
    ("row", "more", "core"),
    [
        (ADVICE, ("pd_handle: invented",), "ENOENT"),
        (ADVICE, ("flags: [bit 3]",), "EINVAL"),
        (ADVICE, ("flags: [FLUSH]",), ""),
        (REREG, ("CHANGE_ACCESS", "REMOTE_WRITE"), "EINVAL"),
        (REREG, ("CHANGE_ACCESS", "REMOTE_WRITE, LOCAL_WRITE"), ""),
        (REREG, ("CHANGE_PD", "REMOTE_WRITE"), ""),
    ],
)
def test_only_the_core_refuses_these_advices_and_reregistrations(row: str, more: tuple[str, ...], core: str) -> None:
    of = case(row % (ONE_REGION, *more), "advise_mr" if row is ADVICE else "rereg_mr")
    layers = {code: answering_layer(of, {**status(code), "errno": code}) for code in ("EINVAL", "ENOENT", "EPERM")}
    assert layers == {code: "kernel core" if code == core else "kernel" for code in layers}


BOUND = "qps: {qp: {type: RC}}, windows: {mw: {type: 1, bound: {addr: buf + 64, length: 256, access: [REMOTE_WRITE]}}}"


@pytest.mark.parametrize(
    ("given", "key", "place", "outside", "kinds"),
    [
        ("length: 1 page", "mr", "addr: buf + 1 page - 8, length: 8", False, ()),
        ("length: 1 page", "mr", "addr: buf + 1 page - 8, length: 9", True, ()),
        ("length: 1 page", "mr", "addr: buf - 1, length: 1", True, ()),
        ("length: 1 page", "mr", "addr: buf + 1 page, length: 0", False, ()),
        (
            "access: [ON_DEMAND, REMOTE_WRITE, LOCAL_WRITE], length: 1 page",
            "mr",
            "addr: buf, length: 2 pages",
            True,
            (OF_DEMAND,),
        ),
        ("access: [ZERO_BASED]", "mr", "addr: 0, length: 4 pages", False, (OWN_ADDRESSES,)),
        ("access: [ZERO_BASED]", "mr", "addr: 1, length: 4 pages", True, (OWN_ADDRESSES,)),
        ("access: [LOCAL_WRITE, MW_BIND]", "mw", "addr: buf + 64, length: 256", False, ()),
        ("access: [LOCAL_WRITE, MW_BIND]", "mw", "addr: buf + 63, length: 256", True, ()),
        ("access: [LOCAL_WRITE, MW_BIND]", "mw", "addr: buf + 65, length: 256", True, ()),
    ],
)
def test_a_fault_says_whether_the_bytes_are_outside_of_their_key(
    given: str, key: str, place: str, outside: bool, kinds: tuple[str, ...]
) -> None:
    given += ", access: [LOCAL_WRITE]" * ("access" not in given)
    objects = f"mrs: {{mr: {{{given}}}}}, {BOUND if key == 'mw' else 'pds: [other]'}"
    when = f"op: RDMA_WRITE, rkey: {key}.rkey, {place}"
    of = case(f"{{rules: [REG-20], call: traffic, given: {{{objects}}}, when: {{{when}}}, then: open}}", "bind_mw")
    found = located(Fault(FaultKind.MOVED), of)
    assert (found.outside, found.region) == (outside, kinds)
    assert found.key == ("window" if key == "mw" else "region")


# The lines of each report in kernel_reports.txt, and the place that must be named.
_REPORTS = re.findall(
    r"^=== (\w+)\n# expect ?(.*)\n((?:(?!=== ).*\n)+)", Path(__file__).with_name("kernel_reports.txt").read_text(), re.M
)
REPORTS = {name: (report.splitlines(), place) for name, place, report in _REPORTS}


@pytest.mark.parametrize("name", sorted(REPORTS.keys() - {"kasan"}))
def test_a_kernel_that_died_says_where(name: str) -> None:
    log, place = REPORTS[name]
    assert crash_location(log) == place


LATER = """
- id: later
  rules: [BIND-11]
  given: {memory: {buf: {kind: anonymous, size: 1 page}}, qps: {qp: {type: RC, state: RESET}}, windows: {mw: {type: 1}},
    mrs: {mr: {access: [LOCAL_WRITE, MW_BIND]}}}
  when: {access: []}
  then: open
  afterwards:
    - {call: connect_qp, then: {outcome: success, completion: none, after: refused}}
    - {call: connect_qp, then: {outcome: open, after: success}}
"""
SKIPPED = status("not made", not_made=True)


@pytest.mark.parametrize(
    ("returned", "completed", "verdict"),
    [
        ("EINVAL", [], Verdict.PASS),
        ("EINVAL", ["SUCCESS"], Verdict.FAIL),
        ("EINVAL", ["MW_BIND_ERR"], Verdict.FAIL),
        ("0", ["SUCCESS"], Verdict.PASS),
        ("0", ["MW_BIND_ERR"], Verdict.PASS),
        ("0", [], Verdict.PASS),
    ],
)
def test_a_refused_request_must_not_complete_later_and_an_early_one_is_open(
    returned: str, completed: list[str], verdict: str
) -> None:
    judged = status(returned, wc=[NOT_AWAITED] if returned == "0" else [], rkey={"before": 1, "after": 1})
    later = status("0", wc=completed)
    steps = [SKIPPED, later] if returned == "0" else [later, SKIPPED]
    assert judge(case(LATER, "bind_mw"), [], {**judged, "afterwards": steps}).verdict == verdict


def test_a_report_of_kasan_is_the_evidence_of_its_case_by_kind_function_and_first_frames() -> None:
    log, place = REPORTS["kasan"]
    judgement = judge(REGISTER, [], region(), {"taint": 32, "taint_before": 0, "log": log})
    fault = judgement.fault
    assert fault
    assert fault.kind is FaultKind.KERNEL_MEMORY
    assert fault.site == ("rxe_check_pagefault", "rxe_odp_map_range_and_lock", "rdma_rxe", "rdma_rxe")
    assert judgement.reason.endswith(f": the kernel reports {place}")


TRACE = "|Call Trace:| <TASK>| dump_stack_lvl+0x5d/0x80| "
OF_DRIVER = [" rxe_mr_init_user+0x1/0x2 [rdma_rxe]", " rxe_reg_user_mr+0x1/0x2 [rdma_rxe]", " </TASK>"]
MEMORY, WARNED = FaultKind.KERNEL_MEMORY, FaultKind.KERNEL_WARNED
SLEEPING = "sleeping function called from invalid context"


@pytest.mark.parametrize(
    ("log", "kind", "what"),
    [
        ("UBSAN: array-index-out-of-bounds in x.c:7:9" + TRACE + "__ubsan_handle_out_of_bounds+0x1/0x2", MEMORY, ""),
        ("UBSAN: shift-out-of-bounds in x.c:7:9" + TRACE + "ubsan_epilogue+0x1/0x2", WARNED, ""),
        (
            "WARNING: possible circular locking dependency detected" + TRACE + "check_noncircular+0x1/0x2",
            WARNED,
            "possible circular locking dependency",
        ),
        (f"BUG: {SLEEPING} at m.c:591{TRACE}__might_resched+0x1/0x2| __mutex_lock+0x1/0x2", WARNED, SLEEPING),
        (
            "refcount_t: underflow; use-after-free.|RIP: 0010:refcount_warn_saturate+0x1/0x2|Call Trace:",
            MEMORY,
            "refcount_t: underflow; use-after-free",
        ),
    ],
)
@pytest.mark.parametrize("before", [[], ["BUG: unrelated, and before"]], ids=["alone", "after another"])
def test_a_report_of_a_kernel_tool_names_the_first_function_outside_of_tools(
    log: str, kind: FaultKind, what: str, before: list[str]
) -> None:
    evidence: KernelEvidence = {"taint": 0, "log": [*before, *log.split("|"), *OF_DRIVER], "suspects": ["rdma_rxe"]}
    fault = kernel_alarm(evidence)
    assert fault
    assert fault.kind is kind
    assert fault.seen == (what or log.partition(" in ")[0], "rxe_mr_init_user [rdma_rxe]", "rxe_reg_user_mr [rdma_rxe]")
