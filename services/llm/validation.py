"""Validation of requests for any engine. Each refusal names the field, the limit and the value."""

from __future__ import annotations

import math
from typing import Any

from services.llm.engine import Message, Part, Request, Sampling, Tool, ToolChoice
from services.runtime import strict_json
from services.runtime.errors import InvalidInput
from services.runtime.limits import (
    LOGIT_BIASES,
    STOP_CHARACTERS,
    STOP_TOKENS,
    STOPS,
    TOOL_NAME,
    TOOLS,
    TOP_K,
    TOP_LOGPROBS,
)

MAX_SALT_CHARACTERS = 64
_MAY_BE_EMPTY = ("system", "tool")
_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}}


def check(request: Request, *, forwarded: bool = False) -> None:
    """Raise InvalidInput for a request no engine should see. `forwarded`: whether a provider gets the caller's own
    words, and says itself which tools may be called beside a form."""
    check_messages(request.messages)
    if request.messages[-1].role not in ("user", "tool"):
        raise InvalidInput(
            f"messages[{len(request.messages) - 1}].role",
            "the last one is the user's, or a tool's",
            request.messages[-1].role,
        )
    _check_sampling(request.sampling)
    if len(request.cache_salt) > MAX_SALT_CHARACTERS:
        raise InvalidInput("cache_salt", f"at most {MAX_SALT_CHARACTERS} characters", len(request.cache_salt))
    if request.constraint and request.constraint.kind == "json_schema":
        read_schema(request.constraint.value)
    _check_tools(request.tools)
    _check_choice(request.tool_choice, request, forwarded=forwarded)
    if request.prefix and (request.constraint or request.tools):  # they are about the whole answer, not what is new
        beside = "response_format" if request.constraint else "tools"
        raise InvalidInput("prefix", f"none together with {beside}", f"{len(request.prefix)} characters")


def read_schema(text: str, field: str = "response_format.json_schema") -> dict[str, Any]:
    """A JSON Schema that can be handed on. Raises InvalidInput for text that is none."""
    try:
        schema = strict_json.loads(text)
    except ValueError as error:
        raise InvalidInput(field, f"JSON ({error})", text) from None
    if not isinstance(schema, dict):
        raise InvalidInput(field, "a JSON object", type(schema).__name__)
    return schema


def read_parameters(tool: Tool, index: int) -> dict[str, Any]:
    """The JSON Schema of a tool's arguments. Raises InvalidInput, which names the tool by its `index`."""
    return read_schema(tool.parameters, f"tools[{index}].parameters") if tool.parameters else _NO_ARGUMENTS


def check_messages(messages: tuple[Message, ...]) -> None:
    """Raise InvalidInput for what is not a conversation."""
    if not messages:
        raise InvalidInput("messages", "1 or more", 0)
    called = set[str]()
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not (message.content or message.parts or message.tool_calls or message.role in _MAY_BE_EMPTY):
            raise InvalidInput(f"{where}.content", "1 or more characters", 0)
        for number, part in enumerate(message.parts):
            _check_part(f"{where}.parts[{number}]", part, message)
        _check_calls(where, message, called)
        called.update(call.id for call in message.tool_calls)


def _check_part(where: str, part: Part, message: Message) -> None:
    if part.kind == "document":
        return
    if part.kind != "text" and message.role != "user":
        raise InvalidInput(where, f"{part.kind} only in messages of the user", message.role)
    if part.kind != "text" and not part.data:
        raise InvalidInput(f"{where}.{part.kind}", "1 or more bytes", 0)


def _check_calls(where: str, message: Message, called: set[str]) -> None:
    """The assistant calls tools by name, and every result is of a call before it."""
    if message.tool_calls and message.role != "assistant":
        raise InvalidInput(f"{where}.tool_calls", "only in messages of the assistant", message.role)
    for number, call in enumerate(message.tool_calls):
        for field, value in (("id", call.id), ("name", call.name)):
            if not value:
                raise InvalidInput(f"{where}.tool_calls[{number}].{field}", "1 or more characters", 0)
    if message.role == "tool" and message.tool_call_id not in called:
        raise InvalidInput(f"{where}.tool_call_id", "the id of a call before it", repr(message.tool_call_id))
    if message.role != "tool" and message.tool_call_id:
        raise InvalidInput(f"{where}.tool_call_id", "only in messages of a tool", message.tool_call_id)


