"""The problems of a mesh file, each with its line and column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Steps = tuple[str | int, ...]  # into the file: ("models", "fast", "tier")
HIDDEN = "(not shown)"
_SECRET = re.compile(r"(key_env|key_file|key_sha256|_key|token|secret|password|authorization|redis_url|_env)$", re.I)
_IN_URL = re.compile(r"(?<=://)[^\s/]*@|(?<=\?)[^\s\"']+")
_LONGEST = 80


@dataclass(frozen=True, order=True)
class Problem:
    """A problem. Lines and columns count from 1."""

    line: int
    column: int
    path: str
    message: str

    def formatted(self, file: str) -> str:
        """`file:line:column: problem`, which editors understand."""
        return f"{file}:{self.line}:{self.column}: {f'{self.path}: ' if self.path else ''}{self.message}"


class BadMeshFile(ValueError):
    """The file is invalid."""

    def __init__(self, file: str, problems: Sequence[Problem]):
        self.file, self.problems = file, tuple(sorted(set(problems)))
        super().__init__("\n".join(problem.formatted(file) for problem in self.problems))


def dotted(path: Steps) -> str:
    """`models.fast.tier`."""
    return ".".join(map(str, path))


def in_our_words(message: str) -> str:
    """pydantic's message in the style of ours."""
    text = message.removeprefix("Value error, ").replace("Input should be", "it must be")
    text = text.partition(" or instance of ")[0].replace("a valid dictionary", "a mapping")
    return text.replace("Extra inputs are not permitted", "no such setting")


def got(path: Steps, value: Any) -> str:
    """The value at `path`, for people: hidden if it may be a credential, also a misplaced one."""
    if any(_SECRET.search(str(step)) for step in path):
        return f"got {len(value)} characters {HIDDEN}" if isinstance(value, str) else f"got a value {HIDDEN}"
    text = _IN_URL.sub(HIDDEN, repr(value))
    return f"got {text if len(text) <= _LONGEST else f'{text[: _LONGEST - 1]}…'}"
