"""The missing parts of an incomplete extension: one line for each forgotten step, with the file to edit.

docs/extending.md lists the steps. Each function looks at one kind of extension, and compares the places that have to
name the same thing. The loader reports mistakes in tables.
"""

import ast
import importlib
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import yaml

from commands import report
from conformance.device.libibverbs import Libibverbs
from conformance.device.uverbs import Uverbs
from conformance.execution.steps import STEPS, call_verb
from conformance.model import capability, vocabulary
from conformance.model.kind import Kind
from conformance.model.rules import Registry
from conformance.tables.suite import CASES, ROOT, Suite
from conformance.verbs import ENUMS, VERBS, Linkage, Verb
from fixtures.guest import recipe
from reference import stack
from reference.bench import ReferenceBench
from reference.device import Device
from trial import catalogue

_CAPABILITY = "conformance/model/capability.py"


def flags(needs: Mapping[str, str] = capability.FLAG_NEEDS) -> Iterator[str]:
    """The missing parts of an access flag."""
    for name, need in needs.items():
        if need and need not in capability.MEANING:
            yield f"flag {name} needs {need!r}, which is not a capability: add it to MEANING in {_CAPABILITY}"


def described(calls: Collection[str] = vocabulary.CALLS) -> Iterator[str]:
    """The missing parts of a verb: its description, and the function that makes the call."""
    folders = {path.parent.name: path for path in sorted(CASES.glob("*/rules.yaml"))}
    yield from not_callable({str(yaml.safe_load(path.read_text())["verb"]): path for path in folders.values()}, calls)
    for call in calls:
        if call not in STEPS and call not in (kind.traits.call for kind in Kind):
            yield f"no step makes the call {call}: add a function to STEPS in conformance/execution/steps.py"


def not_callable(files: Mapping[str, Path], calls: Collection[str]) -> Iterator[str]:
    """Verbs that cannot be called although a file of rules is about them."""
    for verb, path in files.items():
        if verb not in calls and verb not in vocabulary.VERBS:
            where = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            yield f"{where} is about {verb}, which is not described: add it to conformance/verbs/verbs.yaml"


def entries(verbs: Mapping[str, Verb] = VERBS) -> Iterator[str]:
    """The missing methods of verbs at an entry or in the reference that cannot be derived from the verb's
    description."""
    for verb in verbs.values():
        own = f"the method {verb.method}"
        plain = STEPS.get(verb.name, call_verb) is call_verb
        if plain and verb.linkage is Linkage.INLINE and verb.method not in vars(Libibverbs):
            yield f"{verb.name} has no symbol: add {own} to Libibverbs in conformance/device/libibverbs.py"
        if verb.command and verb.method not in vars(Uverbs):
            yield f"the kernel's command {verb.command} is not called: add {own} to conformance/device/uverbs.py"
        if plain and not hasattr(Device, verb.method):
            yield f"the reference lacks {verb.name}: add {own} to a class of reference/, such as Device"


def rules(suite: Suite, registry: Registry) -> Iterator[str]:
    """The missing parts of a rule: a case, and a seeded violation."""
    proved = {rule for case in suite.cases for rule in case.rules}
    violated = {each.rule for each in catalogue.VIOLATIONS}
    for rule in registry.values():
        if rule.id not in proved:
            folder = Path(rule.location.file).parent
            yield f"{rule.location}: rule {rule.id} has no case: add a row to a table of {folder}/"
        if rule.id not in violated and rule.id not in catalogue.UNTRIABLE:
            yield (
                f"{rule.location}: rule {rule.id} has no seeded violation: add a row `{rule.id} METHOD: …` to a table"
                " of trial/mutants/, or the reason why there is none to UNTRIABLE in"
                " trial/catalogue.py"
            )
    for rule_id in sorted((violated | set(catalogue.UNTRIABLE)) - set(registry)):
        yield f"a seeded violation names {rule_id}, which is not a rule: add it to a rules.yaml in cases/"