def _check_tools(tools: tuple[Tool, ...]) -> None:
    if len(tools) > TOOLS:
        raise InvalidInput("tools", f"at most {TOOLS}", len(tools))
    names = set[str]()
    for index, tool in enumerate(tools):
        if not TOOL_NAME.fullmatch(tool.name):
            raise InvalidInput(f"tools[{index}].name", "1 to 128 letters, digits, _ and -", repr(tool.name))
        if tool.name in names:
            raise InvalidInput(f"tools[{index}].name", "one tool of each name", tool.name)
        names.add(tool.name)
        read_parameters(tool, index)


def _check_choice(choice: ToolChoice, request: Request, *, forwarded: bool) -> None:
    names = [tool.name for tool in request.tools]
    if choice.mode == "named" and choice.name not in names:
        raise InvalidInput("tool_choice.name", f"one of {', '.join(names) or 'no tools'}", choice.name)
    if choice.mode == "required" and not names:
        raise InvalidInput("tool_choice.mode", "no required without tools", "required")
    if choice.forces and request.constraint and not forwarded:  # the answer is a call, which has a schema of its own
        raise InvalidInput("tool_choice", "no required call together with a response_format", choice.name or "required")


def _check_sampling(sampling: Sampling) -> None:
    _check_range("sampling.temperature", sampling.temperature, 0, 2, "0 to 2")
    _check_range("sampling.top_p", sampling.top_p, math.ulp(0.0), 1, "above 0 to 1")
    _check_range("sampling.frequency_penalty", sampling.frequency_penalty, -2, 2, "-2 to 2")
    _check_range("sampling.presence_penalty", sampling.presence_penalty, -2, 2, "-2 to 2")
    _check_range("sampling.top_logprobs", sampling.top_logprobs, 0, TOP_LOGPROBS, f"0 to {TOP_LOGPROBS}")
    if sampling.max_tokens is not None and sampling.max_tokens < 1:
        raise InvalidInput("sampling.max_tokens", "1 or more", sampling.max_tokens)
    _check_range("sampling.top_k", sampling.top_k, -1, TOP_K, f"1 to {TOP_K}, or 0 or -1 for all tokens")
    _check_range("sampling.min_p", sampling.min_p, 0, 1, "0 to 1")
    _check_range("sampling.repetition_penalty", sampling.repetition_penalty, math.ulp(0.0), 2, "above 0 to 2")
    _check_range("sampling.min_tokens", sampling.min_tokens, 0, sampling.max_tokens or math.inf, "0 to max_tokens")
    _check_stop_tokens(sampling.stop_token_ids)
    if len(sampling.stop) > STOPS:
        raise InvalidInput("sampling.stop", f"at most {STOPS}", len(sampling.stop))
    for index, stop in enumerate(sampling.stop):
        if not 1 <= len(stop) <= STOP_CHARACTERS:
            raise InvalidInput(f"sampling.stop[{index}]", f"1 to {STOP_CHARACTERS} characters", len(stop))
    _check_logit_bias(sampling.logit_bias)


def _check_stop_tokens(tokens: tuple[int, ...]) -> None:
    if len(tokens) > STOP_TOKENS:
        raise InvalidInput("sampling.stop_token_ids", f"at most {STOP_TOKENS}", len(tokens))
    for index, token in enumerate(tokens):
        if token < 0:
            raise InvalidInput(f"sampling.stop_token_ids[{index}]", "0 or more", token)


def _check_logit_bias(biases: tuple[tuple[int, float], ...]) -> None:
    if len(biases) > LOGIT_BIASES:
        raise InvalidInput("sampling.logit_bias", f"at most {LOGIT_BIASES}", len(biases))
    seen = set[int]()
    for index, (token, bias) in enumerate(biases):
        where = f"sampling.logit_bias[{index}]"
        if token < 0:
            raise InvalidInput(f"{where}.token", "0 or more", token)
        if token in seen:
            raise InvalidInput(f"{where}.token", "each once", token)
        seen.add(token)
        _check_range(f"{where}.bias", bias, -100, 100, "-100 to 100")


def _check_range(field: str, value: float | None, least: float, most: float, limit: str) -> None:
    if value is not None and not least <= value <= most:  # also refuses NaN
        raise InvalidInput(field, limit, value)
