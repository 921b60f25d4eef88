"""Requests to Anthropic's Messages API, without any I/O.

Source: https://platform.claude.com/docs/en/api/messages
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pybase64

from services.llm.dialects import counterparts
from services.llm.dialects.documents import translated
from services.llm.dialects.media import image_type
from services.llm.engine import Constraint, Message, Part, Request, Sampling, Tool, ToolCall, ToolChoice
from services.llm.validation import read_parameters, read_schema
from services.runtime import strict_json
from services.runtime.errors import InvalidInput, NotSupported

HAS_NOT = ("seed", "frequency_penalty", "presence_penalty")  # of sampling
_HOTTEST = 1.0
_THINKING_TOP_P = 0.95  # the least beside thinking
_JSON_OBJECT = "Answer with a JSON object alone: no other text, and no code fence."
_CHOICES = {"auto": "auto", "none": "none", "required": "any", "named": "tool"}


def to_body(request: Request, model: str, max_tokens: int, thinking: dict[str, Any] | None = None) -> dict[str, Any]:
    """The body to post. Raises InvalidInput and NotSupported for fields that this API cannot express.

    `thinking` is left out where the request wants none, and where the API would refuse it: in the middle of a turn,
    whose thoughts were not kept, where a tool must be called, and beside some fields (`_goes_with`).
    """
    body = {**to_conversation(request.messages, model), "max_tokens": max_tokens, "stream": True}
    body |= _to_sampling(request.sampling)
    if request.tools:
        body["tools"] = to_tools(request.tools)
        body["tool_choice"] = _to_choice(request.tool_choice, parallel=request.parallel_tool_calls)
    if request.constraint and request.constraint.kind != "json_object":
        body["output_config"] = {"format": _to_format(request.constraint)}
    effort = counterparts.effort(request.original)
    if effort and effort != counterparts.NO_EFFORT:
        body["output_config"] = {**body.get("output_config", {}), "effort": effort}
    if user := counterparts.end_user(request.original):
        body["metadata"] = {"user_id": user}
    in_turn = request.messages[-1].role == "tool"
    if thinking and effort != counterparts.NO_EFFORT and not (in_turn or request.tool_choice.forces):
        body |= {"thinking": thinking} if _goes_with(thinking, body) else {}
    return body


def with_form_in_words(body: dict[str, Any], constraint: Constraint | None) -> dict[str, Any]:
    """The body with an instruction that asks for a JSON object. This API constrains an answer to a schema, but not to
    any object; a tool without properties in its place made models answer `{}`.

    Source: https://github.com/BerriAI/litellm/pull/25740
    """
    if constraint is None or constraint.kind != "json_object":
        return body
    return {**body, "system": [*body.get("system", []), text_block(_JSON_OBJECT)]}


def _goes_with(thinking: dict[str, Any], body: dict[str, Any]) -> bool:
    """Whether the API takes `thinking` beside the request's limits: it wants its own temperature, no `top_k`, and room
    for the answer. Source: https://platform.claude.com/docs/en/build-with-claude/extended-thinking"""
    budget = thinking.get("budget_tokens")
    draws = body.get("temperature", _HOTTEST) == _HOTTEST and body.get("top_p", 1) >= _THINKING_TOP_P
    return draws and "top_k" not in body and not (isinstance(budget, int) and budget >= body["max_tokens"])


def to_conversation(messages: tuple[Message, ...], model: str) -> dict[str, Any]:
    """A conversation as JSON, with the model."""
    said = ((each.role, _to_blocks(f"messages[{index}]", each)) for index, each in enumerate(messages))
    return {"model": model, **conversation_of(said)}


def conversation_of(messages: Iterable[tuple[str, list[dict[str, Any]]]]) -> dict[str, Any]:
    """Turns of messages, each a role and blocks. Instructions stand apart; a tool's result is a user's message."""
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    for said_by, blocks in messages:
        if said_by == "system":
            system += blocks
            continue
        if not blocks:
            continue
        role = "assistant" if said_by == "assistant" else "user"
        if turns and turns[-1]["role"] == role:  # the results of calls made at once are one turn
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return {"messages": turns, **({"system": system} if system else {})}


