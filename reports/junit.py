"""JUnit's XML (the xunit2 dialect that pytest and CI systems speak), one testcase a result.

ASCII only, and without the control characters that XML forbids, whatever a kernel's log contained.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from conformance.model.verdict import Verdict
from conformance.results.records import Record
from reports.digest import Digest, flat, told_deviation

FILE_NAME = "junit.xml"
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# JUnit knows three ways not to pass. What says something of the device is a failure; what says
# something of the harness or the environment is an error.
_ELEMENT = {
    Verdict.FAIL: "failure",
    Verdict.CRASH: "failure",
    Verdict.HANG: "failure",
    Verdict.BROKEN: "error",
    Verdict.MISSED: "error",
    Verdict.WAIVED: "skipped",
    Verdict.UNSUPPORTED: "skipped",
    Verdict.UNREACHABLE: "skipped",
}


def render(runs: Sequence[Digest]) -> bytes:
    """The document of these runs, a testsuite each."""
    document = ET.Element("testsuites")
    for run in runs:
        document.append(_testsuite(run))
    ET.indent(document)
    text: bytes = ET.tostring(document, encoding="us-ascii", xml_declaration=True)
    return text + b"\n"


def _testsuite(run: Digest) -> ET.Element:
    kinds = [_ELEMENT.get(line["effective"], "") for line in run.results]
    suite = ET.Element(
        "testsuite",
        name="rdma-cts",
        tests=str(len(run.results)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{(run.footer or {}).get('duration_s', 0.0):.3f}",
        timestamp=_clean(run.header["started"]),
        hostname=_clean(run.device),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(run):
        ET.SubElement(properties, "property", name=name, value=_clean(str(value)))
    for line in run.results:
        suite.append(_testcase(line))
    return suite


def _properties(run: Digest) -> Sequence[tuple[str, object]]:
    env, device = run.header["env"], run.header["device"]
    return [
        ("stack", run.header["stack"]),
        ("kernel", env.get("kernel", "")),
        ("rdma_core", env.get("rdma_core", "")),
        ("device", run.device),
        ("driver", device.get("driver", "")),
        ("firmware", device.get("fw", "")),
        ("tables_sha256", run.header["suite"].get("tables_sha256", "")),
    ]


def _testcase(line: Record) -> ET.Element:
    folder, _, name = line["case"].partition("/")
    seconds = line["duration_us"] / 1e6
    element = ET.Element("testcase", classname=f"rdma-cts.{_clean(folder)}", name=_clean(name), time=f"{seconds:.6f}")
    kind = _ELEMENT.get(line["effective"], "")
    if kind == "skipped":
        # xunit2 has no element that both skips and tells why at length; the message says it all.
        ET.SubElement(element, "skipped", type=line["effective"], message=_message(line))
    elif kind:
        child = ET.SubElement(element, kind, type=line["effective"], message=_message(line))
        child.text = _clean(_details(line))
    return element


def _message(line: Record) -> str:
    return _clean(f"{line['effective']} {' '.join(line['rules'])}: {line['reason']}")


def _details(line: Record) -> str:
    parts = [
        f"call: {line['call']}",
        f"expected: {_told(line['expected'])}",
        f"observed: {_told(line['observed'])}",
        f"table: {line['source'].get('file', '')}:{line['source'].get('line', '')}",
        f"reproduce: {line['repro']}",
    ]
    parts += [told_deviation(each) for each in line["deviations"]]
    parts += [f"kernel: {text}" for text in line["kernel"]["log"]]
    return "\n".join(parts)


def _told(data: Record) -> str:
    return "; ".join(f"{name} {text}" for name, text in flat(data))


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
