"""Response formats that cost as much as the gateway lets them, or more. Each is one of many alike, by a number."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from hedgerow.chat.v1.chat_pb2 import Choice, ResponseFormat

STRING = {"type": "string"}


def as_schema(schema: object) -> ResponseFormat:
    """A schema, or text in place of one."""
    return ResponseFormat(json_schema=schema if isinstance(schema, str) else json.dumps(schema))


def properties(number: int, many: int, of: Callable[[int], object] = lambda _: STRING) -> dict[str, Any]:
    """An object with `many` optional properties."""
    return {"type": "object", "properties": {f"p{number}-{each}": of(each) for each in range(many)}}


# Costly grammars that the gateway admits, found by trying the limits of its counts
# (docs/adr/0014-structured-output.md).
COSTLY: tuple[Callable[[int], ResponseFormat], ...] = (
    lambda number: as_schema(properties(number, 480)),
    lambda number: as_schema({"type": "array", "items": STRING, "maxItems": 9_000 + number % 1_000}),
    lambda number: as_schema(properties(number, 60, lambda each: {"type": "string", "maxLength": 10 + each})),
    lambda number: as_schema(properties(number, 90, lambda each: {"type": "string", "pattern": rf"^\w{{1,{each}}}$"})),
    lambda number: as_schema({"type": "string", "pattern": f'^[^"]{{{3_000 + number % 1_000}}}$'}),
    lambda number: as_schema({"type": "integer", "multipleOf": 9_001 + 2 * (number % 400)}),
    lambda number: as_schema({"allOf": [{"anyOf": [properties(number, 12)] * 4}] * 4}),
    lambda number: ResponseFormat(regex=".?" * 300 + str(number)),
    lambda number: ResponseFormat(regex=rf"((((\w+)+)+)+)+{number}"),
    lambda number: ResponseFormat(regex=f"((([a-z]{{0,9}}){{0,9}}){{0,9}}){{0,9}}{number}"),
    lambda number: ResponseFormat(regex=f"([a-z]{{1,{40 + number % 30}}}){{1,70}}"),
    lambda number: ResponseFormat(grammar=f'start: a\na: a a | /[a-z]/ | "{number}"\n'),
    lambda number: ResponseFormat(grammar=f'start: s\ns: s s s | s s | /[a-z]/ | "{number}" |\n'),
    lambda number: ResponseFormat(grammar=f'start: %json {{"multipleOf": {1_000_003 + number}}}\n'),
    lambda number: ResponseFormat(grammar=f'start: (("a" | "{number}"){{1,1000}}){{1,1000}}\n'),
)

# Grammars that it refuses.
WRONG: tuple[Callable[[int], ResponseFormat], ...] = (
    lambda number: as_schema("[" * (1_000 + number % 1_000)),
    lambda number: as_schema('{"a":' * (1_000 + number % 1_000)),
    lambda number: as_schema(f'{{"const": NaN, "title": "{number}"}}'),
    lambda number: as_schema(f'{{"const": "\\ud800{number}"}}'),
    lambda number: as_schema(f'{{"const": {number}, "const": 1e999}}'),
    lambda number: as_schema(properties(number, 3_000)),
    lambda number: as_schema({"description": f"{number}" + "x" * 1_000_000}),
    lambda number: as_schema({"type": "integer", "multipleOf": 1_000_003 + number}),
    lambda number: as_schema({"$ref": f"http://127.0.0.1/{number}"}),
    lambda number: ResponseFormat(regex=f"(((a{{99}}){{99}}){{99}}){{{number + 99}}}"),
    lambda number: ResponseFormat(regex="(" * 100_000 + str(number)),
    lambda number: ResponseFormat(grammar=f"start: {number}" + "x" * 1_000_000),
    lambda number: ResponseFormat(choice=Choice(values=[str(number)] * 2)),
)


def endless(*kinds: Callable[[int], ResponseFormat]) -> Iterator[ResponseFormat]:
    """One of each kind after the other, no two alike."""
    for number in count():
        for kind in kinds:
            yield kind(number)
