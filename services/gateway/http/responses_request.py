"""Reading what OpenAI's Responses ask for. Nothing is kept between requests: each brings its whole conversation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hedgerow.chat.v1 import chat_pb2
from hedgerow.gateway.v1 import gateway_pb2 as pb
from services.gateway.http.chat_request import MODES, ROLES, put_tool, take_format
from services.gateway.http.fields import Fields
from services.gateway.http.order import Order, take_model, take_options
from services.gateway.http.parts import put_content
from services.runtime.errors import InvalidInput

_KEPT = ("previous_response_id", "conversation", "background", "prompt")
_ECHOED = ("instructions", "max_output_tokens", "metadata", "temperature", "top_p", "user", "reasoning", "truncation")
_LOGPROBS = "message.output_text.logprobs"


def read_response(body: Fields, headers: Mapping[str, str], known: Collection[str]) -> Order:
    """The order of a response. Raises `InvalidInput` and `ModelUnknown`."""
    order = Order(pb.GenerateRequest())
    request = order.request
    take_model(order, body, known)
    body.refuse(*_KEPT)
    order.stream = bool(body.flag("stream"))
    if instructions := body.text("instructions"):
        request.messages.add(role=chat_pb2.ROLE_SYSTEM, content=instructions)
    _take_input(request, body)
    _take_sampling(request, body)
    _take_tools(request, body)
    if (text := body.object("text")) and (given := text.object("format")):
        take_format(request, given)
    take_options(order, headers, body)
    order.echo = _echo(body)
    return order


def _take_input(request: pb.GenerateRequest, body: Fields) -> None:
    if isinstance(body.raw("input"), str):
        request.messages.add(role=chat_pb2.ROLE_USER, content=body.needed("input"))
        return
    if "input" not in body:
        raise body.wrong("input", "a string or an array")
    for item in body.objects("input"):
        _take_item(request, item)


def _take_item(request: pb.GenerateRequest, item: Fields) -> None:
    match item.text("type") or "message":
        case "message":
            role = item.one_of("role", ROLES)
            if role is None:
                raise item.wrong("role", f"one of {', '.join(ROLES)}")
            put_content(request.messages.add(role=role), item)
        case "function_call":
            call = {name: item.needed(name) for name in ("name", "arguments")}
            _speaking(request).tool_calls.add(id=item.needed("call_id"), **call)
        case "function_call_output":
            result = request.messages.add(role=chat_pb2.ROLE_TOOL, tool_call_id=item.needed("call_id"))
            put_content(result, item, "output")
        case "reasoning":
            pass  # what a model thought before is not for the next one to read
        case _:
            raise item.wrong("type", "one of message, function_call, function_call_output, reasoning")


def _speaking(request: pb.GenerateRequest) -> chat_pb2.Message:
    """The assistant's turn that calls are a part of."""
    if request.messages and request.messages[-1].role == chat_pb2.ROLE_ASSISTANT:
        return request.messages[-1]
    return request.messages.add(role=chat_pb2.ROLE_ASSISTANT)


def _take_sampling(request: pb.GenerateRequest, body: Fields) -> None:
    sampling = request.sampling
    if (temperature := body.number("temperature")) is not None:
        sampling.temperature = temperature
    if (top_p := body.number("top_p")) is not None:
        sampling.top_p = top_p
    if (most := body.whole("max_output_tokens")) is not None:
        sampling.max_tokens = most
    top = body.whole("top_logprobs")
    if top or _LOGPROBS in body.array("include"):
        sampling.top_logprobs = top or 0


def _take_tools(request: pb.GenerateRequest, body: Fields) -> None:
    for given in body.objects("tools"):
        if given.needed("type") != "function":
            raise given.wrong("type", "function")
        put_tool(request.tools.add(), given, "parameters")
    if isinstance(body.raw("tool_choice"), str):
        request.tool_choice.mode = body.one_of("tool_choice", MODES) or chat_pb2.TOOL_MODE_AUTO
    elif choice := body.object("tool_choice"):
        if choice.needed("type") != "function":
            raise InvalidInput(choice.at("type"), "function", choice.needed("type"))
        request.tool_choice.name = choice.needed("name")
    if (parallel := body.flag("parallel_tool_calls")) is not None:
        request.parallel_tool_calls = parallel


def _echo(body: Fields) -> dict[str, Any]:
    """What the answer repeats of the request."""
    parallel = body.flag("parallel_tool_calls")
    tools = [{"parameters": None, "strict": False, **tool} for tool in body.array("tools")]
    return {
        **{name: body.raw(name) for name in _ECHOED},
        "parallel_tool_calls": True if parallel is None else parallel,
        "tool_choice": body.raw("tool_choice") or "auto",
        "tools": tools,
        "text": body.raw("text") or {"format": {"type": "text"}},
        "previous_response_id": None,
        "store": False,
    }
