"""Tests that no verdict, defect or conclusion depends on a sentence: neither on a sentence of the suite, nor on the reason
in a record. The suite is copied with nonsense in place of its sentences, and judges and reports every recorded run."""

import ast
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.tables.suite import ROOT
from kinds import Folders

RUNS = sorted((ROOT / "docs" / "runs").glob("*.jsonl.xz"))
# The modules that have sentences about results. The patterns in judging/kernel_alarms.py are texts of the kernel,
# sweeps/native.py has names of C, and the texts of defects/cause.py and symptom.py are parts of permanent fingerprints.
SENTENCES = (
    "conformance/model/capability.py",
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "reports").glob("*.py"))),
    *(
        str(path.relative_to(ROOT))
        for layer in ("judging", "combinations", "sweeps", "defects", "results")
        for path in sorted((ROOT / "conformance" / layer).glob("*.py"))
        if path.name not in ("kernel_alarms.py", "native.py", "cause.py", "symptom.py")
    ),
)
# Three words or more.
SENTENCE = re.compile(r".*\w[^\w\n]* [^\w\n]*\w.* .*\w.*")
NONSENSE = "xyzzy SUCCESS of 42"
NONSENSE_OF_RECORDS = "plugh FAIL of 43"
# Prints what the suite concludes from runs, and from their observations, without a text for people.
PROGRAM = """
import json, sys
from pathlib import Path
from conformance.defects import cause_of, severity_of, symptoms_of
from conformance.model.record_shape import completed
from conformance.model.verdict import VIOLATIONS
from conformance.results.records import read_written
from conformance.results.rejudge import rejudge
from conformance.tables.suite import load_suite
from reports.digest import read

suite = load_suite()
for name in sys.argv[1:]:
    run = read(Path(name))
    defects = [
        (defect.fingerprint, defect.severity.name, list(defect.cases)) for defect in run.violations.defects
    ]
    parts = [(part.standing.name, part.count) for part in run.summary.parts]
    judged = []
    for result in rejudge(suite, read_written(Path(name)), Path(name)):
        record = completed(result.record)
        causes = []
        if record["verdict"] in VIOLATIONS:
            for symptom in symptoms_of(record):
                causes.append((cause_of(symptom).fingerprint, severity_of(symptom).name))
        judged.append((record["case"], record["verdict"], causes, record["rule_verdicts"]))
    verdicts = run.verdicts
    concluded = run.summary.status, dict(verdicts.of_rules), sorted(verdicts.restrictions), sorted(verdicts.apart)
    print(json.dumps([concluded, parts, defects, judged]))
"""


class _Nonsense(ast.NodeTransformer):
    """Replaces every sentence of a module, except the docstrings."""

    def __init__(self) -> None:
        self.replaced = 0

    def visit_Expr(self, node: ast.Expr) -> ast.Expr:
        is_docstring = isinstance(node.value, ast.Constant)
        if is_docstring:
            return node
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Call(self, node: ast.Call) -> ast.Call:
        of_words = isinstance(node.func, ast.Attribute) and node.func.attr in ("split", "compile")
        if of_words:  # a list of names in one text, or a pattern
            return node
        return self.generic_visit(node)  # type: ignore[return-value]

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if not isinstance(node.value, str) or not SENTENCE.fullmatch(node.value):
            return node
        self.replaced += 1
        number = zlib.crc32(node.value.encode())  # different sentences remain different
        return ast.copy_location(ast.Constant(f"{NONSENSE} {number}"), node)


@pytest.fixture(scope="module")
def nonsensical(tmp_path_factory: Folders) -> Path:
    """A copy of the suite whose sentences are nonsense."""
    root = tmp_path_factory.mktemp("nonsense")
    for name in ("conformance", "reports", "fixtures", "cases"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in SENTENCES:
        module = ast.parse((root / name).read_text())
        nonsense = _Nonsense()
        (root / name).write_text(ast.unparse(nonsense.visit(module)))
        if name == "conformance/model/capability.py":
            assert nonsense.replaced >= 50
    return root


def unpacked(folder: Path, *, with_reasons: bool) -> list[str]:
    """Unpacks every recorded run, with its reasons or with nonsense in their place."""
    folders = []
    for packed in RUNS:
        run = folder / packed.name.partition(".")[0]
        run.mkdir()
        with lzma.open(packed, "rt") as file:
            lines = file.read().splitlines()
        if not with_reasons:
            lines = list(map(_without_reason, lines))
        (run / "results.jsonl").write_text("".join(f"{line}\n" for line in lines))
        folders.append(str(run))
    return folders


def _without_reason(line: str) -> str:
    record = json.loads(line)
    for part in _parts(record):
        if "reason" in part:
            part["reason"] = NONSENSE_OF_RECORDS
    return json.dumps(record)


def _parts(record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield record
    for name in ("in_run", "alone"):
        if record.get(name):
            yield record[name]


def concluded(root: Path, runs: list[str]) -> list[Any]:
    """Returns what the suite in `root` concludes from the runs."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    command = [sys.executable, "-P", "-c", PROGRAM, *runs]
    process = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert process.returncode == 0, process.stderr
    return list(map(json.loads, process.stdout.splitlines()))


def test_nothing_depends_on_a_sentence(nonsensical, tmp_path):
    plain, nonsense = tmp_path / "plain", tmp_path / "nonsense"
    plain.mkdir()
    nonsense.mkdir()
    before = concluded(ROOT, unpacked(plain, with_reasons=True))
    assert len(before) == len(RUNS) >= 4
    assert concluded(nonsensical, unpacked(nonsense, with_reasons=False)) == before
