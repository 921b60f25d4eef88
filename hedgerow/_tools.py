"""Tools that the caller runs, and tools of the mesh."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hedgerow._signature import described


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a model may call. `parameters` is a JSON Schema of an object, as JSON text or parsed."""

    name: str  # 1 to 128 letters, digits, underscores and hyphens
    description: str = ""  # what it does and when to call it, for the model
    parameters: str | Mapping[str, Any] = ""  # without any, it takes none
    strict: bool = False  # whether the arguments must match

    @classmethod
    def from_function(cls, function: Callable[..., Any], *, strict: bool = False) -> Tool:
        """The tool that a function is: its name, its docstring as the description, and its parameters' types, with
        descriptions from `Annotated[str, "the city's name"]`. Raises `InvalidArgument` for a type without a schema."""
        return cls(*described(function), strict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool that a model calls. Do what it says, and ask again with a `Message("tool", result, tool_call_id=call.id)`
    after a `Message("assistant", tool_calls=answer.tool_calls)`."""

    id: str
    name: str
    arguments: str  # JSON text, as the model wrote it: it may be none, or not match the tool's schema

    def parsed(self) -> Any:
        """The arguments. Raises `ValueError` where the model wrote what is no JSON."""
        return json.loads(self.arguments or "{}")


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call. The first one of each has `id` and `name`; `arguments` is to be appended."""

    index: int  # which of the answer's calls, from 0
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class MeshTool:
    """A tool of the mesh's own, which the gateway calls: at once with `arguments`, or, without any, with the question;
    or when a model sees fit, where it is `offered`. A `source` in place of a name: all that it has, offered."""

    name: str = ""
    arguments: str | Mapping[str, Any] | None = None  # of a JSON object, as JSON text or parsed
    offered: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """A place that an answer can point at."""

    source: str  # what to open: a document's name or address
    title: str
    text: str  # the words themselves
    score: float  # by the tool's own measure; more is better


@dataclass(frozen=True, slots=True)
class Citations:
    """Where a tool's result comes from, best first."""

    tool: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of the mesh that a caller may use."""

    name: str
    description: str
    parameters: str  # a JSON Schema, as JSON text
    source: str  # where it comes from
    idempotent: bool  # whether a call may be made twice
    reusable_ms: int  # how long a result answers the same arguments again
    question_argument: str  # what takes a question as it is; empty: it cannot be called with one alone
    problem: str  # what keeps it from being called now; empty where nothing does


@dataclass(frozen=True, slots=True)
class ToolSource:
    """Where tools come from."""

    name: str
    kind: str  # how it is spoken to
    problem: str  # what is wrong with it, or with tools of its that are left out
