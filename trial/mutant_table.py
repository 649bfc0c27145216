"""Reads tables of mutants. A mutant replaces methods of the reference by expressions or short bodies. A table is a YAML file:

    - NAME: What the mutant does, in a sentence.
      RULE METHOD: EXPRESSION

- `RULE blind METHOD` marks a mutant whose author had not seen the cases, and `RULE permitted METHOD` a mutant that
  violates no rule. METHOD is a method of the reference's device or, as CLASS.METHOD, of the class CLASS.
- The expression can use the method's parameters and the names of the vocabulary. `was` is the value that the replaced
  method returns for the same arguments, and `was(access=0)` its value for other arguments. `plain(self).other()` calls
  the method `other` of the class without the mutant. Several lines are the body of a function.
- Further methods of the class follow, as `METHOD: EXPRESSION`. Other names are attributes of the class, and `setup`
  creates the state of an instance.
- Each item of `also`, `RULE`, `RULE blind` or `RULE blind OTHER-NAME`, defines a further mutant with the same code.
  `departs` has the rules of the level `should` that a permitted mutant does not follow.

A behaviour of personas is a row without a rule: `METHOD: EXPRESSION` follows the sentence. `masks` has the violations
that a behaviour hides: with this behaviour, a driver returns the same results with and without the violation.
"""

import ast
import builtins
import errno
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from conformance.errors import UserError
from conformance.yamldoc.nodes import Node, TextError
from conformance.yamldoc.parsing import read_file

BLIND, _PERMITTED = "blind", "permitted"
MASKS = "masks"


@dataclass(frozen=True)
class Violation:
    """A mutant. `kind`, a class of the reference, violates `rule`; `about` describes how. A
    `permitted` mutant complies with `rule`; cases of the rules of the level `should` in `departs_from` may fail.
    `written` is BLIND if the mutant's author had not seen the cases."""

    name: str
    rule: str
    about: str
    kind: type[Any]
    departs_from: tuple[str, ...] = ()
    permitted: bool = False
    written: str = ""


def mutants_of(
    package: ModuleType,
    base: type[Any],
    vocabulary: Sequence[ModuleType],
) -> Iterator[Violation]:
    """Yields the mutants in the tables of a package. `base` is the class of a METHOD that names no class. Raises
    UserError (status 2) with the place of a mistake."""
    shared = _names(vocabulary, base)
    for table in sorted(Path(str(package.__file__)).parent.glob("[!_]*.yaml")):
        names = {**shared, "__name__": f"{package.__name__}.{table.stem}"}
        for row, fields in _rows(table):
            try:
                yield from _mutants(row, fields, names, base.__name__)
            except UserError:
                raise
            except Exception as error:  # of the row's text, or of its code
                raise _mistake(row, f"{type(error).__name__}: {error}") from error


def behaviours_in(
    path: Path,
    base: type[Any],
    vocabulary: Sequence[ModuleType],
) -> Iterator[tuple[str, type[Any]]]:
    """Yields the classes of rows without rules. In CLASS.METHOD, CLASS can be an earlier row. Raises UserError (status
    2)."""
    names = {**_names(vocabulary, base), "__name__": path.stem}
    for row, fields in _rows(path):
        (name, about), (first, code), *more = fields.items()
        owner, _, method = first.rpartition(".")
        names[name] = _kind(
            row,
            name,
            str(about.value),
            names[owner or base.__name__],
            [(method, code), *more],
            names,
        )
        yield name, names[name]


def _names(vocabulary: Sequence[ModuleType], base: type[Any]) -> dict[str, Any]:
    shared = {
        name: value
        for code in (errno, *vocabulary)
        for name, value in vars(code).items()
        if name[0] != "_"
    }
    return {**shared, base.__name__: base}


def _rows(path: Path) -> Iterator[tuple[Node, dict[str, Node]]]:
    try:
        document = read_file(path)
    except TextError as error:
        raise UserError(str(error)) from error
    for row in document.value if isinstance(document.value, tuple) else ():
        yield row, dict(row.value) if isinstance(row.value, dict) else {}


def _mutants(
    row: Node,
    fields: dict[str, Node],
    names: dict[str, Any],
    base: str,
) -> Iterator[Violation]:
    also, departs = fields.pop("also", None), fields.pop("departs", None)
    if len(fields) < 2:
        raise _mistake(row, "a mutant is NAME: SENTENCE and RULE METHOD: EXPRESSION")
    (name, about), (mark, code), *more = fields.items()
    if len(mark.split()) < 2:
        raise _mistake(row, f"{mark!r} is not RULE METHOD")
    rule, *flags, method = mark.split()
    owner, _, method = method.rpartition(".")
    kind: Any = names.get(owner or base)
    if not hasattr(kind, method) or not set(flags) <= {BLIND, _PERMITTED}:
        raise _mistake(row, f"{mark!r} is not RULE [blind] [permitted] METHOD with a known method")
    mutants = _kind(row, name, str(about.value), kind, [(method, code), *more], names)
    if departs:
        departs_from = tuple(str(departs.value).split())
    else:
        departs_from = ()
    if BLIND in flags:
        written = BLIND
    else:
        written = ""
    first = Violation(
        name,
        rule,
        str(about.value),
        mutants,
        departs_from,
        _PERMITTED in flags,
        written,
    )
    yield first
    for item in _items(also) if also else ():
        of, *rest = str(item.value).split()
        blind = rest[:1] == [BLIND]
        other = (rest[blind:] or [name])[0]
        yield replace(first, rule=of, written=BLIND if blind else "", name=other)


def _kind(
    row: Node,
    name: str,
    about: str,
    base: type[Any],
    code: Sequence[tuple[str, Node]],
    names: dict[str, Any],
) -> type[Any]:
    """Returns a subclass of `base` with the members of a row. Raises UserError (status 2)."""
    masks = tuple(str(item.value) for key, node in code if key == MASKS for item in _items(node))
    code = [(key, node) for key, node in code if key != MASKS]
    for key, _ in code:
        if not hasattr(base, key) and not any(f"self.{key}" in str(node.value) for _, node in code):
            raise _mistake(row, f"{base.__name__} has no {key!r}, and this row does not read it")
    names = {**names, "plain": None}
    members = {key: _member(key, node, base, names) for key, node in code}
    members |= {MASKS: masks, "__doc__": about, "__module__": names["__name__"]}
    kind = type(name.replace("-", "_"), (base,), members)
    # super(), because a persona inherits from several such classes
    names["plain"] = partial(super, kind)
    return kind


def _member(name: str, code: Node, kind: Any, names: dict[str, Any]) -> Any:
    """Returns a function with the replaced method's parameters, or an attribute. Raises UserError (status 2)."""
    replaced: Any = getattr(kind, name, None)
    method = inspect.isfunction(replaced)
    if method:
        parameters = list(inspect.signature(replaced).parameters)
    else:
        parameters = []
    opening, text = f"def {name}({', '.join(parameters)}):\n ", str(code.value)
    try:
        try:
            tree = ast.parse(f"{opening} return ({text})")
        except SyntaxError:
            tree = ast.parse(opening + "\n ".join(text.splitlines()))
    except SyntaxError as error:
        raise _mistake(code, f"not Python: {error.msg}") from error
    nodes = list(ast.walk(tree))
    names_known = {*parameters, *names, "was", *dir(builtins), *_assigned(nodes)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in names_known:
            if method:
                opening = f"; {name} has the parameters {', '.join(parameters[1:]) or 'none'}"
            else:
                opening = ""
            raise _mistake(code, f"unknown name {node.id!r}{opening}")
    _Was(name, parameters[1:]).visit(tree)
    members: dict[str, Any] = {}
    exec(compile(ast.fix_missing_locations(tree), str(code.location), "exec"), names, members)
    if method:
        return members[name]
    return members[name]()


def _items(node: Node) -> tuple[Node, ...]:
    if isinstance(node.value, tuple):
        return node.value
    return (node,)


def _assigned(nodes: Sequence[ast.AST]) -> set[str]:
    names = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, (ast.ExceptHandler, ast.FunctionDef)):
            names.add(str(node.name))
        elif isinstance(node, ast.arg):
            names.add(node.arg)
    return names


class _Was(ast.NodeTransformer):
    """Replaces `was` and `was(PARAMETER=…)` by `plain(self).METHOD(…)`."""

    def __init__(self, method: str, parameters: list[str]) -> None:
        self._method, self._parameters = method, parameters

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrites a call of `was`; visits the parts of any other call."""
        keywords = {str(keyword.arg): self.visit(keyword.value) for keyword in node.keywords}
        if isinstance(node.func, ast.Name) and node.func.id == "was":
            return self._call(keywords)
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "was":
            return self._call({})
        return node

    def _call(self, others: Mapping[str, Any]) -> ast.AST:
        called: Any = ast.parse(
            f"plain(self).{self._method}({', '.join(self._parameters)})",
            mode="eval",
        ).body
        called.args = [others.get(arg.id, arg) for arg in called.args]
        return called  # type: ignore[no-any-return]


def _mistake(node: Node, message: str) -> UserError:
    return UserError(f"{node.location}: {message}", status=2)
