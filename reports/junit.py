"""Writes JUnit XML (the xunit2 format of pytest and CI systems) with a testcase for each result, the most severe first.
The document is ASCII. Characters that XML forbids, which the kernel's log may contain, are replaced."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence

from conformance.defects.symptom import violated_rules
from conformance.model.record import ResultRecord
from conformance.model.verdict import EXCUSED, INCOMPLETE, NOT_TESTABLE, VIOLATIONS
from reports import evidence
from reports.digest import Digest

FILE_NAME = "junit.xml"
_FORBIDDEN = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})  # in texts
# in attributes
_QUOTED = _ESCAPES | str.maketrans({'"': "&quot;", "\t": "&#09;", "\n": "&#10;", "\r": "&#13;"})
# JUnit has three outcomes besides success. A violation is a failure. BROKEN and MISSED are errors. WAIVED, STACK,
# UNSUPPORTED and UNREACHABLE are skipped.
_ELEMENT = {
    **dict.fromkeys(VIOLATIONS, "failure"),
    **dict.fromkeys(INCOMPLETE, "error"),
    **dict.fromkeys((*EXCUSED, *NOT_TESTABLE), "skipped"),
}


def render(runs: Sequence[Digest]) -> bytes:
    """Returns the XML document, with a testsuite for each run."""
    document = io.BytesIO()  # joining a list of parts would need twice the memory
    document.writelines(part.encode("ascii", "xmlcharrefreplace") for part in _document(runs))
    return document.getvalue()


def _document(runs: Sequence[Digest]) -> Iterator[str]:
    """Yields the document as text, because creating XML elements is slow for very many cases."""
    yield "<?xml version='1.0' encoding='us-ascii'?>\n<testsuites>\n"
    for run in runs:
        kinds = [_ELEMENT.get(record["effective"], "") for record in run.results]
        suite = {
            "name": f"rdma-cts {run.header['stack']}" if len(runs) > 1 else "rdma-cts",
            "tests": str(len(run.results)),
            "failures": str(kinds.count("failure")),
            "errors": str(kinds.count("error")),
            "skipped": str(kinds.count("skipped")),
            "time": f"{run.footer['duration_s'] if run.footer else 0.0:.3f}",
            "timestamp": run.header["started"],
            "hostname": run.environment.device,
        }
        yield f"  <{_tag('testsuite', suite)}>\n    <properties>\n"
        for name, value in _properties(run):
            yield f"      <{_tag('property', {'name': name, 'value': str(value)})} />\n"
        yield "    </properties>\n"
        yield from (_testcase(run, record) for record in run.violations.by_severity())
        yield "  </testsuite>\n"
    yield "</testsuites>\n"


def _tag(name: str, attributes: Mapping[str, str]) -> str:
    return " ".join(
        [name, *(f'{key}="{clean(text).translate(_QUOTED)}"' for key, text in attributes.items())],
    )


def _properties(run: Digest) -> Sequence[tuple[str, object]]:
    env, device = run.header["env"], run.header["device"]
    return [
        ("stack", run.header["stack"]),
        ("kernel", env.get("kernel", "")),
        ("rdma_core", env.get("rdma_core", "")),
        ("device", run.environment.device),
        ("driver", device.get("driver", "")),
        ("firmware", device.get("fw", "")),
        ("tables_sha256", run.environment.tables_sha256),
        ("conclusion", run.summary.conclusion),
        ("headline", run.summary.headline),
        *((("point", evidence.POINT),) if evidence.has_points(run) else ()),
        *((severity.label, cases) for severity, (_, cases) in run.violations.tally.items()),
    ]


def _testcase(run: Digest, record: ResultRecord) -> str:
    folder, _, name = record["case"].partition("/")
    seconds = (record["duration_us"] or 0) / 1e6
    case = _tag(
        "testcase",
        {"classname": f"rdma-cts.{folder}", "name": name, "time": f"{seconds:.6f}"},
    )
    kind = _ELEMENT.get(record["effective"])
    if not kind:
        return f"    <{case} />\n"
    outcome = _tag(kind, {"type": record["effective"], "message": _message(run, record)})
    # In xunit2, a `skipped` element has no text. Only its message is written.
    if kind == "skipped":
        text = ""
    else:
        text = "\n".join(map(clean, evidence.lines(run, record))).translate(_ESCAPES)
    if text:
        inner = f"<{outcome}>{text}</{kind}>"
    else:
        inner = f"<{outcome} />"
    return f"    <{case}>\n      {inner}\n    </testcase>\n"


def _message(run: Digest, record: ResultRecord) -> str:
    defects = run.violations.defects_in(record["case"])
    if defects:
        severity = f", {defects[0].severity.label}, defect {defects[0].fingerprint}"
    else:
        severity = ""
    rules = violated_rules(record) or record["rules"]
    return f"{record['effective']} {' '.join(rules)}{severity}: {record['reason']}"


def clean(text: str) -> str:
    """Returns the text with `?` for each character that XML forbids."""
    if text.isprintable():
        return text
    return re.sub(_FORBIDDEN, "?", text)  # re.sub compiles the pattern on the first use
