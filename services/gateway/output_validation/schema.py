"""JSON Schema validation with a time limit. The library's own keywords have none.

A caller chooses the schema, so

- every keyword checks the clock: a schema that needs too much work is stopped, also a short one;
- regular expressions run under `regex`, which has a timeout and lets other threads run; Python's `re` has neither;
- `uniqueItems` takes linear time, not quadratic, unless an answer's numbers are chosen for it;
- no reference is fetched, and a schema inside cannot choose other keywords (`$schema`), which would not check the
  clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import regex
from jsonschema import Draft202012Validator, ValidationError, validators
from referencing import Registry

from services.gateway.output_validation.mismatch import Mismatch, Unchecked
from services.runtime.errors import shorten

_Keyword = Callable[[Any, Any, Any, Any], Any]
_QUADRATIC = ("unevaluatedItems", "unevaluatedProperties")
_LEAST_S = 0.001  # the least time of an expression
_WHY_CHARACTERS = 300
_ends: ContextVar[float] = ContextVar("ends")  # on this thread's processor clock


def mismatch(schema: dict[str, Any], given: Any, most_s: float) -> Mismatch | None:
    """The first mismatch of `given` with `schema`. Raises `Unchecked` after about `most_s` seconds of this thread's
    processor time."""
    _ends.set(time.thread_time() + most_s)
    dialect = validators.validator_for(schema, default=Draft202012Validator)
    validator = _timed(dialect)(_without_dialect(schema), registry=Registry())
    try:
        error = next(iter(validator.iter_errors(given)), None)
    except Unchecked:
        raise
    except RecursionError:
        raise Unchecked("the schema refers to itself without end, or the answer is nested too deeply") from None
    except Exception as problem:  # an invalid schema, an unresolvable reference: the exceptions are not documented
        raise Unchecked(f"the schema cannot be followed ({type(problem).__name__})") from None
    if error is None:
        return None
    where = "/".join(("#", *map(str, error.absolute_schema_path)))
    return Mismatch(shorten(where, 120), shorten(f"{error.json_path}: {error.message}", _WHY_CHARACTERS))


def expression(pattern: str) -> Any:
    """A compiled expression of `regex`. Raises `Unchecked` for an invalid one."""
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, MemoryError):
        raise Unchecked("a regular expression that Python does not know") from None


@lru_cache(maxsize=8)
def _timed(dialect: Any) -> Any:
    """The keywords of a dialect, each with a check of the clock."""
    own = {**dialect.VALIDATORS, **{name: each for name, each in _OWN.items() if name in dialect.VALIDATORS}}
    extend: Any = validators.extend
    return extend(dialect, {name: _watched(each) for name, each in own.items()})


def _watched(keyword: _Keyword) -> _Keyword:
    def watched(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        _left_s()
        return keyword(validator, value, instance, schema)

    return watched


def _left_s() -> float:
    left = _ends.get() - time.thread_time()
    if left <= 0:
        raise Unchecked("the schema asks for more work than there is time for")
    return left


def _found(pattern: str, text: str) -> bool:
    try:
        return bool(expression(pattern).search(text, timeout=max(_left_s(), _LEAST_S), concurrent=True))
    except TimeoutError:
        raise Unchecked("a regular expression took too long") from None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not _found(pattern, instance):
        yield ValidationError(f"{shorten(repr(instance))} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    for pattern, inner in patterns.items() if isinstance(instance, dict) else ():
        for name, value in instance.items():
            if _found(pattern, name):
                yield from validator.descend(value, inner, path=name, schema_path=pattern)


def _additional_properties(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(instance, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items():
        if name in known or any(_found(pattern, name) for pattern in patterns):
            continue
        if inner is False:
            yield ValidationError(f"{shorten(repr(name))} is no property that there may be")
        else:
            yield from validator.descend(value, inner, path=name)


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    seen = set[Any]()
    for item in instance if wanted and isinstance(instance, list) else ():
        _left_s()  # numbers can be chosen so that all have one hash
        if (identity := _identity(item)) in seen:
            yield ValidationError("an item is there twice")
        seen.add(identity)


def _identity(value: Any) -> Any:
    """A key that is the same for equal JSON values: 1 equals 1.0, and neither equals true."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, list):
        return "array", tuple(map(_identity, value))
    if isinstance(value, dict):
        return "object", frozenset((name, _identity(inner)) for name, inner in value.items())
    return value


def _unchecked(validator: Any, value: Any, instance: Any, schema: Any) -> None:
    raise Unchecked(f"{' and '.join(_QUADRATIC)} are not checked")


_OWN: Mapping[str, _Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    **dict.fromkeys(_QUADRATIC, _unchecked),
}


def _without_dialect(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without `$schema`. A `$schema` inside it, which a reference may reach, would select that dialect's own
    keywords, which do not check the clock."""
    own = {name: value for name, value in schema.items() if name != "$schema"}
    nodes: list[Any] = list(own.values())
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict) and isinstance(node.get("$schema"), str):
            raise Unchecked("a schema with a dialect of its own inside is not checked")
        if isinstance(node, dict | list):
            nodes += node.values() if isinstance(node, dict) else node
    return own
