"""Writes the SDK's types and parts of `docs/openapi.yaml` and `docs/http.md` from the table of request options. Run it
with `make docs`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from docs.labels import replaced
from hedgerow.request_options import Kind, RequestOption, Surface
from hedgerow.request_options.table import OPTIONS, options_on

ROOT = Path(__file__).parents[1]
TYPES, OPENAPI, PAGE = ROOT / "hedgerow/_option_types.py", ROOT / "docs/openapi.yaml", ROOT / "docs/http.md"
HEAD = "Options go in the body's object `hedgerow`, or in headers, which override it (`x-hedgerow-budget-ms`)."
_MOST_WHOLE = 2**31 - 1
_SDK, _HTTP = options_on(Surface.SDK), options_on(Surface.HTTP)
_PLAIN: Mapping[Kind, str] = {
    Kind.WHOLE: "int",
    Kind.NUMBER: "float",
    Kind.FLAG: "bool",
    Kind.TEXT: "str",
    Kind.TEXTS: "str | Sequence[str]",
}
_TYPES = '''"""The options of the mesh itself, as the SDK's keywords.

Written by `make docs` from `hedgerow/request_options/table.py`; change that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

from hedgerow._tools import MeshTool

{aliases}
GuardedThing: TypeAlias = Literal["injection", "secrets", "personal", "answer_secrets", "answer_personal"]
GuardAction: TypeAlias = Literal["mask", "refuse"]


class MeshOptions(TypedDict, total=False):
    """All that a request may ask of the mesh. An option that is left out, or None, is the gateway's choice."""

{fields}
'''


def main() -> None:
    for path, write in WRITTEN.items():
        path.write_text(write(path.read_text() if path.exists() else ""))
    print(f"{len(OPTIONS)} request options: {', '.join(path.name for path in WRITTEN)}")


def sdk_types(_: str = "") -> str:
    """The module of the SDK's types."""
    aliases = [f"{each.alias}: TypeAlias = Literal{json.dumps(each.words)}" for each in _SDK if each.alias]
    fields = [f'{option.name}: {_sdk_type(option)} | None\n"""{_description(option)}"""' for option in _SDK]
    text = _TYPES.format(aliases="\n".join(aliases), fields=textwrap.indent("\n".join(fields), "    "))
    command = [sys.executable, "-m", "ruff", "format", "-q", "--stdin-filename", str(TYPES), "-"]
    return subprocess.run(command, input=text, capture_output=True, check=True, text=True).stdout


def _sdk_type(option: RequestOption) -> str:
    word = option.alias or f"Literal{json.dumps(option.words)}"
    match option.kind:
        case Kind.WORD:
            return word
        case Kind.WORDS | Kind.OWN:
            return option.sdk_type or f"Sequence[{word}]"
    return _PLAIN[option.kind]


def _description(option: RequestOption) -> str:
    return textwrap.fill(f"{option.help} {option.sdk_note}".strip(), 113, break_on_hyphens=False)


def openapi(document: str) -> str:
    """The HTTP API's description, with each option as a header and as a property of the body's object."""
    parts = {
        "headers of an operation": [f'{{$ref: "#/components/parameters/{_component(each)}"}}' for each in _HTTP],
        "headers": [_parameter(each, document) for each in _HTTP],
        "properties of the body": [_property(each) for each in _HTTP],
    }
    for name, lines in parts.items():
        document = _between(document, name, lines)
    return document


def _between(document: str, name: str, lines: list[str]) -> str:
    """The document, with the lines between the two comments for `name` replaced."""
    found = re.search(rf"^( *)# Options, {name}: .*\n(.*\n)*?\1# Options end\.\n", document, re.MULTILINE)
    if found is None:
        raise ValueError(f"{OPENAPI.name}: no place for the options as {name}")
    item = "- " if name == "headers of an operation" else ""
    block = [f"# Options, {name}: written by `make docs`.", *(item + line for line in lines), "# Options end."]
    return document.replace(found[0], textwrap.indent("\n".join(block), found[1]) + "\n")


def _component(option: RequestOption) -> str:
    return "".join(word.capitalize() for word in option.name.split("_"))


def _parameter(option: RequestOption, document: str) -> str:
    schema = _in_header(option, document)
    described = f"name: {option.header}, in: header, description: {_quoted(option)}, schema: {schema}"
    return f"{_component(option)}: {{{described}}}"


def _property(option: RequestOption) -> str:
    return f"{option.name}: {{description: {_quoted(option)}, {_in_body(option)[1:]}"


def _in_body(option: RequestOption) -> str:
    """The schema of an option, of one line."""
    if option.schema:
        return f'{{$ref: "#/components/schemas/{option.schema}"}}'
    words = f"{{enum: {json.dumps(option.http_words or option.words)}}}"
    match option.kind:
        case Kind.WORD:
            return words
        case Kind.WORDS:
            return f"{{type: array, items: {words}}}"
        case Kind.FLAG:
            return "{type: boolean}"
        case Kind.WHOLE | Kind.NUMBER:
            return f"{{{', '.join(_limits(option))}}}"
        case _:
            return "{type: string}"


def _in_header(option: RequestOption, document: str) -> str:
    """The same of its header, which is text."""
    is_text = option.schema and re.search(rf"^    {option.schema}:\s*\{{?type: string", document, re.MULTILINE)
    if option.kind is Kind.FLAG:
        return '{enum: ["true", "false"]}'
    return "{type: string}" if option.kind is Kind.WORDS or (option.schema and not is_text) else _in_body(option)


def _limits(option: RequestOption) -> Iterator[str]:
    most = _MOST_WHOLE if option.kind is Kind.WHOLE and option.most is None else option.most
    yield f"type: {'integer' if option.kind is Kind.WHOLE else 'number'}"
    for name, limit in (("minimum", option.least), ("exclusiveMinimum", option.above), ("maximum", most)):
        if limit is not None:
            yield f"{name}: {limit}"


def _quoted(option: RequestOption) -> str:
    return json.dumps(option.help, ensure_ascii=False)


def page(text: str) -> str:
    """The page on HTTP, with its list of options."""
    rows = [f"- `{each.name}`: {' '.join(_sentences(each))}" for each in _HTTP]
    return replaced(text, HEAD, rows, PAGE.name)


def _sentences(option: RequestOption) -> Iterator[str]:
    yield option.help
    words = [f"`{word}`" for word in option.http_words or option.words]
    if option.kind in (Kind.WORD, Kind.WORDS) and any(word not in option.help for word in words):
        yield f"{'One' if option.kind is Kind.WORD else 'Some'} of {', '.join(words)}."
    if option.http_note:
        yield option.http_note


WRITTEN: Mapping[Path, Callable[[str], str]] = {TYPES: sdk_types, OPENAPI: openapi, PAGE: page}

if __name__ == "__main__":
    main()
