"""Writes a report about a violation, for a mailing list or a vendor. The text has 72 columns; only the kernel's
messages are not wrapped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from conformance.defects import Defect, Severity, Symptom, severity_of
from conformance.defects.owner import CORE, LIBIBVERBS, PROVIDER
from conformance.defects.symptom import site_of
from conformance.errors import command, format_count
from conformance.judging import Basis
from conformance.judging.kernel_alarms import first_alarm
from conformance.model.fault import Effect
from conformance.model.verdict import Verdict
from conformance.tables.suite import Suite
from reports.causes import causes, proposed
from reports.compared.comparison import races_between
from reports.digest import Digest
from reports.earlier_points import EarlierPoints
from reports.evidence import calls, expected, preconditions
from reports.kernel_log import of_libraries, without_log
from reports.own_tables import meanings_of
from reports.races import is_race, remarks_on, tries_of, without_a_hit
from reports.reproducers.by_hand import listed, with_included, written_by_hand
from reports.reproducers.findings import Finding, Run
from reports.reproducers.of_runs import first_program, without_peer
from reports.reproducers.program import Program, file_name, headers_for
from reports.text import doubtful_row, kinds_of, without_packets, wrapped
from reports.upstream import upstream

WIDTH = 72
# Explanations of the calls of a case that are not functions of the library.
_OUR_CALLS = {
    "traffic": "the peer posts this operation with the rkey",
    "local_traffic": "the owner of the region posts this operation with the lkey",
    "list_traffic": "the owner of the regions posts this operation with the elements of sg_list",
    "post_traffic": "the owner of the key posts these requests and does not wait",
    "await_traffic": "the memory is filled, and the completions of the posted requests are awaited; `leaked`: a byte of "
    "this filling has reached the peer; `changed`: the memory has changed since",
    "modify_access": "ibv_modify_qp changes the access flags of the queue pair",
    "poster=wire": "a peer without an RDMA device sends the packets of the operation",
    "connect_qp": "the queue pair is moved to RTS, and its completions are polled",
    "post_local_inv": "a LOCAL_INV work request",
    "post_bind_mw": "a BIND_MW work request",
}
_COMMAND = re.compile(r"\buverbs [A-Z_]+")
# How a program ends if it cannot report its observation, by the severity of the defect.
_ENDINGS = {
    Severity.REMOTE_CRASH: "the program stops the kernel: run it in a virtual machine",
    Severity.KERNEL_CRASH: "the program stops the kernel: run it in a virtual machine",
    Severity.PROCESS_CRASH: "the program is killed by a signal",
    Severity.HANG: "the program hangs",
}
# The severities of defects of the kernel that a local program may use.
_PERHAPS_PRIVATE = (Severity.KERNEL_CRASH, Severity.MEMORY)
_STATUSES = (
    "The exit status of the program is 1 after a violation, 0 without a violation, 77 if the device"
    " does not support the calls, and 2 if the objects could not be set up."
)
_MODULES = {"rxe": "rdma_rxe", "siw": "siw"}  # the modules of the software drivers
_KERNEL_LINES = 40
_LONG, _IN_LISTS = 64, re.compile(r"(?<=[,|])")
_SECURITY, _LIST = "security@kernel.org", "linux-rdma@vger.kernel.org"
_SHOWN, _ABSENT = "has the defect", "does not have the defect"
_NOT_SHOWN = "does not show the defect"
_OF_RDMA_CORE = "the file MAINTAINERS of rdma-core has them"
_OF_KERNEL = (
    "in the sources of Linux, scripts/get_maintainer.pl -f drivers/infiniband/{} prints them"
)
_CHANGED_ALONE = "this build is changed; name a run of the stack as shipped with --others"


@dataclass(frozen=True)
class Mail:
    """A text for a mailing list. `notes` tell its sender what to do; `attached` has the texts of the files
    that the text says are attached, by name: programs written by hand, or one that needs the script of a peer."""

    text: str
    notes: Sequence[str]
    attached: Mapping[str, str]


def mail(
    symptoms: Sequence[Symptom],
    run: Digest,
    suite: Suite,
    basis: Basis,
    history: Sequence[Digest],
) -> Mail:
    """Returns the text about the symptom of `first_program`; the text begins with its headers. `history` has runs of
    other stacks."""
    shown = first_program(symptoms, suite, basis, WIDTH)
    defect = next((of for of in run.violations.defects if shown.symptom in of.symptoms), None)
    of_peer = shown.program if shown.program and shown.program.script else None
    programs = [] if shown.program or defect is None else written_by_hand(defect)
    by_hand = with_included(programs)
    attached = {path.name: text for path, text in by_hand.items()}
    lines = list(_description(shown.symptom, defect, run, suite, history))
    if of_peer:
        attached = {
            file_name(of_peer.case): of_peer.text,
            file_name(of_peer.case, ".py"): of_peer.script,
        }
        lines += [*_attached(shown.symptom, of_peer, run), ""]
        shown = without_peer(symptoms, suite, basis, WIDTH)
        if shown.program:
            lines += _wrapped(f"The case {shown.symptom.name} shows it without a peer.")
    if shown.program:
        lines += ["The program below shows the defect without rdma-cts:", ""]
        lines += [
            *_usage(run, {"FILE.c": shown.program.text}),
            "",
            *_ending(shown.symptom),
            *_wrapped(_STATUSES),
        ]
        lines += ["", shown.program.text.rstrip()]
    elif programs:
        verb = "show" if len(attached) > 1 else "shows"
        files = f"file{'s' * (len(attached) > 1)} {' and '.join(attached)}"
        lines += _wrapped(f"The attached {files} {verb} the defect without rdma-cts:")
        lines += ["", *_usage(run, {path.name: attached[path.name] for path in programs})]
        lines += ["", *_wrapped(_STATUSES)]
        if tries := tries_of(shown.symptom.record):
            lines += _wrapped(f"This is a race: {tries} tries of the case violated a rule.")
    elif not of_peer:
        lines += _wrapped(f"The text has no C program: {shown.why_not}. This command repeats it:")
        lines += ["", f"  {shown.symptom.repro}"]
        lines += [f"  ({remark})" for remark in remarks_on(shown.symptom.record)]
    first = symptoms[0] if defect is None else defect.first
    notes = list(_notes(first, defect, of_peer, run))
    if doubt := doubtful_row(shown.symptom.record):
        notes.insert(0, doubt)
    if by_hand:
        notes.append(f"attach what was written by hand: {listed(by_hand)}")
    if run.environment.changed_stack:
        if not history:
            notes.insert(0, _CHANGED_ALONE)
        elif _is_absent_as_shipped(shown.symptom, defect, run, history):
            notes.insert(0, "only your changed build shows this; it is no report for the list")
    return Mail("\n".join(lines).rstrip() + "\n", tuple(notes), attached)


def mail_of(finding: Finding, runs: Iterable[Run], suite: Suite) -> Mail:
    """Returns the text about a finding in its first run; the other runs are of other stacks."""
    first = finding.runs[0]
    return mail(
        finding.defect.symptoms,
        first.digest,
        suite,
        first.basis,
        [run.digest for run in runs if run is not first],
    )


def _description(
    symptom: Symptom,
    defect: Defect | None,
    run: Digest,
    suite: Suite,
    history: Sequence[Digest],
) -> Iterator[str]:
    title = _subject(symptom, defect.title if defect else symptom.line)
    severity = defect.severity if defect else severity_of(symptom)
    yield from _wrapped(f"Subject: {_at_fault(symptom, run).name}: {title}", further=" ")
    yield f"To: {_SECURITY if severity.advice else _LIST}"
    yield ""
    line, _ = without_packets(symptom.line.removeprefix("afterwards "))
    log = _log_about(symptom)
    if log:
        line = without_log(line)
    yield from _wrapped(f"{title}.")
    yield from _wrapped(f'This is a defect of the severity "{severity.label}": {severity.meaning}')
    if needed := preconditions(defect, symptom) if defect else "":
        yield from _wrapped(f"Needed: {needed}.")
    if defect and defect.another:
        yield from _wrapped(f"{defect.another[0].upper()}{defect.another[1:]}.")
    elif report := upstream(defect) if defect else "":
        yield from _wrapped(f"It is known upstream ({report}), and the stack tested below has it.")
    yield ""
    for id_ in symptom.rules[:3]:
        rule = run.verdicts.rules.get(id_)
        if rule is None:
            continue
        if rule.quote:
            yield from _wrapped(f"{rule.source}:")
            yield from _wrapped(f'"{rule.quote}"', "    ", "    ")
        else:
            yield from _wrapped(f"{rule.documented}.")
        yield "The tested rule:"
        yield from _wrapped(rule.statement, "    ", "    ")
        if rule.argument_against:
            yield "An argument against this rule:"
            yield from _wrapped(rule.argument_against, "    ", "    ")
        yield ""
    set_up = (symptom.deviation or symptom.record)["set_up"]
    yield "The objects and calls:"
    judged, *later = calls(symptom)
    steps = [*(f"before: {step}" for step in set_up["before"]), f"call: {judged}"]
    steps += [f"then: {step}" for step in later]
    packets = []
    for done in (*_used(set_up["given"], steps), *steps):
        text, events = without_packets(done)
        yield from _wrapped(text, "  - ", "    ")
        for number, event in enumerate(events, 1):
            yield from _wrapped(f"{number}. {event}", "    ", "       ")
        packets += events
    for kind, meaning in kinds_of(packets):
        yield from _wrapped(f"{kind}: {meaning}", "  ", "    ")
    if later and line.startswith(f"{judged}: "):  # it died, and nothing says at which call
        line = f"at one of these calls, {line.removeprefix(f'{judged}: ')}"
    for name in sorted({*_COMMAND.findall(" ".join(steps))}):
        yield from _wrapped(f"{name}: this command of the kernel, without libibverbs", "  ", "    ")
    for call, words in _OUR_CALLS.items():
        if any(re.search(rf"[ (]{call}\b", item) for item in steps):
            yield from _wrapped(f"{call}: {words}", "  ", "    ")
    for meaning in meanings_of(symptom, suite):
        yield from _wrapped(meaning, "  ", "    ")
    if " should " not in line:  # a line with "should" already has the expectation of the step
        yield from _wrapped(f"expected: {expected(symptom)}", "", "  ")
    yield from _wrapped(f"observed: {line}", "", "  ")
    yield from _wrapped(f"answered by: {run.violations.answering_of(symptom)}", "", "  ")
    for kind, text in causes(defect, run, symptom, is_sent=True) if defect else ():
        yield from _wrapped(f"{kind}: {text}", "", "  ")
    yield ""
    yield from _evidence(
        log,
        symptom.fault.effect is Effect.PROCESS_DIED,
    )
    yield from _tested(run)
    if history:
        yield ""
        yield "Stacks:"
        for run_before in (run, *history):
            stack = f"{run_before.header['device'].get('driver', '?')}, {_stack(run_before)}{_differences(run_before, run)}"
            has = _has(symptom, defect, run_before, run)
            yield from _wrapped(f"{stack}: {has}", "  - ", "    ")
    yield ""
    at = f", at the point {symptom.point}" if symptom.point else ""
    whose = "the reporter's own tables for rdma-cts" if doubtful_row(symptom.record) else "rdma-cts"
    yield from _wrapped(f"The case {symptom.case} of {whose} found the defect{at}.")
    if severity_of(symptom).advice:
        yield from _wrapped(
            "The peer of the case sends its packets from a socket: it has no RDMA device."
        )
    if repeated := run.violations.repetitions.text_about(symptom):
        yield from _wrapped(f"Repeated: {repeated}.")


def _log_about(symptom: Symptom) -> Sequence[str]:
    """Returns the log of a case; of a sweep, other points wrote it unless something died or the kernel complained."""
    of_point = symptom.verdict == Verdict.CRASH or symptom.fault.effect is Effect.KERNEL_ALARM
    return symptom.record["kernel"].get("log", ()) if of_point or not symptom.deviation else ()


def _attached(symptom: Symptom, program: Program, run: Digest) -> Iterator[str]:
    name, script = file_name(program.case), file_name(program.case, ".py")
    device = run.header["device"].get("name", "DEVICE")
    yield from _wrapped(
        f"The attached files {name} and {script} show the defect without rdma-cts. The program runs at the device; the "
        "script sends the packets from a machine with an ordinary network interface, whose address is ADDRESS, and starts "
        "the program:",
    )
    yield ""
    yield from _set_up(run)
    yield from _compiling(name, program.text)
    yield f"  python3 {script} ADDRESS \\"
    yield f"    ssh root@NODE ./shown {device} ADDRESS"
    yield ""
    yield from _ending(symptom)


def _notes(
    symptom: Symptom, defect: Defect | None, of_peer: Program | None, run: Digest
) -> Iterator[str]:
    """Yields what the sender of the text has to do besides."""
    of = _at_fault(symptom, run)
    severity = defect.severity if defect else severity_of(symptom)
    if severity.advice:
        yield f"send it to {_SECURITY} and, of others, only to the driver's maintainers or the device's vendor (SECURITY.md)"
    elif severity in _PERHAPS_PRIVATE and of.maintainers != _OF_RDMA_CORE:
        yield (
            f"{severity.label}: {_LIST} is public; consider {_SECURITY} first, because a program on the machine may use the "
            "defect (SECURITY.md)"
        )
    if defect and defect.another:
        yield "the layer at fault is not known: find it, and then its maintainers, before you send the text"
    else:
        yield f"add the maintainers to the recipients: {of.maintainers}"
    if of_peer:
        out = file_name(of_peer.case)
        command_line = command("reproducer", of_peer.case, "--run", run.path, "--out", out)
        yield f"attach both files that this command writes: {command_line}"
    if defect and upstream(defect) and not defect.another:
        yield "the defect is known upstream: send the text only if it says something new"
    elif defect:
        for mend in proposed(defect, run):
            yield f"attach the possible fix that the text names; this command writes it: {mend.command}"


def _is_absent_as_shipped(
    symptom: Symptom, defect: Defect | None, run: Digest, history: Sequence[Digest]
) -> bool:
    """Whether the same versions of the stack do not show a defect without the changes, in every run that tells it."""
    unchanged = (
        other
        for other in history
        if not other.environment.changed_stack and _versions(other) == _versions(run)
    )
    shown = [_has(symptom, defect, other, run) for other in unchanged]
    is_absent = [
        not words.startswith(_SHOWN)
        for words in shown
        if words.startswith((_ABSENT, _NOT_SHOWN, _SHOWN))
    ]
    return bool(is_absent) and all(is_absent)


def _versions(run: Digest) -> tuple[object, ...]:
    env = run.header["env"]
    return run.header["device"].get("driver"), env.get("kernel"), env.get("rdma_core")


def _usage(run: Digest, files: Mapping[str, str]) -> Iterator[str]:
    """Yields the commands that compile and start programs, which are given by the names of their files."""
    yield from _set_up(run)
    for file, text in files.items():
        yield from _compiling(file, text)
        yield f"  ./shown {run.header['device'].get('name', 'DEVICE')}"


def _subject(symptom: Symptom, title: str) -> str:
    """Returns the title of a defect. If the kernel died, the title begins with the function in which it died."""
    site = site_of(symptom.fault)
    if site is None or any(name in title for name in site.lasting):
        return title
    return f"kernel fault in {site.lasting[0]}: {title}"


def _set_up(run: Digest) -> Iterator[str]:
    """Yields the commands that set up a software device."""
    device = run.header["device"]
    driver = device.get("driver", "")
    if driver in _MODULES:
        yield f"  modprobe {_MODULES[driver]}"
        name = device.get("name", "DEVICE")
        yield f"  rdma link add {name} type {driver} netdev NETDEV    # an interface that is up"


def _compiling(file: str, text: str) -> Iterator[str]:
    if needed := headers_for(text):
        yield f"  # {needed}"
    yield f"  cc -o shown {file} -libverbs"


def _ending(symptom: Symptom) -> Iterator[str]:
    if ending := _ENDINGS.get(severity_of(symptom)):
        yield from _wrapped(f"On the stack tested above, {ending}.")


def _used(given: Sequence[str], calls: Sequence[str]) -> list[str]:
    """Returns the objects of a set-up that the calls need, directly or through other objects."""
    used = list(calls)
    for line in reversed(given):  # an object needs only objects before it
        name = line.partition(":")[0]
        if ":" not in line or any(re.search(rf"\b{re.escape(name)}\b", item) for item in used):
            used.append(line.partition(":")[2])
    names_left = set(used)
    return [line for line in given if ":" not in line or line.partition(":")[2] in names_left]


class _Part(NamedTuple):
    """A part of the stack: the name that its maintainers use, and where their addresses are."""

    name: str
    maintainers: str


def _at_fault(symptom: Symptom, run: Digest) -> _Part:
    """Returns the part of the stack that returned the result."""
    driver = run.header["device"].get("driver") or ""
    of_kernel = f"{'sw' if driver in _MODULES else 'hw'}/{driver}"
    parts = {
        PROVIDER: _Part(f"rdma-core, providers/{driver}", _OF_RDMA_CORE),
        LIBIBVERBS: _Part("rdma-core, libibverbs", _OF_RDMA_CORE),
        CORE: _Part("RDMA/core", _OF_KERNEL.format("core")),
    }
    rest = _Part(driver or "RDMA", _OF_KERNEL.format(of_kernel if driver else ""))
    return parts.get(run.violations.answering_of(symptom).layer, rest)


def _evidence(log: Sequence[str], process_died: bool) -> Iterator[str]:
    """Yields the kernel's messages from the first warning on; if a process died, the libraries on its stack."""
    if process_died:  # leave out the frames of the suite's own Python
        log = of_libraries(log)
    if not log:
        return
    alarm = first_alarm(log)
    start = next((number for number, line in enumerate(log) if alarm and alarm in line), 0)
    yield (
        "The stack of the process, innermost frame first:"
        if process_died
        else "The kernel's messages:"
    )
    yield from (f"  {line}".rstrip() for line in log[start : start + _KERNEL_LINES])
    if more := len(log[start + _KERNEL_LINES :]):
        yield f"  ({more} more lines)"
    yield ""


