"""Sizes in an exported graph, such as `Symbol('s0', positive=True, integer=True)`: torch has sympy evaluate them, with
Python's `eval`, so they may only say what arithmetic says."""

from __future__ import annotations

import ast
import re

from services.vision.errors import BadModel

_LONGEST = 1_000  # characters
# sympy's own and torch's (`torch.utils._sympy.functions`)
_FUNCTIONS = frozenset(
    """
    Symbol Integer Float Rational Add Mul Pow Max Min Abs Mod And Or Not Equality Unequality Eq Ne
    LessThan StrictLessThan GreaterThan StrictGreaterThan Le Lt Ge Gt floor ceiling
    FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv LShift RShift PowByNatural
    FloatPow FloatTrueDiv IntTrueDiv IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt
    RoundDecimal ToFloat Identity
    """.split()  # noqa: SIM905  # a list of quoted words would be longer
)
_SYMBOL = re.compile(r"[suz]f?\d+|true|false|oo|int_oo")
_WORD = re.compile(r"\w{1,32}")
_PLAIN = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Load)


def check_expression(text: str) -> None:
    """Raises `BadModel` for anything but numbers, symbols, operators and the functions above."""
    try:
        tree = ast.parse(text.strip(), mode="eval") if len(text) <= _LONGEST else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or not all(map(_is_arithmetic, ast.walk(tree))):
        raise BadModel(f"an expression of sizes, got {text[:80]!r}")


def _is_arithmetic(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _FUNCTIONS
        case ast.keyword(arg=name):
            return name is not None
        case ast.Constant(value=str() as word):
            return _WORD.fullmatch(word) is not None
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name in _FUNCTIONS or _SYMBOL.fullmatch(name) is not None
        case _:
            return isinstance(node, _PLAIN)
