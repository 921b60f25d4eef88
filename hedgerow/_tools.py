"""What a model may have the caller do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tool:
    """Something that a model may call. `parameters` is a JSON Schema of an object, as JSON text or parsed."""

    name: str  # 1 to 64 letters, digits, underscores and hyphens
    description: str = ""  # what it does and when to call it, for the model
    parameters: str | Mapping[str, Any] = ""  # without any, it takes none
    strict: bool = False  # whether the arguments must match


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
