"""Tools that the caller runs, and tools of the mesh."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hedgerow._shapes import loads
from hedgerow._signature import described


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call. `parameters` is a JSON Schema of an object, as JSON text or parsed."""

    name: str  # 1 to 128 letters, digits, underscores and hyphens
    description: str = ""  # what it does and when to call it, for the model
    parameters: str | Mapping[str, Any] = ""  # empty: no arguments
    strict: bool = False  # whether the arguments must match

    @classmethod
    def from_function(cls, function: Callable[..., Any], *, strict: bool = False) -> Tool:
        """A tool from a function: its name, its docstring as the description, and its parameters' types, with
        descriptions from `Annotated[str, "the city's name"]`. Raises `InvalidArgument` for a type without a schema."""
        return cls(*described(function), strict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by a model. Run the tool, and send a `Message("tool", result, tool_call_id=call.id)` after a
    `Message("assistant", tool_calls=answer.tool_calls)`."""

    id: str
    name: str
    arguments: str  # JSON text from the model: it may be invalid, or not match the tool's schema

    def parsed(self) -> Any:
        """The arguments. Raises `ValueError` if the model wrote invalid JSON."""
        return loads(self.arguments or "{}")


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """More of a call. The first one of each has `id` and `name`; `arguments` is to be appended."""

    index: int  # which of the answer's calls, from 0
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class MeshTool:
    """A mesh tool, which the gateway calls: at once with `arguments`, or with the question if there are none; or, if it
    is `offered`, when a model calls it. With a `source` in place of a name, all its tools are offered."""

    name: str = ""
    arguments: str | Mapping[str, Any] | None = None  # of a JSON object, as JSON text or parsed
    offered: bool = False
    source: str = ""


@dataclass(frozen=True, slots=True)
class Citation:
    """A source that an answer can cite."""

    source: str  # a document's name or address
    title: str
    text: str  # the cited text
    score: float  # by the tool's own measure; higher is better


@dataclass(frozen=True, slots=True)
class Citations:
    """The sources of a tool's result, best first."""

    tool: str
    citations: tuple[Citation, ...]


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool of the mesh that a caller may use."""

    name: str
    description: str
    parameters: str  # a JSON Schema, as JSON text
    source: str  # its source
    idempotent: bool  # whether a call may be made twice
    reusable_ms: int  # how long a result may be reused for the same arguments
    question_argument: str  # the argument for the question; empty: it cannot be called with a question alone
    problem: str  # why it cannot be called now; empty: it can


@dataclass(frozen=True, slots=True)
class ToolSource:
    """A source of tools."""

    name: str
    kind: str  # its protocol
    problem: str  # its problem, or that of its tools that are left out
