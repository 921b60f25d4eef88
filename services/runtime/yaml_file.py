"""Reads YAML files, which may change while a service runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Literal, get_args, get_origin

import yaml
from pydantic import BaseModel

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Refuses duplicate keys, of which PyYAML silently takes the last, and whole numbers with more digits than `str`
    converts."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(problem=f"{key.value} stands twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        number = int(super().construct_yaml_int(node))
        str(number)  # raises ValueError
        return number


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def parse(source: str | IO[str]) -> Any:
    """The value of a text or an open file. Raises `yaml.YAMLError` or ValueError, whatever is wrong with it.

    PyYAML itself raises what its constructors happen to raise for a value that is none of its tag's, for example
    KeyError for `!!bool maybe` and AttributeError for `!!timestamp soon`.
    """
    try:
        return yaml.load(source, _Loader)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (LookupError, AttributeError, TypeError) as error:
        raise ValueError(f"a value that is none of its tag's ({type(error).__name__})") from None


def with_words(cls: type[BaseModel], given: Any) -> Any:
    """The fields of `cls` with `off` and `on` as words, where a field has such a word: YAML reads both, without quotes,
    as booleans."""
    if not isinstance(given, dict):
        return given
    return {name: _word(cls, name, value) if isinstance(value, bool) else value for name, value in given.items()}


def _word(cls: type[BaseModel], name: str, value: bool) -> Any:
    field = cls.model_fields.get(name)
    word = "on" if value else "off"
    return word if field and word in _literals(field.annotation) else value


def _literals(annotation: Any) -> Iterator[Any]:
    """The values of each `Literal` in an annotation."""
    if get_origin(annotation) is Literal:
        yield from get_args(annotation)
    else:
        for part in get_args(annotation):
            yield from _literals(part)
