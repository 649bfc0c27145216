"""Tests that no step of docs/extending.md was forgotten in the tree. Each check is about one kind of extension: it
compares the files that must name the same thing, and reports each missing step in one line, with the file to edit. The
loader reports mistakes in tables."""

import ast
import importlib
import json
import lzma
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from commands import report
from conformance.device.libibverbs import Libibverbs
from conformance.device.uverbs import Uverbs
from conformance.execution.steps import STEPS, call_verb
from conformance.model import capability, vocabulary
from conformance.model.kind import Kind
from conformance.model.needs import FLAG_NEEDS
from conformance.tables.suite import CASES, ROOT, load_suite
from conformance.verbs import ENUMS, VERBS, Linkage
from fixtures.guest import recipe
from trial import catalogue
from trial.reference import stack
from trial.reference.bench import ReferenceBench
from trial.reference.device import Device
from trial.scopes import missing_in
from trial.scopes import scopes as scopes_of_file

# The prefixes of rules whose subject is another than that of most rules of their file.
_FURTHER_PREFIXES = ("CAP", "KREG", "ODPC", "QMR", "STAT", "WC", "WR")
_OF_AN_EXAMPLE = "99"  # the release of the examples in docs/extending.md, whose id is not the next
_CAPABILITY = "conformance/model/capability.py"
_DECLARED = "conformance/model/declared.py"


def flags() -> Iterator[str]:
    for name, need in FLAG_NEEDS.items():
        if need and need not in capability.MEANING:
            yield f"flag {name} needs {need!r}, which is not a capability: add it to MEANING in {_CAPABILITY}"


def described() -> Iterator[str]:
    """Verbs without a description, and calls without a function."""
    for path in sorted(CASES.glob("*/rules.yaml")):
        verb = yaml.safe_load(path.read_text())["verb"]
        if verb not in vocabulary.CALLS and verb not in vocabulary.VERBS:
            yield f"{path} is about {verb}, which is not described: add it to conformance/verbs/verbs.yaml"
    for call in vocabulary.CALLS:
        if call not in STEPS and call not in (kind.traits.call for kind in Kind):
            yield f"no function issues the call {call}: add one to STEPS in conformance/execution/steps.py"


def entries() -> Iterator[str]:
    """Methods that an entry or the reference lacks, although the verb's description alone cannot replace them."""
    for verb in VERBS.values():
        method = f"the method {verb.method}"
        plain = STEPS.get(verb.name, call_verb) is call_verb
        if plain and verb.linkage is Linkage.INLINE and verb.method not in vars(Libibverbs):
            yield f"{verb.name} has no symbol: add {method} to Libibverbs in conformance/device/libibverbs.py"
        if verb.command and verb.method not in vars(Uverbs):
            yield f"the kernel's command {verb.command} is not called: add {method} to conformance/device/uverbs.py"
        if plain and not hasattr(Device, verb.method):
            yield f"the reference lacks {verb.name}: add {method} to a class of trial/reference/, such as Device"


def rules() -> Iterator[str]:
    suite = load_suite()
    proved = {rule for case in suite.cases for rule in case.rules}
    violated = {violation.rule for violation in catalogue.VIOLATIONS}
    for rule in suite.registry.values():
        if rule.id not in proved:
            folder = Path(rule.location.file).parent
            yield f"{rule.location}: rule {rule.id} has no case: add a row to a table of {folder}/"
        if rule.id not in violated and rule.id not in catalogue.UNTRIABLE:
            yield (
                f"{rule.location}: rule {rule.id} has no seeded violation: add a row `{rule.id} METHOD: …` to a table"
                " of trial/mutants/ or, if no case could detect it, add the reason to UNTRIABLE in trial/catalogue.py"
            )
    for rule_id in sorted((violated | set(catalogue.UNTRIABLE)) - set(suite.registry)):
        yield f"a seeded violation names {rule_id}, which is not a rule: add it to a rules.yaml in cases/"


def scopes() -> Iterator[str]:
    yield from missing_in(scopes_of_file(), load_suite())


def numbers() -> Iterator[str]:
    """Rules with another prefix than their file's first rule, or with another number than the next: ids are permanent."""
    numbers_of: dict[str, set[int]] = {}
    for path in sorted(CASES.glob("*/rules.yaml")):
        content = yaml.safe_load(path.read_text())
        in_force = [rule for rule in content["rules"] if rule["since"] != _OF_AN_EXAMPLE]
        ids = [rule["id"].split("-") for rule in [*in_force, *(content.get("retired") or ())]]
        for prefix, number in ids:
            if prefix not in (ids[0][0], *_FURTHER_PREFIXES):
                yield (
                    f"{path.relative_to(ROOT)}: {prefix}-{number} has not the prefix {ids[0][0]} of this file: change the"
                    " id or, if the rules have a further subject, add the prefix to _FURTHER_PREFIXES in"
                    f" tests/{Path(__file__).name}"
                )
                continue
            numbers_of.setdefault(prefix, set()).add(int(number[:2]))
    for prefix, given in numbers_of.items():
        if missing := set(range(1, max(given))) - given:
            yield (
                f"{prefix}-{max(given):02} in cases/ has not the next number: no rule has or had the id"
                f" {prefix}-{min(missing):02}"
            )


def retired() -> Iterator[str]:
    """Cases that an earlier run planned (an old run, or the run that the documentation quotes) and that are neither in
    the tables nor in `retired:`. An id without @ENTRY in `retired:` is retired at all entries, and @ENTRY alone retires
    all cases at this entry. The cases about an unknown bit are retired when the bit becomes a flag."""
    with lzma.open(ROOT / "docs" / "runs" / "rxe.jsonl.xz", "rt") as recorded:
        planned = json.loads(recorded.readline())["planned"]
    planned += (Path(__file__).with_name("old_results") / "planned.txt").read_text().splitlines()
    assert len(planned) > 2500
    suite = load_suite()
    given_up = {
        f"{path.parent.name}/{path.stem}/{entry['id']}"
        for path in CASES.glob("*/*.yaml")
        if path.name != "rules.yaml" and "\nretired:" in path.read_text()
        for entry in yaml.safe_load(path.read_text())["retired"]
    }
    for case in planned:
        bit = re.search(r"/unknown_bits/\S*\bbit-(\d+)", case)
        if bit and int(bit[1]) not in ENUMS["ibv_access_flags"].unnamed_bits:
            continue
        table, _, row = case.rpartition("/")
        name, _, entry = row.partition("@")
        names = {case, f"{table}/{name}", f"{table}/@{entry}"}
        if not suite.find(case) and given_up.isdisjoint(names):
            yield f"the case {case} is gone: add {row} with the reason to `retired:` in cases/{table}.yaml"


def capabilities() -> Iterator[str]:
    """Capabilities whose presence no code determines, and capabilities without a meaning."""
    capabilities_known = ReferenceBench().capabilities()
    capabilities_named = {
        *capabilities_known.declared,
        *capabilities_known.reachable,
        *(name for names in capabilities_known.offered.values() for name in names),
    }
    for name in capability.MEANING.keys() - capabilities_named:
        yield (
            f"capability {name} is never determined: add it to declared_capabilities in {_DECLARED}, to PRECONDITIONS"
            f" in {_CAPABILITY}, or to offered_by in conformance/execution/offered.py"
        )
    for name in capabilities_named - capability.MEANING.keys():
        yield f"capability {name} has no meaning: add it to MEANING in {_CAPABILITY}"


def preconditions() -> Iterator[str]:
    """Preconditions that no code sets on a real stack, or that no reference has."""
    files = ("conformance/execution/offered.py",)
    nodes = [node for file in files for node in ast.walk(ast.parse((ROOT / file).read_bytes()))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    for name in capability.PRECONDITIONS:
        if name not in texts:
            yield f"nothing sets the precondition {name}: add it to reachable_on in conformance/execution/offered.py"
        if not any(stack.reach(name) for stack in stack.STACKS):
            yield f"no reference has the precondition {name}: add a stack with it to STACKS in trial/reference/stack.py"


def formats() -> Iterator[str]:
    """Modules with `render` that cannot be chosen as a report format."""
    chosen = {f"reports.{name}" for name in report.FORMATS}
    for path in sorted((ROOT / "reports").glob("[!_]*.py")):
        names = {
            node.name
            for node in ast.parse(path.read_bytes()).body
            if isinstance(node, ast.FunctionDef)
        }
        if "render" in names and f"reports.{path.stem}" not in chosen:
            yield f"reports/{path.name} cannot be chosen: add its render to FORMATS in commands/report.py"


def stacks() -> Iterator[str]:
    for name, stack_row in recipe.STACKS.items():
        if stack_row.stack != name:
            yield f"the stack {name} calls itself {stack_row.stack}: write stack={name!r} in fixtures/guest/recipe.py"


def kinds() -> Iterator[str]:
    """Kinds of cases without a runner, a call or a folder."""
    runners = importlib.import_module("conformance.combinations.runners").RUNNERS
    for kind in Kind:
        name = f"the kind of case {kind.traits.name}"
        if kind is not Kind.POINT and kind not in list(runners):
            yield f"{name} has no runner: add one to RUNNERS in conformance/combinations/runners.py"
        if kind.traits.call and kind.traits.call not in vocabulary.CALLS:
            yield f"{name} has no call {kind.traits.call}: add it to CALLS in conformance/model/vocabulary.py"
        if kind.traits.folder and not (CASES / kind.traits.folder).is_dir():
            yield f"{name} has no tables: add the folder cases/{kind.traits.folder}/"


CHECKS = (
    flags,
    described,
    entries,
    rules,
    scopes,
    numbers,
    retired,
    capabilities,
    preconditions,
    formats,
    stacks,
    kinds,
)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.__name__))
def test_no_step_of_extending_is_missing(check):
    complaints = "\n".join(check())
    assert not complaints, complaints


def test_the_page_names_each_module_in_which_the_reference_decides():
    page = (ROOT / "docs/extending.md").read_text()
    modules = {base.__module__ for base in Device.__mro__ if base is not object}
    assert {name for name in modules if f"{name.replace('.', '/')}.py" not in page} == set()
