"""The message of a patch: what is wrong and what the change does, the document's words, what was seen, how to see it.

Plain text of 72 columns, without the patch itself. Not for the text of a violation that nothing mends (reproducers/).
"""

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from conformance.defects import Symptom
from conformance.judging import first_alarm
from conformance.model.rules import Rule
from fixtures.guest.changes import Change
from reports.digest import Digest

WIDTH = 72
_FRAMES = 12
_STAMP = re.compile(r"^\[ *[0-9.]+\] ?")
_STAMPED = re.compile(r" \(\[.*\Z")  # what the line has of the kernel's log
# What a maintainer reads of an oops: what happened, where, in which task, and the frames that are certain.
_TOLD = re.compile(r"(BUG|WARNING|Oops|general protection|KASAN|CPU|Workqueue|RIP|Call Trace|pc |lr )\b")
_FRAME = re.compile(r"\s*[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+")
_END = ("---[ end trace", "Modules linked in:")


@dataclass(frozen=True)
class Seen:
    """What a recorded run has of a defect."""

    symptom: Symptom
    run: Digest


def message(change: Change, prefix: str, rules: Mapping[str, Rule], fixes: str, signed: str, seen: Seen | None) -> str:
    """The whole message, subject first."""
    parts = [[f"{prefix}: {change.subject}"], _wrapped(change.about), *_documented(change, rules)]
    if seen:
        parts += _observed(seen)
    parts.append(_wrapped(f"Shown by the case {change.case} of rdma-cts."))
    trailers = [f"Fixes: {fixes}"] if fixes else []
    trailers += [f"Signed-off-by: {signed}"] if signed else []
    parts += [trailers] if trailers else []
    return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def trimmed(log: Sequence[str]) -> list[str]:
    """A kernel's complaint without time stamps, registers, code, modules and the frames of which it is not certain."""
    alarm = first_alarm(log)
    start = next((number for number, line in enumerate(log) if alarm and alarm in line), len(log))
    told: list[str] = []
    frames = 0
    for line in log[start:]:
        text = _STAMP.sub("", line[max(0, line.rfind("[ ")) :] if not told else line).rstrip()
        if any(end in text for end in _END) and frames:
            break
        if _FRAME.match(text):
            frames += 1
            if frames <= _FRAMES:
                told.append(text)
        elif _TOLD.match(text):
            told.append(text)
    return told


def _documented(change: Change, rules: Mapping[str, Rule]) -> Iterator[list[str]]:
    """The words of the document, or what it says, of the first rule."""
    rule = rules[change.rules[0]]
    source = ", ".join(filter(None, (rule.document, rule.section)))
    said = f'"{rule.quote}"' if rule.quote else rule.statement
    yield [*_wrapped(f"{source} ({rule.id} of rdma-cts):"), "", *_wrapped(said, "  ")]


def _observed(seen: Seen) -> Iterator[list[str]]:
    env = seen.run.header["env"]
    versions = f"Linux {env.get('kernel', '?')}, rdma-core {env.get('rdma_core', '?')}"
    log = trimmed(seen.symptom.record["kernel"].get("log", ()))
    line = seen.symptom.line.removeprefix("afterwards ")
    yield _wrapped(f"Seen on {versions}: {_STAMPED.sub('', line) if log else line}.")
    if log:
        yield [f"  {each}" for each in log]


def _wrapped(text: str, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )
