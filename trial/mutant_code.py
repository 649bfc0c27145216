"""Compiles the code of mutants: expressions and short bodies that replace methods and attributes of a class. A mistake in
the code is a mistake of its table, also if it shows only when the code runs."""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from conformance.errors import UserError
from conformance.yamldoc.nodes import Location, Mistake, Node
from conformance.yamldoc.reader import Reader, suggestion

_MISTAKES = "mistakes_in_code"  # of an instance: the mistakes that its code has shown
_FIRST_LINE = 2  # of the code, below the line with `def`
# The code of a method is in the place of `pass`. The engine takes any other exception for a failure of the harness.
_FRAME = """\
def {name}({parameters}):
 try:
  pass
 except Exception as raised:
  {checked}({owner}, raised)
  raise
"""


def refuse_mistakes(instance: object) -> None:
    """Raises UserError (status 2) if code of the instance's class has shown a mistake."""
    for mistake in vars(instance).get(_MISTAKES, ()):
        raise UserError(mistake)


def member(reader: Reader, name: str, code: Node, kind: Any, names: dict[str, Any]) -> Any:
    """Returns a function with the parameters of the method `name` of `kind`, or an attribute. `names` are the names that
    the code can use. Notes mistakes; after a mistake, the result is None."""
    replaced: Any = getattr(kind, name, None)
    is_method = inspect.isfunction(replaced)
    if is_method:
        parameters = list(inspect.signature(replaced).parameters)
    else:
        parameters = []
    before = len(reader.mistakes)
    tree = _parsed(reader, name, parameters, code)
    if tree is None:
        return None
    _note_unknown_names(reader, code, tree, [*parameters, *names, "was"], parameters[1:])
    _Was(reader, code, name, parameters[1:]).visit(tree)
    if len(reader.mistakes) > before:
        return None
    if not is_method:
        return _value(reader, name, code, tree, names)
    checked = f"_raised_in_{name}"
    opening = ", ".join(parameters)
    frame = ast.parse(
        _FRAME.format(name=name, parameters=opening, checked=checked, owner=parameters[0])
    )
    function: Any = frame.body[0]
    function.body[0].body = tree.body[0].body  # type: ignore[attr-defined]
    names[checked] = _checking(name, code, tree)
    return _defined(name, code, frame, names)


def _parsed(
    reader: Reader,
    name: str,
    parameters: Sequence[str],
    code: Node,
) -> ast.Module | None:
    """Returns the module of a function that has the expression, or the body, in `code`."""
    opening, text = f"def {name}({', '.join(parameters)}):\n ", str(code.value)
    try:
        try:
            tree = ast.parse(f"{opening} return ({text})")
        except SyntaxError:
            tree = ast.parse(opening + "\n ".join(text.splitlines()))
        compile(tree, str(code.location), "exec")  # finds further mistakes
        return tree
    except SyntaxError as error:
        reader.note(_place(code, error.lineno or _FIRST_LINE), f"not Python: {error.msg}")
        return None


def _note_unknown_names(
    reader: Reader,
    code: Node,
    tree: ast.AST,
    names: Sequence[str],
    parameters: Sequence[str],
) -> None:
    nodes = list(ast.walk(tree))
    names_known = {*names, *_assigned(nodes)}
    for node in nodes:
        if isinstance(node, ast.Name) and node.id not in {*names_known, *dir(builtins)}:
            near = suggestion(node.id, names_known)
            given = f"; the parameters are {', '.join(parameters)}" if parameters else ""
            reader.note(_place(code, node.lineno), f"unknown name {node.id!r}{near}{given}")


def _value(reader: Reader, name: str, code: Node, tree: ast.Module, names: dict[str, Any]) -> Any:
    """Returns the value of an attribute."""
    try:
        return _defined(name, code, tree, names)()
    except Exception as error:  # of the table's code
        reader.note(code.location, f"{name}: {type(error).__name__}: {error}")
        return None


def _defined(name: str, code: Node, tree: ast.Module, names: dict[str, Any]) -> Any:
    members: dict[str, Any] = {}
    compiled = compile(ast.fix_missing_locations(tree), str(code.location), "exec")
    exec(compiled, names, members)
    return members[name]


def _checking(name: str, code: Node, tree: ast.AST) -> Callable[[object, Exception], None]:
    """Returns a function that raises UserError for an exception that the code itself has caused. What a `raise` of the
    code raises is no mistake, nor is an exception of what the code calls."""
    raising = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Raise)}

    def check(owner: object, raised: Exception) -> None:
        frame = raised.__traceback__
        if frame is None or frame.tb_next is not None or frame.tb_lineno in raising:
            return
        text = f"{name} raises {type(raised).__name__}: {raised}"
        mistake = str(Mistake(_place(code, frame.tb_lineno), text))
        vars(owner).setdefault(_MISTAKES, []).append(mistake)
        raise UserError(mistake) from raised

    return check


def _place(code: Node, line: int) -> Location:
    """Returns the place of a line of the compiled code: in a block, its line of the file."""
    if "\n" not in str(code.value):
        return code.location
    return replace(code.location, line=code.location.line + line - 1, column=1)


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

    def __init__(self, reader: Reader, code: Node, method: str, parameters: Sequence[str]) -> None:
        self._reader, self._code = reader, code
        self._method, self._parameters = method, parameters

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Rewrites a call of `was`; visits the parts of any other call."""
        if not isinstance(node.func, ast.Name) or node.func.id != "was":
            return self.generic_visit(node)
        place = _place(self._code, node.lineno)
        if node.args:
            self._reader.note(place, "an argument of was has no name; write was(PARAMETER=VALUE)")
        arguments = {}
        for keyword in node.keywords:
            name = str(keyword.arg)
            if name not in self._parameters:
                near = suggestion(name, self._parameters)
                self._reader.note(place, f"{self._method} has no parameter {name!r}{near}")
            arguments[name] = self.visit(keyword.value)
        return self._call(arguments)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "was":
            return self._call({})
        return node

    def _call(self, others: dict[str, Any]) -> ast.AST:
        called: Any = ast.parse(
            f"plain(self).{self._method}({', '.join(self._parameters)})",
            mode="eval",
        ).body
        called.args = [others.get(arg.id, arg) for arg in called.args]
        return called  # type: ignore[no-any-return]
