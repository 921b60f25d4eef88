"""Requests to OpenAI's chat completions, without any I/O.

Source: https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pybase64

from services.llm.dialects import counterparts
from services.llm.dialects.documents import translated
from services.llm.dialects.media import audio_format, image_type
from services.llm.engine import Constraint, Message, Original, Part, Request, Tool, ToolCall, ToolChoice
from services.llm.validation import read_parameters, read_schema
from services.runtime.errors import InvalidInput

# Where a tool's message, which has text alone, has a picture or a file: in the user's message behind the results.
_ATTACHMENT = "[attachment {} of the tool results]"
# vLLM's servers: leave the last message open instead of beginning a new one.
GO_ON = {"add_generation_prompt": False, "continue_final_message": True}


@dataclass(frozen=True, slots=True)
class ProviderDialect:
    """How a provider differs from the others."""

    base_url: str = ""  # empty: each of its customers has one
    key_header: str = "authorization"
    key_prefix: str = "Bearer "
    versioned_path: str = ""  # below the base URL, where there is an `api_version`
    of_calls: Mapping[str, Any] = field(default_factory=dict)  # what each call of a conversation has besides


DIALECTS: Mapping[str, ProviderDialect] = {
    "openai": ProviderDialect("https://api.openai.com/v1"),
    "azure": ProviderDialect(key_header="api-key", key_prefix="", versioned_path="/deployments/{model}"),
    "openrouter": ProviderDialect("https://openrouter.ai/api/v1"),
    # Its models refuse calls that come back without the signature of the thought that made them. The word is the one
    # for calls that have none: https://ai.google.dev/gemini-api/docs/thought-signatures
    "gemini": ProviderDialect(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        of_calls={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
    ),
}


def to_body(
    request: Request,
    model: str,
    max_tokens: int | None,
    max_tokens_field: str,
    of_calls: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The body to post. Raises InvalidInput for fields that this API cannot express."""
    sampling = request.sampling
    begun = (Message("assistant", request.prefix),) if request.prefix else ()
    optional = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "frequency_penalty": sampling.frequency_penalty,
        "presence_penalty": sampling.presence_penalty,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias} or None,
        "logprobs": sampling.top_logprobs is not None or None,
        "top_logprobs": sampling.top_logprobs,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
        "min_tokens": sampling.min_tokens,
        "ignore_eos": sampling.ignore_eos or None,
        "stop_token_ids": list(sampling.stop_token_ids) or None,
        "reasoning_effort": counterparts.effort(request.original) or None,
        "verbosity": counterparts.verbosity(request.original) or None,
        "user": counterparts.end_user(request.original) or None,
        **(_to_format(request.constraint, request.original) if request.constraint else {}),
    }
    return {
        "model": model,
        "messages": to_messages((*request.messages, *begun), of_calls),
        "stream": True,
        **({max_tokens_field: max_tokens} if max_tokens else {}),
        **(GO_ON if begun else {}),
        **{name: value for name, value in optional.items() if value is not None},
        **(_to_tools(request) if request.tools else {}),
    }


def to_messages(messages: tuple[Message, ...], of_calls: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """A conversation as JSON. `of_calls` is what each call of a tool has besides.

    Pictures and files in the results of tools follow in a user's message, because OpenAI's API takes text alone there.
    """
    said, attached = list[dict[str, Any]](), list[dict[str, Any]]()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message.role == "tool":
            said.append(_to_result(where, message, attached))
            continue
        if attached and message.role != "user":
            said.append({"role": "user", "content": attached})
            attached = []
        written = _to_message(where, message, of_calls or {})
        if attached:
            written["content"], attached = [*attached, *_parts_of(written["content"])], []
        if message.role == "assistant" and said and said[-1].get("tool_calls"):
            _continue(said[-1], written)  # the results of calls come next, before any other message
        else:
            said.append(written)
    return [*said, {"role": "user", "content": attached}] if attached else said


def _continue(turn: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Put another message of the assistant into the turn, whose calls have no results yet."""
    turn["content"] = "\n\n".join(filter(None, (turn["content"], more["content"]))) or None
    turn["tool_calls"] = [*turn["tool_calls"], *more.get("tool_calls", ())]


def _to_result(where: str, message: Message, attached: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of a result. A picture or a file goes to `attached`, and a text that names it stands in its place."""
    texts = [message.content] if message.content else []
    for index, part in enumerate(message.parts):
        given = _to_part(f"{where}.parts[{index}]", part)
        if given["type"] != "text":
            named = _ATTACHMENT.format(len(attached) // 2 + 1)
            attached += [{"type": "text", "text": named}, given]
            given = attached[-2]
        texts.append(given["text"])
    return {"role": "tool", "content": "\n".join(texts), "tool_call_id": message.tool_call_id}


def _parts_of(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def _to_message(where: str, message: Message, of_calls: Mapping[str, Any]) -> dict[str, Any]:
    content: Any = message.content
    if message.parts:
        content = [_to_part(f"{where}.parts[{index}]", part) for index, part in enumerate(message.parts)]
    said = {"role": message.role, "content": content}
    if message.tool_calls:
        said |= {
            "content": content or None,
            "tool_calls": [{**_to_call(call), **of_calls} for call in message.tool_calls],
        }
    return said


def _to_part(where: str, part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "text", "text": part.text}
        case "image":
            url = f"data:{image_type(part.data, where)};base64,{pybase64.b64encode_as_string(part.data)}"
            return {"type": "image_url", "image_url": {"url": url}}
        case "audio":
            audio = {"data": pybase64.b64encode_as_string(part.data), "format": audio_format(part.data, where)}
            return {"type": "input_audio", "input_audio": audio}
        case "document":
            return translated(part.place, part.given, "chat_completions")


def _to_call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def to_tools(tools: tuple[Tool, ...]) -> list[dict[str, Any]]:
    """Definitions of tools as JSON."""
    return [_to_tool(index, tool) for index, tool in enumerate(tools)]


def _to_tools(request: Request) -> dict[str, Any]:
    """`tool_choice` and `parallel_tool_calls` only where they say something: not every server takes them."""
    said: dict[str, Any] = {"tools": to_tools(request.tools)}
    if request.tool_choice.mode != "auto":
        said["tool_choice"] = _to_choice(request.tool_choice)
    if not request.parallel_tool_calls:
        said["parallel_tool_calls"] = False
    return said


def _to_tool(index: int, tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    function["parameters"] = read_parameters(tool, index)
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _to_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "function": {"name": choice.name}} if choice.mode == "named" else choice.mode


def _to_format(constraint: Constraint, original: Original | None) -> dict[str, Any]:
    """The field that has it. A choice and a grammar, which a provider has only by its settings, are in vLLM's own."""
    match constraint.kind:
        case "json_object":
            return {"response_format": {"type": "json_object"}}
        case "json_schema":
            named = {**counterparts.form(original), "schema": read_schema(constraint.value)}
            return {"response_format": {"type": "json_schema", "json_schema": named}}
        case "choice":
            return {"structured_outputs": {"choice": json.loads(constraint.value)}}
        case "grammar":
            return {"structured_outputs": {"grammar": constraint.value}}
        case other:
            raise InvalidInput("response_format", "json_schema or json_object, with this engine", other)
