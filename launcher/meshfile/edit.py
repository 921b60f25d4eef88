"""Adds a key's digest to a list in a YAML file, or takes one out, at the places of YAML's nodes in the text.

All the rest of the text stays as it is, byte by byte: comments, order, quotes. ruamel.yaml was tried first: with the
last item of a list it drops the comments behind it, those of the next section included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeGuard

import yaml

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


class CannotEdit(ValueError):
    """The text has a form that cannot be edited; the message names it."""


def add(text: str, path: Sequence[str], item: str) -> str:
    """The text with `item` (JSON) as the first element of the list at `path`. Missing keys of the path are added."""
    node, missing = _root(text), list(path)
    while missing and (pair := _pair(node, missing[0])):
        node, missing = pair[1], missing[1:]
    if not missing:
        return _with_item(text, node, item)
    is_json = text.lstrip().startswith("{")
    value = f"[{item}]"
    for name in reversed(missing[1:]):
        value = f"{{{_name(name, is_json)}: {value}}}"
    at_root = len(missing) == len(path)
    return _with_member(text, node, f"{_name(missing[0], is_json)}: {value}", at_root=at_root)


def remove(text: str, path: Sequence[str], digest: str) -> str:
    """The text without `digest` at `path`, which has a list or this digest alone."""
    node, behind_key = _root(text), 0
    for name in path:
        pair = _pair(node, name)
        if pair is None:
            raise CannotEdit(f"{'.'.join(path)} is not in the text itself")
        node, behind_key = pair[1], text.index(":", pair[0].end_mark.index) + 1
    if _is_alone(node):
        return _cut(text, node.start_mark.index, node.end_mark.index, "[]")
    items = node.value if isinstance(node, yaml.SequenceNode) else []
    number = next((n for n, item in enumerate(items) if _digest(item) == digest), None)
    if number is None or not isinstance(node, yaml.SequenceNode):
        raise CannotEdit(f"{'.'.join(path)} does not have it in the text itself")
    return _without_item(text, node, number, behind_key)


def _root(text: str) -> yaml.Node | None:
    return yaml.compose(text, yaml.SafeLoader)


def _pair(node: yaml.Node | None, name: str) -> tuple[yaml.Node, yaml.Node] | None:
    """(key, value) of a member of a mapping."""
    members = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((key, value) for key, value in members if key.value == name), None)


def _is_alone(node: yaml.Node | None) -> TypeGuard[yaml.Node]:
    """Whether it stands in the place of a list of one."""
    return isinstance(node, yaml.ScalarNode) or (isinstance(node, yaml.MappingNode) and bool(node.flow_style))


def _digest(item: yaml.Node) -> str:
    """The digest of a key, which is a text or an object with it."""
    if isinstance(item, yaml.MappingNode):
        pair = _pair(item, "sha256")
        return _digest(pair[1]) if pair else ""
    return str(item.value).lower()


def _end(item: yaml.Node) -> int:
    """Behind the item; YAML's own mark of a mapping in lines of its own is at what comes next."""
    if isinstance(item, yaml.MappingNode) and not item.flow_style and item.value:
        return _end(item.value[-1][1])
    return int(item.end_mark.index)


def _with_item(text: str, node: yaml.Node | None, item: str) -> str:
    if _is_alone(node):
        old = text[node.start_mark.index : node.end_mark.index]
        more = f", {old}" if node.value else ""
        return _cut(text, node.start_mark.index, node.end_mark.index, f" [{item}{more}]".removeprefix(_blank(old)))
    if not isinstance(node, yaml.SequenceNode):
        raise CannotEdit("a list of digests is needed")
    if node.flow_style:
        return _put(text, text.index("[", node.start_mark.index) + 1, item + (", " if node.value else ""))
    dash = text.rindex("-", 0, node.value[0].start_mark.index)
    return _put(text, dash, f"- {item}{_line(text, _column(text, dash))}")


def _with_member(text: str, node: yaml.Node | None, member: str, *, at_root: bool) -> str:
    if isinstance(node, yaml.MappingNode) and node.flow_style:
        return _put(text, text.index("{", node.start_mark.index) + 1, member + (", " if node.value else ""))
    if at_root and (node is None or isinstance(node, yaml.MappingNode)):  # behind all: comments at its head stay there
        return f"{text}{'' if text.endswith(chr(10)) or not text else _line(text)}{member}{_line(text)}"
    if isinstance(node, yaml.MappingNode):  # first: comments behind the last one may be of the next section
        first = node.value[0][0].start_mark
        return _put(text, first.index, member + _line(text, first.column))
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        return _cut(text, node.start_mark.index, node.end_mark.index, f" {{{member}}}".removeprefix(_blank(node.value)))
    raise CannotEdit("keys and values are needed where the tenants are")


def _without_item(text: str, node: yaml.SequenceNode, number: int, behind_key: int) -> str:
    items, item = node.value, node.value[number]
    start, end = item.start_mark.index, _end(item)
    if node.flow_style:
        if number + 1 < len(items):
            end = items[number + 1].start_mark.index
        elif number:
            start = items[number - 1].end_mark.index
        return _cut(text, start, end)
    start, end = text.rindex("\n", 0, start) + 1, text.find("\n", end) + 1 or len(text)
    without = _cut(text, start, end)
    return without if len(items) > 1 else _put(without, behind_key, " []")


def _put(text: str, at: int, more: str) -> str:
    return _cut(text, at, at, more)


def _cut(text: str, start: int, end: int, instead: str = "") -> str:
    return text[:start] + instead + text[end:]


def _blank(old: str) -> str:
    """The space between a value and its key's colon is there already, where there is a value."""
    return " " if old else ""


def _line(text: str, column: int = 0) -> str:
    """A new line as the text has them, and its indentation."""
    return ("\r\n" if "\r\n" in text else "\n") + " " * column


def _column(text: str, at: int) -> int:
    return at - (text.rfind("\n", 0, at) + 1)


def _name(name: str, is_json: bool) -> str:
    """A name for the file, in quotes if YAML would read it as another type."""
    plain = not is_json and _PLAIN.fullmatch(name) and yaml.safe_load(name) == name
    return name if plain else json.dumps(name, ensure_ascii=False)
