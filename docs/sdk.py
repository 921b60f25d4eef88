"""Writes the lists of `sdk.md` from the SDK's types. Run it with `make docs`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

import hedgerow
from docs.labels import replaced
from hedgerow.request_options import Kind, Surface
from hedgerow.request_options.table import options_on

PAGE = Path(__file__).with_suffix(".md")
ROOT = Path(__file__).parents[1]
# The line above a list, and the class whose fields it has.
LISTS = {
    "Options are keywords of `ask`, `stream`, `batch` and `converse`, and fields of a batch's item.": "Options",
    "A question has": "Request",
    "## The answer": "Answer",
}
OF_MESH = "The [options of the mesh](http.md#options-of-hedgerow) have the same names by HTTP. In Python differ:"
MODULES = {"Answer": "_events", "MeshOptions": "_option_types"}
# Reasons that the SDK raises itself, without an answer of the gateway's.
OWN = {
    "INVALID_ARGUMENT": ("INVALID_INPUT", "PLAINTEXT_KEY"),
    "DEADLINE_EXCEEDED": ("BUDGET_TIMEOUT", "CLIENT_DEADLINE", "FORM_CUT"),
    "UNAVAILABLE": ("CONNECTION_LOST", "HUNG_UP", "NO_GATEWAY", "NOT_GRPC", "NOT_TLS", "NOT_TRUSTED"),
    "CANCELLED": ("CANCELLED",),
    "INTERNAL": ("FORM_CUT", "NO_FINAL", "TOOL_NOT_OFFERED"),
}
# By class: whether `retry_delay_s` is set, and whether to send the request again.
RETRY = {
    "InvalidArgument": ("no", "no"),
    "Unauthenticated": ("no", "no"),
    "PermissionDenied": ("no", "no"),
    "NotFound": ("no", "no"),
    "ResourceExhausted": ("yes", "yes, after the delay"),
    "DeadlineExceeded": ("no", "with a larger `budget_ms`"),
    "Unavailable": ("if the gateway knows it", "yes, after the delay or with backoff"),
    "Cancelled": ("no", "as you like"),
    "Internal": ("no", "no"),
    "HedgerowError": ("no", "no"),
}


def main() -> None:
    PAGE.write_text(render(PAGE.read_text()))
    options = [*fields("Options"), *fields("MeshOptions")]
    print(f"{PAGE.name}: {len(options)} options, {len(RETRY)} errors")


def render(page: str) -> str:
    """The page with its lists as they should be."""
    words = _words()
    for head, cls in LISTS.items():
        rows = [
            f"- `{name}` (`{kind}`): {' '.join([what, *_choices(kind, words)])}" for name, kind, what in fields(cls)
        ]
        page = replaced(page, head, rows, PAGE.name)
    page = replaced(page, OF_MESH, list(_of_mesh(words)), PAGE.name)
    return replaced(page, "| error | `retry_delay_s` | retry |", list(_errors()), PAGE.name)


def _of_mesh(words: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Options of which `http.md` does not say all: those that HTTP lacks, has otherwise, or gives as text."""
    kinds = {name: kind for name, kind, _ in fields("MeshOptions")}
    for option in options_on(Surface.SDK):
        what = [] if Surface.HTTP in option.on else [option.help]
        note = [option.sdk_note] if option.sdk_note else []
        if what or note or option.kind is Kind.OWN:
            choices = _choices(kinds[option.name], words) if option.kind is Kind.OWN else ()
            yield f"- `{option.name}` (`{kinds[option.name]}`): {' '.join([*what, *note, *choices])}".rstrip(": ")


def fields(cls: str) -> list[tuple[str, str, str]]:
    """(name, type, what it is) of each field of a class of the SDK's: by the string below it or the comment beside it;
    of a property, by its docstring."""
    module = MODULES.get(cls, "_options")
    source = (ROOT / f"hedgerow/{module}.py").read_text()
    lines = source.splitlines()
    (found,) = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == cls]
    return [_field(node, following, lines) for node, following in _pairs(found.body)]


def _pairs(body: Sequence[ast.stmt]) -> Iterator[tuple[ast.AnnAssign | ast.FunctionDef, ast.stmt | None]]:
    for index, node in enumerate(body):
        if isinstance(node, ast.AnnAssign | ast.FunctionDef):
            yield node, body[index + 1] if index + 1 < len(body) else None


def _field(
    node: ast.AnnAssign | ast.FunctionDef, following: ast.stmt | None, lines: Sequence[str]
) -> tuple[str, str, str]:
    if isinstance(node, ast.FunctionDef):
        return node.name, ast.unparse(node.returns) if node.returns else "", _plain(ast.get_docstring(node) or "")
    name, kind = ast.unparse(node.target), ast.unparse(node.annotation).replace(" | None", "")
    if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
        return name, kind, _plain(str(following.value.value))
    _, _, comment = lines[(node.end_lineno or node.lineno) - 1].partition("  # ")
    return name, kind, _plain(comment)


def _words() -> dict[str, tuple[str, ...]]:
    """The words that each literal type of the SDK's admits."""
    exported = {name: getattr(hedgerow, name) for name in hedgerow.__all__}
    return {name: get_args(kind) for name, kind in exported.items() if get_origin(kind) is Literal}


def _choices(kind: str, words: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """A sentence for each literal type in `kind`."""
    for name in re.findall(r"[A-Z]\w+", kind):
        if name in words:
            yield f"`{name}`: {', '.join(f'`{word}`' for word in words[name])}."


def _plain(text: str) -> str:
    """In one line, as a sentence."""
    line = " ".join(text.split())
    return f"{line[:1].upper()}{line[1:]}" if not line or line[-1] in ".!?" else f"{line[:1].upper()}{line[1:]}."


def _errors() -> Iterator[str]:
    """Classes with the same cells share a row."""
    rows: dict[tuple[str, str], list[str]] = {}
    for name, cells in RETRY.items():
        rows.setdefault(cells, []).append(f"`{name}`")
    yield from (f"| {', '.join(names)} | {delay} | {retry} |" for (delay, retry), names in rows.items())


if __name__ == "__main__":
    main()
