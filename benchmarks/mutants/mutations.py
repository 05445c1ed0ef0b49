"""Small wrong changes of a source text, each of which a test should notice.

Annotations, decorators and the texts of messages are left as they are.
"""

import ast
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

_COMPARED = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In},
}
_COMPUTED = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
    **{ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd},
}
_JOINED = {ast.And: ast.Or, ast.Or: ast.And}
_LEFT_ALONE = ("annotation", "returns", "decorator_list")


class Mutation(NamedTuple):
    """One change. Function and lines identify it, however the rest of the file changes."""

    function: str  # qualified name, or "" outside of functions
    first: int  # line numbers of what is changed
    last: int
    kind: str
    before: str  # the line where the change begins
    after: str
    text: str  # the whole source with the change


def mutations(source: str) -> Iterator[Mutation]:
    """Every change of a source text, in the order of its lines."""
    whole = source.encode()
    starts = [0, *accumulate(map(len, whole.splitlines(keepends=True)), initial=0)]  # of lines, counted from one
    for function, node in _within(ast.parse(source), ""):
        for kind, place, new in _changes(node, bool(function)):
            begin, end = starts[place.lineno] + place.col_offset, starts[place.end_lineno] + place.end_col_offset
            changed = ast.unparse(ast.fix_missing_locations(new))
            changed = f"({changed})" if isinstance(place, ast.expr) else changed
            text = (whole[:begin] + changed.encode() + whole[end:]).decode()
            before, after = (lines_of.split("\n")[place.lineno - 1].strip() for lines_of in (source, text))
            yield Mutation(function, place.lineno, place.end_lineno, kind, before, after, text)


def _within(node: ast.AST, function: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node that may change, with the function it is in."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        function = f"{function}.{node.name}".lstrip(".")
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and field not in _LEFT_ALONE:
                yield function, child
                yield from _within(child, function)


def _changes(node: ast.AST, in_function: bool) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """The kind of each change of a node, what is replaced, and by what."""
    match node:
        case ast.Compare(left, [operator, *others], values) if type(operator) in _COMPARED:
            yield "comparison", node, ast.Compare(left, [_COMPARED[type(operator)](), *others], values)
        case ast.BinOp(left, operator, right) if type(operator) in _COMPUTED and not _is_text(left) and in_function:
            yield "arithmetic", node, ast.BinOp(left, _COMPUTED[type(operator)](), right)
        case ast.AugAssign(target, operator, value):
            yield "statement removed", node, ast.Pass()
            if type(operator) in _COMPUTED:
                yield "arithmetic", node, ast.AugAssign(target, _COMPUTED[type(operator)](), value)
        case ast.BoolOp(operator, values):
            yield "boolean", node, ast.BoolOp(_JOINED[type(operator)](), values)
        case ast.UnaryOp(ast.Not(), operand):
            yield "not", node, operand
        case ast.UnaryOp(ast.USub(), operand):
            yield "arithmetic", node, operand
        case ast.Constant(bool(value)):
            yield "constant", node, ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield "constant", node, ast.Constant(value + 1)
            yield "constant", node, ast.Constant(0 if value else -1)
        case ast.Call(called, [first, second, *others], named) if not {ast.Starred} & {type(first), type(second)}:
            yield "arguments swapped", node, ast.Call(called, [second, first, *others], named)
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield "return value", node, ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield "statement removed", node, ast.Pass()
        case ast.If(test) | ast.IfExp(test) | ast.While(test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield "not", test, ast.UnaryOp(ast.Not(), test)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
