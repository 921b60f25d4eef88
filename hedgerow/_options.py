"""The options of a request. `docs/sdk.md` has these as tables: `python -m docs.sdk` writes them from here.

The options of the mesh itself are in `_option_types.py`, which `make docs` writes."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hedgerow._option_types import MeshOptions
from hedgerow._tools import Tool, ToolCall

Role: TypeAlias = Literal["system", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. `Message(**turn)` takes the shape that chat APIs share."""

    role: Role
    content: str = ""  # may be left out of an assistant's turn that calls tools
    tool_calls: Sequence[ToolCall] = ()  # of the assistant
    tool_call_id: str = ""  # of a tool: the call that this is the result of


# A text is one message of the user's. A mapping has the shape of chat APIs: `{"role": "user", "content": "Hi."}`.
Messages: TypeAlias = str | Sequence[Message | Mapping[str, Any]]


Media: TypeAlias = bytes | str | os.PathLike[str]  # an encoded picture or recording, or the path of its file


class Options(MeshOptions, total=False):
    """How to answer. An option that is left out, or None, is the gateway's or the model's choice."""

    system: str | None
    """Instructions, put before the messages."""
    model: str | None
    """One model by name; overrules the router. `auto` is the same as none."""
    max_tokens: int | None
    """The most tokens to generate."""
    temperature: float | None
    """0 to 2; 0 is greedy."""
    top_p: float | None
    """Nucleus sampling: the share of probability to draw from, up to 1."""
    frequency_penalty: float | None
    """-2 to 2; above 0, frequent tokens become less likely."""
    presence_penalty: float | None
    """-2 to 2; above 0, used tokens become less likely."""
    logit_bias: Mapping[int, float] | None
    """Added to a token's logit, by its number in the model's vocabulary: -100 to 100."""
    top_logprobs: int | None
    """Return each token's log-probability, and those of this many likeliest tokens: 0 to 20."""
    stop: str | Sequence[str] | None
    """Strings that end the answer and are not part of it."""
    seed: int | None
    """Makes sampling repeatable, if the engine supports it."""
    json_schema: str | Mapping[str, Any] | type | None
    """A JSON Schema (text, mapping or class) for the answer. At most one of `json_schema`, `regex`, `choice` and
    `grammar`."""
    regex: str | None
    """A regular expression for the whole answer."""
    choice: Sequence[str] | None
    """Texts; the answer is one of them."""
    grammar: str | None
    """A grammar in Lark's notation, or GBNF, for the whole answer."""
    tools: Sequence[Tool | Mapping[str, Any] | Callable[..., Any]] | None
    """Your own tools for the model: `Tool`, a mapping as in chat APIs, or a function with types and a docstring."""
    tool_choice: str | None
    """`auto`, `none`, `required`, or the name of the tool to call."""
    parallel_tool_calls: bool | None
    """Whether the model may call several tools at once."""


class Request(Options, total=False):
    """One item of a batch, with options that overrule the batch's."""

    messages: Messages | None
    """A text, or the turns of a conversation. Optional beside audio."""
    images: Media | Sequence[Media]
    """Pictures, as bytes or paths: PNG, JPEG, WebP, GIF or AVIF."""
    audio: Media | None
    """A recording, the question or a part of it: WAV, FLAC, MP3, Ogg Opus, WebM Opus or M4A."""