def _to_blocks(where: str, message: Message) -> list[dict[str, Any]]:
    parts = (Part("text", message.content), *message.parts)
    blocks = [_to_block(f"{where}.parts[{index - 1}]", part) for index, part in enumerate(parts) if not _is_blank(part)]
    if message.role == "tool":
        result = {"type": "tool_result", "tool_use_id": to_id(message.tool_call_id)}
        content = blocks if message.parts else message.content
        return [result | ({"content": content} if content else {})]
    blocks += [to_use(f"{where}.tool_calls[{index}]", call) for index, call in enumerate(message.tool_calls)]
    return blocks


def text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _is_blank(part: Part) -> bool:
    """Whether the API would refuse a part because it has no text."""
    return part.kind == "text" and not part.text.strip()


def to_id(call_id: str) -> str:
    """The id of a call with `_` for each character that this API does not take, as Kimi's `functions.weather:0` has."""
    return "".join(each if each.isascii() and (each.isalnum() or each == "-") else "_" for each in call_id)


def _to_block(where: str, part: Part) -> dict[str, Any]:
    match part.kind:
        case "text":
            return text_block(part.text)
        case "image":
            data = pybase64.b64encode_as_string(part.data)
            source = {"type": "base64", "media_type": image_type(part.data, where), "data": data}
            return {"type": "image", "source": source}
        case "audio":
            raise NotSupported(f"{where}.audio: this provider does not take recordings")
        case "document":
            return translated(part.place, part.given, "messages")


def to_use(where: str, call: ToolCall) -> dict[str, Any]:
    """A call of a tool, whose arguments must be an object."""
    try:
        arguments = strict_json.loads(call.arguments or "{}")
    except ValueError as error:
        raise InvalidInput(f"{where}.arguments", f"JSON, with this engine ({error})", call.arguments) from None
    if not isinstance(arguments, dict):
        raise InvalidInput(f"{where}.arguments", "a JSON object, with this engine", type(arguments).__name__)
    return {"type": "tool_use", "id": to_id(call.id), "name": call.name, "input": arguments}


def _to_sampling(sampling: Sampling) -> dict[str, Any]:
    for name in HAS_NOT:
        if getattr(sampling, name) is not None:
            raise NotSupported(f"sampling.{name}: this provider has none", field=f"sampling.{name}")
    if sampling.top_k is not None and sampling.top_k < 1:
        raise InvalidInput("sampling.top_k", "1 or more, with this engine", sampling.top_k)
    if sampling.temperature is not None and sampling.temperature > _HOTTEST:
        raise InvalidInput("sampling.temperature", "0 to 1, with this engine", sampling.temperature)
    optional = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "stop_sequences": list(sampling.stop) or None,
    }
    return {name: value for name, value in optional.items() if value is not None}


def to_tools(tools: tuple[Tool, ...]) -> list[dict[str, Any]]:
    """Definitions of tools as JSON."""
    return [_to_tool(index, tool) for index, tool in enumerate(tools)]


def _to_tool(index: int, tool: Tool) -> dict[str, Any]:
    said: dict[str, Any] = {"name": tool.name, "input_schema": {"type": "object", **read_parameters(tool, index)}}
    if tool.description:
        said["description"] = tool.description
    if tool.strict:
        said["strict"] = True
    return said


def _to_choice(choice: ToolChoice, *, parallel: bool) -> dict[str, Any]:
    said: dict[str, Any] = {"type": _CHOICES[choice.mode]}
    if choice.mode == "named":
        said["name"] = choice.name
    if not parallel and choice.mode != "none":
        said["disable_parallel_tool_use"] = True
    return said


def _to_format(constraint: Constraint) -> dict[str, Any]:
    if constraint.kind != "json_schema":
        raise InvalidInput("response_format", "json_schema or json_object, with this engine", constraint.kind)
    return {"type": "json_schema", "schema": read_schema(constraint.value)}