def retired(suite: Suite, planned: Collection[str]) -> Iterator[str]:
    """The missing retirements after a change of a flag or a row: ids that were used once, but are neither cases nor
    retired in their table.

    An id that is retired without an entry is retired at all entries. A flag retires the cases of its bit.
    """
    given_up = {
        f"{path.parent.name}/{path.stem}/{each['id']}"
        for path in CASES.glob("*/*.yaml")
        if path.name != "rules.yaml"
        for each in (yaml.safe_load(path.read_text()) if "\nretired:" in path.read_text() else {}).get("retired", ())
    }
    for case in planned:
        bit = re.search(r"/unknown_bits/\S*\bbit-(\d+)", case)
        if bit and int(bit[1]) not in ENUMS["ibv_access_flags"].unnamed_bits:
            continue
        if not suite.find(case) and given_up.isdisjoint({case, case.partition("@")[0]}):
            table, _, own = case.rpartition("/")
            yield f"the case {case} is gone: add {own} with the reason to `retired:` in cases/{table}.yaml"


def capabilities(meaning: Collection[str] = capability.MEANING) -> Iterator[str]:
    """The missing parts of a capability: the code that finds out whether a stack has the capability."""
    known = ReferenceBench().capabilities()
    found = {*known.declared, *known.reachable, *(name for each in known.offered.values() for name in each)}
    for name in meaning:
        if name not in found:
            yield (
                f"capability {name} is never found out: add it to declared_capabilities or PRECONDITIONS in"
                f" {_CAPABILITY},"
                " or to offered_by in conformance/execution/offered.py"
            )
    for name in sorted(found - set(meaning)):
        yield f"capability {name} has no meaning: add it to MEANING in {_CAPABILITY}"


def preconditions(reach: Collection[str] = capability.PRECONDITIONS) -> Iterator[str]:
    """The missing parts of a precondition: the code that sets it on a real stack, and a reference that meets it."""
    files = ("conformance/execution/offered.py", "conformance/execution/capabilities.py")
    nodes = [node for file in files for node in ast.walk(ast.parse((ROOT / file).read_bytes()))]
    texts = {node.value for node in nodes if isinstance(node, ast.Constant)}
    for name in reach:
        if name not in texts:
            yield f"nothing sets the precondition {name}: add it to reachable_on in conformance/execution/offered.py"
        if not any(each.reach(name) for each in stack.STACKS):
            yield f"no reference meets the precondition {name}: add a stack with it to STACKS in reference/stack.py"


def formats(folder: Path = ROOT / "reports") -> Iterator[str]:
    """Modules with `render` that cannot be chosen as a report format."""
    chosen = {f"reports.{name}" for name in report.FORMATS}
    for path in sorted(folder.glob("[!_]*.py")):
        names = {node.name for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.FunctionDef)}
        if "render" in names and f"reports.{path.stem}" not in chosen:
            yield f"reports/{path.name} cannot be chosen: add its render to FORMATS in commands/report.py"


def stacks(recipes: Mapping[str, recipe.Recipe] | None = None) -> Iterator[str]:
    """The missing parts of a stack of the guest."""
    for name, each in (recipe.STACKS if recipes is None else recipes).items():
        if each.stack != name:
            yield f"the stack {name} calls itself {each.stack}: write stack={name!r} in fixtures/guest/recipe.py"


def kinds(known: Collection[Kind] = tuple(Kind)) -> Iterator[str]:
    """The missing parts of a kind of case: its runner, its call and its folder."""
    runners = importlib.import_module("conformance.sweeps.runners").runners(lambda case, progress: {})
    for kind in known:
        name = f"the kind of case {kind.traits.name}"
        if kind is not Kind.POINT and kind not in list(runners):
            yield f"{name} has no runner: add one to runners in conformance/sweeps/runners.py"
        if kind.traits.call and kind.traits.call not in vocabulary.CALLS:
            yield f"{name} has no call {kind.traits.call}: add it to CALLS in conformance/model/vocabulary.py"
        if kind.traits.folder and not (CASES / kind.traits.folder).is_dir():
            yield f"{name} has no tables: add the folder cases/{kind.traits.folder}/"
