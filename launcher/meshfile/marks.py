"""YAML with the place of every key and value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.reader import ReaderError

from launcher.meshfile.problems import Problem, Steps, dotted

_MOST_NODES = 100_000  # with those that anchors repeat
_NO_YAML = "not valid YAML"
_MERGE = "tag:yaml.org,2002:merge"
Place = tuple[int, int]  # line and column, from 1


@dataclass
class Marked:
    """The content of a YAML text, with places. `problems` are those of the text itself: no YAML, or a name twice."""

    content: Any = None
    keys: dict[Steps, Place] = field(default_factory=dict)
    values: dict[Steps, Place] = field(default_factory=dict)
    groups: set[Steps] = field(default_factory=set)  # values that hold others
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: Steps, message: str, *, at_key: bool = False) -> Problem:
        """A problem at `path`, or at its nearest parent in the file."""
        for end in range(len(path), -1, -1):
            near = path[:end]
            of_key = at_key or (end < len(path) and near in self.groups)
            places = (self.keys, self.values) if of_key else (self.values, self.keys)
            for of in places:
                if near in of:
                    return Problem(*of[near], dotted(path), message)
        return Problem(1, 1, dotted(path), message)


def read_marked(text: str) -> Marked:
    """Read one YAML document. An error of the text has its place and kind, not the line."""
    marked = Marked()
    try:
        loader = yaml.SafeLoader(text)
    except ReaderError as error:
        before = text[: error.position].split("\n")
        place = len(before), len(before[-1]) + 1
        marked.problems.append(Problem(*place, "", f"{_NO_YAML}: a character that must not be in it"))
        return marked
    try:
        node = loader.get_single_node()
        if node is not None:
            _Reader(loader, marked).read(node, ())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        marked.problems.append(Problem(*place, "", _in_words(error)))
    except RecursionError:
        marked.problems.append(Problem(1, 1, "", f"{_NO_YAML}: nested too deeply"))
    finally:
        loader.dispose()
    return marked


def _in_words(error: yaml.MarkedYAMLError) -> str:
    message = error.problem or error.context or ""
    if message.startswith("expected <block end>"):
        message = "this does not continue the lines before it; check the indentation and the quotes"
    return f"{_NO_YAML}: {message}"


class _Reader:
    def __init__(self, loader: yaml.SafeLoader, marked: Marked):
        self._loader, self._marked = loader, marked
        self._around: list[yaml.Node] = []
        self._flat: set[int] = set()  # mappings with the keys that they merge
        self._nodes = 0

    def read(self, node: yaml.Node, path: Steps) -> Any:
        """Fill `marked` with the document."""
        self._marked.content = self._value(node, path)

    def _value(self, node: yaml.Node, path: Steps) -> Any:
        self._nodes += 1
        if node in self._around or self._nodes > _MOST_NODES:
            raise yaml.MarkedYAMLError(problem="an anchor that repeats itself", problem_mark=node.start_mark)
        self._marked.values[path] = _place(node)
        self._around.append(node)
        try:
            if not isinstance(node, yaml.ScalarNode):
                self._marked.groups.add(path)
            if isinstance(node, yaml.MappingNode):
                return dict(self._members(node, path))
            if isinstance(node, yaml.SequenceNode):
                return [self._value(item, (*path, number)) for number, item in enumerate(node.value)]
            if "\0" in node.value:
                self._add(node, path, "no NUL, which no setting of a process can hold")
                return None
            return self._loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, TypeError):  # PyYAML's own, for 2026-13-45 or `!!bool maybe`
            problem = f"no valid {node.tag.rpartition(':')[2]}"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from None
        finally:
            self._around.pop()

    def _members(self, node: yaml.MappingNode, path: Steps) -> Iterator[tuple[str, Any]]:
        if id(node) not in self._flat:  # an alias leads to it again, with the merged keys beside its own
            self._flat.add(id(node))
            self._refuse_twice(node, path)
            self._loader.flatten_mapping(node)
        for key, value in node.value:
            name = key.value
            if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
                self._add(key, path, "a name: text, in quotes where YAML takes it for something else")
                continue
            self._marked.keys[(*path, name)] = _place(key)
            yield name, self._value(value, (*path, name))

    def _refuse_twice(self, node: yaml.MappingNode, path: Steps) -> None:
        """YAML's readers let the last one win, without a word."""
        first: dict[str, int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in first:
                    self._add(key, (*path, key.value), f"once; it stands in line {first[key.value]} already")
                first.setdefault(key.value, _place(key)[0])

    def _add(self, node: yaml.Node, path: Steps, message: str) -> None:
        self._marked.problems.append(Problem(*_place(node), dotted(path), message))


def _place(node: yaml.Node) -> Place:
    return node.start_mark.line + 1, node.start_mark.column + 1
