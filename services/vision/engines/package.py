"""What torch is given of a `.pt2`: its graph, its weights and their description, and nothing that it would run.

`torch.export.load` (torch 2.13) unpickles what the archive marks as pickled, unpickles the sample inputs without limits
when it cannot with them, evaluates expressions (`sympy.sympify`), calls what a node's target names, compiles a guard's
code, and loads shared libraries. So the archive is not handed on: another one is made of what was looked at. Sample
inputs, node metadata, guards and extra files are left out, for they only help debugging; a file that has code
in any other place is refused.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
from collections.abc import Iterator
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

from services.vision.errors import BadModel
from services.vision.files import Source

_GRAPH, _SAMPLES = "models/model.json", "data/sample_inputs/model.pt"
_PAYLOADS = ("data/weights/model_weights_config.json", "data/constants/model_constants_config.json")
_KEPT = re.compile(
    r"archive_format|archive_version|byteorder|\.data/(version|serialization_id)|\.format_version|\.storage_alignment"
    rf"|{_GRAPH}|{_PAYLOADS[0]}|{_PAYLOADS[1]}|data/weights/weight_\d+|data/constants/tensor_\d+"
)
_LEFT_OUT = re.compile(rf"{_SAMPLES}|extra/.*")
_RAW = re.compile(r"(weight|tensor)_\d+")
# The classes and functions that a pickle of tensors imports.
_TENSORS = re.compile(
    r"collections OrderedDict|torch(\.storage)? \w*Storage|torch (device|Size|(b?float|u?int|bool|complex)\d*)"
    r"|torch\._utils _rebuild_(tensor_v[23]|parameter)|torch\.serialization _get_layout"
)
_OPERATOR = re.compile(
    r"torch\.ops\.(aten|prims|quantized|quantized_decomposed|torchvision)\.(?!save\b|load\b|from_file\b)\w+\.\w+"
    r"|torch\.ops\.higher_order\.(cond|wrap_with_set_grad_enabled|wrap_with_autocast)"
    r"|torch\.sym_\w+|torch\._sym_sqrt|math\.\w+"
    r"|_operator\.(getitem|add|sub|mul|truediv|floordiv|mod|neg|pos|pow|abs|eq|ne|lt|le|gt|ge|and_|or_|not_)"
)
_NAME = re.compile(r"[\w.+:\[\]-]*")  # torch writes names into Python source: nothing that ends or calls anything
_TEXT = ("as_string", "as_strings")  # an operator's argument, quoted there
# Of an expression of sizes, such as `Symbol('s0', positive=True, integer=True)`.
_LONGEST_EXPRESSION = 1_000  # characters
# sympy's own functions, and torch's (`torch.utils._sympy.functions`)
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
_ARITHMETIC = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.operator, ast.unaryop, ast.cmpop, ast.Load)


def plain(source: Source) -> bytes:
    """An archive for `torch.export.load` with what is harmless of this one. Raises `BadModel` naming what is not."""
    members = dict(_members(source))
    for name in _PAYLOADS:
        _refuse_pickled(source, name, _json(source, members, name))
    graph = _json(source, members, _GRAPH)
    graph["guards_code"] = []
    try:
        _check(graph)
    except BadModel as error:
        raise BadModel(f"file: {source.name}, {_GRAPH}: {error}") from None
    members[_GRAPH] = json.dumps(graph).encode()
    return _archive(members | {_SAMPLES: b""})


def _members(source: Source) -> Iterator[tuple[str, bytes]]:
    """(path below the archive's root, content) of all that are kept."""
    try:
        with ZipFile(io.BytesIO(source.content)) as archive:
            for entry in archive.infolist():
                name = entry.filename.partition("/")[2]
                if _KEPT.fullmatch(name) and entry.compress_type == ZIP_STORED:
                    yield name, archive.read(entry)
                elif name == _SAMPLES:
                    _refuse_callables(source, name, archive.read(entry))
                elif not _LEFT_OUT.fullmatch(name):
                    raise BadModel(
                        f"file: {source.name}: a graph and tensors as torch.export.save of torch 2.9 or later writes "
                        f"them, got {entry.filename}"
                    )
    except (BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise BadModel(f"file: {source.name} is no archive: {error}") from None


def _refuse_callables(source: Source, name: str, content: bytes) -> None:
    """The sample inputs are a pickle in every file, of tensors in an honest one. It is not kept; a
    file with anything else there is refused."""
    try:
        with ZipFile(io.BytesIO(content)) as inner:
            pickles = [inner.read(entry) for entry in inner.infolist() if entry.filename.endswith(".pkl")]
        found = [called for pickle in pickles for called in _callables(pickle)]
    except (BadZipFile, ValueError, RuntimeError, NotImplementedError) as error:
        raise BadModel(f"file: {source.name}, {name}: a pickle of tensors, got what is none ({error})") from None
    if strange := next((called for called in found if not _TENSORS.fullmatch(called)), None):
        raise BadModel(f"file: {source.name}, {name}: a pickle of tensors, got one that calls {strange!r}")


def _callables(pickle: bytes) -> Iterator[str]:
    """The imports of a pickle, as `module name`. An opcode that torch's own pickles do not import with is named."""
    for opcode, argument, _ in pickletools.genops(pickle):
        if opcode.name == "GLOBAL":
            yield str(argument)
        elif opcode.name in ("STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"):
            yield opcode.name


def _refuse_pickled(source: Source, name: str, described: Any) -> None:
    """Weights and constants are raw: no entry is to be unpickled, whatever its file is called."""
    for weight, entry in dict(described.get("config", {})).items():
        path = str(entry.get("path_name"))
        if entry.get("use_pickle") is not False or not _RAW.fullmatch(path):
            raise BadModel(f"file: {source.name}, {name}: raw tensors, got a pickled one for {weight} in {path}")
    try:
        _check(described)
    except BadModel as error:
        raise BadModel(f"file: {source.name}, {name}: {error}") from None


def _check(value: Any, key: str = "") -> None:
    """Check all values below `value`, except a mapping's `metadata`."""
    if isinstance(value, dict):
        if isinstance(value.get("metadata"), dict):
            value["metadata"] = {}
        for name, member in value.items():
            _check_text(name, "")
            _check(member, name)
    elif isinstance(value, list):
        for member in value:
            _check(member, key)
    elif isinstance(value, str):
        _check_text(value, key)


def _check_text(text: str, key: str) -> None:
    if key == "expr_str":
        check_expression(text)
    elif key in ("target", "as_operator"):
        _match(_OPERATOR, text, "an operator of torch")
    elif key in ("in_spec", "out_spec"):
        _check_tree(text)
    elif key not in _TEXT:
        _match(_NAME, text, "a plain name")


def _check_tree(text: str) -> None:
    """How inputs and outputs are nested. Types that bring a name to import are refused with it."""
    for word in ("default_factory", "__enum__"):
        if word in text:
            raise BadModel(f"lists, tuples and dictionaries as inputs and outputs, got {word}")


def _match(pattern: re.Pattern[str], text: str, wanted: str) -> None:
    if not pattern.fullmatch(text):
        raise BadModel(f"{wanted}, got {text[:80]!r}")


def _json(source: Source, members: dict[str, bytes], name: str) -> Any:
    try:
        found = json.loads(members[name])
    except KeyError:
        raise BadModel(f"file: {source.name} holds no {name}") from None
    except (ValueError, RecursionError) as error:
        raise BadModel(f"file: {source.name}, {name} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadModel(f"file: {source.name}, {name}: an object, got {type(found).__name__}")
    return found


def _archive(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with ZipFile(out, "w", ZIP_STORED) as archive:
        for name, content in members.items():
            archive.writestr(f"model/{name}", content)
    return out.getvalue()


def check_expression(text: str) -> None:
    """Raises `BadModel` for anything but numbers, symbols, operators and the functions above: torch has sympy evaluate
    sizes, with Python's `eval`."""
    try:
        tree = ast.parse(text.strip(), mode="eval") if len(text) <= _LONGEST_EXPRESSION else None
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
            return isinstance(node, _ARITHMETIC)
