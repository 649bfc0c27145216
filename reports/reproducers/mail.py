"""Writes a report about a violation, for a mailing list or a vendor. The text has 72 columns; only the kernel's
messages are not wrapped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

from conformance.defects import Defect, Severity, Symptom, answering_of, severity_of
from conformance.defects.owner import CORE, LIBIBVERBS, PROVIDER
from conformance.defects.symptom import later_steps, site_of
from conformance.judging import Basis
from conformance.judging.kernel_alarms import first_alarm
from conformance.model.fault import Effect
from conformance.model.verdict import Verdict
from conformance.tables.suite import Suite
from reports.digest import Digest
from reports.evidence import expected
from reports.races import tries_of
from reports.reproducers.findings import Finding, Run
from reports.reproducers.of_runs import Made, first_program
from reports.text import kinds_of, without_packets, wrapped

WIDTH = 72
# Explanations of the calls of a case that are not functions of the library.
_OUR_CALLS = {
    "traffic": "the peer posts this operation with the rkey",
    "local_traffic": "the owner of the region posts this operation with the lkey",
    "list_traffic": "the owner of the regions posts this operation with the elements of sg_list",
    "post_traffic": "the owner of the key posts these requests and does not wait",
    "await_traffic": "the memory is filled, and the completions of the posted requests are awaited",
    "modify_access": "ibv_modify_qp changes the access flags of the queue pair",
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
_MODULES = {"rxe": "rdma_rxe", "siw": "siw"}  # the modules of the software drivers
_OF_LIBRARIES = re.compile(
    r'Binary file "[^"]*/lib(?:ibverbs|[a-z0-9_]+-rdmav)[^"]*\.so|segfault at ',
)
_KERNEL_LINES = 40


def mail(
    symptoms: Sequence[Symptom],
    run: Digest,
    suite: Suite,
    basis: Basis,
    history: Sequence[Digest],
) -> str:
    """Returns the whole text, the subject first, about the first symptom that has a program, or about the first symptom
    without a program. `history` has runs of other stacks."""
    shown = _shown(symptoms, suite, basis)
    lines = list(_description(shown.symptom, run, history))
    if shown.program:
        lines += [*_usage(shown.symptom, run), "", shown.program.text.rstrip()]
    else:
        lines += _wrapped(f"The text has no C program: {shown.why_not}. This command repeats it:")
        lines += ["", f"  {shown.symptom.repro}"]
    return "\n".join(lines) + "\n"


def _shown(symptoms: Sequence[Symptom], suite: Suite, basis: Basis) -> Made:
    """Returns the program of the symptoms. If it needs a peer, returns why there is none: a mail has no place for the
    script of a peer."""
    first = first_program(symptoms, suite, basis, WIDTH)
    if first.program is None or not first.program.script:
        return first
    name = shlex.quote(first.symptom.name)
    why_not = f"a peer sends its packets; `rdma-cts reproducer {name}` writes a program and a script of the peer"
    return Made(first.symptom, None, why_not)


def mail_of(finding: Finding, runs: Iterable[Run], suite: Suite) -> str:
    """Returns the text about a finding in its first run; the other runs are of other stacks."""
    first = finding.runs[0]
    return mail(
        [finding.symptom],
        first.digest,
        suite,
        first.basis,
        [run.digest for run in runs if run is not first],
    )


def _description(
    symptom: Symptom,
    run: Digest,
    history: Sequence[Digest],
) -> Iterator[str]:
    defect = next((defect for defect in run.violations.defects if symptom in defect.symptoms), None)
    title = _subject(symptom, defect.title if defect else symptom.line)
    yield from _wrapped(f"Subject: {_at_fault(symptom, run)}: {title}", further=" ")
    yield ""
    line, _ = without_packets(symptom.line.removeprefix("afterwards "))
    yield from _wrapped(f"{title}.")
    severity = defect.severity if defect else severity_of(symptom)
    yield from _wrapped(f'This is a defect of the severity "{severity.label}": {severity.meaning}')
    yield ""
    for id_ in symptom.rules[:3]:
        rule = run.verdicts.rules.get(id_)
        if rule is None:
            continue
        yield from _wrapped(f"{rule.source}:")
        if rule.quote:
            yield from _wrapped(f'"{rule.quote}"', "    ", "    ")
            yield "The tested rule:"
        yield from _wrapped(rule.statement, "    ", "    ")
        if rule.argument_against:
            yield "An argument against this rule:"
            yield from _wrapped(rule.argument_against, "    ", "    ")
        yield ""
    point = symptom.deviation
    set_up = (point or symptom.record)["set_up"]
    yield "The objects and calls:"
    called = (point or symptom.record)["call"] or symptom.call
    later = [step["call"] for step in later_steps(symptom.record["expected"])]
    calls = [*(f"before: {step}" for step in set_up["before"]), f"call: {called}"]
    calls += [f"then: {step}" for step in (point["afterwards"] if point else later)]
    packets = []
    for done in (*_used(set_up["given"], calls), *calls):
        text, events = without_packets(done)
        yield from _wrapped(text, "  - ", "    ")
        for number, event in enumerate(events, 1):
            yield from _wrapped(f"{number}. {event}", "    ", "       ")
        packets += events
    for kind, meaning in kinds_of(packets):
        yield from _wrapped(f"{kind}: {meaning}", "  ", "    ")
    for name in sorted({*_COMMAND.findall(" ".join(calls))}):
        yield from _wrapped(f"{name}: this command of the kernel, without libibverbs", "  ", "    ")
    for call, words in _OUR_CALLS.items():
        if any(f" {call}(" in item for item in calls):
            yield from _wrapped(f"{call}: {words}", "  ", "    ")
    if " should " not in line:  # a line with "should" already has the expectation of the step
        yield from _wrapped(f"expected: {expected(symptom)}", "", "  ")
    yield from _wrapped(f"observed: {line}", "", "  ")
    yield from _wrapped(f"answered by: {answering_of(symptom)}", "", "  ")
    yield ""
    yield from _evidence(
        symptom.record["kernel"].get("log", ()),
        symptom.fault.effect is Effect.PROCESS_DIED,
    )
    yield from _tested(run)
    if history:
        yield ""
        yield "Stacks:"
        for run_before in (run, *history):
            stack = f"{run_before.header['device'].get('driver', '?')}, {_stack(run_before)}{_differences(run_before, run)}"
            yield from _wrapped(f"{stack}: {_has(symptom, defect, run_before)}", "  - ", "    ")
    yield ""
    yield from _wrapped(f"The case {symptom.name} of rdma-cts found the defect.")


def _usage(symptom: Symptom, run: Digest) -> Iterator[str]:
    yield "The program below shows the defect without rdma-cts:"
    yield ""
    device = run.header["device"]
    yield from (
        f"  {command}"
        for command in _commands(device.get("driver", ""), device.get("name", "DEVICE"))
    )
    yield ""
    ending = _ENDINGS.get(severity_of(symptom))
    if ending:
        yield from _wrapped(f"On the stack tested above, {ending}.")
    yield from _wrapped(
        "The exit status of the program is 1 after a violation, 0 without a violation, 77 if the device"
        " does not support the calls, and 2 if the objects could not be set up.",
    )


def _subject(symptom: Symptom, title: str) -> str:
    """Returns the title of a defect. If the kernel died, the title begins with the function in which it died."""
    site = site_of(symptom.fault)
    if site is None or any(name in title for name in site.lasting):
        return title
    return f"kernel fault in {site.lasting[0]}: {title}"


def _commands(driver: str, device: str) -> Iterator[str]:
    if driver in _MODULES:
        yield f"modprobe {_MODULES[driver]}"
        yield f"rdma link add {device} type {driver} netdev NETDEV    # an interface that is up"
    yield "cc -o shown FILE.c -libverbs"
    yield f"./shown {device}"


def _used(given: Sequence[str], calls: Sequence[str]) -> list[str]:
    """Returns the objects of a set-up that the calls need, directly or through other objects."""
    used = list(calls)
    for line in reversed(given):  # an object needs only objects before it
        name = line.partition(":")[0]
        if ":" not in line or any(re.search(rf"\b{re.escape(name)}\b", item) for item in used):
            used.append(line.partition(":")[2])
    names_left = set(used)
    return [line for line in given if ":" not in line or line.partition(":")[2] in names_left]


def _at_fault(symptom: Symptom, run: Digest) -> str:
    """Returns the part of the stack that returned the result, by the name that the part's maintainers use."""
    driver = run.header["device"].get("driver") or "RDMA"
    parts = {
        PROVIDER: f"rdma-core, providers/{driver}",
        LIBIBVERBS: "rdma-core, libibverbs",
        CORE: "RDMA/core",
    }
    return parts.get(answering_of(symptom).layer, driver)


def _evidence(log: Sequence[str], process_died: bool) -> Iterator[str]:
    """Yields the kernel's messages from the first warning on; if a process died, the libraries on its stack."""
    if process_died:  # leave out the frames of the suite's own Python
        log = [line.strip() for line in log if _OF_LIBRARIES.search(line)]
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


def _has(symptom: Symptom, defect: Defect | None, run: Digest) -> str:
    if defect and any(item.fingerprint == defect.fingerprint for item in run.violations.defects):
        return "has the defect"
    results = (result for result in run.results if result["case"] == symptom.case)
    result = next(results, None)
    verdict = result["verdict"] if result else Verdict.MISSED
    if verdict == Verdict.MISSED:
        return "was not tested for the defect"
    if result and (tries := tries_of(result)):
        return f"did not show the defect in {tries.of:,} tries of this race, which does not prove its absence"
    decided = verdict in (Verdict.PASS, Verdict.FAIL)
    return f"{'does not have the defect' if decided else 'leaves the defect undecided'} (the case is {verdict})"


def _wrapped(text: str, first: str = "", further: str = "") -> list[str]:
    return wrapped(text, WIDTH, further, first, long_words=True)