def _stack(run: Digest) -> str:
    env = run.header["env"]
    if run.environment.changed_stack:
        changed = f" ({run.environment.changed_stack})"
    else:
        changed = ""
    return f"kernel {env.get('kernel', '?')}, rdma-core {env.get('rdma_core', '?')}{changed}"


def _differences(other: Digest, run: Digest) -> str:
    """Returns the loaded software of `other` that differs from `run`; empty if the versions of the stacks differ."""
    if _stack(other).partition(" (")[0] != _stack(run).partition(" (")[0]:
        return ""
    facts = {
        name: value
        for name, value in other.environment.under_test.items()
        if not name.startswith("given")
    }
    differ = [
        f"{name} {value}"
        for name, value in facts.items()
        if run.environment.under_test.get(name, value) != value
    ]
    if differ:
        return f", with {', '.join(differ)}"
    return ""


def _tested(run: Digest) -> Iterator[str]:
    device = run.header["device"]
    yield from _wrapped(
        f"Tested: {device.get('name', '?')} ({device.get('driver', '?')}), {_stack(run)}.",
    )
    for name, digest in run.environment.under_test.items():
        if not name.startswith("given"):
            yield from _wrapped(f"{name}: {digest}", "  - ", "    ")


def _has(symptom: Symptom, defect: Defect | None, run: Digest, of: Digest) -> str:
    """Returns what a run tells about a defect of the run `of`."""
    results = (result for result in run.results if result["case"] == symptom.case)
    result = next(results, None)
    verdict = result["verdict"] if result else Verdict.MISSED
    items = run.violations.defects if defect else ()
    for item in items:
        if defect and item.fingerprint == defect.fingerprint:
            if symptom.case in item.cases:
                return _SHOWN
            others = format_count(len(item.cases), "other case")
            here = "was not tested" if verdict == Verdict.MISSED else f"is {verdict}"
            return f"{_SHOWN} in {others}; this case {here}"
    if verdict == Verdict.MISSED:
        return "was not tested for the defect"
    if result:
        races = races_between(run, of) if is_race(symptom.record) else {}
        is_absent, of_race = without_a_hit(result, symptom.record, races)
        if of_race:
            return f"{_ABSENT} ({of_race})" if is_absent else of_race
    if result and verdict == Verdict.FAIL:
        defects = [item.fingerprint for item in run.violations.defects_in(symptom.case)]
        what = "other defects" if len(defects) > 1 else "another defect"
        fails = ", ".join([f"the case fails there by {what}", *defects])
        points = EarlierPoints(run, run, result, symptom.record)
        if symptom.deviation and points.passed_at(symptom.deviation):
            return f"{_ABSENT} (this point is PASS; {fails})"
        return f"{_NOT_SHOWN} ({fails})"
    decided = _ABSENT if verdict == Verdict.PASS else "leaves the defect undecided"
    return f"{decided} (the case is {verdict})"


def _wrapped(text: str, first: str = "", further: str = "") -> list[str]:
    """Returns the lines of a text. Long lists are divided at their commas and bars; an address or the name of a case is
    copied, and stays whole."""
    words = (_IN_LISTS.sub(" ", word) if len(word) > _LONG else word for word in text.split(" "))
    return wrapped(" ".join(words), WIDTH, further, first)
