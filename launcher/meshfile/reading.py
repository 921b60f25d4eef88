"""Reads a mesh file: a `MeshFile`, or all its problems."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from launcher.meshfile.fields import Surroundings
from launcher.meshfile.marks import Marked, read_marked
from launcher.meshfile.models import MOST_REPLICAS
from launcher.meshfile.names import processes_of
from launcher.meshfile.problems import BadMeshFile, Problem, Steps, got, in_our_words
from launcher.meshfile.schema import MeshFile

_LARGEST_BYTES = 1024 * 1024
_ROUNDS = 3  # in which what is wrong is left out, with what it leaves incomplete
# Other words for a key of the file, as people write them.
_MEANT = {"key": "key_env", "api_key": "key_env", "token": "key_env", "base_url": "url", "price": "prices"}


@dataclass(frozen=True)
class MeshFileReading:
    """A parsed file. Beside `problems`, `file` has its valid part for further checks, or None."""

    name: str  # as it was asked for
    text: str
    marked: Marked
    file: MeshFile | None
    problems: tuple[Problem, ...] = ()

    def refuse(self, more: Sequence[Problem] = ()) -> None:
        """Raise `BadMeshFile` if there are problems, or `more`."""
        if self.problems or more:
            raise BadMeshFile(self.name, [*self.problems, *more])

    def whole(self) -> MeshFile:
        """The file. Raises `BadMeshFile` if it has a problem."""
        self.refuse()
        assert self.file is not None
        return self.file


def read(path: Path, *, keys_needed: bool = True) -> MeshFileReading:
    """Read the file at `path`."""
    try:
        text = _text(path)
    except (OSError, ValueError) as error:
        wrong = error.strerror if isinstance(error, OSError) else str(error)
        return MeshFileReading(str(path), "", Marked(), None, (Problem(1, 1, "", f"cannot be read: {wrong}"),))
    return parse(text, str(path), Surroundings(path.absolute().parent, os.environ, keys_needed))


def parse(text: str, name: str, surroundings: Surroundings) -> MeshFileReading:
    """Read a text."""
    marked = read_marked(text)
    wrong, file = list(marked.problems), None
    if isinstance(marked.content, dict):
        wrong += _of_one_name(marked)
        file, errors = _validated(marked.content, surroundings)
        wrong += [_problem(marked, each) for each in errors]
    elif not wrong:
        wrong.append(Problem(1, 1, "", "keys and values are needed, `models:` at least"))
    return MeshFileReading(name, text, marked, file, tuple(wrong))


def _validated(content: Any, surroundings: Surroundings) -> tuple[MeshFile | None, list[Any]]:
    """(the file without what is wrong, what is wrong)."""
    content, found = deepcopy(content), list[Any]()
    for _ in range(_ROUNDS):
        try:
            return MeshFile.model_validate(content, context=surroundings), found
        except ValidationError as error:
            errors = error.errors()
        found = found or list(errors)  # errors that follow from leaving a key out are not the author's
        for members, name in [_at_fault(content, each["loc"]) for each in errors]:
            members.pop(name, None)
    return None, found


def _at_fault(content: dict[str, Any], path: Steps) -> tuple[dict[str, Any], str]:
    """(the section, the key in it) that stands nearest to `path`."""
    section, key, inner = content, "", content
    for step in path:
        if not isinstance(inner, dict) or step not in inner:
            break
        section, key, inner = inner, str(step), inner[step]
    return section, key


def _text(path: Path) -> str:
    with path.open("rb") as file:
        given = file.read(_LARGEST_BYTES + 1)
    if len(given) > _LARGEST_BYTES:
        raise ValueError(f"at most {_LARGEST_BYTES} bytes, got more")
    return given.decode()


def _of_one_name(marked: Marked) -> Iterator[Problem]:
    """Models whose names differ in nothing that the names of their processes can have."""
    models = marked.content.get("models")
    first: dict[str, str] = {}
    for name, model in models.items() if isinstance(models, dict) else ():
        said = model if isinstance(model, dict) else {}
        urls, replicas = said.get("url"), said.get("replicas")
        counts = (
            len(urls) if isinstance(urls, list) else 1,
            min(replicas, MOST_REPLICAS) if isinstance(replicas, int) else 1,
        )
        taken = [each for each in processes_of(name, *counts) if first.setdefault(each, name) != name]
        if taken:
            wanted = f"a name that differs from {first[taken[0]]} in letters or digits is needed"
            yield marked.problem(("models", name), f"{wanted}: both would have {taken[0]}", at_key=True)


def _problem(marked: Marked, error: Any) -> Problem:
    """pydantic's error, with its place and in our words."""
    path: Steps = tuple(step for step in error["loc"] if step != "[key]")
    while path and isinstance(path[-1], int) and path not in marked.values:  # one where there may be several
        path = path[:-1]
    if error["type"] == "extra_forbidden":
        return marked.problem(path, f"no such key; {_instead(path)}", at_key=True)
    if error["type"] == "missing":
        return marked.problem(path, "is needed")
    message = in_our_words(error["msg"])
    in_key = error["loc"][-1:] == ("[key]",)
    given = error["input"]
    if not isinstance(given, str | int | float) or (isinstance(given, str) and given in message):
        return marked.problem(path, message, at_key=in_key)
    return marked.problem(path, f"{message}, {got(path, given)}", at_key=in_key)


def _instead(path: Steps) -> str:
    """The keys that there are where this one stands, and where a setting of the service would stand."""
    known, inside = list(_section(path[:-1]).model_fields), ".".join(map(str, path[:-1]))
    name = str(path[-1])
    near = [_MEANT[name]] if _MEANT.get(name) in known else get_close_matches(name, known, n=1)
    if near:
        return f"did you mean {near[0]}?"
    has_settings = "settings" in known or not inside
    settings = f"; a setting of the service belongs into {inside or 'gateway'}.settings" if has_settings else ""
    return f"there are {', '.join(known)}{settings}"


def _section(path: Steps) -> type[BaseModel]:
    """The class of the section at `path`, where names of models and tenants stand between."""
    section: type[BaseModel] = MeshFile
    for step in path:
        field = section.model_fields.get(str(step))
        section = (_class_in(field.annotation) if field else None) or section
    return section


def _class_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_class_in, get_args(annotation))), None)
