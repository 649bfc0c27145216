"""Compiles the code of mutants: expressions and short bodies that replace methods and attributes of a class. A mistake in
the code is a mistake of its table, also if it shows only when the code runs."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from conformance.errors import UserError
from conformance.yamldoc.nodes import Location, Mistake, Node
from conformance.yamldoc.reader import Reader, suggestion

_MISTAKES = "mistakes_in_code"  # of an instance: the mistakes that its code has shown
_FIRST_LINE = 2  # of the code, below the line with `def`
_BUILTINS = frozenset(dir(builtins))
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
        parameters = _parameters(replaced)
    else:
        parameters = ()
    before = len(reader.mistakes)
    tree = _parsed(reader, name, parameters, code)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    _note_unknown_names(reader, code, nodes, names, parameters)
    _Was(reader, code, name, parameters[1:]).visit(tree)
    if is_method:
        checked = f"_raised_in_{name}"
        _set_in_frame(tree, name, parameters, checked)
        names[checked] = _checking(name, code, nodes)
    compiled = _compiled(reader, code, tree)
    if compiled is None or len(reader.mistakes) > before:
        return None
    if not is_method:
        return _value(reader, name, code, compiled, names)
    return _defined(name, compiled, names)


@functools.cache
def _parameters(method: Callable[..., Any]) -> Sequence[str]:
    return tuple(inspect.signature(method).parameters)


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
            return ast.parse(f"{opening} return ({text})")
        except SyntaxError:
            return ast.parse(opening + "\n ".join(text.splitlines()))
    except SyntaxError as error:
        _note_not_python(reader, code, error)
        return None


def _note_not_python(reader: Reader, code: Node, error: SyntaxError) -> None:
    reader.note(_place(code, error.lineno or _FIRST_LINE), f"not Python: {error.msg}")


def _note_unknown_names(
    reader: Reader,
    code: Node,
    nodes: Sequence[ast.AST],
    names: Collection[str],
    parameters: Sequence[str],
) -> None:
    of_code = {*parameters, "was", *_assigned(nodes)}
    for node in nodes:
        if not isinstance(node, ast.Name):
            continue
        if node.id in of_code or node.id in names or node.id in _BUILTINS:
            continue
        near = suggestion(node.id, {*of_code, *names})
        given = f"; the parameters are {', '.join(parameters[1:])}" if parameters[1:] else ""
        reader.note(_place(code, node.lineno), f"unknown name {node.id!r}{near}{given}")


def _set_in_frame(tree: Any, name: str, parameters: Sequence[str], checked: str) -> None:
    """Makes the code of a method the body of `try` in the frame."""
    words = {"name": name, "parameters": ", ".join(parameters), "owner": parameters[0]}
    function: Any = ast.parse(_FRAME.format(**words, checked=checked)).body[0]
    function.body[0].body = tree.body[0].body
    tree.body = [function]


def _compiled(reader: Reader, code: Node, tree: ast.Module) -> CodeType | None:
    """Compiles the code, which finds mistakes that the parser does not find."""
    try:
        compiled: CodeType = compile(tree, str(code.location), "exec")
        return compiled
    except SyntaxError as error:
        _note_not_python(reader, code, error)
        return None


def _value(reader: Reader, name: str, code: Node, compiled: CodeType, names: dict[str, Any]) -> Any:
    """Returns the value of an attribute."""
    try:
        return _defined(name, compiled, names)()
    except Exception as error:  # of the table's code
        reader.note(code.location, f"{name}: {type(error).__name__}: {error}")
        return None


def _defined(name: str, compiled: CodeType, names: dict[str, Any]) -> Any:
    members: dict[str, Any] = {}
    exec(compiled, names, members)
    return members[name]


def _checking(
    name: str, code: Node, nodes: Sequence[ast.AST]
) -> Callable[[object, Exception], None]:
    """Returns a function that raises UserError for an exception that the code itself has caused. What a `raise` of the
    code raises is no mistake, nor is an exception of what the code calls."""
    raising = {node.lineno for node in nodes if isinstance(node, ast.Raise)}

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
