"""JUnit's XML (the xunit2 dialect that pytest and CI systems speak), one testcase a result.

ASCII only, and without the control characters that XML forbids, whatever a kernel's log contained.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence

from conformance import judging
from conformance.results import Line, Recorded

FILE_NAME = "junit.xml"
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# JUnit knows three ways not to pass. What says something of the device is a failure; what says
# something of the harness or the environment is an error.
_ELEMENT = {
    judging.FAIL: "failure",
    judging.CRASH: "failure",
    judging.HANG: "failure",
    judging.BROKEN: "error",
    judging.MISSED: "error",
    judging.WAIVED: "skipped",
    judging.UNSUPPORTED: "skipped",
    judging.UNREACHABLE: "skipped",
}


def render(recorded: Recorded) -> bytes:
    """The document of a run that was recorded, complete or not."""
    header = recorded.header
    results = list(recorded.results)
    found = {line["case"] for line in results}
    results += [_missing(case) for case in header.get("planned", ()) if case not in found]
    kinds = [_ELEMENT.get(line["effective"], "") for line in results]
    suite = ET.Element(
        "testsuite",
        name="rdma-cts",
        tests=str(len(results)),
        failures=str(kinds.count("failure")),
        errors=str(kinds.count("error")),
        skipped=str(kinds.count("skipped")),
        time=f"{(recorded.footer or {}).get('duration_s', 0):.3f}",
        timestamp=_clean(header["started"]),
        hostname=_clean(header["device"]["name"]),
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(header):
        ET.SubElement(properties, "property", name=name, value=_clean(str(value)))
    for line in results:
        suite.append(_testcase(line))
    document = ET.Element("testsuites")
    document.append(suite)
    ET.indent(document)
    text: bytes = ET.tostring(document, encoding="us-ascii", xml_declaration=True)
    return text + b"\n"


def _properties(header: Line) -> Sequence[tuple[str, object]]:
    env, device = header["env"], header["device"]
    return [
        ("stack", header["stack"]),
        ("kernel", env["kernel"]),
        ("rdma_core", env["rdma_core"]),
        ("device", device["name"]),
        ("driver", device["driver"]),
        ("firmware", device["fw"]),
        ("tables_sha256", header["suite"]["tables_sha256"]),
    ]


def _testcase(line: Line) -> ET.Element:
    folder, _, name = line["case"].partition("/")
    seconds = (line.get("duration_us") or 0) / 1e6
    element = ET.Element("testcase", classname=f"rdma-cts.{_clean(folder)}", name=_clean(name), time=f"{seconds:.6f}")
    kind = _ELEMENT.get(line["effective"], "")
    if kind == "skipped":
        # xunit2 has no element that both skips and tells why at length; the message says it all.
        ET.SubElement(element, "skipped", type=line["effective"], message=_message(line))
    elif kind:
        child = ET.SubElement(element, kind, type=line["effective"], message=_message(line))
        child.text = _clean(_details(line))
    return element


def _message(line: Line) -> str:
    return _clean(f"{line['effective']} {' '.join(line['rules'])}: {line['reason']}")


def _details(line: Line) -> str:
    source = line.get("source") or {}
    parts = [
        f"call: {line.get('call', '')}",
        f"expected: {line.get('expected', '')}",
        f"observed: {line.get('observed', '')}",
        f"table: {source.get('file', '')}:{source.get('line', '')}",
        f"reproduce: {line.get('repro', '')}",
    ]
    parts += [f"kernel: {text}" for text in (line.get("kernel") or {}).get("log", ())]
    return "\n".join(parts)


def _missing(case: str) -> Line:
    return {"case": case, "rules": [], "effective": judging.MISSED, "reason": "planned and never recorded"}


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
