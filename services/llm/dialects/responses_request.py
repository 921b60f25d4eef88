"""Requests to OpenAI's Responses, without any I/O.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pybase64

from services.llm.dialects import counterparts
from services.llm.dialects.documents import translated
from services.llm.dialects.media import audio_format, image_type
from services.llm.engine import Constraint, Message, Original, Part, Request, Sampling, Tool, ToolChoice
from services.llm.validation import read_parameters, read_schema
from services.runtime.errors import InvalidInput, NotSupported

LIMIT = "max_output_tokens"
_LOGPROBS = "message.output_text.logprobs"  # in `include`
HAS_NOT = ("seed", "frequency_penalty", "presence_penalty", "top_k", "min_p", "repetition_penalty", "min_tokens")
HAS_NO = ("stop", "logit_bias", "ignore_eos", "stop_token_ids")


def to_body(request: Request, model: str, max_tokens: int | None) -> dict[str, Any]:
    """The body to post; the provider keeps nothing of it. Raises InvalidInput and NotSupported for what this API cannot
    express."""
    return {
        "model": model,
        **to_conversation(request.messages),
        **_to_sampling(request.sampling),
        **to_logprobs(request.sampling),
        **_to_text(request),
        **({LIMIT: max_tokens} if max_tokens else {}),
        **to_tools(request),
        **_to_words(request.original),
        "store": False,
        "stream": True,
    }


def _to_text(request: Request) -> dict[str, Any]:
    """The options of the text: its format and its verbosity."""
    said: dict[str, Any] = {}
    if request.constraint:
        said["format"] = _to_format(request.constraint, request.original)
    if verbosity := counterparts.verbosity(request.original):
        said["verbosity"] = verbosity
    return {"text": said} if said else {}


def _to_words(original: Original | None) -> dict[str, Any]:
    """Fields that other APIs have under other names."""
    effort, user = counterparts.effort(original), counterparts.end_user(original)
    return {**({"reasoning": {"effort": effort}} if effort else {}), **({"safety_identifier": user} if user else {})}


def of_policies(request: Request) -> dict[str, Any]:
    """Fields that a policy may have put in the place of the caller's words."""
    return {**to_conversation(request.messages), **to_tools(request), **to_logprobs(request.sampling)}


def to_conversation(messages: tuple[Message, ...]) -> dict[str, Any]:
    """`instructions` and `input`. Instructions that do not come first stay in their place."""
    first = messages[0] if messages else Message("user")
    has_instructions = first.role == "system" and bool(first.content)
    items = [
        item
        for index, each in enumerate(messages)
        if index or not has_instructions
        for item in _items(f"messages[{index}]", each)
    ]
    return {**({"instructions": first.content} if has_instructions else {}), "input": items}


def _items(where: str, message: Message) -> Iterator[dict[str, Any]]:
    parts = [_to_part(f"{where}.parts[{index}]", part) for index, part in enumerate(message.parts)]
    if message.role == "tool":
        output = parts or message.content
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": output}
        return
    if parts:
        yield {"role": message.role, "content": parts}
    elif message.content or not message.tool_calls:
        yield {"role": message.role, "content": message.content}
    for call in message.tool_calls:
        yield {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}


def _to_part(where: str, part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            return {"type": "input_text", "text": part.text}
        case "image":
            url = f"data:{image_type(part.data, where)};base64,{pybase64.b64encode_as_string(part.data)}"
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        case "audio":
            audio = {"data": pybase64.b64encode_as_string(part.data), "format": audio_format(part.data, where)}
            return {"type": "input_audio", "input_audio": audio}
        case "document":
            return translated(part.place, part.given, "responses")


def _to_sampling(sampling: Sampling) -> dict[str, Any]:
    asked = [name for name in HAS_NOT if getattr(sampling, name) is not None]
    asked += [name for name in HAS_NO if getattr(sampling, name)]
    for name in asked:
        raise NotSupported(f"sampling.{name}: this provider's Responses have none", field=f"sampling.{name}")
    said = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    return {name: value for name, value in said.items() if value is not None}


def to_logprobs(sampling: Sampling) -> dict[str, Any]:
    """The fields that request log-probabilities, if any."""
    most = sampling.top_logprobs
    return {} if most is None else {"top_logprobs": most, "include": [_LOGPROBS]}


def to_tools(request: Request) -> dict[str, Any]:
    """Functions that may be called, and which; nothing where there are none."""
    if not request.tools:
        return {}
    said: dict[str, Any] = {"tools": [_to_tool(index, tool) for index, tool in enumerate(request.tools)]}
    if request.tool_choice.mode != "auto":
        said["tool_choice"] = _to_choice(request.tool_choice)
    if not request.parallel_tool_calls:
        said["parallel_tool_calls"] = False
    return said


def _to_tool(index: int, tool: Tool) -> dict[str, Any]:
    """`strict` is always said: here it is true where it is not."""
    said: dict[str, Any] = {"type": "function", "name": tool.name, "strict": tool.strict}
    said["parameters"] = read_parameters(tool, index)
    return {**said, "description": tool.description} if tool.description else said


def _to_choice(choice: ToolChoice) -> Any:
    return {"type": "function", "name": choice.name} if choice.mode == "named" else choice.mode


def _to_format(constraint: Constraint, original: Original | None) -> dict[str, Any]:
    match constraint.kind:
        case "json_object":
            return {"type": "json_object"}
        case "json_schema":
            return {"type": "json_schema", **counterparts.form(original), "schema": read_schema(constraint.value)}
        case other:
            raise InvalidInput("response_format", "json_schema or json_object, with this engine", other)
