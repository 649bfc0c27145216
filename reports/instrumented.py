"""Names the rules that a run on a plain kernel verifies, and that an instrumented kernel of the same release refutes. A
plain kernel does not notice that a driver reads beyond an object, if the result is the documented one.

instrumented.json has what runs on an instrumented kernel (docs/own-builds.md) have shown about rules that pass on a plain
kernel of the same release: the kernel's checks of memory reported an error in passing cases of these rules. An entry is
added when such a run is recorded, and removed when a later run of the same release no longer shows the report. The file
is JSON, because a reader of YAML is slow to load.
"""

import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.errors import format_count
from conformance.model.verdict import KEPT

_FILE = Path(__file__).with_suffix(".json")


@functools.cache
def recorded() -> tuple[Mapping[str, Any], ...]:
    """Returns the entries of the file: driver, release of the kernel, report, rules, and number of cases."""
    return tuple(json.loads(_FILE.read_bytes()))


def refuted(driver: str, kernel: str, verdicts: Mapping[str, str]) -> dict[str, str]:
    """Returns a sentence for each rule that passed on `driver` with the release `kernel`, and that an instrumented
    kernel of this release refutes. The mended stack's driver has another name, because its changes decide."""
    sentences: dict[str, str] = {}
    for entry in recorded():
        if driver != entry["driver"] or not kernel.startswith(f"{entry['kernel']}+"):
            continue
        for rule in entry["rules"]:
            if verdicts.get(rule) in KEPT and rule not in sentences:
                cases = format_count(entry["cases"], "passing case")
                sentences[rule] = (
                    f"an instrumented kernel refutes this verdict: in {cases} it reported"
                    f" {entry['report']} (run --stack forky-instrumented)"
                )
    return sentences


def headline_of(refutations: Mapping[str, str]) -> str:
    """Returns a part of a run's headline; empty if no rule is refuted."""
    if not refutations:
        return ""
    count = format_count(len(refutations), "passed rule")
    if len(refutations) == 1:
        verb = "is"
    else:
        verb = "are"
    return f"{count} {verb} refuted by an instrumented kernel: {', '.join(sorted(refutations))}"
